//go:build linux && !portable

package iptables

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// xtables lock held elsewhere: rules never came.
func TestCase28_LockHeldElsewhereIsReportedAndRulesComeWhenItIsFree(t *testing.T) {
	for _, k := range []Kind{NFT, Legacy} {
		t.Run(string(k), func(t *testing.T) {
			t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
			w := newWorld(t, k)
			w.config.LockWait = time.Second
			w.restart(t)
			w.sync(t, nettest.Mixed()[:3])
			before := w.dump(t)

			lock, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_CREATE|os.O_RDWR, 0o600)
			require.NoError(t, err)
			require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
			if k == NFT { // it has no use for the lock
				w.sync(t, nettest.Mixed())
			} else {
				for range 3 {
					w.Node.Do(t, func() {
						err := w.runner.Sync(t.Context(), nettest.Mixed())
						require.ErrorIs(t, err, ErrLocked)
						assert.ErrorContains(t, err, "syncing iptables rules of IPv4: ")
						assert.ErrorContains(t, err, "waited 1s for it")
					})
					assert.Equal(t, before, w.dump(t))
				}
			}
			require.NoError(t, lock.Close())

			w.sync(t, nettest.Mixed())
			fresh := newWorld(t, k)
			fresh.sync(t, nettest.Mixed())
			assert.Equal(t, fresh.dump(t), w.dump(t))
		})
	}
}

// A lock that is held at the start is no reason to take another kind, or to
// end: what could not be tried is told and taken to work.
func TestCase28_LockHeldAtTheStartLeavesTheKindUntried(t *testing.T) {
	t.Setenv("XTABLES_LOCKFILE", t.TempDir()+"/lock")
	w := newWorld(t, Legacy)
	w.config.LockWait = time.Second
	lock, err := os.OpenFile(os.Getenv("XTABLES_LOCKFILE"), os.O_CREATE|os.O_RDWR, 0o600)
	require.NoError(t, err)
	require.NoError(t, syscall.Flock(int(lock.Fd()), syscall.LOCK_EX))
	probe := func() Report {
		var got Report
		w.Node.Do(t, func() {
			got, err = Probe(t.Context(), w.config)
			require.NoError(t, err)
			assert.Equal(t, Legacy, got.Kind)
			assert.Equal(t, service.Families(), got.Families)
		})
		return got
	}
	require.ErrorIs(t, probe().Untried, ErrLocked)
	require.NoError(t, lock.Close())
	require.NoError(t, probe().Untried)
}

// One exec per rule: 800 rules took 40 s.
func TestCase29_RulesAreBatched(t *testing.T) {
	for _, k := range []Kind{NFT, Legacy} {
		t.Run(string(k), func(t *testing.T) {
			w := newWorld(t, k)
			log := logged(t, k)
			runs := func(n int) (lines []string) {
				w.restart(t)
				log(t)
				w.sync(t, clusterIPs(service.IPv4, n))
				return log(t)
			}
			few, many := runs(10), runs(1000)
			assert.LessOrEqual(t, len(many), len(few), "as many runs for 1,000 Services as for 10")
			restores := 0
			for _, line := range many {
				if strings.Contains(line, "-restore") {
					restores++
				}
			}
			assert.Equal(t, 2, restores, "one for each family: %v", many)

			w.sync(t, clusterIPs(service.IPv4, 1000)[:999])
			assert.Equal(t, []string{k.Command(service.IPv4) + "-restore --noflush --wait=60"}, log(t), "one change is one run")
			w.sync(t, clusterIPs(service.IPv4, 1000)[:999])
			assert.Empty(t, log(t), "nothing is run where nothing has changed")
		})
	}
}

// logged puts scripts before the commands of a kind that write down how they
// are called. The function returns the calls since it was called last.
func logged(t *testing.T, k Kind) func(testing.TB) []string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range service.Families() {
		for _, end := range []string{"", "-restore", "-save"} {
			name := k.Command(f) + end
			path, err := exec.LookPath(name)
			require.NoError(t, err)
			script := fmt.Sprintf("#!/bin/sh\necho %s \"$@\" >> %s/log\nexec %s \"$@\"\n", name, dir, path)
			require.NoError(t, os.WriteFile(dir+"/"+name, []byte(script), 0o755))
		}
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func(t testing.TB) []string {
		t.Helper()
		all, err := os.ReadFile(dir + "/log")
		if os.IsNotExist(err) {
			return nil
		}
		require.NoError(t, err)
		require.NoError(t, os.Remove(dir+"/log"))
		return strings.Split(strings.TrimSpace(string(all)), "\n")
	}
}

// Duplicate rules piled up.
func TestCase30_HundredSyncsLeaveTheSameDump(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		w.sync(t, nettest.Mixed())
		first := w.dump(t)
		for range 100 {
			w.runsNothing(t, nettest.Mixed())
		}
		for i := range 10 {
			if i%2 == 0 {
				w.restart(t)
			}
			w.runner.Forget()
			w.sync(t, nettest.Mixed())
		}
		assert.Equal(t, first, w.dump(t), "what is replaced is no more than before")
		for range 10 {
			w.sync(t, nettest.Mixed()[:4])
			w.sync(t, nettest.Mixed())
		}
		assert.Equal(t, first, w.dump(t))

		// Two processes have inserted their jumps at the same moment.
		w.iptables(t, service.IPv4, "-t nat -A PREROUTING -j "+portalsChain)
		w.iptables(t, service.IPv6, "-I INPUT -j "+inputChain)
		require.ErrorIs(t, w.check(t), ErrDamaged)
		w.runner.Forget()
		w.sync(t, nettest.Mixed())
		assert.Equal(t, strings.Count(first, "-j "), strings.Count(w.dump(t), "-j "))
		require.NoError(t, w.check(t))
	})
}

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

// A failed restore closed all NodePort sockets.
func TestCase32_FailedRestoreKeepsTheLastRules(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		p := nettest.BothFamilies()[0]
		w.listen(t, p.Listen+":10000")
		crowd := clusterIPs(service.IPv4, 100)
		w.sync(t, append(crowd, p.Redirects()...))
		// Somebody leads to a chain that is to go, so that the input fails at
		// its last line.
		w.iptables(t, service.IPv4, "-t nat -A PREROUTING -d 192.0.2.1 -j USERSPACE-PROXY-P-1")
		before := w.dump(t)
		want := []service.Redirect{nettest.Redirect("new", "TCP 10.96.0.10:80", service.ToListener, "169.254.77.1:10001")}
		w.Node.Do(t, func() {
			err := w.runner.Sync(t.Context(), want)
			require.ErrorContains(t, err, "syncing iptables rules of IPv4: iptables-"+string(k)+"-restore: ")
		})
		assert.Equal(t, before, w.dump(t))
		packet := nettest.Sent("client", "TCP "+p.Portal(10, 80))
		assert.Equal(t, "listener "+p.Listen+":10000", w.Send(t, packet, ""))

		w.sync(t, want)
		fresh := newWorld(t, k)
		fresh.sync(t, want)
		assert.Equal(t, fresh.dump(t), w.dump(t), "the next step starts from what is really there")
	})
}

// A start flushed rules first: seconds of outage.
func TestCase41_ReplacedRulesRefuseNobody(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		p := nettest.BothFamilies()[0]
		w.listen(t, p.Listen+":10000")
		w.sync(t, p.Redirects())
		stop := make(chan struct{})
		var asking sync.WaitGroup
		for _, from := range []string{"client", "pod", "node"} {
			asking.Go(func() {
				for {
					select {
					case <-stop:
						return
					default:
					}
					for _, proto := range []string{"TCP ", "UDP "} {
						got := w.Send(t, nettest.Sent(from, proto+p.Portal(10, 80)), "listener")
						if !assert.Equal(t, "listener "+p.Listen+":10000", got, "%sfrom %s", proto, from) {
							return
						}
					}
				}
			})
		}
		for i := range 10 {
			w.runner.Forget() // as a new process starts
			w.sync(t, append(clusterIPs(service.IPv4, i%2*100), p.Redirects()...))
			w.sync(t, append(clusterIPs(service.IPv4, 50), p.Redirects()...))
		}
		close(stop)
		asking.Wait()
	})
}

// Rules left behind after removal; other people's rules, and their order, are
// theirs.
func TestCase42_CleanupTwiceLeavesNothingOfOursAndAllOfOthers(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		for _, f := range service.Families() {
			net := map[service.Family]string{service.IPv4: "10.96.0.0/16", service.IPv6: "fd96::/64"}[f]
			for _, words := range []string{
				"-P FORWARD DROP", "-A INPUT -d " + net + " -j DROP", "-A INPUT -p tcp --dport 22 -j ACCEPT",
				"-t nat -N KUBE-SERVICES", "-t nat -A KUBE-SERVICES -d " + net + " -j RETURN",
				"-t nat -A PREROUTING -j KUBE-SERVICES", "-t nat -A OUTPUT -j KUBE-SERVICES", "-t nat -A POSTROUTING -j MASQUERADE",
				"-N USERSPACE-PROXYISH", "-t nat -N USERSPACE",
			} {
				w.iptables(t, f, words)
			}
		}
		others := w.dump(t)
		redirects := append(nettest.Mixed(), clusterIPs(service.IPv4, 200)...)
		w.sync(t, redirects)
		for _, at := range []place{{natTable, "PREROUTING"}, {natTable, "OUTPUT"}, {filterTable, "INPUT"}, {filterTable, "OUTPUT"}} {
			first := strings.Split(w.iptables(t, service.IPv4, "-t "+at.table+" -S "+at.chain), "\n")[1]
			assert.Contains(t, first, "-j "+ChainPrefix, "ours is the first")
		}
		// Of some other version, of a probe that was killed, of somebody's hand.
		w.iptables(t, service.IPv6, "-t nat -N USERSPACE-PROXY-OLD")
		w.iptables(t, service.IPv6, "-N USERSPACE-PROXY-T-1")
		w.iptables(t, service.IPv6, "-I INPUT 2 -j USERSPACE-PROXY-T-1")
		w.sync(t, redirects[4:])
		var ours strings.Builder
		for line := range strings.Lines(w.dump(t)) {
			if !strings.Contains(line, ChainPrefix) {
				ours.WriteString(line)
			}
		}
		assert.Equal(t, others, ours.String(), "the lines that do not name our chains are the others'")
		w.Node.Do(t, func() {
			for range 2 {
				require.NoError(t, Cleanup(t.Context()))
				assert.Equal(t, others, w.dump(t))
			}
		})
	})
}

// Cleanup, and a Runner of the other kind, do not make the tables of
// iptables-legacy where there are none: they cost each packet something.
func TestCase42_CleanupMakesNoTables(t *testing.T) {
	t.Parallel()
	w := newWorld(t, NFT)
	w.sync(t, nettest.Mixed())
	w.Node.Do(t, func() {
		require.NoError(t, Cleanup(t.Context()))
		for _, names := range []string{"ip_tables_names", "ip6_tables_names"} {
			got, err := os.ReadFile("/proc/thread-self/net/" + names)
			require.NoError(t, err)
			assert.Empty(t, string(got))
		}
	})
}

// Source ranges could be walked round by talking to the proxy's own port.
func TestCase46_ListenerPortsAnswerOnlyTranslatedTraffic(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) { guarded(t, k, false) })
}

// After a crash, rules led to a port that a stranger had taken: whoever takes
// one is guarded, and the next start's first step leads elsewhere.
func TestCase53_StrangerInThePortRangeIsGuardedAndRulesLeaveHim(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) { guarded(t, k, true) })
}

func guarded(t *testing.T, k Kind, crash bool) {
	t.Helper()
	w := newWorld(t, k)
	for _, p := range nettest.BothFamilies() {
		w.sync(t, p.Redirects())
		served := p.Listen + ":10000"
		w.listen(t, served)
		if crash { // the listener at 10000 is a stranger's now, and so is one at an unused port
			served = p.Listen + ":29999"
			w.listen(t, served, p.Listen+":20000")
			w.restart(t)
			w.sync(t, []service.Redirect{
				nettest.Redirect("web", "TCP "+p.Portal(10, 80), service.ToListener, served),
				nettest.Redirect("web", "UDP "+p.Portal(10, 80), service.ToListener, served),
			})
		}
		for _, from := range []string{"client", "pod", "node"} {
			for _, proto := range []string{"TCP ", "UDP "} {
				for _, port := range []string{":10000", ":20000", ":29999"} {
					got := w.Send(t, nettest.Sent(from, proto+p.Listen+port), nettest.Refused)
					assert.Equal(t, nettest.Refused, got, "%s%s%s from %s", proto, p.Listen, port, from)
				}
				got := w.Send(t, nettest.Sent(from, proto+p.Portal(10, 80)), "")
				assert.Equal(t, "listener "+served, got, "%sby the portal from %s", proto, from)
			}
		}
	}
}

// The guard does not cut the connections that the node itself opens from an
// address and port that it guards: it looks at their replies as well.
func TestCase46_OwnConnectionsFromGuardedPortsGetTheirReplies(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		w.sync(t, nettest.Mixed())
		for _, p := range nettest.BothFamilies() {
			server := w.Node.Addr(p.Family)
			w.Node.ServeBoth(t, "server", netip.AddrPortFrom(server, 7).String())
			for _, proto := range []string{"TCP ", "UDP "} {
				got := w.SendFrom(t, p.Listen+":15000", nettest.Sent("node", proto+netip.AddrPortFrom(server, 7).String()), "")
				assert.Equal(t, "server", got, "%sfrom %s", proto, p.Listen)
			}
		}
	})
}

// Where the listening address is the node's, whoever else listens there stays
// reachable: the kubelet's port lies in the default range.
func TestCase46_SharedListeningAddressGuardsListenersAlone(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		p := nettest.BothFamilies()[0]
		w.config = patient(Config{Kind: k, Listen: map[service.Family]netip.Addr{p.Family: netip.MustParseAddr(p.Node)}, SharedListen: true})
		w.restart(t)
		w.listen(t, p.Node+":10000")
		w.Node.ServeBoth(t, nettest.Passes, p.Node+":10250")
		for range 2 {
			w.sync(t, []service.Redirect{
				nettest.Redirect("web", "TCP "+p.Portal(10, 80), service.ToListener, p.Node+":10000"),
				nettest.Redirect("web", "UDP "+p.Portal(10, 80), service.ToListener, p.Node+":10000"),
			})
			tr := w.inKernel(t)
			for _, from := range []string{"client", "pod", "node"} {
				for _, proto := range []string{"TCP ", "UDP "} {
					for dst, want := range map[string]string{
						p.Portal(10, 80):  "listener " + p.Node + ":10000",
						p.Node + ":10000": nettest.Refused,
						p.Node + ":10250": nettest.Passes,
					} {
						packet := nettest.Sent(from, proto+dst)
						assert.Equal(t, want, tr.trace(packet), "the rules say of %s", packet)
						assert.Equal(t, want, w.Send(t, packet, want), "really: %s", packet)
					}
				}
			}
			w.sync(t, nil)
		}
	})
}

// A pod behind an interface without an IPv4 address, or the node's own UDP,
// got no answer through REDIRECT.
func TestCase52_UnnumberedPodAndOwnUDPGetAnswers(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		var redirects []service.Redirect
		for _, p := range nettest.BothFamilies() {
			w.listen(t, p.Listen+":10000")
			redirects = append(redirects, p.Redirects()...)
		}
		w.sync(t, redirects)
		require.Empty(t, w.Node.Output(t, "ip", "-4", "-o", "addr", "show", "dev", nettest.NodeToPod))
		for _, p := range nettest.BothFamilies() {
			for _, from := range []string{"pod", "node"} {
				for _, proto := range []string{"TCP ", "UDP "} {
					for _, portal := range []string{p.Portal(10, 80), p.Node + ":30080"} {
						got := w.Send(t, nettest.Sent(from, proto+portal), "")
						assert.Equal(t, "listener "+p.Listen+":10000", got, "%s%s from %s", proto, portal, from)
					}
				}
			}
		}
	})
}

// A host firewall with a dropping INPUT silently ate all Services. What did
// not come by a portal it goes on eating.
func TestCase54_TranslatedTrafficPassesADroppingFirewall(t *testing.T) {
	eachKind(t, func(t *testing.T, k Kind) {
		w := newWorld(t, k)
		var redirects []service.Redirect
		for _, p := range nettest.BothFamilies() {
			icmp := map[service.Family]string{service.IPv4: "icmp", service.IPv6: "icmpv6"}[p.Family]
			w.iptables(t, p.Family, "-A INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
			w.iptables(t, p.Family, "-A INPUT -p "+icmp+" -j ACCEPT")
			w.iptables(t, p.Family, "-A INPUT -j DROP")
			w.iptables(t, p.Family, "-P INPUT DROP")
			w.listen(t, p.Listen+":10000")
			w.Node.ServeBoth(t, nettest.Passes, p.Node+":22", p.Listen+":9999")
			redirects = append(redirects, p.Redirects()...)
		}
		before := w.dump(t)
		w.sync(t, redirects)
		for _, p := range nettest.BothFamilies() {
			for _, from := range []string{"client", "pod", "node"} {
				for _, proto := range []string{"TCP ", "UDP "} {
					for dst, want := range map[string]string{
						p.Portal(10, 80):    "listener " + p.Listen + ":10000",
						p.Node + ":30080":   "listener " + p.Listen + ":10000",
						p.Portal(11, 80):    nettest.Refused,
						p.Portal(12, 80):    nettest.Dropped,
						p.Listen + ":10000": nettest.Refused,
						p.Listen + ":9999":  nettest.Dropped,
						p.Node + ":22":      nettest.Dropped,
					} {
						packet := nettest.Sent(from, proto+dst)
						assert.Equal(t, want, w.Send(t, packet, want), "%s", packet)
					}
				}
			}
		}
		w.Node.Do(t, func() { require.NoError(t, Cleanup(t.Context())) })
		assert.Equal(t, before, w.dump(t))
	})
}
