package proxy

import (
	"errors"
	"net/netip"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// opened is the port that a range hands out.
func opened(r *portRange, at socketPlace) (port uint16, err error) {
	err = r.open(at, netip.MustParseAddr("169.254.77.1"), func(addr netip.AddrPort) error {
		port = addr.Port()
		return nil
	})
	return port, err
}

// TestPortRange_full: of all who find no port the first tries, until the next reconcile.
func TestPortRange_full(t *testing.T) {
	t.Parallel()
	at := socketPlace{service.IPv4, service.TCP}
	r := newPortRange(service.PortRange{First: 10, Last: 12})
	tries := func() (n int) {
		err := r.open(at, netip.MustParseAddr("169.254.77.1"), func(netip.AddrPort) error {
			n++
			return syscall.EADDRINUSE
		})
		require.ErrorContains(t, err, "give a wider --proxy-port-range")
		return n
	}
	assert.Equal(t, 3, tries())
	assert.Zero(t, tries())
	_, err := opened(r, socketPlace{service.IPv6, service.TCP})
	require.NoError(t, err)
	r.again()
	assert.Equal(t, 3, tries())
}

// TestPortRange_rest: a port that rests comes back when it is woken, and by itself
// where nobody can wake it.
func TestPortRange_rest(t *testing.T) {
	t.Parallel()
	udp, tcp := socketPlace{service.IPv4, service.UDP}, socketPlace{service.IPv4, service.TCP}
	synctest.Test(t, func(t *testing.T) {
		r := newPortRange(service.PortRange{First: 10, Last: 11})
		r.rest(udp, 10, time.Minute)
		r.rest(udp, 11, 2*time.Minute)
		_, err := opened(r, udp)
		require.ErrorContains(t, err, "every UDP port of 169.254.77.1 in 10-11 is in use, or was a moment ago")
		_, err = opened(r, tcp)
		require.NoError(t, err, "those of others do not rest")

		time.Sleep(time.Minute)
		r.again()
		port, err := opened(r, udp)
		require.NoError(t, err)
		assert.Equal(t, uint16(10), port)
		r.rest(udp, 10, time.Hour)
		time.Sleep(time.Minute)
		port, err = opened(r, udp)
		require.NoError(t, err)
		assert.Equal(t, uint16(11), port)
		r.rest(udp, 11, time.Hour)
		assert.True(t, r.hasResting(udp))

		r.wake(udp)
		assert.False(t, r.hasResting(udp))
		_, err = opened(r, udp)
		require.NoError(t, err)
	})
}

func TestPortRange_inUse(t *testing.T) {
	t.Parallel()
	at := socketPlace{service.IPv6, service.TCP}
	other := errors.New("other")
	for says, err := range map[string]error{"every TCP port of fd77::1 in 65535-65535 is in use": syscall.EADDRINUSE, "other": other} {
		r := newPortRange(service.PortRange{First: 65535, Last: 65535})
		assert.ErrorContains(t, r.open(at, netip.MustParseAddr("fd77::1"), func(netip.AddrPort) error { return err }), says)
	}
}

// TestTracking_entryLife: as the kernel says, and as kernels are where it does not.
func TestTracking_entryLife(t *testing.T) {
	t.Parallel()
	e := &entries{}
	tracked := newTestTracking(e)
	assert.Equal(t, 3*time.Minute, tracked.entryLife())
	e.timeouts = [2]time.Duration{30 * time.Second, 2 * time.Minute}
	assert.Equal(t, 2*time.Minute, tracked.entryLife())
}
