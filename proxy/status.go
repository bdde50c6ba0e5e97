package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Status is what a Proxier serves at one moment, for people and tests. Field
// names of its JSON are a contract.
type Status struct {
	Rules       string            `json:"rules"`   // "redirect" or "none"
	Synced      time.Time         `json:"synced"`  // when listeners and rules were last as desired
	Pending     bool              `json:"pending"` // an Update has come that is not in force yet
	Error       string            `json:"error,omitempty"`
	Restored    int               `json:"rulesRestored"` // times that rules came back that somebody else had changed
	Descriptors BudgetStatus      `json:"descriptors"`
	Ports       []PortStatus      `json:"ports"`
	Problems    []service.Problem `json:"-"` // shown with everybody else's
}

// PortStatus is one service port.
type PortStatus struct {
	Name      string           `json:"name"` // namespace/name:port/protocol
	Family    service.Family   `json:"family"`
	Source    string           `json:"source"`
	Affinity  string           `json:"affinity,omitempty"` // idle time of ClientIP affinity
	Clients   int              `json:"affinityClients,omitempty"`
	Most      int              `json:"maxConnections,omitempty"`        // of the whole Service
	Internal  string           `json:"internalTrafficPolicy,omitempty"` // Local, where it is
	External  string           `json:"externalTrafficPolicy,omitempty"`
	Sources   *[]netip.Prefix  `json:"sourceRanges,omitempty"` // who may come to load balancer addresses, where not everyone may
	Portals   []PortalStatus   `json:"portals"`
	Endpoints []EndpointStatus `json:"endpoints"`
}

// States of a portal.
const (
	StateServing  = "serving"
	StateRefusing = "refusing" // there is no endpoint
	StateDropping = "dropping" // there is none on this node, for those who must have one
	StateUnserved = "unserved" // it could not be opened: there is a problem that says why
)

// PortalStatus is one address at which clients find the port.
type PortalStatus struct {
	Kind     service.PortalKind `json:"kind"`
	Addr     netip.AddrPort     `json:"addr"`
	Listener string             `json:"listener,omitempty"` // empty: not served, see problems
	State    string             `json:"state"`              // StateServing, StateRefusing, StateUnserved
	Outside  *OutsideStatus     `json:"outside,omitempty"`  // for what comes from outside, where that is another way
	Why      string             `json:"why,omitempty"`      // it is unserved
	Advice   string             `json:"advice,omitempty"`   // what to do about that
	Hits     uint64             `json:"hits,omitempty"`     // connections and flows that the rules led here, since they were made
}

// OutsideStatus is where what comes to a portal from outside is led, where
// externalTrafficPolicy is Local.
type OutsideStatus struct {
	Listener string `json:"listener,omitempty"` // empty: nowhere
	State    string `json:"state"`              // StateServing, StateDropping
	Hits     uint64 `json:"hits,omitempty"`     // as those of the portal, which do not count these
}

// EndpointStatus is one endpoint and whether it is picked.
type EndpointStatus struct {
	Addr        netip.AddrPort `json:"addr"`
	Node        string         `json:"node,omitempty"`
	Pod         string         `json:"pod,omitempty"`
	Picked      bool           `json:"picked"`
	Local       bool           `json:"local,omitempty"` // for clients who must have one on this node, where there are such
	Why         string         `json:"why"`             // why it is or is not picked
	Connections int            `json:"connections"`
	Flows       int            `json:"flows"`
}

// Progress is how far a Proxier has come with what it was asked for.
type Progress struct {
	Synced  time.Time // when listeners and rules were last as desired; zero before the first time
	Queued  time.Time // when Update or Restore last asked for something
	Waiting time.Time // since when something is to be done that is not done; zero where all is
	Pending bool      // an Update has come that is not in force yet
	Err     error     // why the last reconcile failed, if it did
}

// Progress costs less than Status, and may be called at any time.
func (p *Proxier) Progress() Progress {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Progress{
		Synced: p.status.at, Queued: p.queued, Waiting: p.waiting,
		Pending: p.status.update != p.update, Err: p.status.err,
	}
}

// Problems are what could not be opened at the last reconcile; at any time, by
// anyone. The list is the caller's.
func (p *Proxier) Problems() []service.Problem {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.status.problems)
}

// Descriptors tells how many are in use; at any time, by anyone.
func (p *Proxier) Descriptors() BudgetStatus { return p.shared.budget.status() }

// Status may be called at any time.
func (p *Proxier) Status() Status {
	st, ports := p.overview()
	counts := p.shared.tcp.count()
	st.Ports = make([]PortStatus, 0, len(ports))
	for _, s := range ports {
		st.Ports = append(st.Ports, s.status(counts[s.key]))
	}
	return st
}

// overview is the status but for ports, and the ports to be asked.
func (p *Proxier) overview() (Status, []*servicePort) {
	p.mu.Lock()
	defer p.mu.Unlock()
	st := Status{
		Rules: "none", Synced: p.status.at, Pending: p.status.update != p.update, Descriptors: p.shared.budget.status(), Restored: p.status.restored,
		Problems: slices.Clone(p.status.problems),
	}
	if p.config.Rules != nil {
		st.Rules = "redirect"
	}
	if p.status.err != nil {
		st.Error = p.status.err.Error()
	}
	ports := make([]*servicePort, 0, len(p.ports))
	for _, key := range sortedKeys(p.ports) {
		ports = append(ports, p.ports[key])
	}
	return st, ports
}

func (s *servicePort) status(connections map[netip.AddrPort]int) PortStatus {
	s.mu.Lock()
	defer s.mu.Unlock()
	st := PortStatus{
		Name: s.key.PortName.String(), Family: s.key.Family, Source: s.spec.Source, Most: s.spec.MaxConnections,
		Portals: []PortalStatus{}, Endpoints: []EndpointStatus{},
	}
	if s.spec.InternalLocal {
		st.Internal = "Local"
	}
	if s.spec.ExternalLocal {
		st.External = "Local"
	}
	if s.spec.Sources.Limited {
		ranges := slices.Clone(s.spec.Sources.Allowed)
		if ranges == nil {
			ranges = []netip.Prefix{}
		}
		st.Sources = &ranges
	}
	if s.spec.Affinity > 0 {
		st.Affinity = s.spec.Affinity.String()
		st.Clients = s.group.AffinityEntries()
	}
	for _, portal := range s.spec.Portals {
		st.Portals = append(st.Portals, s.portalStatus(portal))
	}
	flows := make(map[netip.AddrPort]int)
	for _, l := range s.listeners {
		l.countFlows(flows)
	}
	now := time.Now()
	local := addressesOf(s.spec.Local)
	for _, e := range s.group.Status() {
		es := endpointStatus(e, now)
		es.Local = local[e.Addr]
		es.Connections, es.Flows = connections[e.Addr], flows[e.Addr]
		st.Endpoints = append(st.Endpoints, es)
	}
	for _, e := range s.spec.Unused {
		st.Endpoints = append(st.Endpoints, EndpointStatus{
			Addr: e.Addr, Node: e.Node, Pod: e.Pod, Why: e.Why, Connections: connections[e.Addr],
		})
	}
	slices.SortStableFunc(st.Endpoints, func(a, b EndpointStatus) int { return a.Addr.Compare(b.Addr) })
	return st
}

// endpointStatus is an endpoint of the balancer's.
func endpointStatus(e loadbalancer.EndpointStatus, now time.Time) EndpointStatus {
	es := EndpointStatus{Addr: e.Addr, Node: e.Node, Pod: e.Pod, Picked: true, Why: "ready"}
	if e.OnlyLocal {
		es.Why = "on this node: for clients who must have such a one"
	}
	if rest := e.RestingUntil.Sub(now); rest > 0 {
		es.Picked = false
		es.Why = fmt.Sprintf("rests for %v after %d failed dials", max(rest.Round(time.Second), time.Second), e.Failures)
		if e.Failures == 1 {
			es.Why = strings.TrimSuffix(es.Why, "s")
		}
		if e.OnTrial {
			es.Why = fmt.Sprintf("on trial after %d failed dials: a connection tries it", e.Failures)
		}
	}
	return es
}

func (s *servicePort) portalStatus(portal service.Portal) PortalStatus {
	st := PortalStatus{Kind: portal.Kind, Addr: portal.Addr, State: StateUnserved}
	if problem, ok := s.obstacle(portal); ok {
		st.Why, st.Advice = problem.Detail, problem.Advice
		return st
	}
	l := s.listeners[place{portal: portal.Addr}]
	local := l
	if l == nil {
		l, local = s.listeners[s.usual(portal.Kind)], s.listeners[place{local: true}]
	}
	if l == nil {
		st.Why = "it is not opened yet"
		return st
	}
	st.Listener, st.State = l.addr().String(), StateRefusing
	if l.isServing() {
		st.State = StateServing
	}
	if s.spec.PartsOutside(portal.Kind) {
		st.Outside = &OutsideStatus{State: StateDropping}
		if local != nil && len(s.spec.Local) > 0 {
			st.Outside = &OutsideStatus{Listener: local.addr().String(), State: StateServing}
		}
	}
	return st
}

// usual is where the listener stands to which rules lead a portal's traffic, but
// for what comes from outside alone.
func (s *servicePort) usual(k service.PortalKind) place {
	return place{local: s.spec.KeepsLocal(k, true)}
}

// obstacle is what keeps a portal from being served, if something does.
func (s *servicePort) obstacle(portal service.Portal) (service.Problem, bool) {
	if problem, ok := s.unserved[portal.Addr]; ok {
		return problem, true
	}
	for _, at := range []place{{portal: portal.Addr}, s.usual(portal.Kind)} {
		if problem, ok := s.unopened[at]; ok {
			return problem, true
		}
	}
	return service.Problem{}, false
}
