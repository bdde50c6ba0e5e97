package main

import (
	"io"
	"log"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
)

// etcdAt runs a real etcd at a loopback address until the test ends.
func etcdAt(t *testing.T, addr string) (url string, client *clientv3.Client) {
	t.Helper()
	const binary = "../../bin/etcd"
	_, err := os.Stat(binary)
	require.NoError(t, err, "this test needs an etcd: run scripts/controlplane.sh once")
	url = "http://" + addr + ":2379"
	peer := "http://" + addr + ":2380"
	c := exec.Command(binary, "--name=a", "--data-dir="+t.TempDir(), "--unsafe-no-fsync", "--log-level=error",
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=a="+peer)
	require.NoError(t, c.Start())
	client, err = clientv3.New(clientv3.Config{Endpoints: []string{url}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() {
		_ = client.Close()
		_ = c.Process.Kill()
		_ = c.Wait()
	})
	return url, client
}

// TestCase39_fileAndEtcd have one Service: it is taken from the one whose flag
// stands first, and from the other when that has it no more.
func TestCase39_fileAndEtcd(t *testing.T) {
	t.Parallel()
	named(t, "127.66.9.1:8001", "one")
	url, client := etcdAt(t, "127.66.9.2")
	inFile := manifest("127.66.9.3", []int{8080}, "127.66.9.1:8001")
	service, _, _ := strings.Cut(inFile, "---\n")
	const key = "/registry/services/specs/default/web"
	_, err := client.Put(t.Context(), key, service)
	require.NoError(t, err)

	source := func(status string) string {
		ports := look(t, status).Ports
		if len(ports) != 1 {
			return ""
		}
		return ports[0].Source
	}
	becomes := func(status, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return source(status) == want }, patience, 20*time.Millisecond, want)
	}
	dir := t.TempDir()
	write(t, dir, "services.yaml", inFile)
	p, _, first := proxied(t, "", "--file", dir, "--etcd-servers", url)
	becomes(first, "file")
	requireAnswer(t, "127.66.9.3:8080", "one")
	require.Eventually(t, func() bool { return len(look(t, first).Problems) == 1 }, patience, 20*time.Millisecond)
	assert.Equal(t, "ShadowedBySource", look(t, first).Problems[0].Reason)
	write(t, dir, "services.yaml", "# none")
	becomes(first, "etcd")
	write(t, dir, "services.yaml", inFile)
	becomes(first, "file")
	_, metrics := get(t, first+"/metrics")
	assert.Contains(t, metrics, `userspace_proxy_source_objects{kind="Service",source="etcd"} 1`)
	p.stop()
	assert.Zero(t, p.wait(t))

	_, _, second := proxied(t, "", "--etcd-servers", url, "--file", dir)
	becomes(second, "etcd")
	_, err = client.Delete(t.Context(), key)
	require.NoError(t, err)
	becomes(second, "file")
	requireAnswer(t, "127.66.9.3:8080", "one")
}

// TestCase37_etcdThatIsNotThere is waited for, told, and keeps no other source
// from being served.
func TestCase37_etcdThatIsNotThere(t *testing.T) {
	t.Parallel()
	named(t, "127.66.10.1:8001", "one")
	dir := t.TempDir()
	write(t, dir, "services.yaml", manifest("127.66.10.2", []int{8080}, "127.66.10.1:8001"))
	_, _, status := proxied(t, "", "--file", dir, "--etcd-servers=http://127.66.10.3:2379", "--startup-grace=100ms")
	requireAnswer(t, "127.66.10.2:8080", "one")
	var s statusz
	require.Eventually(t, func() bool { // the grace is over, and the first try has failed
		s = look(t, status)
		return len(s.Problems) == 1 && strings.Contains(s.Problems[0].Detail, "connection refused")
	}, patience, 20*time.Millisecond)
	assert.Equal(t, "SourceNotDelivered", s.Problems[0].Reason)
	require.Len(t, s.Sources, 2)
	assert.Contains(t, s.Sources[1].Error, "etcd: reading /registry/services/specs/: ")
	assert.False(t, s.Sources[1].Delivered)
}

// TestRun_etcdWithAnUnknownCA is a wrong configuration, and says of which flag.
func TestRun_etcdWithAnUnknownCA(t *testing.T) {
	t.Parallel()
	server := httptest.NewUnstartedServer(nil)
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	defer server.Close()
	code, _, stderr := run(t, "", "run", "--redirect=none", "--etcd-servers", server.URL, "--log-level=error",
		"--healthz-bind-address=", "--metrics-bind-address=")
	assert.Equal(t, 2, code)
	assert.Contains(t, stderr, "userspace-proxy: source etcd: --etcd-cafile: is needed, since this machine does not know who signed the server's certificate: ")
}
