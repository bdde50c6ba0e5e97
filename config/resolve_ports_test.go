package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestSemantics_ports(t *testing.T) {
	of := func(p corev1.Protocol, sp corev1.ServicePort) corev1.ServicePort {
		sp.Protocol = p
		return sp
	}
	runResolveTests(t, []resolveTest{{
		name:    "unnamed, and without a protocol",
		objects: []any{svc("default/web", ports(of("", tcp("", 80))))},
		want:    `default/web/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}, {
		name:    "of one number and name for TCP and UDP",
		objects: []any{svc("default/dns", ports(tcp("dns", 53), udp("dns", 53)))},
		want: `
			default/dns:dns/TCP/IPv4 at ClusterIP 10.96.0.1:53
			default/dns:dns/UDP/IPv4 at ClusterIP 10.96.0.1:53`,
	}, {
		name: "SCTP is unsupported, its siblings are served",
		objects: []any{svc("default/web", ports(
			of(corev1.ProtocolSCTP, tcp("sctp", 80)), tcp("http", 80), of("tcp", tcp("odd", 81))))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem UnsupportedProtocol in Service default/web spec.ports[0].protocol
			problem InvalidProtocol in Service default/web spec.ports[2].protocol`,
	}, {
		name:    "out of 1..65535",
		objects: []any{svc("default/web", ports(tcp("a", 0), tcp("b", 70000), tcp("c", -1), tcp("d", 65535)))},
		want: `
			default/web:d/TCP/IPv4 at ClusterIP 10.96.0.1:65535
			problem InvalidPort in Service default/web spec.ports[0].port
			problem InvalidPort in Service default/web spec.ports[1].port
			problem InvalidPort in Service default/web spec.ports[2].port`,
	}, {
		name:    "of one name",
		objects: []any{svc("default/web", ports(tcp("a", 80), tcp("a", 81)))},
		want: `
			default/web:a/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem DuplicatePort in Service default/web spec.ports[1].name`,
	}, {
		name:    "of one number",
		objects: []any{svc("default/web", externalIPs("198.51.100.1"), ports(tcp("a", 80), tcp("b", 80)))},
		want: `
			default/web:a/TCP/IPv4 at ClusterIP 10.96.0.1:80 at ExternalIP 198.51.100.1:80
			default/web:b/TCP/IPv4
			problem DuplicatePort in Service default/web spec.ports[1].port`,
	}, {
		name:    "none",
		objects: []any{svc("default/web", ports())},
	}})
}

func TestSemantics_type(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name:    "an unknown one is served as ClusterIP",
		objects: []any{svc("default/web", ofType("Nodeport"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem InvalidType in Service default/web spec.type`,
	}})
}

func TestSemantics_sessionAffinity(t *testing.T) {
	affinity := func(a corev1.ServiceAffinity) change {
		return func(s *corev1.Service) { s.Spec.SessionAffinity = a }
	}
	timeoutSeconds := func(n int32) change {
		return func(s *corev1.Service) {
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &n}}
		}
	}
	clientIP := affinity(corev1.ServiceAffinityClientIP)
	runResolveTests(t, []resolveTest{{
		name:    "None, whatever the timeout",
		objects: []any{svc("default/web", affinity(corev1.ServiceAffinityNone), timeoutSeconds(60))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}, {
		name: "ClientIP lasts three hours",
		objects: []any{
			svc("default/a", clientIP),
			svc("default/b", clusterIPs("10.96.0.2"), clientIP, func(s *corev1.Service) {
				s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{}
			}),
		},
		want: `
			default/a:http/TCP/IPv4 affinity 3h0m0s at ClusterIP 10.96.0.1:80
			default/b:http/TCP/IPv4 affinity 3h0m0s at ClusterIP 10.96.0.2:80`,
	}, {
		name: "timeoutSeconds, of every port and family",
		objects: []any{
			svc("default/web", clusterIPs("10.96.0.1", "fd00::1"), ports(tcp("a", 80), udp("b", 80)), clientIP, timeoutSeconds(86400)),
		},
		want: `
			default/web:a/TCP/IPv4 affinity 24h0m0s at ClusterIP 10.96.0.1:80
			default/web:a/TCP/IPv6 affinity 24h0m0s at ClusterIP [fd00::1]:80
			default/web:b/UDP/IPv4 affinity 24h0m0s at ClusterIP 10.96.0.1:80
			default/web:b/UDP/IPv6 affinity 24h0m0s at ClusterIP [fd00::1]:80`,
	}, {
		name: "timeoutSeconds out of range",
		objects: []any{
			svc("default/a", clientIP, timeoutSeconds(0)), svc("default/b", clusterIPs("10.96.0.2"), clientIP, timeoutSeconds(86401)),
			svc("default/c", clusterIPs("10.96.0.3"), clientIP, timeoutSeconds(1)),
		},
		want: `
			default/a:http/TCP/IPv4 affinity 3h0m0s at ClusterIP 10.96.0.1:80
			default/b:http/TCP/IPv4 affinity 3h0m0s at ClusterIP 10.96.0.2:80
			default/c:http/TCP/IPv4 affinity 1s at ClusterIP 10.96.0.3:80
			problem InvalidSessionAffinity in Service default/a spec.sessionAffinityConfig.clientIP.timeoutSeconds
			problem InvalidSessionAffinity in Service default/b spec.sessionAffinityConfig.clientIP.timeoutSeconds`,
	}, {
		name:    "an unknown kind",
		objects: []any{svc("default/web", affinity("Cookie"))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			problem InvalidSessionAffinity in Service default/web spec.sessionAffinity`,
	}})
}

func TestSemantics_label_service_proxy_name(t *testing.T) {
	const label = "service.kubernetes.io/service-proxy-name"
	runResolveTests(t, []resolveTest{{
		name:    "not ours, even where it names nobody",
		objects: []any{svc("default/a", labelled(label, "other")), svc("default/b", labelled(label, ""))},
	}, {
		name:    "removed",
		objects: []any{svc("default/a")},
		want:    `default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}})
}

func TestAnnotation_maxConnections(t *testing.T) {
	const key = "userspace-proxy/max-connections"
	runResolveTests(t, []resolveTest{{
		name:    "holds for every port, in both families",
		objects: []any{svc("default/web", annotated(key, " 100 "), clusterIPs("10.96.0.1", "fd00::1"), ports(tcp("http", 80), udp("dns", 53)))},
		want: `
			default/web:dns/UDP/IPv4 at most 100 at ClusterIP 10.96.0.1:53
			default/web:dns/UDP/IPv6 at most 100 at ClusterIP [fd00::1]:53
			default/web:http/TCP/IPv4 at most 100 at ClusterIP 10.96.0.1:80
			default/web:http/TCP/IPv6 at most 100 at ClusterIP [fd00::1]:80`,
	}, {
		name:    "0 is none",
		objects: []any{svc("default/web", annotated(key, "0"))},
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80`,
	}, {
		name: "what cannot be read is a problem, and none",
		objects: []any{
			svc("default/a", annotated(key, "many")), svc("default/b", annotated(key, "-1"), clusterIPs("10.96.0.2")),
			svc("default/c", annotated(key, "99999999999"), clusterIPs("10.96.0.3")), svc("default/d", annotated(key, ""), clusterIPs("10.96.0.4")),
		},
		want: `
			default/a:http/TCP/IPv4 at ClusterIP 10.96.0.1:80
			default/b:http/TCP/IPv4 at ClusterIP 10.96.0.2:80
			default/c:http/TCP/IPv4 at ClusterIP 10.96.0.3:80
			default/d:http/TCP/IPv4 at ClusterIP 10.96.0.4:80
			problem InvalidAnnotation in Service default/a metadata.annotations[userspace-proxy/max-connections]
			problem InvalidAnnotation in Service default/b metadata.annotations[userspace-proxy/max-connections]
			problem InvalidAnnotation in Service default/c metadata.annotations[userspace-proxy/max-connections]
			problem InvalidAnnotation in Service default/d metadata.annotations[userspace-proxy/max-connections]`,
	}})
}

// TestResolve_problemsNameTheService: what is wrong with a Service says whose it
// is, so that it can be told there.
func TestResolve_problemsNameTheService(t *testing.T) {
	t.Parallel()
	web := svc("default/web")
	web.Spec.Ports[0].Protocol = corev1.ProtocolSCTP
	r := config.Resolve(snapshot(from{"apiserver", web}, slice("default/web-a", "web", at("169.254.0.1"))), testNode())
	named := map[string]service.ServiceRef{}
	for _, p := range r.Problems {
		named[p.Object] = p.Service
	}
	assert.Equal(t, map[string]service.ServiceRef{
		"Service default/web":         {Source: "apiserver", Namespace: "default", Name: "web"},
		"EndpointSlice default/web-a": {},
	}, named)
}
