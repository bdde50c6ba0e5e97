package proxy

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

func TestProspect(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	a, b := named(t, "a"), named(t, "b")
	port := f.port(a, b)
	port.Affinity = time.Minute
	taken := backend(t, func(*net.TCPConn) {})
	port.Portals = append(port.Portals, service.Portal{Kind: service.NodePort, Addr: taken})
	f.Update([]service.Port{port}, true)
	require.Eventually(t, func() bool { return !f.Status().Synced.IsZero() }, patience, time.Millisecond)

	conn := f.dial()
	name := make([]byte, 2)
	_, err := io.ReadFull(conn, name)
	require.NoError(t, err)
	client := conn.LocalAddr().(*net.TCPAddr).AddrPort().Addr()
	got, ok := f.Prospect(service.TCP, f.portal, client)
	require.True(t, ok)
	want := map[string]netip.AddrPort{"a\n": a, "b\n": b}[string(name)]
	assert.Equal(t, want, got.Forecast.Affine)
	assert.Equal(t, want, got.Forecast.Endpoints[0].Addr)
	assert.Equal(t, StateServing, got.Portal.State)
	assert.Equal(t, Timings{Dial: 5 * time.Second, Fallback: 250 * time.Millisecond, UDPIdle: 30 * time.Second}, got.Timings)

	got, ok = f.Prospect(service.TCP, taken, client)
	require.True(t, ok)
	assert.Equal(t, StateUnserved, got.Portal.State)
	assert.Contains(t, got.Portal.Why, "address already in use")
	assert.NotEmpty(t, got.Portal.Advice)

	for _, nobody := range []netip.AddrPort{netip.AddrPortFrom(ownAddr(), 9), netip.MustParseAddrPort("[::1]:8080")} {
		_, ok = f.Prospect(service.TCP, nobody, client)
		assert.False(t, ok)
	}
	_, ok = f.Prospect(service.UDP, f.portal, client)
	assert.False(t, ok, "another protocol")
}
