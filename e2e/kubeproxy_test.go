package e2e

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// volume is a directory as the kubelet lays a volume out: names are links to
// ..data/name, and ..data is a link to a directory that is new for each state.
type volume struct {
	dir   string
	state int
}

func newVolume(t *testing.T, files map[string]string) *volume {
	t.Helper()
	v := &volume{dir: t.TempDir()}
	v.put(t, files)
	return v
}

// put replaces all files at once.
func (v *volume) put(t *testing.T, files map[string]string) {
	t.Helper()
	v.state++
	data := fmt.Sprintf("..%d", v.state)
	require.NoError(t, os.Mkdir(filepath.Join(v.dir, data), 0o755))
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(v.dir, data, name), []byte(content), 0o644))
		if _, err := os.Lstat(filepath.Join(v.dir, name)); err != nil {
			require.NoError(t, os.Symlink("..data/"+name, filepath.Join(v.dir, name)))
		}
	}
	next := filepath.Join(v.dir, "..data_tmp")
	require.NoError(t, os.Symlink(data, next))
	require.NoError(t, os.Rename(next, filepath.Join(v.dir, "..data")))
}

// Where pods of kubeadm's DaemonSet, and of ours, have their volumes.
const (
	configDir    = "/var/lib/kube-proxy"
	ownConfigDir = "/etc/userspace-proxy"
	accountDir   = "/run/secrets/kubernetes.io/serviceaccount" // /var/run is a link
)

// launchPod runs a program on a node as a container of a DaemonSet is run: with
// its volumes, in a mount namespace of its own.
func launchPod(t *testing.T, node *nettest.Host, config, account *volume, program ...string) *proxy {
	t.Helper()
	script := `set -e
mount --make-rprivate /
for at in /var/lib /run; do mount -t tmpfs tmpfs $at; done
# An /etc of its own, with what is in the node's.
mkdir /run/etc; cp -a /etc/. /run/etc; mount --bind /run/etc /etc
mkdir -p ` + configDir + " " + ownConfigDir + " " + accountDir + `
mount --bind "$1" ` + configDir + `
mount --bind "$1" ` + ownConfigDir + `
mount --bind "$2" ` + accountDir + `
shift 2
exec "$@"`
	argv := append([]string{"unshare", "--mount", "sh", "-c", script, "sh", config.dir, account.dir}, program...)
	p := &proxy{node: node, process: spawn(t, node, nil, argv...)}
	t.Cleanup(func() { assert.NotContains(t, p.output.String(), "DATA RACE") })
	return p
}

// account is the volume of a ServiceAccount of kube-system, which is made where
// it is not there.
func (c *controlPlane) account(t *testing.T, name string) *volume {
	t.Helper()
	accounts := c.admin.CoreV1().ServiceAccounts(metav1.NamespaceSystem)
	_, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		require.ErrorContains(t, err, "already exists")
	}
	token, err := accounts.CreateToken(t.Context(), name, &authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	ca, err := os.ReadFile(c.ca.File)
	require.NoError(t, err)
	return newVolume(t, map[string]string{"token": token.Status.Token, "ca.crt": string(ca), "namespace": metav1.NamespaceSystem})
}

// kubeadmConfigMap is the ConfigMap kube-proxy as kubeadm makes it.
func kubeadmConfigMap(t *testing.T) *corev1.ConfigMap {
	t.Helper()
	config, err := os.ReadFile("../internal/kubeproxy/testdata/kubeadm-1.37.yaml")
	require.NoError(t, err)
	return &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "kube-proxy", Namespace: metav1.NamespaceSystem, Labels: map[string]string{"app": "kube-proxy"}},
		Data: map[string]string{
			"config.conf": string(config),
			"kubeconfig.conf": `apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority: /var/run/secrets/kubernetes.io/serviceaccount/ca.crt
    server: https://` + net.JoinHostPort(controlAddr, apiPort) + `
  name: default
contexts:
- context:
    cluster: default
    namespace: default
    user: default
  name: default
current-context: default
users:
- name: default
  user:
    tokenFile: /var/run/secrets/kubernetes.io/serviceaccount/token
`,
		},
	}
}

// TestKubeadm: the ConfigMap of kubeadm, its arguments, its ServiceAccount and
// its rights start the proxy in kube-proxy's place; and a change of the ConfigMap
// ends it, for the kubelet to start it again.
func TestKubeadm(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "unshare")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed)
	_, err := cp.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "kubeadm:node-proxier"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: metav1.NamespaceSystem, Name: "kube-proxy"}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	made, err := cp.admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), kubeadmConfigMap(t), metav1.CreateOptions{})
	require.NoError(t, err)
	config := newVolume(t, made.Data)

	p := launchPod(t, bed.Node, config, cp.account(t, "kube-proxy"), os.Getenv(binaryVariable), "--config="+configDir+"/config.conf", "--hostname-override="+nodeName)
	p.becomeHealthy(t)
	serveNamed(t, bed.Back, "tcp", 8080, "a")
	cp.put(t, object{
		name: "web", clusterIPs: []string{"10.96.0.10"}, ports: []port{{"stream", service.TCP, 80, 30080}},
		endpoints: map[string][]string{"stream": {"10.10.2.2:8080"}},
	})
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
	requireAnswers(t, bed.Client, target{"tcp", "10.10.2.1:30080"}, "a")
	for line := range strings.Lines(p.output.String()) {
		if strings.Contains(line, "level=warning") { // which depends on the machine's rights
			assert.Regexp(t, "--oom-score-adj|--conntrack-", line)
		}
	}

	body, err := bed.Node.Get(t.Context(), "http://127.0.0.1:10249/configz")
	require.NoError(t, err)
	var configz map[string]map[string]any
	require.NoError(t, json.Unmarshal([]byte(body), &configz))
	assert.Equal(t, nodeName, configz["kubeproxy.config.k8s.io"]["hostnameOverride"])
	assert.Equal(t, "userspace", configz["kubeproxy.config.k8s.io"]["mode"])

	made.Data["config.conf"] = strings.Replace(made.Data["config.conf"], "enableProfiling: false", "enableProfiling: true", 1)
	config.put(t, made.Data)
	assert.Zero(t, p.exitCode(t))
	assert.Contains(t, p.output.String(), "has changed: ending")
}

// TestNodeDuties: nothing is served before the Node has what is needed, a Node that
// is about to go, or gone, gets no new clients, what cannot be set is told, and other
// addresses end the proxy.
func TestNodeDuties(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "setpriv")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed)
	nodes := cp.admin.CoreV1().Nodes()
	patch := func(subresource, text string) {
		_, err := nodes.Patch(t.Context(), nodeName, types.MergePatchType, []byte(text), metav1.PatchOptions{}, subresource)
		require.NoError(t, err)
	}
	patch("status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.10.2.1"}]}}`)

	kubeconfig := cp.kubeconfig(t, asProxy())
	start := func() *proxy {
		return launchBy(t, bed.Node, []string{"setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource", os.Getenv(binaryVariable)}, nil, "",
			"--kubeconfig="+kubeconfig, "--hostname-override="+nodeName, "--detect-local-mode=NodeCIDR", "--startup-grace=1s")
	}
	p := start()
	testNodeCIDR(t, bed, cp, p, func() { patch("", `{"spec":{"podCIDR":"10.10.3.0/24","podCIDRs":["10.10.3.0/24"]}}`) })
	var warnings []corev1.Event
	eventually(t, func() bool {
		list, err := cp.admin.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		warnings = eventsOf(list.Items, corev1.EventTypeWarning, "Node", nodeName)
		return len(warnings) > 0
	}, saying("an Event for what cannot be set"))
	assert.Equal(t, "CannotTuneNode", warnings[0].Reason)
	assert.Contains(t, warnings[0].Message, "--oom-score-adj: /proc/self/oom_score_adj cannot be set to -999: permission denied")
	assert.Contains(t, p.output.String(), warnings[0].Message)

	patch("", `{"spec":{"taints":[{"key":"ToBeDeletedByClusterAutoscaler","value":"1","effect":"NoSchedule"}]}}`)
	eventually(t, func() bool {
		_, err := bed.Node.Get(t.Context(), healthURL)
		return err != nil && strings.Contains(err.Error(), "503") && strings.Contains(err.Error(), `"nodeEligible": false`)
	}, saying("/healthz to follow the taint"))
	_, err := bed.Node.Get(t.Context(), strings.Replace(healthURL, "healthz", "livez", 1))
	require.NoError(t, err)
	patch("", `{"spec":{"taints":null}}`)
	eventually(t, p.healthy, saying("/healthz to follow the taint"))

	patch("status", `{"status":{"addresses":[{"type":"InternalIP","address":"10.10.2.9"}]}}`)
	assert.Equal(t, 1, p.exitCode(t))
	assert.Contains(t, p.output.String(), "the addresses of Node node-1 were [10.10.2.1] and are [10.10.2.9]: ending")

	p = start()
	p.becomeHealthy(t)
	eventually(t, func() bool { return p.status(t).source(t, "apiserver").Delivered }, saying("the Node to be known"))
	require.NoError(t, nodes.Delete(t.Context(), nodeName, metav1.DeleteOptions{}))
	p.expectProbes(t, 200, 503, 200)
	assert.Contains(t, p.output.String(), "the Node node-1 is gone from the API server: serving on")
}

// testNodeCIDR: the proxy waits for the Node's podCIDR and says so. From when it is
// known a pod of this node is told from a stranger: its traffic to an external
// address goes to any endpoint, a stranger's to those on this node, of which there
// are none.
func testNodeCIDR(t *testing.T, bed *nettest.Bed, cp *controlPlane, p *proxy, assign func()) {
	t.Helper()
	away := serveNamed(t, bed.Back, "tcp", 8080, "away")
	cp.put(t, object{
		name: "local", clusterIPs: []string{"10.96.0.90"}, spec: "externalTrafficPolicy: Local\n",
		ports: []port{{"stream", service.TCP, 80, 30090}}, endpoints: map[string][]string{"stream": away[:1]},
	})
	const external = "10.10.2.1:30090"
	const why = "--detect-local-mode is NodeCIDR, and the Node of this machine has no podCIDR"
	problem := func(reason, detail string) func() bool {
		return func() bool {
			return slices.ContainsFunc(p.statusz(t).Problems, func(p struct{ Object, Reason, Detail string }) bool {
				return p.Reason == reason && strings.Contains(p.Detail, detail)
			})
		}
	}
	eventually(t, func() bool {
		return strings.Contains(p.output.String(), "waiting up to 5m0s before anything of the API server is served: "+why)
	}, saying("the proxy to say what it waits for"))
	eventually(t, problem("SourceNotDelivered", "waiting for the Node: "+why), saying("the grace for sources to end"))
	_, err := bed.Node.Get(t.Context(), healthURL)
	assert.ErrorContains(t, err, "waiting, because "+why)
	assert.Empty(t, p.statusz(t).Ports)

	assign()
	p.becomeHealthy(t)
	requireAnswers(t, bed.Pod, target{"tcp", "10.96.0.90:80"}, "away")
	requireAnswers(t, bed.Pod, target{"tcp", external}, "away")
	assert.False(t, problem("LocalPodsUnknown", "")())
	requireNoAnswer(t, bed.Client, external)
	cp.remove(t, "local")
}
