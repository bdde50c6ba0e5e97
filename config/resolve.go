package config

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Resolution is everything that must be served, and what stands in the way.
type Resolution struct {
	Ports    []service.Port    // sorted by Key; no two have a portal in common
	Problems []service.Problem // sorted; those of the snapshot among them
	Checks   []HealthCheck     // for load balancers, those of the oldest Service first
	Complete bool              // as in Snapshot: until then nothing may be removed
}

// Resolve says what a node must serve if the Services of a snapshot are all
// there are. It is pure: equal arguments give equal results, whatever the order
// of the snapshot's lists, and nothing is kept from one call to the next.
//
// An object that is wrong in part is served in the other parts, and the part is
// a problem; nothing in an object makes Resolve fail.
func Resolve(s Snapshot, n Node) Resolution {
	r := newResolver(n)
	r.claims = make(map[claim]owner, 2*len(s.Services))
	r.problems = slices.Clone(s.Problems)

	wants := r.readServices(s.Services)
	r.readEndpoints(wants, s.Endpoints)

	slices.SortFunc(wants, oldestFirst)
	for _, w := range wants {
		r.claim(w)
	}
	ports := make([]service.Port, 0, len(wants))
	var checks []HealthCheck
	for _, w := range wants {
		ports = r.serve(ports, w)
		if check, ok := r.healthCheck(w); ok {
			checks = append(checks, check)
		}
	}
	slices.SortFunc(ports, func(a, b service.Port) int { return a.Compare(b.Key) })

	r.reportMissingFamilies()
	r.reportLocalPods(ports)
	slices.SortFunc(r.problems, compareProblems)
	return Resolution{Ports: ports, Problems: slices.Compact(r.problems), Checks: checks, Complete: s.Complete}
}

// resolver is what one call of Resolve knows while it runs.
type resolver struct {
	node      Node
	listen    map[netip.Addr]bool // addresses on which the proxy listens on ports of its range
	nodePorts []netip.Addr        // those of Node.NodePortAddresses that can be served
	external  map[netip.Addr]bool // addresses at which Services ask for portals that are no cluster addresses
	claims    map[claim]owner
	missing   map[service.Family]bool // families that Services use and the node lacks
	problems  []service.Problem
}

func newResolver(n Node) *resolver {
	r := &resolver{
		node:     n,
		listen:   map[netip.Addr]bool{},
		external: map[netip.Addr]bool{},
		missing:  map[service.Family]bool{},
	}
	for _, a := range n.ListenAddrs {
		r.listen[a.Unmap()] = true
		if !a.IsUnspecified() {
			continue
		}
		for _, l := range n.Local {
			if service.FamilyOf(l) == service.FamilyOf(a) {
				r.listen[l.Unmap()] = true
			}
		}
	}
	for _, a := range n.NodePortAddresses {
		a = a.Unmap()
		// A node may well have nothing but link-local IPv4 addresses, so unfit would ask too much.
		if a.IsValid() && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && n.has(service.FamilyOf(a)) {
			r.nodePorts = append(r.nodePorts, a)
			r.external[a] = true
		}
	}
	return r
}

// listens says whether an address and port is one at which the proxy's own
// listeners are or may come to be.
func (r *resolver) listens(at netip.AddrPort) bool {
	return r.node.PortRange.Contains(at.Port()) && r.listen[at.Addr()]
}

// serve appends the ports of one Service, each in the families that it has here.
func (r *resolver) serve(ports []service.Port, w *want) []service.Port {
	for _, p := range w.ports {
		r.refuse(p)
		for _, f := range service.Families() {
			portals := portalsOf(p, f)
			if !r.node.has(f) || len(portals) == 0 && !slices.Contains(w.families, f) {
				continue
			}
			port := service.Port{
				Key:      service.Key{PortName: p.name, Family: f},
				Source:   w.svc.Source,
				Portals:  portals,
				Affinity: w.affinity,

				InternalLocal: w.internalLocal,
				ExternalLocal: w.externalLocal,
				Sources:       w.sources[f],

				MaxConnections: w.maxConnections,
			}
			r.pick(&port, candidatesFor(w, p, f))
			ports = append(ports, port)
		}
	}
	return ports
}

// portalsOf is a port's portals in one family, in the order of service.Port.
func portalsOf(p *wantPort, f service.Family) []service.Portal {
	var portals []service.Portal
	for _, portal := range p.portals {
		if service.FamilyOf(portal.Addr.Addr()) == f {
			portals = append(portals, portal)
		}
	}
	slices.SortFunc(portals, func(a, b service.Portal) int {
		return cmp.Or(strings.Compare(string(a.Kind), string(b.Kind)), a.Addr.Compare(b.Addr))
	})
	return portals
}

// reportMissingFamilies says once for the node, not once for each Service, that
// a family is not served.
func (r *resolver) reportMissingFamilies() {
	for f := range r.missing {
		advice := "give the node an address of that family; without one nothing is lost but that family"
		if len(r.node.Primary) == 0 {
			advice = "give an interface of the node an address: it has none of either family, so no Service is served"
		}
		r.report(service.Problem{
			Object: r.node.object(),
			Reason: ReasonFamilyMissing,
			Detail: "this node has no " + string(f) + " address, so the " + string(f) + " addresses of Services are not served on it",
			Advice: advice,
		})
	}
}

// reportLocalPods says, where a Service depends on it, that traffic of this
// node's pods cannot be told from others'.
func (r *resolver) reportLocalPods(ports []service.Port) {
	asks := func(p service.Port) bool { return p.ExternalLocal && p.UsesAll() && p.UsesLocal() }
	if r.node.LocalPodsUnknown == "" || !slices.ContainsFunc(ports, asks) {
		return
	}
	r.report(service.Problem{
		Object: r.node.object(), Reason: ReasonLocalPodsUnknown,
		Detail: r.node.LocalPodsUnknown + ": what pods on this node send to external addresses of Services with externalTrafficPolicy Local counts as coming from outside",
		Advice: "give the Node a podCIDR, or choose another --detect-local-mode",
	})
}

func (r *resolver) report(p service.Problem) { r.problems = append(r.problems, p) }

// reportService reports a problem in a field of a Service.
func (r *resolver) reportService(w *want, f fieldPath, reason, detail, advice string) {
	r.report(service.Problem{
		Object: serviceObject(w.name), Field: f.String(), Reason: reason, Detail: detail, Advice: advice,
		Service: service.ServiceRef{Source: w.svc.Source, Namespace: w.name.Namespace, Name: w.name.Name},
	})
}

// serviceObject is a Service as problems name it.
func serviceObject(name types.NamespacedName) string { return "Service " + name.String() }

// compareProblems is service.Problem.Compare with ties broken, so that equal
// problems lie beside each other and the order is always the same.
func compareProblems(a, b service.Problem) int {
	return cmp.Or(a.Compare(b), strings.Compare(a.Advice, b.Advice))
}
