package healthport

import (
	"net"
	"net/netip"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/config"
)

// TestOpensAgain: where a socket fails, as after ss -K, the port is opened again.
func TestOpensAgain(t *testing.T) {
	t.Parallel()
	s := start(t)
	at := netip.AddrPortFrom(netip.MustParseAddr("127.66.90.5"), freePort(t, "127.66.90.5"))
	s.Set([]config.HealthCheck{check("web", at.Port(), 1)}, []netip.Addr{at.Addr()})
	for range 2 {
		requireGot(t, at, got{200, "1", body("1", "true")})
		breakListener(t, at)
	}
	requireGot(t, at, got{200, "1", body("1", "true")})
	assert.Empty(t, s.Problems())
}

// breakListener leaves the socket of this process that listens at a place as ss -K
// does: accept(2) fails from then on.
func breakListener(t *testing.T, at netip.AddrPort) {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	for _, entry := range open {
		fd, err := strconv.Atoi(entry.Name())
		require.NoError(t, err)
		address, err := unix.Getsockname(fd)
		v4, ok := address.(*unix.SockaddrInet4)
		if err != nil || !ok || netip.AddrPortFrom(netip.AddrFrom4(v4.Addr), uint16(v4.Port)) != at {
			continue
		}
		if listens, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN); err == nil && listens == 1 {
			require.NoError(t, unix.Shutdown(fd, unix.SHUT_RD))
			return
		}
	}
	require.Fail(t, "nobody listens", "%s", at)
}

// TestHoldersOfConnections: whoever opens connections and says nothing keeps nobody
// out, at no port, and takes no more descriptors than are meant for all of them. It is
// not parallel, so that the descriptors are its own.
func TestHoldersOfConnections(t *testing.T) {
	s := start(t)
	addr := netip.MustParseAddr("127.66.90.6")
	checks := []config.HealthCheck{check("web", freePort(t, addr.String()), 1), check("other", freePort(t, addr.String()), 1)}
	s.Set(checks, []netip.Addr{addr})
	var at []netip.AddrPort
	for _, c := range checks {
		at = append(at, netip.AddrPortFrom(addr, c.Port))
	}
	answered := func(at netip.AddrPort) bool { g, ok := ask(t, at); return ok && g.code == 200 }
	for _, one := range at {
		require.Eventually(t, func() bool { return answered(one) }, patience, 10*time.Millisecond)
	}

	before := descriptors(t)
	const held = 5 * mostConnections
	for i := range held {
		c, err := net.DialTimeout("tcp", at[i%2].String(), patience)
		require.NoError(t, err)
		t.Cleanup(func() { _ = c.Close() })
	}
	for _, one := range at { // accepted after those that came before
		assert.True(t, answered(one))
	}
	assert.LessOrEqual(t, descriptors(t), before+held+2*mostConnections, "this test's, the server's, and some that are just being closed")
}

// descriptors is how many this process has open.
func descriptors(t *testing.T) int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	require.NoError(t, err)
	return len(open)
}
