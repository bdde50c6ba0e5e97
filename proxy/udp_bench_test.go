package proxy

import (
	"net/netip"
	"runtime"
	"testing"
	"time"
)

// benchmarkPath is a client's way to an echo: straight, or through a server.
func benchmarkPath(b *testing.B, straight bool) netip.AddrPort {
	b.Helper()
	e := echoUDP(b)
	if straight {
		return e.addr
	}
	return serveUDP(b, udpOptions{idle: time.Second}, e.addr).addr
}

func BenchmarkUDPPingPong(b *testing.B) {
	for name, straight := range map[string]bool{"straight": true, "proxied": false} {
		b.Run(name, func(b *testing.B) {
			to := benchmarkPath(b, straight)
			b.ReportAllocs()
			b.SetParallelism(16 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				c, buf := newUDPClient(b, to), make([]byte, 64)
				_ = c.SetReadDeadline(time.Now().Add(time.Minute))
				for pb.Next() {
					_, _ = c.Write(buf)
					if _, err := c.Read(buf); err != nil {
						b.Error(err)
						return
					}
				}
			})
		})
	}
}

func BenchmarkUDPNewFlow(b *testing.B) {
	for name, straight := range map[string]bool{"straight": true, "proxied": false} {
		b.Run(name, func(b *testing.B) {
			to := benchmarkPath(b, straight)
			b.ReportAllocs()
			b.SetParallelism(16 / runtime.GOMAXPROCS(0))
			b.RunParallel(func(pb *testing.PB) {
				for pb.Next() {
					c := newUDPClient(b, to)
					c.ask("hello")
					_ = c.Close()
				}
			})
		})
	}
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
