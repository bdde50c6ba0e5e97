//go:build linux && !portable

package nftables

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// A firewall may keep out some. One that keeps out all is told of, until
// somebody gets through.
func TestCase54_KeptOutIsWhereNobodyGetsThrough(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var redirects []service.Redirect
	for _, p := range nettest.BothFamilies() {
		w.listen(t, p.Listen+":10000")
		redirects = append(redirects, p.Redirects()...)
	}
	keptOut := func() (families []string) {
		t.Helper()
		w.Node.Do(t, func() {
			problems, err := w.runner.KeptOut(t.Context())
			require.NoError(t, err)
			for _, p := range problems {
				assert.Equal(t, "FirewallDrops", p.Reason)
				families = append(families, p.Detail+"; "+p.Advice)
			}
		})
		return families
	}
	require.Empty(t, keptOut(), "there are no rules yet")
	w.sync(t, redirects)
	w.Node.Output(t, "nft", "add table inet fw { chain in { type filter hook input priority 0; iif lo accept; "+
		"ip saddr "+w.Pod.Addr(service.IPv4).String()+" drop; ip6 saddr "+w.Pod.Addr(service.IPv6).String()+" ct state new drop; }; }")
	for _, p := range nettest.BothFamilies() {
		from := func(host string, expected string) {
			t.Helper()
			got := w.Send(t, nettest.Sent(host, "UDP "+p.Portal(10, 80)), expected)
			require.Equal(t, expected, got, "from %s", host)
		}
		listener := "listener " + p.Listen + ":10000"
		require.Empty(t, keptOut())
		for range 2 * enough {
			from("pod", nettest.Dropped)
		}
		from("client", listener)
		assert.Empty(t, keptOut(), "some get through")
		from("pod", nettest.Dropped)
		from("pod", nettest.Dropped)
		from("node", listener)
		assert.Empty(t, keptOut(), "two may be chance")
		from("pod", nettest.Dropped)
		require.Len(t, keptOut(), 1)
		assert.Contains(t, keptOut()[0], string(p.Family)+": of the last 3 connections")
		assert.Contains(t, keptOut()[0], "`nft insert rule inet fw in ct status dnat accept`", "it stands, in silence")
		from("client", listener)
		assert.Empty(t, keptOut())
	}
}
