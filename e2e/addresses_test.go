package e2e

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// TestAddressOfTheNodeGoesForAMoment: as when a network is restarted. What changes
// meanwhile takes nothing away that is served as soon as the address is back. No
// sync period helps.
func TestAddressOfTheNodeGoesForAMoment(t *testing.T) {
	t.Parallel()
	eachRules(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		tcp := serveNamed(t, bed.Back, "tcp", 8080, "a", "b")
		services := func(i int) string {
			return manifest(steady(map[string][]string{"stream": tcp[:2]}), changing(map[string][]string{"stream": tcp[2*i : 2*i+2]}))
		}
		p := lead.start(t, bed.Node, services(0), "--sync-period=1h", "--drain-timeout=0s", "--log-level=info")
		cluster, nodePort := target{"tcp", "[fd96::200]:80"}, target{"tcp", "[fd10:2::1]:30080"}
		requireAnswers(t, bed.Client, cluster, "a")
		requireAnswers(t, bed.Client, nodePort, "a")
		before, err := bed.Client.Dial(t.Context(), "tcp", cluster.address)
		require.NoError(t, err)
		defer func() { assert.NoError(t, before.Close()) }()
		require.NoError(t, hears(before, "a\n"))

		// change takes addresses away, has a Service change, and puts them back.
		now := 0
		change := func(flushed map[string]string, whileGone func()) {
			t.Helper()
			for dev := range flushed {
				bed.Node.Output(t, "ip", "-6", "addr", "flush", "dev", dev, "scope", "global")
			}
			now = 1 - now
			p.write(t, services(now))
			requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, []string{"a", "b"}[now])
			whileGone()
			for dev, address := range flushed {
				bed.Node.Output(t, "ip", "-6", "addr", "add", address, "dev", dev, "nodad")
			}
			bed.Node.Output(t, "ip", "-6", "route", "replace", "default", "via", "fd10:2::2", "dev", nettest.NodeToBack)
			requireAnswers(t, bed.Client, target{"tcp", "[fd96::10]:80"}, []string{"a", "b"}[now])
			requireAnswers(t, bed.Client, nodePort, []string{"a", "b"}[now])
			requireAnswers(t, bed.Client, cluster, "a")
			require.NoError(t, before.SetDeadline(time.Now().Add(3*patience)))
			_, err := io.WriteString(before, "still\n")
			require.NoError(t, err)
			require.NoError(t, hears(before, "still\n"))
		}
		served := func(address string) bool {
			for _, port := range p.statusz(t).Ports {
				for _, portal := range port.Portals {
					if portal.Addr == address {
						return true
					}
				}
			}
			return false
		}
		both := map[string]string{nettest.NodeToBack: "fd10:2::1/64", nettest.NodeToClient: "fd10:1::1/64"}
		change(both, func() {
			assert.True(t, served(cluster.address))
			assert.True(t, served(nodePort.address))
		})
		says := func(line string) {
			t.Helper()
			eventually(t, func() bool { return strings.Contains(p.output.String(), line) }, saying("%q in the log", line))
		}
		says("this node has lost its IPv6 address fd10:2::1: going on with it for 1m0s, in case it comes back")
		says("this node has its IPv6 address fd10:2::1 again")
		assert.False(t, slices.ContainsFunc(p.problems(t), func(s string) bool { return strings.Contains(s, "no IPv6 address") }))

		// The node has another: it is taken, and given up when the first is back.
		change(map[string]string{nettest.NodeToBack: both[nettest.NodeToBack]}, func() {
			assert.True(t, served(cluster.address))
			eventually(t, func() bool { return !served(nodePort.address) }, saying("no node port on the address that is gone"))
		})
		p.stop(t)
	})
}
