//go:build linux && !portable

package iptables

import (
	"bufio"
	"io"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// A refused or dropped flow leaves nothing behind that would pin its sender to
// the refusal: when the portal leads somewhere, the next datagram of the same
// socket arrives.
func TestRefusedFlowsAreNotPinned(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		for _, p := range nettest.BothFamilies() {
			w.listen(t, p.Listen+":10000")
			refuse := nettest.Redirect("dns", "UDP "+p.Portal(10, 53), service.Refuse)
			drop := nettest.Redirect("dns", "UDP "+p.Portal(11, 53), service.Drop)
			w.sync(t, []service.Redirect{refuse, drop})
			for _, from := range []string{"client", "pod", "node"} {
				var conns []net.Conn
				for _, r := range []service.Redirect{refuse, drop} {
					c, err := w.Host(from).Dial(t.Context(), "udp", r.Portal.String())
					require.NoError(t, err)
					t.Cleanup(func() { _ = c.Close() })
					require.NoError(t, c.SetDeadline(time.Now().Add(nettest.Patience)))
					if _, err = c.Write([]byte("?")); from == "node" {
						assert.ErrorIs(t, err, syscall.EPERM)
					} else {
						require.NoError(t, err)
					}
					conns = append(conns, c)
				}
				_, err := conns[0].Read(make([]byte, 1))
				require.ErrorIs(t, err, syscall.ECONNREFUSED, "from %s", from)

				lead := func(r service.Redirect) service.Redirect {
					return nettest.Redirect("dns", "UDP "+r.Portal.String(), service.ToListener, p.Listen+":10000")
				}
				w.sync(t, []service.Redirect{lead(refuse), lead(drop)})
				for _, c := range conns {
					_, err := c.Write([]byte("?"))
					require.NoError(t, err)
					buf := make([]byte, 100)
					n, err := c.Read(buf)
					require.NoError(t, err, "from %s", from)
					assert.Equal(t, "listener "+p.Listen+":10000", string(buf[:n]))
				}
				w.sync(t, []service.Redirect{refuse, drop})
			}
		}
	})
}

// An open connection outlives its portal: what is refused is new ones.
func TestOpenConnectionsOutliveTheirPortal(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		p := nettest.BothFamilies()[0]
		w.listen(t, p.Listen+":10000")
		w.sync(t, p.Redirects())
		portal := p.Portal(10, 80)
		for _, from := range []string{"client", "pod", "node"} {
			c, err := w.Host(from).Dial(t.Context(), "tcp", portal)
			require.NoError(t, err)
			t.Cleanup(func() { _ = c.Close() })
			require.NoError(t, c.SetDeadline(time.Now().Add(nettest.Patience)))
			r := bufio.NewReader(c)
			_, err = r.ReadString('\n')
			require.NoError(t, err)
			for _, state := range [][]service.Redirect{{nettest.Redirect("web", "TCP "+portal, service.Refuse)}, nil, p.Redirects()} {
				w.sync(t, state)
				_, err = io.WriteString(c, "still there?\n")
				require.NoError(t, err)
				got, err := r.ReadString('\n')
				require.NoError(t, err, "from %s", from)
				assert.Equal(t, "still there?\n", got)
			}
		}
	})
}
