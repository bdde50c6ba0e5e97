package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"
)

// Protocol is a transport protocol that the proxy serves, written as the
// Kubernetes API writes it.
type Protocol string

// The protocols that the proxy serves.
const (
	TCP Protocol = "TCP"
	UDP Protocol = "UDP"
)

// Lower is the protocol as net.Listen, nft and iptables write it.
func (p Protocol) Lower() string { return strings.ToLower(string(p)) }

// Family is an IP address family, written as spec.ipFamilies writes it.
type Family string

// The two address families.
const (
	IPv4 Family = "IPv4"
	IPv6 Family = "IPv6"
)

// Families lists both families in the order in which they are shown.
func Families() []Family { return []Family{IPv4, IPv6} }

// FamilyOf is the family of an address. An IPv4 address mapped into IPv6
// counts as IPv4, as the kernel treats it.
func FamilyOf(a netip.Addr) Family {
	if a.Unmap().Is4() {
		return IPv4
	}
	return IPv6
}

// PortName names one port of one Service for as long as it exists, whatever
// its number, addresses or source.
type PortName struct {
	Namespace string
	Name      string
	Port      string // the port's name; empty where the Service has one unnamed port
	Protocol  Protocol
}

// String is the name as kube-proxy prints it, with the protocol after it:
// "default/web:http/TCP".
func (p PortName) String() string {
	s := p.Namespace + "/" + p.Name
	if p.Port != "" {
		s += ":" + p.Port
	}
	return s + "/" + string(p.Protocol)
}

// Key names one service port in one address family. It is what listeners,
// balancers and counters are kept by: a dual-stack port is two keys.
type Key struct {
	PortName
	Family Family
}

// String is the port's name and its family: "default/web:http/TCP/IPv4".
func (k Key) String() string { return k.PortName.String() + "/" + string(k.Family) }

// Compare orders keys by namespace, name, port, protocol and family.
func (k Key) Compare(o Key) int {
	return cmp.Or(
		cmp.Compare(k.Namespace, o.Namespace),
		cmp.Compare(k.Name, o.Name),
		cmp.Compare(k.Port, o.Port),
		cmp.Compare(k.Protocol, o.Protocol),
		cmp.Compare(k.Family, o.Family),
	)
}

// PortalKind says by which field of a Service an address leads to it.
type PortalKind string

// The kinds of portals. "Portal" is what the first service proxy called an
// address and port at which clients find a service.
const (
	ClusterIP    PortalKind = "ClusterIP"
	ExternalIP   PortalKind = "ExternalIP"
	LoadBalancer PortalKind = "LoadBalancer"
	NodePort     PortalKind = "NodePort"
)

// Portal is one address and port at which clients find a service port.
type Portal struct {
	Kind PortalKind
	Addr netip.AddrPort
}

// String is the portal as people write it: "ClusterIP 10.96.0.10:80".
func (p Portal) String() string { return fmt.Sprintf("%s %s", p.Kind, p.Addr) }

// Endpoint is one address and port behind a service.
type Endpoint struct {
	Addr netip.AddrPort
	Node string // the node it runs on; empty where nobody said
	Pod  string // the pod's name, for people; empty where nobody said
}

// UnusedEndpoint is an endpoint that exists and is not to be picked.
type UnusedEndpoint struct {
	Endpoint
	Why string // for people: "not ready", "terminating", "link-local address refused"
}

// Port is everything the proxy must do for one service port in one family.
type Port struct {
	Key
	Source    string           // the source that the Service came from
	Portals   []Portal         // sorted by kind and address; may be empty
	Affinity  time.Duration    // idle time after which a client's endpoint is forgotten; 0 is no affinity
	Endpoints []Endpoint       // those to pick from, on whatever node, sorted by address; empty means refuse
	Local     []Endpoint       // those on this node, where a policy asks for them; chosen apart, so that some may not be among Endpoints
	Unused    []UnusedEndpoint // in neither list

	InternalLocal bool // internalTrafficPolicy: what comes to cluster addresses goes to Local alone
	ExternalLocal bool // externalTrafficPolicy: what comes from outside to other addresses goes to Local alone

	Sources SourceRanges // loadBalancerSourceRanges: who may come to load balancer addresses

	MaxConnections int // TCP connections open at once, of all ports of the Service together; 0: no limit
}

// Action is what happens to traffic for a portal.
type Action string

// The actions of a redirect.
const (
	ToListener Action = "listener" // lead it to the redirect's listener
	Refuse     Action = "refuse"   // TCP reset, ICMP port unreachable
	Drop       Action = "drop"     // no answer, so that the client tries elsewhere
)

// Scope says whose traffic a redirect is for.
type Scope string

// The scopes of a redirect.
const (
	Everyone Scope = ""        // whoever sends
	Outside  Scope = "outside" // who is neither this node nor, as far as LocalPods tell, a pod on it
)

// Redirect says what becomes of the traffic of one portal. Of one for Outside and
// one for Everyone the first counts where both are for a packet.
type Redirect struct {
	Portal   netip.AddrPort
	Protocol Protocol
	Scope    Scope
	Action   Action
	Listener netip.AddrPort // where Action is ToListener
	Service  PortName       // whose portal it is, for comments and counters
	Sources  SourceRanges   // who may come in at all, of whatever scope; anyone else is dropped
}

// Equal says whether two are the same.
func (r Redirect) Equal(o Redirect) bool {
	return r.Portal == o.Portal && r.Protocol == o.Protocol && r.Scope == o.Scope && r.Action == o.Action &&
		r.Listener == o.Listener && r.Service == o.Service && r.Sources.Equal(o.Sources)
}

// ServiceRef names a Service as one source has it. Zero names none.
type ServiceRef struct {
	Source    string
	Namespace string
	Name      string
}

// Problem is something that keeps the proxy from doing what an object asks,
// put so that the person who wrote the object can mend it.
type Problem struct {
	Object string // "Service default/web", "EndpointSlice default/web-x", "file /etc/services.yaml"
	Field  string // "spec.ports[0].nodePort"; empty where the whole object is meant
	Reason string // one CamelCase word, as in Kubernetes Events; the metric's label
	Detail string // what is wrong
	Advice string // what to do about it

	Service ServiceRef // whose problem it is, where it is a Service's
}

// String is the problem on one line.
func (p Problem) String() string {
	s := p.Object
	if p.Field != "" {
		s += ": " + p.Field
	}
	s += ": " + p.Detail
	if p.Advice != "" {
		s += " (" + p.Advice + ")"
	}
	return s
}

// Compare orders problems by object, field, reason and detail.
func (p Problem) Compare(o Problem) int {
	return cmp.Or(
		cmp.Compare(p.Object, o.Object),
		cmp.Compare(p.Field, o.Field),
		cmp.Compare(p.Reason, o.Reason),
		cmp.Compare(p.Detail, o.Detail),
	)
}
