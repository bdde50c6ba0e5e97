//go:build linux && !portable

package iptables

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/userspace-proxy/userspace-proxy/internal/listenaddr"
	"github.com/userspace-proxy/userspace-proxy/internal/nettest"
	"github.com/userspace-proxy/userspace-proxy/nftables"
	"github.com/userspace-proxy/userspace-proxy/service"
)

// The benchmarks of rules are beside each other for all ways to make them, so
// that one run on one machine compares them:
//
//	go test -run='^$' -bench='^BenchmarkRules' ./iptables
//
// "calls-…" is what the proxies of old did: one list of rules, and one call of
// iptables for each rule. Its cost is quadratic; from 1,000 rules on a few
// calls are made at the beginning, in the middle and at the end of the list,
// and the sum is estimated.

const calls = "calls-"

// way is one way to make rules. Sync is called on the node.
type way struct {
	name string
	sync func(ctx context.Context, redirects []service.Redirect) error
}

// ways are made anew for each benchmark: what they have applied is not known.
func ways(tb testing.TB) []way {
	var all []way
	nft, err := nftables.New(nftables.Config{Listen: dual().Listen})
	require.NoError(tb, err)
	all = append(all, way{"nftables", nft.Sync})
	for _, k := range []Kind{NFT, Legacy} {
		c := patient(dual())
		c.Kind = k
		runner, err := New(c)
		require.NoError(tb, err)
		all = append(all, way{"iptables-" + string(k), runner.Sync})
	}
	for _, k := range []Kind{NFT, Legacy} {
		all = append(all, way{calls + string(k), list(tb, k)})
	}
	return all
}

// list puts redirects into one list with iptables-restore, as fast as can be:
// how long single calls take is measured elsewhere.
func list(tb testing.TB, k Kind) func(context.Context, []service.Redirect) error {
	cmds, err := find(tb.Context(), patient(dual()), k, service.IPv4)
	require.NoError(tb, err)
	return func(ctx context.Context, redirects []service.Redirect) error {
		c := dual().Defaults()
		entries, err := c.entries(redirects)
		if err != nil {
			return err
		}
		rules := make([]string, len(entries))
		for i := range entries {
			rules[i] = c.rule(&entries[i])
		}
		if err := cmds.restore(ctx, change(nil, map[place][]string{{natTable, portalsChain}: rules})); err != nil {
			return err
		}
		for _, chain := range []string{"PREROUTING", "OUTPUT"} {
			if err := cmds.InsertUnique(natTable, chain, 1, "-j", portalsChain); err != nil {
				return err
			}
		}
		return nil
	}
}

// eachWay runs a benchmark for every way and number of Services, each on a
// node of its own.
func eachWay(b *testing.B, run func(b *testing.B, way, n int)) {
	b.Helper()
	for i, w := range ways(b) {
		for _, n := range []int{10, 1000, 10000} {
			b.Run(fmt.Sprintf("%s/%d", w.name, n), func(b *testing.B) {
				nettest.New(b).Node.Do(b, func() { run(b, i, n) })
			})
		}
	}
}

// BenchmarkRulesApply is the time from no rules to all.
func BenchmarkRulesApply(b *testing.B) {
	eachWay(b, func(b *testing.B, way, n int) {
		redirects := clusterIPs(service.IPv4, n)
		if w := ways(b)[way]; strings.HasPrefix(w.name, calls) {
			applyByCalls(b, w, redirects)
			return
		}
		for b.Loop() {
			b.StopTimer()
			require.NoError(b, nftables.Cleanup(b.Context()))
			require.NoError(b, Cleanup(b.Context()))
			w := ways(b)[way]
			b.StartTimer()
			require.NoError(b, w.sync(b.Context(), redirects))
		}
	})
}

// applyByCalls calls iptables for each rule, or for as many as tell how long
// all would take.
func applyByCalls(b *testing.B, w way, redirects []service.Redirect) {
	kind := Kind(strings.TrimPrefix(w.name, calls))
	cmds, err := find(b.Context(), patient(dual()), kind, service.IPv4)
	require.NoError(b, err)
	calls := func(redirects []service.Redirect) time.Duration {
		began := time.Now()
		for _, r := range redirects {
			require.NoError(b, cmds.Append(natTable, portalsChain, "-d", r.Portal.Addr().String(), "-p", "tcp",
				"-m", "tcp", "--dport", "80", "-j", "DNAT", "--to-destination", r.Listener.String()))
		}
		return time.Since(began)
	}
	n := len(redirects)
	for b.Loop() {
		require.NoError(b, w.sync(b.Context(), nil))
		if n < 1000 {
			calls(redirects)
			continue
		}
		const sample = 10
		var took [3]time.Duration // Simpson's rule
		for i, at := range []int{0, n / 2, n} {
			require.NoError(b, w.sync(b.Context(), redirects[:at]))
			took[i] = calls(redirects[:sample]) / sample
		}
		all := time.Duration(n) * (took[0] + 4*took[1] + took[2]) / 6
		b.ReportMetric(all.Seconds(), "s-estimated/op")
	}
}

// BenchmarkRulesOneMore is the time for one Service more, or one less.
func BenchmarkRulesOneMore(b *testing.B) {
	eachWay(b, func(b *testing.B, way, n int) {
		w := ways(b)[way]
		if strings.HasPrefix(w.name, calls) {
			b.Skip("a list is made by a call for each rule: see BenchmarkRulesApply")
		}
		redirects := clusterIPs(service.IPv4, n+1)
		require.NoError(b, w.sync(b.Context(), redirects))
		states := [][]service.Redirect{redirects[:n], redirects}
		i := 0
		for b.Loop() {
			require.NoError(b, w.sync(b.Context(), states[i%2]))
			i++
		}
	})
}

// BenchmarkRulesConnect is the time to open a TCP connection from a neighbour
// of the node, each to another portal.
func BenchmarkRulesConnect(b *testing.B) {
	connections(b, service.TCP, func(b *testing.B, portal netip.AddrPort) {
		d := net.Dialer{Control: abortive}
		c, err := d.Dial("tcp", portal.String())
		require.NoError(b, err)
		require.NoError(b, c.Close())
	})
}

// BenchmarkRulesFirstPacket is the time to send the first datagram of a flow
// from a neighbour of the node to a portal. The kernel takes it through the
// rules before the call returns, so it shows their cost without that of a
// connection.
func BenchmarkRulesFirstPacket(b *testing.B) {
	connections(b, service.UDP, func(b *testing.B, portal netip.AddrPort) {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(b, err)
		to := &unix.SockaddrInet4{Port: int(portal.Port()), Addr: portal.Addr().As4()}
		require.NoError(b, unix.Sendto(fd, []byte("x"), 0, to))
		require.NoError(b, unix.Close(fd))
	})
}

// connections opens connections among 10, 1,000 and 10,000 Services by turns,
// a block of them each time, so that what else the machine does meets all
// alike. The median block is reported, and how it grows.
func connections(b *testing.B, proto service.Protocol, open func(b *testing.B, portal netip.AddrPort)) {
	b.Helper()
	numbers := []int{10, 1000, 10000}
	const block = 100
	for i, w := range ways(b) {
		b.Run(w.name, func(b *testing.B) {
			var beds []*nettest.Bed
			var portals [][]netip.AddrPort
			for _, n := range numbers {
				bed, at := serving(b, i, proto, n)
				beds, portals = append(beds, bed), append(portals, at)
			}
			took := make([][]float64, len(numbers))
			turn := 0
			for b.Loop() {
				for i, bed := range beds {
					bed.Client.Do(b, func() {
						began := time.Now()
						for j := range block {
							open(b, portals[i][(turn*block+j)%len(portals[i])])
						}
						took[i] = append(took[i], float64(time.Since(began).Nanoseconds())/block)
					})
				}
				turn++
			}
			for i, n := range numbers {
				slices.Sort(took[i])
				b.ReportMetric(took[i][len(took[i])/2], fmt.Sprintf("ns@%d", n))
			}
			last := len(numbers) - 1
			b.ReportMetric(took[last][len(took[last])/2]/took[0][len(took[0])/2], "x")
			b.ReportMetric(0, "ns/op") // of a block, which tells nobody anything
		})
	}
}

// serving is a node of its own that leads n portals to one listener, and the
// portals.
func serving(b *testing.B, way int, proto service.Protocol, n int) (*nettest.Bed, []netip.AddrPort) {
	b.Helper()
	listener := netip.MustParseAddrPort("169.254.77.1:10000")
	redirects := clusterIPs(service.IPv4, n)
	portals := make([]netip.AddrPort, n)
	for i := range redirects {
		redirects[i].Protocol, redirects[i].Listener = proto, listener
		portals[i] = redirects[i].Portal
	}
	bed := nettest.New(b)
	bed.Node.Do(b, func() {
		_, err := listenaddr.Ensure(dual().Listen)
		require.NoError(b, err)
		require.NoError(b, ways(b)[way].sync(b.Context(), redirects))
	})
	bed.Node.ServeTCP(b, listener.String(), func(*net.TCPConn) {})
	sink, err := bed.Node.ListenPacket("udp", listener.String()) // which nobody reads
	require.NoError(b, err)
	b.Cleanup(func() { _ = sink.Close() })
	return bed, portals
}

// abortive makes a socket's Close a reset, so that no port waits.
func abortive(_, _ string, c syscall.RawConn) error {
	var err error
	failed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptLinger(int(fd), unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	})
	return errors.Join(failed, err)
}
