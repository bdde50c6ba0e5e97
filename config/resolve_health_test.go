package config_test

import (
	"testing"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// checked is a load balancer's Service with externalTrafficPolicy Local.
func checked(s *corev1.Service) {
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	s.Spec.HealthCheckNodePort = 32000
}

func onNode(name string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.NodeName = &name }
}

func TestSemantics_healthCheckNodePort(t *testing.T) {
	t.Parallel()
	here, there := onNode("node-1"), onNode("node-2")
	for _, tt := range []struct {
		name    string
		objects []any
		want    map[service.Family]int // nil: there is none
	}{{
		name: "counts ready endpoints on this node",
		objects: []any{svc("default/web", checked), slice("default/web-a", "web",
			at("10.1.0.1", here), at("10.1.0.2", here), at("10.1.0.3", there), at("10.1.0.4"),
			at("10.1.0.5", here, ready(false)), at("10.1.0.6", here, leaving(true)), at("169.254.0.1", here))},
		want: map[service.Family]int{service.IPv4: 2},
	}, {
		name: "a pod is one, whatever its ports",
		objects: []any{
			svc("default/web", checked, ports(tcp("http", 80), tcp("https", 443))),
			slice("default/web-a", "web", at("10.1.0.1", here), targets(target("http", 8080), target("https", 8443))),
		},
		want: map[service.Family]int{service.IPv4: 1},
	}, {
		name: "each family has its own",
		objects: []any{
			svc("default/web", checked, clusterIPs("10.96.0.1", "fd96::1")),
			slice("default/web-a", "web", at("10.1.0.1", here), at("10.1.0.2", here)),
			slice("default/web-b", "web", addressType(ipv6), at("fd01::1", here), at("fd01::2", there)),
		},
		want: map[service.Family]int{service.IPv4: 2, service.IPv6: 1},
	}, {
		name:    "without endpoints there is none to count",
		objects: []any{svc("default/web", checked)},
		want:    map[service.Family]int{service.IPv4: 0},
	}, {
		name: "only a load balancer's with externalTrafficPolicy Local",
		objects: []any{
			svc("default/a", checked, func(s *corev1.Service) { s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster }),
			svc("default/b", checked, clusterIPs("10.96.0.2"), ofType(corev1.ServiceTypeNodePort)),
			svc("default/c", checked, clusterIPs("10.96.0.3"), func(s *corev1.Service) { s.Spec.HealthCheckNodePort = 0 }),
			svc("default/d", checked, clusterIPs("10.96.0.4"), labelled("service.kubernetes.io/service-proxy-name", "another")),
		},
	}} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			var want []config.HealthCheck
			if tt.want != nil {
				want = []config.HealthCheck{{
					Service: service.ServiceRef{Source: "test", Namespace: "default", Name: "web"}, Port: 32000, Local: tt.want,
				}}
			}
			assert.Equal(t, want, config.Resolve(snapshot(tt.objects...), testNode()).Checks)
		})
	}
}
