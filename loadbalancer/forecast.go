package loadbalancer

import (
	"net/netip"
	"time"
)

// Forecast is what a client's next connection would meet, for people who ask.
type Forecast struct {
	// Endpoints are in the order in which Pick would name them, were each
	// dial to fail: the first is the one that is picked next.
	Endpoints []EndpointStatus

	Timeout time.Duration // of affinity; 0: there is none
	// Affine is the endpoint that has the client's affinity; not valid where
	// none has. Used is when it last was used: it is forgotten Timeout later.
	Affine netip.AddrPort
	Used   time.Time
}

// Forecast says what Pick would do for a client now. It changes nothing, so
// that by the time somebody connects others may have had the turn. An invalid
// client is one who has never been here.
func (g *Group) Forecast(client netip.Addr) Forecast { return g.forecast(all, client) }

// Forecast is Group.Forecast among local endpoints.
func (l Local) Forecast(client netip.Addr) Forecast { return l.forecast(local, client) }

func (g *Group) forecast(from set, client netip.Addr) Forecast {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.now()
	f := Forecast{Timeout: g.affinity.timeout, Endpoints: make([]EndpointStatus, 0, len(g.sets[from]))}
	turns := &g.rings[from]
	affine, used := g.affinity.lookup(client.Unmap(), now)
	if affine != nil && !affine.in[from] {
		affine = nil
	}
	if affine != nil {
		f.Affine, f.Used = affine.Addr, used
	}
	first := affine
	if affine != nil && !affine.keeps(now) && turns.has(func(ep *endpoint) bool { return !ep.rests(now) }) {
		first = nil // it is passed over, and then its affinity has moved
	}
	if first != nil {
		f.Endpoints = append(f.Endpoints, first.status(now))
	}
	for _, resting := range []bool{false, true} {
		for n := range turns.order {
			if ep := *turns.place(n); ep != first && ep.rests(now) == resting {
				f.Endpoints = append(f.Endpoints, ep.status(now))
			}
		}
	}
	return f
}
