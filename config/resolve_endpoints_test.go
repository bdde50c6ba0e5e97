package config_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

const ipv6 = discoveryv1.AddressTypeIPv6

func TestSemantics_conditions(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name:    "nil means ready, serving and not terminating",
		objects: []any{svc("default/web"), slice("default/web-a", "web", at("10.1.0.2"), at("10.1.0.1"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 to 10.1.0.2:8080`,
	}, {
		name: "ready ones first",
		objects: []any{svc("default/web"), slice("default/web-a", "web",
			at("10.1.0.1", ready(true)), at("10.1.0.2", ready(false)), at("10.1.0.3", leaving(true)), at("10.1.0.4", leaving(false)))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			not 10.1.0.2:8080 (not ready) not 10.1.0.3:8080 (terminating) not 10.1.0.4:8080 (terminating and no longer serving)`,
	}, {
		name: "where none is ready, those serving and terminating",
		objects: []any{svc("default/web"), slice("default/web-a", "web",
			at("10.1.0.2", ready(false)), at("10.1.0.3", leaving(true)), at("10.1.0.4", leaving(false)))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.3:8080
			not 10.1.0.2:8080 (not ready) not 10.1.0.4:8080 (terminating and no longer serving)`,
	}, {
		name: "nil serving means serving",
		objects: []any{svc("default/web"), slice("default/web-a", "web", at("10.1.0.1", ready(false), func(e *discoveryv1.Endpoint) {
			e.Conditions.Terminating = ptr.To(true)
		}))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080`,
	}, {
		name: "publishNotReadyAddresses: ready while it terminates",
		objects: []any{svc("default/web"), slice("default/web-a", "web", at("10.1.0.1", func(e *discoveryv1.Endpoint) {
			e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(true), Serving: ptr.To(false), Terminating: ptr.To(true)}
		}))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080`,
	}, {
		name:    "none usable is a port without endpoints",
		objects: []any{svc("default/web"), slice("default/web-a", "web", at("10.1.0.1", ready(false)))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 not 10.1.0.1:8080 (not ready)`,
	}, {
		name: "a ready one that is refused does not count",
		objects: []any{svc("default/web"), slice("default/web-a", "web",
			at("169.254.0.1"), at("10.1.0.3", leaving(true)))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.3:8080
			not 169.254.0.1:8080 (link-local address refused)
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[0].addresses[0]`,
	}})
}

func TestSemantics_addresses(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name: "the first one",
		objects: []any{svc("default/web"), slice("default/web-a", "web",
			discoveryv1.Endpoint{Addresses: []string{"10.1.0.1", "10.1.0.2"}})},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080`,
	}, {
		name: "addressType FQDN is ignored and reported",
		objects: []any{svc("default/web"),
			slice("default/web-a", "web", addressType(discoveryv1.AddressTypeFQDN), at("a.example")),
			slice("default/web-b", "web", addressType(""), at("10.1.0.1"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem UnsupportedAddressType in EndpointSlice default/web-a addressType
			problem UnsupportedAddressType in EndpointSlice default/web-b addressType`,
	}, {
		name: "not addresses, or not of the addressType",
		objects: []any{svc("default/web"),
			slice("default/web-a", "web", at("a.example"), discoveryv1.Endpoint{}, at("fd01::1"), at("10.1.0.1")),
			slice("default/web-b", "web", addressType(ipv6), at("10.1.0.2"), at("::ffff:10.1.0.3"), at("fd01::1%eth0"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			problem InvalidAddress in EndpointSlice default/web-a endpoints[0].addresses[0]
			problem InvalidAddress in EndpointSlice default/web-a endpoints[1].addresses[0]
			problem InvalidAddress in EndpointSlice default/web-a endpoints[2].addresses[0]
			problem InvalidAddress in EndpointSlice default/web-b endpoints[0].addresses[0]
			problem InvalidAddress in EndpointSlice default/web-b endpoints[1].addresses[0]
			problem InvalidAddress in EndpointSlice default/web-b endpoints[2].addresses[0]`,
	}, {
		name:    "nobody's endpoints are read where the Service is not served",
		objects: []any{svc("default/web", clusterIPs("None")), slice("default/web-a", "web", at("127.0.0.1"), at("nonsense"))},
	}})
}

func TestSemantics_slice_ports(t *testing.T) {
	nameless := func(n int32) discoveryv1.EndpointPort { return discoveryv1.EndpointPort{Port: &n} }
	runResolveTests(t, []resolveTest{{
		name:    `a nil name is ""`,
		objects: []any{svc("default/web", ports(tcp("", 80))), slice("default/web-a", "web", targets(nameless(8080)), at("10.1.0.1"))},
		want:    `default/web/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080`,
	}, {
		name: "a nil or 0 port is ignored, one out of range is reported",
		objects: []any{svc("default/web"),
			slice("default/web-a", "web", targets(discoveryv1.EndpointPort{Name: ptr.To("http")}, target("http", 0)), at("10.1.0.1")),
			slice("default/web-b", "web", targets(target("http", 70000), target("http", 8081)), at("10.1.0.2"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.2:8081
			problem InvalidPort in EndpointSlice default/web-b ports[0].port`,
	}, {
		name: "names are strict: each port gets its own, a port without a match none",
		objects: []any{
			svc("default/web", ports(tcp("http", 80), tcp("admin", 9000), tcp("htt", 81), udp("http", 80))),
			slice("default/web-a", "web", targets(target("http", 8080), target("admin", 9090)), at("10.1.0.1"))},
		want: `
			default/web:admin/TCP/IPv4 at ClusterIP 10.96.0.1:9000 to 10.1.0.1:9090
			default/web:htt/TCP/IPv4 at ClusterIP 10.96.0.1:81
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			default/web:http/UDP/IPv4 at ClusterIP 10.96.0.1:80
			problem PortNameMismatch in Service default/web spec.ports[2].name
			problem PortNameMismatch in Service default/web spec.ports[3].name`,
	}, {
		name: "an unnamed one is not a named one",
		objects: []any{svc("default/web"),
			slice("default/web-a", "web", targets(nameless(8080)), at("10.1.0.1"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem PortNameMismatch in Service default/web spec.ports[0].name`,
	}, {
		name: "nothing to match: no problem",
		objects: []any{svc("default/web"), slice("default/web-a", "web", targets()),
			slice("default/web-b", "web", targets(nameless(8080)))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}})
}

func TestSemantics_several_slices(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name: "union by address and port",
		objects: []any{svc("default/web"),
			slice("default/web-a", "web", at("10.1.0.2"), at("10.1.0.1")), slice("default/web-b", "web", at("10.1.0.3"), at("10.1.0.1")),
			slice("default/web-c", "web", targets(target("http", 9999)), at("10.1.0.1"))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			to 10.1.0.1:8080 to 10.1.0.1:9999 to 10.1.0.2:8080 to 10.1.0.3:8080`,
	}, {
		name: "of duplicates the one that is not terminating wins, be it not ready",
		objects: []any{svc("default/web"),
			slice("default/web-a", "web", at("10.1.0.1", leaving(true)), at("10.1.0.2"), at("10.1.0.3", leaving(true))),
			slice("default/web-b", "web", at("10.1.0.1"), at("10.1.0.2", leaving(true)), at("10.1.0.3", ready(false)))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 to 10.1.0.2:8080 not 10.1.0.3:8080 (not ready)`,
	}, {
		name: "other Services' slices are theirs",
		objects: []any{svc("default/web"), slice("default/web-a", "web", at("10.1.0.1")),
			slice("default/other-a", "other", at("10.1.0.2")), slice("kube-system/web-a", "web", at("10.1.0.3"))},
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080`,
	}})
}

func TestSemantics_label_headless(t *testing.T) {
	headless := func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" }
	runResolveTests(t, []resolveTest{{
		name:    "such a slice is ignored",
		objects: []any{svc("default/web"), slice("default/web-a", "web", headless, at("10.1.0.1")), slice("default/web-b", "web", at("10.1.0.2"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.2:8080`,
	}})
}

func TestSemantics_cross_family(t *testing.T) {
	dual := clusterIPs("10.96.0.1", "fd00::1")
	v6 := func(changes ...any) any { return slice("default/web-6", "web", append(changes, addressType(ipv6))...) }
	runResolveTests(t, []resolveTest{{
		name:    "each family has its own",
		objects: []any{svc("default/web", dual), slice("default/web-4", "web", at("10.1.0.1")), v6(at("fd01::1"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80 to [fd01::1]:8080`,
	}, {
		name:    "IPv6 portal, IPv4 endpoints",
		objects: []any{svc("default/web", clusterIPs("fd00::1")), slice("default/web-4", "web", at("10.1.0.1")), v6()},
		want:    `default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80 to 10.1.0.1:8080`,
	}, {
		name:    "IPv4 portal, IPv6 endpoints",
		objects: []any{svc("default/web"), v6(at("fd01::1"), at("fd01::2", ready(false)))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to [fd01::1]:8080 not [fd01::2]:8080 (not ready)`,
	}, {
		name:    "not where there are endpoints of its own family that are not ready",
		objects: []any{svc("default/web", dual), slice("default/web-4", "web", at("10.1.0.1")), v6(at("fd01::1", ready(false)))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80 not [fd01::1]:8080 (not ready)`,
	}, {
		name:    "not where the node lacks the other family",
		node:    ipv4Only,
		objects: []any{svc("default/web"), v6(at("fd01::1"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 not [fd01::1]:8080 (this node has no IPv6 address)`,
	}})
}

func TestSemantics_v1_Endpoints(t *testing.T) {
	list := func(ips ...string) []corev1.EndpointAddress {
		var l []corev1.EndpointAddress
		for _, ip := range ips {
			l = append(l, corev1.EndpointAddress{IP: ip})
		}
		return l
	}
	//nolint:staticcheck // read for Services without slices
	endpoints := &v1Endpoints{ObjectMeta: meta("default/web"), Subsets: []corev1.EndpointSubset{{
		Addresses: list("10.1.0.1", "127.0.0.1", "fd01::1"), NotReadyAddresses: list("10.1.0.2", "nonsense"),
		Ports: []corev1.EndpointPort{{Name: "http", Port: 8080}, {Name: "dns", Port: 5353, Protocol: corev1.ProtocolUDP}},
	}, {
		Addresses: list("10.1.0.2"), Ports: []corev1.EndpointPort{{Name: "http", Port: 8080}, {Name: "http", Port: 70000}},
	}}}
	const problems = `
			problem RefusedEndpoint in Endpoints default/web subsets[0].addresses[1].ip
			problem InvalidAddress in Endpoints default/web subsets[0].notReadyAddresses[1].ip
			problem InvalidPort in Endpoints default/web subsets[1].ports[1].port`
	runResolveTests(t, []resolveTest{{
		name:    "for a Service that no slice speaks of",
		objects: []any{svc("default/web", ports(tcp("http", 80), udp("dns", 53))), endpoints},
		want: `
			default/web:dns/UDP/IPv4 at ClusterIP 10.96.0.1:53 to 10.1.0.1:5353
			not 10.1.0.2:5353 (not ready) not 127.0.0.1:5353 (loopback address refused)
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 to 10.1.0.2:8080
			not 127.0.0.1:8080 (loopback address refused)` + problems,
	}, {
		name:    "in both families",
		objects: []any{svc("default/web", clusterIPs("10.96.0.1", "fd00::1")), endpoints},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 to 10.1.0.2:8080
			not 127.0.0.1:8080 (loopback address refused)
			default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80 to [fd01::1]:8080` + problems,
	}, {
		name:    "not where one does, be it empty",
		objects: []any{svc("default/web"), endpoints, slice("default/web-a", "web")},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}})
}

func TestSemantics_refused_loops(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name: "an endpoint that is a portal, its own or another's",
		objects: []any{
			svc("default/a"), slice("default/a-1", "a", targets(target("http", 80)), at("10.96.0.1"), at("10.96.0.2"), at("10.1.0.1")),
			svc("default/b", clusterIPs("10.96.0.2")), slice("default/b-1", "b", targets(target("http", 80)), at("10.96.0.1")),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:80
			not 10.96.0.1:80 (a portal of Service default/a, refused as a loop) not 10.96.0.2:80 (a portal of Service default/b, refused as a loop)
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.2:80 not 10.96.0.1:80 (a portal of Service default/a, refused as a loop)
			problem EndpointLoop in EndpointSlice default/a-1 endpoints[0].addresses[0]
			problem EndpointLoop in EndpointSlice default/a-1 endpoints[1].addresses[0]
			problem EndpointLoop in EndpointSlice default/b-1 endpoints[0].addresses[0]`,
	}, {
		name: "not at another port or protocol",
		objects: []any{
			svc("default/a", ports(udp("dns", 53))),
			svc("default/b", clusterIPs("10.96.0.2")), slice("default/b-1", "b", targets(target("http", 53), target("http", 80)), at("10.96.0.1")),
		},
		want: `
			default/a:dns/UDP/IPv4 at ClusterIP 10.96.0.1:53
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.2:80 to 10.96.0.1:53 to 10.96.0.1:80`,
	}, {
		name: "a node port on this node, but not on another",
		objects: []any{
			svc("default/a", nodePorts(30080)), slice("default/a-1", "a", targets(target("http", 30080)), at("192.0.2.1"), at("192.0.2.2")),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080 to 192.0.2.2:30080
			not 192.0.2.1:30080 (a portal of Service default/a, refused as a loop)
			problem EndpointLoop in EndpointSlice default/a-1 endpoints[0].addresses[0]`,
	}, {
		name: "not where pods on the host's network listen at their own Service's externalIPs",
		objects: []any{
			svc("default/a", externalIPs("192.0.2.1", "192.0.2.2", "198.51.100.1")),
			slice("default/a-1", "a", targets(target("http", 80)), at("192.0.2.1"), at("192.0.2.2")),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at ExternalIP 198.51.100.1:80 to 192.0.2.1:80 to 192.0.2.2:80
			problem PortalIsEndpoint in Service default/a spec.externalIPs[0]
			problem PortalIsEndpoint in Service default/a spec.externalIPs[1]`,
	}, {
		name: "the proxy's own listeners",
		node: func(n *config.Node) { n.ListenAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.1")} },
		objects: []any{
			svc("default/a"), slice("default/a-1", "a", targets(target("http", 10000), target("http", 9999)), at("192.0.2.1"), at("192.0.2.2")),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 192.0.2.1:9999 to 192.0.2.2:9999 to 192.0.2.2:10000
			not 192.0.2.1:10000 (one of the proxy's own listening ports, refused as a loop)
			problem EndpointLoop in EndpointSlice default/a-1 endpoints[0].addresses[0]`,
	}})
}

func TestResolveSaysWhereEndpointsRun(t *testing.T) {
	t.Parallel()
	pod := func(e *discoveryv1.Endpoint) {
		e.NodeName, e.TargetRef = ptr.To("node-2"), &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}
	}
	other := func(e *discoveryv1.Endpoint) {
		e.TargetRef = &corev1.ObjectReference{Kind: "VirtualMachine", Name: "vm"}
	}
	r := config.Resolve(snapshot(svc("default/web"), slice("default/web-a", "web", at("10.1.0.1", pod), at("10.1.0.2", other))), testNode())
	require.Len(t, r.Ports, 1)
	assert.Equal(t, []service.Endpoint{
		{Addr: netip.MustParseAddrPort("10.1.0.1:8080"), Node: "node-2", Pod: "web-0"},
		{Addr: netip.MustParseAddrPort("10.1.0.2:8080")},
	}, r.Ports[0].Endpoints)
	assert.Equal(t, "test", r.Ports[0].Source)
}
