package bench

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func durations(t *rapid.T, label string) []time.Duration {
	// Lengths of every magnitude: uniform ones would all lie in the top octave.
	one := rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(0, 1<<rapid.IntRange(0, 41).Draw(t, "bits")).Draw(t, "ns"))
	})
	return rapid.SliceOfN(one, 1, 300).Draw(t, label)
}

func recorded(list ...[]time.Duration) *Histogram {
	h := &Histogram{}
	for _, d := range slices.Concat(list...) {
		h.Record(d)
	}
	return h
}

// TestQuantiles: any quantile is the exact one or at most 1/128 above it, never below.
func TestQuantiles(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		list := durations(t, "durations")
		h := recorded(list)
		slices.Sort(list)
		q := rapid.OneOf(rapid.Float64Range(0, 1), rapid.SampledFrom([]float64{0, 0.5, 0.9, 0.99, 0.999, 1})).Draw(t, "q")
		exact := list[max(int(math.Ceil(q*float64(len(list))))-1, 0)]
		got := h.Quantile(q)
		if got < exact || float64(got) > float64(exact)*(1+1.0/128) {
			t.Fatalf("quantile %v of %v is %v, exactly %v", q, list, got, exact)
		}
		if h.Quantile(1) != list[len(list)-1] || h.Max() != list[len(list)-1] || h.Count() != uint64(len(list)) {
			t.Fatalf("max %v, count %d of %v", h.Max(), h.Count(), list)
		}
	})
}

// TestMerge: a merged Histogram is the one of all that was recorded.
func TestMerge(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a, b := durations(t, "a"), durations(t, "b")
		h := recorded(a)
		h.Merge(recorded(b))
		if *h != *recorded(a, b) {
			t.Fatalf("%v and %v", a, b)
		}
	})
}

// TestSteps: the distribution rises in both directions, ends at the slowest and agrees with Quantile.
func TestSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := recorded(durations(t, "durations"))
		steps := h.Steps()
		for i, s := range steps {
			if i > 0 && (s.Value <= steps[i-1].Value || s.Share <= steps[i-1].Share) {
				t.Fatalf("step %d of %v does not rise", i, steps)
			}
			if got := h.Quantile(s.Share - 1e-9); got != s.Value {
				t.Fatalf("the share %v is at %v, the quantile at %v", s.Share, s.Value, got)
			}
		}
		if last := steps[len(steps)-1]; last.Share != 1 || last.Value != h.Max() {
			t.Fatalf("the last step is %v", last)
		}
	})
}

// TestBuckets: every bucket's end is its own, and the next nanosecond belongs to the next one.
func TestBuckets(t *testing.T) {
	for i := range histogram - 1 {
		if bucket(top(i)) != i || bucket(top(i)+1) != i+1 {
			t.Fatalf("bucket %d ends at %d, which is in %d; the next is in %d", i, top(i), bucket(top(i)), bucket(top(i)+1))
		}
	}
	if h := recorded([]time.Duration{-5, math.MaxInt64}); h.Quantile(0.5) != 0 || h.Quantile(1) != math.MaxInt64 {
		t.Errorf("out of range: %v, %v", h.Quantile(0.5), h.Quantile(1))
	}
}
