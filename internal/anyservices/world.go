package anyservices

import (
	"net/netip"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// World is what a node of a Bed has to do for some Services.
type World struct {
	Pods      service.LocalPods
	Redirects []service.Redirect
	Frontends []Frontend

	listen map[service.Family]netip.Addr
}

// Frontend is one portal, and the listeners of its port.
type Frontend struct {
	service.Port
	service.Portal
	all, local netip.AddrPort
}

// New resolves n Services and gives their ports listeners, as far as there are
// ports for them.
func New(seed uint64, n int, listen map[service.Family]netip.Addr) World {
	node := config.Node{
		Name: "node-a", Primary: map[service.Family]netip.Addr{}, PortRange: service.PortRange{First: 10000, Last: 29999}, AllowExternalIPs: true,
		LocalPods: nettest.LocalPods()["ranges"],
	}
	for _, f := range service.Families() {
		a := nettest.SourceOf("node", f)
		node.Primary[f] = a
		node.Local, node.NodePortAddresses = append(node.Local, a), append(node.NodePortAddresses, a)
		node.ListenAddrs = append(node.ListenAddrs, listen[f])
	}
	w := World{Pods: node.LocalPods, listen: listen}
	type place struct {
		service.Family
		service.Protocol
	}
	used := make(map[place]uint16)
	for _, port := range config.Resolve(Snapshot(seed, n), node).Ports {
		at := place{port.Family, port.Protocol}
		next := func(needed bool) (listener netip.AddrPort) {
			if needed && used[at] < 20000 {
				listener = netip.AddrPortFrom(listen[port.Family], 10000+used[at])
				used[at]++
			}
			return listener
		}
		all, local := next(port.UsesAll()), next(port.UsesLocal())
		for _, portal := range port.Portals {
			w.Redirects = append(w.Redirects, port.Redirects(portal, all, local)...)
			w.Frontends = append(w.Frontends, Frontend{port, portal, all, local})
		}
	}
	return w
}

// Packet is one from a host of the bed to the frontend.
func (f Frontend) Packet(from string) nettest.Packet {
	return nettest.Packet{From: from, Proto: f.Protocol, Dst: f.Addr}
}

// Meets is what must become of it, by the semantics alone and not by what the
// redirects say.
func (f Frontend) Meets(from string) string {
	led := func(to netip.AddrPort) string {
		if !to.IsValid() {
			return nettest.Passes
		}
		return "listener " + to.String()
	}
	outside := from == "client"
	external := f.Kind != service.ClusterIP
	switch {
	case f.Kind == service.LoadBalancer && !f.Sources.Admits(nettest.SourceOf(from, f.Family)):
		return nettest.Dropped
	case !external && f.InternalLocal:
		return led(f.local)
	case !external, !outside, !f.ExternalLocal, len(f.Endpoints) == 0:
		return led(f.all)
	case len(f.Local) == 0 || !f.local.IsValid():
		return nettest.Dropped
	}
	return led(f.local)
}

// Listener is where a packet that meets one is led; false if it is none.
func Listener(meets string) (string, bool) {
	const word = "listener "
	if len(meets) < len(word) || meets[:len(word)] != word {
		return "", false
	}
	return meets[len(word):], true
}
