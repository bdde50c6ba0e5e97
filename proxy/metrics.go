package proxy

import (
	"errors"
	"os"
	"syscall"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics count what the data path does. Their labels are bounded: they hold
// protocols and reasons, never addresses.
type Metrics struct {
	Connections  *prometheus.CounterVec // by how they ended
	Active       prometheus.Gauge       // TCP connections open now
	Bytes        *prometheus.CounterVec // carried over TCP, by direction
	DialFailures *prometheus.CounterVec // by reason
	Refused      *prometheus.CounterVec // client connections closed unserved, by reason
	AcceptErrors *prometheus.CounterVec // by reason
	Syncs        *prometheus.CounterVec // reconciles, by result
	SyncSeconds  prometheus.Histogram
	Ports        prometheus.Gauge // service ports that are to be served
	Problems     *prometheus.GaugeVec
	Restored     prometheus.Counter // times that somebody else had changed the rules
	// UDP entries of connection tracking that were deleted, and failures to look through them.
	ConntrackDeleted, ConntrackFailures prometheus.Counter

	udp         *udpCounters // kept by the UDP loop, read when metrics are
	descriptors *budgetMetrics

	// What each connection counts, looked up once.
	ended    map[string]prometheus.Counter
	refused  map[string]prometheus.Counter
	up, down prometheus.Counter
}

// NewMetrics registers the metrics of the data path.
func NewMetrics(r prometheus.Registerer) *Metrics {
	const ns = "userspace_proxy"
	vec := func(name, help string, labels ...string) *prometheus.CounterVec {
		c := prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: ns, Name: name, Help: help}, labels)
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Namespace: ns, Name: name, Help: help})
		r.MustRegister(g)
		return g
	}
	m := &Metrics{
		Connections:  vec("tcp_connections_total", "TCP connections that were relayed and have ended, by how they ended.", "ended"),
		Active:       gauge("tcp_connections_active", "TCP connections being relayed."),
		Bytes:        vec("tcp_bytes_total", "Bytes relayed over TCP by connections that have ended; up is client to endpoint.", "direction"),
		DialFailures: vec("dial_failures_total", "Failed dials to endpoints, by reason.", "reason"),
		Refused:      vec("tcp_refused_total", "Client connections that were reset without reaching an endpoint, by reason.", "reason"),
		AcceptErrors: vec("accept_errors_total", "Failures to accept a connection, by reason.", "reason"),
		Syncs:        vec("syncs_total", "Reconciles of listeners and rules, by result.", "result"),
		Ports:        gauge("service_ports", "Service ports that are to be served."),
		SyncSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Namespace: ns, Name: "sync_duration_seconds", Help: "Time one reconcile of listeners and rules takes.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}),
		Problems: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Namespace: ns, Name: "listener_problems", Help: "Service ports and portals without a listener, and what else stands in the way on this node, by reason.",
		}, []string{"reason"}),
	}
	m.Restored = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: ns, Name: "rules_restored_total", Help: "Times that rules were restored because somebody else had changed them.",
	})
	m.ConntrackDeleted = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: ns, Name: "conntrack_entries_deleted_total", Help: "UDP connection tracking entries deleted because they led to where a Service was before.",
	})
	m.ConntrackFailures = prometheus.NewCounter(prometheus.CounterOpts{
		Namespace: ns, Name: "conntrack_failures_total", Help: "Failures to look through UDP connection tracking entries.",
	})
	m.udp, m.descriptors = new(udpCounters), new(budgetMetrics)
	m.ended = make(map[string]prometheus.Counter)
	for _, why := range []string{endedEOF, endedReset, endedTimeout, endedAbort} {
		m.ended[why] = m.Connections.WithLabelValues(why)
	}
	m.refused = make(map[string]prometheus.Counter)
	for _, why := range []string{refusedNoEndpoint, refusedDialFailed, refusedLimit, refusedClientLimit, refusedServiceLimit, refusedOwnDial} {
		m.refused[why] = m.Refused.WithLabelValues(why)
	}
	m.up, m.down = m.Bytes.WithLabelValues("up"), m.Bytes.WithLabelValues("down")
	r.MustRegister(m.SyncSeconds, m.Problems, m.Restored, m.ConntrackDeleted, m.ConntrackFailures, m.udp, m.descriptors)
	return m
}

// connectionEnded counts a relayed connection that is over.
func (m *Metrics) connectionEnded(why string, up, down int64) {
	m.Active.Dec()
	m.ended[why].Inc()
	m.up.Add(float64(up))
	m.down.Add(float64(down))
}

func (m *Metrics) dialFailed(err error) { m.DialFailures.WithLabelValues(reason(err)).Inc() }

// reason is a short, bounded name of a network error.
func reason(err error) string {
	var timeout interface{ Timeout() bool }
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		return "refused"
	case errors.Is(err, syscall.EHOSTUNREACH), errors.Is(err, syscall.ENETUNREACH):
		return "unreachable"
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return "no_local_port"
	case errors.Is(err, syscall.EMFILE), errors.Is(err, syscall.ENFILE):
		return "descriptors"
	case errors.Is(err, syscall.ECONNRESET):
		return "reset"
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	return "other"
}
