package config

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// HealthCheck is a port at which load balancers ask whether this node has
// endpoints of a Service (spec.healthCheckNodePort).
type HealthCheck struct {
	Service service.ServiceRef
	Port    uint16
	Local   map[service.Family]int // ready endpoints on this node, in each family that the Service has
}

// healthCheck is a Service's, where it has one. Like kube-proxy it counts
// addresses: a pod is one, however many ports it has. Those that lead nowhere
// must have been refused.
func (r *resolver) healthCheck(w *want) (HealthCheck, bool) {
	port, ok := portNumber(w.svc.Spec.HealthCheckNodePort)
	if !ok || w.svc.Spec.Type != corev1.ServiceTypeLoadBalancer || !w.externalLocal {
		return HealthCheck{}, false
	}
	check := HealthCheck{
		Service: service.ServiceRef{Source: w.svc.Source, Namespace: w.name.Namespace, Name: w.name.Name},
		Port:    port, Local: map[service.Family]int{},
	}
	for _, f := range w.families {
		here := map[netip.Addr]bool{}
		for _, p := range w.ports {
			for _, c := range candidatesFor(w, p, f) {
				if c.usable() && c.Node != "" && c.Node == r.node.Name {
					here[c.addr] = true
				}
			}
		}
		check.Local[f] = len(here)
	}
	return check, true
}
