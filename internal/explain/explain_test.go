package explain

import (
	"encoding/json"
	"flag"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/config"
	"github.com/userspace-proxy/userspace-proxy/internal/layout"
	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/proxy"
	"github.com/userspace-proxy/userspace-proxy/service"
)

var update = flag.Bool("update", false, "write the golden files anew")

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

// moment is when all questions are asked.
func moment() time.Time { return time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC) }

// aPort is a Service's port in the family of its portals.
func aPort(name string, protocol service.Protocol, portals []service.Portal, endpoints ...string) service.Port {
	p := service.Port{
		Key: service.Key{
			PortName: service.PortName{Namespace: "shop", Name: name, Port: "main", Protocol: protocol},
			Family:   service.FamilyOf(portals[0].Addr.Addr()),
		},
		Source: "file", Portals: portals,
	}
	for i, e := range endpoints {
		p.Endpoints = append(p.Endpoints, service.Endpoint{Addr: at(e), Pod: name + "-" + string(rune('a'+i)), Node: "node-b"})
	}
	return p
}

func clusterIP(s string) service.Portal {
	return service.Portal{Kind: service.ClusterIP, Addr: at(s)}
}

// statusOf is where listeners stand in it.
func statusOf(port service.Port, portal service.Portal) proxy.PortalStatus {
	all, local := "169.254.77.1:10001", "169.254.77.1:10002"
	if portal.Addr.Addr().Is6() {
		all = "[fd77::1]:10000"
	}
	st := proxy.PortalStatus{Kind: portal.Kind, Addr: portal.Addr, Listener: all, State: proxy.StateServing}
	endpoints := port.Endpoints
	if port.KeepsLocal(portal.Kind, true) {
		st.Listener, endpoints = local, port.Local
	}
	if len(endpoints) == 0 {
		st.State = proxy.StateRefusing
	}
	if port.PartsOutside(portal.Kind) {
		st.Outside = &proxy.OutsideStatus{Listener: local, State: proxy.StateServing}
		if len(port.Local) == 0 {
			st.Outside = &proxy.OutsideStatus{State: proxy.StateDropping}
		}
	}
	return st
}

// aWorld is a running proxy with nftables on a node.
func aWorld() World {
	web := aPort("web", service.TCP, []service.Portal{
		clusterIP("10.96.0.10:80"), {Kind: service.NodePort, Addr: at("192.0.2.2:30080")}, {Kind: service.NodePort, Addr: at("127.0.0.1:30080")},
	}, "10.10.2.2:8080", "10.10.2.3:8080", "10.10.2.4:8080", "10.10.2.5:8080")
	web.Affinity = 10 * time.Minute
	web.Unused = []service.UnusedEndpoint{{Endpoint: service.Endpoint{Addr: at("10.10.2.6:8080"), Pod: "web-e"}, Why: "not ready"}}
	dns := aPort("dns", service.UDP, []service.Portal{clusterIP("[fd96::53]:53")}, "10.10.2.53:5353", "[fd10::54]:5353")
	empty := aPort("empty", service.TCP, []service.Portal{clusterIP("10.96.0.11:80")})
	unready := aPort("unready", service.UDP, []service.Portal{clusterIP("10.96.0.12:53")})
	unready.Unused = web.Unused
	taken := aPort("taken", service.TCP, []service.Portal{{Kind: service.ExternalIP, Addr: at("192.0.2.2:22")}}, "10.10.2.2:22")
	full := aPort("full", service.TCP, []service.Portal{clusterIP("10.96.0.13:80")}, "10.10.2.2:80")
	local := aPort("local", service.TCP, []service.Portal{clusterIP("10.96.0.14:80"), {Kind: service.NodePort, Addr: at("192.0.2.2:30090")}}, "10.10.2.2:80", "10.10.2.3:80")
	local.InternalLocal, local.ExternalLocal, local.Local = true, true, local.Endpoints[1:]
	away := aPort("away", service.TCP, []service.Portal{clusterIP("10.96.0.15:80"), {Kind: service.LoadBalancer, Addr: at("203.0.113.1:80")}}, "10.10.2.2:80")
	away.InternalLocal, away.ExternalLocal = true, true
	ranged := aPort("ranged", service.UDP, []service.Portal{{Kind: service.LoadBalancer, Addr: at("203.0.113.2:53")}}, "10.10.2.2:53")
	ranged.Sources = service.SourceRanges{Limited: true, Allowed: []netip.Prefix{netip.MustParsePrefix("192.0.2.0/25"), netip.MustParsePrefix("10.0.0.0/8")}}
	ports := []service.Port{away, dns, empty, full, local, ranged, taken, unready, web}

	onNode := config.Node{
		Name: "node-a", Local: []netip.Addr{netip.MustParseAddr("192.0.2.2"), netip.MustParseAddr("192.0.2.3")},
		ListenAddrs: []netip.Addr{netip.MustParseAddr("169.254.77.1"), netip.MustParseAddr("fd77::1")},
		PortRange:   service.PortRange{First: 10000, Last: 29999},
		LocalPods:   service.LocalPods{Ranges: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24")}},
	}
	served := World{Ports: ports, Node: onNode}.FromFile(statusOf)
	return World{
		Live: true, Now: moment(), Redirect: "nftables", Ports: ports, Complete: true,
		Node: onNode,
		Problems: []service.Problem{{
			Object: "Service shop/late", Field: "spec.clusterIPs[0]", Reason: "AddressInUse",
			Detail: "10.96.0.99:80/TCP belongs to Service shop/other", Advice: "choose another address",
		}, {
			Object: "Service shop/late", Detail: "10.96.0.99:8080/TCP is another",
		}},
		Hits: func(_ service.Protocol, to netip.AddrPort) (uint64, bool) { return 42, to.Port() != 53 },
		Prospect: func(protocol service.Protocol, to netip.AddrPort, from netip.Addr) (proxy.Prospect, bool) {
			p, ok := served(protocol, to, from)
			switch p.Port.Name {
			case "taken":
				p.Portal.State, p.Portal.Listener = proxy.StateUnserved, ""
				p.Portal.Why, p.Portal.Advice = "address already in use", "another program on this node listens there: stop it or give the Service another port"
			case "full":
				p.Full = "a Service has as many connections as it may"
			case "web":
				all := p.Forecast.Endpoints
				if from == netip.MustParseAddr("10.1.2.3") {
					p.Forecast.Affine, p.Forecast.Used = all[0].Addr, moment().Add(-32*time.Second)
				}
				if from == netip.MustParseAddr("10.1.2.4") {
					p.Forecast.Affine, p.Forecast.Used = all[2].Addr, moment().Add(-time.Minute)
				}
				all[2].RestingUntil, all[2].Failures = moment().Add(4*time.Second), 3
				all[3].RestingUntil, all[3].Failures, all[3].OnTrial = moment().Add(4*time.Second), 1, true
			}
			return p, ok
		},
	}
}

func TestExplain(t *testing.T) {
	t.Parallel()
	withoutRules := func(w *World) { w.Redirect, w.Node.NoRedirect, w.Node.ListenAddrs = "none", true, nil }
	fromFile := func(w *World) {
		w.Live = false
		w.Prospect = w.FromFile(statusOf)
	}
	allRest := func(w *World) {
		w.Prospect = func(service.Protocol, netip.AddrPort, netip.Addr) (proxy.Prospect, bool) {
			return proxy.Prospect{
				Port: w.Ports[len(w.Ports)-1], Timings: proxy.DefaultTimings(),
				Portal: proxy.PortalStatus{Kind: service.ClusterIP, Listener: "169.254.77.1:10001", State: proxy.StateServing},
				Forecast: loadbalancer.Forecast{Endpoints: []loadbalancer.EndpointStatus{
					{Endpoint: w.Ports[len(w.Ports)-1].Endpoints[0], RestingUntil: moment().Add(time.Second), Failures: 1},
					{Endpoint: w.Ports[len(w.Ports)-1].Endpoints[1], RestingUntil: moment().Add(30 * time.Second), Failures: 9},
				}},
			}, true
		}
	}
	for name, tt := range map[string]struct {
		protocol, to, from string
		change             func(*World)
		want               Verdict
	}{
		"served":         {"tcp", "10.96.0.10:80", "", nil, Served},
		"affinity":       {"tcp", "10.96.0.10:80", "10.1.2.3", nil, Served},
		"affinity-rests": {"tcp", "10.96.0.10:80", "10.1.2.4", nil, Served},
		"no-entry":       {"TCP", "10.96.0.10:80", "192.0.2.3", nil, Served},
		"node-port":      {"tcp", "192.0.2.2:30080", "198.51.100.1", nil, Served},
		"all-rest":       {"tcp", "10.96.0.10:80", "", allRest, Served},
		"datagram":       {"udp", "[fd96::53]:53", "fd10::7", nil, Served},
		"from-file":      {"tcp", "10.96.0.10:80", "10.1.2.3", fromFile, Served},
		"without-rules":  {"tcp", "10.96.0.10:80", "", withoutRules, Served},
		"no-endpoint":    {"tcp", "10.96.0.11:80", "", nil, Refused},
		"no-endpoint-reported": {"tcp", "10.96.0.11:80", "", func(w *World) {
			w.Problems = append(w.Problems, service.Problem{
				Object: "Service shop/empty", Field: "spec.ports[0].nodePort", Reason: "PortTaken", Detail: "it would not help",
				Service: service.ServiceRef{Namespace: "shop", Name: "empty"},
			}, service.Problem{
				Object: "Service shop/empty", Field: "spec.ports[0].name", Reason: "PortNameMismatch", Detail: `no endpoint has a port "http"/TCP; there are "htp"/TCP`,
				Service: service.ServiceRef{Namespace: "shop", Name: "empty"},
			})
		}, Refused},
		"none-ready":       {"udp", "10.96.0.12:53", "", nil, Refused},
		"full":             {"tcp", "10.96.0.13:80", "", nil, Refused},
		"guarded":          {"tcp", "169.254.77.1:10001", "", nil, Refused},
		"taken":            {"tcp", "192.0.2.2:22", "", nil, Elsewhere},
		"taken-no-rules":   {"tcp", "192.0.2.2:22", "", withoutRules, Elsewhere},
		"loopback-outside": {"tcp", "127.0.0.1:30080", "198.51.100.1", nil, Elsewhere},
		"unknown":          {"tcp", "203.0.113.9:80", "", nil, Elsewhere},
		"incomplete":       {"tcp", "203.0.113.9:80", "", func(w *World) { w.Complete = false }, Elsewhere},
		"other-protocol":   {"tcp", "10.96.0.12:53", "", nil, Elsewhere},
		"other-port":       {"tcp", "10.96.0.10:8080", "", nil, Elsewhere},
		"other-node-addr":  {"tcp", "192.0.2.3:30080", "", nil, Elsewhere},
		"local-outside":    {"tcp", "192.0.2.2:30090", "198.51.100.1", nil, Served},
		"local-pod":        {"tcp", "192.0.2.2:30090", "10.244.1.7", nil, Served},
		"local-internal":   {"tcp", "10.96.0.14:80", "10.244.1.7", nil, Served},
		"away-outside":     {"tcp", "203.0.113.1:80", "", nil, Dropped},
		"away-no-rules":    {"tcp", "203.0.113.1:80", "198.51.100.1", withoutRules, Refused},
		"away-node":        {"tcp", "203.0.113.1:80", "192.0.2.2", nil, Served},
		"away-internal":    {"tcp", "10.96.0.15:80", "", nil, Refused},
		"barred":           {"udp", "203.0.113.2:53", "198.51.100.1", nil, Dropped},
		"barred-no-rules":  {"udp", "203.0.113.2:53", "198.51.100.1", withoutRules, Dropped},
		"admitted":         {"udp", "203.0.113.2:53", "10.1.1.1", nil, Served},
		"problem":          {"tcp", "10.96.0.99:80", "", nil, Elsewhere},
		"an-endpoint":      {"tcp", "10.10.2.2:8080", "", nil, Elsewhere},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			q, err := Parse(tt.protocol, tt.to, tt.from)
			require.NoError(t, err)
			again, err := ParseValues(q.Values())
			require.NoError(t, err)
			assert.Equal(t, q, again, "as it goes through a URL")
			w := aWorld()
			if tt.change != nil {
				tt.change(&w)
			}
			a := Explain(q, w)
			assert.Equal(t, tt.want, a.Verdict)
			assert.Equal(t, tt.want == Served, a.Endpoint.IsValid())
			assert.Equal(t, tt.want == Served, len(a.Advice) == 0, "who is not served is told what would change that: %q", a.Advice)
			golden(t, name+".txt", a.Text(false))

			b, err := json.Marshal(a)
			require.NoError(t, err)
			var back Answer
			require.NoError(t, json.Unmarshal(b, &back))
			assert.Equal(t, a.Text(true), back.Text(true), "as it goes through JSON")
		})
	}
}

func TestParse_wrong(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct{ protocol, to, from, says string }{
		{"sctp", "10.96.0.1:80", "", `the protocol must be tcp or udp, got "sctp"`},
		{"tcp", "10.96.0.1", "", `"10.96.0.1" is not an IP address and a port like 10.96.0.10:80 or [fd00::10]:80; names are not looked up`},
		{"tcp", "web:80", "", `"web:80" is not an IP address and a port like 10.96.0.10:80 or [fd00::10]:80; names are not looked up`},
		{"tcp", "fd00::1", "", `"fd00::1" is not an IP address and a port like 10.96.0.10:80 or [fd00::10]:80; names are not looked up`},
		{"tcp", "fd00::1:80", "", `"fd00::1:80" is not an IP address and a port like 10.96.0.10:80 or [fd00::10]:80; an IPv6 address stands in brackets: [fd00::1]:80`},
		{"tcp", "10.96.0.1:0", "", `"10.96.0.1:0" is not an IP address and a port like 10.96.0.10:80 or [fd00::10]:80; names are not looked up`},
		{"tcp", "10.96.0.1:80", "me", `--from: "me" is not an IP address`},
		{"tcp", "10.96.0.1:80", "fd00::1", `--from: fd00::1 cannot send to 10.96.0.1:80: one is IPv4 and the other IPv6`},
	} {
		_, err := Parse(tt.protocol, tt.to, tt.from)
		assert.EqualError(t, err, tt.says)
	}
	q, err := Parse("tcp", "[::ffff:10.96.0.1]:80", "::ffff:10.0.0.1")
	require.NoError(t, err)
	assert.Equal(t, "TCP 10.96.0.1:80 from 10.0.0.1", q.String())
}

// golden compares with a file in testdata; no line is wider than a terminal.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		require.NoError(t, os.MkdirAll("testdata", 0o755))
		require.NoError(t, os.WriteFile(path, []byte(got), 0o644))
	}
	want, err := os.ReadFile(path)
	require.NoError(t, err)
	assert.Equal(t, string(want), got, "%s; go test -update writes it anew", path)
	for line := range strings.Lines(got) {
		assert.LessOrEqual(t, layout.Width(strings.TrimSuffix(line, "\n")), 80, line)
	}
}

// With --transparent the last step says from which address the dial goes.
func TestTransparent_explain(t *testing.T) {
	t.Parallel()
	w := aWorld()
	w.ShowsClient = func(client, endpoint netip.Addr) bool {
		return client == netip.MustParseAddr("10.244.1.7") && endpoint == netip.MustParseAddr("10.10.2.2")
	}
	for from, says := range map[string]string{
		"":            "; --from IP tells from which address",
		"10.244.1.7":  "; from 10.244.1.7, the client's own address",
		"203.0.113.7": "; from this node's address: replies to the client's would not be certain to come here",
	} {
		q, err := Parse("tcp", "10.96.0.10:80", from)
		require.NoError(t, err)
		steps := Explain(q, w).Steps
		last := steps[len(steps)-1]
		assert.Equal(t, "dial", last.Name)
		assert.Contains(t, last.Text, says)
	}
}
