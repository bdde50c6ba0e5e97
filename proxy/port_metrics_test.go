package proxy

import (
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// scraped are the values of metrics, by name and labels: "tcp_bytes_total web up".
// The prefix, the namespace and the port are left out.
func scraped(t *testing.T, r prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := r.Gather()
	require.NoError(t, err)
	values := make(map[string]float64)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := strings.TrimPrefix(f.GetName(), "userspace_proxy_")
			for _, want := range []string{"service", "state", "direction", "endpoint", "reason"} {
				for _, l := range m.GetLabel() {
					if l.GetName() == want {
						name += " " + l.GetValue()
					}
				}
			}
			values[name] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return values
}

func echo(conn *net.TCPConn) { _, _ = io.Copy(conn, conn) }

// TestPortMetrics: bytes count while a connection is open, and go on counting
// when it has ended and when its Service goes and comes.
func TestPortMetrics(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := start(t, Config{Metrics: NewMetrics(registry), MetricsPerEndpoint: true, UDPTimeout: time.Hour})
	back, gone := backend(t, echo), nobody(t)
	tcp, udp := f.port(back, gone), f.portNamed("dns", f.portal, udpEcho(t))
	udp.Protocol = "UDP"
	tcp.Affinity = time.Hour
	f.update(tcp, udp)

	got := scraped(t, registry)
	assert.InDelta(t, 2, got["endpoints web ready"], 0)
	assert.NotContains(t, got, "tcp_connections_opened_total web", "nothing was carried")

	conn := f.dial()
	_, err := io.WriteString(conn, "12345")
	require.NoError(t, err)
	_, err = io.ReadFull(conn, make([]byte, 5))
	require.NoError(t, err)
	newUDPClient(t, f.portal).ask("123")
	wanted := map[string]float64{
		"tcp_connections_opened_total web": 1, "tcp_connections_active web": 1,
		"tcp_bytes_total web up": 5, "tcp_bytes_total web down": 5,
		"affinity_clients web": 1, "endpoints dns ready": 1,
		"udp_flows_opened_total dns": 1, "udp_flows_active dns": 1,
		"udp_bytes_total dns up": 3, "udp_datagrams_total dns down": 1,
		"endpoint_connections_active web " + back.String(): 1,
	}
	require.EventuallyWithT(t, func(t *assert.CollectT) { // bytes are counted when they have been sent
		got := scraped(f.t, registry)
		for name, want := range wanted {
			assert.InDelta(t, want, got[name], 0, name)
		}
	}, patience, time.Millisecond)

	f.update(udp) // the connection lives on
	require.NoError(t, conn.Close())
	require.Eventually(t, func() bool { return f.shared.tcp.open() == 0 }, patience, time.Millisecond)
	f.update(tcp, udp)
	got = scraped(t, registry)
	assert.InDelta(t, 0, got["tcp_connections_active web"], 0)
	assert.InDelta(t, 5, got["tcp_bytes_total web up"], 0)
	assert.InDelta(t, 1, got["tcp_connections_ended_total eof"], 0)
	assert.InDelta(t, 1, got["tcp_connection_duration_seconds"], 0)

	// The endpoint that is not there rests.
	for scraped(t, registry)["endpoint_rests_total web"] == 0 {
		tcp.Affinity = 0
		f.update(tcp, udp)
		require.NoError(t, f.dial().Close())
	}
	got = scraped(t, registry)
	assert.InDelta(t, 1, got["endpoints web resting"], 0)
	assert.Contains(t, got, "endpoint_up web "+gone.String())
	assert.Zero(t, got["endpoint_up web "+gone.String()])
	assert.InDelta(t, 1, got["endpoint_up web "+back.String()], 0)
	assert.Positive(t, got["tcp_dial_failures_total refused"])
	assert.Greater(t, got["tcp_dials_total"], got["tcp_dial_failures_total refused"])

	f.update(udp)
	require.Eventually(t, func() bool {
		f.update(udp)
		_, there := scraped(t, registry)["tcp_connections_opened_total web"]
		return !there
	}, patience, 10*time.Millisecond, "a port that is gone, with nothing open, has no metrics")
}

// TestPortMetrics_neverFall: bytes of a connection are counted once, also while it ends.
func TestPortMetrics_neverFall(t *testing.T) {
	t.Parallel()
	registry := prometheus.NewRegistry()
	f := start(t, Config{Metrics: NewMetrics(registry)})
	f.serve(backend(t, echo))
	const each, clients, rounds = 100, 8, 40
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range rounds {
				conn := f.dial()
				_, err := conn.Write(make([]byte, each))
				assert.NoError(t, err)
				_, err = io.ReadFull(conn, make([]byte, each))
				assert.NoError(t, err)
				assert.NoError(t, conn.Close())
			}
		})
	}
	ended := make(chan struct{})
	go func() { defer close(ended); all.Wait() }()
	last := 0.
	for done := false; !done; {
		select {
		case <-ended:
			done = true
		default:
		}
		now := scraped(t, registry)["tcp_bytes_total web up"]
		require.GreaterOrEqual(t, now, last)
		require.LessOrEqual(t, now, float64(each*clients*rounds))
		last = now
	}
	require.Eventually(t, func() bool { return scraped(t, registry)["tcp_bytes_total web up"] == each*clients*rounds }, patience, time.Millisecond)
}
