//go:build linux && !portable

package iptables

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// silence is how long a test waits before it says that nobody answers. It is
// short because every answer comes from this machine, and because it is only
// waited for where rules are meant to drop.
const silence = 300 * time.Millisecond

// world is a bed whose node has the listening addresses and rules.
type world struct {
	*nettest.Bed
	config Config
	runner *Runner
}

// eachKind runs a test with both kinds of commands.
func eachKind(t *testing.T, test func(t *testing.T, k Kind)) {
	t.Helper()
	t.Parallel()
	for _, k := range []Kind{NFT, Legacy} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// patient is a configuration for a busy machine, on which one lock file is
// shared by all tests.
func patient(c Config) Config {
	c.LockWait, c.Timeout = 60*time.Second, 120*time.Second
	return c.Defaults()
}

func newWorld(t testing.TB, k Kind) *world {
	t.Helper()
	nettest.Need(t, "iptables-"+string(k), "ip6tables-"+string(k), "ip")
	w := &world{Bed: nettest.New(t), config: patient(dual())}
	w.config.Kind = k
	w.Node.Do(t, func() {
		got, err := listenaddr.Ensure(w.config.Listen)
		require.NoError(t, err)
		require.Equal(t, w.config.Listen, got.Listen)
	})
	w.restart(t)
	return w
}

// restart makes a new Runner, as a new process does.
func (w *world) restart(t testing.TB) {
	t.Helper()
	w.Node.Do(t, func() {
		var err error
		w.runner, err = New(w.config)
		require.NoError(t, err)
	})
}

// sync is the runner's Sync on the node.
func (w *world) sync(t testing.TB, redirects []service.Redirect) {
	t.Helper()
	w.Node.Do(t, func() { require.NoError(t, w.runner.Sync(t.Context(), redirects)) })
}

// check is the runner's Check on the node.
func (w *world) check(t testing.TB) (err error) {
	t.Helper()
	w.Node.Do(t, func() { err = w.runner.Check(t.Context()) })
	return err
}

// changed says whether a Watch of the runner would look.
func (w *world) changed(t testing.TB) (is bool) {
	t.Helper()
	w.Node.Do(t, func() { is = w.runner.changed() })
	return is
}

// iptables runs an iptables command of the world's kind on the node.
func (w *world) iptables(t testing.TB, f service.Family, words string) string {
	t.Helper()
	return w.Node.Output(t, w.config.Kind.Command(f), append([]string{"--wait"}, strings.Fields(words)...)...)
}

// serve serves an address over TCP and UDP on a host; clients are told name.
func serve(t testing.TB, h *nettest.Host, name string, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		h.ServeTCP(t, a, nettest.Banner(name))
		h.ServeUDP(t, a, func([]byte) ([]byte, bool) { return []byte(name), true })
	}
}

// listen serves listeners on the node, each with its own name as the tracer
// writes it.
func (w *world) listen(t testing.TB, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		serve(t, w.Node, "listener "+a, a)
	}
}

// own gives a host addresses that are portals elsewhere, so that what passes
// the rules arrives somewhere.
func own(t testing.TB, h *nettest.Host, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		addr := netip.MustParseAddr(a)
		args := []string{"addr", "add", netip.PrefixFrom(addr, addr.BitLen()).String(), "dev", "lo"}
		if addr.Is6() {
			args = append(args, "nodad")
		}
		h.Output(t, "ip", args...)
	}
}

func (w *world) host(name string) *nettest.Host {
	return map[string]*nettest.Host{"client": w.Client, "pod": w.Pod, "node": w.Node}[name]
}

// send really sends a packet and says what became of it, in the tracer's
// words. It waits as long as need be for an answer, and for silence, where
// that is expected, not for ever.
func (w *world) send(t testing.TB, p packet, expected string) string {
	t.Helper()
	return w.sendFrom(t, "", p, expected)
}

// sendFrom is send from a chosen address and port, where one is given.
func (w *world) sendFrom(t testing.TB, source string, p packet, expected string) string {
	t.Helper()
	patience := nettest.Patience
	if expected == dropped {
		patience = silence
	}
	d := &net.Dialer{Timeout: patience, Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		if p.mark != 0 {
			err = errors.Join(c.Control(func(fd uintptr) {
				err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_MARK, int(p.mark))
			}), err)
		}
		return err
	}}
	if source != "" {
		at := netip.MustParseAddrPort(source)
		d.LocalAddr = net.Addr(net.TCPAddrFromAddrPort(at))
		if p.proto == service.UDP {
			d.LocalAddr = net.UDPAddrFromAddrPort(at)
		}
	}
	c, err := w.host(p.from).DialFrom(t.Context(), d, p.proto.Lower(), p.dst.String())
	if err != nil {
		return outcome(err)
	}
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	if p.proto == service.UDP {
		// A datagram that OUTPUT stops is EPERM here, and then ECONNREFUSED
		// if it was refused and not dropped.
		if _, err := c.Write([]byte("anybody there?")); err != nil && !errors.Is(err, syscall.EPERM) {
			return outcome(err)
		}
	}
	buf := make([]byte, 200)
	n, err := c.Read(buf)
	if err != nil {
		return outcome(err)
	}
	return strings.TrimSuffix(string(buf[:n]), "\n")
}

func outcome(err error) string {
	var timeout net.Error
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return refused
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, context.DeadlineExceeded),
		errors.As(err, &timeout) && timeout.Timeout():
		return dropped
	}
	return err.Error()
}
