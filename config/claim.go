package config

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// claim is what only one service port can have.
type claim struct {
	at       netip.AddrPort
	protocol service.Protocol
}

// owner is who has a claim, and by which field.
type owner struct {
	want     *want
	port     *wantPort
	kind     service.PortalKind
	field    fieldPath
	endpoint bool // not by a portal: one of its endpoints is there
}

// oldestFirst is the order in which Services claim addresses: by
// creationTimestamp, then by namespace and name. One without a timestamp comes
// from a file, so from whoever administers the node, and counts as the oldest:
// else anyone who may create a Service in the cluster could take its address.
func oldestFirst(a, b *want) int {
	return cmp.Or(
		a.svc.CreationTimestamp.Compare(b.svc.CreationTimestamp.Time),
		strings.Compare(a.name.Namespace, b.name.Namespace),
		strings.Compare(a.name.Name, b.name.Name),
	)
}

// claim gives a Service what no Service before it has: its cluster addresses
// and node ports, then the places where its endpoints are, then its load
// balancer addresses and externalIPs.
//
// Endpoints claim, because a younger Service's node port or externalIP at their
// address would come between them and everyone who knows them, and the endpoint
// would look like a loop: that is how one node port can cut off an API server.
// They come before the Service's own externalIPs, because pods on the host's
// network may well listen where the externalIPs say: no proxy is needed there.
func (r *resolver) claim(w *want) {
	for _, p := range w.ports {
		r.claimAddresses(w, p, true)
		r.claimNodePort(w, p)
	}
	for _, p := range w.ports {
		r.claimEndpoints(w, p)
	}
	for _, p := range w.ports {
		r.claimAddresses(w, p, false)
	}
}

// claimAddresses claims for a port the Service's cluster addresses, or its
// other ones.
func (r *resolver) claimAddresses(w *want, p *wantPort, cluster bool) {
	for _, a := range w.addresses {
		if (a.kind == service.ClusterIP) == cluster {
			r.take(netip.AddrPortFrom(a.addr, p.port), owner{want: w, port: p, kind: a.kind, field: a.field})
		}
	}
}

// claimNodePort claims for a port its node port, in the Service's families.
func (r *resolver) claimNodePort(w *want, p *wantPort) {
	if p.nodePort == 0 {
		return
	}
	o := owner{want: w, port: p, kind: service.NodePort, field: portField(p.index, "nodePort")}
	for _, a := range r.nodePorts {
		if slices.Contains(w.families, service.FamilyOf(a)) {
			r.take(netip.AddrPortFrom(a, p.nodePort), o)
		}
	}
}

// claimEndpoints claims for a port the places where its endpoints are, as far
// as anybody could dispute them.
func (r *resolver) claimEndpoints(w *want, p *wantPort) {
	for i := range p.candidates {
		c := &p.candidates[i]
		if c.refused != "" || !r.external[c.addr] {
			continue
		}
		cl := claim{c.Addr, p.name.Protocol}
		if _, taken := r.claims[cl]; !taken {
			r.claims[cl] = owner{want: w, port: p, endpoint: true}
		}
	}
}

// take makes an address a portal of a port, unless somebody else has it.
func (r *resolver) take(at netip.AddrPort, by owner) {
	if r.listens(at) {
		r.reportService(by.want, by.field, ReasonRefusedAddress,
			fmt.Sprintf("%s is among the proxy's own listening ports (%s)", at, r.node.PortRange),
			"choose a port outside --proxy-port-range")
		return
	}
	c := claim{at, by.port.name.Protocol}
	has, taken := r.claims[c]
	switch {
	case !taken, has.endpoint && by.kind == service.ClusterIP: // nothing but Services is in the range of cluster addresses
		r.claims[c] = by
		by.port.portals = append(by.port.portals, service.Portal{Kind: by.kind, Addr: at})
	case has.port == by.port && !has.endpoint:
		// One address by two fields, as where an externalIP is the load balancer's.
	default:
		r.reportConflict(c, by, has)
	}
}

// reportConflict says who has what a port cannot get.
func (r *resolver) reportConflict(c claim, loser, has owner) {
	number := fmt.Sprintf("%d/%s", c.at.Port(), c.protocol)
	if has.want == loser.want && has.endpoint {
		r.reportService(loser.want, loser.field, ReasonPortalIsEndpoint,
			fmt.Sprintf("at %s/%s listens an endpoint of the Service itself, so what is sent there goes to it, past the proxy", c.at, c.protocol),
			"remove the address, or choose another port, if all endpoints are to be picked there")
		return
	}
	if has.want == loser.want {
		field, what := portField(loser.port.index, "port"), "port "
		if loser.kind == service.NodePort {
			field, what = portField(loser.port.index, "nodePort"), "node port "
		}
		r.reportService(loser.want, field, ReasonDuplicatePort,
			fmt.Sprintf("%s%s is that of spec.ports[%d] too, which is served", what, number, has.port.index),
			"give each port a number of its own")
		return
	}
	what := fmt.Sprintf("%s/%s", c.at, c.protocol)
	if has.kind == service.NodePort && loser.kind == service.NodePort {
		what = "node port " + number // one problem, on however many addresses the port is
	}
	detail := fmt.Sprintf("%s belongs to %s (%s), which is older or comes first by name", what, serviceObject(has.want.name), has.field)
	if has.endpoint {
		detail = fmt.Sprintf("at %s listens an endpoint of %s, which is older or comes first by name", what, serviceObject(has.want.name))
	}
	r.reportService(loser.want, loser.field, ReasonAddressConflict, detail, "choose another address or port, or remove one of the two Services")
}
