package proxy

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestUDPOrderWithinAFlowStays(t *testing.T) {
	t.Parallel()
	const total, window = 2000, 64 // more on the way than one turn of a loop takes
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	c := newUDPClient(t, p.addr)
	var b [4]byte
	for sent, got := uint32(0), uint32(0); got < total; {
		for ; sent < total && sent < got+window; sent++ {
			binary.BigEndian.PutUint32(b[:], sent)
			c.send(b[:])
		}
		require.Equal(t, got, binary.BigEndian.Uint32(c.receive()))
		got++
	}
}

func TestUDPManyClientsGetEachTheirOwn(t *testing.T) {
	t.Parallel()
	const clients, rounds = 200, 5
	a, b := echoUDP(t), echoUDP(t)
	p := serveUDP(t, udpOptions{}, a.addr, b.addr)
	var wg sync.WaitGroup
	for i := range clients {
		c := newUDPClient(t, p.addr)
		wg.Go(func() {
			for j := range rounds {
				want := fmt.Sprintf("client %d, round %d", i, j)
				if !assert.Equal(t, want, c.ask(want)) {
					return
				}
			}
		})
	}
	wg.Wait()
	assert.Equal(t, clients/2, p.countTo(a.addr), "in turn")
	assert.Equal(t, clients/2, p.countTo(b.addr))
	assert.EqualValues(t, clients, p.counters().opened.Load())
}

// Flows are opened, found, refused, evicted, expired and ended by endpoint
// changes and by closing, all at the same moment.
func TestUDPEverythingAtOnce(t *testing.T) {
	t.Parallel()
	a, b, dead := echoUDP(t), sinkUDP(t), nobody(t)
	p := serveUDP(t, udpOptions{limit: 20, idle: 20 * time.Millisecond}, a.addr, b.addr, dead)
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			var clients [20]udpClient
			for i := range clients {
				clients[i] = newUDPClient(t, p.addr)
			}
			for {
				select {
				case <-stop:
					return
				default:
					_, _ = clients[rand.IntN(len(clients))].Write([]byte("x"))
				}
			}
		})
	}
	for i := range 100 {
		p.setEndpoints([][]netip.AddrPort{{a.addr}, {a.addr, dead}, {}, {b.addr, dead, a.addr}}[i%4]...)
		_ = p.status(1000)
		p.setIdle(time.Duration(1+i%20) * time.Millisecond)
		time.Sleep(time.Millisecond)
	}
	p.close() // while they send
	close(stop)
	wg.Wait()
	assert.Zero(t, p.limit.taken.Load())
}

func TestUDPKnownFlowAllocatesNothing(t *testing.T) {
	e := sinkUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	c := newUDPClient(t, p.addr)
	c.send([]byte("open"))
	e.last(t, "open")
	key := flowKey{client: c.client()}
	f, _ := p.flow(key, p.flows.now())
	require.NotNil(t, f)
	b := []byte("known")
	assert.Zero(t, testing.AllocsPerRun(100, func() {
		p.fromClient(b, key, p.flows.now())
		p.replied(f, p.flows.now())
	}))
}
