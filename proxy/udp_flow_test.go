package proxy

import (
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// naiveFlows says what a flowTable should: one list of all flows, the most
// recently used first, searched from end to end.
type naiveFlows []naiveFlow

type naiveFlow struct {
	server, client int
	used           time.Duration
}

func (n *naiveFlows) use(server, client int, now time.Duration) {
	n.remove(server, client)
	*n = slices.Insert(*n, 0, naiveFlow{server, client, now})
}

func (n *naiveFlows) remove(server, client int) {
	*n = slices.DeleteFunc(*n, func(f naiveFlow) bool { return f.server == server && f.client == client })
}

// FuzzUDPFlowTable does the same to a flowTable and to a naive list, with a
// clock of its own: flows of three servers with idle times of their own are
// used, removed, evicted and expire.
func FuzzUDPFlowTable(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9})
	f.Add([]byte("used, removed, evicted, over, and all of it again"))
	f.Fuzz(func(t *testing.T, steps []byte) {
		const servers = 3
		table := newFlowTable()
		var groups [servers]flowGroup
		for i := range groups {
			groups[i] = newFlowGroup(time.Duration(i+1) * 10)
		}
		var naive naiveFlows
		var now time.Duration
		for _, step := range steps {
			server, client := int(step)%servers, int(step>>2)%7
			g, key := &groups[server], flowKey{client: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(client))}
			switch step >> 5 {
			case 0, 1, 2, 3: // a datagram passes
				if f := g.byKey[key]; f == nil {
					table.add(g, &udpFlow{key: key}, now)
				} else {
					table.use(g, f, now)
				}
				naive.use(server, client, now)
			case 4:
				if f := g.byKey[key]; f != nil {
					table.remove(g, f)
				}
				naive.remove(server, client)
			case 5: // the oldest gives way
				f := table.byUse.last
				require.Equal(t, len(naive) > 0, f != nil)
				if f == nil {
					break
				}
				oldest := naive[len(naive)-1]
				require.Equal(t, uint16(oldest.client), f.key.client.Port())
				table.remove(&groups[oldest.server], f)
				naive = naive[:len(naive)-1]
			default: // time passes
				now += time.Duration(step & 15)
				for i := range groups {
					g := &groups[i]
					for f := g.byUse.last; f != nil && g.isOver(f, now); f = g.byUse.last {
						table.remove(g, f)
					}
					naive = slices.DeleteFunc(naive, func(f naiveFlow) bool {
						return f.server == i && now-f.used >= g.idle
					})
				}
			}
			checkFlowTable(t, &table, groups[:], naive)
		}
	})
}

func checkFlowTable(t *testing.T, table *flowTable, groups []flowGroup, naive naiveFlows) {
	t.Helper()
	require.Equal(t, len(naive), table.size)
	var all []time.Duration
	for f := range table.byUse.all {
		all = append(all, f.used)
	}
	var want []time.Duration
	perGroup := make([][]uint16, len(groups))
	for _, f := range naive {
		want = append(want, f.used)
		perGroup[f.server] = append(perGroup[f.server], uint16(f.client))
	}
	require.Equal(t, want, all)
	for i := range groups {
		var clients []uint16
		for f := range groups[i].byUse.all {
			clients = append(clients, f.key.client.Port())
			require.Same(t, f, groups[i].byKey[f.key])
		}
		require.Equal(t, perGroup[i], clients)
		require.Len(t, groups[i].byKey, len(clients))
	}
}

func TestUDPFlowListRemovesWhileIterating(t *testing.T) {
	t.Parallel()
	table, g := newFlowTable(), newFlowGroup(time.Second)
	for i := range 5 {
		table.add(&g, &udpFlow{key: flowKey{client: netip.AddrPortFrom(netip.IPv4Unspecified(), uint16(i))}}, 0)
	}
	for f := range g.byUse.all {
		if f.key.client.Port()%2 == 0 {
			table.remove(&g, f)
		}
	}
	var left []uint16
	for f := range table.byUse.all {
		left = append(left, f.key.client.Port())
	}
	assert.Equal(t, []uint16{3, 1}, left)
	assert.Equal(t, 2, table.size)
}

func TestUDPReasonsHaveNames(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for r := range endReasons {
		assert.NotEmpty(t, r.String())
		seen[r.String()] = true
	}
	for r := range dropReasons {
		assert.NotEmpty(t, r.String())
		seen["dropped "+r.String()] = true
	}
	assert.Len(t, seen, int(endReasons)+int(dropReasons))
}
