package loadbalancer_test

import (
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clock is a time that stands still until it is moved.
type clock struct {
	mu sync.Mutex
	at time.Time
}

func newClock() *clock { return &clock{at: time.Date(2014, 6, 6, 0, 0, 0, 0, time.UTC)} }

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

// addr is the address of endpoint n: 10.0.x.x:80.
func addr(n int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, byte(n >> 8), byte(n)}), 80)
}

func addrs(ns ...int) []netip.AddrPort {
	all := make([]netip.AddrPort, 0, len(ns))
	for _, n := range ns {
		all = append(all, addr(n))
	}
	return all
}

func endpoints(ns ...int) []service.Endpoint {
	all := make([]service.Endpoint, 0, len(ns))
	for _, n := range ns {
		all = append(all, service.Endpoint{Addr: addr(n), Pod: fmt.Sprintf("pod-%d", n)})
	}
	return all
}

// client is the address of client n: 192.0.2.n.
func client(n int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(n)}) }

// newGroup has the endpoints given and the affinity given.
func newGroup(affinity time.Duration, ns ...int) (*loadbalancer.Group, *clock) {
	c := newClock()
	g := loadbalancer.NewGroup(c.now)
	g.Update(endpoints(ns...), affinity)
	return g, c
}

// number is the n whose addr this is.
func number(ep netip.AddrPort) int {
	b := ep.Addr().As4()
	return int(b[2])<<8 | int(b[3])
}

// mustPick is the number of the endpoint picked; there must be one.
func mustPick(t *testing.T, g *loadbalancer.Group, from netip.Addr, tried ...int) int {
	t.Helper()
	ep, ok := g.Pick(from, addrs(tried...))
	require.True(t, ok, "nothing to pick")
	return number(ep)
}

// turns are the next n picks of a client that nobody remembers.
func turns(t *testing.T, g *loadbalancer.Group, n int) []int {
	t.Helper()
	got := make([]int, 0, n)
	for range n {
		got = append(got, mustPick(t, g, netip.Addr{}))
	}
	return got
}

func TestPick(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name      string
		endpoints []int
		resting   []int
		tried     []int
		want      []int // picks in turn; none where Pick is false
	}{
		{name: "no endpoint"},
		{name: "one", endpoints: []int{1}, want: []int{1, 1, 1}},
		{name: "in turn", endpoints: []int{1, 2, 3}, want: []int{1, 2, 3, 1, 2, 3}},
		{name: "listed twice counts once", endpoints: []int{1, 2, 1}, want: []int{1, 2, 1, 2}},
		{name: "tried are left out", endpoints: []int{1, 2, 3}, tried: []int{1, 3}, want: []int{2, 2}},
		{name: "all tried", endpoints: []int{1, 2}, tried: []int{2, 1}},
		{name: "tried that is no endpoint", endpoints: []int{1, 2}, tried: []int{9}, want: []int{1, 2}},
		{name: "resting are passed over", endpoints: []int{1, 2, 3}, resting: []int{2}, want: []int{1, 3, 1, 3}},
		{name: "an only endpoint does not rest", endpoints: []int{1}, resting: []int{1}, want: []int{1, 1}},
		{name: "all rest, none does", endpoints: []int{1, 2}, resting: []int{1, 2}, want: []int{1, 2, 1, 2}},
		{name: "all untried rest", endpoints: []int{1, 2, 3}, resting: []int{2, 3}, tried: []int{1}, want: []int{2, 3, 2}},
		{name: "an untried one awake", endpoints: []int{1, 2, 3}, resting: []int{2}, tried: []int{1}, want: []int{3, 3}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGroup(0, tt.endpoints...)
			for _, n := range tt.resting {
				g.Failed(addr(n))
			}
			if len(tt.want) == 0 {
				_, ok := g.Pick(client(1), addrs(tt.tried...))
				assert.False(t, ok)
			}
			for i, want := range tt.want {
				assert.Equal(t, want, mustPick(t, g, client(1), tt.tried...), "pick %d", i)
			}
		})
	}
}

func TestPick_beforeAnyUpdate(t *testing.T) {
	t.Parallel()
	g := loadbalancer.NewGroup(newClock().now)
	_, ok := g.Pick(client(1), nil)
	assert.False(t, ok)
	g.Succeeded(client(1), addr(1))
	g.Failed(addr(1))
	assert.Empty(t, g.Status())
	assert.Zero(t, g.AffinityEntries())
}

func TestPick_passedOverKeepTheirTurn(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(0, 1, 2, 3, 4)
	assert.Equal(t, 3, mustPick(t, g, netip.Addr{}, 1, 2))
	assert.Equal(t, []int{1, 2, 4, 3}, turns(t, g, 4))
}

func TestUpdate_ring(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		before []int
		picks  int // made between the two updates
		after  []int
		want   []int
	}{
		{name: "nothing changed", before: []int{1, 2, 3}, picks: 1, after: []int{1, 2, 3}, want: []int{2, 3, 1}},
		{name: "listed in another order", before: []int{1, 2, 3}, picks: 1, after: []int{3, 1, 2}, want: []int{2, 3, 1}},
		{name: "a new one comes last", before: []int{1, 2, 3}, picks: 2, after: []int{1, 2, 3, 4}, want: []int{3, 1, 2, 4, 3}},
		{name: "the next one left", before: []int{1, 2, 3}, picks: 1, after: []int{1, 3}, want: []int{3, 1, 3}},
		{name: "the last picked left", before: []int{1, 2, 3}, picks: 1, after: []int{2, 3}, want: []int{2, 3, 2}},
		{name: "one replaced", before: []int{1, 2, 3}, picks: 1, after: []int{0, 1, 3}, want: []int{3, 1, 0, 3}},
		{name: "all replaced", before: []int{1, 2}, picks: 1, after: []int{3, 4}, want: []int{3, 4, 3}},
		{name: "the first ones", after: []int{2, 1}, want: []int{2, 1, 2}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGroup(0, tt.before...)
			turns(t, g, tt.picks)
			g.Update(endpoints(tt.after...), 0)
			assert.Equal(t, tt.want, turns(t, g, len(tt.want)))
		})
	}
}

func TestUpdate_sliceStaysWithCaller(t *testing.T) {
	t.Parallel()
	mine := endpoints(1, 2)
	g := loadbalancer.NewGroup(newClock().now)
	g.Update(mine, 0)
	mine[0].Addr = addr(9)
	assert.Equal(t, []int{1, 2}, turns(t, g, 2))
	g.Update(mine, 0)
	assert.Equal(t, []int{2, 9}, turns(t, g, 2))
}

func TestUpdate_newFactsOfAnEndpoint(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Minute, 1, 2)
	g.Failed(addr(1))
	moved := []service.Endpoint{{Addr: addr(1), Node: "a", Pod: "b"}, {Addr: addr(2), Pod: "pod-2"}}
	g.Update(moved, time.Minute)
	status := g.Status()
	require.Len(t, status, 2)
	assert.Equal(t, moved[0], status[0].Endpoint)
	assert.Equal(t, 1, status[0].Failures, "the address is what an endpoint is known by")
}

func TestFailed_rests(t *testing.T) {
	t.Parallel()
	g, c := newGroup(0, 1, 2)
	// Each rest is as long as listed: 1 ms before its end the endpoint is
	// passed over, at its end it is tried, and the try fails.
	for i, rest := range []time.Duration{1, 2, 4, 8, 16, 30, 30, 30} {
		g.Failed(addr(1))
		status := g.Status()[0]
		assert.Equal(t, c.now().Add(rest*time.Second), status.RestingUntil, "rest %d", i)
		assert.Equal(t, i+1, status.Failures)
		c.advance(rest*time.Second - time.Millisecond)
		assert.Equal(t, []int{2, 2, 2}, turns(t, g, 3), "rest %d", i)
		c.advance(time.Millisecond)
		assert.Zero(t, g.Status()[0].RestingUntil, "rest %d", i)
		assert.Equal(t, 1, mustPick(t, g, client(1)), "rest %d", i)
	}
	g.Succeeded(client(1), addr(1))
	assert.Equal(t, loadbalancer.EndpointStatus{Endpoint: endpoints(1)[0]}, g.Status()[0])
	assert.Equal(t, []int{2, 1, 2, 1}, turns(t, g, 4))

	g.Failed(addr(1))
	assert.Equal(t, c.now().Add(time.Second), g.Status()[0].RestingUntil, "rests begin small again")
}

func TestFailed_manyAtOnceAreOneFailure(t *testing.T) {
	t.Parallel()
	g, c := newGroup(0, 1, 2)
	for range 100 {
		g.Failed(addr(1))
	}
	assert.Equal(t, loadbalancer.EndpointStatus{
		Endpoint:     endpoints(1)[0],
		RestingUntil: c.now().Add(time.Second),
		Failures:     100,
	}, g.Status()[0])
}

func TestFailed_oneTrialAfterARest(t *testing.T) {
	t.Parallel()
	outcomes := []struct {
		name   string
		report func(g *loadbalancer.Group, c *clock)
		want   []int // the picks after it; endpoint 1 was on trial
	}{
		{"worked", func(g *loadbalancer.Group, _ *clock) { g.Succeeded(client(1), addr(1)) }, []int{1, 2, 1, 2}},
		{"failed", func(g *loadbalancer.Group, _ *clock) { g.Failed(addr(1)) }, []int{2, 2, 2}},
		{"failed, and rested twice as long", func(g *loadbalancer.Group, c *clock) {
			g.Failed(addr(1))
			c.advance(2 * time.Second)
		}, []int{1, 2, 2, 2}},
		{"nobody said, before its time", func(_ *loadbalancer.Group, c *clock) { c.advance(time.Second - 1) }, []int{2, 2, 2}},
		{"nobody said", func(_ *loadbalancer.Group, c *clock) { c.advance(time.Second) }, []int{1, 2, 2, 2}},
	}
	for _, tt := range outcomes {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, c := newGroup(0, 1, 2)
			g.Failed(addr(1))
			c.advance(time.Second)
			assert.Equal(t, []int{1, 2, 2, 2}, turns(t, g, 4), "one pick tries it")
			assert.True(t, g.Status()[0].OnTrial)
			assert.Equal(t, c.now().Add(time.Second), g.Status()[0].RestingUntil)
			tt.report(g, c)
			assert.Equal(t, tt.want, turns(t, g, len(tt.want)))
		})
	}
}

func TestFailed_andSucceeded_ofOneThatLeft(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Minute, 1, 2)
	g.Update(endpoints(2), time.Minute)
	g.Failed(addr(1))
	g.Succeeded(client(1), addr(1))
	assert.Zero(t, g.AffinityEntries())

	g.Update(endpoints(1, 2), time.Minute)
	assert.Equal(t, loadbalancer.EndpointStatus{Endpoint: endpoints(1)[0]}, g.Status()[0])
}

func TestFailed_doesNotOutliveTheEndpoint(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(0, 1, 2)
	g.Failed(addr(1))
	g.Update(endpoints(2), 0)
	g.Update(endpoints(1, 2), 0)
	assert.Equal(t, []int{2, 1, 2, 1}, turns(t, g, 4), "one that comes back is a new one")
}

// Not parallel, as the next: AllocsPerRun counts the whole process.
func TestPick_allocatesNothing(t *testing.T) {
	tests := []struct {
		name     string
		affinity time.Duration
		tried    []netip.AddrPort
	}{
		{"round robin", 0, nil},
		{"round robin, tried", 0, addrs(1, 2)},
		{"affinity", time.Hour, nil},
		{"affinity, tried", time.Hour, addrs(1, 2)},
	}
	for _, tt := range tests {
		g, _ := newGroup(tt.affinity, 1, 2, 3, 4, 5)
		g.Failed(addr(3))
		mapped := netip.AddrFrom16(client(1).As16())
		assert.Zero(t, testing.AllocsPerRun(1000, func() {
			ep, _ := g.Pick(mapped, tt.tried)
			g.Succeeded(mapped, ep)
		}), tt.name)
	}
}

func TestUpdate_ofNothingNewAllocatesNothing(t *testing.T) {
	list := endpoints(1, 2, 3, 4, 5)
	g, _ := newGroup(time.Hour, 1, 2, 3, 4, 5)
	assert.Zero(t, testing.AllocsPerRun(1000, func() { g.Update(list, time.Hour) }))
}

// sut is a group with its clock.
type sut struct {
	*loadbalancer.Group
	clock *clock
}
