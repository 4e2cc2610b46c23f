package bench

import (
	"math"
	"math/rand/v2"
)

// zipf draws ranks 1..n of which rank k comes with a probability in proportion to k^-s, for any s > 0, in constant time
// and without a table. (math/rand's own wants s > 1; loads of caches are found a little below it.)
//
// The naive way, a table of sums and a binary search, takes n numbers of memory and a cache miss per step. Here the area
// under the continuous curve x^-s between 1/2 and n+1/2 is inverted instead: the x found is rounded to the nearest rank,
// and the draw is repeated where the curve's area over [k-1/2, k+1/2] is larger than k^-s. The curve is convex, so it never
// is smaller, and a repetition is rare (rejection-inversion, Hoermann and Derflinger 1996).
type zipf struct {
	n        float64
	s        float64
	low, top float64 // the area's ends: low belongs to rank 1, whose bar is cut to its height
	sure     float64 // an x that is closer to its rank than this needs no test
}

func newZipf(n int, s float64) *zipf {
	z := &zipf{n: float64(n), s: s}
	z.low = z.area(1.5) - 1
	z.top = z.area(z.n + 0.5)
	z.sure = 2 - z.inverse(z.area(2.5)-math.Pow(2, -s))
	return z
}

// area is the integral of x^-s from 1 to x.
func (z *zipf) area(x float64) float64 {
	if e := 1 - z.s; math.Abs(e) > 1e-9 {
		return math.Expm1(e*math.Log(x)) / e
	}
	return math.Log(x)
}

// inverse is area's inverse.
func (z *zipf) inverse(a float64) float64 {
	if e := 1 - z.s; math.Abs(e) > 1e-9 {
		return math.Exp(math.Log1p(max(a*e, -1)) / e)
	}
	return math.Exp(a)
}

func (z *zipf) rank(rng *rand.PCG) int {
	for {
		u := float64(rng.Uint64()>>11) / (1 << 53)
		a := z.low + u*(z.top-z.low)
		x := z.inverse(a)
		k := min(max(math.Round(x), 1), z.n)
		if k-x <= z.sure || a >= z.area(k+0.5)-math.Pow(k, -z.s) {
			return int(k)
		}
	}
}
