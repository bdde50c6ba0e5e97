package config_test

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

func TestCase20_AffinityIsThereWhateverCameFirst(t *testing.T) {
	t.Parallel()
	web := svc("default/web", func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP })
	one := slice("default/web-a", "web", at("10.1.0.1"))
	none := slice("default/web-a", "web")
	const served = "default/web:http/TCP/IPv4 affinity 3h0m0s at ClusterIP 10.96.0.1:80"
	assert.Empty(t, text(config.Resolve(snapshot(one), testNode())), "endpoints before their Service")
	for range 2 { // to zero endpoints and back
		assert.Equal(t, served+" to 10.1.0.1:8080", text(config.Resolve(snapshot(web, one), testNode())))
		assert.Equal(t, served, text(config.Resolve(snapshot(web, none), testNode())))
	}
	assert.Equal(t, served, text(config.Resolve(snapshot(web), testNode())), "a Service before its endpoints")
}

func TestCase24_OneTableOfEndpoints(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name: "the same endpoint in two slices, a ghost that terminates, two ports on one address",
		objects: []any{
			svc("default/web", ports(tcp("http", 80), tcp("admin", 90))),
			slice("default/web-a", "web", targets(target("http", 8080), target("admin", 8080)), at("10.1.0.1", leaving(true)), at("10.1.0.2")),
			slice("default/web-b", "web", targets(target("http", 8080), target("admin", 9090)), at("10.1.0.1"), at("10.1.0.2")),
		},
		want: `
			default/web:admin/TCP/IPv4 at ClusterIP 10.96.0.1:90 to 10.1.0.1:9090 to 10.1.0.2:8080 to 10.1.0.2:9090
			not 10.1.0.1:8080 (terminating)
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 to 10.1.0.2:8080`,
	}})
}

func TestCase25_OneNumberForTCPAndUDP(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name: "both are served, each by its own endpoints",
		objects: []any{
			svc("default/dns", ofType(corev1.ServiceTypeNodePort), ports(on(30053, tcp("dns-tcp", 53)), on(30053, udp("dns", 53)))),
			slice("default/dns-a", "dns", targets(target("dns-tcp", 5353), udpTarget("dns", 5353)), at("10.1.0.1")),
		},
		want: `
			default/dns:dns/UDP/IPv4 at ClusterIP 10.96.0.1:53 at NodePort 192.0.2.1:30053 to 10.1.0.1:5353
			default/dns:dns-tcp/TCP/IPv4 at ClusterIP 10.96.0.1:53 at NodePort 192.0.2.1:30053 to 10.1.0.1:5353`,
	}})
}

func TestCase26_HealthCheckPortEqualsANodePort(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name: "both Services are served",
		objects: []any{
			svc("default/a", nodePorts(30080)),
			svc("default/b", clusterIPs("10.96.0.2"), nodePorts(30081), func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 30080 }),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.2:80 at NodePort 192.0.2.1:30081`,
	}})
}

func TestCase27_ListenerFollowsTheType(t *testing.T) {
	t.Parallel()
	endpoints := slice("default/web-a", "web", at("10.1.0.1"))
	const served = "default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080"
	for _, step := range []struct {
		name string
		web  *corev1.Service
		want string
	}{
		{"ClusterIP", svc("default/web"), served},
		{"to ExternalName", svc("default/web", ofType(corev1.ServiceTypeExternalName), clusterIPs()), ""},
		{"to ExternalName that kept its address", svc("default/web", ofType(corev1.ServiceTypeExternalName)), ""},
		{"and back", svc("default/web"), served},
		{"to headless", svc("default/web", clusterIPs(corev1.ClusterIPNone)), ""},
		{"and back again", svc("default/web"), served},
	} {
		assert.Equal(t, step.want, text(config.Resolve(snapshot(step.web, endpoints), testNode())), step.name)
	}
}

func TestCase33_APortalDoesNotCutOffTheCluster(t *testing.T) {
	apiserver := []any{
		svc("default/kubernetes", created(1), clusterIPs("10.96.0.1"), ports(tcp("https", 443))),
		slice("default/kubernetes", "kubernetes", targets(target("https", 6443)), at("192.0.2.1")),
	}
	const served = "default/kubernetes:https/TCP/IPv4 at ClusterIP 10.96.0.1:443 to 192.0.2.1:6443\n"
	runResolveTests(t, []resolveTest{{
		name:    "by a node port",
		objects: append([]any{svc("default/evil", created(2), clusterIPs("10.96.0.2"), nodePorts(6443))}, apiserver...),
		want: `default/evil:http/TCP/IPv4 at ClusterIP 10.96.0.2:80
			` + served + `
			problem AddressConflict in Service default/evil spec.ports[0].nodePort`,
	}, {
		name: "by an externalIP that is the node's address",
		objects: append([]any{svc("default/evil", created(2), clusterIPs("10.96.0.2"), externalIPs("192.0.2.1"),
			ports(tcp("a", 6443), udp("b", 6443)))}, apiserver...),
		want: `default/evil:a/TCP/IPv4 at ClusterIP 10.96.0.2:6443
			default/evil:b/UDP/IPv4 at ClusterIP 10.96.0.2:6443 at ExternalIP 192.0.2.1:6443
			` + served + `
			problem AddressConflict in Service default/evil spec.externalIPs[0]`,
	}, {
		name: "by an externalIP that is another machine's address",
		objects: []any{
			svc("default/evil", created(2), clusterIPs("10.96.0.2"), externalIPs("192.0.2.9"), ports(tcp("a", 6443))),
			apiserver[0], slice("default/kubernetes", "kubernetes", targets(target("https", 6443)), at("192.0.2.9")),
		},
		want: `
			default/evil:a/TCP/IPv4 at ClusterIP 10.96.0.2:6443
			default/kubernetes:https/TCP/IPv4 at ClusterIP 10.96.0.1:443 to 192.0.2.9:6443
			problem AddressConflict in Service default/evil spec.externalIPs[0]`,
	}, {
		name: "nor does an old Service's endpoint take a cluster address away",
		objects: []any{
			svc("default/evil", created(1), clusterIPs("10.96.0.2"), externalIPs("10.96.0.1")),
			slice("default/evil-a", "evil", targets(target("http", 443)), at("10.96.0.1")),
			apiserver[0], svc("default/late", created(3), clusterIPs("10.96.0.3"), externalIPs("10.96.0.1"), ports(tcp("https", 443))),
		},
		want: `
			default/evil:http/TCP/IPv4 at ClusterIP 10.96.0.2:80 at ExternalIP 10.96.0.1:80
			not 10.96.0.1:443 (a portal of Service default/kubernetes, refused as a loop)
			default/kubernetes:https/TCP/IPv4 at ClusterIP 10.96.0.1:443
			default/late:https/TCP/IPv4 at ClusterIP 10.96.0.3:443
			problem EndpointLoop in EndpointSlice default/evil-a endpoints[0].addresses[0]
			problem AddressConflict in Service default/late spec.externalIPs[0]`,
	}, {
		name: "nor does a young Service's endpoint take a node port away",
		objects: []any{
			svc("default/old", created(1), nodePorts(30080)),
			svc("default/young", created(2), clusterIPs("10.96.0.2")),
			slice("default/young-a", "young", targets(target("http", 30080)), at("192.0.2.1")),
		},
		want: `
			default/old:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080
			default/young:http/TCP/IPv4 at ClusterIP 10.96.0.2:80 not 192.0.2.1:30080 (a portal of Service default/old, refused as a loop)
			problem EndpointLoop in EndpointSlice default/young-a endpoints[0].addresses[0]`,
	}})
}

func TestCase43_NothingIsKeptOfAServiceThatIsGone(t *testing.T) {
	t.Parallel()
	web, endpoints := svc("default/web", nodePorts(30080)), slice("default/web-a", "web", at("10.1.0.1"))
	heir := svc("default/zzz", nodePorts(30080))
	with := config.Resolve(snapshot(web, endpoints, heir), testNode())
	require.Len(t, with.Problems, 2, "the heir gets neither address while the other is there: %s", text(with))
	for name, s := range map[string]config.Snapshot{
		"endpoints went first": snapshot(heir),
		"the Service did":      snapshot(endpoints, heir),
	} {
		assert.Equal(t, "default/zzz:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080",
			text(config.Resolve(s, testNode())), name)
	}
}

func TestCase47_EndpointsOnTheNodesOwnDaemons(t *testing.T) {
	bad := slice("default/web-a", "web", at("127.0.0.1"), at("127.8.9.10"), at("169.254.169.254"), at("0.0.0.0"), at("0.1.2.3"),
		at("224.0.0.1"), at("255.255.255.255"), at("10.1.0.1"))
	bad6 := slice("default/web-b", "web", addressType(ipv6), at("::1"), at("fe80::1"), at("::"), at("ff02::1"), at("fd01::1"))
	web := svc("default/web", clusterIPs("10.96.0.1", "fd00::1"))
	runResolveTests(t, []resolveTest{{
		name:    "are refused and reported",
		objects: []any{web, bad, bad6},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			not 0.0.0.0:8080 (unspecified address refused) not 0.1.2.3:8080 (unspecified address refused)
			not 127.0.0.1:8080 (loopback address refused) not 127.8.9.10:8080 (loopback address refused)
			not 169.254.169.254:8080 (link-local address refused)
			not 224.0.0.1:8080 (multicast address refused) not 255.255.255.255:8080 (broadcast address refused)
			default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80 to [fd01::1]:8080
			not [::]:8080 (unspecified address refused) not [::1]:8080 (loopback address refused)
			not [fe80::1]:8080 (link-local address refused) not [ff02::1]:8080 (multicast address refused)
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[0].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[1].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[2].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[3].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[4].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[5].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[6].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-b endpoints[0].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-b endpoints[1].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-b endpoints[2].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-b endpoints[3].addresses[0]`,
	}, {
		name: "but for loopback ones from a source that may",
		node: func(n *config.Node) { n.AllowLoopbackFrom = map[string]bool{"file": true} },
		objects: []any{
			svc("default/web"), from{"file", slice("default/web-a", "web", at("127.0.0.1"), at("169.254.169.254"))},
			svc("default/api", clusterIPs("10.96.0.2")), from{"apiserver", slice("default/api-a", "api", at("127.0.0.1"))},
		},
		want: `
			default/api:http/TCP/IPv4 at ClusterIP 10.96.0.2:80 not 127.0.0.1:8080 (loopback address refused)
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 127.0.0.1:8080 not 169.254.169.254:8080 (link-local address refused)
			problem RefusedEndpoint in EndpointSlice default/api-a endpoints[0].addresses[0]
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[1].addresses[0]`,
	}, {
		name: "nor on the proxy itself",
		node: func(n *config.Node) { n.ListenAddrs = []netip.Addr{netip.MustParseAddr("192.0.2.1")} },
		objects: []any{
			svc("default/web"), slice("default/web-a", "web", targets(target("http", 12345)), at("192.0.2.1")),
		},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			not 192.0.2.1:12345 (one of the proxy's own listening ports, refused as a loop)
			problem EndpointLoop in EndpointSlice default/web-a endpoints[0].addresses[0]`,
	}})
}
