package loadbalancer_test

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestSemantics_sessionAffinity(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Hour, 1, 2, 3)
	for round := range 3 {
		for n := range 6 {
			assert.Equal(t, n%3+1, mustPick(t, g, client(n)), "client %d, round %d", n, round)
		}
	}
	assert.Equal(t, 6, g.AffinityEntries())
}

func TestSemantics_sessionAffinity_clientAddress(t *testing.T) {
	t.Parallel()
	tests := []struct {
		name   string
		other  netip.Addr // beside 192.0.2.1 and fe80::1%eth0
		shares bool
	}{
		{"the same", client(1), true},
		{"mapped into IPv6", netip.MustParseAddr("::ffff:192.0.2.1"), true},
		{"another", client(2), false},
		{"link-local, same zone", netip.MustParseAddr("fe80::1%eth0"), true},
		{"link-local, another zone", netip.MustParseAddr("fe80::1%eth1"), false},
		{"none", netip.Addr{}, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, _ := newGroup(time.Hour, 1, 2, 3)
			first := []int{mustPick(t, g, client(1)), mustPick(t, g, netip.MustParseAddr("fe80::1%eth0"))}
			if got := mustPick(t, g, tt.other); tt.shares {
				assert.Contains(t, first, got)
			} else {
				assert.Equal(t, 3, got)
			}
		})
	}
}

func TestSemantics_sessionAffinity_clientAddressOfADialThatWorked(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Hour, 1, 2, 3)
	g.Succeeded(netip.MustParseAddr("::ffff:192.0.2.1"), addr(3))
	assert.Equal(t, 3, mustPick(t, g, client(1)))
}

func TestSemantics_sessionAffinity_noneIsNobodys(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Hour, 1, 2, 3)
	assert.Equal(t, []int{1, 2, 3, 1}, turns(t, g, 4))
	g.Succeeded(netip.Addr{}, addr(1))
	assert.Zero(t, g.AffinityEntries())
}

func TestSemantics_sessionAffinity_timeoutSeconds(t *testing.T) {
	t.Parallel()
	const timeout = 10 * time.Second
	// Client 1 went to endpoint 1, and the turn is endpoint 2's.
	tests := []struct {
		name string
		do   func(t *testing.T, s sut)
		want int
	}{
		{"holds until just before", func(_ *testing.T, s sut) { s.clock.advance(timeout - 1) }, 1},
		{"is over at its end", func(_ *testing.T, s sut) { s.clock.advance(timeout) }, 2},
		{"slides with picks", func(t *testing.T, s sut) {
			for range 10 {
				s.clock.advance(timeout - 1)
				mustPick(t, s.Group, client(1))
			}
			s.clock.advance(timeout - 1)
		}, 1},
		{"slides with a dial that worked", func(_ *testing.T, s sut) {
			s.clock.advance(timeout - 1)
			s.Succeeded(client(1), addr(1))
			s.clock.advance(timeout - 1)
		}, 1},
		{"made shorter holds at once", func(_ *testing.T, s sut) {
			s.clock.advance(5 * time.Second)
			s.Update(endpoints(1, 2, 3), 5*time.Second)
		}, 2},
		{"made longer holds at once", func(_ *testing.T, s sut) {
			s.clock.advance(timeout - 1)
			s.Update(endpoints(1, 2, 3), time.Hour)
			s.clock.advance(time.Hour - timeout)
		}, 1},
		{"made longer does not revive", func(_ *testing.T, s sut) {
			s.clock.advance(timeout)
			s.Update(endpoints(1, 2, 3), time.Hour)
		}, 2},
		{"shorter and longer again does not revive", func(_ *testing.T, s sut) {
			s.clock.advance(5 * time.Second)
			s.Update(endpoints(1, 2, 3), 5*time.Second)
			s.Update(endpoints(1, 2, 3), timeout)
		}, 2},
		{"longer step by step does not revive", func(_ *testing.T, s sut) {
			s.clock.advance(5 * time.Second)
			s.Update(endpoints(1, 2, 3), 5*time.Second)
			s.Update(endpoints(1, 2, 3), timeout)
			s.Update(endpoints(1, 2, 3), time.Hour)
		}, 2},
		{"shorter and longer again keeps what is younger", func(_ *testing.T, s sut) {
			s.clock.advance(5*time.Second - 1)
			s.Update(endpoints(1, 2, 3), 5*time.Second)
			s.Update(endpoints(1, 2, 3), timeout)
		}, 1},
		{"switched off and on forgets", func(t *testing.T, s sut) {
			s.Update(endpoints(1, 2, 3), 0)
			assert.Zero(t, s.AffinityEntries())
			s.Update(endpoints(1, 2, 3), timeout)
		}, 2},
		{"a negative one is none", func(t *testing.T, s sut) {
			s.Update(endpoints(1, 2, 3), -timeout)
			assert.Zero(t, s.AffinityEntries())
		}, 2},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			g, c := newGroup(timeout, 1, 2, 3)
			require.Equal(t, 1, mustPick(t, g, client(1)))
			tt.do(t, sut{g, c})
			assert.Equal(t, tt.want, mustPick(t, g, client(1)))
		})
	}
}

func TestSemantics_sessionAffinity_endpointRemoved(t *testing.T) {
	t.Parallel()
	g, _ := newGroup(time.Hour, 1, 2, 3)
	require.Equal(t, 1, mustPick(t, g, client(1)))
	require.Equal(t, 2, mustPick(t, g, client(2)))

	g.Update(endpoints(2, 3), time.Hour)
	assert.Equal(t, 3, mustPick(t, g, client(1)), "picks anew")
	assert.Equal(t, 2, mustPick(t, g, client(2)), "others stay")

	g.Update(endpoints(1, 2, 3), time.Hour)
	assert.Equal(t, 3, mustPick(t, g, client(1)), "stays where it went")
}

func TestSemantics_sessionAffinity_connectionsOpenedTogether(t *testing.T) {
	t.Parallel()
	t.Run("go to one endpoint", func(t *testing.T) {
		t.Parallel()
		g, _ := newGroup(time.Hour, 1, 2, 3)
		for range 10 { // none has connected yet
			assert.Equal(t, 1, mustPick(t, g, client(1)))
		}
	})
	t.Run("move together where the dial fails", func(t *testing.T) {
		t.Parallel()
		g, _ := newGroup(time.Hour, 1, 2, 3)
		for range 10 {
			require.Equal(t, 1, mustPick(t, g, client(1)))
		}
		for range 10 {
			g.Failed(addr(1))
			assert.Equal(t, 2, mustPick(t, g, client(1), 1))
		}
	})
	t.Run("go to one endpoint that is on trial", func(t *testing.T) {
		t.Parallel()
		g, c := newGroup(time.Hour, 1, 2)
		g.Failed(addr(1))
		c.advance(time.Second)
		for range 10 {
			assert.Equal(t, 1, mustPick(t, g, client(1)))
		}
		assert.Equal(t, 2, mustPick(t, g, client(2)))
		assert.Equal(t, 2, mustPick(t, g, client(3)))

		g.Failed(addr(1))
		assert.Equal(t, 2, mustPick(t, g, client(1)), "the trial failed")
	})
	t.Run("stay with the endpoint that connected", func(t *testing.T) {
		t.Parallel()
		g, _ := newGroup(time.Hour, 1, 2, 3)
		require.Equal(t, 1, mustPick(t, g, client(1)))
		require.Equal(t, 2, mustPick(t, g, client(1), 1)) // beside the first, which is slow
		g.Succeeded(client(1), addr(1))
		assert.Equal(t, 1, mustPick(t, g, client(1)))
	})
}

func TestSemantics_endpointDoesNotAnswerTheDial(t *testing.T) {
	t.Parallel()
	t.Run("affinity moves when its endpoint rests", func(t *testing.T) {
		t.Parallel()
		g, c := newGroup(time.Hour, 1, 2)
		require.Equal(t, 1, mustPick(t, g, client(1)))
		g.Failed(addr(1)) // by another client
		assert.Equal(t, 2, mustPick(t, g, client(1)))
		c.advance(time.Minute)
		assert.Equal(t, 2, mustPick(t, g, client(1)), "and does not go back")
	})
	t.Run("affinity stays when all rest", func(t *testing.T) {
		t.Parallel()
		g, _ := newGroup(time.Hour, 1, 2)
		require.Equal(t, 1, mustPick(t, g, client(1)))
		g.Failed(addr(1))
		g.Failed(addr(2))
		for range 3 {
			assert.Equal(t, 1, mustPick(t, g, client(1)))
		}
		assert.Equal(t, 2, mustPick(t, g, client(1), 1), "but not with one that was tried")
	})
	t.Run("an only endpoint is picked each time", func(t *testing.T) {
		t.Parallel()
		g, c := newGroup(0, 1)
		for range 100 {
			assert.Equal(t, 1, mustPick(t, g, client(1)))
			g.Failed(addr(1))
			c.advance(time.Second)
		}
	})
}
