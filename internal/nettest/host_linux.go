package nettest

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/vishvananda/netns"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Host is one host of a Bed: a network namespace. Its methods may be called by
// several goroutines at once, until the test that made the Bed ends.
type Host struct {
	Name  string
	ns    netns.NsHandle
	addrs map[service.Family][]netip.Addr
}

// Addr is the host's first address of a family.
func (h *Host) Addr(f service.Family) netip.Addr { return h.addrs[f][0] }

// Addrs are all addresses of the host in a family, loopback and link-local
// ones aside.
func (h *Host) Addrs(f service.Family) []netip.Addr { return h.addrs[f] }

// Do runs fn in the calling goroutine, on a thread inside the host's
// namespace. Sockets that fn opens stay there after it has returned;
// goroutines that fn starts run outside. Do may be called inside fn for
// another host, and require may be used in it.
func (h *Host) Do(t testing.TB, fn func()) {
	t.Helper()
	require.NoError(t, h.run(func() error { fn(); return nil }))
}

// run is Do for callers that return errors.
func (h *Host) run(fn func() error) (err error) {
	runtime.LockOSThread()
	before, err := netns.Get()
	if err != nil {
		runtime.UnlockOSThread()
		return fmt.Errorf("finding the thread's network namespace: %w", err)
	}
	defer func() {
		// A thread that cannot go back stays locked: it dies with its goroutine.
		if backErr := netns.Set(before); backErr != nil {
			err = errors.Join(err, fmt.Errorf("leaving the namespace of %s: %w", h.Name, backErr))
		} else {
			runtime.UnlockOSThread()
		}
		err = errors.Join(err, before.Close())
	}()
	if err := netns.Set(h.ns); err != nil {
		return fmt.Errorf("entering the namespace of %s: %w", h.Name, err)
	}
	return fn()
}

// Dial opens a connection from the host. The address is numeric: a name would
// be looked up outside the namespace. The caller closes the connection.
func (h *Host) Dial(ctx context.Context, network, address string) (net.Conn, error) {
	return h.DialFrom(ctx, &net.Dialer{}, network, address)
}

// DialFrom is Dial with a Dialer, for a chosen local address or socket options.
func (h *Host) DialFrom(ctx context.Context, d *net.Dialer, network, address string) (conn net.Conn, err error) {
	err = h.run(func() (err error) {
		conn, err = d.DialContext(ctx, network, address)
		return err
	})
	return conn, err
}

// Listen listens on the host. The caller closes the listener.
func (h *Host) Listen(network, address string) (l net.Listener, err error) {
	err = h.run(func() (err error) {
		l, err = new(net.ListenConfig).Listen(context.Background(), network, address)
		return err
	})
	return l, err
}

// ListenPacket opens a packet socket on the host. The caller closes it.
func (h *Host) ListenPacket(network, address string) (c net.PacketConn, err error) {
	err = h.run(func() (err error) {
		c, err = new(net.ListenConfig).ListenPacket(context.Background(), network, address)
		return err
	})
	return c, err
}

// HTTPClient is an HTTP client on the host that opens a connection for each
// request, so that each one is balanced anew.
func (h *Host) HTTPClient() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: h.Dial, DisableKeepAlives: true}}
}

// Command is a command that runs on the host, not yet started. It is killed
// when ctx ends; the caller waits for it. The process is the command's own, so
// signals reach it.
func (h *Host) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	enter := []string{fmt.Sprintf("--net=/proc/%d/fd/%d", os.Getpid(), int(h.ns)), "--", name}
	return exec.CommandContext(ctx, "nsenter", append(enter, args...)...)
}

// Output runs a command on the host to its end and returns what it printed on
// standard output. A command that fails, or takes minutes, ends the test with all
// it printed.
func (h *Host) Output(t testing.TB, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 6*Patience)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := h.Command(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	err := cmd.Run()
	require.NoError(t, err, "on %s: %s %s\n%s%s", h.Name, name, strings.Join(args, " "), stdout.String(), stderr.String())
	return stdout.String()
}

// Sysctl sets a kernel parameter in the host's namespace, written with slashes:
// "net/ipv4/ip_forward".
func (h *Host) Sysctl(t testing.TB, name, value string) {
	t.Helper()
	require.NoError(t, h.sysctl(name, value))
}

func (h *Host) sysctl(name, value string) error {
	return h.run(func() error {
		// /proc/sys shows the namespace of the thread that opens it.
		if err := os.WriteFile("/proc/sys/"+name, []byte(value), 0); err != nil {
			return fmt.Errorf("setting %s to %s on %s: %w", name, value, h.Name, err)
		}
		return nil
	})
}
