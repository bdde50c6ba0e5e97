//go:build linux && !portable

package proxy

import (
	"bufio"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// shrinkBacklog makes a listening socket's queue take one connection.
func shrinkBacklog(s *tcpSocket) error {
	return unix.Listen(s.fd, 0)
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
	rests := func() (all []string) {
		for _, e := range f.Status().Ports[0].Endpoints {
			if !e.Picked {
				all = append(all, e.Why)
			}
		}
		return all
	}
	for range 4 {
		assert.Equal(t, "alive", f.who())
	}
	require.Eventually(t, func() bool { // for a second, which may be over
		assert.Equal(t, "alive", f.who())
		why := rests()
		return len(why) == 1 && strings.Contains(why[0], "rests for")
	}, patience, time.Millisecond, "the silent endpoint was outrun and rests")
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
