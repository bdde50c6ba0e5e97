package transparent

import "net/netip"

// Way is how packets to an address leave this node.
type Way struct {
	Here     bool   // they do not: it is this node's own
	Attached bool   // there is no router between, and the link is not the node's uplink
	Link     string // the name of the interface
}

// Dial is a connection to be made for a client.
type Dial struct {
	Client, Endpoint netip.Addr
	// Pod says that the client is one of this node's pods, as far as its address or
	// interface tell.
	Pod bool
	// Local says that the endpoint is on this node, as whoever listed it has said.
	Local bool
	// ToClient and ToEndpoint are the ways there.
	ToClient, ToEndpoint Way
	// Bridged says that replies are led to this node where client and endpoint are
	// ports of one bridge.
	Bridged bool
}

// ShowsClient says whether the dial may be made from the client's address: whether
// the endpoint's replies, which go there, certainly come by this node. All others
// are made from the node's own, which is what kube-proxy masquerades.
//
// An endpoint that is behind an interface of this node answers by way of it,
// whoever the client is. One elsewhere does so only where the client is a pod that
// is behind an interface of this node.
func (d Dial) ShowsClient() bool {
	switch {
	case !d.Client.IsValid() || d.Client.Is4() != d.Endpoint.Is4():
		return false
	case d.Client == d.Endpoint: // a host drops what seems to come from itself
		return false
	case d.Client.IsLoopback(), d.Client.IsLinkLocalUnicast(), d.ToClient.Here: // the node itself
		return false
	case d.ToEndpoint.Here: // it would answer the client without a look at any rule
		return false
	case d.ToClient.Attached && d.ToEndpoint.Attached && d.ToClient.Link == d.ToEndpoint.Link && !d.Bridged:
		return false // by a bridge they answer each other past this node
	}
	return d.Local && d.ToEndpoint.Attached || d.Pod && d.ToClient.Attached
}
