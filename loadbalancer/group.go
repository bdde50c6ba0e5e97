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
	listed   []*endpoint // of all sets, each once
	byAddr   map[netip.AddrPort]*endpoint
	sets     [sets][]*endpoint // as the last Update listed each, each endpoint once
	rings    [sets]ring
	affinity affinity
	rests    uint64 // that have begun
}

// NewGroup makes a group without endpoints and without affinity. It reads the
// time from now, in calls of its own methods only; now must not call them.
func NewGroup(now func() time.Time) *Group {
	return &Group{now: now}
}

// A set is one of those endpoints of a group that some of its clients may have.
type set int

const (
	all   set = iota // those that any client may have, but for those who must have local ones
	local            // those on this node
	sets
)

// Update makes these the endpoints, in any number, and affinity the idle time
// after which a client's endpoint is forgotten; 0 is no affinity. It is the
// whole state, whatever was before. Endpoints known by their address keep
// their turn, their rest and their clients. An endpoint listed twice counts
// once. The slice remains the caller's.
//
// An Update that changes nothing costs a comparison. It should come now and
// then all the same: it also gives back what idle clients took.
func (g *Group) Update(endpoints []service.Endpoint, affinity time.Duration) {
	g.UpdateSets(endpoints, nil, affinity)
}

// UpdateSets is Update for a group some of whose clients must have one of the
// local endpoints (see Local). Those may be among endpoints or not.
func (g *Group) UpdateSets(endpoints, locals []service.Endpoint, affinity time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.affinity.setTimeout(max(affinity, 0), now)
	g.affinity.turn(now)
	want := [sets][]service.Endpoint{all: endpoints, local: locals}
	if !g.lists(want) {
		g.replace(want)
	}
}

// lists says whether these are the endpoints already.
func (g *Group) lists(want [sets][]service.Endpoint) bool {
	for s := range want {
		same := slices.EqualFunc(g.sets[s], want[s], func(have *endpoint, want service.Endpoint) bool {
			return have.Endpoint == want
		})
		if !same {
			return false
		}
	}
	return true
}

// replace makes these the endpoints.
func (g *Group) replace(want [sets][]service.Endpoint) {
	before := g.byAddr
	g.byAddr = make(map[netip.AddrPort]*endpoint, len(want[all]))
	g.listed = make([]*endpoint, 0, len(want[all]))
	var in [sets]map[*endpoint]bool
	for s := range want {
		g.sets[s] = make([]*endpoint, 0, len(want[s]))
		in[s] = make(map[*endpoint]bool, len(want[s]))
		for _, e := range want[s] {
			if ep := g.keep(e, before); !in[s][ep] {
				in[s][ep] = true
				g.sets[s] = append(g.sets[s], ep)
			}
		}
	}
	for addr, ep := range before {
		ep.gone = g.byAddr[addr] == nil
	}
	for s := range want {
		g.rings[s].renew(g.sets[s], in[s])
	}
	for _, ep := range g.listed {
		for s := range in {
			ep.in[s] = in[s][ep]
		}
	}
	if len(g.listed) == 0 {
		g.affinity.forget()
	}
}

// keep is the endpoint at an address: the one that was there before, or a new one.
func (g *Group) keep(e service.Endpoint, before map[netip.AddrPort]*endpoint) *endpoint {
	if ep := g.byAddr[e.Addr]; ep != nil {
		return ep
	}
	ep := before[e.Addr]
	if ep == nil {
		ep = &endpoint{}
	}
	ep.Endpoint = e
	g.byAddr[e.Addr] = ep
	g.listed = append(g.listed, ep)
	return ep
}

// Local is the group for those of its clients who must have a local endpoint.
// They share affinity and rests with the others, but have turns of their own. A
// client's affinity with an endpoint that is not local moves.
type Local struct{ *Group }

// Local is the group for those who must have a local endpoint.
func (g *Group) Local() Local { return Local{g} }

// Pick is Group.Pick among local endpoints.
func (l Local) Pick(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, bool) {
	addr, _, ok := l.pick(local, client, tried)
	return addr, ok
}

// PickWhy is Group.PickWhy among local endpoints.
func (l Local) PickWhy(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, Why, bool) {
	return l.pick(local, client, tried)
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
	addr, _, ok := g.pick(all, client, tried)
	return addr, ok
}

// PickWhy is Pick, and says why it is this endpoint.
func (g *Group) PickWhy(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, Why, bool) {
	return g.pick(all, client, tried)
}

func (g *Group) pick(from set, client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, Why, bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	client = client.Unmap()
	affine := g.affinity.endpoint(client, now)
	if affine != nil && !affine.in[from] {
		affine = nil
	}
	ep := g.choose(&g.rings[from], affine, tried, now)
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
func (g *Group) choose(turns *ring, affine *endpoint, tried []netip.AddrPort, now time.Time) *endpoint {
	untried := func(ep *endpoint) bool { return !slices.Contains(tried, ep.Addr) }
	awake := func(ep *endpoint) bool { return !ep.rests(now) && untried(ep) }

	if affine != nil && affine.keeps(now) && untried(affine) {
		return affine
	}
	if ep := turns.next(awake); ep != nil {
		return ep
	}
	if affine != nil && untried(affine) {
		return affine
	}
	return turns.next(untried)
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
