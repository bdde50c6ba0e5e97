package e2e

import (
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestFaultsOfTheAPIServer: whatever happens to the API server that is followed,
// and to its etcd, what was known stays in use, and what is true afterwards is
// found out.
func TestFaultsOfTheAPIServer(t *testing.T) {
	t.Parallel()
	cp, r := newAPIRig(t)
	r.begin(t, "--kubeconfig="+cp.kubeconfig(t, asProxy()))

	var kept string
	for _, f := range []fault{
		{name: "killed", do: func(t *testing.T, r *rig) {
			cp.killAPI(t)
			r.requireFault(t)
			cp.startAPI(t)
			cp.ready(t)
		}},
		{name: "etcd killed", do: func(t *testing.T, _ *rig) {
			cp.etcd.kill(t)
			kept = cp.etcd.keep(t)
			cp.etcd.start(t)
			cp.ready(t)
		}},
		dropped("cut off", apiPort, func(*testing.T, *rig) {}),
		dropped("cut off, compacted and restarted", apiPort, func(t *testing.T, _ *rig) {
			cp.etcd.compact(t)
			cp.killAPI(t)
			cp.startAPI(t)
			cp.ready(t)
		}),
		{name: "connections reset", do: func(t *testing.T, r *rig) { refused(t, r.bed, apiPort) }},
		{name: "older data", do: func(t *testing.T, _ *rig) { cp.restartWith(t, kept) }},
		{name: "no data", loses: true, do: func(t *testing.T, r *rig) {
			cp.restartWith(t, "")
			cp.grant(t)
			eventuallyWithin(t, recovery, func() bool { return len(r.proxy.status(t).ports("steady")) == 0 }, saying("what is gone to be gone"))
			requireNoAnswer(t, r.bed.Client, "10.96.0.200:80")
			r.putSteady(t)
		}},
		{name: "10,000 updates", do: func(t *testing.T, r *rig) {
			client := cp.admin.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault)
			r.burst(t, func(slice *discovery.EndpointSlice) error {
				_, err := client.Update(t.Context(), slice, metav1.UpdateOptions{})
				return err
			})
		}},
	} {
		r.suffer(t, f)
	}
	r.proxy.stop(t)
}

// TestSilenceOfTheAPIServer: faults that show only when something is asked.
// It mostly waits for that, beside other tests.
func TestSilenceOfTheAPIServer(t *testing.T) {
	t.Parallel()
	cp, r := newAPIRig(t)
	r.begin(t, "--kubeconfig="+cp.kubeconfig(t, asProxy()))
	for _, f := range []fault{
		dropped("cut off", apiPort, func(t *testing.T, r *rig) { r.requireFault(t) }),
		hung("hangs", func() *process { return cp.api }),
		hung("etcd hangs", func() *process { return cp.etcd.process }),
		{name: "rights revoked", do: func(t *testing.T, r *rig) {
			cp.revoke(t)
			refused(t, r.bed, apiPort) // an open watch outlives its rights
			r.requireFault(t)
			r.change(t)
			cp.grant(t)
			r.follows(t)
		}},
	} {
		r.suffer(t, f)
	}
	r.proxy.stop(t)
}

// newAPIRig is a rig whose source is the API server of a control plane of its own.
func newAPIRig(t *testing.T) (*controlPlane, *rig) {
	t.Helper()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	cp := newControlPlane(t, bed)
	return cp, newRig(t, bed, cp)
}

// restartWith has the API server and etcd end, and start with other data.
func (c *controlPlane) restartWith(t *testing.T, data string) {
	t.Helper()
	c.killAPI(t)
	c.etcd.kill(t)
	c.etcd.restore(t, data)
	c.etcd.start(t)
	c.startAPI(t)
	c.ready(t)
}

// TestTokenExpires: a token of a ServiceAccount that runs out, and a new one in
// its file.
func TestTokenExpires(t *testing.T) {
	t.Parallel()
	cp, r := newAPIRig(t)
	account, err := cp.admin.CoreV1().ServiceAccounts("kube-system").Create(t.Context(),
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "proxy"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "token")
	write := func(expires time.Time) {
		t.Helper()
		require.NoError(t, os.WriteFile(file, []byte(cp.token(t, account, expires)), 0o600))
	}
	expires := time.Now().Add(30 * time.Second)
	write(expires)
	r.begin(t, "--kubeconfig="+cp.kubeconfig(t, clientcmdapi.AuthInfo{TokenFile: file}))
	r.suffer(t, fault{name: "expired and replaced", do: func(t *testing.T, r *rig) {
		time.Sleep(time.Until(expires))
		refused(t, r.bed, apiPort) // an open watch outlives its token
		eventuallyWithin(t, recovery, func() bool { return strings.Contains(r.proxy.status(t).Sources[0].Error, "expired") },
			saying("the proxy to say that its token has expired"))
		r.change(t)
		write(time.Now().Add(time.Hour))
		r.follows(t)
	}})
	r.proxy.stop(t)
}

// token is one of a ServiceAccount, as the API server itself would sign it,
// which makes none that lives for less than ten minutes.
func (c *controlPlane) token(t *testing.T, account *corev1.ServiceAccount, expires time.Time) string {
	t.Helper()
	const issuer = "https://kubernetes.default.svc"
	claims, err := json.Marshal(map[string]any{
		"iss": issuer, "aud": []string{issuer}, "sub": "system:serviceaccount:" + account.Namespace + ":" + account.Name,
		"iat": time.Now().Unix(), "nbf": time.Now().Unix(), "exp": expires.Unix(),
		"kubernetes.io": map[string]any{
			"namespace":      account.Namespace,
			"serviceaccount": map[string]any{"name": account.Name, "uid": account.UID},
		},
	})
	require.NoError(t, err)
	content, err := os.ReadFile(c.saKey)
	require.NoError(t, err)
	block, _ := pem.Decode(content)
	key, err := x509.ParseECPrivateKey(block.Bytes)
	require.NoError(t, err)

	encode := base64.RawURLEncoding.EncodeToString
	signed := encode([]byte(`{"alg":"ES256","typ":"JWT"}`)) + "." + encode(claims)
	digest := sha256.Sum256([]byte(signed))
	r, s, err := ecdsa.Sign(rand.Reader, key, digest[:])
	require.NoError(t, err)
	signature := make([]byte, 64) // RFC 7518, section 3.4
	r.FillBytes(signature[:32])
	s.FillBytes(signature[32:])
	return signed + "." + encode(signature)
}
