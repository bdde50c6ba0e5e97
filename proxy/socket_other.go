//go:build !linux || portable

package proxy

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"
)

// tcpSocket is an address that is held or listening. Off Linux a held socket
// is a closed one: connections are refused as they must be, but meanwhile the
// port is anybody's.
type tcpSocket struct {
	addr netip.AddrPort

	mu sync.Mutex
	ln *net.TCPListener // nil while held
}

func openTCP(addr netip.AddrPort) (*tcpSocket, error) {
	ln, err := net.ListenTCP(network("tcp", addr), net.TCPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	s := &tcpSocket{addr: ln.Addr().(*net.TCPAddr).AddrPort()}
	return s, ln.Close()
}

func (s *tcpSocket) listen() error {
	ln, err := net.ListenTCP(network("tcp", s.addr), net.TCPAddrFromAddrPort(s.addr))
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ln = ln
	return nil
}

func (s *tcpSocket) hold() error { return s.close() }

func (s *tcpSocket) accept() (*net.TCPConn, error) {
	s.mu.Lock()
	ln := s.ln
	s.mu.Unlock()
	if ln == nil {
		return nil, errHeld
	}
	conn, err := ln.AcceptTCP()
	if errors.Is(err, net.ErrClosed) {
		return nil, errHeld
	}
	return conn, err
}

func (s *tcpSocket) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ln == nil {
		return nil
	}
	ln := s.ln
	s.ln = nil
	return ln.Close()
}

// udpSocket is an address that is held, which off Linux means free, or has
// been released to a server.
type udpSocket struct{ addr netip.AddrPort }

func openUDP(addr netip.AddrPort) (*udpSocket, error) {
	conn, err := net.ListenUDP(network("udp", addr), net.UDPAddrFromAddrPort(addr))
	if err != nil {
		return nil, err
	}
	s := &udpSocket{addr: conn.LocalAddr().(*net.UDPAddr).AddrPort()}
	return s, conn.Close()
}

func (s *udpSocket) release() (*net.UDPConn, error) {
	return net.ListenUDP(network("udp", s.addr), net.UDPAddrFromAddrPort(s.addr))
}

func (s *udpSocket) hold(syscall.Conn) error { return nil }
func (s *udpSocket) close() error            { return nil }

// network is the network of the address's own family alone.
func network(proto string, addr netip.AddrPort) string {
	if addr.Addr().Unmap().Is4() {
		return proto + "4"
	}
	return proto + "6"
}

// descriptorLimit is a cautious figure: the limit is not known portably.
func descriptorLimit() int { return 8192 }
