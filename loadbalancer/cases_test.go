package loadbalancer_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
)

// Affinity was lost at scale to zero and back, or where endpoints came before
// the Service that asks for it. Here an Update is the whole state, so it is
// enough that none leaves anything behind: whatever came before, the last one
// decides.
func TestCase20_affinityInAnyOrderOfEvents(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 20))
			c := newClock()
			g := loadbalancer.NewGroup(c.now)
			for range r.IntN(20) {
				some := r.Perm(4)[:r.IntN(5)]
				g.Update(endpoints(some...), []time.Duration{0, time.Second, time.Hour}[r.IntN(3)])
				for n := range r.IntN(4) {
					if ep, ok := g.Pick(client(n), nil); ok && r.IntN(2) == 0 {
						g.Succeeded(client(n), ep)
					}
				}
				c.advance(time.Duration(r.IntN(3)) * time.Second)
			}

			g.Update(endpoints(0, 1, 2, 3), time.Minute)
			var first []int
			for n := range 4 {
				first = append(first, mustPick(t, g, client(n)))
			}
			for range 4 {
				c.advance(time.Minute - 1)
				for n := range 4 {
					assert.Equal(t, first[n], mustPick(t, g, client(n)), "client %d", n)
				}
			}
		})
	}
}

func TestCase20_affinityAtScaleToZeroAndBack(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Hour, 1, 2)
	require.Equal(t, 1, mustPick(t, g, client(1)))
	g.Update(nil, time.Hour)
	assert.Zero(t, g.AffinityEntries(), "the endpoint is gone, and so is the entry")
	_, ok := g.Pick(client(1), nil)
	assert.False(t, ok)

	g.Update(endpoints(2, 1), time.Hour)
	for range 3 {
		assert.Equal(t, 2, mustPick(t, g, client(1)), "picked anew, and kept")
		assert.Equal(t, 1, mustPick(t, g, client(2)))
	}
}

// connect does what the proxy does for one connection: it dials what it picks
// until one endpoint answers, and returns the numbers of those it dialled.
func connect(g *loadbalancer.Group, from netip.Addr, answers func(int) bool) []int {
	var tried []netip.AddrPort
	var dialled []int
	for {
		ep, ok := g.Pick(from, tried)
		if !ok {
			return dialled
		}
		dialled = append(dialled, number(ep))
		if answers(number(ep)) {
			g.Succeeded(from, ep)
			return dialled
		}
		g.Failed(ep)
		tried = append(tried, ep)
	}
}

func TestCase21_affinityLeavesADeadEndpointWithinOneConnect(t *testing.T) {
	t.Parallel()
	g, c := newGroup(3*time.Hour, 1, 2, 3)
	all := func(int) bool { return true }
	require.Equal(t, []int{1}, connect(g, client(1), all))

	oneDied := func(n int) bool { return n != 1 }
	assert.Equal(t, []int{1, 2}, connect(g, client(1), oneDied), "the connect that finds it dead")
	for range 10 {
		assert.Equal(t, []int{2}, connect(g, client(1), oneDied), "those that follow")
		c.advance(time.Minute)
	}

	allDied := func(int) bool { return false }
	assert.ElementsMatch(t, []int{1, 2, 3}, connect(g, client(1), allDied), "every one is tried once")
	threeBack := func(n int) bool { return n == 3 }
	connect(g, client(1), threeBack)
	assert.Equal(t, []int{3}, connect(g, client(1), threeBack))
}

// Two ports of a Service may go to different pods: affinity is per port, as
// with kube-proxy, and package and user documentation say so.
func TestCase22_affinityIsPerPort(t *testing.T) {
	t.Parallel()
	http, _ := newGroup(time.Hour, 1, 2)
	https, _ := newGroup(time.Hour, 1, 2)
	mustPick(t, https, client(9))
	for range 3 {
		assert.Equal(t, 1, mustPick(t, http, client(1)))
		assert.Equal(t, 2, mustPick(t, https, client(1)))
	}
}

// Any endpoint change reset the round robin. Here the endpoints that stay are
// picked equally often, within one, after every single pick, while others
// come, go, fail, and are tried, and the list changes its order.
func TestCase23_fairWithinOneUnderChurn(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		t.Run(fmt.Sprint("seed ", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 23))
			stable := 1 + r.IntN(5) // endpoints 0 to stable-1 stay
			churning := r.IntN(10)  // those after them do not
			g := loadbalancer.NewGroup(newClock().now)

			counts := make([]int, stable)
			for step := range 2000 {
				others := r.Perm(churning)[:r.IntN(churning+1)]
				for i := range others {
					others[i] += stable
				}
				if step == 0 || r.IntN(3) == 0 {
					list := append(r.Perm(stable), others...)
					r.Shuffle(len(list), func(i, j int) { list[i], list[j] = list[j], list[i] })
					g.Update(endpoints(list...), 0)
				}
				ep, ok := g.Pick(client(1), addrs(others[:len(others)/2]...))
				require.True(t, ok)
				if number(ep) >= stable {
					if r.IntN(2) == 0 {
						g.Failed(ep)
					}
					continue
				}
				counts[number(ep)]++
				require.LessOrEqual(t, slices.Max(counts)-slices.Min(counts), 1, "step %d: %v", step, counts)
			}
			require.Positive(t, slices.Min(counts), "nobody starves: %v", counts)
		})
	}
}

// One endpoint is replaced after every pick, and the new one heads the list.
func TestCase23_fairDuringARollingUpdate(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(0, 1, 2, 3, 100)
	counts := map[int]int{}
	for n := 101; n < 401; n++ {
		counts[mustPick(t, g, client(1))]++
		g.Update(endpoints(n, 1, 2, 3), 0)
	}
	assert.Equal(t, 100, counts[1])
	assert.Equal(t, 100, counts[2])
	assert.Equal(t, 100, counts[3])
}
