package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

const manifests = "../deploy/kubernetes/"

// TestDeploy: the API server takes the manifests, and with the ServiceAccount,
// the rights, the ConfigMap and the arguments that are in them, and no others,
// the proxy serves, sees its Node and writes Events.
func TestDeploy(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "unshare", "setpriv")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed)
	cp.revoke(t) // the rights that other tests' proxies have
	content, err := os.ReadFile(manifests + "userspace-proxy.yaml")
	require.NoError(t, err)
	for _, file := range []string{"userspace-proxy.yaml", "kubeconfig.yaml"} {
		text, err := os.ReadFile(manifests + file)
		require.NoError(t, err)
		t.Log(cp.kubectl(t, string(text), "apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", "-"))
	}
	cp.kubectl(t, string(content), "apply", "--server-side", "--validate=strict", "-f", "-")
	_, err = cp.admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Create(t.Context(), kubeadmConfigMap(t), metav1.CreateOptions{})
	require.NoError(t, err)

	const name = "userspace-proxy"
	daemons, err := cp.admin.AppsV1().DaemonSets(metav1.NamespaceSystem).Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	p := launchPod(t, bed.Node, cp.projected(t, daemons), cp.account(t, daemons.Spec.Template.Spec.ServiceAccountName), containerOf(t, daemons)...)
	p.becomeHealthy(t)
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	cp.put(t, object{
		name: "web", clusterIPs: []string{"10.96.0.10", "fd96::10"}, ports: []port{{"stream", service.TCP, 80, 30080}},
		endpoints: map[string][]string{"stream": tcp}, externalIPs: []string{"10.10.2.1", "192.0.2.10", "2001:db8::10"},
	})
	for _, at := range []string{"10.96.0.10:80", "[fd96::10]:80", "10.10.2.1:80", "192.0.2.10:80", "[2001:db8::10]:80"} {
		requireAnswers(t, bed.Client, target{"tcp", at}, "a")
	}
	assert.Empty(t, p.problems(t))
	eventually(t, func() bool {
		list, err := cp.admin.CoreV1().Events(metav1.NamespaceDefault).List(t.Context(), metav1.ListOptions{})
		require.NoError(t, err)
		return len(eventsOf(list.Items, corev1.EventTypeNormal, "Node", nodeName)) > 0
	}, saying("the Event of the start"))
	assert.NotContains(t, p.output.String(), "forbidden")
	assert.NotContains(t, p.output.String(), "refuses")

	// Not one right could be left out: each is taken away in turn and missed.
	role, err := cp.admin.RbacV1().ClusterRoles().Get(t.Context(), name, metav1.GetOptions{})
	require.NoError(t, err)
	p.signal(t, os.Kill)
	p.exitCode(t)
	for i := range role.Rules {
		less := role.DeepCopy()
		less.Rules = append(append([]rbacv1.PolicyRule{}, role.Rules[:i]...), role.Rules[i+1:]...)
		less.ResourceVersion = ""
		_, err := cp.admin.RbacV1().ClusterRoles().Update(t.Context(), less, metav1.UpdateOptions{})
		require.NoError(t, err)
		p := launchPod(t, bed.Node, cp.projected(t, daemons), cp.account(t, name), containerOf(t, daemons)...)
		eventually(t, func() bool { return strings.Contains(p.output.String(), "forbidden") }, saying("%v to be missed", role.Rules[i]))
		p.signal(t, os.Kill)
		p.exitCode(t)
	}
}

// projected is the volume of the DaemonSet's configuration.
func (c *controlPlane) projected(t *testing.T, d *appsv1.DaemonSet) *volume {
	t.Helper()
	files := map[string]string{}
	for _, v := range d.Spec.Template.Spec.Volumes {
		if v.Projected == nil {
			continue
		}
		for _, source := range v.Projected.Sources {
			from, err := c.admin.CoreV1().ConfigMaps(metav1.NamespaceSystem).Get(t.Context(), source.ConfigMap.Name, metav1.GetOptions{})
			require.NoError(t, err)
			if len(source.ConfigMap.Items) == 0 {
				for name, content := range from.Data {
					files[name] = content
				}
			}
			for _, item := range source.ConfigMap.Items {
				files[item.Path] = from.Data[item.Key]
			}
		}
	}
	return newVolume(t, files)
}

// containerOf is how the DaemonSet's container is started: with its arguments, and
// its capabilities alone, as far as this machine has them.
func containerOf(t *testing.T, d *appsv1.DaemonSet) []string {
	t.Helper()
	container := d.Spec.Template.Spec.Containers[0]
	require.Equal(t, []corev1.Capability{"ALL"}, container.SecurityContext.Capabilities.Drop)
	numbers := map[corev1.Capability]uintptr{"NET_ADMIN": unix.CAP_NET_ADMIN, "NET_BIND_SERVICE": unix.CAP_NET_BIND_SERVICE, "NET_RAW": unix.CAP_NET_RAW, "SYS_RESOURCE": unix.CAP_SYS_RESOURCE}
	only := "-all"
	for _, c := range container.SecurityContext.Capabilities.Add {
		require.Contains(t, numbers, c)
		if has, err := unix.PrctlRetInt(unix.PR_CAPBSET_READ, numbers[c], 0, 0, 0); err == nil && has == 1 {
			only += ",+" + strings.ToLower(string(c))
		}
	}
	argv := []string{"setpriv", "--bounding-set=" + only, "--inh-caps=" + only, "--no-new-privs", os.Getenv(binaryVariable)}
	for _, arg := range container.Args {
		argv = append(argv, strings.ReplaceAll(arg, "$(NODE_NAME)", nodeName))
	}
	return argv
}

// TestImage builds the container's image and runs what is in it. It needs no
// engine.
func TestImage(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "buildah", "dpkg-deb")
	root := t.TempDir()
	env := append(os.Environ(), "BUILDAH_ROOT="+root, "BINARY="+os.Getenv(binaryVariable))
	run := func(program string, args ...string) string {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 2*recovery)
		defer cancel()
		cmd := exec.CommandContext(ctx, program, args...)
		cmd.Env = env
		out, err := cmd.CombinedOutput()
		require.NoError(t, err, "%s", out)
		return strings.TrimSpace(string(out))
	}
	const image = "localhost/userspace-proxy:test"
	run("../deploy/container/build.sh", image)
	buildah := []string{"--root", root, "--runroot", filepath.Join(root, "run"), "--storage-driver=vfs"}
	container := run("buildah", append(buildah, "from", "--pull-never", image)...)
	inside := func(command ...string) string {
		t.Helper()
		return run("buildah", append(append(buildah, "run", "--isolation=chroot", container, "--"), command...)...)
	}
	assert.Contains(t, inside("/usr/local/bin/userspace-proxy", "version"), "userspace-proxy ")
	assert.Contains(t, inside("nft", "--version"), "nftables v")
	for _, command := range []string{"iptables", "ip6tables", "iptables-save", "ip6tables-restore"} {
		assert.Contains(t, inside(command, "--version"), "(nf_tables)")
		assert.Contains(t, inside("/usr/local/lib/iptables-legacy/"+command, "--version"), "(legacy)")
	}
	assert.Contains(t, run("buildah", append(buildah, "inspect", "--format={{.OCIv1.Config.Entrypoint}}", container)...), "/usr/local/bin/userspace-proxy")
}

// TestUnit: systemd finds nothing wrong with the unit.
func TestUnit(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "systemd-analyze")
	text, err := os.ReadFile("../deploy/systemd/userspace-proxy.service")
	require.NoError(t, err)
	unit := filepath.Join(t.TempDir(), "userspace-proxy.service")
	require.NoError(t, os.WriteFile(unit, []byte(strings.ReplaceAll(string(text), "/usr/local/bin/userspace-proxy", os.Getenv(binaryVariable))), 0o644))
	out, err := exec.CommandContext(t.Context(), "systemd-analyze", "verify", unit).CombinedOutput()
	require.NoError(t, err, "%s", out)
	assert.Empty(t, string(out))
}
