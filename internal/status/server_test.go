package status

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/explain"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// serve runs a server until the test ends and returns where health and
// everything are.
func serve(t *testing.T, c Config) (health, all string) {
	t.Helper()
	c.HealthAddress, c.MetricsAddress = "127.0.0.1:0", "127.0.0.1:0"
	s, err := Listen(complete(c))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		require.NoError(t, <-ended)
	})
	addrs := s.Addresses()
	return "http://" + addrs[0].String(), "http://" + addrs[1].String()
}

// complete fills in what a test does not care for.
func complete(c Config) Config {
	if c.Health == nil {
		c.Health = func() Health { return Health{} }
	}
	if c.Report == nil {
		c.Report = func(Lists) Report { return Report{} }
	}
	if c.Explain == nil {
		c.Explain = func(q explain.Question) explain.Answer { return explain.Answer{Summary: q.String()} }
	}
	if c.Metrics == nil {
		c.Metrics = prometheus.NewRegistry()
	}
	if c.Log == nil {
		log := logrus.New()
		log.SetOutput(io.Discard)
		c.Log = log
	}
	return c
}

type answer struct {
	code        int
	contentType string
	body        string
}

func ask(t *testing.T, method, url string) answer {
	t.Helper()
	client := http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), method, url, http.NoBody)
	require.NoError(t, err)
	response, err := client.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	assert.Equal(t, "nosniff", response.Header.Get("X-Content-Type-Options"))
	return answer{response.StatusCode, response.Header.Get("Content-Type"), string(body)}
}

func TestServer_pages(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "answer"}, func() float64 { return 42 }))
	health, all := serve(t, Config{Metrics: registry})

	for _, tt := range []struct {
		url, contentType, contains string
		code                       int
	}{
		{health + "/healthz", "application/json", `"lastUpdated"`, 200},
		{health + "/livez", "application/json", `"currentTime"`, 200},
		{health + "/readyz", "application/json", `"healthy": true`, 200},
		{health + "/metrics", "text/plain; charset=utf-8", "not found", 404},
		{health + "/statusz", "text/plain; charset=utf-8", "not found", 404},
		{all + "/", "text/html; charset=utf-8", `<a href="/statusz">`, 200},
		{all + "/healthz", "application/json", `"lastUpdated"`, 200},
		{all + "/statusz", "application/json", `"sources": []`, 200},
		{all + "/metrics", "text/plain; version=0.0.4; charset=utf-8; escaping=underscores", "answer 42", 200},
		{all + "/elsewhere", "text/plain; charset=utf-8", "not found", 404},
		{all + "/debug/pprof/", "text/plain; charset=utf-8", "not found", 404},
	} {
		got := ask(t, http.MethodGet, tt.url)
		assert.Equal(t, tt.code, got.code, tt.url)
		assert.Equal(t, tt.contentType, got.contentType, tt.url)
		assert.Contains(t, got.body, tt.contains, tt.url)
	}
}

func TestServer_answersGETOnly(t *testing.T) {
	t.Parallel()
	health, all := serve(t, Config{})
	for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodPatch, http.MethodOptions} {
		for _, url := range []string{health + "/healthz", health + "/livez", health + "/readyz", all + "/", all + "/statusz", all + "/metrics"} {
			assert.Equal(t, http.StatusMethodNotAllowed, ask(t, method, url).code, "%s %s", method, url)
		}
	}
}

func TestServer_profiling(t *testing.T) {
	t.Parallel()
	health, all := serve(t, Config{Profiling: true})
	assert.Equal(t, http.StatusOK, ask(t, http.MethodGet, all+"/debug/pprof/goroutine?debug=1").code)
	assert.Contains(t, ask(t, http.MethodGet, all+"/").body, "/debug/pprof/")
	assert.Equal(t, http.StatusNotFound, ask(t, http.MethodGet, health+"/debug/pprof/").code)
}

func TestServer_statusz(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	_, all := serve(t, Config{Report: func(Lists) Report {
		return Report{
			Version: "v1", Time: now, Started: now.Add(-time.Minute), Uptime: "1m0s", Redirect: "none", Summary: "serving 1 port",
			Node: Node{Name: "a", Addresses: []netip.Addr{netip.MustParseAddr("192.0.2.2")}},
			Sources: SourcesOf([]config.SourceInfo{
				{Name: "file", Delivered: true, Updated: now.Add(-90 * time.Second), Checked: now, Services: 1, Endpoints: 2},
				{Name: "late", Err: "no answer"},
			}, now),
			Status: proxy.Status{Rules: "none", Synced: now, Ports: []proxy.PortStatus{{
				Name: "default/web/TCP", Family: service.IPv4, Source: "file",
				Portals: []proxy.PortalStatus{}, Endpoints: []proxy.EndpointStatus{},
			}}},
			Problems: ProblemsOf([]service.Problem{
				{Object: "Service default/web", Field: "spec.type", Reason: "InvalidType", Detail: "is <odd>", Advice: "mend it"},
			}),
		}
	}})
	want := `{
  "version": "v1",
  "time": "2026-01-02T03:04:05Z",
  "started": "2026-01-02T03:03:05Z",
  "uptime": "1m0s",
  "node": {
    "name": "a",
    "addresses": [
      "192.0.2.2"
    ],
    "nodePortAddresses": [],
    "listenAddresses": []
  },
  "redirect": "none",
  "transparent": false,
  "summary": "serving 1 port",
  "sources": [
    {
      "name": "file",
      "delivered": true,
      "age": "1m30s",
      "checked": "0s",
      "services": 1,
      "endpoints": 2
    },
    {
      "name": "late",
      "delivered": false,
      "services": 0,
      "endpoints": 0,
      "error": "no answer"
    }
  ],
  "problems": [
    {
      "object": "Service default/web",
      "field": "spec.type",
      "reason": "InvalidType",
      "detail": "is <odd>",
      "advice": "mend it"
    }
  ],
  "rules": "none",
  "synced": "2026-01-02T03:04:05Z",
  "pending": false,
  "rulesRestored": 0,
  "descriptors": {
    "total": 0,
    "listeners": 0,
    "traffic": 0,
    "flows": 0
  },
  "ports": [
    {
      "name": "default/web/TCP",
      "family": "IPv4",
      "source": "file",
      "portals": [],
      "endpoints": []
    }
  ],
  "connections": [],
  "connectionsOpen": 0,
  "flows": [],
  "flowsOpen": 0
}
`
	// Indentation and order are for people.
	if got := ask(t, http.MethodGet, all+"/statusz").body; got != want {
		assert.Fail(t, "not as wanted", "%s", got)
	}
}

func TestServer_statuszListsAsManyAsAsked(t *testing.T) {
	t.Parallel()
	_, all := serve(t, Config{Report: func(l Lists) Report {
		return Report{ConnectionsOpen: l.Connections, FlowsOpen: l.Flows}
	}})
	for query, want := range map[string][2]int{
		"": {1000, 1000}, "?connections=0": {0, 1000}, "?flows=7&connections=100000": {100_000, 7}, "?connections=": {1000, 1000},
	} {
		var got struct{ ConnectionsOpen, FlowsOpen int }
		require.NoError(t, json.Unmarshal([]byte(ask(t, http.MethodGet, all+"/statusz"+query).body), &got))
		assert.Equal(t, want, [2]int{got.ConnectionsOpen, got.FlowsOpen}, query)
	}
	for _, query := range []string{"?connections=-1", "?connections=100001", "?flows=all"} {
		got := ask(t, http.MethodGet, all+"/statusz"+query)
		assert.Equal(t, http.StatusBadRequest, got.code, query)
		assert.Contains(t, got.body, "is not a number from 0 to 100000")
	}
}

func TestListen_portTaken(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer taken.Close()
	at := taken.Addr().String()

	_, err = Listen(complete(Config{HealthAddress: at, HardFail: true}))
	assert.EqualError(t, err, "--healthz-bind-address "+at+": bind: address already in use")

	// What was bound before is closed again.
	health := freeAddress(t)
	_, err = Listen(complete(Config{HealthAddress: health, MetricsAddress: at, HardFail: true}))
	assert.EqualError(t, err, "--metrics-bind-address "+at+": bind: address already in use")
	_, err = net.Dial("tcp", health)
	assert.Error(t, err, "nobody listens there any more")
}

// TestListen_again: an address that somebody has is taken once it is free.
func TestListen_again(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	at := taken.Addr().String()
	s, err := Listen(complete(Config{HealthAddress: at}))
	require.NoError(t, err)
	assert.Empty(t, s.Addresses())
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	require.NoError(t, taken.Close())
	requireAnswers(t, at)
	cancel()
	assert.NoError(t, <-done)
}

func TestListen_nowhere(t *testing.T) {
	t.Parallel()
	s, err := Listen(complete(Config{}))
	require.NoError(t, err)
	assert.Empty(t, s.Addresses())
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	assert.NoError(t, s.Run(ctx))
}

func TestCase51_unspecifiedIPv4AddressTakesNoIPv6(t *testing.T) {
	t.Parallel()
	socket, err := listen("0.0.0.0:0")
	require.NoError(t, err)
	defer socket.Close()
	_, port, err := net.SplitHostPort(socket.Addr().String())
	require.NoError(t, err)
	other, err := net.Listen("tcp6", "[::1]:"+port)
	require.NoError(t, err, "the port is free in IPv6")
	assert.NoError(t, other.Close())
}

// TestServer_bindsAgain: where sockets fail (here they are closed, as ss -K does) their
// addresses are bound again, and the program goes on.
func TestServer_bindsAgain(t *testing.T) {
	t.Parallel()
	s, err := Listen(complete(Config{HealthAddress: freeAddress(t), MetricsAddress: freeAddress(t)}))
	require.NoError(t, err)
	var sockets []net.Listener
	for _, p := range s.places {
		sockets = append(sockets, p.socket)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	for _, socket := range sockets {
		requireAnswers(t, socket.Addr().String())
		require.NoError(t, socket.Close())
		requireAnswers(t, socket.Addr().String())
	}
	cancel()
	assert.NoError(t, <-done)
}

// freeAddress is one where nobody listens now.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// requireAnswers waits until it is said at an address that the proxy lives.
func requireAnswers(t *testing.T, at string) {
	t.Helper()
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true}}
	require.Eventually(t, func() bool {
		response, err := client.Get("http://" + at + "/livez")
		if err != nil {
			return false
		}
		return assert.NoError(t, response.Body.Close()) && response.StatusCode == http.StatusOK
	}, time.Minute, 20*time.Millisecond, "%s does not answer", at)
}

// TestListen_bothFamilies: a port alone is a socket in each.
func TestListen_bothFamilies(t *testing.T) {
	t.Parallel()
	_, port, err := net.SplitHostPort(freeAddress(t))
	require.NoError(t, err)
	s, err := Listen(complete(Config{HealthAddress: ":" + port}))
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	go func() { done <- s.Run(ctx) }()
	requireAnswers(t, "127.0.0.1:"+port)
	requireAnswers(t, "[::1]:"+port)
	cancel()
	assert.NoError(t, <-done)
}

func TestCheckAddress(t *testing.T) {
	t.Parallel()
	for _, good := range []string{"", ":10256", "0.0.0.0:10256", "[::1]:0", "127.0.0.1:10249"} {
		assert.NoError(t, CheckAddress(good), good)
	}
	for _, bad := range []string{"10256", ":", ":http", ":70000", "localhost:1", "127.0.0.1", "[::1]", "127.0.0.1:70000"} {
		err := CheckAddress(bad)
		if assert.Error(t, err, bad) {
			assert.True(t, strings.HasPrefix(err.Error(), `"`+bad+`" is not an IP address and a port`), err.Error())
		}
	}
}
