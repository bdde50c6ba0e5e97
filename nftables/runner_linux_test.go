//go:build linux && !portable

package nftables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/knftables"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// counting is an nft that keeps what it was given to run.
type counting struct {
	knftables.Interface
	runs []string
	fail error // of the next run
}

func (c *counting) Run(ctx context.Context, tx *knftables.Transaction) error {
	c.runs = append(c.runs, tx.String())
	if err := c.fail; err != nil {
		c.fail = nil
		return err
	}
	return c.Interface.Run(ctx, tx)
}

// fake is a Runner on a fake kernel.
func fake(c Config) (*Runner, *knftables.Fake, *counting) {
	kernel := knftables.NewFake("", "")
	nft := &counting{Interface: kernel}
	tables := func(context.Context) ([]foundTable, error) {
		kernel.RLock()
		defer kernel.RUnlock()
		var found []foundTable
		for family, tables := range kernel.Tables {
			for name := range tables {
				found = append(found, foundTable{family, name})
			}
		}
		return found, nil
	}
	return newRunner(c.Defaults(), nft, tables), kernel, nft
}

// count makes a runner's nft count.
func (w *world) count() *counting {
	c := &counting{Interface: w.runner.nft}
	w.runner.nft = c
	return c
}

func TestFirstSyncRunsWhatRenderPrints(t *testing.T) {
	t.Parallel()
	shared := dual()
	shared.SharedListen = true
	for name, c := range map[string]Config{"own addresses": dual(), "shared addresses": shared} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, kernel, nft := fake(c)
			require.NoError(t, r.Sync(t.Context(), nettest.Mixed()))
			assert.Equal(t, []string{Render(c, nettest.Mixed())}, nft.runs)
			assert.Contains(t, kernel.Dump(),
				`add element ip userspace-proxy portals { 10.96.0.10 . tcp . 80 comment "default/web:main/TCP" : 169.254.77.1 . 10000 }`)
		})
	}
}

func TestLaterSyncsRunTheDifference(t *testing.T) {
	t.Parallel()
	r, _, nft := fake(dual())
	web := nettest.Redirect("web", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10000")
	dns := nettest.Redirect("dns", "UDP [fd96::10]:53", service.ToListener, "[fd77::1]:10001")
	require.NoError(t, r.Sync(t.Context(), []service.Redirect{web}))
	for _, step := range []struct {
		name string
		want []service.Redirect
		runs string
	}{
		{"added", []service.Redirect{dns, web},
			"add element ip6 userspace-proxy portals { fd96::10 . udp . 53 comment \"default/dns:main/UDP\" : fd77::1 . 10001 }\n"},
		{"as before, in another order", []service.Redirect{web, dns}, ""},
		{"another listener",
			[]service.Redirect{nettest.Redirect("web", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10002"), dns},
			"delete element ip userspace-proxy portals { 10.96.0.10 . tcp . 80 }\n" +
				"add element ip userspace-proxy portals { 10.96.0.10 . tcp . 80 comment \"default/web:main/TCP\" : 169.254.77.1 . 10002 }\n"},
		{"refused", []service.Redirect{nettest.Redirect("web", "TCP 10.96.0.10:80", service.Refuse), dns},
			"delete element ip userspace-proxy portals { 10.96.0.10 . tcp . 80 }\n" +
				"add element ip userspace-proxy denied { 10.96.0.10 . tcp . 80 comment \"default/web:main/TCP\" : goto refuse }\n"},
		{"removed", []service.Redirect{nettest.Redirect("web", "TCP 10.96.0.10:80", service.Refuse)},
			"delete element ip6 userspace-proxy portals { fd96::10 . udp . 53 }\n"},
		{"all removed", nil, "delete element ip userspace-proxy denied { 10.96.0.10 . tcp . 80 }\n"},
	} {
		nft.runs = nil
		require.NoError(t, r.Sync(t.Context(), step.want), step.name)
		assert.Equal(t, step.runs, strings.Join(nft.runs, "---\n"), step.name)
		assert.LessOrEqual(t, len(nft.runs), 1, step.name)
	}
}

func TestAfterErrorOrForgetTablesAreReplaced(t *testing.T) {
	t.Parallel()
	r, kernel, nft := fake(dual())
	require.NoError(t, r.Sync(t.Context(), nettest.Mixed()))
	before := kernel.Dump()

	nft.fail = errors.New("no")
	require.EqualError(t, r.Sync(t.Context(), nil), "syncing nftables rules: no")
	assert.Equal(t, before, kernel.Dump(), "the last good rules stay")
	for _, why := range []string{"after an error", "after Forget"} {
		nft.runs = nil
		require.NoError(t, r.Sync(t.Context(), nettest.Mixed()[:3]))
		assert.Equal(t, []string{Render(dual(), nettest.Mixed()[:3])}, nft.runs, why)
		r.Forget()
	}
}

func TestRedirectsThatCannotBeAreLeftOut(t *testing.T) {
	t.Parallel()
	r, kernel, nft := fake(dual())
	bad := nettest.Redirect("cross", "TCP 10.96.0.12:80", service.ToListener, "[fd77::1]:10000")
	for range 2 {
		err := r.Sync(t.Context(), append(nettest.Mixed(), bad))
		require.ErrorContains(t, err, `redirect of "default/cross:main/TCP" at "10.96.0.12:80" left out: listener "[fd77::1]:10000" is not on "169.254.77.1"`)
		require.True(t, service.Applied(err))
	}
	assert.Len(t, nft.runs, 1, "the others are applied, and nothing is run to apply them again")
	assert.Contains(t, kernel.Dump(), "10.96.0.10 . tcp . 80")
}

func TestFamilyThatIsNotServedAnyMoreLosesItsTable(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(t, nettest.Mixed())
	v4 := dual()
	delete(v4.Listen, service.IPv6)
	w.Node.Do(t, func() {
		r, err := New(v4)
		require.NoError(t, err)
		require.NoError(t, r.Sync(t.Context(), nettest.Mixed()))
	})
	assert.Equal(t, "table ip userspace-proxy\n", w.Node.Output(t, "nft", "list", "tables"))
}

// A walk from state to state ends where a fresh start comes to at once.
func TestWalkEndsWhereFreshStartDoes(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	walked, fresh := newWorld(t), newWorld(t)
	for step := range 25 {
		state := randomState(r)
		switch r.IntN(10) {
		case 0:
			walked.Node.Output(t, "nft", "flush", "ruleset")
			walked.runner.Forget()
		case 1:
			walked.Node.Do(t, func() { assert.NoError(t, Cleanup(t.Context())) })
			walked.runner.Forget()
		}
		walked.sync(t, state)
		fresh.runner.Forget()
		fresh.sync(t, state)
		require.Equal(t, dump(t, fresh.Node), dump(t, walked.Node), "step %d", step)
	}
}

func randomState(r *rand.Rand) []service.Redirect {
	state := make(map[string]service.Redirect)
	for range r.IntN(30) {
		p := nettest.BothFamilies()[r.IntN(2)]
		addr := p.Portal(r.IntN(4)+1, 80+r.IntN(2))
		if r.IntN(4) == 0 {
			addr = p.Loopback + ":80"
		}
		portal := []string{"TCP ", "UDP "}[r.IntN(2)] + addr
		name := fmt.Sprintf("s%d", r.IntN(2))
		switch r.IntN(5) {
		case 0:
			state[portal] = nettest.Redirect(name, portal, service.Refuse)
		case 1:
			state[portal] = nettest.Redirect(name, portal, service.Drop)
		default:
			state[portal] = nettest.Redirect(name, portal, service.ToListener, fmt.Sprintf("%s:%d", p.Listen, 10000+r.IntN(3)))
		}
	}
	var list []service.Redirect
	for _, one := range state {
		list = append(list, one)
	}
	return list
}

// What `plan -o nft` prints can be loaded by hand and comes to the same.
func TestRenderLoadedByNFTIsWhatSyncMakes(t *testing.T) {
	t.Parallel()
	byHand, bySync := newWorld(t), newWorld(t)
	script := t.TempDir() + "/rules.nft"
	require.NoError(t, os.WriteFile(script, []byte(Render(dual(), nettest.Mixed())), 0o600))
	byHand.Node.Output(t, "nft", "-c", "-f", script)
	assert.Empty(t, byHand.Node.Output(t, "nft", "list", "tables"))
	for range 2 {
		byHand.Node.Output(t, "nft", "-f", script)
		bySync.sync(t, nettest.Mixed())
		assert.Equal(t, dump(t, bySync.Node), dump(t, byHand.Node))
	}
}

func TestCounts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p4, p6 := nettest.BothFamilies()[0], nettest.BothFamilies()[1]
	w.listen(t, p4.Listen+":10000", p6.Listen+":10000", p6.Listen+":10001")
	w.sync(t, slices.Concat(p4.Redirects(), p6.Redirects(), p4.Scoped(), p6.Scoped()))
	ask := func(n int, from, portal, want string) {
		for range n {
			p := nettest.Sent(from, portal)
			require.Equal(t, want, w.Send(t, p, want), "%s", p)
		}
	}
	ask(3, "client", "TCP 10.96.0.10:80", "listener 169.254.77.1:10000")
	ask(2, "pod", "UDP [fd96::10]:80", "listener [fd77::1]:10000")
	ask(1, "node", "TCP [::1]:30080", "listener [fd77::1]:10000")
	ask(2, "client", "UDP 10.96.0.11:80", nettest.Refused)
	ask(1, "client", "UDP 10.96.0.12:80", nettest.Dropped)
	ask(1, "client", "TCP 169.254.77.1:10000", nettest.Refused)
	ask(1, "pod", "UDP [fd77::1]:10000", nettest.Refused)
	ask(3, "client", "UDP [fd96::20]:80", "listener [fd77::1]:10001")
	ask(2, "node", "UDP [fd96::20]:80", "listener [fd77::1]:10000")
	ask(1, "client", "UDP 10.96.0.21:80", nettest.Dropped)
	ask(1, "client", "UDP 10.96.0.29:80", nettest.Dropped)
	ask(1, "node", "UDP [fd96::29]:80", nettest.Dropped)
	w.Node.Do(t, func() {
		got, err := w.runner.Counts(t.Context())
		require.NoError(t, err)
		none := func(_ Portal, n uint64) bool { return n == 0 }
		maps.DeleteFunc(got.Portals, none)
		maps.DeleteFunc(got.Outside, none)
		at := netip.MustParseAddrPort
		assert.Equal(t, Counts{
			Portals: map[Portal]uint64{
				{at("10.96.0.10:80"), service.TCP}: 3,
				{at("[fd96::10]:80"), service.UDP}: 2,
				{at("[::1]:30080"), service.TCP}:   1,
				{at("10.96.0.11:80"), service.UDP}: 2,
				{at("10.96.0.12:80"), service.UDP}: 1,
				{at("[fd96::20]:80"), service.UDP}: 2,
			},
			Outside: map[Portal]uint64{{at("[fd96::20]:80"), service.UDP}: 3, {at("10.96.0.21:80"), service.UDP}: 1},
			Barred:  2,
			Guarded: 2,
		}, got)
	})
}

func TestCountsWithoutTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.Do(t, func() {
		_, err := w.runner.Counts(t.Context())
		assert.ErrorContains(t, err, "reading nftables counters: ")
	})
}

func TestContextEndsSync(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(t, nettest.Mixed())
	before := dump(t, w.Node)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w.Node.Do(t, func() {
		require.ErrorIs(t, w.runner.Sync(ctx, nil), context.Canceled)
		assert.Equal(t, before, dump(t, w.Node))
		require.NoError(t, w.runner.Sync(t.Context(), nil))
	})
	assert.NotEqual(t, before, dump(t, w.Node))
}

func TestNoNFT(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(dual())
	require.ErrorIs(t, err, ErrNoNFT)
	assert.EqualError(t, err, "trying nft: nft not found in PATH: install nftables or use --redirect=none")
	_, err = Probe(t.Context(), dual())
	require.ErrorIs(t, err, ErrNoNFT)
	assert.ErrorIs(t, Cleanup(t.Context()), ErrNoNFT)
}

func TestNFTVanishesWhileRunningAndComesBack(t *testing.T) {
	nettest.Need(t, "nft") // in the namespace of the test process
	binary, err := exec.LookPath("nft")
	require.NoError(t, err)
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	require.NoError(t, os.Symlink(binary, dir+"/nft"))
	r, err := New(dual())
	require.NoError(t, err)
	require.NoError(t, r.Sync(t.Context(), nettest.Mixed()))
	require.NoError(t, os.Remove(dir+"/nft"))
	for range 2 {
		require.ErrorIs(t, r.Sync(t.Context(), nil), ErrNoNFT)
	}
	require.NoError(t, os.Symlink(binary, dir+"/nft"))
	require.NoError(t, r.Sync(t.Context(), nil))
	require.NoError(t, Cleanup(t.Context()))
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Mark: 1, Table: "filter"})
	require.ErrorContains(t, err, "nftables configuration: 2 errors occurred")
	_, err = Probe(t.Context(), Config{})
	assert.ErrorContains(t, err, "no listening address")
}

func TestProbeLeavesNothing(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.Node.Do(t, func() {
		got, err := Probe(t.Context(), dual())
		require.NoError(t, err)
		assert.Equal(t, service.Families(), got.Families)
		assert.Empty(t, got.Missing)
		assert.Regexp(t, `^nftables v\d`, got.Version)
	})
	assert.Empty(t, w.Node.Output(t, "nft", "list", "tables"))
}
