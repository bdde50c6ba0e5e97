package loadbalancer

import (
	"encoding/binary"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// manyClients are n different addresses.
func manyClients(n int) []netip.Addr {
	all := make([]netip.Addr, n)
	for i := range all {
		all[i] = netip.AddrFrom4([4]byte(binary.BigEndian.AppendUint32(nil, uint32(0x0b000000+i))))
	}
	return all
}

func TestAffinity_boundedAndLongestUnusedGoFirst(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	var a affinity
	a.setTimeout(time.Hour, now)
	loyal, ep := netip.MustParseAddr("192.0.2.1"), &endpoint{}
	idle := netip.MustParseAddr("192.0.2.2")
	a.record(idle, ep, now)
	for i, c := range manyClients(maxClients + maxClients/4) {
		if i%1000 == 0 {
			a.record(loyal, ep, now)
		}
		a.record(c, ep, now)
		if got := a.entries(); got > maxClients {
			t.Fatalf("%d clients in memory after %d", got, i)
		}
	}
	assert.Greater(t, a.entries(), maxClients/2)
	assert.Same(t, ep, a.endpoint(loyal, now), "one that is used stays")
	assert.Nil(t, a.endpoint(idle, now), "one that is not goes")
}

func TestUpdate_givesBackWhatIdleClientsTook(t *testing.T) {
	t.Parallel()
	now := time.Unix(1000, 0)
	g := NewGroup(func() time.Time { return now })
	list := []service.Endpoint{{Addr: netip.MustParseAddrPort("10.0.0.1:80")}}
	g.Update(list, time.Minute)
	for _, c := range manyClients(100) {
		g.Pick(c, nil)
	}
	for range 2 { // and no client comes again
		now = now.Add(time.Minute)
		g.Update(list, time.Minute)
	}
	assert.Zero(t, g.affinity.entries())
}

// Not parallel: it reads the heap of the whole process.
func TestAffinity_memoryReturns(t *testing.T) {
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	now := time.Unix(1000, 0)
	clients, ep := manyClients(20_000), &endpoint{}
	var a affinity
	a.setTimeout(time.Minute, now)
	before := heap()
	for range 20 { // twenty crowds, each of which comes once
		for i, c := range clients {
			b := c.As4()
			b[0] = byte(now.Unix() / 60) // another crowd each minute
			clients[i] = netip.AddrFrom4(b)
			a.record(clients[i], ep, now)
		}
		assert.LessOrEqual(t, a.entries(), 2*len(clients))
		now = now.Add(time.Minute)
	}
	during := heap()
	for range 2 {
		a.turn(now)
		now = now.Add(time.Minute)
	}
	assert.Zero(t, a.entries())
	after := heap()
	t.Logf("heap: %d before, %d for %d clients, %d after", before, during-before, 2*len(clients), after)
	assert.Less(t, after, before+(during-before)/4)
	runtime.KeepAlive(clients)
}
