//go:build linux && !portable

package proxy

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The system calls of the UDP loop. They never wait, so they are made without
// telling Go's scheduler, which spares each of them some tenths of a
// microsecond.

// datagrams are buffers with all that recvmmsg and sendmmsg need around them.
// Of a buffer only the pages that a datagram has reached take memory.
type datagrams struct {
	messages []message
	vectors  []unix.Iovec
	buffers  []byte
	names    []unix.RawSockaddrInet6 // large enough for either family
	controls [][controlSize]byte
	flows    []*udpFlow // whose reply it is
}

// message is a struct mmsghdr.
type message struct {
	unix.Msghdr
	size uint32
}

// controlSize has room for the larger of IP_PKTINFO and IPV6_PKTINFO.
const controlSize = unix.SizeofCmsghdr + 24

func newDatagrams(n int) *datagrams {
	d := &datagrams{
		messages: make([]message, n),
		vectors:  make([]unix.Iovec, n),
		buffers:  make([]byte, n*maxDatagram),
		names:    make([]unix.RawSockaddrInet6, n),
		controls: make([][controlSize]byte, n),
		flows:    make([]*udpFlow, n),
	}
	for i := range d.messages {
		d.vectors[i].Base = &d.buffers[i*maxDatagram]
		d.messages[i].Iov = &d.vectors[i]
		d.messages[i].SetIovlen(1)
	}
	return d
}

// receive fills up to most datagrams, the first of them at index from. With
// who it also asks where they come from, and with where at which address they
// arrived.
func (d *datagrams) receive(fd, from, most int, who, where bool) (int, syscall.Errno) {
	for i := from; i < from+most; i++ {
		m := &d.messages[i]
		d.vectors[i].SetLen(maxDatagram)
		m.Name, m.Namelen, m.Control = nil, 0, nil
		m.SetControllen(0)
		if who {
			m.Name, m.Namelen = (*byte)(unsafe.Pointer(&d.names[i])), unix.SizeofSockaddrInet6
		}
		if where {
			m.Control = &d.controls[i][0]
			m.SetControllen(controlSize)
		}
	}
	n, _, err := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), uintptr(unsafe.Pointer(&d.messages[from])), uintptr(most), unix.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(n), 0
}

// payload is the datagram that was received at index i.
func (d *datagrams) payload(i int) []byte {
	return d.buffers[i*maxDatagram:][:d.messages[i].size]
}

// sender is whom the datagram at index i is from.
func (d *datagrams) sender(i int) netip.AddrPort { return addrPort(&d.names[i]) }

// receivedAt is the local address that the datagram at index i was sent to;
// the zero Addr where that was not asked for.
func (d *datagrams) receivedAt(i int) netip.Addr {
	m := &d.messages[i]
	if m.Control == nil || int(m.Controllen) < unix.SizeofCmsghdr {
		return netip.Addr{}
	}
	header := (*unix.Cmsghdr)(unsafe.Pointer(m.Control))
	data := unsafe.Pointer(&d.controls[i][unix.SizeofCmsghdr])
	switch {
	case header.Level == unix.IPPROTO_IP && header.Type == unix.IP_PKTINFO:
		return netip.AddrFrom4((*unix.Inet4Pktinfo)(data).Spec_dst)
	case header.Level == unix.IPPROTO_IPV6 && header.Type == unix.IPV6_PKTINFO:
		info := (*unix.Inet6Pktinfo)(data)
		return withZone(netip.AddrFrom16(info.Addr).Unmap(), info.Ifindex)
	}
	return netip.Addr{}
}

// addressTo makes the datagram received at index i one to the flow's client.
func (d *datagrams) addressTo(i int, f *udpFlow) {
	m, to := &d.messages[i], &f.replyTo
	d.flows[i] = f
	d.vectors[i].SetLen(int(m.size))
	m.Name, m.Namelen = (*byte)(unsafe.Pointer(&to.name)), to.nameSize
	if len(to.control) > 0 {
		m.Control = &to.control[0]
		m.SetControllen(len(to.control))
	}
}

// send sends n datagrams, the first of them at index from, and says how many
// the kernel took; an error is the first one's.
func (d *datagrams) send(fd, from, n int) (int, syscall.Errno) {
	sent, _, err := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(unsafe.Pointer(&d.messages[from])), uintptr(n), unix.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return 0, err
	}
	return int(sent), 0
}

// replyAddress is where a flow's replies go and the address that they leave
// from, as sendmsg wants them.
type replyAddress struct {
	name     unix.RawSockaddrInet6
	nameSize uint32
	control  []byte // empty where the socket has but one address
}

func (c *clientSocket) replyAddress(key flowKey) (a replyAddress) {
	a.nameSize = putAddrPort(&a.name, key.client, c.ipv6)
	if !key.local.IsValid() {
		return a
	}
	if c.ipv6 {
		a.control = make([]byte, unix.CmsgSpace(unix.SizeofInet6Pktinfo))
		putControlHeader(a.control, unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo)
		// A link-local address is one only together with its link, also where the
		// client's address is global.
		*(*unix.Inet6Pktinfo)(unsafe.Pointer(&a.control[unix.SizeofCmsghdr])) = unix.Inet6Pktinfo{
			Addr: key.local.As16(), Ifindex: zoneOf(key.local),
		}
		return a
	}
	a.control = make([]byte, unix.CmsgSpace(unix.SizeofInet4Pktinfo))
	putControlHeader(a.control, unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)
	(*unix.Inet4Pktinfo)(unsafe.Pointer(&a.control[unix.SizeofCmsghdr])).Spec_dst = key.local.As4()
	return a
}

func putControlHeader(b []byte, level, typ int32, size int) {
	header := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
	header.Level, header.Type = level, typ
	header.SetLen(unix.CmsgLen(size))
}

// addrPort reads a socket address. IPv4 addresses mapped into IPv6 are unmapped.
func addrPort(name *unix.RawSockaddrInet6) netip.AddrPort {
	if name.Family == unix.AF_INET {
		v4 := (*unix.RawSockaddrInet4)(unsafe.Pointer(name))
		return netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), networkOrder(v4.Port))
	}
	return netip.AddrPortFrom(withZone(netip.AddrFrom16(name.Addr).Unmap(), name.Scope_id), networkOrder(name.Port))
}

// withZone adds the number of its link to an address that is nothing without.
func withZone(a netip.Addr, link uint32) netip.Addr {
	if link == 0 || !a.Is6() || !a.IsLinkLocalUnicast() {
		return a
	}
	return a.WithZone(strconv.FormatUint(uint64(link), 10))
}

// zoneOf is what withZone has added; 0 if nothing.
func zoneOf(a netip.Addr) uint32 {
	link, err := strconv.ParseUint(a.Zone(), 10, 32)
	if err != nil {
		return 0
	}
	return uint32(link)
}

// putAddrPort writes a socket address of either family and returns its size.
func putAddrPort(name *unix.RawSockaddrInet6, a netip.AddrPort, ipv6 bool) uint32 {
	if !ipv6 {
		*(*unix.RawSockaddrInet4)(unsafe.Pointer(name)) = unix.RawSockaddrInet4{
			Family: unix.AF_INET, Port: networkOrder(a.Port()), Addr: a.Addr().Unmap().As4(),
		}
		return unix.SizeofSockaddrInet4
	}
	*name = unix.RawSockaddrInet6{
		Family: unix.AF_INET6, Port: networkOrder(a.Port()), Addr: a.Addr().As16(), Scope_id: zoneOf(a.Addr()),
	}
	return unix.SizeofSockaddrInet6
}

// networkOrder turns a port from the byte order of this machine to that of the
// network, and back.
func networkOrder(port uint16) uint16 {
	var b [2]byte
	binary.BigEndian.PutUint16(b[:], port)
	return binary.NativeEndian.Uint16(b[:])
}

func connect(fd int, to netip.AddrPort, ipv6 bool) error {
	var name unix.RawSockaddrInet6
	size := putAddrPort(&name, to, ipv6)
	if _, _, err := unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&name)), uintptr(size)); err != 0 {
		return err
	}
	return nil
}

func send(fd int, b []byte) error {
	_, _, err := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	if err != 0 {
		return err
	}
	return nil
}
