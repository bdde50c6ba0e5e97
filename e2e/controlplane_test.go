package e2e

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/client-go/transport"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/internal/testpki"
)

// Tokens that the API server knows by its file.
const (
	adminToken = "the-administrator"
	proxyToken = "the-proxy"
)

// nodeName is the Node that proxies of these tests run on.
const nodeName = "node-1"

// withoutEndpointSlices is a flag for an API server that is as old ones are.
const withoutEndpointSlices = "--runtime-config=discovery.k8s.io/v1=false"

// controlPlane is a real etcd and a real kube-apiserver, processes of their own
// on the host back of a bed. Either may be killed and started again.
type controlPlane struct {
	etcd  *etcdServer
	api   *process
	owner *testing.T // with which they end
	host  *nettest.Host
	ca    *testpki.Authority
	args  []string // of the API server
	saKey string   // the file of the key that signs ServiceAccounts' tokens
	admin *kubernetes.Clientset
}

// newControlPlane starts both at once, and returns when they are ready, the
// proxy's user has its rights, and there is the Node that it runs on.
func newControlPlane(t *testing.T, bed *nettest.Bed, flags ...string) *controlPlane {
	t.Helper()
	ca := testpki.New(t)
	c := &controlPlane{owner: t, host: bed.Back, ca: ca, etcd: newEtcd(t, bed.Back, ca)}
	dir := t.TempDir()
	c.saKey = filepath.Join(dir, "sa.key")
	testpki.WriteKey(t, c.saKey, testpki.NewKey(t))
	tokens := filepath.Join(dir, "tokens.csv")
	require.NoError(t, os.WriteFile(tokens, []byte(adminToken+",admin,admin,system:masters\n"+proxyToken+",proxy,proxy\n"), 0o600))
	pair := ca.Issue("kube-apiserver", controlAddr)
	c.args = append(c.etcd.flags(t, "root"),
		"--bind-address="+controlAddr, "--secure-port="+apiPort, "--advertise-address="+controlAddr, "--endpoint-reconciler-type=none",
		"--tls-cert-file="+pair.Cert, "--tls-private-key-file="+pair.Key, "--cert-dir="+dir,
		"--token-auth-file="+tokens, "--authorization-mode=RBAC", "--disable-admission-plugins=ServiceAccount",
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file="+c.saKey, "--service-account-signing-key-file="+c.saKey,
		"--service-cluster-ip-range=10.96.0.0/16,fd96::/112",
	)
	c.args = append(c.args, flags...)
	c.admin = c.connect(t)
	c.startAPI(t)
	c.ready(t)
	c.grant(t)
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName}}
	_, err := c.admin.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{})
	require.NoError(t, err)
	return c
}

// connect makes an administrator's client, on the host of the control plane.
func (c *controlPlane) connect(t *testing.T) *kubernetes.Clientset {
	t.Helper()
	plain := &http.Transport{DialContext: c.host.Dial, TLSClientConfig: c.ca.Client(testpki.Pair{}), ForceAttemptHTTP2: true}
	t.Cleanup(plain.CloseIdleConnections)
	config := &rest.Config{Host: "https://" + net.JoinHostPort(controlAddr, apiPort), QPS: -1}
	client, err := kubernetes.NewForConfigAndClient(config, &http.Client{Transport: transport.NewBearerAuthRoundTripper(adminToken, plain)})
	require.NoError(t, err)
	return client
}

// startAPI starts the API server, for the first time or after a kill.
func (c *controlPlane) startAPI(t *testing.T) {
	t.Helper()
	c.api = spawn(c.owner, c.host, nil, append([]string{bin(t, "kube-apiserver")}, c.args...)...)
}

// ready waits until the API server is, with all that it does at its start.
func (c *controlPlane) ready(t *testing.T) {
	t.Helper()
	request := c.admin.RESTClient().Get().AbsPath("/readyz")
	if slices.Contains(c.args, withoutEndpointSlices) {
		request.Param("exclude", "informer-sync") // it waits for one that follows them
	}
	var body []byte
	var err error
	eventuallyWithin(t, recovery, func() bool { // several start at once
		require.False(t, c.api.hasEnded(), "kube-apiserver has ended")
		require.False(t, c.etcd.hasEnded(), "etcd has ended")
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second) // one that hangs is asked again
		defer cancel()
		body, err = request.Do(ctx).Raw()
		return err == nil
	}, func() string { return fmt.Sprintf("the API server; last: %v\n%s", err, body) })
}

// killAPI ends the API server as a crash does.
func (c *controlPlane) killAPI(t *testing.T) {
	t.Helper()
	c.api.signal(t, syscall.SIGKILL)
	c.api.exitCode(t)
}

// kill ends etcd as a crash does.
func (e *etcdServer) kill(t *testing.T) {
	t.Helper()
	e.signal(t, syscall.SIGKILL)
	e.exitCode(t)
}

// grant gives the proxy's user the rights that Kubernetes has for service
// proxies, and not one more.
func (c *controlPlane) grant(t *testing.T) {
	t.Helper()
	_, err := c.admin.RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "proxy"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "system:node-proxier"},
		Subjects: []rbacv1.Subject{
			{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "proxy"},
			{Kind: rbacv1.ServiceAccountKind, Namespace: "kube-system", Name: "proxy"},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
}

// revoke takes them away.
func (c *controlPlane) revoke(t *testing.T) {
	t.Helper()
	require.NoError(t, c.admin.RbacV1().ClusterRoleBindings().Delete(t.Context(), "proxy", metav1.DeleteOptions{}))
}

// kubeconfig writes a kubeconfig for a user, whom a token or a token's file
// names, and returns its path.
func (c *controlPlane) kubeconfig(t *testing.T, user clientcmdapi.AuthInfo) string {
	t.Helper()
	config := clientcmdapi.NewConfig()
	config.Clusters["test"] = &clientcmdapi.Cluster{Server: "https://" + net.JoinHostPort(controlAddr, apiPort), CertificateAuthority: c.ca.File}
	config.AuthInfos["test"] = &user
	config.Contexts["test"] = &clientcmdapi.Context{Cluster: "test", AuthInfo: "test"}
	config.CurrentContext = "test"
	path := filepath.Join(t.TempDir(), "kubeconfig")
	require.NoError(t, clientcmd.WriteToFile(*config, path))
	return path
}

// kubectl runs kubectl as the administrator, with something on its standard
// input.
func (c *controlPlane) kubectl(t *testing.T, input string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var stdout, stderr strings.Builder
	cmd := c.host.Command(ctx, bin(t, "kubectl"), append([]string{"--kubeconfig=" + c.kubeconfig(t, clientcmdapi.AuthInfo{Token: adminToken}), "--cache-dir=" + t.TempDir()}, args...)...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(input), &stdout, &stderr
	require.NoError(t, cmd.Run(), "kubectl %s\n%s%s", strings.Join(args, " "), &stdout, &stderr)
	return stdout.String()
}
