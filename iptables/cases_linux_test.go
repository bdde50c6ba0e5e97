//go:build linux && !portable

package iptables

import (
	"fmt"
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
