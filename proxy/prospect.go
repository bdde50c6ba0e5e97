package proxy

import (
	"net/netip"
	"time"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Prospect is what a client's next connection to a portal would meet.
type Prospect struct {
	Port     service.Port // as it is served
	Portal   PortalStatus
	Inside   bool // the client is this node or, as far as addresses tell, a pod on it
	Local    bool // the client must have an endpoint on this node
	Barred   bool // the client may not come from there
	Forecast loadbalancer.Forecast
	Timings  Timings
	Full     string // why a TCP connection would be reset whatever the endpoints; empty where it would not
}

// Timings are how long what waits.
type Timings struct {
	Dial     time.Duration // for all attempts together
	Fallback time.Duration // after which a second endpoint is tried beside the first
	UDPIdle  time.Duration // after which a flow without traffic ends
}

// Prospect may be asked for at any time. It is false where no portal has that
// address. An invalid client is one who has not been here, from outside.
func (p *Proxier) Prospect(protocol service.Protocol, at netip.AddrPort, client netip.Addr) (Prospect, bool) {
	s, portal, ok := p.portal(protocol, at)
	if !ok {
		return Prospect{}, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	found := NewProspect(s.spec, s.portalStatus(portal), client, client.IsValid() && p.shared.isInside(client), s.group)
	found.Timings = p.config.timings()
	for _, l := range s.listeners {
		switch l := l.(type) {
		case *tcpListener:
			if found.Full == "" {
				found.Full = p.shared.limits.full(client, l.open)
			}
		case *udpListener:
			found.Timings.UDPIdle = l.idle // which the kernel may have cut short
		}
	}
	return found, true
}

// NewProspect is what a client would meet at a portal, but for timings and limits.
func NewProspect(port service.Port, portal PortalStatus, client netip.Addr, inside bool, group *loadbalancer.Group) Prospect {
	p := Prospect{
		Port: port, Portal: portal, Inside: inside, Local: port.KeepsLocal(portal.Kind, inside),
		Barred: client.IsValid() && !port.SourcesOf(portal.Kind).Admits(client), Forecast: group.Forecast(client),
	}
	if p.Local {
		p.Forecast = group.Local().Forecast(client)
	}
	if out := portal.Outside; p.Local && out != nil && portal.State != StateUnserved {
		p.Portal.Listener, p.Portal.State = out.Listener, out.State
	}
	return p
}

// portal finds who serves an address.
func (p *Proxier) portal(protocol service.Protocol, at netip.AddrPort) (*servicePort, service.Portal, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for key, s := range p.ports {
		if key.Protocol != protocol || key.Family != service.FamilyOf(at.Addr()) {
			continue
		}
		for _, portal := range s.portals() {
			if portal.Addr == at {
				return s, portal, true
			}
		}
	}
	return nil, service.Portal{}, false
}

// portals are those that are wanted.
func (s *servicePort) portals() []service.Portal {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spec.Portals
}

func (c Config) timings() Timings {
	return Timings{Dial: c.DialTimeout, Fallback: c.FallbackDelay, UDPIdle: c.UDPTimeout}
}

// DefaultTimings are those of a Config in which nothing is set.
func DefaultTimings() Timings {
	var c Config
	c.Defaults()
	return c.timings()
}
