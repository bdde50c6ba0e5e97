package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

const balanced = `apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.10
  externalTrafficPolicy: Local
  healthCheckNodePort: 32000
  ports:
  - {port: 80, nodePort: 30080}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: web-1
  labels: {kubernetes.io/service-name: web}
addressType: IPv4
ports:
- {port: 8080}
endpoints:
- {addresses: [10.10.2.2], nodeName: %s}
- {addresses: [10.10.2.3], nodeName: elsewhere}
`

// TestSemantics_healthCheckNodePort: what a load balancer hears that asks at the
// port from another machine, from when the Service comes until it goes.
func TestSemantics_healthCheckNodePort(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft")
	bed := nettest.New(t)
	dir := t.TempDir()
	write(t, dir, "services.yaml", fmt.Sprintf(balanced, "here"))
	self, err := os.Executable()
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var out nettest.Output
	cmd := bed.Node.Command(ctx, self, "--file", dir, "--hostname-override=here", "--redirect=nftables", "--min-sync-period=10ms")
	cmd.Env = programEnv(t)
	cmd.Stderr = &out
	require.NoError(t, cmd.Start())

	const at = "10.10.2.1:32000"
	client := http.Client{Timeout: patience, Transport: &http.Transport{DialContext: bed.Client.Dial, DisableKeepAlives: true}}
	heard := func() string {
		response, err := client.Get("http://" + at)
		if err != nil {
			return "nothing"
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			return err.Error()
		}
		return fmt.Sprint(response.StatusCode, " ", response.Header.Get("X-Load-Balancing-Endpoint-Weight"), " ", strings.Join(strings.Fields(string(body)), ""))
	}
	expect := func(want string) {
		t.Helper()
		require.Eventually(t, func() bool { return heard() == want }, patience, 20*time.Millisecond, "last: %s\n%s", heard(), &out)
	}
	const about = `{"service":{"namespace":"default","name":"web"},`
	expect(`200 1 ` + about + `"localEndpoints":1,"serviceProxyHealthy":true}`)
	write(t, dir, "services.yaml", fmt.Sprintf(balanced, "gone"))
	expect(`503 0 ` + about + `"localEndpoints":0,"serviceProxyHealthy":true}`)
	write(t, dir, "services.yaml", strings.Replace(fmt.Sprintf(balanced, "here"), "Policy: Local", "Policy: Cluster", 1))
	expect("nothing")

	stranger := bed.Node.ServeTCP(t, at, nettest.Banner("a daemon"))
	write(t, dir, "services.yaml", fmt.Sprintf(balanced, "here"))
	find(t, &out, `Service default/web: spec.healthCheckNodePort: load balancers cannot ask at `+at)
	stranger.Close()
	expect(`200 1 ` + about + `"localEndpoints":1,"serviceProxyHealthy":true}`)
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), "%s", &out)
	assert.Equal(t, "nothing", heard())
}
