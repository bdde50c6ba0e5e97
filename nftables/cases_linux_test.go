//go:build linux && !portable

package nftables

import (
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// Duplicate rules piled up.
func TestCase30_HundredSyncsLeaveTheSameDump(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	nft := w.count()
	w.sync(t, mixed())
	first := dump(t, w.Node)
	for range 100 {
		w.sync(t, mixed())
	}
	assert.Equal(t, first, dump(t, w.Node))
	assert.Len(t, nft.runs, 1, "nothing is run where nothing has changed")
	for range 20 {
		w.runner.Forget()
		w.sync(t, mixed())
	}
	assert.Equal(t, first, dump(t, w.Node), "tables that are replaced are no more than before")
	for range 20 {
		w.sync(t, mixed()[:4])
		w.sync(t, mixed())
	}
	assert.Equal(t, first, dump(t, w.Node))
}

// A failed restore closed all NodePort sockets.
func TestCase32_FailedTransactionKeepsTheLastRules(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.sync(t, mixed())
	// Somebody takes an element away, so that the step that removes it fails,
	// and everything else in its transaction with it.
	w.Node.Output(t, "nft", "delete", "element", "ip", "userspace-proxy", "portals", "{ 10.96.0.10 . tcp . 80 }")
	before := dump(t, w.Node)
	want := []service.Redirect{redirect("new", "TCP 10.96.0.20:80", service.ToListener, "169.254.77.1:10007")}
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
	p := bothFamilies()[0]
	w.listen(t, p.listen+":10000")
	w.sync(t, p.redirects())
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
					got := w.send(t, sent(from, proto+p.portal(10, 80)), "listener")
					if !assert.Equal(t, "listener "+p.listen+":10000", got, "%sfrom %s", proto, from) {
						return
					}
				}
			}
		})
	}
	for range 20 {
		w.runner.Forget() // as a new process starts
		w.sync(t, p.redirects())
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

	w.sync(t, mixed())
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
	w.sync(t, mixed())
	w.sync(t, mixed()[2:])
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
	for _, p := range bothFamilies() {
		w.listen(t, p.listen+":10000")
		redirects = append(redirects, p.redirects()...)
	}
	w.sync(t, redirects)
	for _, p := range bothFamilies() {
		loopback := netip.MustParseAddrPort(p.loopback + ":30080")
		denied := netip.MustParseAddrPort(p.loopback + ":30081")
		portal := netip.MustParseAddrPort(p.portal(10, 80))
		for _, from := range []string{"client", "pod"} {
			raw := w.openRaw(t, from, p.family)
			for range 5 {
				raw.send(t, loopback)
				raw.send(t, denied)
			}
			// A like frame to a portal that is for everyone arrives, so those
			// before it would have.
			raw.send(t, portal)
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

// rawSender sends frames that its host's own stack would never send.
type rawSender struct {
	fd       int
	to       unix.SockaddrLinklayer
	src      netip.Addr
	src16    uint16
	protocol uint16
}

// openRaw opens a packet socket on a host's link to the node.
func (w *world) openRaw(t testing.TB, from string, f service.Family) *rawSender {
	t.Helper()
	r := &rawSender{src: w.host(from).Addr(f), src16: 40000, protocol: unix.ETH_P_IP}
	if f == service.IPv6 {
		r.protocol = unix.ETH_P_IPV6
	}
	r.to = unix.SockaddrLinklayer{Protocol: r.protocol<<8 | r.protocol>>8, Halen: 6}
	w.Node.Do(t, func() {
		link, err := net.InterfaceByName(map[string]string{"client": nettest.NodeToClient, "pod": nettest.NodeToPod}[from])
		require.NoError(t, err)
		copy(r.to.Addr[:], link.HardwareAddr)
	})
	w.host(from).Do(t, func() {
		link, err := net.InterfaceByName("eth0")
		require.NoError(t, err)
		r.to.Ifindex = link.Index
		r.fd, err = unix.Socket(unix.AF_PACKET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, unix.Close(r.fd)) })
	})
	return r
}

// send sends one datagram in a flow of its own.
func (r *rawSender) send(t testing.TB, dst netip.AddrPort) {
	t.Helper()
	r.src16++
	udp := binary.BigEndian.AppendUint16(nil, r.src16)
	udp = binary.BigEndian.AppendUint16(udp, dst.Port())
	udp = append(udp, 0, 12, 0, 0, 'r', 'a', 'w', '!')
	binary.BigEndian.PutUint16(udp[6:], checksum(r.src.AsSlice(), dst.Addr().AsSlice(), []byte{0, unix.IPPROTO_UDP, 0, 12}, udp))
	var packet []byte
	if dst.Addr().Is4() {
		packet = append(packet, 0x45, 0, 0, byte(20+len(udp)), 0, 1, 0, 0, 64, unix.IPPROTO_UDP, 0, 0)
		packet = append(append(packet, r.src.AsSlice()...), dst.Addr().AsSlice()...)
		binary.BigEndian.PutUint16(packet[10:], checksum(packet))
	} else {
		packet = append(packet, 0x60, 0, 0, 0, 0, byte(len(udp)), unix.IPPROTO_UDP, 64)
		packet = append(append(packet, r.src.AsSlice()...), dst.Addr().AsSlice()...)
	}
	require.NoError(t, unix.Sendto(r.fd, append(packet, udp...), 0, &r.to))
}

// checksum is that of RFC 1071 over parts of even length.
func checksum(parts ...[]byte) uint16 {
	var sum uint32
	for _, p := range parts {
		for i := 0; i+1 < len(p); i += 2 {
			sum += uint32(binary.BigEndian.Uint16(p[i:]))
		}
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	return ^uint16(sum)
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
	for _, p := range bothFamilies() {
		w.sync(t, p.redirects())
		served := p.listen + ":10000"
		w.listen(t, served)
		if crash { // the listener at 10000 is a stranger's now, and so is one at an unused port
			served = p.listen + ":29999"
			w.listen(t, served, p.listen+":20000")
			var err error
			w.Node.Do(t, func() {
				w.runner, err = New(w.config)
				require.NoError(t, err)
			})
			w.sync(t, []service.Redirect{
				redirect("web", "TCP "+p.portal(10, 80), service.ToListener, served),
				redirect("web", "UDP "+p.portal(10, 80), service.ToListener, served),
			})
		}
		for _, from := range []string{"client", "pod", "node"} {
			for _, proto := range []string{"TCP ", "UDP "} {
				for _, port := range []string{":10000", ":20000", ":29999"} {
					got := w.send(t, sent(from, proto+p.listen+port), refused)
					assert.Equal(t, refused, got, "%s%s%s from %s", proto, p.listen, port, from)
				}
				got := w.send(t, sent(from, proto+p.portal(10, 80)), "")
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
	p := bothFamilies()[0]
	shared := Config{Listen: map[service.Family]netip.Addr{p.family: netip.MustParseAddr(p.node)}, SharedListen: true}.Defaults()
	var err error
	w.Node.Do(t, func() {
		w.runner, err = New(shared)
		require.NoError(t, err)
	})
	w.listen(t, p.node+":10000")
	serve(t, w.Node, passes, p.node+":10250")
	for range 2 {
		w.sync(t, []service.Redirect{
			redirect("web", "TCP "+p.portal(10, 80), service.ToListener, p.node+":10000"),
			redirect("web", "UDP "+p.portal(10, 80), service.ToListener, p.node+":10000"),
		})
		tr := newTracer(t, w.Bed, shared.Listen)
		for _, from := range []string{"client", "pod", "node"} {
			for _, proto := range []string{"TCP ", "UDP "} {
				for dst, want := range map[string]string{
					p.portal(10, 80):   "listener " + p.node + ":10000",
					p.node + ":10000":  refused,
					p.node + ":10250":  passes,
					p.portal(11, 8080): passes,
				} {
					packet := sent(from, proto+dst)
					assert.Equal(t, want, tr.trace(packet), "the rules say of %s", packet)
					if dst != p.portal(11, 8080) { // nobody is there
						assert.Equal(t, want, w.send(t, packet, want), "really: %s", packet)
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
	for _, p := range bothFamilies() {
		w.listen(t, p.listen+":10000")
		redirects = append(redirects, p.redirects()...)
	}
	w.sync(t, redirects)
	require.Empty(t, w.Node.Output(t, "ip", "-4", "-o", "addr", "show", "dev", nettest.NodeToPod))
	for _, p := range bothFamilies() {
		for _, from := range []string{"pod", "node"} {
			for _, proto := range []string{"TCP ", "UDP "} {
				for _, portal := range []string{p.portal(10, 80), p.node + ":30080"} {
					got := w.send(t, sent(from, proto+portal), "")
					assert.Equal(t, "listener "+p.listen+":10000", got, "%s%s from %s", proto, portal, from)
				}
			}
		}
	}
}
