package config_test

import (
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

func TestSemantics_clusterIPs(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name:    "one family",
		objects: []any{svc("default/web")},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}, {
		name:    "each family's address is a portal of a port of its own",
		objects: []any{svc("default/web", clusterIPs("fd00::1", "10.96.0.1"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80`,
	}, {
		name:    "spec.clusterIP where the list is empty",
		objects: []any{svc("default/web", clusterIP("10.96.0.7"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.7:80`,
	}, {
		name:    "None",
		objects: []any{svc("default/a", clusterIPs("None")), svc("default/b", clusterIP("None"), externalIPs("198.51.100.1"))},
	}, {
		name:    "ExternalName",
		objects: []any{svc("default/web", ofType(corev1.ServiceTypeExternalName))},
	}, {
		name:    "empty",
		objects: []any{svc("default/a", clusterIPs()), svc("default/b", clusterIPs("")), svc("default/c", clusterIPs(), nodePorts(30080))},
		want: `
			problem NoClusterIP in Service default/a spec.clusterIP
			problem NoClusterIP in Service default/b spec.clusterIP
			problem NoClusterIP in Service default/c spec.clusterIP`,
	}, {
		name:    "empty, with an external address, as the first proxy's form has it",
		objects: []any{svc("default/web", clusterIPs(), externalIPs("198.51.100.1"))},
		want:    `default/web:http/TCP/IPv4 at ExternalIP 198.51.100.1:80`,
	}, {
		name: "written in other ways",
		objects: []any{
			svc("default/mapped", clusterIPs("::ffff:10.96.0.2")), svc("default/zeros", clusterIPs("010.096.000.003")),
		},
		want: `
			default/mapped:http/TCP/IPv4 at ClusterIP 10.96.0.2:80
			default/zeros:http/TCP/IPv4 at ClusterIP 10.96.0.3:80`,
	}, {
		name: "not an address",
		objects: []any{
			svc("default/a", clusterIPs("10.96.0.300")), svc("default/b", clusterIPs("fd00::1%eth0", "10.96.0.1")),
			svc("default/c", clusterIPs("nonsense"), nodePorts(30080), func(s *corev1.Service) {
				s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv4Protocol}
			}),
		},
		want: `
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			default/c:http/TCP/IPv4 at NodePort 192.0.2.1:30080
			problem InvalidAddress in Service default/a spec.clusterIPs[0]
			problem InvalidAddress in Service default/b spec.clusterIPs[0]
			problem InvalidAddress in Service default/c spec.clusterIPs[0]`,
	}, {
		name: "an address that no Service can have",
		objects: []any{
			svc("default/any", clusterIPs("0.0.0.0", "::")), svc("default/group", clusterIPs("224.0.0.1", "ff02::1")),
			svc("default/link", clusterIPs("169.254.169.254", "fe80::1")), svc("default/everyone", clusterIPs("255.255.255.255")),
			svc("default/self", clusterIPs("127.0.0.1", "::1")),
		},
		want: `
			default/any:http/TCP/IPv4
			default/any:http/TCP/IPv6
			default/everyone:http/TCP/IPv4
			default/group:http/TCP/IPv4
			default/group:http/TCP/IPv6
			default/link:http/TCP/IPv4
			default/link:http/TCP/IPv6
			default/self:http/TCP/IPv4
			default/self:http/TCP/IPv6
			problem RefusedAddress in Service default/any spec.clusterIPs[0]
			problem RefusedAddress in Service default/any spec.clusterIPs[1]
			problem RefusedAddress in Service default/everyone spec.clusterIPs[0]
			problem RefusedAddress in Service default/group spec.clusterIPs[0]
			problem RefusedAddress in Service default/group spec.clusterIPs[1]
			problem RefusedAddress in Service default/link spec.clusterIPs[0]
			problem RefusedAddress in Service default/link spec.clusterIPs[1]
			problem RefusedAddress in Service default/self spec.clusterIPs[0]
			problem RefusedAddress in Service default/self spec.clusterIPs[1]`,
	}, {
		name:    "loopback from a source that may",
		node:    func(n *config.Node) { n.AllowLoopbackFrom = map[string]bool{"file": true} },
		objects: []any{from{"file", svc("default/a", clusterIPs("127.0.0.8"))}, from{"apiserver", svc("default/b", clusterIPs("127.0.0.9"))}},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 127.0.0.8:80
			default/b:http/TCP/IPv4
			problem RefusedAddress in Service default/b spec.clusterIPs[0]`,
	}, {
		name:    "loopback without rules",
		node:    func(n *config.Node) { n.NoRedirect = true },
		objects: []any{svc("default/a", clusterIPs("127.0.0.8", "::1"))},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 127.0.0.8:80
			default/a:http/TCP/IPv6 at ClusterIP [::1]:80`,
	}, {
		name: "a family that the node lacks is one problem",
		node: ipv4Only,
		objects: []any{
			svc("default/a", clusterIPs("10.96.0.1", "fd00::1")), svc("default/b", clusterIPs("fd00::2")),
			svc("default/c", clusterIPs("10.96.0.3"), externalIPs("2001:db8::9")),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			default/c:http/TCP/IPv4 at ClusterIP 10.96.0.3:80
			problem FamilyMissing in Node node-1`,
	}, {
		name:    "the proxy's own listening ports",
		node:    func(n *config.Node) { n.ListenAddrs = []netip.Addr{netip.MustParseAddr("10.96.0.1")} },
		objects: []any{svc("default/a", ports(tcp("in", 10000), tcp("out", 9999)))},
		want: `
			default/a:in/TCP/IPv4
			default/a:out/TCP/IPv4 at ClusterIP 10.96.0.1:9999
			problem RefusedAddress in Service default/a spec.clusterIPs[0]`,
	}})
}

func TestSemantics_externalIPs(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name:    "beside the cluster address",
		objects: []any{svc("default/web", externalIPs("198.51.100.2", "198.51.100.1"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at ExternalIP 198.51.100.1:80 at ExternalIP 198.51.100.2:80`,
	}, {
		name:    "of the other family",
		objects: []any{svc("default/web", externalIPs("2001:db8::9")), slice("default/web-a", "web", at("10.1.0.1"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			default/web:http/TCP/IPv6 at ExternalIP [2001:db8::9]:80 to 10.1.0.1:8080`,
	}, {
		name:    "given twice, and as the cluster address",
		objects: []any{svc("default/web", externalIPs("198.51.100.1", "198.51.100.1", "10.96.0.1"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at ExternalIP 198.51.100.1:80`,
	}, {
		name:    "switched off",
		node:    func(n *config.Node) { n.AllowExternalIPs = false },
		objects: []any{svc("default/web", externalIPs("198.51.100.1")), svc("default/other", clusterIPs("10.96.0.2"))},
		want: `
			default/other:http/TCP/IPv4 at ClusterIP 10.96.0.2:80
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem ExternalIPsNotAllowed in Service default/web spec.externalIPs`,
	}, {
		name:    "that none can have",
		objects: []any{svc("default/web", externalIPs("127.0.0.1", "host.example", "169.254.169.254"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem RefusedAddress in Service default/web spec.externalIPs[0]
			problem InvalidAddress in Service default/web spec.externalIPs[1]
			problem RefusedAddress in Service default/web spec.externalIPs[2]`,
	}})
}

func TestSemantics_nodePort(t *testing.T) {
	loadBalancer := func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeLoadBalancer }
	runResolveTests(t, []resolveTest{{
		name:    "on the node's addresses of the Service's family",
		objects: []any{svc("default/web", nodePorts(30080))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080`,
	}, {
		name:    "of a LoadBalancer, in both families",
		objects: []any{svc("default/web", nodePorts(30080), loadBalancer, clusterIPs("10.96.0.1", "fd00::1"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080
			default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80 at NodePort [2001:db8::1]:30080`,
	}, {
		name: "on the addresses that were chosen",
		node: func(n *config.Node) {
			n.NodePortAddresses = []netip.Addr{
				netip.MustParseAddr("192.0.2.7"), netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("192.0.2.7"),
				netip.MustParseAddr("0.0.0.0"), netip.MustParseAddr("fe80::1%eth0"), {},
			}
		},
		objects: []any{svc("default/web", nodePorts(30080), clusterIPs("10.96.0.1", "fd00::1"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 127.0.0.1:30080 at NodePort 192.0.2.7:30080
			default/web:http/TCP/IPv6 at ClusterIP [fd00::1]:80`,
	}, {
		name:    "none allocated",
		objects: []any{svc("default/web", nodePorts(0), loadBalancer)},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}, {
		name:    "out of range or of a type that has none",
		objects: []any{svc("default/a", nodePorts(70000)), svc("default/b", clusterIPs("10.96.0.2"), ports(on(30080, tcp("http", 80))))},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.2:80
			problem InvalidNodePort in Service default/a spec.ports[0].nodePort
			problem InvalidNodePort in Service default/b spec.ports[0].nodePort`,
	}, {
		name: "of one number for TCP and UDP",
		objects: []any{svc("default/dns", ofType(corev1.ServiceTypeNodePort),
			ports(on(30053, udp("dns", 53)), on(30053, tcp("dns-tcp", 53))))},
		want: `
			default/dns:dns/UDP/IPv4 at ClusterIP 10.96.0.1:53 at NodePort 192.0.2.1:30053
			default/dns:dns-tcp/TCP/IPv4 at ClusterIP 10.96.0.1:53 at NodePort 192.0.2.1:30053`,
	}, {
		name: "twice in one Service",
		objects: []any{svc("default/web", ofType(corev1.ServiceTypeNodePort),
			ports(on(30080, tcp("a", 80)), on(30080, tcp("b", 81))))},
		want: `
			default/web:a/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080
			default/web:b/TCP/IPv4 at ClusterIP 10.96.0.1:81
			problem DuplicatePort in Service default/web spec.ports[1].nodePort`,
	}, {
		name: "of two Services, on many addresses: one problem",
		objects: []any{
			svc("default/young", created(2), nodePorts(30080), clusterIPs("10.96.0.2", "fd00::2")),
			svc("default/old", created(1), nodePorts(30080), clusterIPs("10.96.0.1", "fd00::1")),
		},
		want: `
			default/old:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080
			default/old:http/TCP/IPv6 at ClusterIP [fd00::1]:80 at NodePort [2001:db8::1]:30080
			default/young:http/TCP/IPv4 at ClusterIP 10.96.0.2:80
			default/young:http/TCP/IPv6 at ClusterIP [fd00::2]:80
			problem AddressConflict in Service default/young spec.ports[0].nodePort`,
	}, {
		name:    "among the proxy's own listening ports",
		node:    func(n *config.Node) { n.ListenAddrs = []netip.Addr{netip.IPv4Unspecified()} },
		objects: []any{svc("default/web", nodePorts(20080)), svc("default/ok", clusterIPs("10.96.0.2"), nodePorts(30080))},
		want: `
			default/ok:http/TCP/IPv4 at ClusterIP 10.96.0.2:80 at NodePort 192.0.2.1:30080
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem RefusedAddress in Service default/web spec.ports[0].nodePort`,
	}})
}

func TestSemantics_status_loadBalancer_ingress(t *testing.T) {
	mode := func(m corev1.LoadBalancerIPMode, ip string) corev1.LoadBalancerIngress {
		return corev1.LoadBalancerIngress{IP: ip, IPMode: &m}
	}
	runResolveTests(t, []resolveTest{{
		name: "addresses with ipMode nil or VIP, not Proxy, not host names",
		objects: []any{svc("default/web", ingress(vip("203.0.113.1"), mode(corev1.LoadBalancerIPModeVIP, "203.0.113.2"),
			mode(corev1.LoadBalancerIPModeProxy, "203.0.113.3"), corev1.LoadBalancerIngress{Hostname: "lb.example"}, vip("2001:db8::9")))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at LoadBalancer 203.0.113.1:80 at LoadBalancer 203.0.113.2:80
			default/web:http/TCP/IPv6 at LoadBalancer [2001:db8::9]:80`,
	}, {
		name:    "not an address, and one that none can have",
		objects: []any{svc("default/web", ingress(vip("lb.example"), vip("0.0.0.0")))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem InvalidAddress in Service default/web status.loadBalancer.ingress[0].ip
			problem RefusedAddress in Service default/web status.loadBalancer.ingress[1].ip`,
	}, {
		name:    "that is an externalIP too",
		objects: []any{svc("default/web", ingress(vip("203.0.113.1")), externalIPs("203.0.113.1"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at LoadBalancer 203.0.113.1:80`,
	}})
}

func TestSemantics_loadBalancerSourceRanges(t *testing.T) {
	both := ingress(vip("203.0.113.1"), vip("2001:db8::9"))
	const served = " at ClusterIP 10.96.0.1:80 at LoadBalancer 203.0.113.1:80"
	const servedV6 = " at LoadBalancer [2001:db8::9]:80"
	runResolveTests(t, []resolveTest{{
		name:    "are who may come, in each family",
		objects: []any{svc("default/web", both, sourceRanges("198.51.100.0/24", "fd00::/8", "10.0.0.0/8"))},
		want: `
			default/web:http/TCP/IPv4 from [10.0.0.0/8 198.51.100.0/24]` + served + `
			default/web:http/TCP/IPv6 from [fd00::/8]` + servedV6,
	}, {
		name:    "spaces around them, bits beyond them and leading zeros do not matter, nor that one is within another",
		objects: []any{svc("default/web", ingress(vip("203.0.113.1")), sourceRanges(" 010.1.2.3/8 ", "10.9.0.0/16", "::ffff:10.8.0.0/112", "10.0.0.0/8"))},
		want:    "default/web:http/TCP/IPv4 from [10.0.0.0/8]" + served,
	}, {
		name:    "a /0 lets all in, spaces or not",
		objects: []any{svc("default/web", both, sourceRanges(" 0.0.0.0/0 "))},
		want: `
			default/web:http/TCP/IPv4` + served + `
			default/web:http/TCP/IPv6` + servedV6,
	}, {
		name:    "a /0 of one family beside a range of the other",
		objects: []any{svc("default/web", both, sourceRanges("0.0.0.0/0", "fd00::/8"))},
		want: `
			default/web:http/TCP/IPv4` + served + `
			default/web:http/TCP/IPv6 from [fd00::/8]` + servedV6,
	}, {
		name:    "ranges of one family close the other",
		objects: []any{svc("default/web", both, sourceRanges("198.51.100.0/24"))},
		want: `
			default/web:http/TCP/IPv4 from [198.51.100.0/24]` + served + `
			default/web:http/TCP/IPv6 from []` + servedV6 + `
			problem NobodyAllowed in Service default/web spec.loadBalancerSourceRanges`,
	}, {
		name:    "a bad one lets nobody in",
		objects: []any{svc("default/web", ingress(vip("203.0.113.1")), sourceRanges("198.51.100.0/33"))},
		want: `
			default/web:http/TCP/IPv4 from []` + served + `
			problem NobodyAllowed in Service default/web spec.loadBalancerSourceRanges
			problem InvalidSourceRange in Service default/web spec.loadBalancerSourceRanges[0]`,
	}, {
		name:    "beside a bad one the others hold",
		objects: []any{svc("default/web", ingress(vip("203.0.113.1")), sourceRanges("everyone", "198.51.100.0/24"))},
		want: `
			default/web:http/TCP/IPv4 from [198.51.100.0/24]` + served + `
			problem InvalidSourceRange in Service default/web spec.loadBalancerSourceRanges[0]`,
	}, {
		name:    "one that lets this node in lets it come from the load balancer's own address too",
		objects: []any{svc("default/web", ingress(vip("203.0.113.1")), sourceRanges("192.0.2.0/24"))},
		want:    "default/web:http/TCP/IPv4 from [192.0.2.0/24 203.0.113.1/32]" + served,
	}, {
		name: "cannot be walked round by an externalIP, of this Service or another",
		objects: []any{
			svc("default/web", created(1), ingress(vip("203.0.113.1")), sourceRanges("198.51.100.0/24"), externalIPs("203.0.113.1")),
			svc("default/thief", created(2), clusterIPs("10.96.0.2"), externalIPs("203.0.113.1")),
		},
		want: `
			default/thief:http/TCP/IPv4 at ClusterIP 10.96.0.2:80
			default/web:http/TCP/IPv4 from [198.51.100.0/24]` + served + `
			problem AddressConflict in Service default/thief spec.externalIPs[0]`,
	}, {
		name:    "no load balancer address yet",
		objects: []any{svc("default/web", ingress(), sourceRanges("198.51.100.0/24"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}})
}

func TestSemantics_claims_two_Services_one_address(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name:    "the older creationTimestamp wins",
		objects: []any{svc("default/a", created(2)), svc("default/b", created(1))},
		want: `
			default/a:http/TCP/IPv4
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem AddressConflict in Service default/a spec.clusterIPs[0]`,
	}, {
		name:    "then namespace, then name",
		objects: []any{svc("b/a"), svc("a/c"), svc("a/b")},
		want: `
			a/b:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			a/c:http/TCP/IPv4
			b/a:http/TCP/IPv4
			problem AddressConflict in Service a/c spec.clusterIPs[0]
			problem AddressConflict in Service b/a spec.clusterIPs[0]`,
	}, {
		name:    "one without a timestamp, so from a file, is the oldest",
		objects: []any{svc("default/api", created(1)), svc("default/file")},
		want: `
			default/api:http/TCP/IPv4
			default/file:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem AddressConflict in Service default/api spec.clusterIPs[0]`,
	}, {
		name: "another port or protocol is no conflict",
		objects: []any{
			svc("default/a"), svc("default/b", ports(tcp("https", 443))), svc("default/c", ports(udp("quic", 80))),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			default/b:https/TCP/IPv4 at ClusterIP 10.96.0.1:443
			default/c:quic/UDP/IPv4 at ClusterIP 10.96.0.1:80`,
	}, {
		name: "whatever the fields: a cluster address that is an externalIP of an older one",
		objects: []any{
			svc("default/old", created(1), clusterIPs("10.96.0.9"), externalIPs("10.96.0.1")),
			svc("default/young", created(2)),
			svc("default/youngest", created(3), clusterIPs("10.96.0.3"), externalIPs("10.96.0.9"), ingress(vip("10.96.0.1"))),
		},
		want: `
			default/old:http/TCP/IPv4 at ClusterIP 10.96.0.9:80 at ExternalIP 10.96.0.1:80
			default/young:http/TCP/IPv4
			default/youngest:http/TCP/IPv4 at ClusterIP 10.96.0.3:80
			problem AddressConflict in Service default/young spec.clusterIPs[0]
			problem AddressConflict in Service default/youngest spec.externalIPs[0]
			problem AddressConflict in Service default/youngest status.loadBalancer.ingress[0].ip`,
	}, {
		name: "an externalIP that is a node's address and somebody's node port",
		objects: []any{
			svc("default/a", created(1), nodePorts(30080)),
			svc("default/b", created(2), clusterIPs("10.96.0.2"), externalIPs("192.0.2.1"), ports(tcp("http", 30080), tcp("free", 80))),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 at NodePort 192.0.2.1:30080
			default/b:free/TCP/IPv4 at ClusterIP 10.96.0.2:80 at ExternalIP 192.0.2.1:80
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.2:30080
			problem AddressConflict in Service default/b spec.externalIPs[0]`,
	}, {
		name: "a Service that is not ours claims nothing",
		objects: []any{
			svc("default/a", created(1), labelled("service.kubernetes.io/service-proxy-name", "cilium")), svc("default/b", created(2)),
		},
		want: `default/b:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}})
}
