package apiserver

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/userspace-proxy/userspace-proxy/config"
)

func TestNew(t *testing.T) {
	t.Parallel()
	_, err := New("apiserver", Options{Resync: -1, Check: -1})
	for _, says := range []string{"source apiserver", "no client", "resync period -1ns is negative", "check period -1ns is negative"} {
		assert.ErrorContains(t, err, says)
	}
	s, err := New("named", Options{Client: serve(t).client(t)})
	require.NoError(t, err)
	assert.Equal(t, "named", s.Name())
	assert.Nil(t, s.Service("default", "web"), "before Run nothing is known")
}

func TestSource_firstStateIsOneChange(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"), aSlice("web-1", "web", "10.1.0.1"), aNode("a"))
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1"})
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")
	assert.Equal(t, []string{"SET endpoints more", "SET services"}, f.sequence())
	f.fails(t, "")
	require.Eventually(t, func() bool { return !f.now().Checked.IsZero() }, patience, time.Millisecond)
	require.Len(t, f.toldNodes(), 1, "the Node is told of before the first state")
	assert.Equal(t, "a", f.toldNodes()[0].Labels[corev1.LabelTopologyZone])
	assert.Empty(t, f.logged())
}

func TestSource_emptyIsAFullState(t *testing.T) {
	t.Parallel()
	f, _ := start(t, Options{Client: serve(t).client(t)})
	require.Eventually(t, func() bool { return len(f.sequence()) == 2 }, patience, time.Millisecond)
	assert.Equal(t, []string{"SET endpoints more", "SET services"}, f.sequence())
}

// TestSource_selectors: as kube-proxy 1.37 has them, but for headless Services.
func TestSource_selectors(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"), aNode("a"))
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1", Check: often})
	f.shows(t, "Service default/web 10.96.0.1")
	for resource, want := range map[string][2]string{
		services: {"!service.kubernetes.io/service-proxy-name", ""},
		epslices: {"!service.kubernetes.io/headless", ""},
		nodes:    {"", "metadata.name=node-1"},
	} {
		checks := func() (n int) {
			for _, q := range api.asked(resource) {
				assert.Equal(t, want, [2]string{q.Get("labelSelector"), q.Get("fieldSelector")}, "%s: %v", resource, q)
				if q.Get("limit") == "1" {
					n++
				}
			}
			return n
		}
		require.Eventually(t, func() bool { return checks() > 0 }, patience, time.Millisecond)
	}
	assert.Empty(t, api.asked(endpoints), "there are EndpointSlices")
}

func TestSource_changes(t *testing.T) {
	t.Parallel()
	web, slice := aService("web", "10.96.0.1"), aSlice("web-1", "web", "10.1.0.1")
	api := serve(t, web, slice)
	f, _ := start(t, Options{Client: api.client(t)})
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")

	api.put(aService("db", "10.96.0.2"))
	f.shows(t, "Service default/web 10.96.0.1", "Service default/db 10.96.0.2", "EndpointSlice default/web-1 10.1.0.1")
	api.put(aSlice("web-1", "web", "10.1.0.1", "10.1.0.2"))
	f.shows(t, "Service default/web 10.96.0.1", "Service default/db 10.96.0.2", "EndpointSlice default/web-1 10.1.0.1 10.1.0.2")
	api.remove(web)
	f.shows(t, "Service default/db 10.96.0.2", "EndpointSlice default/web-1 10.1.0.1 10.1.0.2")
	api.remove(slice)
	f.shows(t, "Service default/db 10.96.0.2")
	assert.Equal(t, []string{
		"SET endpoints more", "SET services", "ADD services", "ADD endpoints", "REMOVE services", "REMOVE endpoints",
	}, f.sequence())
}

// TestCase35_aBurstIsFewChanges: what changes while the store is busy is sent
// once, as it is in the end.
func TestCase35_aBurstIsFewChanges(t *testing.T) {
	t.Parallel()
	const many, rounds = 500, 20
	gone := aService("gone", "10.96.9.9")
	api := serve(t, gone)
	f, _ := start(t, Options{Client: api.client(t)})
	f.shows(t, "Service default/gone 10.96.9.9")

	f.busy.Lock()
	var want []string
	for round := range rounds {
		for i := range many {
			ip := fmt.Sprintf("10.97.%d.%d", i, round)
			api.put(aService(fmt.Sprintf("s%d", i), ip))
			if round == rounds-1 {
				want = append(want, fmt.Sprintf("Service default/s%d %s", i, ip))
			}
		}
	}
	api.remove(gone)
	last := aService("last", "10.96.8.8")
	api.put(last)
	// A source that has the last one has all.
	source := f.source
	require.Eventually(t, func() bool { return source.Service("default", "last") != nil }, patience, time.Millisecond)
	f.busy.Unlock()

	f.shows(t, append(want, "Service default/last 10.96.8.8")...)
	assert.Less(t, len(f.sequence()), 20, "updates for %d changes", many*rounds)
	assert.Equal(t, "10.96.8.8", source.Service("default", "last").Spec.ClusterIP)
	assert.Nil(t, source.Service("default", "gone"))
}

func TestSource_resyncIsAFullSET(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"), aSlice("web-1", "web", "10.1.0.1"))
	f, _ := start(t, Options{Client: api.client(t), Resync: 5 * time.Millisecond})
	require.Eventually(t, func() bool { return len(f.sequence()) >= 6 }, patience, time.Millisecond)
	assert.Equal(t, strings.Repeat("SET endpoints more, SET services, ", 3), strings.Join(f.sequence()[:6], ", ")+", ")
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.1")
}

func TestSource_v1EndpointsWhereThereAreNoSlices(t *testing.T) {
	t.Parallel()
	ends := someEndpoints("web", "10.1.0.1")
	api := serve(t, aService("web", "10.96.0.1"), ends, someEndpoints("gone", "10.1.0.2"))
	api.answer(epslices, http.StatusNotFound)
	f, _ := start(t, Options{Client: api.client(t), Check: never})
	f.shows(t, "Service default/web 10.96.0.1", "Endpoints default/web 10.1.0.1", "Endpoints default/gone 10.1.0.2")
	f.fails(t, "") // that there are none is no fault
	api.remove(someEndpoints("gone", ""))
	api.put(someEndpoints("web", "10.1.0.3"))
	f.shows(t, "Service default/web 10.96.0.1", "Endpoints default/web 10.1.0.3")

	// They appear: from then on they count, and nothing else.
	api.put(aSlice("web-1", "web", "10.1.0.4"))
	api.answer(epslices, 0)
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.4")
	api.put(someEndpoints("web", "10.1.0.5"))
	api.put(aSlice("web-1", "web", "10.1.0.6"))
	f.shows(t, "Service default/web 10.96.0.1", "EndpointSlice default/web-1 10.1.0.6")
	assert.Equal(t, []string{
		"info the API server has no EndpointSlices (discovery.k8s.io/v1), so its v1 Endpoints are followed until it has",
		"info the API server has EndpointSlices now, so v1 Endpoints are no longer followed",
	}, f.logged())
}

func TestSource_node(t *testing.T) {
	t.Parallel()
	api := serve(t, aNode("a"))
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1"})
	told := func(n int) *corev1.Node {
		t.Helper()
		require.Eventually(t, func() bool { return len(f.toldNodes()) >= n }, patience, time.Millisecond)
		require.Len(t, f.toldNodes(), n)
		return f.toldNodes()[n-1]
	}
	first := told(1)
	assert.Equal(t, map[string]string{corev1.LabelTopologyZone: "a"}, first.Labels)

	// A heartbeat does not matter; what follows it does.
	beat := aNode("a")
	beat.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, LastHeartbeatTime: metav1.Now()}}
	api.put(beat)
	api.put(aNode("b"))
	assert.Equal(t, "b", told(2).Labels[corev1.LabelTopologyZone])
	for i, change := range []func(*corev1.Node){
		func(n *corev1.Node) { n.Status.Addresses = []corev1.NodeAddress{{Address: "192.0.2.1"}} },
		func(n *corev1.Node) { n.Spec.PodCIDRs = []string{"10.244.0.0/24"} },
		func(n *corev1.Node) { n.Spec.Taints = []corev1.Taint{{Key: "x"}} },
		func(n *corev1.Node) { n.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)} },
	} {
		n := aNode("b")
		change(n)
		api.put(n)
		told(3 + i)
	}
	api.remove(aNode(""))
	assert.Nil(t, told(7))
	api.put(aNode("c"))
	assert.Equal(t, "c", told(8).Labels[corev1.LabelTopologyZone])
}

func TestSource_missingNode(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"))
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1"})
	f.shows(t, "Service default/web 10.96.0.1")
	assert.Equal(t, []*corev1.Node{nil}, f.toldNodes())
	assert.Equal(t, []string{`warning the API server has no Node "node-1", so nothing is known of its zone; ` +
		`if the Node of this machine has another name, give it with --hostname-override`}, f.logged())
}

// TestSource_nodeLacks: nothing is sent before the Node has what it needs, and that
// it loses it later holds nothing up.
func TestSource_nodeLacks(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"))
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1", Resync: 5 * time.Millisecond, NodeLacks: func(n *corev1.Node) string {
		switch {
		case n == nil:
			return "there is none"
		case n.Spec.PodCIDR == "":
			return "it has no podCIDR"
		}
		return ""
	}})
	f.fails(t, "waiting for the Node: there is none")
	api.put(aNode("a"))
	f.fails(t, "waiting for the Node: it has no podCIDR")
	assert.Empty(t, f.sequence())

	given := aNode("a")
	given.Spec.PodCIDR = "10.244.1.0/24"
	api.put(given)
	f.shows(t, "Service default/web 10.96.0.1")
	f.fails(t, "")
	api.put(aNode("a"), aService("web", "10.96.0.2"))
	f.shows(t, "Service default/web 10.96.0.2")
	f.fails(t, "")
}

// TestSource_nodeLacks_cannotBeRead: not even when there is no hope.
func TestSource_nodeLacks_cannotBeRead(t *testing.T) {
	t.Parallel()
	api := serve(t, aService("web", "10.96.0.1"), aNode("a"))
	api.answer(nodes, http.StatusForbidden)
	f, _ := start(t, Options{Client: api.client(t), NodeName: "node-1", Check: often, NodeLacks: func(*corev1.Node) string { return "" }})
	f.fails(t, "nodes: test says Forbidden")
	assert.Empty(t, f.sequence())
	api.answer(nodes, 0)
	f.shows(t, "Service default/web 10.96.0.1")
}

func TestSource_endsWithItsContext(t *testing.T) {
	t.Parallel()
	for name, status := range map[string]int{"while nobody takes what it sends": 0, "while the server refuses": http.StatusForbidden} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			api := serve(t, aService("web", "10.96.0.1"))
			api.answer(services, status)
			s, err := New("apiserver", Options{Client: api.client(t), NodeName: "node-1"})
			require.NoError(t, err)
			ctx, cancel := context.WithCancel(context.Background())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx, config.Updates{}) }()
			require.Eventually(t, func() bool { return len(api.asked(services)) > 0 }, patience, time.Millisecond)
			cancel()
			within(t, "the source", func() { assert.NoError(t, <-ended) })
		})
	}
}

func TestStrip(t *testing.T) {
	t.Parallel()
	meta := metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.Unix(1, 0), Generation: 3,
		Labels: map[string]string{
			"app": "web", discoveryv1.LabelServiceName: "web", corev1.IsHeadlessService: "", labelProxyName: "x",
			corev1.LabelHostname: "h", corev1.LabelTopologyZone: "a",
		},
		Annotations: map[string]string{
			"kubectl.kubernetes.io/last-applied-configuration": "long", "userspace-proxy/max-connections": "1",
			"endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z",
		},
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		OwnerReferences: []metav1.OwnerReference{{Name: "x"}},
		Finalizers:      []string{"x"},
	}
	kept := metav1.ObjectMeta{
		Namespace: "default", Name: "web", UID: "u", ResourceVersion: "7", CreationTimestamp: metav1.Unix(1, 0),
		Labels: map[string]string{
			discoveryv1.LabelServiceName: "web", corev1.IsHeadlessService: "", labelProxyName: "x",
			corev1.LabelHostname: "h", corev1.LabelTopologyZone: "a",
		},
		Annotations: map[string]string{
			"userspace-proxy/max-connections": "1", "endpoints.kubernetes.io/last-change-trigger-time": "2026-01-02T03:04:05Z",
		},
	}
	pod := &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-x", UID: "u"}
	podKept := &corev1.ObjectReference{Kind: "Pod", Namespace: "default", Name: "web-x"}
	ready, name := true, "host"
	hints := &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "a"}}}
	spec := corev1.ServiceSpec{ClusterIP: "10.96.0.1", ExternalIPs: []string{"192.0.2.9"}, Ports: []corev1.ServicePort{{Port: 80}}}
	full := spec
	full.Selector = map[string]string{"app": "web"}
	ingress := corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{{IP: "192.0.2.8"}}}
	taints := []corev1.Taint{{Key: "x"}}
	addresses := []corev1.NodeAddress{{Address: "192.0.2.1"}}
	for what, tt := range map[string]struct{ from, to any }{
		"Service": {
			&corev1.Service{ObjectMeta: meta, Spec: full, Status: corev1.ServiceStatus{LoadBalancer: ingress, Conditions: []metav1.Condition{{}}}},
			&corev1.Service{ObjectMeta: kept, Spec: spec, Status: corev1.ServiceStatus{LoadBalancer: ingress}},
		},
		"EndpointSlice": {
			&discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, NodeName: &name, Zone: &name,
				Hints: hints, TargetRef: pod, Hostname: &name, DeprecatedTopology: map[string]string{"x": "y"},
			}, {}}},
			&discoveryv1.EndpointSlice{ObjectMeta: kept, AddressType: "IPv4", Endpoints: []discoveryv1.Endpoint{{
				Addresses: []string{"10.1.0.1"}, Conditions: discoveryv1.EndpointConditions{Ready: &ready}, NodeName: &name, Zone: &name,
				Hints: hints, TargetRef: podKept,
			}, {}}},
		},
		"Endpoints": {
			&v1Endpoints{ObjectMeta: meta, Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // see v1Endpoints
				Addresses:         []corev1.EndpointAddress{{IP: "10.1.0.1", Hostname: "h", TargetRef: pod}},
				NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.1.0.2", Hostname: "h"}},
			}}},
			&v1Endpoints{ObjectMeta: kept, Subsets: []corev1.EndpointSubset{{ //nolint:staticcheck // see v1Endpoints
				Addresses:         []corev1.EndpointAddress{{IP: "10.1.0.1", TargetRef: podKept}},
				NotReadyAddresses: []corev1.EndpointAddress{{IP: "10.1.0.2"}},
			}}},
		},
		"Node": {
			&corev1.Node{
				ObjectMeta: meta, Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24", Taints: taints, ProviderID: "x"},
				Status: corev1.NodeStatus{Addresses: addresses, Images: []corev1.ContainerImage{{}}},
			},
			&corev1.Node{
				ObjectMeta: kept, Spec: corev1.NodeSpec{PodCIDR: "10.244.0.0/24", Taints: taints},
				Status: corev1.NodeStatus{Addresses: addresses},
			},
		},
	} {
		got, err := strip(tt.from)
		require.NoError(t, err)
		assert.Equal(t, tt.to, got, what)
	}
}
