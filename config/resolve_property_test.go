package config_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/utils/ptr"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestResolveIsTheSameInAnyOrder(t *testing.T) {
	t.Parallel()
	for seed := range uint64(300) {
		random := rand.New(rand.NewPCG(seed, 2014))
		data := make([]byte, 100+random.IntN(900))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		s, n := decodeWorld(data)
		want := config.Resolve(s, n)
		for range 3 {
			shuffleSnapshot(&s, random)
			require.Equal(t, want, config.Resolve(s, n), "seed %d", seed)
		}
		// Inside of an object order has a meaning, if only in the names of fields.
		for _, e := range s.Endpoints {
			for _, sl := range e.Slices {
				random.Shuffle(len(sl.Endpoints), func(i, j int) { sl.Endpoints[i], sl.Endpoints[j] = sl.Endpoints[j], sl.Endpoints[i] })
			}
		}
		require.Equal(t, want.Ports, config.Resolve(s, n).Ports, "seed %d", seed)
	}
}

func shuffleSnapshot(s *config.Snapshot, random *rand.Rand) {
	shuffle(s.Services, random)
	shuffle(s.Endpoints, random)
	shuffle(s.Problems, random)
	for _, e := range s.Endpoints {
		shuffle(e.Slices, random)
	}
}

func shuffle[T any](l []T, random *rand.Rand) {
	random.Shuffle(len(l), func(i, j int) { l[i], l[j] = l[j], l[i] })
}

func TestResolveGoesOnTelling(t *testing.T) {
	t.Parallel()
	s := snapshot(svc("default/a"), svc("default/b"))
	s.Complete = false
	s.Problems = []service.Problem{{Object: "file /etc/services.yaml", Reason: "Unreadable", Detail: "no such file"}}
	r := config.Resolve(s, testNode())
	assert.False(t, r.Complete)
	assert.Equal(t, []string{
		"Service default/b: spec.clusterIPs[0]: 10.96.0.1:80/TCP belongs to Service default/a (spec.clusterIPs[0]), " +
			"which is older or comes first by name (choose another address or port, or remove one of the two Services)",
		"file /etc/services.yaml: no such file",
	}, problemLines(r))
	assert.Len(t, s.Problems, 1, "the snapshot's list is not ours to change")
}

func problemLines(r config.Resolution) []string {
	var lines []string
	for _, p := range r.Problems {
		lines = append(lines, p.String())
	}
	return lines
}

// Whatever objects say, what comes of them can be served without harm.
func FuzzResolve(f *testing.F) {
	f.Add([]byte{})
	for seed := range uint64(20) {
		random := rand.New(rand.NewPCG(seed, 1))
		data := make([]byte, 50*(seed+1))
		for i := range data {
			data[i] = byte(random.Uint32())
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, n := decodeWorld(data)
		before := deepCopy(s)
		r := config.Resolve(s, n)
		require.Equal(t, before, s, "the snapshot is read only")
		require.Equal(t, r, config.Resolve(s, n), "twice the same")
		checkPorts(t, r.Ports)
		checkEndpoints(t, r.Ports, s, n)
		checkLocal(t, r.Ports, n)
		checkRedirects(t, r.Ports)
		require.True(t, slices.IsSortedFunc(r.Problems, service.Problem.Compare))
		for _, p := range r.Problems {
			require.NotEmpty(t, p.Object)
			require.NotEmpty(t, p.Reason)
			require.NotEmpty(t, p.Detail)
			require.NotEmpty(t, p.Advice)
		}
	})
}

func deepCopy(s config.Snapshot) config.Snapshot {
	s.Services, s.Endpoints = slices.Clone(s.Services), slices.Clone(s.Endpoints)
	for i := range s.Services {
		s.Services[i].Service = s.Services[i].DeepCopy()
	}
	for i := range s.Endpoints {
		e := &s.Endpoints[i]
		e.Slices, e.Endpoints = slices.Clone(e.Slices), e.Endpoints.DeepCopy()
		for j := range e.Slices {
			e.Slices[j] = e.Slices[j].DeepCopy()
		}
	}
	return s
}

func checkPorts(t *testing.T, list []service.Port) {
	portals := map[string]string{}
	for i, p := range list {
		if i > 0 {
			require.Negative(t, list[i-1].Compare(p.Key), "sorted by key, none twice")
		}
		require.Contains(t, []service.Protocol{service.TCP, service.UDP}, p.Protocol)
		for _, portal := range p.Portals {
			at := fmt.Sprintf("%s/%s", portal.Addr, p.Protocol)
			require.Empty(t, portals[at], "%s is a portal of %s and of %s", at, portals[at], p.Key)
			portals[at] = p.String()
			require.True(t, portal.Addr.IsValid() && portal.Addr.Port() != 0, at)
			require.Equal(t, p.Family, service.FamilyOf(portal.Addr.Addr()), at)
			a := portal.Addr.Addr()
			require.False(t, a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Is4In6(), at)
		}
	}
}

func checkEndpoints(t *testing.T, list []service.Port, s config.Snapshot, n config.Node) {
	portals := map[string]bool{}
	for _, p := range list {
		for _, portal := range p.Portals {
			portals[fmt.Sprintf("%s/%s", portal.Addr, p.Protocol)] = true
		}
	}
	sources := map[string]string{}
	for _, e := range s.Endpoints {
		sources[e.Namespace+"/"+e.Name] = e.Source
	}
	for _, p := range list {
		seen := map[netip.AddrPort]bool{}
		for i, ep := range p.Endpoints {
			at, a := fmt.Sprintf("%s/%s of %s", ep.Addr, p.Protocol, p.Key), ep.Addr.Addr()
			require.True(t, ep.Addr.IsValid() && ep.Addr.Port() != 0, at)
			require.True(t, i == 0 || p.Endpoints[i-1].Addr.Compare(ep.Addr) < 0, "sorted, none twice: %s", at)
			seen[ep.Addr] = true
			require.False(t, a.IsUnspecified() || a.IsMulticast() || a.IsLinkLocalUnicast() || a.Is4In6(), at)
			require.False(t, a.IsLoopback() && !n.AllowLoopbackFrom[sources[p.Namespace+"/"+p.Name]], at)
			require.False(t, portals[fmt.Sprintf("%s/%s", ep.Addr, p.Protocol)], "a loop: %s", at)
			require.False(t, n.PortRange.Contains(ep.Addr.Port()) && slices.Contains(n.ListenAddrs, a), at)
			require.True(t, n.Primary[service.FamilyOf(a)].IsValid(), at)
		}
		for _, ep := range p.Unused {
			require.False(t, seen[ep.Addr], "%s of %s is listed twice", ep.Addr, p.Key)
			seen[ep.Addr] = true
			require.NotEmpty(t, ep.Why)
		}
	}
}

func checkLocal(t *testing.T, list []service.Port, n config.Node) {
	for _, p := range list {
		require.True(t, p.InternalLocal || p.ExternalLocal || p.Local == nil, p.Key)
		require.True(t, len(p.Endpoints) > 0 || len(p.Local) == 0, "what is picked here could be picked anywhere, if nothing else can: %s", p.Key)
		for i, ep := range p.Local {
			require.Equal(t, n.Name, ep.Node, p.Key)
			require.True(t, i == 0 || p.Local[i-1].Addr.Compare(ep.Addr) < 0, "sorted, none twice: %s", p.Key)
			require.NotContains(t, p.Unused, service.UnusedEndpoint{Endpoint: ep}, p.Key)
		}
		require.Equal(t, p.Sources.Allowed, service.Disjoint(p.Sources.Allowed), p.Key)
		for _, r := range p.Sources.Allowed {
			require.Equal(t, p.Family, service.FamilyOf(r.Addr()), p.Key)
			require.Positive(t, r.Bits(), p.Key)
		}
	}
}

// checkRedirects: for everybody at each portal there is exactly one thing to do,
// and no two redirects contradict each other.
func checkRedirects(t *testing.T, list []service.Port) {
	all, local := netip.MustParseAddrPort("169.254.77.1:10000"), netip.MustParseAddrPort("169.254.77.1:10001")
	type way struct {
		at       netip.AddrPort
		protocol service.Protocol
		scope    service.Scope
	}
	ways := map[way]service.Redirect{}
	for _, p := range list {
		for _, portal := range p.Portals {
			for _, r := range p.Redirects(portal, all, local) {
				w := way{r.Portal, r.Protocol, r.Scope}
				require.NotContains(t, ways, w)
				ways[w] = r
				require.Equal(t, r.Action == service.ToListener, r.Listener.IsValid())
				require.True(t, r.Listener != local || p.UsesLocal(), p.Key)
				require.True(t, r.Listener != all || p.UsesAll(), p.Key)
			}
			everyone, led := ways[way{portal.Addr, p.Protocol, service.Everyone}]
			require.True(t, led, "%s of %s is led nowhere", portal, p.Key)
			if outside, parted := ways[way{portal.Addr, p.Protocol, service.Outside}]; parted {
				require.NotEqual(t, everyone.Listener, outside.Listener, p.Key)
				require.True(t, everyone.Sources.Equal(outside.Sources), p.Key)
				require.Equal(t, everyone.Service, outside.Service)
			}
		}
	}
}

// decodeWorld makes a few objects of whatever bytes say, drawn from short
// lists, so that they come into each other's way.
func decodeWorld(data []byte) (config.Snapshot, config.Node) {
	d := dice{data}
	n := testNode()
	n.AllowLoopbackFrom = map[string]bool{"file": d.chance()}
	n.NoRedirect, n.AllowExternalIPs = d.chance(), d.chance()
	n.ListenAddrs = append(n.ListenAddrs, netip.MustParseAddr("10.0.0.1"))
	if !d.chance() && d.chance() {
		ipv4Only(&n)
	}
	var objects []any
	for i := range d.upTo(8) {
		source := pickOne(&d, "file", "apiserver")
		name := fmt.Sprintf("%s/%c", pickOne(&d, "default", "kube-system"), 'a'+rune(i))
		objects = append(objects, from{source, d.service(name)})
		for j := range d.upTo(3) {
			objects = append(objects, from{source, d.slice(fmt.Sprintf("%s-%d", name, j), string('a'+rune(i)))})
		}
		if d.chance() {
			objects = append(objects, from{source, d.endpoints(name)})
		}
	}
	return snapshot(objects...), n
}

// dice reads choices from bytes; when they are used up, the first choice is it.
type dice struct{ data []byte }

func (d *dice) upTo(n int) int {
	if len(d.data) == 0 {
		return 0
	}
	b := d.data[0]
	d.data = d.data[1:]
	return int(b) % (n + 1)
}

func (d *dice) chance() bool { return d.upTo(1) == 1 }

func pickOne[T any](d *dice, choices ...T) T { return choices[d.upTo(len(choices)-1)] }

func (d *dice) address() string {
	if d.upTo(30) == 30 {
		n := min(d.upTo(40), len(d.data))
		raw := string(d.data[:n])
		d.data = d.data[n:]
		return raw
	}
	return pickOne(d, "10.0.0.1", "10.0.0.2", "10.0.0.3", "fd00::1", "fd00::2", "192.0.2.1", "2001:db8::1", "127.0.0.1", "::1", "127.0.0.2",
		"169.254.77.1", "fe80::1", "fe80::1%lo", "0.0.0.0", "::", "224.0.0.1", "::ffff:10.0.0.1", "010.0.0.1", "", "None", "host.example", "10.0.0.0/8")
}

func (d *dice) addresses() []string {
	var l []string
	for range d.upTo(3) {
		l = append(l, d.address())
	}
	return l
}

func (d *dice) port() int32 {
	return pickOne[int32](d, 80, 81, 443, 30080, 30081, 10000, 0, -1, 65535, 65536)
}

func (d *dice) portName() string { return pickOne(d, "", "http", "dns") }

func (d *dice) protocol() corev1.Protocol {
	return pickOne(d, corev1.ProtocolTCP, corev1.ProtocolUDP, "", corev1.ProtocolSCTP, "tcp")
}

func (d *dice) service(name string) *corev1.Service {
	s := svc(name, clusterIPs(d.addresses()...), externalIPs(d.addresses()...), created(d.upTo(2)),
		ofType(pickOne(d, corev1.ServiceTypeNodePort, corev1.ServiceTypeClusterIP, corev1.ServiceTypeLoadBalancer, "", corev1.ServiceTypeExternalName, "odd")))
	s.Spec.Ports, s.Spec.ClusterIP = nil, d.address()
	for range d.upTo(4) {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: d.portName(), Protocol: d.protocol(), Port: d.port(), NodePort: d.port()})
	}
	for _, ip := range d.addresses() {
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, vip(ip))
	}
	if d.chance() {
		s.Spec.LoadBalancerSourceRanges = []string{
			pickOne(d, "0.0.0.0/0", "::/0", "10.0.0.0/8", "nonsense", ""), pickOne(d, "10.0.0.0/8", "fd00::/8", "192.0.2.1/24", "10.9.0.0/16"),
		}
	}
	if d.chance() {
		externalPolicy(pickOne(d, "Local", "Cluster", "odd"))(s)
		internalPolicy(pickOne(d, "Local", "Cluster", "odd"))(s)
	}
	if d.chance() {
		seconds := d.port()
		s.Spec.SessionAffinity = pickOne(d, corev1.ServiceAffinityClientIP, corev1.ServiceAffinityNone, "odd")
		s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
	}
	return s
}

func (d *dice) slice(name, ofService string) *discoveryv1.EndpointSlice {
	s := slice(name, ofService, targets(), addressType(pickOne(d, discoveryv1.AddressTypeIPv4, ipv6, discoveryv1.AddressTypeFQDN)))
	for range d.upTo(5) {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: d.addresses(),
			NodeName:  pickOne(d, nil, ptr.To("node-1"), ptr.To("node-2"), ptr.To("")),
			Conditions: discoveryv1.EndpointConditions{
				Ready: d.maybe(), Serving: d.maybe(), Terminating: d.maybe(),
			},
		})
	}
	for range d.upTo(3) {
		p := target(d.portName(), d.port())
		if d.chance() {
			protocol := d.protocol()
			p.Protocol = &protocol
		}
		if d.upTo(7) == 1 {
			p.Name, p.Port = nil, nil
		}
		s.Ports = append(s.Ports, p)
	}
	return s
}

func (d *dice) maybe() *bool {
	yes, no := true, false
	return pickOne(d, nil, &yes, &no)
}

func (d *dice) endpoints(name string) *v1Endpoints {
	e := &v1Endpoints{ObjectMeta: meta(name)}
	for range d.upTo(2) {
		s := corev1.EndpointSubset{} //nolint:staticcheck // read for Services without slices
		for _, ip := range d.addresses() {
			s.Addresses = append(s.Addresses, corev1.EndpointAddress{IP: ip})
		}
		for _, ip := range d.addresses() {
			s.NotReadyAddresses = append(s.NotReadyAddresses, corev1.EndpointAddress{IP: ip})
		}
		s.Ports = append(s.Ports, corev1.EndpointPort{Name: d.portName(), Port: d.port(), Protocol: d.protocol()})
		e.Subsets = append(e.Subsets, s)
	}
	return e
}

// BenchmarkResolve resolves 10,000 Services with three endpoints each.
func BenchmarkResolve(b *testing.B) {
	var objects []any
	for i := range 10_000 {
		name := fmt.Sprintf("web-%d", i)
		objects = append(objects,
			svc("default/"+name, created(i%24), nodePorts(int32(30000+i)), clusterIPs(fmt.Sprintf("10.96.%d.%d", i/250, 1+i%250))),
			slice("default/"+name+"-a", name, at(fmt.Sprintf("10.1.%d.%d", i/250, 1+i%250)),
				at(fmt.Sprintf("10.2.%d.%d", i/250, 1+i%250)), at(fmt.Sprintf("10.3.%d.%d", i/250, 1+i%250))))
	}
	s, n := snapshot(objects...), testNode()
	b.ReportAllocs()
	for b.Loop() {
		if r := config.Resolve(s, n); len(r.Ports) != 10_000 || len(r.Problems) != 0 {
			b.Fatalf("%d ports, %d problems", len(r.Ports), len(r.Problems))
		}
	}
}
