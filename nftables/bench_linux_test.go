//go:build linux && !portable

package nftables

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/userspace-proxy/userspace-proxy/service"
)

// many are redirects of n single-port Services.
func many(n int) []service.Redirect {
	all := make([]service.Redirect, n)
	for i := range all {
		all[i] = service.Redirect{
			Portal:   netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80),
			Protocol: service.TCP,
			Action:   service.ToListener,
			Listener: netip.AddrPortFrom(netip.AddrFrom4([4]byte{169, 254, 77, 1}), uint16(10000+i)),
			Service:  service.PortName{Namespace: "default", Name: fmt.Sprintf("web-%d", i), Port: "http", Protocol: service.TCP},
		}
	}
	return all
}

// The node of 10,000 Services, from nothing.
func BenchmarkSync10000(b *testing.B) {
	w := newWorld(b)
	all := many(10000)
	for b.Loop() {
		w.runner.Forget()
		w.sync(b, all)
	}
}

// One Service that comes to 10,000, and goes again: two changes.
func BenchmarkSyncOneMore(b *testing.B) {
	w := newWorld(b)
	all := many(10001)
	w.sync(b, all)
	for b.Loop() {
		w.sync(b, all[:10000])
		w.sync(b, all)
	}
}

// Nothing that comes to 10,000: what a periodic reconcile costs.
func BenchmarkSyncUnchanged10000(b *testing.B) {
	r, _, _ := fake(dual())
	all := many(10000)
	require.NoError(b, r.Sync(b.Context(), nil))
	r.applied, _ = r.config.elements(all)
	b.ReportAllocs()
	for b.Loop() {
		require.NoError(b, r.Sync(b.Context(), all))
	}
}

func BenchmarkRender10000(b *testing.B) {
	all := many(10000)
	b.ReportAllocs()
	for b.Loop() {
		Render(dual(), all)
	}
}

func BenchmarkCounts10000(b *testing.B) {
	w := newWorld(b)
	w.sync(b, many(10000))
	for b.Loop() {
		w.Node.Do(b, func() {
			_, err := w.runner.Counts(b.Context())
			require.NoError(b, err)
		})
	}
}
