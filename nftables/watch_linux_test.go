//go:build linux && !portable

package nftables

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// restart makes another Runner, as another run of the program does.
func (w *world) restart(t testing.TB) {
	t.Helper()
	w.Node.Do(t, func() {
		var err error
		w.runner, err = New(w.config)
		require.NoError(t, err)
	})
}

func (w *world) check(t testing.TB) (err error) {
	t.Helper()
	w.Node.Do(t, func() { err = w.runner.Check(t.Context()) })
	return err
}

func (w *world) changed(t testing.TB) (is bool) {
	t.Helper()
	w.Node.Do(t, func() { is = w.runner.changed() })
	return is
}

// spoil runs nft on the node; HANDLE becomes that of the first rule of a chain.
func (w *world) spoil(t testing.TB, command string) {
	t.Helper()
	if strings.HasSuffix(command, "HANDLE") {
		words := strings.Fields(command) // delete rule ip userspace-proxy output handle HANDLE
		list := w.Node.Output(t, "nft", "-a", "list", "chain", words[2], words[3], words[4])
		lines := strings.Split(list, "\n")
		_, handle, _ := strings.Cut(lines[3], "# handle ")
		command = strings.Replace(command, "HANDLE", handle, 1)
	}
	w.Node.Output(t, "nft", command)
}

func TestCase31_WipedTablesAreRestored(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.config.CheckPeriod = time.Hour // the canary alone
	w.config.CanaryPeriod = 50 * time.Millisecond
	w.restart(t)
	w.sync(t, nettest.Mixed())
	want := dump(t, w.Node)

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
	for _, wipe := range []struct{ command, damage string }{
		{"delete table ip userspace-proxy", "table ip userspace-proxy is gone"},
		{"flush ruleset", "userspace-proxy is gone"},
		{"delete element ip6 userspace-proxy portals { fd96::10 . tcp . 80 }", "table ip6 userspace-proxy: the element portals fd96::10 . 6 . 80 is gone or another"},
		{"delete rule ip userspace-proxy output handle HANDLE", "table ip userspace-proxy: chain output has 2 rules instead of 3"},
		{"flush table ip6 userspace-proxy", "table ip6 userspace-proxy: chain arrived has 0 rules instead of 1"},
	} {
		w.spoil(t, wipe.command)
		select {
		case err := <-found:
			require.ErrorIs(t, err, ErrDamaged)
			assert.ErrorContains(t, err, wipe.damage)
		case <-time.After(nettest.Patience):
			require.FailNow(t, "nobody noticed", wipe.command)
		}
		w.sync(t, nettest.Mixed()) // as the caller's loop does
		assert.Equal(t, want, dump(t, w.Node), wipe.command)
	}

	// Others' rules, and changes of our own, are no damage.
	w.spoil(t, "add table ip firewall")
	w.sync(t, nettest.Mixed()[2:])
	w.sync(t, nettest.Mixed())
	assert.Eventually(t, func() bool { return !w.changed(t) }, nettest.Patience, 10*time.Millisecond)
	w.spoil(t, "delete table ip firewall")
	assert.Eventually(t, func() bool { return !w.changed(t) }, nettest.Patience, 10*time.Millisecond)
	select {
	case err := <-found:
		assert.NoError(t, err)
	default:
	}
}

func TestCase31_EveryChangeOfOursIsFound(t *testing.T) {
	t.Parallel()
	for name, shared := range map[string]bool{"own addresses": false, "shared addresses": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t)
			w.config.SharedListen = shared
			w.restart(t)
			redirects := nettest.Mixed()
			for range 300 { // several to a line of what nft prints, and in any order
				n := len(redirects)
				p := nettest.BothFamilies()[n%2]
				redirects = append(redirects, nettest.Redirect("many", "UDP "+p.Portal(99, 1000+n), service.ToListener, fmt.Sprintf("%s:%d", p.Listen, 11000+n)))
			}
			w.sync(t, redirects)
			want := dump(t, w.Node)
			changes := []string{
				"delete element ip userspace-proxy denied { 192.0.2.1 . tcp . 443 }",
				"add element ip userspace-proxy portals { 10.96.0.99 . tcp . 80 : 169.254.77.1 . 10000 }",
				"delete element ip userspace-proxy portals { 10.96.0.10 . tcp . 80 }; add element ip userspace-proxy portals { 10.96.0.10 . tcp . 80 : 169.254.77.1 . 10009 }",
				"delete element ip userspace-proxy denied { 10.96.0.11 . tcp . 80 }; add element ip userspace-proxy denied { 10.96.0.11 . tcp . 80 : drop }",
				"add rule ip userspace-proxy input accept",
				"add chain ip6 userspace-proxy mine",
				"add set ip6 userspace-proxy mine { type inet_service; }",
				"flush chain ip userspace-proxy guard; add rule ip userspace-proxy guard accept; add rule ip userspace-proxy guard accept; add rule ip userspace-proxy guard accept; add rule ip userspace-proxy guard accept",
				"add table ip userspace-proxy { flags dormant; }",
				"delete table ip6 userspace-proxy",
			}
			if shared {
				changes = append(changes, "delete element ip userspace-proxy listeners { tcp . 10000 }")
			}
			for _, change := range changes {
				require.NoError(t, w.check(t))
				require.False(t, w.changed(t))
				w.spoil(t, change)
				assert.True(t, w.changed(t), change)
				require.ErrorIs(t, w.check(t), ErrDamaged, change)
				require.NoError(t, w.check(t), "it is told once")
				w.sync(t, redirects)
				require.Equal(t, want, dump(t, w.Node), change)
			}
		})
	}
}

// The generation by which Watch learns of changes: it becomes another with any
// change of anybody's, and what one of our own leads to is foretold.
func TestCase31_EveryChangeShows(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	require.False(t, w.changed(t), "nothing was written")
	w.sync(t, nettest.Mixed())
	require.True(t, w.changed(t), "the tables were written and not yet looked at")
	require.NoError(t, w.check(t))
	require.False(t, w.changed(t))
	w.spoil(t, "add table inet firewall")
	require.True(t, w.changed(t))
	require.NoError(t, w.check(t), "others' rules are not ours")
	require.False(t, w.changed(t))
	for _, redirects := range [][]service.Redirect{nettest.Mixed()[3:], nettest.Mixed(), nettest.Mixed()} {
		w.sync(t, redirects)
		assert.False(t, w.changed(t), "our own change need not be looked at")
		require.NoError(t, w.check(t))
	}
	w.spoil(t, "delete table inet firewall")
	w.sync(t, nettest.Mixed()[3:])
	assert.True(t, w.changed(t), "our own change does not hide somebody else's")
	require.NoError(t, w.check(t))
}

// What cannot be checked is told too, and then written anew.
func TestCase31_WatchTellsWhenItCannotLook(t *testing.T) {
	r, _, nft := fake(dual())
	r.config.CheckPeriod, r.config.CanaryPeriod = 10*time.Millisecond, time.Hour
	require.NoError(t, r.Sync(t.Context(), nettest.Mixed()))
	broken := errors.New("no such luck")
	r.tables = func(context.Context) ([]foundTable, error) { return nil, broken }
	fakeNFT(t, `echo "no such luck" >&2; exit 1`)
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	told := 0
	require.NoError(t, r.Watch(ctx, func(err error) {
		assert.ErrorContains(t, err, "checking nftables rules: exit status 1: no such luck")
		told++
		stop()
	}))
	assert.Equal(t, 1, told)
	nft.runs = nil
	require.ErrorIs(t, r.Sync(t.Context(), nettest.Mixed()), broken, "it looks for tables, to replace all")
}

// Versions of nft print tables in slightly different ways.
func TestPrintedByAnotherVersion(t *testing.T) {
	t.Parallel()
	p := readPrinted(`table ip userspace-proxy {
	map portals {
		type ipv4_addr . inet_proto . inet_service : ipv4_addr . inet_service
		size 65535	# count 2
		elements = { 10.96.0.1 . 6 . 80 counter comment "a/b:c" : 169.254.77.1 . 10000,
			     10.96.0.2 . 17 . 53 comment "x" counter : 169.254.77.1 . 10001 }
	}

	set listeners {
		type inet_proto . inet_service
		elements = { 6 . 10000, 17 . 10001,
			     6 . 10002 }
	}

	chain guard {
		ct status dnat return comment "came by a portal"
		counter reject comment "x"
	}

	chain input {
		type filter hook input priority filter - 5; policy accept;
		ip daddr 169.254.77.1 goto guard
	}
}
`)
	assert.Equal(t, map[string]string{
		"portals 10.96.0.1 . 6 . 80": "169.254.77.1 . 10000", "portals 10.96.0.2 . 17 . 53": "169.254.77.1 . 10001",
		"listeners 6 . 10000": "", "listeners 17 . 10001": "", "listeners 6 . 10002": "",
	}, p.elements)
	assert.Equal(t, map[string]int{"guard": 2, "input": 1}, p.rules)
	assert.Equal(t, "listeners portals", names(p.sets))
	assert.NotContains(t, p.frame, "count 2")
	assert.NotContains(t, p.frame, "10.96.0.1")
}

// fakeNFT puts an nft on PATH that is a script.
func fakeNFT(t *testing.T, script string) {
	t.Helper()
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(dir+"/nft", []byte("#!/bin/sh\n"+script+"\n"), 0o700))
	t.Setenv("PATH", dir)
}

// An nft command on a kernel without nf_tables: there is nothing to remove,
// and the reason is told in one line.
func TestKernelWithoutTables(t *testing.T) {
	for name, says := range map[string]string{
		"no netlink socket": "netlink.c:67: Unable to initialize Netlink socket: Protocol not supported",
		"no such question":  "netlink: Error: cache initialization failed: Invalid argument",
	} {
		t.Run(name, func(t *testing.T) {
			fakeNFT(t, `[ "$1" = --version ] && { echo "nftables v1.0.6 (Fake)"; exit 0; }
echo "`+says+`" >&2; exit 1`)
			require.NoError(t, Cleanup(t.Context()))
			_, err := Probe(t.Context(), dual())
			require.ErrorIs(t, err, ErrNoTables)
			assert.EqualError(t, err, "probing nftables: "+ErrNoTables.Error())
			_, err = New(dual())
			require.ErrorIs(t, err, ErrNoTables)
		})
	}
}
