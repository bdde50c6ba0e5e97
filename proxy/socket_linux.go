//go:build linux && !portable

package proxy

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// backlog is how many connections may wait to be accepted; the kernel cuts it
// to net.core.somaxconn.
const backlog = 4096

// tcpSocket is a bound TCP socket that is either held or listening.
//
// Held means bound and not listening: the kernel refuses connections with a
// reset, and the port is nobody else's. A listening socket goes back to held
// by shutdown(SHUT_RD), which ends the listening and leaves the binding and
// every accepted connection alone.
type tcpSocket struct {
	fd   int
	addr netip.AddrPort
}

// openTCP binds a held socket. The port is given: one that the kernel chooses
// (0) would be lost when listening ends.
func openTCP(addr netip.AddrPort) (*tcpSocket, error) {
	fd, err := bound(addr, unix.SOCK_STREAM, unix.SO_REUSEADDR)
	if err != nil {
		return nil, err
	}
	s := &tcpSocket{fd: fd, addr: addr}
	// REUSEADDR was wanted against connections in TIME_WAIT. Left on, it
	// would let a stranger listen on the port that is held here.
	if err := s.reuse(0); err != nil {
		return nil, errors.Join(err, s.close())
	}
	return s, nil
}

// listen makes a held socket accept.
func (s *tcpSocket) listen() error {
	if err := s.reuse(1); err != nil {
		return err
	}
	if err := unix.Listen(s.fd, backlog); err != nil {
		return fmt.Errorf("listen on tcp %v: %w", s.addr, err)
	}
	return nil
}

// hold makes a listening socket refuse.
func (s *tcpSocket) hold() error {
	if err := unix.Shutdown(s.fd, unix.SHUT_RD); err != nil {
		return fmt.Errorf("stop listening on tcp %v: %w", s.addr, err)
	}
	return s.reuse(0)
}

// listens says whether it does, which others can put an end to. Where that
// cannot be told it is taken to.
func (s *tcpSocket) listens() bool {
	is, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	return err != nil || is == 1
}

func (s *tcpSocket) close() error { return unix.Close(s.fd) }

func (s *tcpSocket) reuse(on int) error {
	if err := unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, on); err != nil {
		return fmt.Errorf("hold tcp %v: %w", s.addr, err)
	}
	return nil
}

// udpSocket is a bound UDP socket that is held or has been released to a server.
//
// Held means connected to itself: no datagram of anyone else's matches it, so
// the kernel answers port unreachable, and the port is nobody else's. Going
// either way a second socket is bound beside the first, and then the first
// closes: a connected IPv6 socket cannot be disconnected without losing its
// binding. SO_REUSEPORT is on only for that moment. Left on, it would let a
// daemon of the same user share the port, and let this proxy into a daemon's.
type udpSocket struct {
	held *net.UDPConn // nil while released
	addr netip.AddrPort
}

// openUDP binds a held socket.
func openUDP(addr netip.AddrPort) (*udpSocket, error) {
	held, err := openUDPConn(addr, 0)
	if err == nil {
		err = connectToSelf(held)
	}
	if err != nil {
		return nil, err
	}
	return &udpSocket{held: held, addr: held.LocalAddr().(*net.UDPAddr).AddrPort()}, nil
}

// release hands out a socket that receives. The caller closes it.
func (s *udpSocket) release() (*net.UDPConn, error) {
	if s.held == nil { // holding it failed
		return openUDPConn(s.addr, 0)
	}
	conn, err := beside(s.held, s.addr)
	if err != nil {
		return nil, err
	}
	_ = s.held.Close()
	s.held = nil
	return conn, nil
}

// hold makes the address refuse as soon as the caller closes conn, which it
// has from release.
func (s *udpSocket) hold(conn syscall.Conn) error {
	held, err := beside(conn, s.addr)
	if err == nil {
		err = connectToSelf(held)
	}
	if err == nil {
		s.held = held
	}
	return err
}

func (s *udpSocket) close() error {
	if s.held == nil {
		return nil
	}
	return s.held.Close()
}

// beside binds a second socket on the address of first.
func beside(first syscall.Conn, addr netip.AddrPort) (*net.UDPConn, error) {
	if err := setReusePort(first, addr, 1); err != nil {
		return nil, err
	}
	second, err := openUDPConn(addr, unix.SO_REUSEPORT)
	if err != nil {
		return nil, errors.Join(err, setReusePort(first, addr, 0))
	}
	if err := setReusePort(second, addr, 0); err != nil {
		_ = second.Close()
		return nil, err
	}
	return second, nil
}

func setReusePort(conn syscall.Conn, addr netip.AddrPort, on int) error {
	return controlUDP(conn, addr, "share the port of", func(fd int) error {
		return unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEPORT, on)
	})
}

// connectToSelf holds the socket; it closes it on an error.
func connectToSelf(conn *net.UDPConn) error {
	err := controlUDP(conn, conn.LocalAddr().(*net.UDPAddr).AddrPort(), "hold", func(fd int) error {
		self, err := unix.Getsockname(fd)
		if err != nil {
			return err
		}
		return unix.Connect(fd, self)
	})
	if err != nil {
		_ = conn.Close()
	}
	return err
}

func controlUDP(conn syscall.Conn, addr netip.AddrPort, op string, f func(fd int) error) error {
	rc, err := conn.SyscallConn()
	if err == nil {
		var inner error
		err = rc.Control(func(fd uintptr) { inner = f(int(fd)) })
		err = errors.Join(err, inner)
	}
	if err != nil {
		return fmt.Errorf("%s udp %v: %w", op, addr, err)
	}
	return nil
}

func openUDPConn(addr netip.AddrPort, reuse int) (*net.UDPConn, error) {
	fd, err := bound(addr, unix.SOCK_DGRAM, reuse)
	if err != nil {
		return nil, err
	}
	return udpConn(fd, addr)
}

// udpConn takes over fd, on errors too.
func udpConn(fd int, addr netip.AddrPort) (*net.UDPConn, error) {
	f := os.NewFile(uintptr(fd), "udp "+addr.String())
	defer f.Close() //nolint:errcheck // FilePacketConn has its own copy
	pc, err := net.FilePacketConn(f)
	if err != nil {
		return nil, fmt.Errorf("open udp %v: %w", addr, err)
	}
	return pc.(*net.UDPConn), nil
}

// bound is a socket of the address's own family alone ("0.0.0.0" does not take
// IPv6 along), bound with one reuse option on, or none where reuse is 0.
func bound(addr netip.AddrPort, typ, reuse int) (int, error) {
	network := "tcp"
	if typ == unix.SOCK_DGRAM {
		network = "udp"
	}
	domain := unix.AF_INET6
	var sa unix.Sockaddr = &unix.SockaddrInet6{Port: int(addr.Port()), Addr: addr.Addr().As16()}
	if service.FamilyOf(addr.Addr()) == service.IPv4 {
		domain = unix.AF_INET
		sa = &unix.SockaddrInet4{Port: int(addr.Port()), Addr: addr.Addr().Unmap().As4()}
	}
	fd, err := unix.Socket(domain, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, fmt.Errorf("open %s %v: %w", network, addr, os.NewSyscallError("socket", err))
	}
	if reuse != 0 {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.SOL_SOCKET, reuse, 1))
	}
	if err == nil && domain == unix.AF_INET6 {
		err = os.NewSyscallError("setsockopt", unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 1))
	}
	if err == nil {
		err = os.NewSyscallError("bind", unix.Bind(fd, sa))
	}
	if err != nil {
		_ = unix.Close(fd)
		return 0, fmt.Errorf("open %s %v: %w", network, addr, err)
	}
	return fd, nil
}

func descriptorLimit() int {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil || r.Cur > 1<<20 {
		return 1 << 20
	}
	return int(r.Cur)
}
