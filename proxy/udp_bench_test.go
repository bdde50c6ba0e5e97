package proxy

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// bareEcho sends back what comes and does nothing else.
func bareEcho(b *testing.B) netip.AddrPort {
	b.Helper()
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ownAddr(), 0)))
	require.NoError(b, err)
	var wg sync.WaitGroup
	wg.Go(func() {
		buf := make([]byte, 2048)
		for {
			n, from, err := conn.ReadFromUDPAddrPort(buf)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			_, _ = conn.WriteToUDPAddrPort(buf[:n], from)
		}
	})
	b.Cleanup(func() {
		_ = conn.Close()
		wg.Wait()
	})
	return addrOf(conn)
}

// benchmarkPaths runs a benchmark of 16 clients on a straight way to an echo,
// and on the way through a server.
func benchmarkPaths(b *testing.B, client func(b *testing.B, to netip.AddrPort, pb *testing.PB)) {
	b.Helper()
	run := func(name string, to netip.AddrPort) {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetParallelism(16 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) { client(b, to, pb) })
		})
	}
	echo := bareEcho(b)
	run("straight", echo)
	run("proxied", serveUDP(b, udpOptions{idle: 5 * time.Second}, echo).addr)
}

func pingPong(b *testing.B, conn *net.UDPConn, buf []byte) {
	_, _ = conn.Write(buf)
	if _, err := conn.Read(buf); err != nil {
		b.Error(err)
	}
}

func BenchmarkUDPPingPong(b *testing.B) {
	benchmarkPaths(b, func(b *testing.B, to netip.AddrPort, pb *testing.PB) {
		c, buf := newUDPClient(b, to), make([]byte, 64)
		_ = c.SetReadDeadline(time.Now().Add(time.Minute))
		for pb.Next() {
			pingPong(b, c.UDPConn, buf)
		}
	})
}

func BenchmarkUDPNewFlow(b *testing.B) {
	benchmarkPaths(b, func(b *testing.B, to netip.AddrPort, pb *testing.PB) {
		buf := make([]byte, 64)
		for pb.Next() {
			conn, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(to))
			if err != nil {
				b.Error(err)
				return
			}
			_ = conn.SetReadDeadline(time.Now().Add(time.Minute))
			pingPong(b, conn, buf)
			_ = conn.Close()
		}
	})
}

// BenchmarkUDPIdleFlow reports what a flow costs in Go's memory. The kernel's
// share is a socket, a descriptor and an epoll item.
func BenchmarkUDPIdleFlow(b *testing.B) {
	p := serveUDP(b, udpOptions{limit: 1 << 20}, sinkUDP(b).addr)
	memory := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	before := memory()
	n := min(b.N, 5000)
	for i := range n {
		client := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(i >> 8), byte(i)}), 53)
		p.flow(flowKey{client: client}, p.flows.now())
	}
	b.ReportMetric(float64(memory()-before)/float64(n), "B/flow")
}
