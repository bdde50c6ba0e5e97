package apiserver

import (
	"context"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// kubeconfig writes a kubeconfig with more of its cluster and user.
func kubeconfig(t *testing.T, cluster, user string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "proxy.conf")
	require.NoError(t, os.WriteFile(name, fmt.Appendf(nil, `apiVersion: v1
kind: Config
current-context: c
contexts: [{name: c, context: {cluster: c, user: u}}]
clusters: [{name: c, cluster: {%s}}]
users: [{name: u, user: {%s}}]
`, cluster, user), 0o600))
	return name
}

func TestConnection(t *testing.T) {
	t.Parallel()
	var asked http.Header
	answer := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		asked = r.Header
		fail(w, http.StatusForbidden)
	})
	plain, secure := httptest.NewServer(answer), httptest.NewTLSServer(answer)
	defer plain.Close()
	defer secure.Close()
	trusted := base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw}))
	token, ca := "token: secret", "certificate-authority-data: "+trusted
	for name, c := range map[string]Connection{
		"kubeconfig":             {Kubeconfig: kubeconfig(t, "server: '"+secure.URL+"', "+ca, token)},
		"master":                 {Master: plain.URL},
		"master wins":            {Kubeconfig: kubeconfig(t, "server: 'https://192.0.2.1', "+ca, token), Master: secure.URL},
		"kubeconfig without one": {Kubeconfig: kubeconfig(t, ca, token), Master: secure.URL},
	} {
		c.QPS, c.Burst, c.ContentType, c.UserAgent = 7, 9, "application/vnd.kubernetes.protobuf", "test/1"
		config, err := c.Config()
		require.NoError(t, err, name)
		assert.InDelta(t, 7, config.QPS, 0, name)
		assert.Equal(t, 9, config.Burst, name)
		client, err := kubernetes.NewForConfig(config)
		require.NoError(t, err, name)
		_, err = client.CoreV1().Services("").List(context.Background(), metav1.ListOptions{})
		require.ErrorContains(t, err, "test says Forbidden", name)
		assert.Equal(t, "test/1", asked.Get("User-Agent"), name)
		assert.Contains(t, asked.Get("Accept"), "application/vnd.kubernetes.protobuf", name)
		if c.Kubeconfig != "" {
			assert.Equal(t, "Bearer secret", asked.Get("Authorization"), name)
		}
	}
}

// TestConnection_relativeFiles: they are relative to the kubeconfig.
func TestConnection_relativeFiles(t *testing.T) {
	t.Parallel()
	name := kubeconfig(t, "server: 'https://192.0.2.1'", "tokenFile: token")
	require.NoError(t, os.WriteFile(filepath.Join(filepath.Dir(name), "token"), []byte("secret"), 0o600))
	config, err := Connection{Kubeconfig: name}.Config()
	require.NoError(t, err)
	assert.Equal(t, filepath.Join(filepath.Dir(name), "token"), config.BearerTokenFile)
}

func TestConnection_faults(t *testing.T) {
	t.Parallel()
	write := func(content string) string {
		name := filepath.Join(t.TempDir(), "proxy.conf")
		require.NoError(t, os.WriteFile(name, []byte(content), 0o600))
		return name
	}
	for name, tt := range map[string]struct {
		connection Connection
		says       string
	}{
		"missing":        {Connection{Kubeconfig: "/nowhere/proxy.conf"}, "no such file or directory"},
		"no YAML":        {Connection{Kubeconfig: write("{")}, "yaml"},
		"a directory":    {Connection{Kubeconfig: t.TempDir()}, "is a directory"},
		"another kind":   {Connection{Kubeconfig: write("apiVersion: v1\nkind: Pod\n")}, "it is no kubeconfig"},
		"empty":          {Connection{Kubeconfig: write("")}, "no current-context"},
		"no server":      {Connection{Kubeconfig: kubeconfig(t, "", "")}, "no server found"},
		"missing CA":     {Connection{Kubeconfig: kubeconfig(t, "server: 'https://192.0.2.1', certificate-authority: ca.crt", "")}, "ca.crt"},
		"bad CA":         {Connection{Kubeconfig: kubeconfig(t, "server: 'https://192.0.2.1', certificate-authority-data: eHg=", "")}, "certificate"},
		"no URL":         {Connection{Kubeconfig: kubeconfig(t, "server: 'https://x:y:z'", "")}, "https://x:y:z"},
		"no URL, master": {Connection{Master: "http://x:y:z"}, `"http://x:y:z": `},
	} {
		_, err := tt.connection.Config()
		require.ErrorContains(t, err, tt.says, name)
		if file := tt.connection.Kubeconfig; file != "" {
			assert.ErrorContains(t, err, file, name)
		}
	}
}

func TestConnection_notInCluster(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	_, err := Connection{}.Config()
	assert.ErrorIs(t, err, ErrNotInCluster)
}
