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
	unopened  map[place]service.Problem          // where no listener could be opened
	unserved  map[netip.AddrPort]service.Problem // portals whose port is another program's
}

// place is where a listener stands: on a portal, or anywhere on the listening
// address (the zero place), from where rules lead every portal to it.
type place netip.AddrPort

func newServicePort(key service.Key, group *loadbalancer.Group) *servicePort {
	return &servicePort{key: key, group: group, listeners: make(map[place]listener)}
}

// update makes balancer and listeners as spec wants them. What cannot be
// served now is a problem; an error is something that should not happen and
// may pass.
func (s *servicePort) update(p *Proxier, spec service.Port) ([]service.Problem, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.spec = spec
	s.group.Update(spec.Endpoints, spec.Affinity)
	p.shared.limits.service(s.key).most.Store(int64(spec.MaxConnections))

	var problems []service.Problem
	s.unopened = nil
	for at, l := range s.listeners {
		if l.isBroken() {
			p.config.Log.Warnf("the socket of %v at %v was closed by somebody else: opening another", s.key, l.addr())
			s.closeAt(p, at)
		}
	}
	for at, portal := range s.places(p) {
		if s.listeners[at] != nil {
			continue
		}
		l, err := s.open(p, at)
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
	known := make(map[netip.AddrPort]bool, len(s.spec.Endpoints))
	for _, e := range s.spec.Endpoints {
		known[e.Addr] = true
	}
	var errs []error
	for _, l := range s.listeners {
		l.endpointsChanged(func(a netip.AddrPort) bool { return known[a] })
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

// places is where listeners have to stand, with a portal that each is for.
func (s *servicePort) places(p *Proxier) map[place]service.Portal {
	places := make(map[place]service.Portal)
	for _, portal := range s.spec.Portals {
		if p.config.Rules == nil {
			places[place(portal.Addr)] = portal
		} else if _, ok := p.config.Listen[s.key.Family]; ok {
			places[place{}] = portal
		}
	}
	return places
}

func (s *servicePort) open(p *Proxier, at place) (l listener, err error) {
	if at != (place{}) {
		return p.listen(s.key, netip.AddrPort(at), s.group)
	}
	err = p.numbers.open(socketPlace{s.key.Family, s.key.Protocol}, p.config.Listen[s.key.Family],
		func(addr netip.AddrPort) error {
			l, err = p.listen(s.key, addr, s.group)
			return err
		})
	return l, err
}

// redirects leads each portal that is to be had to the listener.
func (s *servicePort) redirects(p *Proxier) []service.Redirect {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.unserved = make(map[netip.AddrPort]service.Problem)
	l := s.listeners[place{}]
	if l == nil {
		return nil
	}
	var redirects []service.Redirect
	for _, portal := range s.spec.Portals {
		if problem, taken := p.claims.taken(s.key.Protocol, portal.Addr); taken {
			s.unserved[portal.Addr] = problem
			continue
		}
		redirects = append(redirects, service.Redirect{
			Portal: portal.Addr, Protocol: s.key.Protocol,
			Action: service.ToListener, Listener: l.addr(), Service: s.key.PortName,
		})
	}
	return redirects
}

// closeStale closes listeners whose portal is gone.
func (s *servicePort) closeStale(p *Proxier) {
	wanted := s.places(p)
	s.closeWhere(p, func(at place) bool { _, ok := wanted[at]; return !ok })
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
// port rests until it is known that they are.
func (s *servicePort) closeAt(p *Proxier, at place) {
	l := s.listeners[at]
	delete(s.listeners, at)
	if at == (place{}) && s.key.Protocol == service.TCP {
		p.retire(l)
		return
	}
	if at == (place{}) && p.config.Conntrack != nil {
		p.numbers.rest(socketPlace{s.key.Family, service.UDP}, l.addr().Port())
	}
	l.close()
	p.shared.budget.giveListener()
}

func sortedKeys[V any](m map[service.Key]V) []service.Key {
	return slices.SortedFunc(maps.Keys(m), service.Key.Compare)
}
