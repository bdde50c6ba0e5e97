package service

import "net/netip"

// UsesAll says whether some of the port's traffic may go to all Endpoints: that
// of its cluster addresses, unless internalTrafficPolicy is Local, and what pods
// and the node itself send to the other addresses.
func (p Port) UsesAll() bool {
	for _, portal := range p.Portals {
		if portal.Kind.IsExternal() || !p.InternalLocal {
			return true
		}
	}
	return false
}

// UsesLocal says whether some of the port's traffic must stay on this node.
func (p Port) UsesLocal() bool {
	for _, portal := range p.Portals {
		if p.IsLocal(portal.Kind) {
			return true
		}
	}
	return false
}

// IsLocal says whether traffic to portals of a kind must stay on this node,
// where it comes from outside of it.
func (p Port) IsLocal(k PortalKind) bool {
	if k.IsExternal() {
		return p.ExternalLocal
	}
	return p.InternalLocal
}

// KeepsLocal says whether a client must have an endpoint of this node: one who is
// inside, this node or a pod on it, need not at external addresses.
func (p Port) KeepsLocal(k PortalKind, inside bool) bool {
	return p.IsLocal(k) && (!k.IsExternal() || !inside)
}

// IsExternal says whether a kind's portals are for clients outside of the
// cluster: externalTrafficPolicy speaks of them.
func (k PortalKind) IsExternal() bool { return k != ClusterIP }

// PartsOutside says whether what comes to portals of a kind from outside goes
// another way than what comes from inside.
func (p Port) PartsOutside(k PortalKind) bool {
	return k.IsExternal() && p.ExternalLocal && len(p.Endpoints)+len(p.Local) > 0
}

// SourcesOf says who may come to portals of a kind.
func (p Port) SourcesOf(k PortalKind) SourceRanges {
	if k == LoadBalancer {
		return p.Sources
	}
	return SourceRanges{}
}

// Redirects lead the traffic of one of the port's portals to its two listeners:
// that which picks from Endpoints, and that which picks from Local. Of a listener
// that is not valid, because there is none, what it should have is dropped where
// it must stay on this node, and otherwise not led at all.
//
// What pods and the node itself send to an external address is as good as
// internal, and goes to all endpoints, whatever internalTrafficPolicy says. What
// comes to it from outside and finds no endpoint here is dropped, so that the
// client, or the load balancer before it, tries another node; but where there is
// none on any node, everyone is refused.
func (p Port) Redirects(portal Portal, all, local netip.AddrPort) []Redirect {
	to := func(scope Scope, listener netip.AddrPort) Redirect {
		return Redirect{
			Portal: portal.Addr, Protocol: p.Protocol, Scope: scope, Action: ToListener, Listener: listener,
			Service: p.PortName, Sources: p.SourcesOf(portal.Kind),
		}
	}
	everyone := all
	if !portal.Kind.IsExternal() && p.InternalLocal {
		everyone = local
	}
	var redirects []Redirect
	if everyone.IsValid() {
		redirects = append(redirects, to(Everyone, everyone))
	}
	if p.PartsOutside(portal.Kind) {
		r := to(Outside, local)
		if len(p.Local) == 0 || !local.IsValid() {
			r.Action, r.Listener = Drop, netip.AddrPort{}
		}
		redirects = append(redirects, r)
	}
	return redirects
}
