package config

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// labelProxyName, whatever its value, gives a Service to another proxy.
const labelProxyName = "service.kubernetes.io/service-proxy-name"

// The idle times of ClientIP affinity that the API allows, and its default.
const (
	defaultAffinity = 10800 * time.Second
	maxAffinity     = 86400 * time.Second
)

// want is one Service as it asks to be served, before anybody knows who gets
// which address.
type want struct {
	svc       Service
	name      types.NamespacedName
	families  []service.Family // of its cluster addresses; in these it has node ports
	addresses []wantAddress    // at which each of its ports asks to be a portal; of one that comes twice, the first counts
	affinity  time.Duration
	ports     []*wantPort

	maxConnections int // 0: no limit

	internalLocal, externalLocal bool                                    // traffic policies
	sources                      map[service.Family]service.SourceRanges // who may come to load balancer addresses

	speaks []service.Family // families in which it has endpoints, of whatever condition
}

type wantAddress struct {
	kind  service.PortalKind
	addr  netip.Addr
	field fieldPath
}

type wantPort struct {
	index      int // in spec.ports
	name       service.PortName
	port       uint16
	nodePort   uint16           // 0: none
	portals    []service.Portal // those that it got
	candidates []candidate      // its endpoints in both families, sorted by address
}

// readServices is what the Services that are ours to serve ask for.
func (r *resolver) readServices(list []Service) []*want {
	wants := make([]*want, 0, len(list))
	for _, svc := range list {
		if svc.Service == nil {
			continue
		}
		if _, others := svc.Labels[labelProxyName]; others {
			continue
		}
		w := &want{svc: svc, name: types.NamespacedName{Namespace: svc.Namespace, Name: svc.Name}}
		if !r.readType(w) || !r.readClusterIPs(w) {
			continue
		}
		r.readLoadBalancerIPs(w) // before the externalIPs: of one address given as both, the stricter kind counts
		r.readExternalIPs(w)
		r.readAffinity(w)
		r.readPolicies(w)
		r.readAnnotations(w)
		r.readPorts(w)
		wants = append(wants, w)
	}
	return wants
}

// readType says whether a Service of its type is served at all.
func (r *resolver) readType(w *want) bool {
	switch t := w.svc.Spec.Type; t {
	case corev1.ServiceTypeExternalName:
		return false
	case "", corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer:
	default:
		r.reportService(w, wholeField("spec.type"), ReasonInvalidType,
			fmt.Sprintf("%q is no type of Service; it is served as a ClusterIP", t),
			"write ClusterIP, NodePort, LoadBalancer or ExternalName")
	}
	return true
}

// hasNodePorts says whether Services of a type have node ports.
func hasNodePorts(t corev1.ServiceType) bool {
	return t == corev1.ServiceTypeNodePort || t == corev1.ServiceTypeLoadBalancer
}

// readClusterIPs reads spec.clusterIPs, or spec.clusterIP where the list is
// empty. False: the Service is not served. It need not have a cluster address
// where it has external ones, as the first proxy's own form has it in files.
func (r *resolver) readClusterIPs(w *want) bool {
	spec := &w.svc.Spec
	ips, field := spec.ClusterIPs, func(i int) fieldPath { return fieldPath{before: "spec.clusterIPs", index: i} }
	isSet := func(ip string) bool { return ip != "" }
	if !slices.ContainsFunc(ips, isSet) {
		ips, field = []string{spec.ClusterIP}, func(int) fieldPath { return wholeField("spec.clusterIP") }
	}
	if slices.Contains(ips, corev1.ClusterIPNone) {
		return false
	}
	if !slices.ContainsFunc(ips, isSet) {
		if len(spec.ExternalIPs) > 0 {
			return true
		}
		r.reportService(w, wholeField("spec.clusterIP"), ReasonNoClusterIP, "is empty, so the Service is not served",
			"write an address, which only an API server does by itself, or None if it is to be headless")
		return false
	}
	for i, ip := range ips {
		if ip == "" {
			continue
		}
		if a := r.readAddress(w, service.ClusterIP, ip, field(i)); a.IsValid() {
			w.families = append(w.families, service.FamilyOf(a))
		}
	}
	if len(w.families) == 0 { // none can be read; the node ports need not suffer
		for _, f := range spec.IPFamilies {
			w.families = append(w.families, service.Family(f))
		}
	}
	return true
}

// readExternalIPs reads spec.externalIPs, where they are allowed.
func (r *resolver) readExternalIPs(w *want) {
	ips := w.svc.Spec.ExternalIPs
	if len(ips) > 0 && !r.node.AllowExternalIPs {
		r.reportService(w, wholeField("spec.externalIPs"), ReasonExternalIPsNotAllowed,
			"are not served: --allow-external-ips is false", "use a LoadBalancer or NodePort Service, or allow them")
		return
	}
	for i, ip := range ips {
		r.readAddress(w, service.ExternalIP, ip, fieldPath{before: "spec.externalIPs", index: i})
	}
}

// readLoadBalancerIPs reads the addresses in status.loadBalancer that this
// node is to answer: not host names, and not those (ipMode Proxy) whose traffic
// must pass the load balancer itself.
func (r *resolver) readLoadBalancerIPs(w *want) {
	before := len(w.addresses)
	for i, in := range w.svc.Status.LoadBalancer.Ingress {
		if in.IP == "" || in.IPMode != nil && *in.IPMode != corev1.LoadBalancerIPModeVIP {
			continue
		}
		r.readAddress(w, service.LoadBalancer, in.IP, fieldPath{"status.loadBalancer.ingress", i, ".ip"})
	}
	if len(w.addresses) > before {
		r.readSourceRanges(w, w.addresses[before:])
	}
}

// readAddress reads an address at which a Service asks for portals, and adds it
// where it can have them. What it returns is not valid if it is no address.
func (r *resolver) readAddress(w *want, kind service.PortalKind, s string, field fieldPath) netip.Addr {
	a, err := parseAddr(s)
	if err != nil {
		r.reportService(w, field, ReasonInvalidAddress, err.Error(), "write an IPv4 or IPv6 address")
		return netip.Addr{}
	}
	if bad := unfit(a, r.node.NoRedirect || r.node.AllowLoopbackFrom[w.svc.Source]); bad != "" {
		r.reportService(w, field, ReasonRefusedAddress,
			fmt.Sprintf("%s: a Service cannot have a %s address", a, bad), "choose another address")
		return a
	}
	if f := service.FamilyOf(a); !r.node.has(f) {
		r.missing[f] = true
		return a
	}
	if kind != service.ClusterIP {
		r.external[a] = true
	}
	w.addresses = append(w.addresses, wantAddress{kind: kind, addr: a, field: field})
	return a
}

// readAffinity reads spec.sessionAffinity.
func (r *resolver) readAffinity(w *want) {
	switch a := w.svc.Spec.SessionAffinity; a {
	case corev1.ServiceAffinityClientIP:
		w.affinity = defaultAffinity
	case "", corev1.ServiceAffinityNone:
		return
	default:
		r.reportService(w, wholeField("spec.sessionAffinity"), ReasonInvalidSessionAffinity,
			fmt.Sprintf("%q is no kind of affinity; there is none", a), "write None or ClientIP")
		return
	}
	c := w.svc.Spec.SessionAffinityConfig
	if c == nil || c.ClientIP == nil || c.ClientIP.TimeoutSeconds == nil {
		return
	}
	t := time.Duration(*c.ClientIP.TimeoutSeconds) * time.Second
	if t <= 0 || t > maxAffinity {
		r.reportService(w, wholeField("spec.sessionAffinityConfig.clientIP.timeoutSeconds"), ReasonInvalidSessionAffinity,
			fmt.Sprintf("%d is not between 1 and %d; the default of %d holds", *c.ClientIP.TimeoutSeconds,
				int(maxAffinity.Seconds()), int(defaultAffinity.Seconds())),
			"write a number of seconds up to a day")
		return
	}
	w.affinity = t
}

// readPolicies reads which traffic must stay on this node.
func (r *resolver) readPolicies(w *want) {
	spec := &w.svc.Spec
	w.externalLocal = r.readPolicy(w, "spec.externalTrafficPolicy", string(spec.ExternalTrafficPolicy))
	w.internalLocal = r.readPolicy(w, "spec.internalTrafficPolicy", string(deref(spec.InternalTrafficPolicy, "")))
}

// readPolicy says whether a policy is Local.
func (r *resolver) readPolicy(w *want, field, policy string) bool {
	switch policy {
	case string(corev1.ServiceExternalTrafficPolicyLocal):
		return true
	case "", string(corev1.ServiceExternalTrafficPolicyCluster):
	default:
		r.reportService(w, wholeField(field), ReasonInvalidTrafficPolicy,
			fmt.Sprintf("%q is no traffic policy; that of Cluster holds", policy), "write Cluster or Local")
	}
	return false
}
