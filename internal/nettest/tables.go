package nettest

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// Redirect reads a redirect as short as a table wants it: "TCP 10.96.0.10:80",
// an action, and where there is one, a listener's address.
func Redirect(name, portal string, action service.Action, listener ...string) service.Redirect {
	proto, addr, _ := strings.Cut(portal, " ")
	r := service.Redirect{
		Portal:   netip.MustParseAddrPort(addr),
		Protocol: service.Protocol(proto),
		Action:   action,
		Service:  service.PortName{Namespace: "default", Name: name, Port: "main", Protocol: service.Protocol(proto)},
	}
	if len(listener) > 0 {
		r.Listener = netip.MustParseAddrPort(listener[0])
	}
	return r
}

// Mixed has each action in each family, on loopback addresses too.
func Mixed() []service.Redirect {
	return []service.Redirect{
		Redirect("web", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10000"),
		Redirect("web", "TCP [fd96::10]:80", service.ToListener, "[fd77::1]:10001"),
		Redirect("web", "TCP 10.10.2.1:30080", service.ToListener, "169.254.77.1:10000"),
		Redirect("web", "TCP 127.0.0.1:30080", service.ToListener, "169.254.77.1:10000"),
		Redirect("web", "TCP [::1]:30080", service.ToListener, "[fd77::1]:10001"),
		Redirect("dns", "UDP 10.96.0.10:53", service.ToListener, "169.254.77.1:10002"),
		Redirect("dns", "TCP 10.96.0.10:53", service.ToListener, "169.254.77.1:10002"),
		Redirect("none", "TCP 10.96.0.11:80", service.Refuse),
		Redirect("none", "UDP [fd96::11]:80", service.Refuse),
		Redirect("none", "TCP 127.0.0.1:30081", service.Refuse),
		Redirect("away", "TCP 192.0.2.1:443", service.Drop),
		Redirect("away", "TCP [2001:db8::1]:443", service.Drop),
	}
}

// Ask is what a table says of packets to one address over both protocols.
type Ask struct {
	From []string
	Dst  string
	Mark uint32
	Want string
}

// Parts are those of a family's addresses in the tables, which are alike.
type Parts struct {
	Family                          service.Family
	Listen, Node, Loopback, Portals string // the last lacks its end
}

// BothFamilies are the parts of both.
func BothFamilies() []Parts {
	return []Parts{
		{service.IPv4, "169.254.77.1", "10.10.2.1", "127.0.0.1", "10.96.0."},
		{service.IPv6, "[fd77::1]", "[fd10:2::1]", "[::1]", "[fd96::"},
	}
}

// Portal is an address of a Service: its end and port.
func (p Parts) Portal(end, port int) string {
	if p.Family == service.IPv6 {
		return fmt.Sprintf("%s%d]:%d", p.Portals, end, port)
	}
	return fmt.Sprintf("%s%d:%d", p.Portals, end, port)
}

// Redirects lead to a listener at 10000, refuse and drop, on addresses of every kind.
func (p Parts) Redirects() []service.Redirect {
	var all []service.Redirect
	for _, proto := range []string{"TCP ", "UDP "} {
		all = append(all,
			Redirect("web", proto+p.Portal(10, 80), service.ToListener, p.Listen+":10000"),
			Redirect("none", proto+p.Portal(11, 80), service.Refuse),
			Redirect("away", proto+p.Portal(12, 80), service.Drop),
			Redirect("web", proto+p.Node+":30080", service.ToListener, p.Listen+":10000"),
			Redirect("none", proto+p.Node+":30081", service.Refuse),
			Redirect("web", proto+p.Loopback+":30080", service.ToListener, p.Listen+":10000"),
			Redirect("none", proto+p.Loopback+":30081", service.Refuse),
			Redirect("away", proto+p.Loopback+":30082", service.Drop),
		)
	}
	return all
}

// Asks are what must become of packets where these redirects are in force.
func (p Parts) Asks() []Ask {
	everyone, node := []string{"client", "pod", "node"}, []string{"node"}
	const own = 0x4000000
	toListener := "listener " + p.Listen + ":10000"
	return []Ask{
		{everyone, p.Portal(10, 80), 0, toListener},
		{everyone, p.Portal(11, 80), 0, Refused},
		{everyone, p.Portal(12, 80), 0, Dropped},
		{everyone, p.Portal(10, 81), 0, Passes},
		{everyone, p.Node + ":30080", 0, toListener},
		{everyone, p.Node + ":30081", 0, Refused},
		{everyone, p.Node + ":22", 0, Passes},
		{node, p.Loopback + ":30080", 0, toListener},
		{node, p.Loopback + ":30081", 0, Refused},
		{node, p.Loopback + ":30082", 0, Dropped},
		{node, p.Loopback + ":22", 0, Passes},

		// Listeners answer nobody who comes past a portal, but their address
		// is an address like others outside their range.
		{everyone, p.Listen + ":10000", 0, Refused},
		{everyone, p.Listen + ":10001", 0, Refused},
		{everyone, p.Listen + ":9999", 0, Passes},
		{everyone, p.Listen + ":65534", 0, Passes},
		{everyone, p.Listen + ":65535", 0, Passes},
		{node, p.Listen + ":10000", own, Refused},

		// Own dials, whatever other bits they carry, go to endpoints.
		{node, p.Portal(10, 80), own, Passes},
		{node, p.Portal(11, 80), own | 1, Passes},
		{node, p.Portal(12, 80), own, Passes},
		{node, p.Portal(10, 80), 1, toListener},
		{node, p.Node + ":30080", own, Passes},
		{node, p.Node + ":30081", own, Passes},
		{node, p.Loopback + ":30080", own, Passes},
		{node, p.Loopback + ":30081", own, Passes},
	}
}

// SourceOf is the address that packets of a host of the bed come from.
func SourceOf(from string, f service.Family) netip.Addr {
	addr := map[string]string{"client": "10.10.1.2", "pod": "10.10.3.2", "node": "10.10.2.1"}[from]
	if f == service.IPv6 {
		addr = map[string]string{"client": "fd10:1::2", "pod": "fd10:3::2", "node": "fd10:2::1"}[from]
	}
	return netip.MustParseAddr(addr)
}

// Source is the same, as a range of that address alone.
func (p Parts) Source(from string) netip.Prefix {
	a := SourceOf(from, p.Family)
	return netip.PrefixFrom(a, a.BitLen())
}

// LocalPods are the ways to tell the pod's traffic.
func LocalPods() map[string]service.LocalPods {
	return map[string]service.LocalPods{
		"ranges":     {Ranges: []netip.Prefix{netip.MustParsePrefix("10.10.3.0/24"), netip.MustParsePrefix("fd10:3::/64")}},
		"interface":  {Interface: NodeToPod},
		"interfaces": {Interface: "cali*"},
	}
}

// Scoped are redirects that depend on who sends: for Everyone to a listener at
// 10000, for Outside to one at 10001, denied for one of them, or with source
// ranges.
func (p Parts) Scoped() []service.Redirect {
	var all []service.Redirect
	from := func(hosts ...string) (s service.SourceRanges) {
		s.Limited = true
		for _, h := range hosts {
			s.Allowed = append(s.Allowed, p.Source(h))
		}
		s.Allowed = service.Disjoint(s.Allowed)
		return s
	}
	wide := from()
	wide.Allowed = service.Disjoint([]netip.Prefix{netip.PrefixFrom(p.Source("client").Addr(), p.Source("client").Bits()-8)})
	for _, proto := range []string{"TCP ", "UDP "} {
		add := func(portal string, scope service.Scope, sources service.SourceRanges, action service.Action) {
			r := Redirect("local", proto+portal, action)
			r.Scope, r.Sources = scope, sources
			if action == service.ToListener {
				port := map[service.Scope]string{service.Everyone: ":10000", service.Outside: ":10001"}[scope]
				r.Listener = netip.MustParseAddrPort(p.Listen + port)
			}
			all = append(all, r)
		}
		anyone := service.SourceRanges{}
		for _, portal := range []string{p.Portal(20, 80), p.Node + ":30090", p.Loopback + ":30090"} {
			add(portal, service.Everyone, anyone, service.ToListener)
			add(portal, service.Outside, anyone, service.ToListener)
		}
		add(p.Portal(21, 80), service.Everyone, anyone, service.ToListener)
		add(p.Portal(21, 80), service.Outside, anyone, service.Drop)
		add(p.Portal(22, 80), service.Everyone, anyone, service.ToListener)
		add(p.Portal(22, 80), service.Outside, anyone, service.Refuse)
		add(p.Portal(23, 80), service.Outside, anyone, service.ToListener)
		add(p.Portal(24, 80), service.Everyone, anyone, service.Refuse)
		add(p.Portal(24, 80), service.Outside, anyone, service.ToListener)
		add(p.Portal(25, 80), service.Everyone, anyone, service.Drop)
		add(p.Portal(25, 80), service.Outside, anyone, service.ToListener)
		add(p.Portal(26, 80), service.Everyone, wide, service.ToListener)
		add(p.Portal(27, 80), service.Everyone, from("node", "pod"), service.ToListener)
		add(p.Portal(28, 80), service.Everyone, from("client", "node"), service.ToListener)
		add(p.Portal(28, 80), service.Outside, from("client", "node"), service.ToListener)
		add(p.Portal(29, 80), service.Everyone, from(), service.ToListener)
	}
	return all
}

// ScopedAsks are what must become of packets where these redirects are in force.
// Where pods cannot be told, theirs are others'.
func (p Parts) ScopedAsks(podsKnown bool) []Ask {
	const own = 0x4000000
	toAll, toOutside := "listener "+p.Listen+":10000", "listener "+p.Listen+":10001"
	var asks []Ask
	add := func(dst, client, inside string) {
		asks = append(asks, Ask{[]string{"client"}, dst, 0, client}, Ask{[]string{"node"}, dst, 0, inside})
		if !podsKnown {
			inside = client
		}
		asks = append(asks, Ask{[]string{"pod"}, dst, 0, inside})
	}
	add(p.Portal(20, 80), toOutside, toAll)
	add(p.Node+":30090", toOutside, toAll)
	add(p.Portal(21, 80), Dropped, toAll)
	add(p.Portal(22, 80), Refused, toAll)
	add(p.Portal(23, 80), toOutside, Passes)
	add(p.Portal(24, 80), toOutside, Refused)
	add(p.Portal(25, 80), toOutside, Dropped)
	return slices.Concat(asks, []Ask{
		{[]string{"client"}, p.Portal(26, 80), 0, toAll},
		{[]string{"pod", "node"}, p.Portal(26, 80), 0, Dropped},
		{[]string{"client"}, p.Portal(27, 80), 0, Dropped},
		{[]string{"pod", "node"}, p.Portal(27, 80), 0, toAll},
		{[]string{"client"}, p.Portal(28, 80), 0, toOutside},
		{[]string{"node"}, p.Portal(28, 80), 0, toAll},
		{[]string{"pod"}, p.Portal(28, 80), 0, Dropped},
		{[]string{"client", "pod", "node"}, p.Portal(29, 80), 0, Dropped},
		{[]string{"node"}, p.Loopback + ":30090", 0, toAll},
		{[]string{"node"}, p.Portal(21, 80), own, Passes},
		{[]string{"node"}, p.Portal(29, 80), own, Passes},
	})
}
