package proxy

import (
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
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
