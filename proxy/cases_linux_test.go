//go:build linux && !portable

package proxy

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
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
	f.requireSaidOnce(strings.Count(out.String(), "cannot accept connections"), out.String())
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
