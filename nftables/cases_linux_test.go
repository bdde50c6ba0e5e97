//go:build linux && !portable

package nftables

import (
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Duplicate rules piled up.
func TestCase30_HundredSyncsLeaveTheSameDump(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nft := w.count()
	w.sync(t, nettest.Mixed())
	first := dump(t, w.Node)
	for range 100 {
		w.sync(t, nettest.Mixed())
	}
	assert.Equal(t, first, dump(t, w.Node))
	assert.Len(t, nft.runs, 1, "nothing is run where nothing has changed")
	for range 20 {
		w.runner.Forget()
		w.sync(t, nettest.Mixed())
	}
	assert.Equal(t, first, dump(t, w.Node), "tables that are replaced are no more than before")
	for range 20 {
		w.sync(t, nettest.Mixed()[:4])
		w.sync(t, nettest.Mixed())
	}
	assert.Equal(t, first, dump(t, w.Node))
}

// A failed restore closed all NodePort sockets.
func TestCase32_FailedTransactionKeepsTheLastRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(t, nettest.Mixed())
	// Somebody takes an element away, so that the step that removes it fails,
	// and everything else in its transaction with it.
	w.Node.Output(t, "nft", "delete", "element", "ip", "userspace-proxy", "portals", "{ 10.96.0.10 . tcp . 80 }")
	before := dump(t, w.Node)
	want := []service.Redirect{nettest.Redirect("new", "TCP 10.96.0.20:80", service.ToListener, "169.254.77.1:10007")}
	w.Node.Do(t, func() {
		err := w.runner.Sync(t.Context(), want)
		require.ErrorContains(t, err, "syncing nftables rules: ")
		assert.ErrorContains(t, err, "No such file or directory")
	})
	assert.Equal(t, before, dump(t, w.Node))

	w.sync(t, want)
	fresh := newWorld(t)
	fresh.sync(t, want)
	assert.Equal(t, dump(t, fresh.Node), dump(t, w.Node), "the next step starts from what is really there")
}

// A start flushed rules first: seconds of outage.
func TestCase41_ReplacedTablesRefuseNobody(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := nettest.BothFamilies()[0]
	w.listen(t, p.Listen+":10000")
	w.sync(t, p.Redirects())
	stop := make(chan struct{})
	var asking sync.WaitGroup
	// A table is deleted and made in one transaction, but a packet asks one chain after
	// the other: one that is between the new table's and the old one's at that very
	// moment meets neither. Nobody is refused; such a packet is lost.
	var lost atomic.Int32
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
					if got == nettest.Dropped && lost.Add(1) == 1 {
						continue
					}
					if !assert.Equal(t, "listener "+p.Listen+":10000", got, "%sfrom %s", proto, from) {
						return
					}
				}
			}
		})
	}
	for range 20 {
		w.runner.Forget() // as a new process starts
		w.sync(t, p.Redirects())
	}
	close(stop)
	asking.Wait()
}

// Rules left behind after removal; other people's rules are theirs.
func TestCase42_CleanupTwiceLeavesNothingOfOursAndAllOfOthers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nft := func(words string) { w.Node.Output(t, "nft", strings.Fields(words)...) }
	nft("add table inet userspace-proxyish")
	nft("add table ip filter")
	nft("add chain ip filter FORWARD { type filter hook forward priority 0 ; policy drop ; }")
	nft("add rule ip filter FORWARD ip daddr 10.96.0.10 accept")
	nft("add table ip6 kube-proxy")
	nft("add set ip6 kube-proxy portals { type ipv6_addr ; }")
	nft("add element ip6 kube-proxy portals { fd96::10 }")
	others := dump(t, w.Node)

	w.sync(t, nettest.Mixed())
	nft("add table ip6 userspace-proxy-2") // of some other version, of a probe that was killed
	nft("add table inet userspace-proxy-probe-1")
	assert.NotEqual(t, others, dump(t, w.Node))
	w.Node.Do(t, func() {
		for range 2 {
			require.NoError(t, Cleanup(t.Context()))
			assert.Equal(t, others, dump(t, w.Node))
		}
	})
	w.runner.Forget()
	w.sync(t, nettest.Mixed())
	w.sync(t, nettest.Mixed()[2:])
	assert.Equal(t, others, without(dump(t, w.Node), `"userspace-proxy"`))
}

// without is a dump without the lines that have a word.
func without(dump, word string) string {
	var kept strings.Builder
	for line := range strings.Lines(dump) {
		if !strings.Contains(line, word) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// route_localnet opened 127.0.0.1 to neighbours.
func TestCase45_RawFrameToLoopbackIsNotDelivered(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var redirects []service.Redirect
	for _, p := range nettest.BothFamilies() {
		w.listen(t, p.Listen+":10000")
		redirects = append(redirects, p.Redirects()...)
	}
	w.sync(t, redirects)
	for _, p := range nettest.BothFamilies() {
		loopback := netip.MustParseAddrPort(p.Loopback + ":30080")
		denied := netip.MustParseAddrPort(p.Loopback + ":30081")
		portal := netip.MustParseAddrPort(p.Portal(10, 80))
		for _, from := range []string{"client", "pod"} {
			raw := w.OpenRaw(t, from, p.Family)
			for range 5 {
				raw.Send(t, loopback)
				raw.Send(t, denied)
			}
			// A like frame to a portal that is for everyone arrives, so those
			// before it would have.
			raw.Send(t, portal)
			assert.Eventually(t, func() bool { return w.packets(t, portal) > 0 }, nettest.Patience, 50*time.Millisecond)
			assert.Zero(t, w.packets(t, loopback), "%s from %s", loopback, from)
			assert.Zero(t, w.packets(t, denied), "%s from %s", denied, from)
			w.runner.Forget()
			w.sync(t, redirects) // counts from 0
		}
	}
	for _, dev := range []string{"all", "default", "lo", nettest.NodeToClient, nettest.NodeToPod} {
		assert.Equal(t, "0\n", w.Node.Output(t, "cat", "/proc/sys/net/ipv4/conf/"+dev+"/route_localnet"))
	}
}

func (w *world) packets(t testing.TB, portal netip.AddrPort) uint64 {
	t.Helper()
	var counts Counts
	w.Node.Do(t, func() {
		var err error
		counts, err = w.runner.Counts(t.Context())
		assert.NoError(t, err)
	})
	return counts.Portals[Portal{portal, service.UDP}]
}

// Source ranges could be walked round by talking to the proxy's own port.
func TestCase46_ListenerPortsAnswerOnlyTranslatedTraffic(t *testing.T) {
	t.Parallel()
	guarded(t, false)
}

// After a crash, rules led to a port that a stranger had taken: whoever takes
// one is guarded, and the next start's first transaction leads elsewhere.
func TestCase53_StrangerInThePortRangeIsGuardedAndRulesLeaveHim(t *testing.T) {
	t.Parallel()
	guarded(t, true)
}

func guarded(t *testing.T, crash bool) {
	t.Helper()
	w := newWorld(t)
	for _, p := range nettest.BothFamilies() {
		w.sync(t, p.Redirects())
		served := p.Listen + ":10000"
		w.listen(t, served)
		if crash { // the listener at 10000 is a stranger's now, and so is one at an unused port
			served = p.Listen + ":29999"
			w.listen(t, served, p.Listen+":20000")
			var err error
			w.Node.Do(t, func() {
				w.runner, err = New(w.config)
				require.NoError(t, err)
			})
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

// Where the listening address is the node's, whoever else listens there stays
// reachable: the kubelet's port lies in the default range.
func TestCase46_SharedListeningAddressGuardsListenersAlone(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	p := nettest.BothFamilies()[0]
	shared := Config{Listen: map[service.Family]netip.Addr{p.Family: netip.MustParseAddr(p.Node)}, SharedListen: true}.Defaults()
	var err error
	w.Node.Do(t, func() {
		w.runner, err = New(shared)
		require.NoError(t, err)
	})
	w.listen(t, p.Node+":10000")
	w.Node.ServeBoth(t, nettest.Passes, p.Node+":10250")
	for range 2 {
		w.sync(t, []service.Redirect{
			nettest.Redirect("web", "TCP "+p.Portal(10, 80), service.ToListener, p.Node+":10000"),
			nettest.Redirect("web", "UDP "+p.Portal(10, 80), service.ToListener, p.Node+":10000"),
		})
		tr := newTracer(t, w.Bed, shared.Listen)
		for _, from := range []string{"client", "pod", "node"} {
			for _, proto := range []string{"TCP ", "UDP "} {
				for dst, want := range map[string]string{
					p.Portal(10, 80):   "listener " + p.Node + ":10000",
					p.Node + ":10000":  nettest.Refused,
					p.Node + ":10250":  nettest.Passes,
					p.Portal(11, 8080): nettest.Passes,
				} {
					packet := nettest.Sent(from, proto+dst)
					assert.Equal(t, want, tr.trace(packet), "the rules say of %s", packet)
					if dst != p.Portal(11, 8080) { // nobody is there
						assert.Equal(t, want, w.Send(t, packet, want), "really: %s", packet)
					}
				}
			}
		}
		w.sync(t, nil)
	}
}

// A pod behind an interface without an IPv4 address, or the node's own UDP,
// got no answer through REDIRECT.
func TestCase52_UnnumberedPodAndOwnUDPGetAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
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
}
