package loadbalancer

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func someEndpoints(addrs ...string) []service.Endpoint {
	var all []service.Endpoint
	for _, a := range addrs {
		all = append(all, service.Endpoint{Addr: netip.MustParseAddrPort(a)})
	}
	return all
}

func TestSemantics_trafficPolicies_picks(t *testing.T) {
	t.Parallel()
	now := time.Unix(0, 0)
	const a, b, c, ghost = "10.0.0.1:80", "10.0.0.2:80", "10.0.0.3:80", "10.0.0.4:80"
	client := netip.MustParseAddr("192.0.2.1")
	type picker interface {
		Pick(netip.Addr, []netip.AddrPort) (netip.AddrPort, bool)
	}
	picks := func(from picker, n int, tried ...netip.AddrPort) (got []string) {
		for range n {
			ep, ok := from.Pick(client, tried)
			if !ok {
				return append(got, "none")
			}
			got = append(got, ep.String())
		}
		return got
	}
	t.Run("each set has its turns", func(t *testing.T) {
		g := NewGroup(func() time.Time { return now })
		g.UpdateSets(someEndpoints(a, b, c), someEndpoints(b, ghost), 0)
		assert.Equal(t, []string{a, b, c, a}, picks(g, 4))
		assert.Equal(t, []string{b, ghost, b}, picks(g.Local(), 3), "one that the others do not have too")
		assert.Equal(t, []string{b, c}, picks(g, 2), "local turns take none of the others'")
		g.UpdateSets(someEndpoints(a, b, c), nil, 0)
		assert.Equal(t, []string{"none"}, picks(g.Local(), 1))
		g.UpdateSets(someEndpoints(a, b), someEndpoints(a), 0)
		assert.Equal(t, []string{a, a}, picks(g.Local(), 2))
		assert.Equal(t, []string{"none"}, picks(g.Local(), 1, netip.MustParseAddrPort(a)), "no other is taken where it fails")
	})
	t.Run("affinity is shared, and moves where it leads out of the set", func(t *testing.T) {
		g := NewGroup(func() time.Time { return now })
		g.UpdateSets(someEndpoints(a, b, c), someEndpoints(b, ghost), time.Hour)
		assert.Equal(t, []string{a, a}, picks(g, 2))
		assert.Equal(t, []string{b, b}, picks(g.Local(), 2))
		assert.Equal(t, []string{b, b}, picks(g, 2), "it came along")
		assert.Equal(t, []netip.AddrPort{netip.MustParseAddrPort(b), netip.MustParseAddrPort(ghost)},
			[]netip.AddrPort{g.Local().Forecast(client).Endpoints[0].Addr, g.Local().Forecast(client).Endpoints[1].Addr})
		g.UpdateSets(someEndpoints(a, c), someEndpoints(b, ghost), time.Hour)
		assert.NotContains(t, picks(g, 3), b, "it is in the other set alone now")
		assert.Equal(t, []string{ghost, ghost}, picks(g.Local(), 2), "whose turn it is")
	})
	t.Run("rests are shared", func(t *testing.T) {
		g := NewGroup(func() time.Time { return now })
		g.UpdateSets(someEndpoints(a, b), someEndpoints(b, c), 0)
		g.Failed(netip.MustParseAddrPort(b))
		assert.Equal(t, []string{a, a}, picks(g, 2))
		assert.Equal(t, []string{c, c}, picks(g.Local(), 2))
		assert.Equal(t, []bool{false, false, true}, []bool{g.Status()[0].OnlyLocal, g.Status()[1].OnlyLocal, g.Status()[2].OnlyLocal})
	})
}
