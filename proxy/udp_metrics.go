package proxy

import "github.com/prometheus/client_golang/prometheus"

func udpDesc(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("userspace_proxy_udp_"+name, help, labels, nil)
}

// Describe is part of prometheus.Collector. Nothing is described ahead: the
// descriptions come with the values.
func (c *udpCounters) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (c *udpCounters) Collect(to chan<- prometheus.Metric) {
	counter := func(d *prometheus.Desc, v uint64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	to <- prometheus.MustNewConstMetric(udpDesc("flows_active", "UDP flows open now."), prometheus.GaugeValue, float64(c.active.Load()))
	counter(udpDesc("flows_opened_total", "UDP flows opened."), c.opened.Load())
	ended := udpDesc("flows_ended_total", "UDP flows that have ended, by reason.", "reason")
	for r := range endReasons {
		counter(ended, c.ended[r].Load(), r.String())
	}
	counter(udpDesc("flows_refused_total", "Times that a flow's endpoint answered port unreachable."), c.refused.Load())
	counter(udpDesc("read_errors_total", "Failures to read datagrams."), c.readErrors.Load())
	dropped := udpDesc("datagrams_dropped_total", "UDP datagrams that were not sent on, by reason.", "reason")
	for r := dropNone + 1; r < dropReasons; r++ {
		counter(dropped, c.dropped[r].Load(), r.String())
	}
	datagrams := udpDesc("datagrams_total", "UDP datagrams sent on; up is client to endpoint.", "direction")
	bytes := udpDesc("bytes_total", "Bytes of UDP datagrams sent on; up is client to endpoint.", "direction")
	for direction, t := range map[string]*traffic{"up": &c.up, "down": &c.down} {
		counter(datagrams, t.datagrams.Load(), direction)
		counter(bytes, t.bytes.Load(), direction)
	}
}
