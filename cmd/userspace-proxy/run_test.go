package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// named serves TCP at an address until the test ends: it says its name, then
// repeats what it hears.
func named(t *testing.T, address, name string) {
	t.Helper()
	l, err := net.Listen("tcp", address)
	require.NoError(t, err)
	done := make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(done)
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			go func() {
				defer stop()
				defer conn.Close()
				_, _ = io.WriteString(conn, name+"\n")
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	t.Cleanup(func() {
		cancel()
		_ = l.Close()
		<-done
	})
}

// manifest is a Service with TCP ports and an endpoint for all of them.
func manifest(addr string, ports []int, endpoint string) string {
	var s strings.Builder
	fmt.Fprintf(&s, "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: %s\n  ports:\n", addr)
	for _, port := range ports {
		fmt.Fprintf(&s, "  - {name: p%d, port: %d}\n", port, port)
	}
	s.WriteString("---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\nmetadata:\n  name: web-1\n" +
		"  labels: {kubernetes.io/service-name: web}\naddressType: IPv4\nports:\n")
	host, number, _ := strings.Cut(endpoint, ":")
	for _, port := range ports {
		fmt.Fprintf(&s, "- {name: p%d, port: %s}\n", port, number)
	}
	fmt.Fprintf(&s, "endpoints:\n- addresses: [%s]\n", host)
	return s.String()
}

// answer connects and returns the first line that comes, or the error.
func answer(address string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return "", err
	}
	line, err := bufio.NewReader(conn).ReadString('\n')
	return strings.TrimSpace(line), err
}

func requireAnswer(t *testing.T, address, want string) {
	t.Helper()
	require.Eventually(t, func() bool {
		got, err := answer(address)
		return err == nil && got == want
	}, patience, 20*time.Millisecond, "%s does not answer %q", address, want)
}

func TestRun_servesAndTakesChanges(t *testing.T) {
	t.Parallel()
	named(t, "127.66.1.1:8001", "one")
	named(t, "127.66.1.2:8002", "two")
	dir := t.TempDir()
	file := write(t, dir, "services.yaml", manifest("127.66.0.1", []int{8080}, "127.66.1.1:8001"))
	p, health, status := proxied(t, "", "--file", dir, "--log-format=json", "-v=4")

	requireAnswer(t, "127.66.0.1:8080", "one")
	find(t, &p.stderr, `"serving 1 port of 1 service at 1 portal without rules"`)
	first, _, _ := strings.Cut(p.stderr.String(), "\n")
	assert.Regexp(t, `"msg":"userspace-proxy .*--allow-loopback-endpoints=true --file=`+dir+` .*--redirect=none --v=4"`, first, "the first line says what runs")
	assert.Contains(t, p.stderr.String(), `"msg":"all flags: `)
	assert.Contains(t, p.stderr.String(), `file descriptors to share: up to `)
	for _, page := range []string{health + "/healthz", health + "/livez", status + "/healthz"} {
		code, body := get(t, page)
		assert.Equal(t, http.StatusOK, code, body)
	}
	_, metrics := get(t, status+"/metrics")
	for _, name := range []string{"userspace_proxy_service_ports 1", "go_goroutines", "process_open_fds"} {
		assert.Contains(t, metrics, name)
	}

	write(t, dir, "services.yaml", manifest("127.66.0.1", []int{8080, 8081}, "127.66.1.2:8002"))
	requireAnswer(t, "127.66.0.1:8081", "two")
	requireAnswer(t, "127.66.0.1:8080", "two")
	find(t, &p.stderr, `"serving 2 ports of 1 service at 2 portals without rules"`)

	write(t, dir, "services.yaml", "kind: Servise\n")
	find(t, &p.stderr, `level":"warning","msg":"file `+file+`: .*Servise`)
	require.Eventually(t, func() bool { return len(look(t, status).Problems) > 0 }, patience, 20*time.Millisecond)
	s := look(t, status)
	assert.Equal(t, "file "+file, s.Problems[0].Object)
	assert.Equal(t, "UnknownKind", s.Problems[0].Reason)
	assert.NotEmpty(t, s.Problems[0].Advice)
	assert.Equal(t, "serving 2 ports of 1 service at 2 portals without rules; 1 problem, see /statusz", s.Summary)
	requireAnswer(t, "127.66.0.1:8080", "two")

	assert.Equal(t, "none", s.Redirect)
	assert.Equal(t, "here", s.Node.Name)
	require.Len(t, s.Sources, 1)
	assert.True(t, s.Sources[0].Delivered)
	assert.NotEmpty(t, s.Sources[0].Age)
	assert.Equal(t, 1, s.Sources[0].Services)
	require.Len(t, s.Ports, 2)
	port := s.Ports[0]
	assert.Equal(t, "default/web:p8080/TCP", port.Name)
	require.Len(t, port.Portals, 1)
	assert.Equal(t, "serving", port.Portals[0].State)
	assert.Equal(t, "127.66.0.1:8080", port.Portals[0].Listener)
	require.Len(t, port.Endpoints, 1)
	assert.True(t, port.Endpoints[0].Picked)
	assert.Equal(t, "ready", port.Endpoints[0].Why)

	p.stop()
	assert.Zero(t, p.wait(t))
	assert.Contains(t, p.stderr.String(), `"msg":"stopped"`)
	_, err := answer("127.66.0.1:8080")
	assert.Error(t, err, "nothing listens any more")
	assert.Empty(t, p.stdout.String())
}

// TestCase49_noLinePerConnection: connections come and go without a word.
func TestCase49_noLinePerConnection(t *testing.T) {
	t.Parallel()
	named(t, "127.66.2.1:8001", "one")
	p, _, _ := proxied(t, manifest("127.66.0.2", []int{8080, 8081}, "127.66.2.1:8001"), "--file=-")
	requireAnswer(t, "127.66.0.2:8080", "one")
	find(t, &p.stderr, `serving 2 ports`)
	before := p.stderr.String()
	for range 50 {
		requireAnswer(t, "127.66.0.2:8080", "one")
	}
	assert.Equal(t, before, p.stderr.String())
}

// TestRun_portTaken: a portal that another program has is a problem, and the
// other ports are served.
func TestRun_portTaken(t *testing.T) {
	t.Parallel()
	named(t, "127.66.0.3:8080", "stranger")
	named(t, "127.66.3.1:8001", "one")
	p, health, status := proxied(t, manifest("127.66.0.3", []int{8080, 8081}, "127.66.3.1:8001"), "--file=-")
	requireAnswer(t, "127.66.0.3:8081", "one")
	requireAnswer(t, "127.66.0.3:8080", "stranger")
	find(t, &p.stderr, `serving 1 port of 1 service at 1 portal without rules; 1 problem, see /statusz`)
	require.Eventually(t, func() bool { return len(look(t, status).Problems) == 1 }, patience, 20*time.Millisecond)
	problem := look(t, status).Problems[0]
	assert.Equal(t, "Service default/web", problem.Object)
	assert.Equal(t, "PortTaken", problem.Reason)
	assert.Contains(t, problem.Detail, "127.66.0.3:8080")
	assert.Equal(t, 1, strings.Count(p.stderr.String(), "another program on this node listens there"), "logged once")
	code, body := get(t, health+"/healthz")
	assert.Equal(t, http.StatusOK, code, body)
}

// TestRun_drains: after the signal connections live on, health says so, and
// the program ends with the last of them.
func TestRun_drains(t *testing.T) {
	t.Parallel()
	named(t, "127.66.4.1:8001", "one")
	p, health, _ := proxied(t, manifest("127.66.0.4", []int{8080}, "127.66.4.1:8001"), "--file=-", "--drain-timeout=10m")
	requireAnswer(t, "127.66.0.4:8080", "one")
	conn, err := net.Dial("tcp", "127.66.0.4:8080")
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	lines := bufio.NewReader(conn)
	_, err = lines.ReadString('\n')
	require.NoError(t, err)

	p.stop()
	find(t, &p.stderr, `stopping when the last of \d+ connections? has ended`)
	code, body := get(t, health+"/healthz")
	assert.Equal(t, http.StatusServiceUnavailable, code)
	assert.Contains(t, body, "the proxy is stopping")
	code, _ = get(t, health+"/livez")
	assert.Equal(t, http.StatusOK, code)
	_, err = io.WriteString(conn, "still here\n")
	require.NoError(t, err)
	line, err := lines.ReadString('\n')
	require.NoError(t, err)
	assert.Equal(t, "still here\n", line)

	require.NoError(t, conn.Close())
	assert.Zero(t, p.wait(t))
}

// TestRun_statusOff: an empty address is no address.
func TestRun_statusOff(t *testing.T) {
	t.Parallel()
	p := start(t, "apiVersion: v1\nkind: List\nitems: []\n", "--file=-", "--redirect=none", "--healthz-bind-address=", "--metrics-bind-address=")
	find(t, &p.stderr, `serving 0 ports of 0 services at 0 portals without rules`)
	assert.NotContains(t, p.stderr.String(), ": listening on 1")
	p.stop()
	assert.Zero(t, p.wait(t))
}
