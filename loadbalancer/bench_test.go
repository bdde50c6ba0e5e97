package loadbalancer_test

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
)

// benchGroup has the machine's clock and n endpoints.
func benchGroup(n int, affinity time.Duration) *loadbalancer.Group {
	g := loadbalancer.NewGroup(time.Now)
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	g.Update(endpoints(all...), affinity)
	return g
}

func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprintf("endpoints=%d", n), func(b *testing.B) {
			g := benchGroup(n, 0)
			from := client(1)
			b.ReportAllocs()
			for b.Loop() {
				g.Pick(from, nil)
			}
		})
	}
	b.Run("endpoints=10,9 resting", func(b *testing.B) {
		g, _ := newGroup(0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9) // its clock stands, so the rests last
		for n := range 9 {
			g.Failed(addr(n))
		}
		from := client(1)
		b.ReportAllocs()
		for b.Loop() {
			g.Pick(from, nil)
		}
	})
	b.Run("parallel", func(b *testing.B) {
		g := benchGroup(10, 0)
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			from := client(1)
			for pb.Next() {
				g.Pick(from, nil)
			}
		})
	})
}

func BenchmarkPickAffinity(b *testing.B) {
	for _, n := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("clients=%d", n), func(b *testing.B) {
			g := benchGroup(10, 3*time.Hour)
			clients := make([]netip.Addr, n)
			for i := range clients {
				clients[i] = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(0x0b000000+i))))
				g.Pick(clients[i], nil)
			}
			i := 0
			b.ReportAllocs()
			for b.Loop() {
				g.Pick(clients[i], nil)
				i = (i + 1) % n
			}
		})
	}
}

func BenchmarkUpdate(b *testing.B) {
	list := endpoints(0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	b.Run("unchanged", func(b *testing.B) {
		g := benchGroup(10, 0)
		b.ReportAllocs()
		for b.Loop() {
			g.Update(list, 0)
		}
	})
	b.Run("one changed", func(b *testing.B) {
		g := benchGroup(10, 0)
		b.ReportAllocs()
		for b.Loop() {
			g.Update(list[1:], 0)
			g.Update(list, 0)
		}
	})
}
