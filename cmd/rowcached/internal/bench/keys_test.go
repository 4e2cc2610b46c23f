package bench

import (
	"bytes"
	"fmt"
	"math"
	"testing"
)

func space(t testing.TB, change func(*Spec)) (*keyspace, *Spec) {
	t.Helper()
	s := DefaultSpec()
	change(&s)
	k, err := newKeyspace(&s)
	if err != nil {
		t.Fatal(err)
	}
	k.fill()
	return k, &s
}

func TestKeys(t *testing.T) {
	for _, tc := range []struct {
		template string
		number   uint32
		want     string
	}{
		{"bench:{n:18}", 0, "bench:000000000000000001"},
		{"bench:{n:18}", 4_999_999, "bench:000000000005000000"},
		{"{n}", 9, "10"},
		{"users:{n}:x", 41, "users:42:x"},
		{"{n:60}", 1, fmt.Sprintf("%060d", 2)},
	} {
		k, _ := space(t, func(s *Spec) { s.Key = tc.template })
		if got := string(k.appendKey(nil, tc.number)); got != tc.want {
			t.Errorf("%s, number %d: %s", tc.template, tc.number, got)
		}
	}
	for _, template := range []string{"bench", "{n", "{n:}", "{n:x}", "{n:2}", "a {n}", "{n:251}", "{nn}"} {
		s := DefaultSpec()
		s.Key = template
		if _, err := newKeyspace(&s); err == nil {
			t.Errorf("%q was taken", template)
		}
	}
}

// TestValues: a key's value is always the same, of the size asked for, and hardly ever another key's.
func TestValues(t *testing.T) {
	k, _ := space(t, func(s *Spec) { s.ValueMin, s.ValueMax = 64, 80 })
	sizes, others := map[int]int{}, map[string]int{}
	for n := range uint32(2000) {
		v := k.value(n)
		if len(v) != k.size(n) || !bytes.Equal(v, k.value(n)) {
			t.Fatalf("the value of %d changes", n)
		}
		sizes[len(v)]++
		others[string(v[:64])]++
	}
	if len(sizes) != 17 || len(others) < 1900 {
		t.Errorf("%d sizes, %d different values of 2000", len(sizes), len(others))
	}
}

// TestZipf compares how often each rank comes with what the law says, for exponents on both sides of 1 and 1 itself.
func TestZipf(t *testing.T) {
	const n, draws = 50, 200_000
	for _, exponent := range []float64{0.5, 0.99, 1, 1.5} {
		c := newChooser(&Spec{Keys: n, Distribution: Zipf, Exponent: exponent, Seed: 7}, 0)
		var counts [n + 1]int
		for range draws {
			counts[c.ranks.rank(c.rng)]++
		}
		sum := 0.0
		for k := 1; k <= n; k++ {
			sum += math.Pow(float64(k), -exponent)
		}
		chi := 0.0
		for k := 1; k <= n; k++ {
			want := draws * math.Pow(float64(k), -exponent) / sum
			chi += (float64(counts[k]) - want) * (float64(counts[k]) - want) / want
		}
		// 49 degrees of freedom: 100 is beyond one in 10,000; the seed is fixed.
		if chi > 100 {
			t.Errorf("exponent %v: chi squared %.0f, %v", exponent, chi, counts)
		}
	}
}

// TestChooser: both distributions reach every key and none else.
func TestChooser(t *testing.T) {
	for _, distribution := range []string{Uniform, Zipf} {
		for _, n := range []int{1, 2, 7, 100} {
			c := newChooser(&Spec{Keys: n, Distribution: distribution, Exponent: 0.5, Seed: 3}, 1)
			seen := map[uint32]bool{}
			for range 200 * n {
				seen[c.next()] = true
			}
			for k := range uint32(n) {
				if !seen[k] {
					t.Errorf("%s of %d never chose %d", distribution, n, k)
				}
			}
			if len(seen) != n {
				t.Errorf("%s of %d chose %v", distribution, n, seen)
			}
		}
	}
}
