package config_test

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

type v1Endpoints = corev1.Endpoints //nolint:staticcheck // read for Services without slices

// resolveTest is a row of the tables of Resolve: what is known, and everything
// that must come of it, as text prints it.
type resolveTest struct {
	name    string
	node    func(*config.Node) // changes testNode; nil where that will do
	objects []any
	want    string
}

func runResolveTests(t *testing.T, tests []resolveTest) {
	t.Helper()
	t.Parallel()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			n := testNode()
			if tt.node != nil {
				tt.node(&n)
			}
			assert.Equal(t, strip(tt.want), text(config.Resolve(snapshot(tt.objects...), n)))
		})
	}
}

// strip makes a raw string in a table into what text prints: lines may be
// indented, and be broken before "to" and "not".
func strip(s string) string {
	var out []string
	for line := range strings.Lines(s) {
		switch line = strings.TrimSpace(line); {
		case line == "":
		case strings.HasPrefix(line, "to "), strings.HasPrefix(line, "not "):
			out[len(out)-1] += " " + line
		default:
			out = append(out, line)
		}
	}
	return strings.Join(out, "\n")
}

// text prints a resolution, a line for each port and each problem:
//
//	default/web:http/TCP/IPv4 at ClusterIP 10.96.0.1:80 to 10.1.0.1:8080 not 10.1.0.2:8080 (not ready)
//	problem AddressConflict in Service default/web spec.clusterIPs[0]
func text(r config.Resolution) string {
	var lines []string
	for _, p := range r.Ports {
		line := p.String()
		if p.Affinity != 0 {
			line += " affinity " + p.Affinity.String()
		}
		if p.MaxConnections != 0 {
			line += fmt.Sprint(" at most ", p.MaxConnections)
		}
		if p.Sources.Limited {
			line += fmt.Sprint(" from ", p.Sources.Allowed)
		}
		for _, portal := range p.Portals {
			line += " at " + portal.String()
		}
		for _, ep := range p.Endpoints {
			line += " to " + ep.Addr.String()
		}
		for _, ep := range p.Local {
			line += " to local " + ep.Addr.String()
		}
		for _, ep := range p.Unused {
			line += fmt.Sprintf(" not %s (%s)", ep.Addr, ep.Why)
		}
		lines = append(lines, line)
	}
	for _, p := range r.Problems {
		lines = append(lines, strings.TrimSpace(fmt.Sprintf("problem %s in %s %s", p.Reason, p.Object, p.Field)))
	}
	return strings.Join(lines, "\n")
}

// testNode is a dual-stack node with nothing unusual.
func testNode() config.Node {
	v4, v6 := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("2001:db8::1")
	return config.Node{
		Name:              "node-1",
		Primary:           map[service.Family]netip.Addr{service.IPv4: v4, service.IPv6: v6},
		Local:             []netip.Addr{v4, v6},
		NodePortAddresses: []netip.Addr{v4, v6},
		ListenAddrs:       []netip.Addr{netip.MustParseAddr("169.254.77.1"), netip.MustParseAddr("fd77::1")},
		PortRange:         service.PortRange{First: 10000, Last: 29999},
		AllowExternalIPs:  true,
	}
}

func ipv4Only(n *config.Node) {
	delete(n.Primary, service.IPv6)
	n.Local, n.NodePortAddresses = n.Local[:1], n.NodePortAddresses[:1]
}

// from says which source an object is from; without it, that is "test".
type from struct {
	source string
	object any
}

// snapshot is what a ServiceConfig makes of objects, in the order given.
func snapshot(objects ...any) config.Snapshot {
	s := config.Snapshot{Complete: true}
	endpoints := map[string]int{}
	of := func(namespace, name, source string) *config.Endpoints {
		i, known := endpoints[namespace+"/"+name]
		if !known {
			i = len(s.Endpoints)
			endpoints[namespace+"/"+name] = i
			s.Endpoints = append(s.Endpoints, config.Endpoints{Namespace: namespace, Name: name, Source: source})
		}
		return &s.Endpoints[i]
	}
	for _, o := range objects {
		source := "test"
		if f, ok := o.(from); ok {
			source, o = f.source, f.object
		}
		switch o := o.(type) {
		case *corev1.Service:
			s.Services = append(s.Services, config.Service{Service: o, Source: source})
		case *discoveryv1.EndpointSlice:
			e := of(o.Namespace, o.Labels[discoveryv1.LabelServiceName], source)
			e.Slices = append(e.Slices, o)
		case *v1Endpoints:
			of(o.Namespace, o.Name, source).Endpoints = o
		default:
			panic(fmt.Sprintf("no snapshot holds a %T", o))
		}
	}
	return s
}

// meta is the metadata of "namespace/name".
func meta(name string) metav1.ObjectMeta {
	namespace, name, _ := strings.Cut(name, "/")
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{}}
}

type change = func(*corev1.Service)

// svc is a Service at 10.96.0.1 with the port http 80/TCP, and changes to it.
func svc(name string, changes ...change) *corev1.Service {
	s := &corev1.Service{ObjectMeta: meta(name)}
	s.Spec.ClusterIPs = []string{"10.96.0.1"}
	s.Spec.Ports = []corev1.ServicePort{tcp("http", 80)}
	for _, c := range changes {
		c(s)
	}
	return s
}

func clusterIPs(ips ...string) change {
	return func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = "", ips }
}

func clusterIP(ip string) change {
	return func(s *corev1.Service) { s.Spec.ClusterIP, s.Spec.ClusterIPs = ip, nil }
}

func externalIPs(ips ...string) change {
	return func(s *corev1.Service) { s.Spec.ExternalIPs = ips }
}

func ofType(t corev1.ServiceType) change {
	return func(s *corev1.Service) { s.Spec.Type = t }
}

func labelled(key, value string) change {
	return func(s *corev1.Service) { s.Labels[key] = value }
}

func annotated(key, value string) change {
	return func(s *corev1.Service) { s.Annotations = map[string]string{key: value} }
}

// created sets the creationTimestamp, in hours.
func created(hour int) change {
	return func(s *corev1.Service) {
		s.CreationTimestamp = metav1.NewTime(time.Date(2024, 1, 1, hour, 0, 0, 0, time.UTC))
	}
}

func ports(ports ...corev1.ServicePort) change {
	return func(s *corev1.Service) { s.Spec.Ports = ports }
}

func tcp(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolTCP, Port: number}
}

func udp(name string, number int32) corev1.ServicePort {
	return corev1.ServicePort{Name: name, Protocol: corev1.ProtocolUDP, Port: number}
}

// on gives a port a node port.
func on(nodePort int32, p corev1.ServicePort) corev1.ServicePort {
	p.NodePort = nodePort
	return p
}

// nodePorts makes a Service one with node ports: http 80/TCP on a number.
func nodePorts(number int32) change {
	return func(s *corev1.Service) {
		s.Spec.Type, s.Spec.Ports = corev1.ServiceTypeNodePort, []corev1.ServicePort{on(number, tcp("http", 80))}
	}
}

// ingress is status.loadBalancer of a LoadBalancer Service.
func ingress(list ...corev1.LoadBalancerIngress) change {
	return func(s *corev1.Service) {
		s.Spec.Type, s.Status.LoadBalancer.Ingress = corev1.ServiceTypeLoadBalancer, list
	}
}

func vip(ip string) corev1.LoadBalancerIngress { return corev1.LoadBalancerIngress{IP: ip} }

func sourceRanges(ranges ...string) change {
	return func(s *corev1.Service) { s.Spec.LoadBalancerSourceRanges = ranges }
}

type sliceChange = func(*discoveryv1.EndpointSlice)

// slice is the slice default/web-a of the Service default/web: IPv4 addresses
// with the port http 8080/TCP, and changes to it.
func slice(name, ofService string, changes ...any) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{ObjectMeta: meta(name), AddressType: discoveryv1.AddressTypeIPv4}
	s.Labels[discoveryv1.LabelServiceName] = ofService
	s.Ports = []discoveryv1.EndpointPort{target("http", 8080)}
	for _, c := range changes {
		switch c := c.(type) {
		case discoveryv1.Endpoint:
			s.Endpoints = append(s.Endpoints, c)
		case sliceChange:
			c(s)
		default:
			panic(fmt.Sprintf("no slice takes a %T", c))
		}
	}
	return s
}

func addressType(t discoveryv1.AddressType) sliceChange {
	return func(s *discoveryv1.EndpointSlice) { s.AddressType = t }
}

func targets(ports ...discoveryv1.EndpointPort) sliceChange {
	return func(s *discoveryv1.EndpointSlice) { s.Ports = ports }
}

func target(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number}
}

func udpTarget(name string, number int32) discoveryv1.EndpointPort {
	return discoveryv1.EndpointPort{Name: &name, Port: &number, Protocol: ptr.To(corev1.ProtocolUDP)}
}

// at is an endpoint without conditions, and changes to it.
func at(address string, changes ...func(*discoveryv1.Endpoint)) discoveryv1.Endpoint {
	e := discoveryv1.Endpoint{Addresses: []string{address}}
	for _, c := range changes {
		c(&e)
	}
	return e
}

func ready(is bool) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) { e.Conditions.Ready = &is }
}

// leaving is an endpoint that terminates, and whether it serves meanwhile.
func leaving(serving bool) func(*discoveryv1.Endpoint) {
	return func(e *discoveryv1.Endpoint) {
		e.Conditions = discoveryv1.EndpointConditions{Ready: ptr.To(false), Serving: &serving, Terminating: ptr.To(true)}
	}
}
