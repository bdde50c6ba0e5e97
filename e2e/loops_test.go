package e2e

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// one is a Service with one TCP port and one endpoint.
func one(name, clusterIP string, number, nodePort int, endpoints ...string) object {
	return object{name: name, clusterIPs: []string{clusterIP}, ports: []port{{"p", service.TCP, number, nodePort}},
		endpoints: map[string][]string{"p": endpoints}}
}

// TestCase47_EndpointsThatLeadBack: endpoints that are a cluster address, a node
// port, an external address or a listener of the proxy, Services that lead to
// each other, and the node's own daemons, are refused and told of. Clients are
// refused at once, nothing is held for them, and other Services are served.
func TestCase47_EndpointsThatLeadBack(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		good := serveNamed(t, bed.Back, "tcp", 8080, "a")[0]
		daemon := bed.Node.ServeTCP(t, "127.0.0.1:2222", nettest.Banner("a daemon"))
		external := one("external", "10.96.0.10", 85, 0, "10.10.2.1:85")
		external.externalIPs = []string{"10.10.2.1"}
		elsewhere := one("elsewhere", "10.96.0.10", 86, 0, "10.10.2.1:87")
		atExternal := one("at-external", "10.96.0.10", 87, 0, good)
		atExternal.externalIPs = []string{"10.10.2.1"}
		services := []object{
			one("good", "10.96.0.20", 8080, 0, good),
			one("itself", "10.96.0.10", 81, 0, "10.96.0.10:81"),
			one("there", "10.96.0.10", 82, 0, "10.96.0.20:82"),
			one("and-back", "10.96.0.20", 82, 0, "10.96.0.10:82"),
			one("node-port", "10.96.0.10", 83, 30083, "10.10.2.1:30083"),
			one("daemon", "10.96.0.10", 84, 0, daemon.Addr.String()),
			elsewhere, atExternal, external,
		}
		want := map[string]string{
			"itself": "EndpointLoop", "there": "EndpointLoop", "and-back": "EndpointLoop", "node-port": "EndpointLoop",
			"daemon": "RefusedEndpoint", "elsewhere": "EndpointLoop",
		}
		refused := []string{"10.96.0.10:81", "10.96.0.10:82", "10.96.0.20:82", "10.96.0.10:83", "10.10.2.1:30083", "10.96.0.10:84", "10.96.0.10:86"}
		if lead.redirect != "none" {
			services = append(services, one("listener", "10.96.0.10", 88, 0, "[fd77::1]:10000"))
			want["listener"] = "EndpointLoop"
			refused = append(refused, "10.96.0.10:88")
		}
		p := lead.start(t, bed.Node, manifest(services...))

		got := make(map[string]string)
		for _, problem := range p.statusz(t).Problems {
			if name, is := strings.CutPrefix(problem.Object, "EndpointSlice default/"); is {
				name, _, _ = strings.Cut(name, "-p-")
				got[name] = problem.Reason
			}
		}
		assert.Equal(t, want, got)
		for _, to := range refused {
			for _, from := range []*nettest.Host{bed.Client, bed.Pod, bed.Node} {
				from.AssertRefused(t, "tcp", to)
			}
		}
		// What listens at a Service's own external address needs no proxy: here nobody does.
		assert.True(t, slices.ContainsFunc(p.statusz(t).Problems, func(p struct{ Object, Reason, Detail string }) bool {
			return p.Object == "Service default/external" && p.Reason == "PortalIsEndpoint"
		}))
		requireNoAnswer(t, bed.Client, "10.10.2.1:85")
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.20:8080"}, "a")
		requireAnswers(t, bed.Client, target{"tcp", "10.10.2.1:87"}, "a")
		assert.Zero(t, daemon.Taken())
		eventually(t, func() bool { return p.statusz(t).Descriptors.Traffic == 0 }, saying("every descriptor to be given back"))
		p.stop(t)
	})
}

// TestOwnDialsThatComeBack: somebody else's rule leads an address of the node to
// a Service, whose endpoint it is. The proxy knows its own connection when it
// comes back, and lets it go no further.
func TestOwnDialsThatComeBack(t *testing.T) {
	t.Parallel()
	eachWay(t, ownDialsThatComeBack())
}

func TestTransparent_ownDialsThatComeBack(t *testing.T) {
	t.Parallel()
	eachRules(t, ownDialsThatComeBack(transparentFlags()...))
}

func ownDialsThatComeBack(flags ...string) func(t *testing.T, bed *nettest.Bed, lead way) {
	return func(t *testing.T, bed *nettest.Bed, lead way) {
		t.Helper()
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")[0]
		p := lead.start(t, bed.Node, manifest(one("good", "10.96.0.20", 8080, 0, tcp), one("loop", "10.96.0.10", 80, 0, "10.10.2.1:9999")), flags...)
		to := "10.96.0.10:80"
		if lead.redirect != "none" {
			to = listenerOf(t, p, "default/loop:p/TCP")
		}
		bed.Node.Output(t, "nft", fmt.Sprintf("table ip theirs { chain output { type nat hook output priority -110; "+
			"ip daddr 10.10.2.1 tcp dport 9999 dnat to %s; }; }", to))

		for range 50 {
			c, err := bed.Client.Dial(t.Context(), "tcp", "10.96.0.10:80")
			if err != nil {
				continue // the reset was faster
			}
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
			_, err = c.Read(make([]byte, 1))
			require.Error(t, err)
			require.NotErrorIs(t, err, io.EOF)
			require.NoError(t, c.Close())
			assert.LessOrEqual(t, p.statusz(t).Descriptors.Traffic, 8)
		}
		requireAnswers(t, bed.Client, target{"tcp", "10.96.0.20:8080"}, "a")
		eventually(t, func() bool {
			return slices.ContainsFunc(p.problems(t), func(s string) bool {
				return strings.Contains(s, "EndpointLoop") && strings.Contains(s, "endpoint 10.10.2.1:9999 of TCP port")
			})
		}, saying("a problem that says so"))
		eventually(t, func() bool { return p.statusz(t).Descriptors.Traffic == 0 }, saying("every descriptor to be given back"))
		body, err := p.node.Get(t.Context(), metricsURL)
		require.NoError(t, err)
		assert.Regexp(t, `userspace_proxy_tcp_connections_refused_total\{reason="own_dial"\} [1-9]`, body)
		p.stop(t)
	}
}

// listenerOf is where a Service port listens.
func listenerOf(t *testing.T, p *proxy, name string) string {
	t.Helper()
	for _, port := range p.statusz(t).Ports {
		if port.Name == name {
			return port.Portals[0].Listener
		}
	}
	require.Fail(t, "no such port", name)
	return ""
}
