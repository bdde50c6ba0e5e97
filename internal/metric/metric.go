package metric

import (
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Def defines a metric.
type Def struct {
	Name    string  // whole: with prefix, unit, and _total where it counts
	Help    string  // what it is, in one sentence
	Labels  []Label // bounded, and never with a client's address
	Buckets []float64
	Worry   string // when, and what to do; empty: never by itself
}

// Label is one of a metric's labels.
type Label struct {
	Name   string
	Values string // what stands there, for people
}

func (d Def) labels() []string {
	names := make([]string, len(d.Labels))
	for i, l := range d.Labels {
		names[i] = l.Name
	}
	return names
}

// Kind is what Prometheus calls the type of a metric.
type Kind string

// The kinds.
const (
	Counter   Kind = "counter"
	Gauge     Kind = "gauge"
	Histogram Kind = "histogram"
)

// Definition is a definition that was registered.
type Definition struct {
	Def
	Kind Kind
}

// Registry is a registry of Prometheus that remembers definitions. It is safe
// for concurrent use.
type Registry struct {
	*prometheus.Registry

	mu   sync.Mutex
	defs []Definition
}

// NewRegistry makes an empty one.
func NewRegistry() *Registry { return &Registry{Registry: prometheus.NewRegistry()} }

// Definitions are all that were registered, by name.
func (r *Registry) Definitions() []Definition {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedFunc(slices.Values(r.defs), func(a, b Definition) int { return strings.Compare(a.Name, b.Name) })
}

func (r *Registry) remember(d Definition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.defs = append(r.defs, d)
}

// Set makes metrics and registers them. What cannot be registered is a fault in
// the program and panics.
type Set struct{ r prometheus.Registerer }

// On makes a Set for a registerer, which remembers definitions where it is a
// *Registry.
func On(r prometheus.Registerer) Set { return Set{r} }

func (s Set) register(d Def, kind Kind, c prometheus.Collector) {
	if r, ok := s.r.(*Registry); ok {
		r.remember(Definition{d, kind})
	}
	if c != nil {
		s.r.MustRegister(c)
	}
}

// Counter makes a counter without labels.
func (s Set) Counter(d Def) prometheus.Counter {
	c := prometheus.NewCounter(prometheus.CounterOpts{Name: d.Name, Help: d.Help})
	s.register(d, Counter, c)
	return c
}

// Counters makes a counter with labels.
func (s Set) Counters(d Def) *prometheus.CounterVec {
	c := prometheus.NewCounterVec(prometheus.CounterOpts{Name: d.Name, Help: d.Help}, d.labels())
	s.register(d, Counter, c)
	return c
}

// Gauge makes a gauge without labels.
func (s Set) Gauge(d Def) prometheus.Gauge {
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: d.Name, Help: d.Help})
	s.register(d, Gauge, g)
	return g
}

// Histogram makes a histogram without labels.
func (s Set) Histogram(d Def) prometheus.Histogram {
	h := prometheus.NewHistogram(prometheus.HistogramOpts{Name: d.Name, Help: d.Help, Buckets: d.Buckets})
	s.register(d, Histogram, h)
	return h
}

// Asked is a metric that has no state of its own: whoever has it is asked at
// each scrape.
type Asked struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
}

// AskedCounter makes a counter whose values OnScrape's functions send.
func (s Set) AskedCounter(d Def) Asked { return s.asked(d, Counter, prometheus.CounterValue) }

// AskedGauge is the same for a gauge.
func (s Set) AskedGauge(d Def) Asked { return s.asked(d, Gauge, prometheus.GaugeValue) }

func (s Set) asked(d Def, kind Kind, value prometheus.ValueType) Asked {
	s.register(d, kind, nil)
	return Asked{prometheus.NewDesc(d.Name, d.Help, d.labels(), nil), value}
}

// Is is the metric's value for those values of its labels.
func (a Asked) Is(value float64, labels ...string) prometheus.Metric {
	return prometheus.MustNewConstMetric(a.desc, a.kind, value, labels...)
}

// OnScrape has a function called at each scrape, which sends the values of
// metrics that are asked for. Several calls may be under way at once.
func (s Set) OnScrape(send func(chan<- prometheus.Metric)) { s.r.MustRegister(scrape(send)) }

// scrape is a collector whose metrics are described as they come.
type scrape func(chan<- prometheus.Metric)

// Describe is part of prometheus.Collector.
func (scrape) Describe(chan<- *prometheus.Desc) {}

// Collect is part of prometheus.Collector.
func (f scrape) Collect(to chan<- prometheus.Metric) { f(to) }

// Seconds is a time as metrics have it: in Unix seconds, 0 for one that is zero.
func Seconds(t time.Time) float64 {
	if t.IsZero() {
		return 0
	}
	return float64(t.UnixNano()) / float64(time.Second)
}
