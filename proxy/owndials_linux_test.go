package proxy

import (
	"context"
	"net"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A client on this host can have the very port of one of the proxy's own dials,
// since both call other addresses; it is served like any other.
func TestClientWithThePortOfAnOwnDialIsServed(t *testing.T) {
	t.Parallel()
	f := start(t, Config{})
	f.serve(named(t, "a"))
	f.dial()
	var port uint16
	require.Eventually(t, func() bool {
		f.shared.own.mu.Lock()
		defer f.shared.own.mu.Unlock()
		for local := range f.shared.own.dials {
			port = local.Port()
		}
		return port != 0
	}, patience, time.Millisecond)

	only := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		const ipLocalPortRange = 51 // IP_LOCAL_PORT_RANGE, Linux 6.3
		var set error
		err := c.Control(func(fd uintptr) {
			set = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, ipLocalPortRange, int(port)<<16|int(port))
		})
		if err != nil {
			return err
		}
		return set
	}}
	conn, err := only.DialContext(context.Background(), "tcp", f.portal.String())
	require.NoError(t, err)
	defer conn.Close()
	require.Equal(t, int(port), conn.LocalAddr().(*net.TCPAddr).Port)
	name := make([]byte, 1)
	_, err = conn.Read(name)
	require.NoError(t, err)
	assert.Equal(t, "a", string(name))
	assert.Zero(t, f.turnedAway("own_dial"))
	assert.Empty(t, f.Status().Problems)
}
