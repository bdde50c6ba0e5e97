package proxy

import (
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/loadbalancer"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// A Service whose endpoint is its own portal, as it can be where somebody else's
// rule makes it so (config.Resolve refuses it otherwise): the connection that
// comes back is turned away, the client is reset, descriptors are given back,
// other endpoints and Services are served, and there is a problem that says so.
func TestOwnDialsAreTurnedAway(t *testing.T) {
	t.Parallel()
	c, out := logged(Config{SyncPeriod: 10 * time.Millisecond})
	f := start(t, c)
	other := netip.AddrPortFrom(ownAddr(), 80)
	a, b := f.port(f.portal), f.portNamed("other", other, named(t, "b"))
	f.update(a, b)
	for range 20 {
		_, err := from(t, ownAddr(), f.portal)
		require.Error(t, err) // a reset; the portable relay passes one on as an end
		_, err = from(t, ownAddr(), other)
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return len(f.Status().Problems) == 1 }, patience, time.Millisecond)
	assert.Equal(t, service.Problem{
		Object: "Service default/web", Reason: "EndpointLoop",
		Detail: "endpoint " + f.portal.String() + ` of TCP port "" leads back to the proxy: it is turned away there`,
		Advice: "a rule on this node leads that address to a Service: list the endpoints behind it instead",
	}, f.Status().Problems[0])
	assert.Positive(t, f.turnedAway("own_dial"))

	// Beside one that works.
	f.update(f.port(f.portal, named(t, "a")), b)
	served := 0
	for range 20 {
		if _, err := from(t, ownAddr(), f.portal); err == nil {
			served++
		}
	}
	assert.GreaterOrEqual(t, served, 10)
	f.update(f.port(named(t, "a")), b)
	require.Eventually(t, func() bool { return len(f.Status().Problems) == 0 }, patience, time.Millisecond)
	f.stop()
	<-f.done
	assert.LessOrEqual(t, strings.Count(out.String(), "\n"), 4, out)
}

// Two Services that lead to each other, and many clients at once.
func TestOwnDialsInAChain(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	other := netip.AddrPortFrom(ownAddr(), 80)
	f.update(f.port(other), f.portNamed("other", other, f.portal))
	var clients []net.Conn
	for range 100 {
		conn, err := net.Dial("tcp", f.portal.String())
		if err == nil {
			clients = append(clients, conn)
		}
	}
	assert.LessOrEqual(t, f.Status().Descriptors.Traffic, 4*100, "no connection makes more than one other")
	for _, conn := range clients {
		_ = conn.Close()
	}
	f.drained()
	assert.Zero(t, f.shared.own.known.Load(), "every dial is forgotten")
	require.Eventually(t, func() bool { return len(f.Status().Problems) > 0 }, patience, time.Millisecond)
}

// Clients on this host are no dials of the proxy's, and come in.
func TestClientsOnThisHostAreNoOwnDials(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	f.serve(named(t, "a"), named(t, "b"))
	for range 20 {
		f.dial()
	}
	require.Eventually(t, func() bool { return f.shared.own.known.Load() == 20 }, patience, time.Millisecond, "endpoints are on this host too")
	for range 20 {
		f.who()
	}
	assert.Zero(t, f.turnedAway("own_dial"))
	assert.Empty(t, f.Status().Problems)
}

// The kernel gives one local port to connections with several destinations.
func TestOwnDialsThatShareALocalPortAreAllForgotten(t *testing.T) {
	t.Parallel()
	o := newOwnDials()
	local := netip.MustParseAddrPort("127.0.0.1:40000")
	dial := func(port uint16) *ownDial {
		d := &ownDial{
			foundLoop: foundLoop{endpoint: netip.AddrPortFrom(local.Addr(), port)}, group: loadbalancer.NewGroup(time.Now),
		}
		o.known.Add(1)
		o.mu.Lock()
		defer o.mu.Unlock()
		o.add(local, d)
		return d
	}
	older, newer := dial(80), dial(81)
	calling := func(port uint16) func() netip.AddrPort {
		return func() netip.AddrPort { return netip.AddrPortFrom(local.Addr(), port) }
	}
	is, _ := o.turnsBack(local, calling(80))
	assert.True(t, is)
	assert.True(t, o.hasComeBack(older))
	assert.False(t, o.hasComeBack(newer))
	o.remove(older)
	is, _ = o.turnsBack(local, calling(80))
	assert.False(t, is, "it is gone")
	is, _ = o.turnsBack(local, calling(82))
	assert.False(t, is, "a client that has a dial's port, and calls another address")
	is, _ = o.turnsBack(local, calling(81))
	assert.True(t, is, "the newer is still there")
	assert.True(t, o.hasComeBack(newer))
	o.remove(newer)
	assert.Zero(t, o.known.Load())
	assert.Empty(t, o.dials)
	is, _ = o.turnsBack(local, calling(81))
	assert.False(t, is)
}
