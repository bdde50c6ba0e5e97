package view

import (
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/layout"
	"github.com/userspace-proxy/userspace-proxy/internal/status"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

var update = flag.Bool("update", false, "write the golden files anew")

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// aReport has something of everything.
func aReport() status.Report {
	second := proxy.Span(time.Second)
	return status.Report{
		Version: "v1.2.3 (go1.26.8, linux/amd64)", Node: status.Node{Name: "node-a"}, Uptime: "26h3m4s", Redirect: "nftables",
		Summary: "serving 3 ports of 3 services at 4 portals through nftables; 2 problems, see /statusz",
		Sources: []status.Source{
			{Name: "file", Delivered: true, Age: "12s", Checked: "0s", Services: 2, Endpoints: 3, Problems: 1},
			{Name: "kubernetes", Delivered: true, Checked: "22s", Error: "connection refused"},
			{Name: "etcd"},
		},
		Problems: []status.Problem{{
			Object: "Service shop/web", Field: "spec.ports[0].nodePort", Reason: "PortTaken",
			Detail: `TCP port "http" is not served on NodePort 192.0.2.2:30080: bind: address already in use`,
			Advice: "another program on this node listens there: stop it or give the Service another port",
		}, {
			Object: "file /etc/日本.yaml", Reason: "UnknownKind", Detail: "line 3: \x1b[2Jkind: Servise is not read here",
		}},
		Status: proxy.Status{Ports: []proxy.PortStatus{{
			Name: "default/日本/UDP", Family: service.IPv6, Source: "file",
			Portals:   []proxy.PortalStatus{{Kind: service.ClusterIP, Addr: at("[fd00:10:96::53]:53"), Listener: "[fd77::1]:10000", State: proxy.StateServing}},
			Endpoints: []proxy.EndpointStatus{{Addr: at("[fd00:10:10:2::53]:5353"), Pod: "dns-0", Picked: true, Why: "ready", Flows: 1}},
		}, {
			Name: "shop/empty/TCP", Family: service.IPv4, Source: "file", Most: 100,
			Portals: []proxy.PortalStatus{{Kind: service.ExternalIP, Addr: at("203.0.113.1:80"), Listener: "203.0.113.1:80", State: proxy.StateRefusing}},
		}, {
			Name: "shop/nowhere/TCP", Family: service.IPv4, Source: "file",
		}, {
			Name: "shop/web:http/TCP", Family: service.IPv4, Source: "kubernetes", Affinity: "10m0s", Clients: 1,
			Portals: []proxy.PortalStatus{
				{Kind: service.ClusterIP, Addr: at("10.96.0.10:80"), Listener: "169.254.77.1:10001", State: proxy.StateServing, Hits: 42},
				{Kind: service.NodePort, Addr: at("192.0.2.2:30080"), State: proxy.StateUnserved, Why: "address already in use"},
			},
			Endpoints: []proxy.EndpointStatus{
				{Addr: at("10.10.2.2:8080"), Pod: "web-7d9f8c6b5-x2x4z", Picked: true, Why: "ready", Connections: 2},
				{Addr: at("10.10.2.3:8080"), Pod: "web-7d9f8c6b5-qqqqq", Why: "rests for 4s after 3 failed dials"},
				{Addr: at("10.10.2.4:8080"), Why: "not ready"},
			},
		}}},
		Connections: []proxy.ConnectionStatus{
			{Service: "shop/web:http/TCP", Client: at("192.0.2.1:1024"), Endpoint: at("10.10.2.2:8080"), State: "open", Age: 3661 * second, Idle: second, Up: 999, Down: 1_234_567_890},
			{Service: "shop/web:http/TCP", Client: at("192.0.2.1:1025"), State: "dialling"},
		},
		ConnectionsOpen: 3,
		Flows: []proxy.FlowStatus{
			{Service: "default/日本/UDP", Client: at("[fd00::7]:5000"), Endpoint: at("[fd00:10:10:2::53]:5353"), Age: 61 * second, Idle: 3 * second, Up: proxy.Traffic{Bytes: 1000, Datagrams: 2}, Down: proxy.Traffic{Bytes: 99_950}},
		},
		FlowsOpen: 1,
	}
}

func TestView(t *testing.T) {
	t.Parallel()
	failing := aReport()
	failing.Failing, failing.Error = "the first reconcile is not done", "apply 3 redirects: nft: no such file"
	quiet := status.Report{Version: "v1", Node: status.Node{Name: "a"}, Redirect: "none", Uptime: "0s", Summary: "serving 0 ports"}
	web := Filter{Namespace: "shop", Service: "web"}
	for name, got := range map[string]string{
		"overview":    Overview(aReport(), false),
		"painted":     Overview(aReport(), true),
		"failing":     Overview(failing, false) + "\n" + Problems(failing, false),
		"quiet":       Overview(quiet, false) + Connections(quiet, false) + Problems(quiet, false),
		"one":         Overview(web.Of(aReport()), false) + Connections(web.Of(aReport()), false),
		"connections": Connections(aReport(), false),
		"problems":    Problems(aReport(), false),
		"window":      strings.Join(Lines(Overview(aReport(), false), 60, 12), "\n") + "\n",
	} {
		path := filepath.Join("testdata", name+".txt")
		if *update {
			require.NoError(t, os.MkdirAll("testdata", 0o755))
			require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
		}
		want, err := os.ReadFile(path)
		require.NoError(t, err)
		assert.Equal(t, string(want), got, "%s; go test -update writes it anew", path)
		if name != "painted" {
			assert.NotContains(t, got, "\x1b", name)
		}
	}
	for _, line := range Lines(Overview(aReport(), false), 40, 1000) {
		assert.LessOrEqual(t, layout.Width(line), 40)
	}
}

func TestFilter(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, namespace string
		want            Filter
		ok              bool
	}{
		{"", "", Filter{}, true},
		{"web", "", Filter{"", "web"}, true},
		{"web", "shop", Filter{"shop", "web"}, true},
		{"shop/web", "", Filter{"shop", "web"}, true},
		{"shop/web", "shop", Filter{"shop", "web"}, true},
		{"shop/web", "other", Filter{"shop", "web"}, false},
		{"", "shop", Filter{"shop", ""}, true},
	} {
		got, ok := ParseFilter(tt.name, tt.namespace)
		assert.Equal(t, tt.ok, ok, "%v", tt)
		assert.Equal(t, tt.want, got)
	}
	r := aReport()
	r.Problems = append(r.Problems, status.Problem{Object: "EndpointSlice shop/web-x2x4z"}, status.Problem{Object: "EndpointSlice shop/website-1"})
	of := Filter{"shop", "web"}.Of(r)
	assert.Len(t, of.Ports, 1)
	assert.Len(t, of.Connections, 2)
	assert.Empty(t, of.Flows)
	assert.Len(t, of.Problems, 2)
	assert.Len(t, Filter{Namespace: "shop"}.Of(r).Ports, 3)
	assert.Len(t, r.Ports, 4, "the report is as it was")
}

func TestWords(t *testing.T) {
	t.Parallel()
	for n, want := range map[int64]string{0: "0B", 999: "999B", 1000: "1.0kB", 9949: "9.9kB", 9950: "10kB", 999_499: "999kB", 999_500: "1.0MB", 1e9: "1.0GB", 5e12: "5.0TB", 9e18: "9.0EB"} {
		assert.Equal(t, want, bytes(n), n)
	}
	for d, want := range map[time.Duration]string{0: "0s", 499 * time.Millisecond: "0s", 59 * time.Second: "59s", time.Minute: "1m", 61 * time.Second: "1m1s", 25 * time.Hour: "1d1h", 24*time.Hour + time.Minute: "1d"} {
		assert.Equal(t, want, span(proxy.Span(d)), d)
	}
	assert.Equal(t, "never", ago(""))
	assert.Equal(t, "2m3s ago", ago("2m3s"))
}
