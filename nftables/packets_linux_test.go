//go:build linux && !portable

package nftables

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// world is a bed whose node has the listening addresses and rules.
type world struct {
	*nettest.Bed
	config Config
	runner *Runner
}

func newWorld(t testing.TB) *world {
	t.Helper()
	nettest.Need(t, "nft", "ip")
	w := &world{Bed: nettest.New(t), config: dual().Defaults()}
	w.Node.Do(t, func() {
		got, err := listenaddr.Ensure(w.config.Listen)
		require.NoError(t, err)
		require.Equal(t, w.config.Listen, got.Listen)
		w.runner, err = New(w.config)
		require.NoError(t, err)
	})
	return w
}

// sync is the runner's Sync on the node.
func (w *world) sync(t testing.TB, redirects []service.Redirect) {
	t.Helper()
	w.Node.Do(t, func() { require.NoError(t, w.runner.Sync(t.Context(), redirects)) })
}

// listen serves listeners on the node, each with its own name as the tracer
// writes it.
func (w *world) listen(t testing.TB, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		w.Node.ServeBoth(t, "listener "+a, a)
	}
}
