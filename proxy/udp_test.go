package proxy

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestCase11_UDPLateReplyArrives(t *testing.T) {
	t.Parallel()
	e := newUDPEndpoint(t, netip.AddrPortFrom(ownAddr(), 0), func(b []byte) []byte {
		time.Sleep(2 * time.Second)
		return b
	})
	p := serveUDP(t, udpOptions{idle: 30 * time.Second}, e.addr)
	assert.Equal(t, "are you there", newUDPClient(t, p.addr).ask("are you there"))
}

func TestCase11_UDPTrafficEitherWayKeepsAFlow(t *testing.T) {
	t.Parallel()
	const idle, steps = 2 * time.Second, 6
	for _, way := range []string{"up", "down"} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			e := sinkUDP(t)
			p := serveUDP(t, udpOptions{idle: idle}, e.addr)
			c := newUDPClient(t, p.addr)
			c.send([]byte("0"))
			flow := e.last(t, "0").from
			for i := range steps {
				time.Sleep(idle / 5)
				if way == "up" {
					c.send([]byte{byte('1' + i)})
					assert.Equal(t, flow, e.last(t, string('1'+rune(i))).from)
					continue
				}
				_, err := e.conn.WriteToUDPAddrPort([]byte("news"), flow)
				require.NoError(t, err)
				assert.Equal(t, "news", string(c.receive()))
			}
			p.eventually(func() bool { return p.counters().ended[endedIdle].Load() == 1 })
			assert.EqualValues(t, 1, p.counters().opened.Load())
		})
	}
}

func TestCase12_UDPFlowsAreCappedAndTheOldestEvicted(t *testing.T) {
	t.Parallel()
	const limit, clients = 8, 24
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{limit: limit}, e.addr)
	busy := newUDPClient(t, p.addr)
	assert.Equal(t, "first", busy.ask("first"))
	for i := range clients {
		c := newUDPClient(t, p.addr)
		assert.Equal(t, "hello", c.ask("hello"), "client %d", i)
		assert.Equal(t, "still here", busy.ask("still here"))
		assert.LessOrEqual(t, p.counters().active.Load(), int64(limit))
		assert.LessOrEqual(t, p.limit.taken.Load(), int64(limit))
	}
	assert.Equal(t, e.last(t, "first").from, e.last(t, "still here").from, "who is busy is not evicted")
	assert.EqualValues(t, clients+1-limit, p.counters().ended[endedEvicted].Load())
	assert.Len(t, p.status(1000), limit)
}

func TestCase12_UDPFlowsOfAllServersShareTheCap(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{limit: 2}, e.addr)
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(ownAddr(), 0)))
	require.NoError(t, err)
	other, err := newUDPServer(udpConfig{flows: p.flows, conn: conn, balancer: p.group, account: new(account), idle: time.Hour, log: p.udpServer.log})
	require.NoError(t, err)
	defer other.close()
	for range 2 {
		newUDPClient(t, p.addr).ask("one")
	}
	assert.Equal(t, "two", newUDPClient(t, addrOf(conn)).ask("two"), "a server without flows gets one all the same")
	assert.Len(t, p.status(1000), 1)
	assert.Len(t, other.status(1000), 1)
}

func TestCase13_UDPGoesOnWhenDescriptorsAreBack(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	free := p.limit.free.Swap(0)
	c := newUDPClient(t, p.addr)
	for range 100 {
		c.send([]byte("lost"))
	}
	p.eventually(func() bool { return p.dropped(dropNoDescriptor) == 100 })
	require.Len(t, p.log.AllEntries(), 1, "100 drops, one line")
	assert.Contains(t, p.log.LastEntry().Message, "descriptors")
	p.limit.free.Store(free)
	assert.Equal(t, "found", c.ask("found"))
	assert.Empty(t, e.received()[1:], "what was dropped stays dropped")
}

func TestCase14_UDPFlowsEndWithTheirEndpoint(t *testing.T) {
	t.Parallel()
	gone, next := sinkUDP(t), sinkUDP(t)
	p := serveUDP(t, udpOptions{}, gone.addr)
	c := newUDPClient(t, p.addr) // a sender that never gets a reply
	c.send([]byte("before"))
	flow := gone.last(t, "before").from

	p.setEndpoints(next.addr)
	c.send([]byte("after"))
	next.last(t, "after")
	assert.Len(t, gone.received(), 1)
	assert.EqualValues(t, 1, p.counters().ended[endedEndpoint].Load())

	_, err := gone.conn.WriteToUDPAddrPort([]byte("too late"), flow)
	require.NoError(t, err)
	_, err = next.conn.WriteToUDPAddrPort([]byte("in time"), next.last(t, "after").from)
	require.NoError(t, err)
	assert.Equal(t, "in time", string(c.receive()), "a removed endpoint has no say")

	p.setEndpoints()
	c.send([]byte("nobody"))
	p.eventually(func() bool { return p.dropped(dropNoEndpoint) == 1 })
	assert.Empty(t, p.status(1000))
	p.setEndpoints(gone.addr, next.addr)
	c.send([]byte("again"))
	p.eventually(func() bool { return len(gone.received())+len(next.received()) == 3 })
}

func TestCase14_UDPAnswersOfAnEndpointThatLeavesArrive(t *testing.T) {
	t.Parallel()
	leaving, next := sinkUDP(t), sinkUDP(t)
	p := serveUDP(t, udpOptions{}, leaving.addr)
	c := newUDPClient(t, p.addr)
	c.send([]byte("asked"))
	c.send([]byte("asked more"))
	flow := leaving.last(t, "asked more").from

	answer := func(what string) {
		_, err := leaving.conn.WriteToUDPAddrPort([]byte(what), flow)
		require.NoError(t, err)
		assert.Equal(t, what, string(c.receive()))
	}
	answer("one")
	p.setEndpoints(next.addr)
	answer("two")
	c.send([]byte("after"))
	next.last(t, "after")
	assert.EqualValues(t, 1, p.counters().ended[endedEndpoint].Load())

	p.setEndpoints(leaving.addr)
	p.setEndpoints(next.addr)
	c.send([]byte("as before"))
	assert.Equal(t, next.last(t, "after").from, next.last(t, "as before").from, "an endpoint that is back keeps its flow")
}

func TestCase14_UDPFlowsToOtherEndpointsStay(t *testing.T) {
	t.Parallel()
	a, b := namedUDP(t, "a"), namedUDP(t, "b")
	p := serveUDP(t, udpOptions{}, a.addr, b.addr)
	var toA, toB udpClient
	for range 2 {
		c := newUDPClient(t, p.addr)
		if c.ask("who") == "a who" {
			toA = c
		} else {
			toB = c
		}
	}
	p.setEndpoints(b.addr)
	assert.Equal(t, "b again", toA.ask("again"))
	assert.Equal(t, "b again", toB.ask("again"))
	assert.Equal(t, b.last(t, "who").from, b.received()[2].from, "the flow to b is the same")
}

func TestCase14_UDPServerCloseFreesAddressAndFlows(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	for range 10 {
		newUDPClient(t, p.addr).ask("hello")
	}
	p.close()
	assert.Zero(t, p.limit.taken.Load())
	assert.EqualValues(t, 10, p.counters().ended[endedServer].Load())
	conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(p.addr))
	require.NoError(t, err, "the address is free")
	require.NoError(t, conn.Close())
}

func TestCase15_UDPRepliesComeFromTheAddressSentTo(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	a := serveUDP(t, udpOptions{}, e.addr)
	b := serveUDP(t, udpOptions{listen: netip.AddrPortFrom(ownAddr(), a.addr.Port())}, e.addr)
	conn, err := net.ListenUDP("udp4", nil)
	require.NoError(t, err)
	defer conn.Close()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	for _, to := range []netip.AddrPort{a.addr, b.addr, a.addr} {
		_, err := conn.WriteToUDPAddrPort([]byte(to.String()), to)
		require.NoError(t, err)
		buf := make([]byte, 100)
		n, from, err := conn.ReadFromUDPAddrPort(buf)
		require.NoError(t, err)
		assert.Equal(t, to, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()))
		assert.Equal(t, to.String(), string(buf[:n]))
	}
}

func TestCase16_UDPDatagramsOfAnySizeArriveUnaltered(t *testing.T) {
	t.Parallel()
	for _, family := range []string{"IPv4", "IPv6", "IPv6 to IPv4"} {
		t.Run(family, func(t *testing.T) {
			t.Parallel()
			own := netip.AddrPortFrom(ownAddr(), 0)
			v6 := netip.AddrPortFrom(netip.IPv6Loopback(), 0)
			listen, at := own, own
			switch family {
			case "IPv6":
				listen, at = v6, v6
			case "IPv6 to IPv4":
				listen = v6
			}
			e := newUDPEndpoint(t, at, mirror)
			p := serveUDP(t, udpOptions{listen: listen}, e.addr)
			c := newUDPClient(t, p.addr)
			for _, size := range []int{1, 0, 512, 1472, 1473, 4096, 4097, 9000, 16384, 65506, 65507, 0, 1} {
				want := noise(size)
				c.send(want)
				got := c.receive()
				require.Len(t, got, size)
				require.Equal(t, string(want), string(got), "size %d", size)
			}
			require.Len(t, p.status(1000), 1, "all in one flow")
			p.eventually(func() bool { return p.status(1000)[0].Down.Datagrams == 13 }) // counted when it has been sent
			p.eventually(func() bool { return p.status(1000)[0].Up == p.status(1000)[0].Down })
		})
	}
}

func TestCase16_UDPDatagramTooLongForTheWayIsDropped(t *testing.T) {
	t.Parallel()
	// 65,520 bytes fit into IPv6, not into IPv4.
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{listen: netip.AddrPortFrom(netip.IPv6Loopback(), 0)}, e.addr)
	c := newUDPClient(t, p.addr)
	assert.Equal(t, "before", c.ask("before"))
	c.send(noise(65520))
	assert.Equal(t, "after", c.ask("after"))
	assert.EqualValues(t, 1, p.dropped(dropTooBig))
	assert.Equal(t, e.last(t, "before").from, e.last(t, "after").from, "the flow lives")

	long := newUDPEndpoint(t, netip.AddrPortFrom(netip.IPv6Loopback(), 0), func(b []byte) []byte {
		if string(b) == "long" {
			return noise(65520)
		}
		return b
	})
	p = serveUDP(t, udpOptions{}, long.addr)
	c = newUDPClient(t, p.addr)
	c.send([]byte("long"))
	assert.Equal(t, "short", c.ask("short"))
	assert.EqualValues(t, 1, p.dropped(dropTooBig))
}

func TestCase17_UDPStaleRefusalCostsNoDatagram(t *testing.T) {
	t.Parallel()
	at := netip.AddrPortFrom(ownAddr(), 7)
	p := serveUDP(t, udpOptions{}, at)
	c := newUDPClient(t, p.addr)
	for i := range 5 {
		c.send([]byte("down")) // nobody is there
		p.eventually(func() bool { return p.counters().refused.Load() == uint64(i+1) })
		e := newUDPEndpoint(t, at, mirror)
		assert.Equal(t, "up", c.ask("up"), "round %d", i)
		e.stop()
	}
	assert.EqualValues(t, 1, p.counters().opened.Load(), "the only endpoint keeps the flow")
}

func TestCase17_UDPBurstToNobodyCostsNoLaterDatagram(t *testing.T) {
	t.Parallel()
	at := netip.AddrPortFrom(ownAddr(), 7)
	p := serveUDP(t, udpOptions{}, at)
	c := newUDPClient(t, p.addr)
	const burst = 200
	for range burst { // the next are sent while refusals of the last come back
		c.send([]byte("down"))
	}
	p.eventually(func() bool { return p.account.asked.datagrams.Load()+p.dropped(dropFailed) == burst })
	newUDPEndpoint(t, at, mirror)
	assert.Equal(t, "up", c.ask("up"))
	assert.Zero(t, p.dropped(dropFailed))
}

func TestCase17_UDPClientThatIsGoneHarmsNobody(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	gone, stays := newUDPClient(t, p.addr), newUDPClient(t, p.addr)
	assert.Equal(t, "hello", gone.ask("hello"))
	flow := e.last(t, "hello").from
	require.NoError(t, gone.Close())
	for range 20 { // each comes back as port unreachable
		_, err := e.conn.WriteToUDPAddrPort([]byte("for nobody"), flow)
		require.NoError(t, err)
		assert.Equal(t, "mine", stays.ask("mine"))
	}
}

func TestCase17_UDPRefusedFlowMovesToAnotherEndpoint(t *testing.T) {
	t.Parallel()
	dead := nobody(t)
	live := echoUDP(t)
	p := serveUDP(t, udpOptions{}, dead, live.addr)
	for i := range 10 {
		c := newUDPClient(t, p.addr)
		refused, received := p.counters().refused.Load(), len(live.received())
		c.send([]byte("first"))
		p.eventually(func() bool {
			return p.counters().refused.Load() > refused || len(live.received()) > received
		})
		assert.Contains(t, []string{"second", "first"}, c.ask("second"))
		live.last(t, "second")
		p.eventually(func() bool { return p.countTo(dead) == 0 }, "the flow has left the dead endpoint")
		p.eventually(func() bool { return p.countTo(live.addr) == i+1 })
	}
	assert.LessOrEqual(t, p.counters().refused.Load(), uint64(8), "the dead endpoint rests, ever longer")
}

func (p *udpPath) countTo(e netip.AddrPort) int {
	n := make(map[netip.AddrPort]int)
	p.countByEndpoint(n)
	return n[e]
}

func TestCase18_UDPEmptyDatagramsAreEchoed(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	c := newUDPClient(t, p.addr)
	for range 3 {
		assert.Empty(t, c.ask(""))
	}
	assert.Equal(t, "not empty", c.ask("not empty"))
	assert.Len(t, e.received(), 4)
	assert.Equal(t, e.received()[0].from, e.received()[3].from, "the flow lives")
	p.eventually(func() bool { return p.status(1000)[0].Up == Traffic{Datagrams: 4, Bytes: 9} })
}

func TestUDPStatus(t *testing.T) {
	t.Parallel()
	e := namedUDP(t, "e")
	p := serveUDP(t, udpOptions{}, e.addr)
	before := time.Now()
	c := newUDPClient(t, p.addr)
	c.ask("12345")
	c.ask("67")
	st := p.status(1000)
	require.Len(t, st, 1)
	assert.Equal(t, c.client(), st[0].Client)
	assert.Equal(t, e.addr, st[0].Endpoint)
	p.eventually(func() bool { return p.status(1000)[0].Down == Traffic{Datagrams: 2, Bytes: 11} }) // counted when it has been sent
	p.eventually(func() bool { return p.status(1000)[0].Up == Traffic{Datagrams: 2, Bytes: 7} })
	assert.WithinRange(t, st[0].Since, before.Add(-time.Second), time.Now().Add(time.Second))
	assert.GreaterOrEqual(t, st[0].Idle, Span(0))
}

func TestUDPIdleTimeChangesForFlowsThatExist(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{}, e.addr)
	c := newUDPClient(t, p.addr)
	c.ask("hello")
	p.setIdle(10 * time.Millisecond)
	p.eventually(func() bool { return p.counters().ended[endedIdle].Load() == 1 })
	p.eventually(func() bool { return p.limit.taken.Load() == 0 }, "its descriptor is given back")
	p.setIdle(time.Hour)
	assert.Equal(t, "hello again", c.ask("hello again"))
}

func TestUDPMappedClientsAreIPv4(t *testing.T) {
	t.Parallel()
	e := echoUDP(t)
	p := serveUDP(t, udpOptions{listen: netip.AddrPortFrom(netip.IPv6Unspecified(), 0)}, e.addr) // takes IPv4 along
	c := newUDPClient(t, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), p.addr.Port()))
	assert.Equal(t, "mapped", c.ask("mapped"))
	assert.Equal(t, c.client(), p.status(1000)[0].Client)
}

func addrOf(conn *net.UDPConn) netip.AddrPort { return conn.LocalAddr().(*net.UDPAddr).AddrPort() }

func TestUDPOnlyRepliesOrSilenceProveAnEndpoint(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		then  func(*udpPath, *udpFlow, time.Duration)
		works bool
	}{
		"one more datagram":       {func(*udpPath, *udpFlow, time.Duration) {}, false},
		"a reply":                 {func(p *udpPath, f *udpFlow, now time.Duration) { p.replied(f, now) }, true},
		"a datagram some ms on":   {func(p *udpPath, f *udpFlow, now time.Duration) { p.flow(f.key, now+provenAfter/2) }, false},
		"a datagram a second on":  {func(p *udpPath, f *udpFlow, now time.Duration) { p.flow(f.key, now+provenAfter) }, true},
		"another refusal in time": {func(p *udpPath, f *udpFlow, now time.Duration) { p.refused(f); p.flow(f.key, now+provenAfter) }, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := serveUDP(t, udpOptions{}, sinkUDP(t).addr)
			key := flowKey{client: netip.AddrPortFrom(ownAddr(), 1)}
			f, _ := p.flow(key, 0)
			require.NotNil(t, f)
			p.refused(f)
			p.refused(f)
			require.Equal(t, 1, p.group.Status()[0].Failures, "two refusals of one burst are one")
			same, _ := p.flow(key, time.Minute)
			require.Same(t, f, same, "there is no other endpoint")
			c.then(p, f, time.Minute)
			assert.Equal(t, c.works, p.group.Status()[0].Failures == 0)
		})
	}
}
