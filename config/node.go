package config

import (
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Node is what Resolve must know of the machine that it resolves for and of
// the flags that the proxy runs with. It is read only.
type Node struct {
	Name    string                        // as endpoints name their node
	Zone    string                        // label topology.kubernetes.io/zone of its Node; empty where nobody said
	Primary map[service.Family]netip.Addr // the node's own address in each family; a family that is absent is not served
	Local   []netip.Addr                  // every address of the node; loopback need not be listed

	LocalPods        service.LocalPods // how the traffic of pods on this node is told from others'
	LocalPodsUnknown string            // why it cannot be told as was asked for; empty where it can

	NodePortAddresses []netip.Addr // where node ports are served, as --nodeport-addresses chose

	ListenAddrs []netip.Addr      // where the proxy's own listeners are; unspecified stands for Local
	PortRange   service.PortRange // which ports they take; zero where they take none, as with --redirect=none

	NoRedirect        bool            // --redirect=none: the proxy listens on the portals themselves, so loopback ones may be served
	AllowExternalIPs  bool            // --allow-external-ips
	AllowLoopbackFrom map[string]bool // sources whose portals and endpoints may be loopback addresses
}

// has says whether the node can serve a family and reach endpoints in it.
func (n Node) has(f service.Family) bool { return n.Primary[f].IsValid() }

// object is the node as problems name it.
func (n Node) object() string {
	if n.Name == "" {
		return "Node"
	}
	return "Node " + n.Name
}
