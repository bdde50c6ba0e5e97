package loadbalancer_test

import (
	"math/rand/v2"
	"net/netip"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

// All methods at once: the race detector watches, and what is picked is always
// an endpoint that was listed and was not tried.
func TestGroup_allAtOnce(t *testing.T) {
	t.Parallel()
	const goroutines, steps, universe = 16, 2000, 8
	g, c := newGroup(time.Minute, 0, 1, 2)
	var wg sync.WaitGroup
	for n := range goroutines {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(n), 0))
			for range steps {
				from := client(r.IntN(4))
				tried := r.Perm(universe)[:r.IntN(3)]
				switch r.IntN(10) {
				case 0:
					g.Update(endpoints(r.Perm(universe)[:r.IntN(universe+1)]...), time.Duration(r.IntN(3))*time.Second)
				case 1:
					c.advance(time.Duration(r.IntN(1000)) * time.Millisecond)
				case 2:
					assert.LessOrEqual(t, len(g.Status()), universe)
					assert.LessOrEqual(t, g.AffinityEntries(), 4)
				default:
					ep, ok := g.Pick(from, addrs(tried...))
					if !ok {
						continue
					}
					assert.Less(t, number(ep), universe)
					assert.NotContains(t, tried, number(ep))
					if r.IntN(3) == 0 {
						g.Failed(ep)
					} else {
						g.Succeeded(from, ep)
					}
				}
			}
		})
	}
	wg.Wait()

	g.Update(endpoints(0, 1, 2), 0)
	for n := range 3 {
		g.Succeeded(netip.Addr{}, addr(n))
	}
	got := turns(t, g, 3)
	slices.Sort(got)
	assert.Equal(t, []int{0, 1, 2}, got)
}

func TestGroup_fairAmongManyAtOnce(t *testing.T) {
	t.Parallel()
	const goroutines, picks = 16, 999
	g, _ := newGroup(0, 0, 1, 2, 3, 4, 5, 6)
	var mu sync.Mutex
	counts := make([]int, 7)
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			mine := make([]int, len(counts))
			for range picks {
				ep, _ := g.Pick(client(1), nil)
				mine[number(ep)]++
			}
			mu.Lock()
			defer mu.Unlock()
			for n := range counts {
				counts[n] += mine[n]
			}
		})
	}
	wg.Wait()
	assert.LessOrEqual(t, slices.Max(counts)-slices.Min(counts), 1, "%v", counts)
}

func TestSemantics_sessionAffinity_firstConnectionsAtOnce(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Hour, 1, 2, 3)
	got := make([]netip.AddrPort, 64)
	var wg sync.WaitGroup
	for i := range got {
		wg.Go(func() {
			got[i], _ = g.Pick(client(1), nil)
			g.Succeeded(client(1), got[i])
		})
	}
	wg.Wait()
	assert.Equal(t, slices.Repeat(addrs(1), len(got)), got)
}
