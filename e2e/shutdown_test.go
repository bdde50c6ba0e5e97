package e2e

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
)

// connected starts a proxy with one endpoint and opens a connection through it
// that has carried its banner.
func connected(t *testing.T, bed *nettest.Bed, lead way, flags ...string) (*proxy, net.Conn) {
	t.Helper()
	tcp := serveNamed(t, bed.Back, "tcp", 8080, "a")
	p := lead.start(t, bed.Node, manifest(changing(map[string][]string{"stream": tcp})), flags...)
	requireAnswers(t, bed.Client, target{"tcp", "10.96.0.10:80"}, "a")
	c, err := bed.Client.Dial(t.Context(), "tcp", "10.96.0.10:80")
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(3*patience)))
	requireEcho(t, c, "", "a\n")
	return p, c
}

func requireEcho(t *testing.T, c net.Conn, send, want string) {
	t.Helper()
	_, err := io.WriteString(c, send)
	require.NoError(t, err)
	got := make([]byte, len(want))
	_, err = io.ReadFull(c, got)
	require.NoError(t, err)
	require.Equal(t, want, string(got))
}

func TestSIGTERMWaitsForConnections(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p, c := connected(t, bed, lead, "--drain-timeout=1h")
		p.signal(t, syscall.SIGTERM)
		for range 10 {
			requireEcho(t, c, "still here", "still here")
			time.Sleep(20 * time.Millisecond)
		}
		assert.False(t, p.hasEnded(), "a connection is open")
		require.NoError(t, c.Close())
		assert.Zero(t, p.exitCode(t), "the last connection is closed")
	})
}

func TestSIGTERMEndsAtDrainTimeout(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p, c := connected(t, bed, lead, "--drain-timeout=500ms")
		p.signal(t, syscall.SIGTERM)
		assert.Zero(t, p.exitCode(t))
		_, err := c.Read(make([]byte, 1))
		assert.Error(t, err, "the connection has ended with the proxy")
	})
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	eachWay(t, func(t *testing.T, bed *nettest.Bed, lead way) {
		p, c := connected(t, bed, lead, "--drain-timeout=1h")
		p.signal(t, syscall.SIGINT)
		eventually(t, func() bool { return strings.Contains(p.output.String(), "stopping") }, saying("the proxy to say that it stops"))
		requireEcho(t, c, "still here", "still here")
		p.signal(t, syscall.SIGTERM)
		p.exitCode(t)
	})
}

// TestCase50_StopLeavesNothingWithoutRules: with --redirect=none nothing that the
// proxy did outlives it.
func TestCase50_StopLeavesNothingWithoutRules(t *testing.T) {
	t.Parallel()
	nettest.Need(t, "nft", "ip")
	bed := nettest.New(t)
	bed.Node.Output(t, "ip", "addr", "add", "10.96.0.10", "dev", "lo")
	rules, addrs := ruleset(t, bed.Node), addressesOf(t, bed.Node)
	p, c := connected(t, bed, way{redirect: "none"})
	require.NoError(t, c.Close())
	assert.Equal(t, rules, ruleset(t, bed.Node))
	assert.Equal(t, addrs, addressesOf(t, bed.Node))
	p.stop(t)
	assert.Equal(t, addrs, addressesOf(t, bed.Node))
	bed.Client.AssertRefused(t, "tcp", "10.96.0.10:80")
}
