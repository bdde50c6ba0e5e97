package load

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
)

func TestHistogram_quantiles(t *testing.T) {
	t.Parallel()
	var h Histogram
	assert.Zero(t, h.Quantile(0.5), "of none")

	random := rand.New(rand.NewPCG(1, 2))
	var all []time.Duration
	for range 10_000 {
		d := time.Duration(random.ExpFloat64() * float64(50*time.Microsecond))
		all = append(all, d)
		h.Add(d)
	}
	slices.Sort(all)
	for _, q := range []float64{0, 0.01, 0.5, 0.99, 0.999, 1} {
		exact := all[int(q*float64(len(all)-1))]
		assert.InDelta(t, float64(exact), float64(h.Quantile(q)), float64(exact)/100+1, "quantile %v", q)
	}
	assert.EqualValues(t, 10_000, h.Count())
}

func TestHistogram_extremes(t *testing.T) {
	t.Parallel()
	var h Histogram
	h.Add(-time.Second)
	assert.Zero(t, h.Quantile(1))
	h.Add(1<<63 - 1)
	assert.InEpsilon(t, float64(1<<63-1), float64(h.Quantile(1)), 0.01)
	for i := range 63 {
		for _, v := range []uint64{1<<i - 1, 1 << i, 1<<i + 1} {
			assert.InDelta(t, float64(v), float64(middle(bucket(v))), float64(v)/128+1, "%d", v)
		}
	}
}

func TestHistogram_merge(t *testing.T) {
	t.Parallel()
	var a, b, both Histogram
	for i := range 1000 {
		d := time.Duration(i*i) * time.Nanosecond
		both.Add(d)
		if i%3 == 0 {
			a.Add(d)
		} else {
			b.Add(d)
		}
	}
	a.Merge(&b)
	assert.Equal(t, both, a)
}
