package report

import (
	"math"
	"slices"
	"strconv"
	"strings"
)

// Metric is something that is measured of a path.
type Metric int

// The metrics, by what their column is headed.
const (
	Rate        Metric = iota // operations a second
	Throughput                // 1e9 bytes a second
	P50                       // µs
	P99                       // µs
	CPU                       // µs of the proxy's processes, user and system, for an operation
	CPUPerGB                  // s of the same for 1e9 bytes
	Allocs                    // heap allocations of the proxy for an operation
	Held                      // connections held
	Alive                     // connections alive after having been held
	Memory                    // bytes of the proxy's processes for a connection
	Descriptors               // of the proxy's processes for a connection
	Errors                    // in all rounds together
	Lost                      // datagrams in all rounds together
)

// spec is how a metric is written, and what several samples of it come to.
type spec struct {
	heading  string
	decimals int
	sum      bool // else the median
}

func (m Metric) spec() spec {
	switch m {
	case Rate:
		return spec{heading: "per s"}
	case Throughput:
		return spec{heading: "GB/s", decimals: 2}
	case P50:
		return spec{heading: "p50 µs"}
	case P99:
		return spec{heading: "p99 µs"}
	case CPU:
		return spec{heading: "CPU µs", decimals: 1}
	case CPUPerGB:
		return spec{heading: "CPU s/GB", decimals: 3}
	case Allocs:
		return spec{heading: "allocations", decimals: 3}
	case Held:
		return spec{heading: "held"}
	case Alive:
		return spec{heading: "alive"}
	case Memory:
		return spec{heading: "bytes each"}
	case Descriptors:
		return spec{heading: "descriptors each", decimals: 2}
	case Errors:
		return spec{heading: "errors", sum: true}
	case Lost:
		return spec{heading: "lost", sum: true}
	default:
		return spec{heading: "metric " + strconv.Itoa(int(m))}
	}
}

// String is the heading of the metric's column.
func (m Metric) String() string { return m.spec().heading }

// Format writes a value, with commas between thousands.
func (m Metric) Format(v float64) string {
	s := strconv.FormatFloat(math.Abs(v), 'f', m.spec().decimals, 64)
	whole, fraction, _ := strings.Cut(s, ".")
	for i := len(whole) - 3; i > 0; i -= 3 {
		whole = whole[:i] + "," + whole[i:]
	}
	if fraction != "" {
		whole += "." + fraction
	}
	if v < 0 {
		whole = "-" + whole
	}
	return whole
}

// Sample is what one run of one path measured. A metric that the path does not
// have (the kernel has no process) is absent.
type Sample map[Metric]float64

// Summary is what a metric's samples come to.
type Summary struct {
	Value float64 // the median, or the sum
	// Spread is half the distance between the least and the greatest sample, as
	// a part of the median. One sample has none, which Spread tells from 0.
	Spread  float64
	Spreads bool
}

// summarise is false if no sample has the metric.
func (m Metric) summarise(samples []Sample) (Summary, bool) {
	var all []float64
	var sum float64
	for _, s := range samples {
		if v, ok := s[m]; ok {
			all = append(all, v)
			sum += v
		}
	}
	if len(all) == 0 {
		return Summary{}, false
	}
	if m.spec().sum {
		return Summary{Value: sum}, true
	}
	median := Median(all)
	s := Summary{Value: median}
	if s.Spreads = len(all) > 1 && median != 0; s.Spreads {
		s.Spread = (slices.Max(all) - slices.Min(all)) / 2 / math.Abs(median)
	}
	return s, true
}

// Median is the middle of the values, or the mean of the two in the middle; 0
// of none.
func Median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
