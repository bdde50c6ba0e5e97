package config

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// RegisterMetrics registers what sources tell of themselves, as metrics that
// are read when they are asked for. Their label is the source's name.
func (c *ServiceConfig) RegisterMetrics(r prometheus.Registerer) { r.MustRegister(sourceMetrics{c}) }

// sourceMetrics are the metrics of a ServiceConfig's sources.
type sourceMetrics struct {
	of *ServiceConfig
}

// Describe is part of prometheus.Collector. Nothing is described ahead: the
// descriptions come with the values.
func (m sourceMetrics) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (m sourceMetrics) Collect(to chan<- prometheus.Metric) {
	gauge := func(name, help string, labels ...string) func(float64, ...string) {
		d := prometheus.NewDesc("userspace_proxy_source_"+name, help, append([]string{"source"}, labels...), nil)
		return func(v float64, labels ...string) {
			to <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
		}
	}
	delivered := gauge("delivered", "1 when a source's first full state is in, else 0.")
	failing := gauge("failing", "1 while a source cannot see its origin and its last state stays in use, else 0.")
	objects := gauge("objects", "Objects that a source has, by kind; Endpoints are EndpointSlices and Endpoints.", "kind")
	problems := gauge("problems", "Problems with what a source has.")
	updated := gauge("updated_timestamp_seconds", "When a source last sent an update; 0 before the first.")
	checked := gauge("checked_timestamp_seconds", "When a source last saw its origin whole, so that nothing newer was there; 0 before it did.")
	for _, s := range m.of.Snapshot().Sources {
		delivered(number(s.Delivered), s.Name)
		failing(number(s.Err != ""), s.Name)
		objects(float64(s.Services), s.Name, "Service")
		objects(float64(s.Endpoints), s.Name, "Endpoints")
		problems(float64(s.Problems), s.Name)
		updated(seconds(s.Updated), s.Name)
		checked(seconds(s.Checked), s.Name)
	}
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / float64(time.Second)
}
