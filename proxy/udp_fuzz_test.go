package proxy

import (
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// FuzzUDPBytes sends datagrams that come back as they were, cut out of data at
// lengths that data itself gives.
func FuzzUDPBytes(f *testing.F) {
	f.Add([]byte{}, uint16(0))
	f.Add([]byte("\x00\x05hello\x03all"), uint16(1))
	f.Add(noise(1<<14), uint16(60000))
	p := serveUDP(f, udpOptions{}, echoUDP(f).addr)
	f.Fuzz(func(t *testing.T, data []byte, padding uint16) {
		opened := p.counters().opened.Load()
		c := newUDPClient(t, p.addr)
		long := append(noise(int(padding)%60000), data[:min(len(data), 5000)]...)
		c.send(long)
		require.Equal(t, string(long), string(c.receive()))
		for n := 0; len(data) > 0 && n < 50; n++ {
			size := min(int(data[0]), len(data)-1)
			b := data[1 : 1+size]
			data = data[1+size:]
			c.send(b)
			require.Equal(t, string(b), string(c.receive()))
		}
		require.LessOrEqual(t, p.counters().opened.Load(), opened+1, "an earlier client may have had its port")
	})
}

// FuzzUDPServer sends from a few clients to a few endpoints that come and go,
// with room for three flows, and foretells of each datagram by which flow it
// comes: a flow lives as long as its endpoint, unless three others were used
// since.
func FuzzUDPServer(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5})
	f.Add([]byte{0, 1, 2, 3, 0, 1, 2, 3, 16, 0, 17, 0, 18, 0, 1, 31, 0, 1})
	f.Add([]byte("anything may be said in any order to anybody"))
	const clients, endpoints, limit = 5, 4, 3
	var es [endpoints]*udpEndpoint
	for i := range es {
		es[i] = sinkUDP(f)
	}
	p := serveUDP(f, udpOptions{limit: limit})
	round := 0
	f.Fuzz(func(t *testing.T, steps []byte) {
		round++
		var cs [clients]udpClient
		for i := range cs {
			cs[i] = newUDPClient(t, p.addr)
		}
		p.endFlows()
		p.setEndpoints(es[0].addr)
		present := []netip.AddrPort{es[0].addr}
		type flow struct {
			client   int
			from     netip.AddrPort // its socket
			endpoint netip.AddrPort
		}
		var flows []flow // the most recently used first
		for n, step := range steps[:min(len(steps), 200)] {
			if step >= 128 { // endpoints change
				present = present[:0]
				for i, e := range es {
					if step&(1<<i) != 0 {
						present = append(present, e.addr)
					}
				}
				p.setEndpoints(present...)
				continue
			}
			client := int(step) % clients
			payload := fmt.Sprintf("round %d, step %d", round, n)
			dropped := p.dropped(dropNoEndpoint)
			cs[client].send([]byte(payload))
			if len(present) == 0 {
				soon(t, func() bool { return p.dropped(dropNoEndpoint) == dropped+1 })
				flows = slices.DeleteFunc(flows, func(f flow) bool { return f.client == client })
				continue
			}
			got := flow{client: client}
			soon(t, func() bool {
				for _, e := range es {
					if last, ok := e.newest(); ok && last.payload == payload {
						got.from, got.endpoint = last.from, e.addr
						return true
					}
				}
				return false
			}, "step %d is lost", n)
			require.Contains(t, present, got.endpoint, "step %d", n)
			known := slices.IndexFunc(flows, func(f flow) bool { return f.client == client })
			if known >= 0 {
				// One to an endpoint that is not present has only waited for its answer.
				if slices.Contains(present, flows[known].endpoint) {
					require.Equal(t, flows[known], got, "step %d goes by the flow that is there", n)
				}
				flows = slices.Delete(flows, known, known+1)
			}
			flows = slices.Insert(flows, 0, got)
			flows = flows[:min(len(flows), limit)]
			require.Len(t, p.status(1000), len(flows), "step %d", n)
		}
	})
}

// soon is require.Eventually for what happens at once, a thousand times over.
func soon(t *testing.T, f func() bool, why ...any) {
	t.Helper()
	for deadline := time.Now().Add(patience); !f(); time.Sleep(10 * time.Microsecond) {
		require.True(t, time.Now().Before(deadline), why...)
	}
}

func (e *udpEndpoint) newest() (gotDatagram, bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.got) == 0 {
		return gotDatagram{}, false
	}
	return e.got[len(e.got)-1], true
}
