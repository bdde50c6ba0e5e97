//go:build linux && !portable

package nftables

import (
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// TCP connections of a Service that changes or goes end by themselves,
// whatever becomes of its portal.
func TestOpenConnectionsOutliveTheirPortal(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, p := range nettest.BothFamilies() {
		listener := p.Listen + ":10000"
		w.Node.ServeTCP(t, listener, nettest.Echo)
		portal := "TCP " + p.Portal(10, 80)
		lead := []service.Redirect{nettest.Redirect("web", portal, service.ToListener, listener)}
		w.sync(t, lead)
		var open []net.Conn
		for _, from := range []string{"client", "pod", "node"} {
			c, err := w.Host(from).Dial(t.Context(), "tcp", p.Portal(10, 80))
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(2*nettest.Patience)))
			open = append(open, c)
		}
		for name, state := range map[string][]service.Redirect{
			"led":     lead,
			"refused": {nettest.Redirect("web", portal, service.Refuse)},
			"dropped": {nettest.Redirect("web", portal, service.Drop)},
			"gone":    nil,
		} {
			for range 2 {
				w.sync(t, state)
				for _, c := range open {
					echoes(t, c, name)
				}
				w.runner.Forget() // and once more with tables that are replaced
			}
		}
	}
}

func echoes(t testing.TB, c net.Conn, msg string) {
	t.Helper()
	_, err := io.WriteString(c, msg)
	require.NoError(t, err, msg)
	buf := make([]byte, len(msg))
	_, err = io.ReadFull(c, buf)
	require.NoError(t, err, msg)
	assert.Equal(t, msg, string(buf))
}

// The guard looks at traffic to listeners, not at answers to what the node
// itself sent from their address, whatever port it sent from.
func TestGuardLeavesTheNodesOwnConnections(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(t, nettest.Mixed())
	for _, p := range nettest.BothFamilies() {
		w.Node.ServeBoth(t, nettest.Passes, p.Node+":22")
		from := netip.MustParseAddrPort(p.Listen + ":12345")
		for network, local := range map[string]net.Addr{
			"tcp": net.TCPAddrFromAddrPort(from), "udp": net.UDPAddrFromAddrPort(from),
		} {
			c, err := w.Node.DialFrom(t.Context(), &net.Dialer{LocalAddr: local, Timeout: nettest.Patience}, network, p.Node+":22")
			require.NoError(t, err, "%s from %s", network, from)
			require.NoError(t, c.SetDeadline(time.Now().Add(nettest.Patience)))
			_, err = io.WriteString(c, "?")
			require.NoError(t, err)
			buf := make([]byte, len(nettest.Passes))
			_, err = io.ReadFull(c, buf)
			require.NoError(t, err, "%s from %s", network, from)
			assert.Equal(t, nettest.Passes, string(buf))
			require.NoError(t, c.Close())
		}
	}
}
