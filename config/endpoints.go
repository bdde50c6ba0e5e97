package config

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// backends are addresses that share their ports: those of a slice, or of one
// list in a subset of a v1.Endpoints.
type backends struct {
	object string    // as problems name it
	field  fieldPath // of an address, but for the index
	list   []backend
	ports  []targetPort
}

type backend struct {
	addr                        netip.Addr
	index                       int
	node, pod                   string
	ready, serving, terminating bool
	hints                       *discoveryv1.EndpointHints
	refused                     string // why it is never picked; empty where it may be
}

type targetPort struct {
	name     string
	protocol service.Protocol // one that is not served matches no port
	port     uint16           // 0: ignored
}

// candidate is a backend as an endpoint of one service port.
type candidate struct {
	service.Endpoint
	*backend
	refused string // as backend.refused, and for reasons that concern the port
	of      *backends
}

// readEndpoints finds the candidates of every port.
func (r *resolver) readEndpoints(wants []*want, list []Endpoints) {
	byName := make(map[types.NamespacedName]*Endpoints, len(list))
	for i := range list {
		byName[types.NamespacedName{Namespace: list[i].Namespace, Name: list[i].Name}] = &list[i]
	}
	for _, w := range wants {
		e := byName[w.name]
		if e == nil {
			continue
		}
		groups := r.readBackends(e)
		w.speaks = familiesOf(groups)
		for _, p := range w.ports {
			r.match(w, p, groups)
		}
	}
}

// readBackends reads what is known of a Service's endpoints: v1.Endpoints
// count only where no slice speaks of the Service.
func (r *resolver) readBackends(e *Endpoints) []*backends {
	var groups []*backends
	for _, s := range e.Slices {
		if s == nil {
			continue
		}
		if _, headless := s.Labels[corev1.IsHeadlessService]; headless {
			continue
		}
		if g := r.readSlice(s, e.Source); g != nil {
			groups = append(groups, g)
		}
	}
	if len(e.Slices) == 0 && e.Endpoints != nil {
		for i := range e.Endpoints.Subsets {
			groups = append(groups, r.readSubset(e, i)...)
		}
	}
	return groups
}

// readSlice reads an EndpointSlice; nil where its addresses are none.
func (r *resolver) readSlice(s *discoveryv1.EndpointSlice, source string) *backends {
	g := &backends{
		object: "EndpointSlice " + s.Namespace + "/" + s.Name,
		field:  fieldPath{before: "endpoints", after: ".addresses[0]"},
	}
	if s.AddressType != discoveryv1.AddressTypeIPv4 && s.AddressType != discoveryv1.AddressTypeIPv6 {
		r.report(service.Problem{
			Object: g.object, Field: "addressType", Reason: ReasonUnsupportedAddressType,
			Detail: fmt.Sprintf("%q: the slice is ignored", s.AddressType), Advice: "list IPv4 or IPv6 addresses",
		})
		return nil
	}
	g.list = make([]backend, 0, len(s.Endpoints))
	for i := range s.Endpoints {
		ep := &s.Endpoints[i]
		address := ""
		if len(ep.Addresses) > 0 {
			address = ep.Addresses[0]
		}
		b := backend{
			index:       i,
			node:        deref(ep.NodeName, ""),
			pod:         podOf(ep.TargetRef),
			ready:       deref(ep.Conditions.Ready, true),
			serving:     deref(ep.Conditions.Serving, true),
			terminating: deref(ep.Conditions.Terminating, false),
			hints:       ep.Hints,
		}
		r.addBackend(g, b, address, service.Family(s.AddressType), source)
	}
	for i, p := range s.Ports {
		protocol := deref(p.Protocol, corev1.ProtocolTCP)
		r.addTargetPort(g, fieldPath{"ports", i, ".port"}, deref(p.Name, ""), protocol, deref(p.Port, 0))
	}
	return g
}

// readSubset reads one subset of a v1.Endpoints: what is ready, and what is not.
func (r *resolver) readSubset(e *Endpoints, subset int) []*backends {
	s := &e.Endpoints.Subsets[subset]
	before := fmt.Sprintf("subsets[%d].", subset)
	read := func(field string, list []corev1.EndpointAddress, ready bool) *backends {
		g := &backends{
			object: "Endpoints " + e.Endpoints.Namespace + "/" + e.Endpoints.Name,
			field:  fieldPath{before: before + field, after: ".ip"},
			list:   make([]backend, 0, len(list)),
		}
		for i := range list {
			a := &list[i]
			b := backend{index: i, node: deref(a.NodeName, ""), pod: podOf(a.TargetRef), ready: ready, serving: ready}
			r.addBackend(g, b, a.IP, "", e.Source)
		}
		for i, p := range s.Ports {
			r.addTargetPort(g, fieldPath{before + "ports", i, ".port"}, p.Name, p.Protocol, p.Port)
		}
		return g
	}
	return []*backends{read("addresses", s.Addresses, true), read("notReadyAddresses", s.NotReadyAddresses, false)}
}

// addBackend adds a backend, unless what it has is no address of the family
// that it must be of, if any. One that is refused is added as such.
func (r *resolver) addBackend(g *backends, b backend, address string, family service.Family, source string) {
	a, err := parseAddr(address)
	if err == nil && family != "" && service.FamilyOf(a) != family {
		err = fmt.Errorf("%q is not an %s address, as the slice says", address, family)
	}
	if err != nil {
		r.reportBackend(g, &b, ReasonInvalidAddress, err.Error()+"; the endpoint is ignored", "write the endpoint's IP address")
		return
	}
	b.addr = a
	if bad := unfit(a, r.node.AllowLoopbackFrom[source]); bad != "" {
		b.refused = bad + " address refused"
		advice := "give the endpoint an address at which other machines reach it"
		if bad == "loopback" {
			advice += "; for endpoints from files there is --allow-loopback-endpoints"
		}
		r.reportBackend(g, &b, ReasonRefusedEndpoint, fmt.Sprintf("%s: %s", a, b.refused), advice)
	}
	g.list = append(g.list, b)
}

func (r *resolver) addTargetPort(g *backends, field fieldPath, name string, protocol corev1.Protocol, number int32) {
	n, ok := portNumber(number)
	if !ok && number != 0 {
		r.report(service.Problem{
			Object: g.object, Field: field.String(), Reason: ReasonInvalidPort,
			Detail: fmt.Sprintf("%d is not a port number; the port is ignored", number), Advice: portAdvice,
		})
	}
	g.ports = append(g.ports, targetPort{name, service.Protocol(cmp.Or(protocol, corev1.ProtocolTCP)), n})
}

// reportBackend reports a problem of one address.
func (r *resolver) reportBackend(g *backends, b *backend, reason, detail, advice string) {
	f := g.field
	f.index = b.index
	r.report(service.Problem{Object: g.object, Field: f.String(), Reason: reason, Detail: detail, Advice: advice})
}

// familiesOf is the families in which backends are known.
func familiesOf(groups []*backends) []service.Family {
	var families []service.Family
	for _, g := range groups {
		for i := range g.list {
			if f := service.FamilyOf(g.list[i].addr); !slices.Contains(families, f) {
				families = append(families, f)
			}
		}
	}
	return families
}

// match finds the candidates of a port: the backends of every group that has a
// port of its name and protocol. The name must be the same, strictly; a number
// is never guessed.
func (r *resolver) match(w *want, p *wantPort, groups []*backends) {
	matched := false
	for _, g := range groups {
		for _, t := range g.ports {
			if t.name != p.name.Port || t.protocol != p.name.Protocol {
				continue
			}
			matched = true
			if t.port == 0 {
				continue
			}
			p.candidates = slices.Grow(p.candidates, len(g.list))
			for i := range g.list {
				b := &g.list[i]
				at := netip.AddrPortFrom(b.addr, t.port)
				p.candidates = append(p.candidates, candidate{service.Endpoint{Addr: at, Node: b.node, Pod: b.pod}, b, b.refused, g})
			}
		}
	}
	if !matched {
		r.reportUnmatched(w, p, groups)
	}
	slices.SortFunc(p.candidates, compareCandidates)
	p.candidates = slices.CompactFunc(p.candidates, func(a, b candidate) bool { return a.Addr == b.Addr })
}

// reportUnmatched says that there are endpoints, but none for a port.
func (r *resolver) reportUnmatched(w *want, p *wantPort, groups []*backends) {
	names := map[string]bool{}
	for _, g := range groups {
		for _, t := range g.ports {
			if len(g.list) > 0 {
				names[fmt.Sprintf("%q/%s", t.name, t.protocol)] = true
			}
		}
	}
	if len(names) > 0 {
		r.reportService(w, portField(p.index, "name"), ReasonPortNameMismatch,
			fmt.Sprintf("no endpoint has a port %q/%s; there are %s", p.name.Port, p.name.Protocol,
				strings.Join(slices.Sorted(maps.Keys(names)), ", ")),
			"give the port of the Service and that of its endpoints the same name and protocol")
	}
}

// compareCandidates orders by address; of one address, what is to count comes
// first: a pod that is not terminating, for its ghost in another slice may be.
func compareCandidates(a, b candidate) int {
	return cmp.Or(
		a.Addr.Compare(b.Addr),
		trueFirst(!a.terminating, !b.terminating),
		trueFirst(a.ready, b.ready),
		trueFirst(a.serving, b.serving),
		strings.Compare(a.Node, b.Node),
		strings.Compare(a.Pod, b.Pod),
		strings.Compare(a.of.object, b.of.object),
		cmp.Compare(a.index, b.index),
	)
}

func trueFirst(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// refuse refuses the candidates of a port that lead back to the proxy, or
// nowhere from this node. Every portal must have been claimed.
func (r *resolver) refuse(p *wantPort) {
	for i := range p.candidates {
		c := &p.candidates[i]
		if c.refused != "" {
			continue
		}
		if f := service.FamilyOf(c.addr); !r.node.has(f) {
			c.refused = "this node has no " + string(f) + " address"
			continue
		}
		if r.listens(c.Addr) {
			c.refused = "one of the proxy's own listening ports, refused as a loop"
		} else if has, taken := r.claims[claim{c.Addr, p.name.Protocol}]; taken && !has.endpoint {
			c.refused = fmt.Sprintf("a portal of %s, refused as a loop", serviceObject(has.want.name))
		} else {
			continue
		}
		r.reportBackend(c.of, c.backend, ReasonEndpointLoop, fmt.Sprintf("%s/%s is %s", c.Addr, p.name.Protocol, c.refused),
			"list the endpoints behind it instead")
	}
}

// candidatesFor is the candidates of a port in one family: those of the family,
// or where the Service has no endpoint in it at all, those of the other.
func candidatesFor(w *want, p *wantPort, f service.Family) []candidate {
	if !slices.Contains(w.speaks, f) {
		f = other(f)
	}
	// They are sorted, so that those of IPv4 come first.
	v6 := slices.IndexFunc(p.candidates, func(c candidate) bool { return service.FamilyOf(c.addr) == service.IPv6 })
	if v6 < 0 {
		v6 = len(p.candidates)
	}
	if f == service.IPv4 {
		return p.candidates[:v6]
	}
	return p.candidates[v6:]
}

// pick parts candidates into those to pick from and the others: the ready
// ones, as far as hints leave them to this node, or where none is ready, those
// that serve while they terminate. Where a traffic policy asks for those on this
// node it does the same among them alone, hints aside.
func (r *resolver) pick(port *service.Port, list []candidate) {
	someReady := slices.ContainsFunc(list, candidate.usable)
	local := func(candidate) bool { return false }
	if port.InternalLocal || port.ExternalLocal {
		local = r.localOf(list)
	}
	meant := r.hinted(list)
	if len(list) > 0 {
		port.Endpoints = make([]service.Endpoint, 0, len(list))
	}
	for _, c := range list {
		why := c.refused
		switch {
		case why != "":
		case c.ready:
			why = meant(c)
		case c.lingers():
			if someReady {
				why = "terminating"
			}
		case c.terminating:
			why = "terminating and no longer serving"
		default:
			why = "not ready"
		}
		if why == "" {
			port.Endpoints = append(port.Endpoints, c.Endpoint)
		}
		here := local(c)
		if here {
			port.Local = append(port.Local, c.Endpoint)
		}
		if why != "" && !here {
			port.Unused = append(port.Unused, service.UnusedEndpoint{Endpoint: c.Endpoint, Why: why})
		}
	}
}

// localOf says which candidates on this node are to be picked where no others
// may be.
func (r *resolver) localOf(list []candidate) func(candidate) bool {
	here := func(c candidate) bool { return c.Node == r.node.Name && c.Node != "" }
	if slices.ContainsFunc(list, func(c candidate) bool { return here(c) && c.usable() }) {
		return func(c candidate) bool { return here(c) && c.usable() }
	}
	return func(c candidate) bool { return here(c) && c.lingers() }
}

// lingers says whether a candidate serves while it terminates.
func (c candidate) lingers() bool {
	return !c.ready && c.terminating && c.serving && c.refused == ""
}

// usable says whether a candidate is one to pick, hints aside.
func (c candidate) usable() bool { return c.ready && c.refused == "" }

// podOf is the name of the pod that an endpoint stands for, if it does.
func podOf(ref *corev1.ObjectReference) string {
	if ref == nil || ref.Kind != "Pod" {
		return ""
	}
	return ref.Name
}

func deref[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}
