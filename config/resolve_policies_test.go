package config_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// runsOn says on which node an endpoint is.
func runsOn(node string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.NodeName = &node }
}

func here(e *discoveryv1.Endpoint)  { runsOn("node-1")(e) }
func there(e *discoveryv1.Endpoint) { runsOn("node-2")(e) }

func externalPolicy(policy string) change {
	return func(s *corev1.Service) {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(policy)
	}
}

func internalPolicy(policy string) change {
	return func(s *corev1.Service) {
		s.Spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicy(policy))
	}
}

func TestSemantics_internalTrafficPolicy(t *testing.T) { localPolicy(t, internalPolicy) }

func TestSemantics_externalTrafficPolicy(t *testing.T) { localPolicy(t, externalPolicy) }

// localPolicy is what both policies have in common: the local endpoints.
func localPolicy(t *testing.T, policy func(string) change) {
	const web = "default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 "
	objects := func(policy change, endpoints ...any) []any {
		return []any{svc("default/web", policy), slice("default/web-a", "web", endpoints...)}
	}
	local := policy("Local")
	runResolveTests(t, []resolveTest{{
		name:    "Cluster asks for none",
		objects: objects(policy("Cluster"), at("10.1.0.1", here), at("10.1.0.2", there)),
		want:    web + "to 10.1.0.1:8080 to 10.1.0.2:8080",
	}, {
		name:    "Local asks for those on this node",
		objects: objects(local, at("10.1.0.1", here), at("10.1.0.2", there), at("10.1.0.3")),
		want:    web + "to 10.1.0.1:8080 to 10.1.0.2:8080 to 10.1.0.3:8080 to local 10.1.0.1:8080",
	}, {
		name:    "none is on this node",
		objects: objects(local, at("10.1.0.2", there)),
		want:    web + "to 10.1.0.2:8080",
	}, {
		name:    "this node has no name",
		node:    func(n *config.Node) { n.Name = "" },
		objects: objects(local, at("10.1.0.1"), at("10.1.0.2", runsOn(""))),
		want:    web + "to 10.1.0.1:8080 to 10.1.0.2:8080",
	}, {
		name:    "of those here none is ready, and one serves while it terminates, though one elsewhere is ready",
		objects: objects(local, at("10.1.0.1", here, leaving(true)), at("10.1.0.2", here, leaving(false)), at("10.1.0.3", here, ready(false)), at("10.1.0.4", there)),
		want: web + `to 10.1.0.4:8080 to local 10.1.0.1:8080
			not 10.1.0.2:8080 (terminating and no longer serving) not 10.1.0.3:8080 (not ready)`,
	}, {
		name:    "one here is ready, so that one that terminates is not picked",
		objects: objects(local, at("10.1.0.1", here, leaving(true)), at("10.1.0.2", here)),
		want:    web + "to 10.1.0.2:8080 to local 10.1.0.2:8080 not 10.1.0.1:8080 (terminating)",
	}, {
		name:    "none is ready anywhere: both lists fall back",
		objects: objects(local, at("10.1.0.1", here, leaving(true)), at("10.1.0.2", there, leaving(true))),
		want:    web + "to 10.1.0.1:8080 to 10.1.0.2:8080 to local 10.1.0.1:8080",
	}, {
		name:    "hints are for traffic that may go anywhere",
		node:    inZoneA,
		objects: objects(local, at("10.1.0.1", here, forZones("b")), at("10.1.0.2", there, forZones("a"))),
		want:    web + "to 10.1.0.2:8080 to local 10.1.0.1:8080",
	}, {
		name:    "one that is refused is not picked here either",
		objects: objects(local, at("127.0.0.1", here), at("10.1.0.2", there)),
		want: web + `to 10.1.0.2:8080 not 127.0.0.1:8080 (loopback address refused)
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[0].addresses[0]`,
	}})
}

func TestSemantics_trafficPolicies_invalid(t *testing.T) {
	runResolveTests(t, []resolveTest{{
		name:    "what is neither Cluster nor Local is reported, and Cluster holds",
		objects: []any{svc("default/web", internalPolicy("local"), externalPolicy("Node")), slice("default/web-a", "web", at("10.1.0.1", here))},
		want: `
			default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			problem InvalidTrafficPolicy in Service default/web spec.externalTrafficPolicy
			problem InvalidTrafficPolicy in Service default/web spec.internalTrafficPolicy`,
	}})
}
