package config

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/userspace-proxy/userspace-proxy/internal/metric"
)

// RegisterMetrics registers what sources tell of themselves, as metrics that
// are read when they are asked for. Their label is the source's name.
func (c *ServiceConfig) RegisterMetrics(r prometheus.Registerer) {
	set := metric.On(r)
	gauge := func(name, help, worry string, labels ...metric.Label) metric.Asked {
		source := metric.Label{Name: "source", Values: "its name: `file`, `apiserver`, `etcd`"}
		return set.AskedGauge(metric.Def{
			Name: "userspace_proxy_source_" + name, Help: help, Worry: worry, Labels: append([]metric.Label{source}, labels...),
		})
	}
	delivered := gauge("delivered", "1 when a source's first full state is in, else 0.",
		"It is 0 after `--startup-grace`: nothing is removed before all sources have delivered.")
	failing := gauge("failing", "1 while a source cannot see its origin and its last state stays in use, else 0.",
		"It is 1 for long: what is served grows old. /statusz has the source's error.")
	objects := gauge("objects", "Objects that a source has, by kind; Endpoints are EndpointSlices and Endpoints.",
		"It drops at once without a reason that you know.", metric.Label{Name: "kind", Values: "`Service`, `Endpoints`"})
	problems := gauge("problems", "Problems with what a source has.", "")
	updated := gauge("updated_timestamp_seconds", "When a source last sent an update; 0 before the first.", "")
	checked := gauge("checked_timestamp_seconds", "When a source last saw its origin whole, so that nothing newer was there; 0 before it did.",
		"It grows old though `userspace_proxy_source_failing` is 0.")
	set.OnScrape(func(to chan<- prometheus.Metric) {
		for _, s := range c.Snapshot().Sources {
			to <- delivered.Is(number(s.Delivered), s.Name)
			to <- failing.Is(number(s.Err != ""), s.Name)
			to <- objects.Is(float64(s.Services), s.Name, "Service")
			to <- objects.Is(float64(s.Endpoints), s.Name, "Endpoints")
			to <- problems.Is(float64(s.Problems), s.Name)
			to <- updated.Is(metric.Seconds(s.Updated), s.Name)
			to <- checked.Is(metric.Seconds(s.Checked), s.Name)
		}
	})
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}
