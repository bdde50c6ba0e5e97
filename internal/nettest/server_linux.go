package nettest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Server is a running server of a test. It ends with the test, or before by
// Close; its port is free again when Close has returned.
type Server struct {
	Addr netip.AddrPort

	socket listening
	http   *http.Server // nil: not one
	wg     sync.WaitGroup
	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]struct{}
	taken  int
}

// listening is a socket, as a server has it open.
type listening interface {
	io.Closer
	syscall.Conn
}

// ServeTCP accepts connections at an address of the host ("10.10.2.2:80") and
// runs handle for each in a goroutine; the connection is closed when it returns.
func (h *Host) ServeTCP(t testing.TB, address string, handle func(*net.TCPConn)) *Server {
	t.Helper()
	l, err := h.Listen("tcp", address)
	require.NoError(t, err, "serving TCP on %s", h.Name)
	s := &Server{Addr: addrPort(l.Addr()), socket: l.(*net.TCPListener), conns: make(map[net.Conn]struct{})}
	t.Cleanup(s.Close)
	s.wg.Go(func() { s.accept(l, handle) })
	return s
}

func (s *Server) accept(l net.Listener, handle func(*net.TCPConn)) {
	for {
		c, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // of one connection that ended before it was taken
		}
		if !s.take(c) {
			_ = c.Close()
			return
		}
		s.wg.Go(func() {
			defer s.release(c)
			handle(c.(*net.TCPConn))
		})
	}
}

func (s *Server) take(c net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return false
	}
	s.taken++
	s.conns[c] = struct{}{}
	return true
}

func (s *Server) release(c net.Conn) {
	_ = c.Close()
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.conns, c)
}

// Taken is how many connections, or datagrams, the server has taken so far.
func (s *Server) Taken() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

// Open is how many connections are open now.
func (s *Server) Open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Close ends the server and its connections and waits for its goroutines. It
// may be called more than once.
func (s *Server) Close() {
	s.mu.Lock()
	s.closed = true
	s.deafen()
	_ = s.socket.Close()
	if s.http != nil {
		_ = s.http.Close()
	}
	for c := range s.conns {
		_ = c.Close()
	}
	s.mu.Unlock()
	s.wg.Wait()
}

// deafen makes a listening socket take nothing more, before it is closed: a
// child of this process that is between fork and exec has it too, and it would
// listen on there until the child executes. A TCP listener ends by shutdown; a
// UDP socket that is connected, here to itself, hears nobody else.
func (s *Server) deafen() {
	raw, err := s.socket.SyscallConn()
	if err != nil {
		return // closed already
	}
	_ = raw.Control(func(fd uintptr) {
		if _, udp := s.socket.(*net.UDPConn); !udp {
			_ = unix.Shutdown(int(fd), unix.SHUT_RD)
			return
		}
		var self unix.Sockaddr = &unix.SockaddrInet6{Port: int(s.Addr.Port()), Addr: s.Addr.Addr().As16()}
		if s.Addr.Addr().Is4() {
			self = &unix.SockaddrInet4{Port: int(s.Addr.Port()), Addr: s.Addr.Addr().As4()}
		}
		_ = unix.Connect(int(fd), self)
	})
}

// Echo sends back what comes, and closes its side when the client has closed
// its own: a TCP handler that alters no byte.
func Echo(c *net.TCPConn) {
	if _, err := io.Copy(c, c); err == nil {
		_ = c.CloseWrite()
	}
}

// Banner is a TCP handler that sends a line with its name before the client
// has said anything, then echoes.
func Banner(name string) func(*net.TCPConn) {
	return func(c *net.TCPConn) {
		if _, err := io.WriteString(c, name+"\n"); err == nil {
			Echo(c)
		}
	}
}

// ServeHTTP serves HTTP at an address of the host. Its answer to everything is
// one line with its name.
func (h *Host) ServeHTTP(t testing.TB, address, name string) *Server {
	t.Helper()
	return h.ServeHandler(t, address, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = fmt.Fprintln(w, name)
	}))
}

// ServeHandler serves HTTP with a handler at an address of the host.
func (h *Host) ServeHandler(t testing.TB, address string, handler http.Handler) *Server {
	t.Helper()
	l, err := h.Listen("tcp", address)
	require.NoError(t, err, "serving HTTP on %s", h.Name)
	srv := &http.Server{Handler: handler, ReadHeaderTimeout: Patience}
	s := &Server{Addr: addrPort(l.Addr()), socket: l.(*net.TCPListener), http: srv}
	t.Cleanup(s.Close)
	s.wg.Go(func() { _ = srv.Serve(l) })
	return s
}

// ServeUDP reads datagrams at an address of the host and sends back what reply
// returns; false sends nothing.
func (h *Host) ServeUDP(t testing.TB, address string, reply func([]byte) ([]byte, bool)) *Server {
	t.Helper()
	return h.serveUDP(t, address, func(b []byte, _ netip.Addr) ([]byte, bool) { return reply(b) })
}

// ServePeers serves an address over TCP and UDP on a host. Clients are told the
// address that they are seen at; over TCP what they send is echoed after it.
func (h *Host) ServePeers(t testing.TB, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		h.ServeTCP(t, a, func(c *net.TCPConn) { Banner(addrPort(c.RemoteAddr()).Addr().String())(c) })
		h.serveUDP(t, a, func(_ []byte, from netip.Addr) ([]byte, bool) { return []byte(from.String()), true })
	}
}

func (h *Host) serveUDP(t testing.TB, address string, reply func(b []byte, from netip.Addr) ([]byte, bool)) *Server {
	t.Helper()
	c, err := h.ListenPacket("udp", address)
	require.NoError(t, err, "serving UDP on %s", h.Name)
	s := &Server{Addr: addrPort(c.LocalAddr()), socket: c.(*net.UDPConn)}
	t.Cleanup(s.Close)
	s.wg.Go(func() { s.answer(c, reply) })
	return s
}

func (s *Server) answer(c net.PacketConn, reply func([]byte, netip.Addr) ([]byte, bool)) {
	buf := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(buf)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // a port unreachable for an earlier answer
		}
		s.mu.Lock()
		s.taken++
		s.mu.Unlock()
		if b, ok := reply(buf[:n], addrPort(from).Addr()); ok {
			_, _ = c.WriteTo(b, from)
		}
	}
}

// Mirror is a UDP reply that equals what came.
func Mirror(b []byte) ([]byte, bool) { return b, true }

// Named is a UDP reply of a name, a space and what came.
func Named(name string) func([]byte) ([]byte, bool) {
	return func(b []byte) ([]byte, bool) { return append([]byte(name+" "), b...), true }
}

func addrPort(a net.Addr) netip.AddrPort {
	ap := netip.MustParseAddrPort(a.String())
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}
