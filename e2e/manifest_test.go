package e2e

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// port is one port of a Service as the tests write it.
type port struct {
	name     string
	protocol service.Protocol
	number   int
	nodePort int // 0: none
}

// object is a Service and its endpoints.
type object struct {
	name        string
	clusterIPs  []string
	externalIPs []string
	ports       []port
	affinity    bool
	// endpoints are addresses by the name of the port that they serve:
	// "http": {"10.10.2.2:8080"}.
	endpoints map[string][]string

	spec    string                // more of it: "externalTrafficPolicy: Local"
	ingress []string              // addresses of its load balancer
	about   map[netip.Addr]string // more of an endpoint: "nodeName: node-a"
}

// manifest is the objects as a file of YAML documents: a Service each, and an
// EndpointSlice for each of its ports and families that has endpoints.
func manifest(objects ...object) string {
	var docs []string
	for _, o := range objects {
		docs = append(docs, o.service())
		for _, p := range o.ports {
			for _, f := range service.Families() {
				if slice := o.slice(p, f); slice != "" {
					docs = append(docs, slice)
				}
			}
		}
	}
	return strings.Join(docs, "---\n")
}

func (o object) service() string {
	var b strings.Builder
	fmt.Fprintf(&b, "apiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: default}\nspec:\n", o.name)
	kind := "ClusterIP"
	for _, p := range o.ports {
		if p.nodePort != 0 {
			kind = "NodePort"
		}
	}
	if len(o.ingress) > 0 {
		kind = "LoadBalancer"
	}
	fmt.Fprintf(&b, "  type: %s\n", kind)
	for line := range strings.Lines(o.spec) {
		fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(line))
	}
	if len(o.clusterIPs) > 0 {
		var families []string
		for _, a := range o.clusterIPs {
			families = append(families, string(service.FamilyOf(netip.MustParseAddr(a))))
		}
		fmt.Fprintf(&b, "  clusterIP: %q\n  clusterIPs: %s\n  ipFamilies: [%s]\n",
			o.clusterIPs[0], quoted(o.clusterIPs), strings.Join(families, ", "))
		if len(families) > 1 {
			b.WriteString("  ipFamilyPolicy: RequireDualStack\n")
		}
	}
	if len(o.externalIPs) > 0 {
		fmt.Fprintf(&b, "  externalIPs: %s\n", quoted(o.externalIPs))
	}
	if o.affinity {
		b.WriteString("  sessionAffinity: ClientIP\n")
	}
	b.WriteString("  ports:\n")
	for _, p := range o.ports {
		fmt.Fprintf(&b, "  - {name: %q, protocol: %s, port: %d", p.name, p.protocol, p.number)
		if p.nodePort != 0 {
			fmt.Fprintf(&b, ", nodePort: %d", p.nodePort)
		}
		b.WriteString("}\n")
	}
	if len(o.ingress) > 0 {
		b.WriteString("status:\n  loadBalancer:\n    ingress:\n")
		for _, a := range o.ingress {
			fmt.Fprintf(&b, "    - ip: %q\n", a)
		}
	}
	return b.String()
}

// slice is the EndpointSlice of one port in one family, for each port number
// among its endpoints; empty where there are none.
func (o object) slice(p port, f service.Family) string {
	byNumber := make(map[uint16][]netip.Addr)
	var numbers []uint16
	for _, e := range o.endpoints[p.name] {
		a := netip.MustParseAddrPort(e)
		if service.FamilyOf(a.Addr()) != f {
			continue
		}
		if byNumber[a.Port()] == nil {
			numbers = append(numbers, a.Port())
		}
		byNumber[a.Port()] = append(byNumber[a.Port()], a.Addr())
	}
	var docs []string
	for _, n := range numbers {
		var b strings.Builder
		fmt.Fprintf(&b, "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\n"+
			"metadata:\n  name: %s-%s-%s-%d\n  namespace: default\n  labels: {kubernetes.io/service-name: %s}\n",
			o.name, p.name, strings.ToLower(string(f)), n, o.name)
		fmt.Fprintf(&b, "addressType: %s\nports: [{name: %q, protocol: %s, port: %d}]\nendpoints:\n", f, p.name, p.protocol, n)
		for _, a := range byNumber[n] {
			fmt.Fprintf(&b, "- addresses: [%q]\n", a)
			for line := range strings.Lines(o.about[a]) {
				fmt.Fprintf(&b, "  %s\n", strings.TrimSpace(line))
			}
		}
		docs = append(docs, b.String())
	}
	return strings.Join(docs, "---\n")
}

func quoted(all []string) string {
	q := make([]string, len(all))
	for i, s := range all {
		q[i] = fmt.Sprintf("%q", s)
	}
	return "[" + strings.Join(q, ", ") + "]"
}
