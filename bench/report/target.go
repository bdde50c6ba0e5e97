package report

import (
	"fmt"
	"slices"
	"strconv"
)

// Target is what a path's median is to come to: Metric at least, or at most,
// Factor times what the peers have, or a fixed number.
type Target struct {
	Metric  Metric
	AtLeast bool     // else at most
	Peers   []string // the best of them is the measure; none: Factor is the number
	Factor  float64
}

// Verdict is how a Target came out.
type Verdict struct {
	Target  Target
	Value   float64 // ours
	Measure float64 // the best peer's, or 1
	Known   bool    // there is a value, and one of every peer
	Met     bool
}

// judge compares a row's path with the peers.
func (t Target) judge(r *Row, path string) Verdict {
	v := Verdict{Target: t, Measure: 1}
	value, known := t.Metric.summarise(r.Samples[path])
	if len(t.Peers) > 0 {
		best, all := r.best(t.Metric, t.Peers, t.AtLeast)
		v.Measure = best
		known = known && all && best > 0
	}
	if !known {
		return v
	}
	v.Known, v.Value = true, value.Value
	if t.AtLeast {
		v.Met = v.Value >= t.Factor*v.Measure
	} else {
		v.Met = v.Value <= t.Factor*v.Measure
	}
	return v
}

// best is the highest or lowest value of those paths that have one, 0 if none
// has; all says whether every one has.
func (r *Row) best(m Metric, paths []string, highest bool) (best float64, all bool) {
	var values []float64
	for _, p := range paths {
		if s, ok := m.summarise(r.Samples[p]); ok {
			values = append(values, s.Value)
		}
	}
	switch {
	case len(values) == 0:
		return 0, len(paths) == 0
	case highest:
		best = slices.Max(values)
	default:
		best = slices.Min(values)
	}
	return best, len(values) == len(paths)
}

// String is the target in words: "per s ≥ 1.05 × the better of HAProxy and nginx".
func (t Target) String() string {
	sign := "≤"
	if t.AtLeast {
		sign = "≥"
	}
	switch {
	case len(t.Peers) == 0:
		return fmt.Sprintf("%s %s %s", t.Metric, sign, t.Metric.Format(t.Factor))
	case t.Factor == 1:
		return fmt.Sprintf("%s %s that of %s", t.Metric, sign, better(t.Peers))
	default:
		return fmt.Sprintf("%s %s %s × that of %s", t.Metric, sign, strconv.FormatFloat(t.Factor, 'f', -1, 64), better(t.Peers))
	}
}

// outcome is what was measured, in the target's terms.
func (v Verdict) outcome() string {
	switch {
	case !v.Known:
		return "not measured"
	case len(v.Target.Peers) == 0:
		return v.Target.Metric.Format(v.Value)
	default:
		return fmt.Sprintf("%.2f ×", v.Value/v.Measure)
	}
}

// word is "met", "MISSED", or that it is not known.
func (v Verdict) word() string {
	switch {
	case !v.Known:
		return "?"
	case v.Met:
		return "met"
	default:
		return "MISSED"
	}
}

func better(peers []string) string {
	if len(peers) == 1 {
		return peers[0]
	}
	return "the better of " + listed(peers)
}
