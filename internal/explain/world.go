package explain

import (
	"net/netip"
	"slices"
	"time"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// World is what an answer is made of.
type World struct {
	Live     bool // it is a running proxy's
	Now      time.Time
	Redirect string // nftables, iptables or none
	Node     config.Node
	Ports    []service.Port // all that is to be served
	Complete bool           // every source has said what there is
	Problems []service.Problem

	// Prospect is what a client's next connection to a portal would meet; false
	// where no portal has that address.
	Prospect func(service.Protocol, netip.AddrPort, netip.Addr) (proxy.Prospect, bool)
	// Hits is how many connections and flows the portal's rule has led to its
	// listener, and since when; false where nobody has counted.
	Hits func(service.Protocol, netip.AddrPort) (uint64, bool)
	// ShowsClient says whether an endpoint is connected to from the client's own
	// address; nil: none is.
	ShowsClient func(client, endpoint netip.Addr) bool
}

// hasRules says whether packets are led by rules.
func (w World) hasRules() bool { return !w.Node.NoRedirect }

// isInside says whether an address is that of this node or of a pod on it.
func (w World) isInside(a netip.Addr) bool {
	return a.IsValid() && (w.isLocal(a) || w.Node.LocalPods.Contains(a))
}

// isLocal says whether an address is this node's.
func (w World) isLocal(a netip.Addr) bool {
	return a.IsLoopback() || slices.Contains(w.Node.Local, a) || slices.Contains(w.Node.ListenAddrs, a)
}

// FromFile is a Prospect for what files say, before anybody has connected:
// statusOf says where the listeners of a portal would stand.
func (w World) FromFile(statusOf func(service.Port, service.Portal) proxy.PortalStatus) func(service.Protocol, netip.AddrPort, netip.Addr) (proxy.Prospect, bool) {
	return func(protocol service.Protocol, to netip.AddrPort, from netip.Addr) (proxy.Prospect, bool) {
		for _, port := range w.Ports {
			for _, portal := range port.Portals {
				if port.Protocol != protocol || portal.Addr != to {
					continue
				}
				group := loadbalancer.NewGroup(time.Now)
				group.UpdateSets(port.Endpoints, port.Local, port.Affinity)
				p := proxy.NewProspect(port, statusOf(port, portal), from, w.isInside(from), group)
				p.Timings = proxy.DefaultTimings()
				return p, true
			}
		}
		return proxy.Prospect{}, false
	}
}
