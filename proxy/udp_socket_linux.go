//go:build linux && !portable

package proxy

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// clientSocket is the socket that a server's clients send to.
type clientSocket struct {
	server     *udpServer
	loop       *udpLoop
	file       *os.File // not in Go's poller, which would be woken by every datagram, either way
	fd         int
	ipv6       bool
	anyAddress bool // it takes what is sent to any address of this host
}

// receiveBuffer is how many bytes of datagrams may wait for the loop, as the
// kernel counts them: some 2,700 small ones or 30 of the longest. It is memory
// only while they wait.
const receiveBuffer = 2 << 20

// listen has the loop read what clients send to conn. It replaces conn by a
// descriptor of its own, and leaves it alone on an error.
func (l *udpLoop) listen(s *udpServer, conn *net.UDPConn) error {
	local := conn.LocalAddr().(*net.UDPAddr).AddrPort()
	fd, err := duplicate(conn)
	if err != nil {
		return fmt.Errorf("serve UDP on %v: %w", local, err)
	}
	c := &clientSocket{server: s, loop: l, fd: fd, anyAddress: local.Addr().IsUnspecified()}
	s.socket = c
	if c.ipv6, err = prepareClientSocket(fd, c.anyAddress); err != nil {
		return errors.Join(fmt.Errorf("serve UDP on %v: %w", local, err), unix.Close(fd))
	}
	_ = unix.SetNonblock(fd, false) // keeps os.NewFile from putting it into Go's poller
	c.file = os.NewFile(uintptr(fd), "udp "+local.String())
	if err := l.watch(fd, watched{server: s}); err != nil {
		_ = unix.SetNonblock(fd, true) // conn shares it
		return errors.Join(fmt.Errorf("serve UDP on %v: %w", local, err), c.file.Close())
	}
	s.open.Add(1)
	_ = conn.Close()
	return nil
}

// duplicate is another descriptor of the connection's socket.
func duplicate(conn *net.UDPConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, err
	}
	var inner error
	err = raw.Control(func(of uintptr) { fd, inner = unix.FcntlInt(of, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(err, os.NewSyscallError("dup", inner))
}

func prepareClientSocket(fd int, anyAddress bool) (ipv6 bool, err error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return false, os.NewSyscallError("getsockopt", err)
	}
	ipv6 = domain == unix.AF_INET6
	if unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, receiveBuffer) != nil {
		_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, receiveBuffer) // up to net.core.rmem_max
	}
	if anyAddress {
		level, option := unix.IPPROTO_IP, unix.IP_PKTINFO
		if ipv6 {
			level, option = unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO
		}
		if err := unix.SetsockoptInt(fd, level, option, 1); err != nil {
			return ipv6, os.NewSyscallError("setsockopt", err)
		}
	}
	return ipv6, allowFragments(fd, ipv6)
}

// allowFragments lets what is longer than some link on the way pass in pieces.
// By default Linux forbids routers to cut, and loses the first datagram that
// is too long while it learns that it is.
func allowFragments(fd int, ipv6 bool) error {
	level, option := unix.IPPROTO_IP, unix.IP_MTU_DISCOVER
	if ipv6 {
		level, option = unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER
	}
	const dont = 0 // IP_PMTUDISC_DONT and IPV6_PMTUDISC_DONT
	return os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, level, option, dont))
}

func (c *clientSocket) close() { c.loop.end(c.fd) }

// SyscallConn gives access to the socket, until close.
func (c *clientSocket) SyscallConn() (syscall.RawConn, error) { return c.file.SyscallConn() }

// endpointSocket is a flow's connected socket.
type endpointSocket struct {
	loop *udpLoop
	fd   int
}

func (e endpointSocket) close() { e.loop.end(e.fd) }

// send says at once whether the kernel took b.
func (e endpointSocket) send(b []byte) error { return send(e.fd, b) }

// dial gives the flow its socket and reads its replies from then on.
func (l *udpLoop) dial(f *udpFlow) error {
	ipv6 := f.endpoint.Addr().Is6()
	domain := unix.AF_INET
	if ipv6 {
		domain = unix.AF_INET6
	}
	fd, err := unix.Socket(domain, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	err = l.flows.senderOf(f.key.client.Addr(), f.endpoint.Addr()).prepare(fd)
	if err == nil {
		err = allowFragments(fd, ipv6)
	}
	if err == nil {
		err = os.NewSyscallError("connect", connect(fd, f.endpoint, ipv6))
	}
	if err == nil {
		f.socket = endpointSocket{loop: l, fd: fd}
		err = l.watch(fd, watched{server: f.server, flow: f})
	}
	if err != nil {
		return errors.Join(err, unix.Close(fd))
	}
	f.server.open.Add(1)
	return nil
}

// whyDialFailed sorts the errors of dial.
func whyDialFailed(err error) dropReason {
	switch {
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM), errors.Is(err, unix.ENOSPC):
		return dropNoDescriptor
	case errors.Is(err, unix.EAGAIN):
		return dropNoPort
	}
	return dropUnreachable
}

// whySendFailed sorts the errors of sending.
func whySendFailed(err error) dropReason {
	switch {
	case errors.Is(err, unix.EMSGSIZE):
		return dropTooBig
	case errors.Is(err, unix.EAGAIN), errors.Is(err, unix.ENOBUFS), errors.Is(err, unix.ENOMEM):
		return dropBusy
	}
	return dropFailed
}
