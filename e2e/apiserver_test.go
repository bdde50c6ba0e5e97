package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// asProxy is the proxy's user, whom a token in the kubeconfig names.
func asProxy() clientcmdapi.AuthInfo { return clientcmdapi.AuthInfo{Token: proxyToken} }

// apiCase is a test of the API as a source: it shares a control plane and a
// proxy with others, and has an address and a node port of its own.
type apiCase struct {
	*controlPlane
	bed      *nettest.Bed
	proxy    *proxy
	name     string // of its Service
	v4, v6   string // the Service's addresses
	nodePort int
	tcp, udp []string // endpoints, two addresses each: a, b, c
}

// web is the case's Service with the endpoints from i to below j.
func (c apiCase) web(i, j int) object {
	return object{
		name: c.name, clusterIPs: []string{c.v4, c.v6},
		ports:     []port{{"stream", service.TCP, 80, c.nodePort}, {"datagram", service.UDP, 80, c.nodePort}},
		endpoints: map[string][]string{"stream": c.tcp[2*i : 2*j], "datagram": c.udp[2*i : 2*j]},
	}
}

// expect waits until these servers answer at every portal, from everywhere.
func (c apiCase) expect(t *testing.T, want ...string) {
	t.Helper()
	node := fmt.Sprintf("10.10.2.1:%d", c.nodePort)
	for _, network := range []string{"tcp", "udp"} {
		for _, to := range targets(network, c.v4+":80", "["+c.v6+"]:80", node) {
			for _, from := range []*nettest.Host{c.bed.Client, c.bed.Pod, c.bed.Node} {
				requireAnswers(t, from, to, want...)
			}
		}
	}
}

// expectGone waits until nothing is known of the Service and nobody answers.
func (c apiCase) expectGone(t *testing.T) {
	t.Helper()
	eventually(t, func() bool { return len(c.proxy.status(t).ports(c.name)) == 0 }, saying("%s to be gone", c.name))
	requireNoAnswer(t, c.bed.Client, c.v4+":80")
}

// TestAPIServer: Services and slices that clients write to a real API server
// are served. The proxy has the rights of a service proxy there, and no other.
func TestAPIServer(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed)
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b", "c")
	udp := serveNamed(t, bed.Back, "udp", 8080, "a", "b", "c")
	p := startFrom(t, bed.Node, "--kubeconfig="+cp.kubeconfig(t, asProxy()), "--hostname-override="+nodeName, "--min-sync-period=10ms")

	for i, test := range []struct {
		name string
		run  func(*testing.T, apiCase)
	}{
		{"services and slices come and go", testComeAndGo},
		{"kubectl", testKubectl},
		{"type changes", testTypeChanges},
		{"not ours", testNotOurs},
		{"events", testEvents},
		{"readme", testReadme},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.run(t, apiCase{
				controlPlane: cp, bed: bed, proxy: p, name: fmt.Sprintf("web-%d", i),
				v4: fmt.Sprintf("10.96.0.%d", 20+i), v6: fmt.Sprintf("fd96::%d", 20+i), nodePort: 30080 + i, tcp: tcp, udp: udp,
			})
		})
	}
	p.stop(t)
}

func testComeAndGo(t *testing.T, c apiCase) {
	c.put(t, c.web(0, 1))
	c.expect(t, "a")
	c.put(t, c.web(0, 2)) // one added
	c.expect(t, "a", "b")
	c.put(t, c.web(1, 3)) // one removed, one added
	c.expect(t, "b", "c")

	c.put(t, c.web(0, 0)) // all slices deleted
	for _, network := range []string{"tcp", "udp"} {
		requireRefusal(t, c.bed.Client, target{network, c.v4 + ":80"})
		requireRefusal(t, c.bed.Client, target{network, "[" + c.v6 + "]:80"})
	}
	c.put(t, c.web(2, 3))
	c.expect(t, "c")

	const timed = "kubeproxy_network_programming_duration_seconds_count"
	before := c.proxy.metric(t, timed)
	c.kubectl(t, "", "annotate", "endpointslice", "-l", "kubernetes.io/service-name="+c.name,
		corev1.EndpointsLastChangeTriggerTime+"="+time.Now().Format(time.RFC3339Nano))
	eventually(t, func() bool { return c.proxy.metric(t, timed) > before }, saying("the time from a change to its being served"))

	moved := c.web(2, 3) // the Service changes, its slices do not
	moved.ports[0].number, moved.ports[1].number = 8080, 8080
	c.put(t, moved)
	requireAnswers(t, c.bed.Client, target{"tcp", c.v4 + ":8080"}, "c")
	requireAnswers(t, c.bed.Client, target{"udp", c.v4 + ":8080"}, "c")
	requireNoAnswer(t, c.bed.Client, c.v4+":80")

	c.remove(t, c.name)
	requireNoAnswer(t, c.bed.Client, c.v4+":8080")
	c.expectGone(t)
}

// testKubectl: as people do it.
func testKubectl(t *testing.T, c apiCase) {
	c.kubectl(t, manifest(c.web(0, 1)), "apply", "-f", "-")
	c.expect(t, "a")
	c.kubectl(t, manifest(c.web(0, 2)), "apply", "-f", "-")
	c.expect(t, "a", "b")
	c.kubectl(t, "", "delete", "endpointslice", "-l", "kubernetes.io/service-name="+c.name)
	requireNoAnswer(t, c.bed.Client, c.v4+":80")
	c.kubectl(t, manifest(c.web(1, 2)), "apply", "-f", "-")
	c.expect(t, "b")
	c.kubectl(t, "", "delete", "service", c.name)
	c.expectGone(t)
}

// testReadme: what README.md says makes an account, a kubeconfig, and a proxy
// that follows the cluster with them.
func testReadme(t *testing.T, c apiCase) {
	readme, err := os.ReadFile("../README.md")
	require.NoError(t, err)
	_, section, found := strings.Cut(string(readme), "### From a cluster\n")
	require.True(t, found)
	_, block, _ := strings.Cut(section, "```sh\n")
	block, _, _ = strings.Cut(block, "```\n")
	commands, run, found := strings.Cut(block, "sudo bin/userspace-proxy run ")
	require.True(t, found, "%s", block)

	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	sh := c.host.Command(ctx, "sh", "-exc", commands)
	sh.Dir = dir
	sh.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig(t, clientcmdapi.AuthInfo{Token: adminToken}), "PATH="+filepath.Dir(bin(t, "kubectl"))+":"+os.Getenv("PATH"))
	output, err := sh.CombinedOutput()
	require.NoError(t, err, "%s", output)
	left, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, left, 1, "the proxy's kubeconfig, and no other")
	config, err := os.ReadFile(filepath.Join(dir, "proxy.conf"))
	require.NoError(t, err)
	assert.NotContains(t, string(config), adminToken)
	info, err := left[0].Info()
	require.NoError(t, err)
	assert.Equal(t, os.FileMode(0o600), info.Mode())

	c.put(t, c.web(0, 1))
	second := startFrom(t, c.bed.Pod, strings.Fields(strings.ReplaceAll(run, "proxy.conf", filepath.Join(dir, "proxy.conf")))...)
	st := second.status(t)
	assert.True(t, st.source(t, "apiserver").Delivered)
	assert.NotEmpty(t, st.ports(c.name))
	second.stop(t)
	c.remove(t, c.name)
}

// testTypeChanges: ExternalName and back.
func testTypeChanges(t *testing.T, c apiCase) {
	c.put(t, c.web(0, 1))
	c.expect(t, "a")
	svc := c.get(t, c.name)
	svc.Spec = corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "example.com"}
	putService(t, c.admin, svc)
	c.expectGone(t)
	c.put(t, c.web(0, 1))
	c.expect(t, "a")
	c.remove(t, c.name)
	c.expectGone(t)
}

func (c *controlPlane) get(t *testing.T, name string) *corev1.Service {
	t.Helper()
	svc, err := c.admin.CoreV1().Services(metav1.NamespaceDefault).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	return svc
}

// label sets a label of a Service, or removes it where the value is "null".
func (c *controlPlane) label(t *testing.T, name, key, value string) {
	t.Helper()
	patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%s}}}`, key, value)
	_, err := c.admin.CoreV1().Services(metav1.NamespaceDefault).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	require.NoError(t, err)
}

// testNotOurs: headless Services and those of another proxy are never served,
// nor even sent.
func testNotOurs(t *testing.T, c apiCase) {
	const proxyName = "service.kubernetes.io/service-proxy-name"
	var before sourceStatus
	eventually(t, func() bool { // slices come and go by another watch than their Services
		list, err := c.admin.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		before = c.proxy.status(t).Sources[0]
		return before.Endpoints == len(list.Items)
	}, saying("what went before to be known"))

	headless := c.web(0, 1)
	headless.clusterIPs, headless.ports = nil, []port{{"stream", service.TCP, 80, 0}}
	svc, slices := headless.decoded(t)
	svc.Name, svc.Spec.ClusterIP = "headless", corev1.ClusterIPNone
	putService(t, c.admin, svc)
	for _, slice := range slices {
		slice.Name = "headless-" + slice.Name
		slice.Labels = map[string]string{"kubernetes.io/service-name": "headless", "service.kubernetes.io/headless": ""}
	}
	c.putSlices(t, "headless", slices...)

	foreign, slices := c.web(0, 1).decoded(t)
	foreign.Labels = map[string]string{proxyName: "another"}
	putService(t, c.admin, foreign)
	c.putSlices(t, c.name, slices...)

	// Whatever came before it is known with what comes last.
	last := c.web(0, 1)
	last.name, last.clusterIPs, last.ports = "last", []string{"10.96.0.250"}, []port{{"stream", service.TCP, 80, 0}}
	c.put(t, last)
	requireAnswers(t, c.bed.Client, target{"tcp", "10.96.0.250:80"}, "a")
	st := c.proxy.status(t)
	assert.Empty(t, st.ports("headless"))
	assert.Empty(t, st.ports(c.name))
	_, lasts := last.decoded(t)
	// Slices of another proxy's Service are not told from ours; headless ones are.
	assert.Equal(t, before.Endpoints+len(lasts)+len(slices), st.Sources[0].Endpoints, "slices that were sent")
	requireNoAnswer(t, c.bed.Client, c.v4+":80")

	c.label(t, c.name, proxyName, "null")
	c.expect(t, "a")
	c.label(t, c.name, proxyName, `"another"`)
	c.expectGone(t)
	c.label(t, c.name, proxyName, "null")
	c.expect(t, "a")
	c.remove(t, c.name, "headless", "last")
	c.expectGone(t)
}

// TestServerWithoutEndpointSlices: where there are none, v1 Endpoints are
// followed.
func TestServerWithoutEndpointSlices(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed, withoutEndpointSlices)
	serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
	svc, _ := object{name: "web", clusterIPs: []string{"10.96.0.10"}, ports: []port{{"stream", service.TCP, 80, 0}}}.decoded(t)
	putService(t, cp.admin, svc)
	endpoints := cp.admin.CoreV1().Endpoints("default")
	at := func(addrs ...string) *corev1.Endpoints { //nolint:staticcheck // what old servers have
		e := &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: "web"}}                          //nolint:staticcheck // as above
		subset := corev1.EndpointSubset{Ports: []corev1.EndpointPort{{Name: "stream", Port: 8080}}} //nolint:staticcheck // as above
		for _, a := range addrs {
			subset.Addresses = append(subset.Addresses, corev1.EndpointAddress{IP: a})
		}
		e.Subsets = []corev1.EndpointSubset{subset} //nolint:staticcheck // as above
		return e
	}
	_, err := endpoints.Create(t.Context(), at("10.10.2.2"), metav1.CreateOptions{})
	require.NoError(t, err)

	p := startFrom(t, bed.Node, "--kubeconfig="+cp.kubeconfig(t, asProxy()))
	to := target{"tcp", "10.96.0.10:80"}
	requireAnswers(t, bed.Client, to, "a")
	_, err = endpoints.Update(t.Context(), at("10.10.2.2", "10.10.2.3"), metav1.UpdateOptions{})
	require.NoError(t, err)
	requireAnswers(t, bed.Client, to, "a", "b")
	require.NoError(t, endpoints.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	requireRefusal(t, bed.Client, to)
	p.stop(t)
}
