//go:build linux && !portable

package iptables

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// A firewall reload wiped the rules. This is the whole of it: Watch notices,
// somebody syncs, the rules are as they were.
func TestCase31_WipedRulesAreRestored(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		w.config.CheckPeriod = time.Hour // the canary alone
		w.config.CanaryPeriod = 100 * time.Millisecond
		w.restart(t)
		w.sync(t, nettest.Mixed())
		want := w.dump(t)

		found := make(chan error)
		ctx, stop := context.WithCancel(t.Context())
		var watching sync.WaitGroup
		watching.Go(func() {
			w.Node.Do(t, func() { // which keeps the goroutine on the node
				assert.NoError(t, w.runner.Watch(ctx, func(err error) {
					select {
					case found <- err:
					case <-ctx.Done():
					}
				}))
			})
		})
		defer watching.Wait()
		defer stop()
		for _, wipe := range []struct {
			family service.Family
			words  []string
			damage string
		}{
			{service.IPv4, []string{"-t nat -F", "-F"}, "of IPv4: "},
			{service.IPv6, []string{"-t nat -F", "-t nat -X", "-F", "-X"}, "of IPv6: "},
			{service.IPv4, []string{"-t nat -D OUTPUT 1"}, "the jump from chain OUTPUT of table nat to USERSPACE-PROXY-OUTPUT is gone"},
			{service.IPv6, []string{"-t nat -F USERSPACE-PROXY-PORTALS"}, "chain USERSPACE-PROXY-PORTALS of table nat has 0 rules instead of 3"},
			{service.IPv4, []string{"-D USERSPACE-PROXY-GUARD 1"}, "chain USERSPACE-PROXY-GUARD of table filter has 3 rules instead of 4"},
		} {
			for _, words := range wipe.words {
				w.iptables(t, wipe.family, words)
			}
			select {
			case err := <-found:
				require.ErrorIs(t, err, ErrDamaged)
				assert.ErrorContains(t, err, wipe.damage)
			case <-time.After(nettest.Patience):
				require.FailNow(t, "nobody noticed", wipe.words)
			}
			w.sync(t, nettest.Mixed()) // as the caller's loop does
			assert.Equal(t, want, w.dump(t), wipe.words)
		}

		// Others' rules, and changes of our own, are no damage.
		w.iptables(t, service.IPv4, "-A FORWARD -d 192.0.2.1 -j DROP")
		w.sync(t, nettest.Mixed()[2:])
		w.sync(t, nettest.Mixed())
		assert.Eventually(t, func() bool { return !w.changed(t) }, nettest.Patience, 10*time.Millisecond)
		w.iptables(t, service.IPv4, "-D FORWARD -d 192.0.2.1 -j DROP")
		select {
		case err := <-found:
			assert.NoError(t, err)
		default:
		}
	})
}

// A single rule that was lost is found by comparing all of them.
func TestCase31_SingleLostRuleIsFound(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		redirects := append(nettest.Mixed(), clusterIPs(service.IPv4, 100)...)
		w.sync(t, redirects)
		want := w.dump(t)
		const rule = "USERSPACE-PROXY-P-2 1"
		for i, change := range []string{
			"-t nat -D " + rule,
			"-t nat -R " + rule + " -d 10.96.0.1 -j ACCEPT", // found from the second look on
			"-t nat -I " + rule + " -d 10.96.0.1 -j ACCEPT",
			"-F USERSPACE-PROXY-GUARD",
			"-P INPUT DROP", // is the administrator's
		} {
			require.NoError(t, w.check(t))
			w.iptables(t, service.IPv4, change)
			err := w.check(t)
			if i == 4 {
				require.NoError(t, err)
				continue
			}
			require.ErrorIs(t, err, ErrDamaged, change)
			w.sync(t, redirects)
			assert.Equal(t, want, w.dump(t), change)
		}
		w.runsNothing(t, redirects)
	})
}

// The generation by which Watch learns of changes: it becomes another with any
// change of anybody's, and what one of our own leads to is foretold.
func TestCase31_EveryChangeShows(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		w.sync(t, nettest.Mixed())
		require.True(t, w.changed(t), "the rules were written and not yet looked at")
		require.NoError(t, w.check(t))
		require.False(t, w.changed(t))
		for _, f := range service.Families() {
			for _, words := range []string{
				"-A INPUT -j ACCEPT", "-D INPUT -j ACCEPT", "-t nat -N MINE", "-t nat -X MINE",
			} {
				w.iptables(t, f, words)
				require.True(t, w.changed(t), words)
				require.NoError(t, w.check(t))
				require.False(t, w.changed(t))
			}
		}
		w.sync(t, nettest.Mixed()[3:])
		assert.Equal(t, k == Legacy, w.changed(t), "our own change need not be looked at, with nf_tables")
		w.sync(t, nettest.Mixed())
		w.iptables(t, service.IPv4, "-A INPUT -j ACCEPT")
		w.sync(t, nettest.Mixed()[3:])
		assert.True(t, w.changed(t), "our own change does not hide somebody else's")
	})
}

// What cannot be checked is told too, and then written anew.
func TestCase31_WatchTellsWhenItCannotLook(t *testing.T) {
	t.Parallel()
	w := newWorld(t, NFT)
	w.config.CheckPeriod = 10 * time.Millisecond
	w.config.CanaryPeriod = time.Hour
	w.restart(t)
	w.sync(t, nettest.Mixed())
	for _, f := range w.runner.families {
		f.tool.name = "no-such-command"
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	w.Node.Do(t, func() {
		told := 0
		require.NoError(t, w.runner.Watch(ctx, func(err error) {
			require.ErrorIs(t, err, ErrNoIPTables)
			told++
			stop()
		}))
		assert.Equal(t, 1, told)
		assert.ErrorIs(t, w.runner.Sync(t.Context(), nettest.Mixed()), ErrNoIPTables)
	})
}
