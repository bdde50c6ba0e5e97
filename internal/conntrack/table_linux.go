package conntrack

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// DeleteUDP deletes the UDP entries of a family that stale says so of, and
// returns how many. Stale is given the sender, the destination that it means and
// the one that its datagrams are led to, which is the same where nobody has
// translated it. It is asked once for every UDP entry there is, and must not
// use connection tracking itself.
//
// It looks at all entries before it deletes the first, and deletes one only if
// it still leads where it led. After an error some may be deleted and others not; the
// next call deletes the rest. It needs CAP_NET_ADMIN and the kernel's
// nf_conntrack_netlink.
//
// The library's ConntrackDeleteFilters would do nearly the same. It has the
// kernel list TCP too, makes objects of every entry, and deletes by the sender
// and the destination that it means: also an entry that has been made since
// and leads elsewhere.
func (Table) DeleteUDP(f service.Family, stale func(from netip.Addr, to, ledTo netip.AddrPort) bool) (deleted int, err error) {
	socket, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return 0, fmt.Errorf("opening a socket for connection tracking: %w", err)
	}
	defer socket.Close()
	patience := unix.Timeval{Sec: 10} // for one answer of the kernel
	if err := errors.Join(socket.SetSendTimeout(&patience), socket.SetReceiveTimeout(&patience)); err != nil {
		return 0, fmt.Errorf("opening a socket for connection tracking: %w", err)
	}
	t := talk{family: unix.AF_INET, sockets: map[int]*nl.SocketHandle{unix.NETLINK_NETFILTER: {Socket: socket}}}
	if f == service.IPv6 {
		t.family = unix.AF_INET6
	}
	found, err := t.list(stale)
	if err != nil {
		return 0, fmt.Errorf("listing %s connection tracking entries: %w", f, err)
	}
	for _, e := range found {
		switch err := t.delete(e); {
		case err == nil:
			deleted++
		case !errors.Is(err, unix.ENOENT): // it has gone by itself
			return deleted, fmt.Errorf("deleting a %s connection tracking entry: %w", f, err)
		}
	}
	return deleted, nil
}

// talk is one with the kernel about the entries of a family.
type talk struct {
	family  uint8
	sockets map[int]*nl.SocketHandle
}

func (t talk) request(operation, flags int) *nl.NetlinkRequest {
	r := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_CTNETLINK<<8|operation, flags)
	r.Sockets = t.sockets
	r.AddData(&nl.Nfgenmsg{NfgenFamily: t.family, Version: nl.NFNETLINK_V0})
	return r
}

// list is the names of the UDP entries that are stale.
func (t talk) list(stale func(from netip.Addr, to, ledTo netip.AddrPort) bool) (found [][]byte, err error) {
	r := t.request(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP)
	// Kernels from 5.8 on list what we ask for, others everything.
	const ctaFilter, origFlags, replyFlags, byProtocol = 25, 1, 2, 1 << 3
	only := nl.NewRtAttr(unix.NLA_F_NESTED|ctaFilter, nil)
	only.AddRtAttr(origFlags, nl.Uint32Attr(byProtocol))
	only.AddRtAttr(replyFlags, nl.Uint32Attr(0))
	like := nl.NewRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_ORIG, nil)
	like.AddRtAttr(unix.NLA_F_NESTED|nl.CTA_TUPLE_PROTO, nil).AddRtAttr(nl.CTA_PROTO_NUM, []byte{unix.IPPROTO_UDP})
	r.AddData(only)
	r.AddData(like)
	err = r.ExecuteIter(unix.NETLINK_NETFILTER, 0, func(message []byte) bool {
		if e := readEntry(message); e.udp && stale(e.from, e.to, e.ledTo) {
			found = append(found, nameOf(message))
		}
		return true
	})
	return found, err
}

// delete deletes the entry of that name, or says that it is gone (ENOENT).
func (t talk) delete(name []byte) error {
	r := t.request(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK)
	r.AddRawData(name)
	_, err := r.Execute(unix.NETLINK_NETFILTER, 0)
	return err
}
