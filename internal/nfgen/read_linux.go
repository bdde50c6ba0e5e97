package nfgen

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// Read is the number of the last change of any nf_tables rule in the calling
// thread's network namespace. It is never 0.
func Read() (uint32, error) {
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_GETGEN, 0)
	req.AddData(&nl.Nfgenmsg{NfgenFamily: unix.AF_UNSPEC, Version: nl.NFNETLINK_V0})
	messages, err := req.Execute(unix.NETLINK_NETFILTER, unix.NFNL_SUBSYS_NFTABLES<<8|unix.NFT_MSG_NEWGEN)
	if err != nil {
		return 0, fmt.Errorf("asking for the generation of the ruleset: %w", err)
	}
	for _, m := range messages {
		if len(m) < nl.SizeofNfgenmsg {
			continue
		}
		attrs, err := nl.ParseRouteAttr(m[nl.SizeofNfgenmsg:])
		if err != nil {
			return 0, fmt.Errorf("reading the generation of the ruleset: %w", err)
		}
		for _, a := range attrs { // the others tell who asks
			if a.Attr.Type == unix.NFTA_GEN_ID && len(a.Value) >= 4 {
				return binary.BigEndian.Uint32(a.Value), nil
			}
		}
	}
	return 0, errors.New("the kernel told no generation of the ruleset")
}

// NoTables says whether Read failed because the kernel has no nf_tables: it
// has no such socket, or does not know the question.
func NoTables(err error) bool {
	return errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL)
}

// After is the generation that some changes lead to if nobody else makes one
// meanwhile. From 0, which is no generation, they lead to 0.
func After(generation uint32, changes int) uint32 {
	if generation == 0 {
		return 0
	}
	for range changes {
		generation++
		if generation == 0 {
			generation++ // as the kernel does
		}
	}
	return generation
}
