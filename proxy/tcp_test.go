package proxy

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// who asks the portal which backend it leads to.
func (f *fixture) who() string {
	f.t.Helper()
	conn := f.dial()
	defer conn.Close()
	line, err := bufio.NewReader(conn).ReadString('\n')
	require.NoError(f.t, err)
	return strings.TrimSpace(line)
}

func (f *fixture) refused(to netip.AddrPort) {
	f.t.Helper()
	_, err := net.DialTimeout("tcp", to.String(), patience)
	require.ErrorIs(f.t, err, syscall.ECONNREFUSED)
}

func TestConnectionsGoRoundRobin(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	f.serve(named(t, "a"), named(t, "b"), named(t, "c"))
	first := []string{f.who(), f.who(), f.who()}
	assert.ElementsMatch(t, []string{"a", "b", "c"}, first)
	second := []string{f.who(), f.who(), f.who()}
	assert.Equal(t, first, second)
}

func TestSemantics_sessionAffinityKeepsAClientAtOneEndpoint(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	p := f.port(named(t, "a"), named(t, "b"))
	p.Affinity = time.Hour
	f.update(p)
	first := f.who()
	for range 5 {
		assert.Equal(t, first, f.who())
	}
}

func TestCase3_NoEndpointIsRefused(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	f.serve()
	f.refused(f.portal)
	f.serve(named(t, "a"))
	assert.Equal(t, "a", f.who())
	conn := f.dial()
	line := make([]byte, 2)
	_, err := io.ReadFull(conn, line)
	require.NoError(t, err)

	f.serve()
	f.refused(f.portal)
	write(t, conn, "still here")
	echo := make([]byte, len("still here"))
	_, err = io.ReadFull(conn, echo)
	require.NoError(t, err, "open connections outlive the endpoint's removal")

	f.serve(named(t, "b"))
	assert.Equal(t, "b", f.who(), "it answers again")
}

func TestCase3_EveryEndpointRefuses(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	f.serve(nobody(t), nobody(t))
	conn, err := net.Dial("tcp", f.portal.String())
	if err == nil { // else the reset was faster
		_, err = conn.Read(make([]byte, 1))
		require.NoError(t, conn.Close())
	}
	require.ErrorIs(t, err, syscall.ECONNRESET)
	f.drained()
	assert.InDelta(t, 2, testutil.ToFloat64(f.config.Metrics.dialFailures.WithLabelValues("refused")), 0)
	assert.InDelta(t, 1, testutil.ToFloat64(f.config.Metrics.refused["dial_failed"]), 0)
}

func TestCase21_AffinityLeavesADeadEndpointWithinOneConnect(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	mortal, stop := mortalBackend(t, "mortal")
	p := f.port(mortal)
	p.Affinity = time.Hour
	f.update(p)
	require.Equal(t, "mortal", f.who())
	p = f.port(mortal, named(t, "other"))
	p.Affinity = time.Hour
	f.update(p)
	require.Equal(t, "mortal", f.who(), "it is stuck there, as it should")
	stop()
	assert.Equal(t, "other", f.who())
	assert.Equal(t, "other", f.who(), "and stays")
}

// mortalBackend is a named backend that can be stopped before the test ends.
func mortalBackend(t *testing.T, name string) (netip.AddrPort, func()) {
	t.Helper()
	ln, err := net.ListenTCP("tcp4", net.TCPAddrFromAddrPort(netip.AddrPortFrom(ownAddr(), 0)))
	require.NoError(t, err)
	var wg sync.WaitGroup
	wg.Add(1)
	go func() {
		defer wg.Done()
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			_, _ = fmt.Fprintln(conn, name)
			_ = conn.Close()
		}
	}()
	stop := func() { _ = ln.Close(); wg.Wait() }
	t.Cleanup(stop)
	return ln.Addr().(*net.TCPAddr).AddrPort(), stop
}

func TestCase25_OneNumberForTCPAndUDP(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	tcp := f.port(named(t, "tcp"))
	udp := f.port(udpEcho(t))
	udp.Protocol = service.UDP
	f.update(tcp, udp)
	assert.Equal(t, "tcp", f.who())
	conn, err := net.Dial("udp", f.portal.String())
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	write(t, conn, "udp")
	got := make([]byte, 10)
	n, err := conn.Read(got)
	require.NoError(t, err)
	assert.Equal(t, "udp", string(got[:n]))
}

func udpEcho(t *testing.T) netip.AddrPort {
	t.Helper()
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ownAddr(), 0)))
	require.NoError(t, err)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for buf := make([]byte, 1<<16); ; {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if err != nil {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
		}
	}()
	t.Cleanup(func() { _ = conn.Close(); <-done })
	return conn.LocalAddr().(*net.UDPAddr).AddrPort()
}

func TestCase49_NoLogLineForAConnection(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	f := start(t, Config{Log: log})
	f.serve(named(t, "a"))
	for range 100 {
		f.who()
	}
	f.drained()
	f.stop()
	<-f.done
	assert.Empty(t, out.String())
}

func TestCase51_OneFamilyAlone(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ listen, other string }{{"0.0.0.0", "::1"}, {"::", "127.0.0.1"}} {
		t.Run(tt.listen, func(t *testing.T) { // one after the other: each would answer for the other
			sock, err := openTCP(netip.AddrPortFrom(netip.MustParseAddr(tt.listen), 8051))
			require.NoError(t, err)
			t.Cleanup(func() { _ = sock.close() })
			require.NoError(t, sock.listen())
			_, err = net.Dial("tcp", net.JoinHostPort(tt.other, strconv.Itoa(int(sock.addr.Port()))))
			assert.ErrorIs(t, err, syscall.ECONNREFUSED)
		})
	}
}

func TestDrainWaitsForConnections(t *testing.T) {
	t.Parallel()
	f := startDraining(t, Config{}, time.Hour)
	f.serve(named(t, "a"))
	conn := f.dial()
	_, err := io.ReadFull(conn, make([]byte, 2))
	require.NoError(t, err)

	f.stop()
	assert.Equal(t, "a", f.who(), "it accepts while it drains")
	write(t, conn, "x")
	_, err = io.ReadFull(conn, make([]byte, 1))
	require.NoError(t, err, "an open connection is served on")
	select {
	case <-f.done:
		require.Fail(t, "it ended with a connection open")
	default:
	}
	require.NoError(t, conn.Close())
	receive(t, f.done)
	f.refused(f.portal)
}

func TestDrainEndsAtItsTimeout(t *testing.T) {
	t.Parallel()
	f := startDraining(t, Config{}, 50*time.Millisecond)
	f.serve(named(t, "a"))
	conn := f.dial()
	_, err := io.ReadFull(conn, make([]byte, 2))
	require.NoError(t, err)
	f.stop()
	_, err = conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	receive(t, f.done)
}

// With descriptors for one connection only, the second client waits and is
// served when the first has gone.
func TestCase9_ClientsWaitForDescriptors(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := logrus.New()
	log.SetOutput(&out)
	f := start(t, Config{Log: log, Metrics: NewMetrics(prometheus.NewRegistry())})
	f.shared.budget.total = 1 + 2 // the listener's, and one connection's
	f.shared.budget.total = 4     // a quarter is the least that traffic gets
	f.serve(named(t, "a"))
	first := f.dial()
	_, err := io.ReadFull(first, make([]byte, 2))
	require.NoError(t, err)

	waiting := make([]*net.TCPConn, 10)
	for i := range waiting {
		waiting[i] = f.dial()
	}
	require.Eventually(t, func() bool {
		return testutil.ToFloat64(f.config.Metrics.acceptErrors.WithLabelValues("descriptors")) > 0
	}, patience, time.Millisecond)
	require.NoError(t, first.Close())
	for _, conn := range waiting {
		line := make([]byte, 2)
		_, err := io.ReadFull(conn, line)
		require.NoError(t, err)
		assert.Equal(t, "a\n", string(line))
		require.NoError(t, conn.Close())
	}
	f.drained()
	f.stop()
	<-f.done
	f.requireSaidOnce(strings.Count(out.String(), "\n"), out.String()) // whatever the number of clients
	assert.Contains(t, out.String(), "descriptors are used up")
}

func TestMassResetLeavesNothing(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	f.serve(named(t, "a"))
	conns := make([]*net.TCPConn, 200)
	for i := range conns {
		conns[i] = f.dial()
	}
	for _, conn := range conns {
		_, err := io.ReadFull(conn, make([]byte, 2))
		require.NoError(t, err)
	}
	for _, conn := range conns {
		_ = conn.SetLinger(0)
		require.NoError(t, conn.Close())
	}
	f.drained()
}
