//go:build linux && !portable

package iptables

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// route_localnet opened 127.0.0.1 to neighbours.
func TestCase45_RawFrameToLoopbackIsNotDelivered(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		var redirects []service.Redirect
		for _, p := range nettest.BothFamilies() {
			w.listen(t, p.Listen+":10000")
			redirects = append(redirects, p.Redirects()...)
		}
		w.sync(t, redirects)
		for _, p := range nettest.BothFamilies() {
			loopback := netip.MustParseAddrPort(p.Loopback + ":30080")
			denied := netip.MustParseAddrPort(p.Loopback + ":30081")
			portal := netip.MustParseAddrPort(p.Portal(10, 80))
			for _, from := range []string{"client", "pod"} {
				raw := w.OpenRaw(t, from, p.Family)
				for range 5 {
					raw.Send(t, loopback)
					raw.Send(t, denied)
				}
				// A like frame to a portal that is for everyone arrives, so those
				// before it would have.
				raw.Send(t, portal)
				assert.Eventually(t, func() bool { return w.packets(t, portal) > 0 }, nettest.Patience, 1e7)
				assert.Zero(t, w.packets(t, loopback), "%s from %s", loopback, from)
				assert.Zero(t, w.packets(t, denied), "%s from %s", denied, from)
				w.runner.Forget()
				w.sync(t, redirects) // counts from 0
			}
		}
		for _, dev := range []string{"all", "default", "lo", nettest.NodeToClient, nettest.NodeToPod} {
			assert.Equal(t, "0\n", w.Node.Output(t, "cat", "/proc/sys/net/ipv4/conf/"+dev+"/route_localnet"))
		}
	})
}

func (w *world) packets(t testing.TB, portal netip.AddrPort) (n uint64) {
	t.Helper()
	w.Node.Do(t, func() {
		counts, err := w.runner.Counts(t.Context())
		require.NoError(t, err)
		n = counts.Portals[Portal{portal, service.UDP}]
	})
	return n
}
