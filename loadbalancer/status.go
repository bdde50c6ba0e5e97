package loadbalancer

import (
	"time"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// EndpointStatus is an endpoint as people want to see it.
type EndpointStatus struct {
	service.Endpoint

	// OnlyLocal says that it is picked for clients alone who must have a local
	// endpoint.
	OnlyLocal bool
	// RestingUntil is when new clients are sent here again; zero where they
	// are now. Where all endpoints rest they are picked all the same.
	RestingUntil time.Time
	// OnTrial says that the endpoint rests only until a connection that tries
	// it reports, RestingUntil at the latest.
	OnTrial bool
	// Failures counts the failed dials since the last that worked.
	Failures int
}

// Status lists the endpoints in the order of the last Update. The slice is the
// caller's.
func (g *Group) Status() []EndpointStatus {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	all := make([]EndpointStatus, 0, len(g.listed))
	for _, ep := range g.listed {
		all = append(all, ep.status(now))
	}
	return all
}

func (e *endpoint) status(now time.Time) EndpointStatus {
	s := EndpointStatus{Endpoint: e.Endpoint, OnlyLocal: !e.in[all], Failures: e.failures}
	if e.rests(now) {
		s.RestingUntil, s.OnTrial = e.until, e.onTrial
	}
	return s
}

// Summary is a group in numbers.
type Summary struct {
	Awake, Resting int    // endpoints
	Rests          uint64 // that have begun since the group was made
	Clients        int    // as AffinityEntries counts them
}

// Summary costs less than Status: it allocates nothing.
func (g *Group) Summary() Summary {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	g.affinity.turn(now)
	s := Summary{Rests: g.rests, Clients: g.affinity.entries()}
	for _, ep := range g.listed {
		if ep.rests(now) {
			s.Resting++
		} else {
			s.Awake++
		}
	}
	return s
}

// AffinityEntries counts the clients whose endpoint is in memory, 262,144 at
// most. It may count some that have gone elsewhere in the meantime: an entry
// that is over, or whose endpoint left, is not used any more but leaves memory
// only within twice the timeout of its last use.
func (g *Group) AffinityEntries() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.affinity.turn(g.now())
	return g.affinity.entries()
}
