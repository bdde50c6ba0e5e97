package manifest

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The functions here fill in what an API server would, as far as it matters to
// a proxy, so that a Service written by hand means the same as one from a
// cluster. They come before the checks and touch nothing that is written.

// Complete does so for an object that was read by other means than Decode.
func (o *Object) Complete() {
	switch {
	case o.Service != nil:
		completeService(o.Service)
	case o.Slice != nil:
		completeSlice(o.Slice)
	case o.Endpoints != nil:
		completeEndpoints(o.Endpoints)
	}
}

func completeMeta(m *metav1.ObjectMeta, namespace string) {
	if m.Namespace == "" {
		m.Namespace = namespace
	}
}

func completeService(s *corev1.Service) {
	spec := &s.Spec
	if spec.Type == "" {
		spec.Type = corev1.ServiceTypeClusterIP
	}
	for i := range spec.Ports {
		if spec.Ports[i].Protocol == "" {
			spec.Ports[i].Protocol = corev1.ProtocolTCP
		}
	}
	completeAffinity(spec)
	if spec.InternalTrafficPolicy == nil && spec.Type != corev1.ServiceTypeExternalName {
		spec.InternalTrafficPolicy = ptr.To(corev1.ServiceInternalTrafficPolicyCluster)
	}
	external := spec.Type == corev1.ServiceTypeNodePort || spec.Type == corev1.ServiceTypeLoadBalancer ||
		len(spec.ExternalIPs) > 0
	if spec.ExternalTrafficPolicy == "" && external {
		spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyCluster
	}
	completeClusterIPs(spec)
}

func completeAffinity(spec *corev1.ServiceSpec) {
	switch spec.SessionAffinity {
	case "":
		spec.SessionAffinity = corev1.ServiceAffinityNone
	case corev1.ServiceAffinityClientIP:
		if spec.SessionAffinityConfig == nil {
			spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{}
		}
		config := spec.SessionAffinityConfig
		if config.ClientIP == nil {
			config.ClientIP = &corev1.ClientIPConfig{}
		}
		if config.ClientIP.TimeoutSeconds == nil {
			config.ClientIP.TimeoutSeconds = ptr.To(corev1.DefaultClientIPServiceAffinitySeconds)
		}
	}
}

// completeClusterIPs makes clusterIP and clusterIPs agree where one is left
// out, and names the families of the addresses.
func completeClusterIPs(spec *corev1.ServiceSpec) {
	switch {
	case spec.Type == corev1.ServiceTypeExternalName:
		return
	case spec.ClusterIP == "" && len(spec.ClusterIPs) > 0:
		spec.ClusterIP = spec.ClusterIPs[0]
	case spec.ClusterIP != "" && len(spec.ClusterIPs) == 0:
		spec.ClusterIPs = []string{spec.ClusterIP}
	}
	if len(spec.IPFamilies) > 0 {
		return
	}
	for _, ip := range spec.ClusterIPs {
		if a, err := netip.ParseAddr(ip); err == nil {
			spec.IPFamilies = append(spec.IPFamilies, familyOf(a))
		}
	}
}

func completeSlice(s *discoveryv1.EndpointSlice) {
	for i := range s.Ports {
		p := &s.Ports[i]
		if p.Name == nil {
			p.Name = ptr.To("")
		}
		if p.Protocol == nil {
			p.Protocol = ptr.To(corev1.ProtocolTCP)
		}
	}
}

//nolint:staticcheck // see Object
func completeEndpoints(e *corev1.Endpoints) {
	for i := range e.Subsets {
		for j := range e.Subsets[i].Ports {
			if p := &e.Subsets[i].Ports[j]; p.Protocol == "" {
				p.Protocol = corev1.ProtocolTCP
			}
		}
	}
}

func familyOf(a netip.Addr) corev1.IPFamily {
	if a.Is4() {
		return corev1.IPv4Protocol
	}
	return corev1.IPv6Protocol
}
