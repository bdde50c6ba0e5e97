//go:build linux && !portable

package proxy

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// shrinkBacklog makes a listening socket's queue take one connection.
func shrinkBacklog(s *tcpSocket) error {
	return unix.Listen(s.fd, 0)
}

func option(t *testing.T, fd, level, name int) int {
	t.Helper()
	v, err := unix.GetsockoptInt(fd, level, name)
	require.NoError(t, err)
	return v
}

// ends are the proxy's own sockets of the one open connection.
func (f *fixture) ends() map[string]int {
	f.t.Helper()
	fds := make(map[string]int)
	require.Eventually(f.t, func() bool {
		for _, l := range f.shared.tcp.loops {
			l.call(func() {
				for s := range l.sessions {
					if s.dialing == nil {
						fds["client"], fds["endpoint"] = s.client.fd, s.endpoint.fd
					}
				}
			})
		}
		return len(fds) == 2
	}, patience, time.Millisecond)
	return fds
}

// Nagle's algorithm never holds back a first message, so that the endpoint's
// side is told to do without only when there is a second: before it is sent.
func TestCase6_NoNagleOnEitherSide(t *testing.T) {
	t.Parallel()
	f, client, endpoint := through(t, Config{})
	for _, message := range []string{"a", "b"} {
		write(t, client, message)
		got := make([]byte, 1)
		_, err := io.ReadFull(endpoint, got)
		require.NoError(t, err)
		require.Equal(t, message, string(got))
	}
	for side, fd := range f.ends() {
		assert.Equal(t, 1, option(t, fd, unix.IPPROTO_TCP, unix.TCP_NODELAY), side)
	}
}

func TestCase8_KeepaliveOnBothSides(t *testing.T) {
	t.Parallel()
	f, _, _ := through(t, Config{KeepAlive: 7 * time.Second})
	ends := f.ends()
	require.Eventually(t, func() bool { // the endpoint's, when the connection has lived for a moment
		return option(t, ends["endpoint"], unix.IPPROTO_TCP, unix.TCP_KEEPCNT) == keepAliveProbes
	}, patience, 10*time.Millisecond)
	for side, fd := range ends {
		assert.Equal(t, 1, option(t, fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE), side)
		assert.Equal(t, 7, option(t, fd, unix.IPPROTO_TCP, unix.TCP_KEEPIDLE), side)
		assert.Equal(t, 7, option(t, fd, unix.IPPROTO_TCP, unix.TCP_KEEPINTVL), side)
		assert.Equal(t, 0, option(t, fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT), side+": it would end those that only pause")
	}
}

func TestCase8_KeepaliveCanBeOff(t *testing.T) {
	t.Parallel()
	f, _, _ := through(t, Config{KeepAlive: -1})
	for side, fd := range f.ends() {
		assert.Equal(t, 0, option(t, fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE), side)
		assert.Equal(t, 0, option(t, fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT), side)
	}
}

// A held port is nobody else's, whatever options a stranger sets; and a port
// that somebody has is not taken from them.
func TestCase33_HeldPortsAreNobodyElses(t *testing.T) {
	t.Parallel()
	stranger := func(network string, addr netip.AddrPort, options ...int) error {
		lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) {
				for _, o := range options {
					_ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, o, 1)
				}
			})
		}}
		var closer io.Closer
		var err error
		if network == "tcp" {
			closer, err = lc.Listen(context.Background(), network, addr.String())
		} else {
			closer, err = lc.ListenPacket(context.Background(), network, addr.String())
		}
		if err == nil {
			_ = closer.Close()
		}
		return err
	}
	for _, options := range [][]int{nil, {unix.SO_REUSEADDR}, {unix.SO_REUSEPORT}, {unix.SO_REUSEADDR, unix.SO_REUSEPORT}} {
		t.Run(fmt.Sprint(options), func(t *testing.T) {
			t.Parallel()
			tcp, err := openTCP(netip.AddrPortFrom(ownAddr(), 80))
			require.NoError(t, err)
			t.Cleanup(func() { _ = tcp.close() })
			udp, err := openUDP(netip.AddrPortFrom(ownAddr(), 80))
			require.NoError(t, err)
			t.Cleanup(func() { _ = udp.close() })

			require.ErrorIs(t, stranger("tcp", tcp.addr, options...), syscall.EADDRINUSE, "held")
			require.ErrorIs(t, stranger("udp", udp.addr, options...), syscall.EADDRINUSE, "held")
			require.NoError(t, tcp.listen())
			conn, err := udp.release()
			require.NoError(t, err)
			require.ErrorIs(t, stranger("tcp", tcp.addr, options...), syscall.EADDRINUSE, "serving")
			require.ErrorIs(t, stranger("udp", udp.addr, options...), syscall.EADDRINUSE, "serving")
			require.NoError(t, tcp.hold())
			require.NoError(t, udp.hold(conn))
			require.NoError(t, conn.Close())
			require.ErrorIs(t, stranger("tcp", tcp.addr, options...), syscall.EADDRINUSE, "held again")
			require.ErrorIs(t, stranger("udp", udp.addr, options...), syscall.EADDRINUSE, "held again")
		})
	}
}

func TestCase33_ATakenPortIsNotTakenOver(t *testing.T) {
	t.Parallel()
	addr := netip.AddrPortFrom(ownAddr(), 80)
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEPORT, 1) })
	}}
	tcp, err := lc.Listen(context.Background(), "tcp", addr.String())
	require.NoError(t, err)
	defer tcp.Close()
	udp, err := lc.ListenPacket(context.Background(), "udp", addr.String())
	require.NoError(t, err)
	defer udp.Close()
	_, err = openTCP(addr)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	_, err = openUDP(addr)
	require.ErrorIs(t, err, syscall.EADDRINUSE)
}

// Switching must lose no port and no connection, in both families.
func TestHeldAndServingManyTimes(t *testing.T) {
	t.Parallel()
	for _, addr := range []netip.Addr{ownAddr(), netip.IPv6Loopback()} {
		t.Run(addr.String(), func(t *testing.T) {
			t.Parallel()
			udp, err := openUDP(netip.AddrPortFrom(addr, 80))
			require.NoError(t, err)
			tcp, err := openTCP(netip.AddrPortFrom(addr, 80))
			require.NoError(t, err)
			t.Cleanup(func() { _ = tcp.close() })
			t.Cleanup(func() { _ = udp.close() })
			for range 20 {
				assertUnreachable(t, udp.addr)
				_, err := net.Dial("tcp", tcp.addr.String())
				require.ErrorIs(t, err, syscall.ECONNREFUSED)

				require.NoError(t, tcp.listen())
				client := dialTCP(t, tcp.addr)
				conn, _, err := unix.Accept(tcp.fd)
				require.NoError(t, err)
				released, err := udp.release()
				require.NoError(t, err)
				assertReceives(t, released, udp.addr)

				require.NoError(t, tcp.hold())
				_, _, err = unix.Accept(tcp.fd)
				require.ErrorIs(t, err, unix.EINVAL, "it does not listen")
				_, err = unix.Write(conn, []byte("accepted connections survive"))
				require.NoError(t, err)
				require.NoError(t, unix.Close(conn))
				assert.Equal(t, "accepted connections survive", readAll(t, client))
				require.NoError(t, udp.hold(released))
				require.NoError(t, released.Close())
			}
		})
	}
}

func assertUnreachable(t *testing.T, to netip.AddrPort) {
	t.Helper()
	conn, err := net.Dial("udp", to.String())
	require.NoError(t, err)
	defer conn.Close()
	write(t, conn, "anybody?")
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func assertReceives(t *testing.T, conn *net.UDPConn, at netip.AddrPort) {
	t.Helper()
	client, err := net.Dial("udp", at.String())
	require.NoError(t, err)
	defer client.Close()
	write(t, client, "here")
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	got := make([]byte, 10)
	n, err := conn.Read(got)
	require.NoError(t, err)
	require.Equal(t, "here", string(got[:n]))
}

// With four local ports for each destination, the fifth connection to one
// endpoint cannot be made. It goes to the other, and nothing rests on a lie:
// when ports are free again both are used.
func TestCase7_LocalPortsRunOut(t *testing.T) {
	const setting = "/proc/sys/net/ipv4/ip_local_port_range"
	before, err := os.ReadFile(setting)
	require.NoError(t, err)
	f := start(t, Config{})
	a, b := named(t, "a"), named(t, "b")
	f.serve(a)
	require.NoError(t, os.WriteFile(setting, []byte("40000 40003"), 0o600))
	defer func() { require.NoError(t, os.WriteFile(setting, before, 0o600)) }()

	client := func() (string, *net.TCPConn) { // each from an address of its own, or it would run out itself
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: ownAddr().AsSlice()}, Timeout: patience}
		d.Control = func(_, _ string, c syscall.RawConn) error { // leave the choice of port to connect, or others may not share it
			return c.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) })
		}
		conn, err := d.Dial("tcp", f.portal.String())
		if err != nil { // the reset was faster
			return err.Error(), nil
		}
		t.Cleanup(func() { _ = conn.Close() })
		require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
		line := make([]byte, 2)
		if _, err := io.ReadFull(conn, line); err != nil {
			return err.Error(), nil
		}
		return string(line), conn.(*net.TCPConn)
	}
	var open []*net.TCPConn
	for range 4 {
		name, conn := client()
		require.Equal(t, "a\n", name)
		open = append(open, conn)
	}
	name, _ := client()
	require.Contains(t, name, "reset", "nothing else to try")
	f.serve(a, b)
	for range 4 {
		name, _ := client()
		require.Equal(t, "b\n", name)
	}
	assert.Positive(t, testutil.ToFloat64(f.config.Metrics.dialFailures.WithLabelValues("no_local_port")))
	for _, conn := range open {
		_ = conn.SetLinger(0)
		require.NoError(t, conn.Close())
	}
	require.Eventually(t, func() bool { name, _ := client(); return name == "a\n" }, patience, 10*time.Millisecond)
}

// A peer that vanishes without a word is noticed by keepalive.
func TestCase8_AVanishedPeerEndsTheConnection(t *testing.T) {
	bed := nettest.NewHere(t)
	f := start(t, Config{KeepAlive: time.Second})
	server := bed.Back.ServeTCP(t, "10.10.2.2:7000", func(c *net.TCPConn) { _, _ = io.Copy(io.Discard, c) })
	defer server.Close()
	f.serve(netip.MustParseAddrPort("10.10.2.2:7000"))
	conn := f.dial()
	require.Eventually(t, func() bool { return f.shared.tcp.open() == 1 && server.Open() == 1 }, patience, time.Millisecond)
	bed.Node.Output(t, "ip", "link", "set", nettest.NodeToBack, "down")
	_, err := conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	f.drained()
}

// A dial that never ends must cost nobody but its own client. The dead
// endpoint is tried for as long as the test lasts.
func TestCase2_DialsAreConcurrent(t *testing.T) {
	t.Parallel()
	f := start(t, Config{DialTimeout: time.Hour, FallbackDelay: time.Hour})
	f.serve(blackhole(t), named(t, "alive"))
	var held []net.Conn
	t.Cleanup(func() {
		for _, conn := range held {
			_ = conn.Close()
		}
	})
	stuck := make(chan struct{})
	go func() {
		defer close(stuck)
		for range 2 { // one of two in turn meets the dead one
			conn, err := net.Dial("tcp", f.portal.String())
			if err == nil {
				held = append(held, conn)
			}
		}
	}()
	<-stuck
	served := 0
	for range 20 {
		conn := f.dial()
		require.NoError(t, conn.SetReadDeadline(time.Now().Add(time.Second)))
		if line, _ := bufio.NewReader(conn).ReadString('\n'); line == "alive\n" {
			served++
		}
		require.NoError(t, conn.Close())
		if served == 5 {
			break
		}
	}
	assert.Equal(t, 5, served, "clients of the live endpoint are served while dials to the other hang")
}

func TestCase2_ASecondEndpointIsTriedBesideASilentOne(t *testing.T) {
	t.Parallel()
	f := start(t, Config{DialTimeout: time.Hour, FallbackDelay: 10 * time.Millisecond})
	f.serve(blackhole(t), named(t, "alive"))
	for range 4 {
		assert.Equal(t, "alive", f.who())
	}
	rests := 0
	for _, e := range f.Status().Ports[0].Endpoints {
		if !e.Picked {
			rests++
			assert.Contains(t, e.Why, "rests for")
		}
	}
	assert.Equal(t, 1, rests, "the silent endpoint was outrun and rests")
}

// blackhole is an address that neither accepts nor refuses: its queue is full.
func blackhole(t *testing.T) netip.AddrPort {
	t.Helper()
	addr := netip.AddrPortFrom(ownAddr(), 7)
	sock, err := openTCP(addr)
	require.NoError(t, err)
	require.NoError(t, sock.listen())
	require.NoError(t, shrinkBacklog(sock))
	t.Cleanup(func() { _ = sock.close() })
	for range 8 { // more than the queue takes
		conn, err := net.DialTimeout("tcp", addr.String(), 50*time.Millisecond)
		if err != nil {
			break
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
	return addr
}

// paused says whether accepting waits somewhere.
func (f *fixture) paused() (paused bool) {
	for _, l := range f.shared.tcp.loops {
		l.call(func() { paused = paused || len(l.paused) > 0 && l.resume > l.now })
	}
	return paused
}

// The kernel itself has no descriptor left. Clients wait in its queue, the proxy
// says so once and does not spin, and serves them when there are some again.
func TestCase9_EMFILE(t *testing.T) {
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	f := start(t, Config{Log: log})
	f.serve(named(t, "a"))
	var clients []int
	for range 5 {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		clients = append(clients, fd)
	}
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &before))
	lowest, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0) // all below are in use
	require.NoError(t, err)
	require.NoError(t, unix.Close(lowest))
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: uint64(lowest), Max: before.Max}))
	failures := func() float64 {
		return testutil.ToFloat64(f.config.Metrics.acceptErrors.WithLabelValues("descriptors"))
	}
	for _, fd := range clients {
		require.NoError(t, unix.Connect(fd, &unix.SockaddrInet4{Port: int(f.portal.Port()), Addr: f.portal.Addr().As4()}))
	}
	more := assert.Eventually(t, func() bool { return failures() > 2 && f.paused() }, patience, time.Millisecond)
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &before))
	require.True(t, more)

	wait := unix.NsecToTimeval(patience.Nanoseconds())
	for _, fd := range clients {
		require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &wait))
		line := make([]byte, 2)
		n, err := unix.Read(fd, line)
		require.NoError(t, err)
		assert.Equal(t, "a\n", string(line[:n]))
		require.NoError(t, unix.Close(fd))
	}
	f.drained()
	f.stop()
	<-f.done
	assert.Equal(t, 1, strings.Count(out.String(), "cannot accept connections"), "said once: %s", out.String())
}

// A client that leaves while its endpoint is being dialled is let go at the end
// of the dial.
func TestCloseWhileDialling(t *testing.T) {
	t.Parallel()
	f := start(t, Config{DialTimeout: 100 * time.Millisecond})
	f.serve(blackhole(t))
	for _, linger := range []int{-1, 0} {
		conn := f.dial()
		require.NoError(t, conn.SetLinger(linger))
		require.NoError(t, conn.Close())
	}
	f.drained()
}

// Urgent data keeps its place in the stream, and reading goes on behind it.
func TestUrgentData(t *testing.T) {
	t.Parallel()
	_, client, endpoint := through(t, Config{})
	rc, err := client.SyscallConn()
	require.NoError(t, err)
	for range 100 {
		write(t, client, "a")
		var sendErr error
		require.NoError(t, rc.Write(func(fd uintptr) bool {
			sendErr = unix.Send(int(fd), []byte("b"), unix.MSG_OOB)
			return true
		}))
		require.NoError(t, sendErr)
		write(t, client, "c")
		got := make([]byte, 3)
		_, err = io.ReadFull(endpoint, got)
		require.NoError(t, err)
		require.Equal(t, "abc", string(got))
	}
}

// splice stops at an urgent mark as if nothing were there.
func TestUrgentDataInAStream(t *testing.T) {
	t.Parallel()
	_, client, endpoint := through(t, Config{})
	block := random(8 << 20)
	rc, err := client.SyscallConn()
	require.NoError(t, err)
	go func() {
		_, _ = client.Write(block)
		_ = rc.Write(func(fd uintptr) bool { return unix.Send(int(fd), []byte("!"), unix.MSG_OOB) == nil })
		_, _ = client.Write(block)
		_ = client.CloseWrite()
	}()
	got := readAll(t, endpoint)
	want := string(block) + "!" + string(block)
	assert.True(t, want == got, "sent %d bytes, got %d", len(want), len(got)) //nolint:testifylint // not to print them
}

// Dials beside the first take from the budget: where it has none left, the first
// is all there is.
func TestDialsBesideTheFirstAreCounted(t *testing.T) {
	t.Parallel()
	f := start(t, Config{DialTimeout: 300 * time.Millisecond, FallbackDelay: 10 * time.Millisecond})
	f.serve(blackhole(t), blackhole(t), blackhole(t), blackhole(t))
	f.shared.budget.mu.Lock()
	f.shared.budget.total = 4 // three are traffic's: a client, a dial, and one beside it
	f.shared.budget.mu.Unlock()
	conn := f.dial()
	most := 0
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = conn.Read(make([]byte, 1)) // refused when all dials are given up
	}()
	for over := false; !over; time.Sleep(time.Millisecond) {
		most = max(most, f.Status().Descriptors.Traffic)
		select {
		case <-ended:
			over = true
		default:
		}
	}
	assert.LessOrEqual(t, most, 3)
	f.drained()
	require.NoError(t, conn.Close())
}

// Somebody closes listening sockets (ss -K): each is noticed as soon as a loop
// is told, and another takes its place, at the same address without rules.
func TestClosedListenersAreMended(t *testing.T) {
	t.Parallel()
	for _, rules := range []bool{false, true} {
		t.Run(fmt.Sprint("rules ", rules), func(t *testing.T) {
			t.Parallel()
			c, out := logged(Config{SyncPeriod: time.Hour, Linger: time.Millisecond})
			f, r := start(t, c), &recorder{}
			if rules {
				f = redirected(t, r, c)
			}
			f.serve(named(t, "a"))
			for range 3 {
				before := f.Status()
				f.mu.Lock()
				for _, l := range f.ports[f.port().Key].listeners {
					require.NoError(t, unix.Shutdown(l.(*tcpListener).sock.fd, unix.SHUT_RD)) // what it comes to
				}
				f.mu.Unlock()
				require.Eventually(t, func() bool {
					to := f.portal
					if redirects, _ := r.state(); rules {
						to = redirects[0].Listener
					}
					conn, err := net.Dial("tcp", to.String())
					if err != nil {
						return false
					}
					defer conn.Close()
					line := make([]byte, 2)
					_, err = io.ReadFull(conn, line)
					return err == nil && string(line) == "a\n"
				}, patience, time.Millisecond)
				require.Eventually(t, func() bool { return f.Status().Descriptors.Listeners == before.Descriptors.Listeners }, patience, time.Millisecond)
				f.drained()
			}
			f.stop()
			<-f.done
			assert.Equal(t, 3, strings.Count(out.String(), "was closed by somebody else"), out)
		})
	}
}
