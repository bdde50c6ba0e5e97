//go:build linux && !portable

package iptables

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
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// runsNothing says that a Sync runs no command: there is none to run.
func (w *world) runsNothing(t testing.TB, redirects []service.Redirect) {
	t.Helper()
	rename := func(change func(string) string) {
		for _, f := range w.runner.families {
			f.tool.name = change(f.tool.name)
		}
	}
	const missing = "no-such-command-"
	rename(func(name string) string { return missing + name })
	w.sync(t, redirects)
	rename(func(name string) string { return strings.TrimPrefix(name, missing) })
}

func TestLaterSyncsWriteTheDifference(t *testing.T) {
	t.Parallel()
	c := dual().Defaults()
	chains := func(redirects ...service.Redirect) map[place][]string {
		entries, err := c.entries(redirects)
		require.NoError(t, err)
		return c.chains(service.IPv4, entries)
	}
	web := nettest.Redirect("web", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10000")
	none := nettest.Redirect("none", "TCP 127.0.0.1:80", service.Refuse)
	const webRule = "-A USERSPACE-PROXY-EVERYONE -d 10.96.0.10/32 -p tcp -m tcp --dport 80 -m comment --comment \"default/web:main/TCP\" -j DNAT --to-destination 169.254.77.1:10000\n"
	assert.Equal(t, "*nat\n:USERSPACE-PROXY-EVERYONE - [0:0]\n"+webRule+"COMMIT\n", change(chains(none), chains(web, none)))
	assert.Equal(t, "*nat\n:USERSPACE-PROXY-LOOPBACK - [0:0]\nCOMMIT\n", change(chains(none), chains()))
	assert.Empty(t, change(chains(web, none), chains(none, web)))

	// A chain that becomes too long is divided, and joined again.
	crowd := clusterIPs(service.IPv4, 33)
	divided := change(chains(crowd[:32]...), chains(crowd...))
	assert.Contains(t, divided, "-A USERSPACE-PROXY-EVERYONE -d 0.0.0.7/0.0.0.7 -g USERSPACE-PROXY-P-7\n")
	joined := change(chains(crowd...), chains(crowd[:32]...))
	assert.Contains(t, joined, ":USERSPACE-PROXY-P-7 - [0:0]\n")
	assert.Regexp(t, `(?s)-A USERSPACE-PROXY-EVERYONE .*-X USERSPACE-PROXY-P-0\n.*-X USERSPACE-PROXY-P-7\nCOMMIT\n$`, joined,
		"a chain goes after what led to it")
	assert.NotContains(t, divided+joined, "*filter")
}

// What `plan -o iptables` prints can be loaded by hand and comes to the same.
func TestRenderLoadedByRestoreIsWhatSyncMakes(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		byHand, bySync := newWorld(t, k), newWorld(t, k)
		redirects := append(nettest.Mixed(), append(clusterIPs(service.IPv4, 300), clusterIPs(service.IPv6, 300)...)...)
		for _, f := range service.Families() {
			file := t.TempDir() + "/rules"
			rendered := Render(byHand.config, f, redirects)
			require.NoError(t, os.WriteFile(file, []byte(rendered), 0o600))
			byHand.Node.Output(t, k.Command(f)+"-restore", "--noflush", "--wait=60", file)
			for line := range strings.Lines(rendered) {
				if cmd, is := strings.CutPrefix(line, "# where it is missing: "); is {
					byHand.Node.Output(t, "sh", "-c", strings.Replace(cmd, " -t ", " --wait -t ", 1))
				}
			}
		}
		bySync.sync(t, redirects)
		assert.Equal(t, bySync.dump(t), byHand.dump(t))
		require.NoError(t, bySync.check(t))
		bySync.runsNothing(t, redirects)
	})
}

// A walk from state to state ends where a fresh start comes to at once.
func TestWalkEndsWhereFreshStartDoes(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		r := rand.New(rand.NewPCG(seed, 0))
		walked, fresh := newWorld(t, k), newWorld(t, k)
		for step := range 10 {
			state := randomState(r)
			switch r.IntN(8) {
			case 0:
				for _, f := range service.Families() {
					for _, what := range []string{"-t nat -F", "-F", "-t nat -X", "-X"} {
						walked.iptables(t, f, what)
					}
				}
				require.ErrorIs(t, errors.Join(walked.check(t), ErrDamaged), ErrDamaged)
				walked.runner.Forget()
			case 1:
				walked.Node.Do(t, func() { assert.NoError(t, Cleanup(t.Context())) })
				walked.runner.Forget()
			case 2:
				walked.restart(t)
			}
			walked.sync(t, state)
			fresh.runner.Forget()
			fresh.sync(t, state)
			require.Equal(t, fresh.dump(t), walked.dump(t), "step %d", step)
			require.NoError(t, walked.check(t), "step %d", step)
		}
	})
}

func randomState(r *rand.Rand) []service.Redirect {
	state := make(map[string]service.Redirect)
	for range r.IntN(300) {
		p := nettest.BothFamilies()[r.IntN(2)]
		addr := p.Portal(r.IntN(64)+1, 80+r.IntN(2))
		if r.IntN(4) == 0 {
			addr = fmt.Sprintf("%s:%d", []string{p.Node, p.Loopback}[r.IntN(2)], 30000+r.IntN(200))
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

func TestRedirectsThatCannotBeAreLeftOut(t *testing.T) {
	t.Parallel()
	w := newWorld(t, NFT)
	bad := nettest.Redirect("cross", "TCP 10.96.0.12:80", service.ToListener, "[fd77::1]:10000")
	for range 2 {
		w.Node.Do(t, func() {
			err := w.runner.Sync(t.Context(), append(nettest.Mixed(), bad))
			require.ErrorContains(t, err, `redirect of "default/cross:main/TCP" at "10.96.0.12:80" left out: listener "[fd77::1]:10000" is not on "169.254.77.1"`)
			require.True(t, service.Applied(err))
		})
	}
	assert.Contains(t, w.dump(t), "10.96.0.10/32", "the others are applied")
	w.runsNothing(t, nettest.Mixed())
}

// Switching from one kind to another, or to fewer families, leaves nothing of
// the run before, which may have crashed.
func TestOtherKindsAndFamiliesLeaveNothing(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		w.sync(t, nettest.Mixed())
		others := *w
		others.config.Kind = map[Kind]Kind{NFT: Legacy, Legacy: NFT}[k]
		delete(others.config.Listen, service.IPv6)
		others.restart(t)
		others.sync(t, nettest.Mixed())
		assert.NotContains(t, w.dump(t), ChainPrefix, "of %s", k)
		assert.Contains(t, others.dump(t), "IPv4 :"+portalsChain)
		assert.NotContains(t, others.dump(t), "IPv6 :"+portalsChain)
		require.NoError(t, others.check(t))
	})
}

func TestCounts(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
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
	})
}

func TestContextEndsSync(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		w.sync(t, nettest.Mixed())
		before := w.dump(t)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		w.Node.Do(t, func() {
			require.ErrorIs(t, w.runner.Sync(ctx, nil), context.Canceled)
			assert.Equal(t, before, w.dump(t))
			require.NoError(t, w.runner.Sync(t.Context(), nil))
		})
		assert.NotEqual(t, before, w.dump(t))
	})
}

func TestNoIPTables(t *testing.T) {
	t.Setenv("PATH", t.TempDir())
	_, err := New(dual())
	require.ErrorIs(t, err, ErrNoIPTables)
	assert.EqualError(t, err, "trying iptables for IPv4: iptables not found in PATH: install iptables or use --redirect=none")
	_, err = Probe(t.Context(), dual())
	require.ErrorIs(t, err, ErrNoIPTables)
	assert.ErrorIs(t, Cleanup(t.Context()), ErrNoIPTables)
}

func TestCommandVanishesWhileRunningAndComesBack(t *testing.T) {
	nettest.Need(t, "iptables-nft") // in the namespace of the test process
	dir := t.TempDir()
	paths := make(map[string]string)
	for _, f := range service.Families() {
		for _, end := range []string{"", "-restore", "-save"} {
			path, err := exec.LookPath(NFT.Command(f) + end)
			require.NoError(t, err)
			paths[NFT.Command(f)+end] = path
		}
	}
	install := func() {
		for name, path := range paths {
			require.NoError(t, os.Symlink(path, dir+"/"+name))
		}
	}
	t.Setenv("PATH", dir)
	install()
	c := patient(dual())
	c.Kind = NFT
	r, err := New(c)
	require.NoError(t, err)
	require.NoError(t, r.Sync(t.Context(), nettest.Mixed()))
	for name := range paths {
		require.NoError(t, os.Remove(dir+"/"+name))
	}
	for range 2 {
		require.ErrorIs(t, r.Sync(t.Context(), nil), ErrNoIPTables)
	}
	install()
	require.NoError(t, r.Sync(t.Context(), nil))
	require.NoError(t, Cleanup(t.Context()))
}

func TestWrongConfiguration(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Mark: 1, Kind: "ebtables"})
	require.ErrorContains(t, err, "iptables configuration: 2 errors occurred")
	_, err = Probe(t.Context(), Config{})
	assert.ErrorContains(t, err, "no listening address")
}

// What the commands say when something is missing, as versions print it.
func TestErrorsSayWhatToDo(t *testing.T) {
	t.Parallel()
	c := &commands{name: "iptables", lockWait: 5 * time.Second}
	require.ErrorIs(t, c.explain(&exec.Error{Name: "iptables", Err: exec.ErrNotFound}), ErrNoIPTables)
	for text, want := range map[string]error{
		"Another app is currently holding the xtables lock. Stopped waiting after 1s.":                                         ErrLocked,
		"Another app is currently holding the xtables lock; still 3s 100000us time ahead to have a chance to grab the lock...": ErrLocked,
		"iptables v1.8.9 (nf_tables): Could not fetch rule set generation id: Permission denied (you must be root)":            ErrNoRight,
		"Fatal: can't open lock file /run/xtables.lock: Permission denied":                                                     ErrNoRight,
		"iptables v1.8.4 (legacy): can't initialize iptables table `nat': Permission denied (you must be root)":                ErrNoRight,
		"getsockopt failed strangely: Operation not permitted":                                                                 ErrNoRight,
	} {
		assert.ErrorIs(t, c.explain(fmt.Errorf("exit status 4: %s", text)), want, text)
	}
	assert.ErrorIs(t, c.explain(syscall.EACCES), ErrNoRight)
	assert.EqualError(t, c.explain(errors.New("a\nb\nc\nd\ne")), "a\nb\nc\n…")
	assert.EqualError(t, c.explain(errors.New("xtables lock")),
		"another program holds the xtables lock (`fuser -v /run/xtables.lock` tells which); waited 5s for it")
}
