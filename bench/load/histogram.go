package load

import (
	"math/bits"
	"time"
)

// subBits is the number of bits below the first one that a Histogram keeps: a
// time is known to 1 part in 128.
const subBits = 7

// Histogram counts durations in buckets whose width grows with the duration, so
// that it takes the same 57 KB however many there are. The zero value is ready.
type Histogram struct {
	counts [(64 - subBits) << subBits]uint64
	n      uint64
	max    time.Duration
}

// Add counts one duration. One below 0 counts as 0.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.n++
	h.max = max(h.max, d)
}

// Merge adds what other has counted.
func (h *Histogram) Merge(other *Histogram) {
	for i := range h.counts {
		h.counts[i] += other.counts[i]
	}
	h.n += other.n
	h.max = max(h.max, other.max)
}

// Count is how many durations were added.
func (h *Histogram) Count() uint64 { return h.n }

// Quantile is the duration that a part q, 0 to 1, of all are no longer than; 0
// if there are none. It is off by less than 1 %.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.n == 0 {
		return 0
	}
	left := uint64(q * float64(h.n-1))
	for i := range h.counts {
		if left < h.counts[i] {
			return min(middle(i), h.max)
		}
		left -= h.counts[i]
	}
	return h.max
}

// bucket is where v is counted: values below 1<<subBits have a bucket each, and
// every further power of two is cut into 1<<subBits.
func bucket(v uint64) int {
	if v < 1<<subBits {
		return int(v)
	}
	shift := bits.Len64(v) - subBits - 1
	return shift<<subBits + int(v>>shift)
}

// middle is the value in the middle of a bucket.
func middle(i int) time.Duration {
	if i < 1<<subBits {
		return time.Duration(i)
	}
	shift := i>>subBits - 1
	low := uint64(i-shift<<subBits) << shift
	return time.Duration(low + 1<<shift/2)
}
