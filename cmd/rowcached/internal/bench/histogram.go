package bench

import (
	"math"
	"math/bits"
	"time"
)

const (
	subBits   = 7 // a bucket is 1/128 of its octave: no quantile is off by more than 0.8 %
	subCount  = 1 << subBits
	octaves   = 42 - subBits // up to an hour in nanoseconds
	histogram = (octaves + 1) * subCount
)

// A Histogram counts durations in buckets of equal relative width, from a nanosecond to an hour; its size does not depend
// on what it holds. The zero value is empty.
type Histogram struct {
	counts [histogram]uint64
	n      uint64
	max    uint64 // nanoseconds, exact
}

// Record counts one duration; one below zero counts as zero, one above the range in the last bucket.
func (h *Histogram) Record(d time.Duration) {
	v := uint64(max(d, 0))
	h.counts[bucket(v)]++
	h.n++
	h.max = max(h.max, v)
}

// bucket is the place of a value: values below subCount have one each, and so on with as many for each octave.
func bucket(v uint64) int {
	if v < subCount {
		return int(v)
	}
	e := bits.Len64(v) - subBits - 1
	return min(e*subCount+int(v>>e), histogram-1)
}

// top is the largest value that a bucket holds.
func top(bucket int) uint64 {
	if bucket < subCount {
		return uint64(bucket)
	}
	e := bucket/subCount - 1
	return uint64(bucket-e*subCount+1)<<e - 1
}

// Merge adds what another Histogram has counted.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.n += o.n
	h.max = max(h.max, o.max)
}

// Count is how many durations were recorded.
func (h *Histogram) Count() uint64 { return h.n }

// Max is the longest duration recorded, exactly.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max) }

// Quantile is the smallest duration that a share q (0 to 1) of those recorded does not exceed, at most 0.8 % too high;
// 0 of an empty Histogram.
func (h *Histogram) Quantile(q float64) time.Duration {
	rank := uint64(math.Ceil(q * float64(h.n)))
	var seen uint64
	for i, n := range h.counts {
		if seen += n; n > 0 && seen >= rank {
			if i == histogram-1 {
				break
			}
			return time.Duration(min(top(i), h.max))
		}
	}
	return h.Max()
}

// A Step is a point of a Histogram's distribution.
type Step struct {
	Value time.Duration // the bucket's end
	Share float64       // of all that were recorded, those up to Value
}

// Steps gives the distribution at every bucket that holds something, in rising order.
func (h *Histogram) Steps() []Step {
	var list []Step
	var seen uint64
	for i, n := range h.counts {
		if n == 0 {
			continue
		}
		seen += n
		v := min(top(i), h.max)
		if i == histogram-1 {
			v = h.max
		}
		list = append(list, Step{time.Duration(v), float64(seen) / float64(h.n)})
	}
	return list
}
