package proxy

import (
	"net/netip"
	"sync/atomic"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// balancer picks the endpoint for a client: *loadbalancer.Group. It is safe
// for concurrent use and never blocks on the network.
type balancer interface {
	// Pick is an endpoint that was not tried yet; false if there is none.
	Pick(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, bool)
	// PickWhy is Pick, and says why it is this endpoint.
	PickWhy(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, loadbalancer.Why, bool)
	// Succeeded and Failed tell how using it went.
	Succeeded(client netip.Addr, endpoint netip.AddrPort)
	Failed(endpoint netip.AddrPort)
}

// gate does at a listener that stands on a portal what rules do otherwise: it
// says who may come, and who must stay on this node. It is a balancer that picks
// for each client from the endpoints that the client may have.
type gate struct {
	*loadbalancer.Group
	isInside func(netip.Addr) bool // whether a client is this node or a pod on it
	portal   atomic.Pointer[gatePortal]
}

// gatePortal is what a gate knows of its portal.
type gatePortal struct {
	kind service.PortalKind
	port service.Port
}

// Pick is part of balancer.
func (g *gate) Pick(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, bool) {
	if g.keepsLocal(client) {
		return g.Local().Pick(client, tried)
	}
	return g.Group.Pick(client, tried)
}

// PickWhy is part of balancer.
func (g *gate) PickWhy(client netip.Addr, tried []netip.AddrPort) (netip.AddrPort, loadbalancer.Why, bool) {
	if g.keepsLocal(client) {
		return g.Local().PickWhy(client, tried)
	}
	return g.Group.PickWhy(client, tried)
}

// keepsLocal says whether a client must have a local endpoint.
func (g *gate) keepsLocal(client netip.Addr) bool {
	p := g.portal.Load()
	return p.port.IsLocal(p.kind) && p.port.KeepsLocal(p.kind, g.isInside(client))
}

// bars says whether a client may not come at all.
func (g *gate) bars(client netip.Addr) bool {
	p := g.portal.Load()
	return !p.port.SourcesOf(p.kind).Admits(client)
}

// bars says whether a balancer is a gate that keeps a client out.
func bars(b balancer, client netip.Addr) bool {
	g, is := b.(*gate)
	return is && g.bars(client)
}
