package anyservices

import (
	"fmt"
	"math/rand/v2"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// dice choose.
type dice struct{ *rand.Rand }

func pick[T any](d dice, of ...T) T { return of[d.IntN(len(of))] }

// seldom is true once in n times.
func (d dice) seldom(n int) bool { return d.IntN(n) == 0 }

// Snapshot has n Services with slices. Equal seeds make equal ones.
func Snapshot(seed uint64, n int) config.Snapshot {
	d := dice{rand.New(rand.NewPCG(seed, 9))} //nolint:gosec // it is to be the same for a seed
	s := config.Snapshot{Complete: true}
	for i := range n {
		svc := d.service(i)
		s.Services = append(s.Services, config.Service{Service: svc, Source: "random"})
		if d.seldom(8) {
			continue
		}
		e := config.Endpoints{Namespace: svc.Namespace, Name: svc.Name, Source: "random"}
		for j := range 1 + d.IntN(2) {
			e.Slices = append(e.Slices, d.slice(svc, i, j))
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// garbage is what no field takes.
func (d dice) garbage() string {
	return pick(d, "", "None", "0.0.0.0", "::", "127.0.0.1", "fe80::1", "224.0.0.1", "10.96.0", "host.example", "10.0.0.0/8", "\"; drop", "fd96::1%lo", "255.255.255.255")
}

func (d dice) clusterIPs(i int) []string {
	v4, v6 := fmt.Sprintf("10.96.%d.%d", i/250%250, 1+i%250), fmt.Sprintf("fd96::%x", i+1)
	switch d.IntN(10) {
	case 0:
		return []string{v6}
	case 1:
		return []string{d.garbage()}
	case 2:
		return []string{v4, d.garbage()}
	case 3:
		return []string{"10.96.0.1"} // taken
	case 4, 5, 6:
		return []string{v4, v6}
	}
	return []string{v4}
}

func (d dice) external(i int) string {
	switch d.IntN(12) {
	case 0:
		return d.garbage()
	case 1:
		return "10.10.2.1" // the node's
	case 2, 3, 4:
		return fmt.Sprintf("2001:db8::%x", i%4000)
	}
	return fmt.Sprintf("203.%d.%d.%d", d.IntN(2), i/250%250, 1+i%250)
}

func (d dice) service(i int) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: pick(d, "default", "kube-system"), Name: fmt.Sprint("s", i)}}
	s.Spec.ClusterIPs = d.clusterIPs(i)
	s.Spec.Type = pick(d, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeLoadBalancer)
	if d.seldom(50) {
		s.Spec.Type = pick(d, corev1.ServiceTypeExternalName, corev1.ServiceType("odd"))
	}
	for j := range 1 + d.IntN(2) {
		p := corev1.ServicePort{Name: fmt.Sprint("p", j), Protocol: pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP), Port: int32(80 + j)}
		if d.seldom(20) {
			p.Protocol, p.Port = pick(d, "", corev1.ProtocolSCTP, "odd"), pick[int32](d, 0, -1, 65536, 65535, 10000)
		}
		if s.Spec.Type != corev1.ServiceTypeClusterIP && d.IntN(2) == 0 {
			p.NodePort = int32(30000 + d.IntN(2768))
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	if d.seldom(4) {
		s.Spec.ExternalIPs = []string{d.external(i)}
	}
	if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
		for range 1 + d.IntN(2) {
			s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: d.external(i)})
		}
	}
	d.policies(s)
	return s
}

func (d dice) policies(s *corev1.Service) {
	if d.IntN(2) == 0 {
		s.Spec.ExternalTrafficPolicy = pick(d, corev1.ServiceExternalTrafficPolicyLocal, corev1.ServiceExternalTrafficPolicyLocal, "odd", "")
	}
	if d.IntN(2) == 0 {
		p := pick(d, corev1.ServiceInternalTrafficPolicyLocal, corev1.ServiceInternalTrafficPolicyLocal, "odd", "")
		s.Spec.InternalTrafficPolicy = &p
	}
	if d.IntN(2) == 0 {
		for range 1 + d.IntN(4) {
			s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, pick(d,
				"10.10.1.0/24", " 10.10.3.2/32", "10.10.2.1/31", "10.0.0.0/8", "fd10:1::/64", "fd10::/16", "fd10:3::2/128", "192.0.2.7/32",
				"0.0.0.0/0", "::/0", "everyone", "10.0.0.0/33", "::ffff:10.10.1.0/120"))
		}
	}
}

func (d dice) slice(svc *corev1.Service, i, j int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Namespace: svc.Namespace, Name: fmt.Sprint(svc.Name, "-", j)},
		AddressType: pick(d, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv4, discoveryv1.AddressTypeIPv6),
	}
	for k := range 2 {
		name, port, protocol := fmt.Sprint("p", k), int32(8080), pick(d, corev1.ProtocolTCP, corev1.ProtocolUDP)
		s.Ports = append(s.Ports, discoveryv1.EndpointPort{Name: &name, Port: &port, Protocol: &protocol})
	}
	for k := range d.IntN(4) {
		address := fmt.Sprintf("10.244.%d.%d", i/250%250, 1+(i+k)%250)
		if s.AddressType == discoveryv1.AddressTypeIPv6 {
			address = fmt.Sprintf("fd44::%x:%x", i, k)
		}
		if d.seldom(20) {
			address = d.garbage()
		}
		e := discoveryv1.Endpoint{Addresses: []string{address}}
		node := pick(d, "node-a", "node-b")
		e.NodeName = &node
		if d.seldom(3) {
			yes, no := true, false
			e.Conditions = discoveryv1.EndpointConditions{Ready: pick(d, &yes, &no, nil), Serving: pick(d, &yes, &no), Terminating: pick(d, &yes, &no)}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}
