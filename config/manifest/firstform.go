package manifest

import (
	"cmp"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// The first service proxy (2014) read its Services from a file of this form:
//
//	{"Services": [{"Name": "web", "Port": 80, "Endpoints": ["10.10.2.2:8080"]}]}
//
// It listened on each Port on the node itself. So does what these become: a
// Service without a ClusterIP and with the node's address as its external one.

// firstService is one item of the form.
type firstService struct {
	name      string
	port      int32
	endpoints []netip.AddrPort
	line      int
}

// isFirstForm says whether a document is of the first proxy's form.
func isFirstForm(root *yaml.Node) bool {
	return member(root, "kind") == nil && member(root, "apiVersion") == nil && memberFold(root, "Services") != nil
}

// memberFold is member for a key in any case, as Go's JSON decoder and so the
// first proxy took it.
func memberFold(n *yaml.Node, key string) *yaml.Node {
	for i := 0; i+1 < len(n.Content); i += 2 {
		if strings.EqualFold(n.Content[i].Value, key) {
			return n.Content[i+1]
		}
	}
	return nil
}

// firstForm reads a document of the first proxy's form.
func (c *cursor) firstForm() {
	c.known(c.root, nil, "Services")
	at := top("Services")
	list := follow(memberFold(c.root, "Services"))
	switch {
	case list.Tag == "!!null":
		return
	case list.Kind != yaml.SequenceNode:
		c.wrong(list, at, "a list")
		return
	case !c.node.IsValid() && len(list.Content) > 0:
		c.faultAt(list.Line, at, ReasonMissingValue, "is the first proxy's form, which listens on the node's address, and that is not known",
			"write kind: Service with a clusterIP instead")
	}
	for i, item := range list.Content {
		item = follow(item)
		ic := c.at(c.root, "Service without a name")
		if item.Kind != yaml.MappingNode {
			ic.wrong(item, at.item(i), `{"Name", "Port", "Endpoints"}`)
			continue
		}
		s := ic.firstService(item, at.item(i))
		c.objects = append(c.objects, s.objects(c.node)...)
	}
}

// known notes keys that the form does not have, and those that it has twice.
func (c *cursor) known(n *yaml.Node, at *path, names ...string) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := n.Content[i]
		name := strings.ToLower(key.Value)
		switch {
		case !slices.ContainsFunc(names, func(s string) bool { return strings.EqualFold(s, key.Value) }):
			c.unknown(key, at, structType{names: names})
		case seen[name]:
			c.twice(n, key, at)
		}
		seen[name] = true
	}
}

func (c *cursor) firstService(n *yaml.Node, at *path) firstService {
	s := firstService{line: n.Line}
	if name := memberFold(n, "Name"); name != nil && isText(follow(name)) {
		s.name = follow(name).Value
		c.name = "Service " + defaultNamespace + "/" + s.name
	}
	c.known(n, at, "Name", "Port", "Endpoints")
	meta := metav1.ObjectMeta{Name: s.name, Namespace: defaultNamespace}
	if why, advice := wrongName(&meta, false); why != "" {
		c.faultAt(n.Line, at.child("Name"), ReasonInvalidValue, why, advice)
	}
	c.firstPort(&s, memberFold(n, "Port"), at.child("Port"))
	c.firstEndpoints(&s, memberFold(n, "Endpoints"), at.child("Endpoints"))
	return s
}

func (c *cursor) firstPort(s *firstService, n *yaml.Node, at *path) {
	if n == nil {
		c.faultAt(s.line, at, ReasonMissingValue, "is missing", "write the port to listen on")
		return
	}
	n = follow(n)
	var port int
	if n.Tag != "!!int" {
		c.wrong(n, at, "a whole number")
	} else if err := n.Decode(&port); err != nil || port < 1 || port > highestPort {
		c.faultAt(n.Line, at, ReasonInvalidValue, n.Value+" is no port number", portAdvice)
	}
	s.port = int32(port) // checked above; what has a fault is not used
}

func (c *cursor) firstEndpoints(s *firstService, n *yaml.Node, at *path) {
	if n == nil {
		return
	}
	n = follow(n)
	if n.Kind != yaml.SequenceNode {
		if n.Tag != "!!null" {
			c.wrong(n, at, "a list")
		}
		return
	}
	for i, item := range n.Content {
		item = follow(item)
		ep, err := netip.ParseAddrPort(item.Value)
		if item.Kind != yaml.ScalarNode || err != nil || ep.Port() == 0 || ep.Addr().Zone() != "" {
			c.faultAt(item.Line, at.item(i), ReasonInvalidValue, "is "+describe(item)+", no address and port",
				`write it like "10.10.2.2:8080" or "[fd00::2]:8080"; names are not looked up`)
			continue
		}
		s.endpoints = append(s.endpoints, netip.AddrPortFrom(ep.Addr().Unmap(), ep.Port()))
	}
}

// objects is the Service, and an EndpointSlice for each family and port among
// its endpoints, since a slice has one list of ports for all.
func (s *firstService) objects(node netip.Addr) []Object {
	svc := &corev1.Service{
		TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: ServiceKind},
		ObjectMeta: metav1.ObjectMeta{Name: s.name, Namespace: defaultNamespace},
		Spec: corev1.ServiceSpec{
			Ports:       []corev1.ServicePort{{Port: s.port}},
			ExternalIPs: []string{node.String()},
		},
	}
	completeService(svc)
	all := []Object{{Kind: ServiceKind, Namespace: defaultNamespace, Name: s.name, Line: s.line, Service: svc}}

	type group struct {
		family corev1.IPFamily
		port   uint16
	}
	groups := map[group][]discoveryv1.Endpoint{}
	for _, ep := range s.endpoints {
		g := group{familyOf(ep.Addr()), ep.Port()}
		groups[g] = append(groups[g], discoveryv1.Endpoint{Addresses: []string{ep.Addr().String()}})
	}
	order := slices.SortedFunc(maps.Keys(groups), func(a, b group) int {
		return cmp.Or(cmp.Compare(a.family, b.family), cmp.Compare(a.port, b.port))
	})
	for _, g := range order {
		name := s.name + "-" + strings.ToLower(string(g.family)) + "-" + strconv.Itoa(int(g.port))
		slice := &discoveryv1.EndpointSlice{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: SliceKind},
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Namespace: defaultNamespace,
				Labels: map[string]string{discoveryv1.LabelServiceName: s.name},
			},
			AddressType: discoveryv1.AddressType(g.family),
			Ports:       []discoveryv1.EndpointPort{{Port: ptr.To(int32(g.port))}},
			Endpoints:   groups[g],
		}
		completeSlice(slice)
		all = append(all, Object{Kind: SliceKind, Namespace: defaultNamespace, Name: name, Line: s.line, Slice: slice})
	}
	return all
}
