package proxy

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// servicePort is one service port as it is served: its balancer and its
// listeners.
type servicePort struct {
	key   service.Key
	group *loadbalancer.Group

	mu        sync.Mutex // guards the rest against Status; the Proxier alone writes
	spec      service.Port
	listeners map[place]listener
	gates     map[place]*gate                    // of those on portals
	unopened  map[place]service.Problem          // where no listener could be opened
	unserved  map[netip.AddrPort]service.Problem // portals whose port is another program's
}

// place is where a listener stands: on a portal, or anywhere on the listening
// address, from where rules lead portals to it. There it is for those who may have
// any endpoint (the zero place) or those who must have a local one.
type place struct {
	portal netip.AddrPort
	local  bool
}

// isPortal says whether the listener stands on a portal.
func (p place) isPortal() bool { return p.portal.IsValid() }

func newServicePort(key service.Key, group *loadbalancer.Group) *servicePort {
	return &servicePort{key: key, group: group, listeners: make(map[place]listener), gates: make(map[place]*gate)}
}

// update makes balancer and listeners as spec wants them. What cannot be
// served now is a problem; an error is something that should not happen and
// may pass.
func (s *servicePort) update(p *Proxier, spec service.Port) ([]service.Problem, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec = spec
	s.group.UpdateSets(spec.Endpoints, spec.Local, spec.Affinity)
	if known, ok := p.recall.Affinity[s.key.String()]; ok {
		s.group.Recall(known)
	}
	p.shared.limits.service(s.key).most.Store(int64(spec.MaxConnections))

	var problems []service.Problem
	s.unopened = nil
	for at, l := range s.listeners {
		if l.isBroken() {
			p.config.Log.Warnf("the socket of %v at %v was closed by somebody else: opening another", s.key, l.addr())
			s.closeAt(p, at)
		}
	}
	for _, site := range s.places(p) {
		at, portal := site.place, site.Portal
		if g := s.gates[at]; g != nil {
			g.portal.Store(&gatePortal{portal.Kind, spec})
		}
		if s.listeners[at] != nil {
			continue
		}
		l, err := s.open(p, site)
		if err != nil {
			problem := socketProblem(spec, portal, err)
			if s.unopened == nil {
				s.unopened = make(map[place]service.Problem)
			}
			s.unopened[at] = problem
			problems = append(problems, problem)
			continue
		}
		s.listeners[at] = l
	}
	for _, l := range s.listeners {
		if u, ok := l.(*udpListener); ok {
			u.setIdle(p.shared.udpIdle)
		}
	}
	return problems, s.switchListeners()
}

// switchListeners makes the listeners serve or refuse, as there are endpoints.
func (s *servicePort) switchListeners() error {
	all, local := addressesOf(s.spec.Endpoints), addressesOf(s.spec.Local)
	var errs []error
	for at, l := range s.listeners {
		known := all
		if at.local {
			known = local
		}
		gate := s.gates[at]
		l.endpointsChanged(func(client netip.Addr, endpoint netip.AddrPort) bool {
			switch {
			case gate == nil:
				return known[endpoint]
			case gate.bars(client):
				return false
			case gate.keepsLocal(client):
				return local[endpoint]
			}
			return all[endpoint]
		})
		if gate != nil && !gate.portal.Load().kind.IsExternal() && s.spec.InternalLocal {
			known = local
		}
		change := l.hold
		if len(known) > 0 {
			change = l.serve
		}
		if err := change(); err != nil {
			errs = append(errs, fmt.Errorf("service port %v: %w", s.key, err))
		}
	}
	return errors.Join(errs...)
}

func addressesOf(endpoints []service.Endpoint) map[netip.AddrPort]bool {
	all := make(map[netip.AddrPort]bool, len(endpoints))
	for _, e := range endpoints {
		all[e.Addr] = true
	}
	return all
}

// site is a place where a listener has to stand, with a portal that it is for.
type site struct {
	place
	service.Portal
}

// places is where listeners have to stand, in order.
func (s *servicePort) places(p *Proxier) []site {
	var sites []site
	if p.config.Rules == nil {
		for _, portal := range s.spec.Portals {
			sites = append(sites, site{place{portal: portal.Addr}, portal})
		}
		return sites
	}
	if _, ok := p.config.Listen[s.key.Family]; !ok || len(s.spec.Portals) == 0 {
		return nil
	}
	if s.spec.UsesAll() {
		sites = append(sites, site{place{}, s.spec.Portals[len(s.spec.Portals)-1]})
	}
	if s.spec.UsesLocal() {
		sites = append(sites, site{place{local: true}, s.spec.Portals[len(s.spec.Portals)-1]})
	}
	return sites
}

func (s *servicePort) open(p *Proxier, at site) (l listener, err error) {
	if at.isPortal() {
		g := &gate{Group: s.group, isInside: p.shared.isInside}
		g.portal.Store(&gatePortal{at.Kind, s.spec})
		if l, err = p.listen(s.key, at.portal, g); err == nil {
			s.gates[at.place] = g
		}
		return l, err
	}
	var group balancer = s.group
	if at.local {
		group = s.group.Local()
	}
	err = p.numbers.open(socketPlace{s.key.Family, s.key.Protocol}, p.config.Listen[s.key.Family],
		func(addr netip.AddrPort) error {
			l, err = p.listen(s.key, addr, group)
			return err
		})
	return l, err
}

// redirects leads each portal that is to be had to its listeners.
func (s *servicePort) redirects(p *Proxier) []service.Redirect {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserved = make(map[netip.AddrPort]service.Problem)
	var all, local netip.AddrPort
	if l := s.listeners[place{}]; l != nil {
		all = l.addr()
	}
	if l := s.listeners[place{local: true}]; l != nil {
		local = l.addr()
	}
	var redirects []service.Redirect
	for _, portal := range s.spec.Portals {
		if problem, taken := p.claims.taken(s.key.Protocol, portal.Addr); taken {
			s.unserved[portal.Addr] = problem
			continue
		}
		redirects = append(redirects, s.spec.Redirects(portal, all, local)...)
	}
	return redirects
}

// closeStale closes listeners whose portal is gone.
func (s *servicePort) closeStale(p *Proxier) {
	wanted := make(map[place]bool)
	for _, site := range s.places(p) {
		wanted[site.place] = true
	}
	s.closeWhere(p, func(at place) bool { return !wanted[at] })
}

// closeAll closes every listener.
func (s *servicePort) closeAll(p *Proxier) {
	s.closeWhere(p, func(place) bool { return true })
}

// closeWhere closes the listeners at those places.
func (s *servicePort) closeWhere(p *Proxier, which func(place) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.listeners {
		if which(at) {
			s.closeAt(p, at)
		}
	}
}

// closeAt closes one listener: one of TCP that rules led to when its queue has
// had time to empty, others at once. A portal must be free for the next, and a
// UDP listener has no way back to its clients when their entries are gone. Its
// port rests until it is known that they are, or must be.
func (s *servicePort) closeAt(p *Proxier, at place) {
	l := s.listeners[at]
	delete(s.listeners, at)
	delete(s.gates, at)
	if !at.isPortal() && s.key.Protocol == service.TCP {
		p.retire(l)
		return
	}
	if !at.isPortal() && p.config.Conntrack != nil {
		p.numbers.rest(socketPlace{s.key.Family, service.UDP}, l.addr().Port(), p.tracked.entryLife())
	}
	l.close()
	p.shared.budget.giveListener()
}

func sortedKeys[V any](m map[service.Key]V) []service.Key {
	return slices.SortedFunc(maps.Keys(m), service.Key.Compare)
}
