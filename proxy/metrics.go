package proxy

import (
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
)

// Metrics count what the data path does. Their labels are bounded: they hold
// Services, ports and reasons, never a client's address.
type Metrics struct {
	ended        map[string]prometheus.Counter // by how they ended
	refused      map[string]prometheus.Counter // by reason
	dials        prometheus.Counter
	dialFailures *prometheus.CounterVec
	acceptErrors *prometheus.CounterVec
	lasted       prometheus.Histogram
	syncSeconds  prometheus.Histogram
	syncFailures prometheus.Counter
	ports        prometheus.Gauge
	restored     prometheus.Counter
	udp          *udpCounters // kept by the UDP loop, read when metrics are
	descriptors  *budgetMetrics
	perPort      *portMetrics

	conntrackDeleted, conntrackFailures prometheus.Counter // of entries; of passes
}

// NewMetrics registers the metrics of the data path.
func NewMetrics(r prometheus.Registerer) *Metrics {
	set := metric.On(r)
	m := &Metrics{udp: newUDPCounters(set), descriptors: newBudgetMetrics(set), perPort: newPortMetrics(set)}
	m.addTCP(set)
	m.addSync(set)
	return m
}

func (m *Metrics) addTCP(set metric.Set) {
	ended := set.Counters(metric.Def{
		Name:   "userspace_proxy_tcp_connections_ended_total",
		Help:   "TCP connections that were relayed and have ended, by how.",
		Labels: []metric.Label{{Name: "reason", Values: "`eof`: both sides ended their stream; `reset`: one side reset, or vanished; `timeout`: without traffic for too long; `abort`: ended by the proxy"}},
		Worry:  "`reset` or `abort` is a large part of all: endpoints crash, or time-outs of clients are too short.",
	})
	m.ended = make(map[string]prometheus.Counter)
	for _, why := range []string{endedEOF, endedReset, endedTimeout, endedAbort} {
		m.ended[why] = ended.WithLabelValues(why)
	}
	refused := set.Counters(metric.Def{
		Name:   "userspace_proxy_tcp_connections_refused_total",
		Help:   "Connections of clients that were reset without reaching an endpoint, by reason. Those to a port without endpoints are refused by the kernel and not counted.",
		Labels: []metric.Label{{Name: "reason", Values: "`dial_failed`: no endpoint answered; `no_endpoint`: the last one had just gone; `max_connections`, `max_connections_per_client`, `max_connections_of_service`: the limit of that name; `source_range`: it may not come from there, where there are no rules to drop it; `own_dial`: a connection of the proxy itself came back to it"}},
		Worry:  "It rises: clients see errors. `dial_failed`: look at the endpoints and at `userspace_proxy_tcp_dial_failures_total`. A limit: raise it, or find the client that opens so many.",
	})
	m.refused = make(map[string]prometheus.Counter)
	for _, why := range []string{refusedNoEndpoint, refusedDialFailed, refusedLimit, refusedClientLimit, refusedServiceLimit, refusedOwnDial, refusedSource} {
		m.refused[why] = refused.WithLabelValues(why)
	}
	m.lasted = set.Histogram(metric.Def{
		Name:    "userspace_proxy_tcp_connection_duration_seconds",
		Help:    "How long TCP connections lasted that have ended, from accept to end.",
		Buckets: prometheus.ExponentialBuckets(0.001, 4, 12), // 1 ms to 70 min
	})
	m.dials = set.Counter(metric.Def{
		Name: "userspace_proxy_tcp_dials_total",
		Help: "Connects to endpoints that were begun. Where one does not answer, another is begun beside it.",
	})
	m.dialFailures = set.Counters(metric.Def{
		Name:   "userspace_proxy_tcp_dial_failures_total",
		Help:   "Dials to endpoints that failed, by reason. Clients see none of them while another endpoint answers.",
		Labels: []metric.Label{{Name: "reason", Values: "`refused`, `unreachable`, `timeout`, `reset`: the endpoint or the way there; `no_local_port`, `descriptors`: this node; `other`"}},
		Worry:  "It rises for longer than a roll-out takes: endpoints are listed as ready and are not. `no_local_port`: widen net.ipv4.ip_local_port_range.",
	})
	m.acceptErrors = set.Counters(metric.Def{
		Name:   "userspace_proxy_tcp_accept_errors_total",
		Help:   "Times that new connections were left waiting because they could not be accepted, by reason.",
		Labels: []metric.Label{{Name: "reason", Values: "`descriptors`: used up; else as in `userspace_proxy_tcp_dial_failures_total`"}},
		Worry:  "It rises: clients wait. Raise the limit on open files (`LimitNOFILE`, `ulimit -n`), or have connections end.",
	})
}

func (m *Metrics) addSync(set metric.Set) {
	m.syncSeconds = set.Histogram(metric.Def{
		Name:    "kubeproxy_sync_proxy_rules_duration_seconds",
		Help:    "Time that one reconcile of listeners and rules takes, both families together.",
		Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		Worry:   "The 99th percentile comes near `--sync-period`: changes wait for each other. See `make bench-rules` for what rules cost.",
	})
	m.syncFailures = set.Counter(metric.Def{
		Name:  "userspace_proxy_sync_failures_total",
		Help:  "Reconciles of listeners and rules that failed. What was served is served on, and another try follows.",
		Worry: "It rises: changes are not served. The log and /statusz say why.",
	})
	m.ports = set.Gauge(metric.Def{
		Name:  "userspace_proxy_service_ports",
		Help:  "Service ports that are served, a dual-stack port counted twice.",
		Worry: "It falls to nothing though there are Services: look at the sources.",
	})
	m.conntrackDeleted = set.Counter(metric.Def{
		Name: "kubeproxy_conntrack_reconciler_deleted_entries_total",
		Help: "UDP connection tracking entries that were deleted because they led to where a Service was before.",
	})
	m.conntrackFailures = set.Counter(metric.Def{
		Name:  "userspace_proxy_conntrack_failures_total",
		Help:  "Failures to look through UDP connection tracking entries.",
		Worry: "It rises: UDP senders that never pause may stay with what a Service was before. The log says why.",
	})
	m.restored = set.Counter(metric.Def{
		Name:  "userspace_proxy_rules_restored_total",
		Help:  "Times that rules were restored because somebody else had changed them.",
		Worry: "It rises: another program on the node flushes or edits rules that are not its own.",
	})
}

// connectionEnded counts a relayed connection that is over.
func (m *Metrics) connectionEnded(why string, lasted time.Duration) {
	m.ended[why].Inc()
	m.lasted.Observe(lasted.Seconds())
}

func (m *Metrics) dialFailed(err error) { m.dialFailures.WithLabelValues(reason(err)).Inc() }

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
