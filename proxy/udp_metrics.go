package proxy

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
)

// newUDPCounters registers what the UDP loop counts.
func newUDPCounters(set metric.Set) *udpCounters {
	c := new(udpCounters)
	ended := set.AskedCounter(metric.Def{
		Name:   "userspace_proxy_udp_flows_ended_total",
		Help:   "UDP flows that have ended, by reason.",
		Labels: []metric.Label{{Name: "reason", Values: "`idle`: without traffic for `--udp-timeout`; `evicted`: for the sake of a new one; `endpoint_removed`; `refused`: its endpoint refused and another was picked; `closed`: its Service port is gone or has no endpoint"}},
		Worry:  "`evicted` rises: raise `--max-udp-flows` or the limit on open files, or shorten `--udp-timeout`.",
	})
	refused := set.AskedCounter(metric.Def{
		Name:  "userspace_proxy_udp_flows_refused_total",
		Help:  "Times that a flow's endpoint answered that nobody listens there, or that no way leads there.",
		Worry: "It rises for longer than a roll-out takes: endpoints are listed as ready and are not.",
	})
	readErrors := set.AskedCounter(metric.Def{
		Name:  "userspace_proxy_udp_read_errors_total",
		Help:  "Failures to read datagrams.",
		Worry: "It rises: the log says why.",
	})
	dropped := set.AskedCounter(metric.Def{
		Name:   "userspace_proxy_udp_datagrams_dropped_total",
		Help:   "UDP datagrams that were not sent on, by reason.",
		Labels: []metric.Label{{Name: "reason", Values: "`no_endpoint`, `unreachable`: of the Service; `descriptors`, `local_ports`: of this node, for a new flow; `too_big`: for the way that it was to go; `send_buffer`: full; `send_error`; `late`: a reply after its flow had ended; `closed`: at the end of a listener"}},
		Worry:  "`descriptors`, `local_ports`: the node is at a limit. `send_buffer`: more comes than leaves. `too_big`: the MTU on the way to endpoints is too small.",
	})
	set.OnScrape(func(to chan<- prometheus.Metric) {
		to <- refused.Is(float64(c.refused.Load()))
		to <- readErrors.Is(float64(c.readErrors.Load()))
		for r := range endReasons {
			to <- ended.Is(float64(c.ended[r].Load()), r.String())
		}
		for r := dropNone + 1; r < dropReasons; r++ {
			to <- dropped.Is(float64(c.dropped[r].Load()), r.String())
		}
	})
	return c
}
