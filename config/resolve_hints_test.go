package config_test

import (
	"testing"

	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// forNodes hints at nodes.
func forNodes(names ...string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		if e.Hints == nil {
			e.Hints = &discoveryv1.EndpointHints{}
		}
		for _, n := range names {
			e.Hints.ForNodes = append(e.Hints.ForNodes, discoveryv1.ForNode{Name: n})
		}
	}
}

// forZones hints at zones.
func forZones(names ...string) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		if e.Hints == nil {
			e.Hints = &discoveryv1.EndpointHints{}
		}
		for _, n := range names {
			e.Hints.ForZones = append(e.Hints.ForZones, discoveryv1.ForZone{Name: n})
		}
	}
}

func inZoneA(n *config.Node) { n.Zone = "a" }

func TestSemantics_hints(t *testing.T) {
	const both = `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 to 10.1.0.2:8080`
	web := func(endpoints ...any) []any {
		return []any{svc("default/web"), slice("default/web-a", "web", endpoints...)}
	}
	runResolveTests(t, []resolveTest{{
		name:    "zones: all have them and one names ours",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("a")), at("10.1.0.2", forZones("b")), at("10.1.0.3", forZones("b", "a"))),
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 to 10.1.0.3:8080
			not 10.1.0.2:8080 (meant for other zones)`,
	}, {
		name:    "zones: one endpoint has none",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("a")), at("10.1.0.2")),
		want:    both,
	}, {
		name:    "zones: one has a hint of another kind only",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("a")), at("10.1.0.2", forNodes("node-2"))),
		want:    both,
	}, {
		name:    "zones: none names ours",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("b")), at("10.1.0.2", forZones("c"))),
		want:    both,
	}, {
		name:    "zones: nobody knows ours",
		objects: web(at("10.1.0.1", forZones("a")), at("10.1.0.2", forZones(""))),
		want:    both,
	}, {
		name:    "nodes: all have them and one names ours",
		objects: web(at("10.1.0.1", forNodes("node-2")), at("10.1.0.2", forNodes("node-2", "node-1"))),
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.2:8080
			not 10.1.0.1:8080 (meant for other nodes)`,
	}, {
		name: "nodes come before zones",
		node: inZoneA,
		objects: web(at("10.1.0.1", forZones("a"), forNodes("node-2")), at("10.1.0.2", forZones("a"), forNodes("node-1")),
			at("10.1.0.3", forZones("b"), forNodes("node-1"))),
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.2:8080 to 10.1.0.3:8080
			not 10.1.0.1:8080 (meant for other nodes)`,
	}, {
		name:    "none names our node: zones count",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("a"), forNodes("node-2")), at("10.1.0.2", forZones("b"), forNodes("node-3"))),
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			not 10.1.0.2:8080 (meant for other zones)`,
	}, {
		name:    "one has no hint for nodes: zones count",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("a")), at("10.1.0.2", forZones("b"), forNodes("node-1"))),
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			not 10.1.0.2:8080 (meant for other zones)`,
	}, {
		name: "only ready ones are asked",
		node: inZoneA,
		objects: web(at("10.1.0.1", forZones("a")), at("10.1.0.2", ready(false)), at("10.1.0.3", leaving(true)),
			at("169.254.0.1")),
		want: `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080
			not 10.1.0.2:8080 (not ready) not 10.1.0.3:8080 (terminating)
			not 169.254.0.1:8080 (link-local address refused)
			problem RefusedEndpoint in EndpointSlice default/web-a endpoints[3].addresses[0]`,
	}, {
		name:    "ours is not ready: hints of the others leave us nothing, so they are ignored",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("a"), ready(false)), at("10.1.0.2", forZones("b"))),
		want:    `default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.2:8080 not 10.1.0.1:8080 (not ready)`,
	}, {
		name:    "none is ready: hints do not count among those that terminate",
		node:    inZoneA,
		objects: web(at("10.1.0.1", forZones("a"), leaving(true)), at("10.1.0.2", forZones("b"), leaving(true))),
		want:    both,
	}, {
		name: "hints are those of all slices",
		node: inZoneA,
		objects: []any{svc("default/web"), slice("default/web-a", "web", at("10.1.0.1", forZones("a"))),
			slice("default/web-b", "web", at("10.1.0.2"))},
		want: both,
	}})
}
