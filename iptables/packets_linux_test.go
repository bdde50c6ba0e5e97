//go:build linux && !portable

package iptables

import (
	"strings"
	"testing"
	"time"

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

// eachKind runs a test with both kinds of commands.
func eachKind(t *testing.T, test func(t *testing.T, k Kind)) {
	t.Helper()
	t.Parallel()
	for _, k := range []Kind{NFT, Legacy} {
		t.Run(string(k), func(t *testing.T) {
			t.Parallel()
			test(t, k)
		})
	}
}

// patient is a configuration for a busy machine, on which one lock file is
// shared by all tests.
func patient(c Config) Config {
	c.LockWait, c.Timeout = 60*time.Second, 120*time.Second
	return c.Defaults()
}

func newWorld(t testing.TB, k Kind) *world {
	t.Helper()
	nettest.Need(t, "iptables-"+string(k), "ip6tables-"+string(k), "ip")
	w := &world{Bed: nettest.New(t), config: patient(dual())}
	w.config.Kind = k
	w.Node.Do(t, func() {
		got, err := listenaddr.Ensure(w.config.Listen)
		require.NoError(t, err)
		require.Equal(t, w.config.Listen, got.Listen)
	})
	w.restart(t)
	return w
}

// restart makes a new Runner, as a new process does.
func (w *world) restart(t testing.TB) {
	t.Helper()
	w.Node.Do(t, func() {
		var err error
		w.runner, err = New(w.config)
		require.NoError(t, err)
	})
}

// sync is the runner's Sync on the node.
func (w *world) sync(t testing.TB, redirects []service.Redirect) {
	t.Helper()
	w.Node.Do(t, func() { require.NoError(t, w.runner.Sync(t.Context(), redirects)) })
}

// check is the runner's Check on the node.
func (w *world) check(t testing.TB) (err error) {
	t.Helper()
	w.Node.Do(t, func() { err = w.runner.Check(t.Context()) })
	return err
}

// changed says whether a Watch of the runner would look.
func (w *world) changed(t testing.TB) (is bool) {
	t.Helper()
	w.Node.Do(t, func() { is = w.runner.changed() })
	return is
}

// iptables runs an iptables command of the world's kind on the node.
func (w *world) iptables(t testing.TB, f service.Family, words string) string {
	t.Helper()
	return w.Node.Output(t, w.config.Kind.Command(f), append([]string{"--wait"}, strings.Fields(words)...)...)
}

// listen serves listeners on the node, each with its own name as the tracer
// writes it.
func (w *world) listen(t testing.TB, addrs ...string) {
	t.Helper()
	for _, a := range addrs {
		w.Node.ServeBoth(t, "listener "+a, a)
	}
}
