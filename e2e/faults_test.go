package e2e

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// faulty is a bed with one proxy, without rules, and one server behind it.
type faulty struct {
	*proxy
	bed    *nettest.Bed
	server *nettest.Server
}

func newFaulty(t *testing.T, handle func(*net.TCPConn), env []string, flags ...string) *faulty {
	t.Helper()
	bed := nettest.New(t)
	bed.Node.Output(t, "ip", "addr", "add", "10.96.0.10", "dev", "lo")
	server := bed.Back.ServeTCP(t, "10.10.2.2:8080", handle)
	p := start(t, bed.Node, env, manifest(changing(map[string][]string{"stream": {"10.10.2.2:8080"}})),
		append([]string{"--redirect=none", "--log-level=info"}, flags...)...)
	return &faulty{proxy: p, bed: bed, server: server}
}

// dial opens connections from the client's host, some at once, and has each
// read what the server says first.
func (f *faulty) dial(t *testing.T, n int, banner string) []net.Conn {
	t.Helper()
	conns, errs := make([]net.Conn, n), make([]error, n)
	atOnce(n, func(i int) {
		conns[i], errs[i] = f.bed.Client.Dial(t.Context(), "tcp", "10.96.0.10:80")
		if errs[i] == nil {
			errs[i] = hears(conns[i], banner)
		}
	})
	t.Cleanup(func() {
		for _, c := range conns {
			if c != nil {
				_ = c.Close()
			}
		}
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	return conns
}

// atOnce does f for 0 to n-1, some at a time.
func atOnce(n int, f func(i int)) {
	var wg sync.WaitGroup
	const workers = 32
	for w := range workers {
		wg.Go(func() {
			for i := w; i < n; i += workers {
				f(i)
			}
		})
	}
	wg.Wait()
}

func hears(c net.Conn, want string) error {
	if err := c.SetDeadline(time.Now().Add(3 * patience)); err != nil {
		return err
	}
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != want {
		return fmt.Errorf("%q instead of %q: %w", got, want, err)
	}
	return nil
}

func (p *proxy) descriptors(t *testing.T) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	require.NoError(t, err)
	return len(entries)
}

// requireNothingLeft waits until no connection is left on either side of the
// proxy, nor the descriptors that they took.
func (f *faulty) requireNothingLeft(t *testing.T, descriptors int) {
	t.Helper()
	eventually(t, func() bool {
		return f.metric(t, "userspace_proxy_tcp_connections_active") == 0 && f.server.Open() == 0 && f.descriptors(t) <= descriptors
	}, func() string {
		return fmt.Sprintf("the end of all connections; the proxy has %v, the server %d; %d descriptors, %d before",
			f.metric(t, "userspace_proxy_tcp_connections_active"), f.server.Open(), f.descriptors(t), descriptors)
	})
}

// bannerAlone says who it is and listens. It has no pipes, as a copy from one
// connection to another has: the test's descriptors are for connections.
func bannerAlone(c *net.TCPConn) {
	_, _ = io.WriteString(c, "a\n")
	_, _ = c.Read(make([]byte, 1))
}

// some descriptors more than before are kept for later: pipes, the status
// server's connections.
const kept = 40

// Five thousand connections that are reset at once leave nothing behind, and a
// proxy that serves. Both their ends are this process's, half of what it may
// have open: no other test runs beside it.
func TestFiveThousandResetsAtOnce(t *testing.T) { //nolint:paralleltest // see above
	f := newFaulty(t, bannerAlone, nil)
	before := f.descriptors(t)
	conns := f.dial(t, 5000, "a\n")
	require.InDelta(t, 5000, f.metric(t, "userspace_proxy_tcp_connections_active"), 0)
	require.GreaterOrEqual(t, f.descriptors(t), 2*5000)
	for _, c := range conns {
		_ = c.(*net.TCPConn).SetLinger(0)
	}
	for _, c := range conns {
		require.NoError(t, c.Close())
	}
	f.requireNothingLeft(t, before+kept)
	requireAnswers(t, f.bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
}

// Clients that connect and vanish without a word, by the thousand, are noticed
// by keepalive, and others are served meanwhile.
func TestCase8_ThousandsOfClientsVanish(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, bannerAlone, nil, "--tcp-keepalive=1s")
	before := f.descriptors(t)
	f.dial(t, 2000, "a\n")
	f.bed.Node.Output(t, "ip", "link", "set", nettest.NodeToClient, "down")
	requireAnswers(t, f.bed.Pod, target{"tcp", "10.96.0.10:80"}, "a")
	f.requireNothingLeft(t, before+kept)
}

// A proxy that was stopped for ten seconds goes on where it was: connections
// live, and those who called meanwhile are served.
func TestStoppedForTenSeconds(t *testing.T) {
	t.Parallel()
	f := newFaulty(t, nettest.Banner("a"), nil)
	old := f.dial(t, 20, "a\n")
	f.signal(t, syscall.SIGSTOP)
	late := make([]net.Conn, 50)
	for i := range late {
		c, err := f.bed.Client.Dial(t.Context(), "tcp", "10.96.0.10:80")
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
		late[i] = c
	}
	for _, c := range old {
		_, err := io.WriteString(c, "during")
		require.NoError(t, err)
	}
	time.Sleep(10 * time.Second)
	f.signal(t, syscall.SIGCONT)
	for _, c := range old {
		require.NoError(t, hears(c, "during"))
		requireEcho(t, c, "after", "after")
	}
	for _, c := range late {
		require.NoError(t, hears(c, "a\n"))
		requireEcho(t, c, "after", "after")
	}
	assert.Positive(t, f.metric(t, "userspace_proxy_tcp_connections_opened_total"))
	assert.Zero(t, f.metric(t, "userspace_proxy_tcp_connections_ended_total"))
}

// With a memory limit near to what it needs, slow readers and many short
// connections at once, the proxy keeps to the limit and loses nothing.
func TestMemoryLimitUnderLoad(t *testing.T) {
	t.Parallel()
	const limit, size = 48 << 20, 1 << 20
	payload := bytes.Repeat([]byte("0123456789abcdef"), size/16)
	f := newFaulty(t, func(c *net.TCPConn) { _, _ = c.Write(payload) }, []string{fmt.Sprintf("GOMEMLIMIT=%d", limit)})
	for _, h := range []*nettest.Host{f.bed.Client, f.bed.Node, f.bed.Back} { // or the kernel would hold all of it
		h.Sysctl(t, "net/ipv4/tcp_rmem", "4096 16384 32768")
		h.Sysctl(t, "net/ipv4/tcp_wmem", "4096 16384 32768")
	}
	slow := f.dial(t, 200, "0")
	errs := make([]error, 1000)
	atOnce(len(errs), func(i int) {
		c, err := f.bed.Client.Dial(t.Context(), "tcp", "10.96.0.10:80")
		if err == nil {
			err = hears(c, string(payload[:64<<10]))
			_ = c.Close()
		}
		errs[i] = err
	})
	for _, err := range errs {
		require.NoError(t, err)
	}
	used := f.metric(t, "go_memstats_sys_bytes") - f.metric(t, "go_memstats_heap_released_bytes")
	assert.Less(t, used, 1.2*limit, "what a limit is for")
	for _, c := range slow {
		require.NoError(t, hears(c, string(payload[1:])))
	}
}
