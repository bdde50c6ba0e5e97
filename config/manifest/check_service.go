package manifest

import (
	"fmt"
	"net/netip"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func (c *cursor) checkService(s *corev1.Service) {
	c.checkMeta(&s.ObjectMeta, false)
	at, spec := top("spec"), &s.Spec
	checkOneOf(c, at.child("type"), spec.Type, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort,
		corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeExternalName)
	c.checkServicePorts(at, spec)
	c.checkClusterIPs(at, spec)
	for i, ip := range spec.ExternalIPs {
		c.checkAddr(at.child("externalIPs").item(i), ip)
	}
	for i, r := range spec.LoadBalancerSourceRanges {
		if _, err := netip.ParsePrefix(strings.TrimSpace(r)); err != nil {
			c.fault(at.child("loadBalancerSourceRanges").item(i), ReasonInvalidValue, quoted(r)+" is no range of addresses",
				"write it like 192.0.2.0/24")
		}
	}
	c.checkAffinity(at, spec)
	c.checkPolicies(at, spec)
	ingress := top("status").child("loadBalancer").child("ingress")
	for i := range s.Status.LoadBalancer.Ingress {
		in := &s.Status.LoadBalancer.Ingress[i]
		if in.IP != "" {
			c.checkAddr(ingress.item(i).child("ip"), in.IP)
		}
		if in.IPMode != nil {
			checkOneOf(c, ingress.item(i).child("ipMode"), *in.IPMode,
				corev1.LoadBalancerIPModeVIP, corev1.LoadBalancerIPModeProxy)
		}
	}
}

func (c *cursor) checkServicePorts(at *path, spec *corev1.ServiceSpec) {
	ports := at.child("ports")
	if len(spec.Ports) == 0 && spec.ClusterIP != corev1.ClusterIPNone && spec.Type != corev1.ServiceTypeExternalName {
		c.fault(ports, ReasonMissingValue, "is empty", "list at least one port")
	}
	type number struct {
		protocol corev1.Protocol
		port     int32
	}
	names, numbers := map[string]bool{}, map[number]bool{}
	for i := range spec.Ports {
		p, at := &spec.Ports[i], ports.item(i)
		c.checkPortName(at.child("name"), p.Name, len(spec.Ports) > 1, names)
		c.checkProtocol(at.child("protocol"), p.Protocol)
		c.checkPort(at.child("port"), p.Port)
		if n := (number{p.Protocol, p.Port}); numbers[n] {
			c.fault(at.child("port"), ReasonInvalidValue,
				fmt.Sprintf("%s port %d is an earlier port of this Service too", p.Protocol, p.Port), "leave one out")
		} else {
			numbers[n] = true
		}
		if p.NodePort == 0 {
			continue
		}
		c.checkPort(at.child("nodePort"), p.NodePort)
		if spec.Type == corev1.ServiceTypeClusterIP || spec.Type == corev1.ServiceTypeExternalName {
			c.fault(at.child("nodePort"), ReasonInvalidValue, "is for Services of type NodePort and LoadBalancer, this one is "+
				string(spec.Type), "write type: NodePort")
		}
	}
}

func (c *cursor) checkClusterIPs(at *path, spec *corev1.ServiceSpec) {
	for i, f := range spec.IPFamilies {
		checkOneOf(c, at.child("ipFamilies").item(i), f, corev1.IPv4Protocol, corev1.IPv6Protocol)
	}
	if spec.Type == corev1.ServiceTypeExternalName {
		return // it has no addresses; those that are written mean nothing
	}
	ips := at.child("clusterIPs")
	// Where only one of the two fields is written, the fault is told there.
	if n, whole := ips.find(c.root); !whole || len(n.Content) == 0 {
		ips = nil
	}
	if len(spec.ClusterIPs) > 0 && spec.ClusterIP != spec.ClusterIPs[0] {
		c.fault(at.child("clusterIP"), ReasonInvalidValue,
			fmt.Sprintf("%s is not clusterIPs[0], %s", quoted(spec.ClusterIP), quoted(spec.ClusterIPs[0])), "leave out clusterIP")
	}
	families := map[corev1.IPFamily]bool{}
	for i, ip := range spec.ClusterIPs {
		field := ips.item(i)
		if ips == nil {
			field = at.child("clusterIP")
		}
		if ip == corev1.ClusterIPNone {
			if len(spec.ClusterIPs) > 1 {
				c.fault(field, ReasonInvalidValue, "None stands beside an address", "leave out one or the other")
			}
			return
		}
		a, ok := c.checkAddr(field, ip)
		if !ok {
			continue
		}
		family := familyOf(a)
		switch {
		case families[family]:
			c.fault(field, ReasonInvalidValue, "is a second "+string(family)+" address", "use one address of each family")
		case i < len(spec.IPFamilies) && spec.IPFamilies[i] != family:
			c.fault(field, ReasonInvalidValue, fmt.Sprintf("%s is %s, ipFamilies[%d] says %s", ip, family, i, spec.IPFamilies[i]),
				"bring both into one order or leave out ipFamilies")
		}
		families[family] = true
	}
}

func (c *cursor) checkAffinity(at *path, spec *corev1.ServiceSpec) {
	checkOneOf(c, at.child("sessionAffinity"), spec.SessionAffinity, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone)
	config := spec.SessionAffinityConfig
	if config == nil || config.ClientIP == nil || config.ClientIP.TimeoutSeconds == nil {
		return
	}
	const day = 24 * 60 * 60
	if seconds := *config.ClientIP.TimeoutSeconds; seconds < 1 || seconds > day {
		c.fault(at.child("sessionAffinityConfig").child("clientIP").child("timeoutSeconds"), ReasonInvalidValue,
			fmt.Sprintf("%d is out of range", seconds), "use 1 to 86400, a day")
	}
}

func (c *cursor) checkPolicies(at *path, spec *corev1.ServiceSpec) {
	if spec.InternalTrafficPolicy != nil {
		checkOneOf(c, at.child("internalTrafficPolicy"), *spec.InternalTrafficPolicy,
			corev1.ServiceInternalTrafficPolicyCluster, corev1.ServiceInternalTrafficPolicyLocal)
	}
	checkOneOf(c, at.child("externalTrafficPolicy"), spec.ExternalTrafficPolicy,
		"", corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)
	if spec.HealthCheckNodePort != 0 {
		c.checkPort(at.child("healthCheckNodePort"), spec.HealthCheckNodePort)
	}
}
