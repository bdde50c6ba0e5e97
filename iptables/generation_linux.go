//go:build linux && !portable

package iptables

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"unsafe"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// generation tells states of the kernel's rules from each other. Its zero
// value is no state.
type generation struct {
	number uint32 // of the change of nf_tables that led to it
	tables string // what ip_tables tells of the state
}

// after is the generation that some steps lead to if nobody else takes one
// meanwhile; the zero value where that cannot be foretold.
func (g generation) after(steps int) generation {
	if g.number == 0 {
		return generation{}
	}
	for range steps {
		g.number++
		if g.number == 0 {
			g.number++ // as the kernel does
		}
	}
	return g
}

// generation is that of the rules that these commands change. To ask for it
// costs some microseconds, however many rules there are.
func (c *commands) generation() (generation, error) {
	if !c.legacy() {
		number, err := nftGeneration()
		return generation{number: number}, err
	}
	var all strings.Builder
	for _, table := range tables() {
		info, err := tableInfo(c.family, table)
		if err != nil {
			return generation{}, err
		}
		all.WriteString(info)
	}
	return generation{tables: all.String()}, nil
}

// nftGeneration is the number of the last change of any nf_tables rule in this
// network namespace.
func nftGeneration() (uint32, error) {
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

// tableInfo is what IPT_SO_GET_INFO (linux/netfilter_ipv4/ip_tables.h) tells of
// a table: where its chains begin, how many rules it has and their size. That
// a rule is exchanged for another of its size does not show.
func tableInfo(f service.Family, table string) (string, error) {
	const getInfo = 64 // IPT_SO_GET_INFO and IP6T_SO_GET_INFO
	domain, level := unix.AF_INET, unix.IPPROTO_IP
	if f == service.IPv6 {
		domain, level = unix.AF_INET6, unix.IPPROTO_IPV6
	}
	fd, err := unix.Socket(domain, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return "", fmt.Errorf("opening a socket to ask for the table %s: %w", table, err)
	}
	defer unix.Close(fd) //nolint:errcheck // nothing was written to it
	var info struct {
		name                 [32]byte
		validHooks           uint32
		hookEntry, underflow [5]uint32
		rules, size          uint32
	}
	copy(info.name[:], table)
	size := uint32(unsafe.Sizeof(info))
	_, _, errno := unix.Syscall6(unix.SYS_GETSOCKOPT, uintptr(fd), uintptr(level), getInfo,
		uintptr(unsafe.Pointer(&info)), uintptr(unsafe.Pointer(&size)), 0)
	if errno != 0 {
		return "", fmt.Errorf("asking for the table %s: %w", table, errno)
	}
	return fmt.Sprint(info), nil
}
