package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// policied is a Service on port 80 of both protocols, with a portal of each kind
// in each family. Its endpoint "here" is on the node that the proxy is on, and
// "there" is not.
type policied struct {
	object
	here, there map[service.Family]netip.Addr
}

const nodeHere = "nodeName: node-a"

func servePolicied(t *testing.T, bed *nettest.Bed, lead way) *policied {
	t.Helper()
	p := &policied{object: object{
		name: "web", clusterIPs: []string{"10.96.0.10", "fd96::10"}, externalIPs: []string{"10.96.0.20", "fd96::20"}, ingress: []string{"10.96.0.30", "fd96::30"},
		ports: []port{{"stream", service.TCP, 80, 30080}, {"datagram", service.UDP, 80, 30080}},
		about: make(map[netip.Addr]string),
	}, here: make(map[service.Family]netip.Addr), there: make(map[service.Family]netip.Addr)}
	for _, f := range service.Families() {
		p.here[f], p.there[f] = bed.Back.Addrs(f)[0], bed.Back.Addrs(f)[1]
		bed.Back.ServeBoth(t, "here", netip.AddrPortFrom(p.here[f], 8080).String())
		bed.Back.ServeBoth(t, "there", netip.AddrPortFrom(p.there[f], 8080).String())
		p.about[p.here[f]], p.about[p.there[f]] = nodeHere, "nodeName: node-b"
	}
	if lead.redirect == "none" {
		for _, a := range []string{"10.96.0.30", "fd96::30"} {
			bed.Node.Output(t, "ip", "addr", "add", a, "dev", "lo")
		}
	}
	return p
}

// with are its manifests with some endpoints and more in its spec.
func (p *policied) with(spec string, endpoints ...map[service.Family]netip.Addr) string {
	o := p.object
	o.spec = spec
	var all []string
	for _, e := range endpoints {
		for _, f := range service.Families() {
			all = append(all, netip.AddrPortFrom(e[f], 8080).String())
		}
	}
	o.endpoints = map[string][]string{"stream": all, "datagram": all}
	return manifest(o)
}

// portal is the address and port of a kind.
func (p *policied) portal(bed *nettest.Bed, k service.PortalKind, f service.Family) string {
	i := slices.Index(service.Families(), f)
	switch k {
	case service.ClusterIP:
		return net.JoinHostPort(p.clusterIPs[i], "80")
	case service.ExternalIP:
		return net.JoinHostPort(p.externalIPs[i], "80")
	case service.LoadBalancer:
		return net.JoinHostPort(p.ingress[i], "80")
	}
	return net.JoinHostPort(bed.Node.Addr(f).String(), "30080")
}

// meets is what must become of traffic to portals: the endpoints that answer, or
// "refused" or "dropped", by kind and sender.
type meets map[service.PortalKind]map[string]string

const both = "here there"

// external is what those outside and those inside meet at external portals.
func external(internal, outside, inside string) meets {
	all := map[string]string{"client": outside, "pod": inside, "node": inside}
	return meets{
		service.ClusterIP:  {"client": internal, "pod": internal, "node": internal},
		service.ExternalIP: all, service.LoadBalancer: all, service.NodePort: all,
	}
}

// differs says where traffic of families meets something else; empty where nowhere.
func (p *policied) differs(t *testing.T, bed *nettest.Bed, lead way, want meets, families ...service.Family) string {
	t.Helper()
	for _, k := range slices.Sorted(maps.Keys(want)) {
		for _, f := range families {
			for from, meets := range want[k] {
				for _, proto := range []string{"TCP ", "UDP "} {
					packet := nettest.Sent(from, proto+p.portal(bed, k, f))
					if got := p.met(t, bed, lead, packet, meets); got != meets {
						return fmt.Sprintf("%s %s by %s meets %q and not %q", k, packet, lead.name, got, meets)
					}
				}
			}
		}
	}
	return ""
}

// met is who answers, in four tries.
func (p *policied) met(t *testing.T, bed *nettest.Bed, lead way, packet nettest.Packet, expected string) string {
	answered := make(map[string]bool)
	tries := 4
	sent := expected
	if expected == nettest.Dropped || expected == nobody {
		tries, sent = 1, nettest.Dropped // which is not waited for for long
	}
	for range tries {
		got := bed.Send(t, packet, sent)
		// Without rules a connection is known only when it is accepted.
		if lead.redirect == "none" && packet.Proto == service.TCP && (strings.Contains(got, "reset by peer") || got == "EOF") {
			got = nettest.Dropped
		}
		answered[got] = true
	}
	got := strings.Join(slices.Sorted(maps.Keys(answered)), " ")
	switch {
	case expected == nobody && !answered["here"] && !answered["there"]:
		return nobody
	case expected == oneOf && (got == "here" || got == "there"):
		return oneOf
	}
	return got
}

// requireMeets waits until traffic meets what it should, and once more.
func (p *policied) requireMeets(t *testing.T, bed *nettest.Bed, lead way, want meets) {
	t.Helper()
	last := ""
	eventually(t, func() bool { last = p.differs(t, bed, lead, want, service.Families()...); return last == "" }, func() string { return "what policies ask for: " + last })
	require.Empty(t, p.differs(t, bed, lead, want, service.Families()...), "and again")
}

// detection are flags that tell the pod's traffic, another way for each kind.
func (w way) detection() []string {
	flags := []string{"--hostname-override=node-a", "--min-sync-period=10ms"}
	switch w.name {
	case "iptables-nft":
		return append(flags, "--detect-local-mode=BridgeInterface", "--pod-bridge-interface="+nettest.NodeToPod)
	case "iptables-legacy":
		return append(flags, "--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix=cali")
	}
	return append(flags, "--cluster-cidr=10.10.3.0/24,fd10:3::/64")
}

// TestSemantics_trafficPolicies: what comes from outside stays on this node where
// a policy asks for it, or is dropped; what comes from inside is not kept from
// external portals; internal traffic stays or is refused.
func TestSemantics_trafficPolicies(t *testing.T) {
	t.Parallel()
	const local, internal, outer = "internalTrafficPolicy: Local\nexternalTrafficPolicy: Local", "internalTrafficPolicy: Local", "externalTrafficPolicy: Local"
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p := servePolicied(t, bed, lead)
		run := lead.start(t, bed.Node, p.with(local, p.here, p.there), lead.detection()...)
		p.requireMeets(t, bed, lead, external("here", "here", both))

		run.write(t, p.with(local, p.there))
		p.requireMeets(t, bed, lead, external(nettest.Refused, nettest.Dropped, "there"))
		run.write(t, p.with(local, p.here))
		p.requireMeets(t, bed, lead, external("here", "here", "here"))

		for _, f := range service.Families() { // it terminates, and serves meanwhile
			p.about[p.here[f]] = nodeHere + "\nconditions: {ready: false, serving: true, terminating: true}"
		}
		run.write(t, p.with(local, p.here, p.there))
		p.requireMeets(t, bed, lead, external("here", "here", "there"))
		for _, f := range service.Families() {
			p.about[p.here[f]] = nodeHere
		}

		run.write(t, p.with(outer, p.here, p.there))
		p.requireMeets(t, bed, lead, external(both, "here", both))
		run.write(t, p.with(internal, p.here, p.there))
		p.requireMeets(t, bed, lead, external("here", both, both))
		run.write(t, p.with("", p.here, p.there))
		p.requireMeets(t, bed, lead, external(both, both, both))
		run.write(t, p.with(local))
		p.requireMeets(t, bed, lead, external(nettest.Refused, nettest.Refused, nettest.Refused))
		run.stop(t)
	})
}

// TestSemantics_loadBalancerSourceRanges: nobody else comes to load balancer
// addresses, and the other portals are for everyone.
func TestSemantics_loadBalancerSourceRanges(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p := servePolicied(t, bed, lead)
		only := func(who ...string) meets {
			m := external("here", "here", "here")
			m[service.LoadBalancer] = map[string]string{"client": nettest.Dropped, "pod": nettest.Dropped, "node": nettest.Dropped}
			for _, from := range who {
				m[service.LoadBalancer][from] = "here"
			}
			return m
		}
		ranges := func(list string) string { return p.with("loadBalancerSourceRanges: ["+list+"]", p.here) }
		run := lead.start(t, bed.Node, ranges(`10.10.1.0/24, " fd10:1::/64 "`), lead.detection()...)
		p.requireMeets(t, bed, lead, only("client"))
		if lead.redirect != "none" {
			eventually(t, func() bool { // it is read every few seconds
				return run.metric(t, "userspace_proxy_source_ranges_dropped_packets_total") >= 4 // of pod and node, in each family
			}, saying("what is dropped to be counted"))
		}
		run.write(t, ranges(`10.10.1.0/28, 10.10.3.2/32, 10.10.2.0/24, "fd10:3::2/128", "fd10:1::/64", "fd10:2::/64"`))
		p.requireMeets(t, bed, lead, only("client", "pod", "node"))
		run.write(t, ranges(`10.10.3.0/24, "fd10:3::/64"`))
		p.requireMeets(t, bed, lead, only("pod"))
		run.write(t, ranges(`192.0.2.0/24, "2001:db8::/64"`))
		p.requireMeets(t, bed, lead, only())
		run.write(t, ranges(`0.0.0.0/0, "::/0", 10.10.3.0/24`))
		p.requireMeets(t, bed, lead, only("client", "pod", "node"))
		run.stop(t)
	})
}

// TestSemantics_trafficPolicies_senders: senders that never stop, each from its
// one port, are led where every change asks for; and connection tracking keeps the
// entries of those whose way has not changed, where it can be told whose they are.
func TestSemantics_trafficPolicies_senders(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p := servePolicied(t, bed, lead)
		here, there := serveGeneration(t, bed, 0), serveGeneration(t, bed, 1)
		p.about = there.about(here.about(p.about, nodeHere), "nodeName: node-b")
		const outer = "externalTrafficPolicy: Local"
		run := lead.start(t, bed.Node, p.with("", here.addrs, there.addrs), lead.detection()...)
		senders := make(map[string][]*sender)
		for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
			for _, f := range service.Families() {
				senders[from.Name] = append(senders[from.Name], keepSending(t, from, p.portal(bed, service.LoadBalancer, f)))
			}
		}
		requireHeard(t, senders["client"], senders["pod"], senders["node"])
		deleted := run.metric(t, "kubeproxy_conntrack_reconciler_deleted_entries_total")

		run.write(t, p.with(outer, here.addrs, there.addrs))
		deleted += 2 // of the client's
		if lead.redirect == "iptables" {
			deleted += 2 // and of the pod's, since pods are told by their interface
		}
		eventually(t, func() bool {
			return run.metric(t, "kubeproxy_conntrack_reconciler_deleted_entries_total") >= deleted
		}, saying("entries to be deleted"))
		requireAnswered(t, senders["client"], here.name)
		requireHeard(t, senders["pod"], senders["node"])
		require.InDelta(t, deleted, run.metric(t, "kubeproxy_conntrack_reconciler_deleted_entries_total"), 0)

		run.write(t, p.with(outer, there.addrs))
		requireSilence(t, senders["client"])
		requireAnswered(t, senders["pod"], there.name)
		requireAnswered(t, senders["node"], there.name)
		run.write(t, p.with("", there.addrs))
		for _, all := range senders {
			requireAnswered(t, all, there.name)
		}
		run.write(t, p.with(`loadBalancerSourceRanges: [10.10.3.0/24, "fd10:3::/64"]`, there.addrs))
		requireSilence(t, senders["client"])
		requireSilence(t, senders["node"])
		requireAnswered(t, senders["pod"], there.name)
		run.stop(t)
	})
}

// requireHeard waits until somebody answers each sender something that it sends
// from now on.
func requireHeard(t *testing.T, groups ...[]*sender) {
	t.Helper()
	for _, s := range slices.Concat(groups...) {
		from := s.now()
		eventually(t, func() bool { return len(s.lost(from, s.now())) < s.now()-from }, func() string { return "an answer; " + s.String() })
	}
}

// requireSilence waits until nobody answers any sender twenty times in a row.
func requireSilence(t *testing.T, senders []*sender) {
	t.Helper()
	for _, s := range senders {
		eventually(t, func() bool { n := s.now() - 5; return n > 20 && len(s.lost(n-20, n)) == 20 }, func() string { return "silence; " + s.String() })
	}
}
