package loadbalancer

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Group balances one service port, in one family, over its endpoints. All
// methods may be called at once; none waits for anything but the others, which
// all are short.
type Group struct {
	now func() time.Time

	mu       sync.Mutex
	listed   []*endpoint // as the last Update listed them, each once
	byAddr   map[netip.AddrPort]*endpoint
	ring     ring
	affinity affinity
	rests    uint64 // that have begun
}

// NewGroup makes a group without endpoints and without affinity. It reads the
// time from now, in calls of its own methods only; now must not call them.
func NewGroup(now func() time.Time) *Group {
	return &Group{now: now}
}

// Update makes these the endpoints, in any number, and affinity the idle time
// after which a client's endpoint is forgotten; 0 is no affinity. It is the
// whole state, whatever was before. Endpoints known by their address keep
// their turn, their rest and their clients. An endpoint listed twice counts
// once. The slice remains the caller's.
//
// An Update that changes nothing costs a comparison. It should come now and
// then all the same: it also gives back what idle clients took.
func (g *Group) Update(endpoints []service.Endpoint, affinity time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.affinity.setTimeout(max(affinity, 0), now)
	g.affinity.turn(now)
	if !g.lists(endpoints) {
		g.replace(endpoints)
	}
}

// lists says whether these are the endpoints already.
func (g *Group) lists(endpoints []service.Endpoint) bool {
	return slices.EqualFunc(g.listed, endpoints, func(have *endpoint, want service.Endpoint) bool {
		return have.Endpoint == want
	})
}

// replace makes these the endpoints.
func (g *Group) replace(endpoints []service.Endpoint) {
	before := g.byAddr
	g.byAddr = make(map[netip.AddrPort]*endpoint, len(endpoints))
	g.listed = make([]*endpoint, 0, len(endpoints))
	var joined []*endpoint
	for _, e := range endpoints {
		if g.byAddr[e.Addr] != nil {
			continue
		}
		ep := before[e.Addr]
		if ep == nil {
			ep = &endpoint{}
			joined = append(joined, ep)
		}
		ep.Endpoint = e
		g.byAddr[e.Addr] = ep
		g.listed = append(g.listed, ep)
	}
	for addr, ep := range before {
		ep.gone = g.byAddr[addr] == nil
	}
	g.ring.renew(joined)
	if len(g.listed) == 0 {
		g.affinity.forget()
	}
}

// Pick names the endpoint for a new connection or flow of the client, none of
// those tried. It is false where there is none, or none that was not tried.
//
// With affinity the choice is recorded at once, and moves when a later pick of
// this client has tried it or finds it resting. An invalid client address is
// nobody's and has no affinity. Pick allocates nothing, but that remembering a
// new client takes memory.
//
// The caller answers each pick with Succeeded or Failed, or with neither where
// its client gave up first.
func (g *Group) Pick(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, bool) {
	addr, _, ok := g.PickWhy(client, tried)
	return addr, ok
}

// PickWhy is Pick, and says why it is this endpoint.
func (g *Group) PickWhy(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, Why, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	client = client.Unmap()
	affine := g.affinity.endpoint(client, now)
	ep := g.choose(affine, tried, now)
	if ep == nil {
		return netip.AddrPort{}, 0, false
	}
	why := g.why(ep, affine, now)
	ep.picked(now)
	g.affinity.record(client, ep, now)
	return ep.Addr, why, true
}

// choose prefers the endpoint that has the client's affinity, if any, to the
// one whose turn it is. An endpoint that rests is chosen only where all that
// were not tried do; then rests say nothing, and the same order holds.
func (g *Group) choose(affine *endpoint, tried []netip.AddrPort, now time.Time) *endpoint {
	untried := func(ep *endpoint) bool { return !slices.Contains(tried, ep.Addr) }
	awake := func(ep *endpoint) bool { return !ep.rests(now) && untried(ep) }

	if affine != nil && affine.keeps(now) && untried(affine) {
		return affine
	}
	if ep := g.ring.next(awake); ep != nil {
		return ep
	}
	if affine != nil && untried(affine) {
		return affine
	}
	return g.ring.next(untried)
}

// Succeeded says that a dial to the endpoint worked: its rest is over. The
// client's affinity, where there is affinity, is with this endpoint from now.
// An endpoint that is no longer one is ignored.
//
// For UDP a flow's socket that could be connected is a dial that worked; what
// comes back refused afterwards has failed.
func (g *Group) Succeeded(client netip.Addr, addr netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	ep := g.byAddr[addr]
	if ep == nil {
		return
	}
	ep.succeeded()
	g.affinity.record(client.Unmap(), ep, g.now())
}

// Failed says that a dial to the endpoint failed, or was overtaken by a later
// one: it rests, for 1 s at first and twice as long each time up to 30 s, until
// a dial to it works. After its rest one connection in turn tries it, and it
// is passed over until that one reports or as long again has passed. Failures
// reported while it rests do not prolong the rest. An endpoint that is no
// longer one is ignored.
func (g *Group) Failed(addr netip.AddrPort) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if ep := g.byAddr[addr]; ep != nil {
		if ep.failed(g.now()) {
			g.rests++
		}
	}
}
