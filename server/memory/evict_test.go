package memory

import (
	"container/list"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"sort"
	"strconv"
	"strings"
	"testing"
)

// zipf draws from 0..n-1 with a skew below or above 1.
type zipf struct {
	r    *rand.Rand
	cumu []float64
}

func newZipf(r *rand.Rand, n int, skew float64) *zipf {
	z := &zipf{r: r, cumu: make([]float64, n)}
	sum := 0.0
	for i := range z.cumu {
		sum += 1 / math.Pow(float64(i+1), skew)
		z.cumu[i] = sum
	}
	return z
}

func (z *zipf) next() int {
	return sort.SearchFloat64s(z.cumu, z.r.Float64()*z.cumu[len(z.cumu)-1])
}

// lru is the naive sibling: exact, by number of items.
type lru struct {
	max   int
	order *list.List
	at    map[int]*list.Element
}

func (l *lru) get(key int) bool {
	if e := l.at[key]; e != nil {
		l.order.MoveToFront(e)
		return true
	}
	if l.order.Len() >= l.max {
		last := l.order.Back()
		delete(l.at, last.Value.(int))
		l.order.Remove(last)
	}
	l.at[key] = l.order.PushFront(key)
	return false
}

// hitRatio runs a workload with fill on miss.
func hitRatio(t testing.TB, s *Store, next func() int, n int) float64 {
	c := s.NewSession()
	defer c.Close()
	value := make([]byte, 100)
	key := make([]byte, 24)
	copy(key, "key:0123456789abcdef")
	hits := 0
	for i := range n {
		binary.BigEndian.PutUint64(key[16:], uint64(next())+1<<60)
		c.Begin()
		hit := c.Get(key).OK()
		c.End()
		if !hit {
			d, err := c.Reserve(key, 0, 0, len(value))
			if err != nil {
				t.Fatal(err)
			}
			copy(d.Data(), value)
			if _, r := c.Store(d, Set, 0); r != Stored {
				t.Fatal(r)
			}
		} else if i > n/3 {
			hits++
		}
		c.Release()
	}
	return float64(hits) / float64(n-n/3)
}

// TestHitRatio compares eviction with an exact LRU that holds as many items.
func TestHitRatio(t *testing.T) {
	keys, gets := 400_000, 1_500_000
	if testing.Short() || heapReserve {
		keys, gets = 200_000, 300_000
	}
	limit := int64(8 << 20)
	workloads := []struct {
		name string
		make func(r *rand.Rand) func() int
		// least is by how much the ratio may fall short of LRU's.
		least float64
	}{
		{"zipf 0.99", func(r *rand.Rand) func() int { return newZipf(r, keys, 0.99).next }, 0.01},
		{"zipf 0.8", func(r *rand.Rand) func() int { return newZipf(r, keys, 0.8).next }, 0.02},
		{"zipf 0.6", func(r *rand.Rand) func() int { return newZipf(r, keys, 0.6).next }, 0.02},
		{"zipf 1.2", func(r *rand.Rand) func() int { return newZipf(r, keys, 1.2).next }, 0},
		{"zipf 0.9, a third read once", func(r *rand.Rand) func() int {
			z, once := newZipf(r, keys, 0.9), keys
			return func() int {
				if r.IntN(3) == 0 {
					once++
					return once
				}
				return z.next()
			}
		}, 0.02},
		{"zipf 0.9 with scans", func(r *rand.Rand) func() int {
			z, scan := newZipf(r, keys, 0.9), 0
			return func() int {
				if r.IntN(50_000) == 0 {
					scan = 20_000
				}
				if scan > 0 {
					scan--
					return keys + scan
				}
				return z.next()
			}
		}, 0.01},
		{"zipf 0.9, popularity moves", func(r *rand.Rand) func() int {
			z, at := newZipf(r, keys, 0.9), 0
			return func() int {
				at++
				return (z.next() + at/200) % keys
			}
		}, -0.03},
	}
	var out strings.Builder
	for n, w := range workloads {
		s := newStore(t, Options{Limit: limit})
		got := hitRatio(t, s, w.make(rand.New(rand.NewPCG(7, uint64(n)))), gets)
		l := &lru{int(s.Stats().Items), list.New(), map[int]*list.Element{}}
		next, hits := w.make(rand.New(rand.NewPCG(7, uint64(n)))), 0
		for i := range gets {
			if l.get(next()) && i > gets/3 {
				hits++
			}
		}
		want := float64(hits) / float64(gets-gets/3)
		fmt.Fprintf(&out, "%-30s %6d items: hit ratio %.4f, LRU %.4f, misses %.3f of LRU's\n", w.name, l.max, got, want, (1-got)/(1-want))
		if !heapReserve && !testing.Short() && got < want+w.least {
			t.Errorf("%s: hit ratio %.4f, LRU has %.4f; wanted %+.2f", w.name, got, want, w.least)
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("\n%s", out.String())
}

// residentBytes is the memory of this process; 0 where the system does not tell.
func residentBytes() int64 {
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	f := strings.Fields(string(b))
	n, err := strconv.ParseInt(f[1], 10, 64)
	if err != nil {
		return 0
	}
	return n * int64(os.Getpagesize())
}

// TestDrift lets the sizes of values drift from 100 bytes to 4 KB over ten times the
// limit: the memory must follow, whatever it was cut into.
func TestDrift(t *testing.T) {
	limit := int64(64 << 20)
	if heapReserve {
		limit = 16 << 20
	}
	for _, readers := range []bool{false, true} {
		t.Run(fmt.Sprintf("read %v", readers), func(t *testing.T) {
			before := residentBytes()
			s := newStore(t, Options{Limit: limit})
			c := newSession(t, s)
			r := rand.New(rand.NewPCG(1, 2))
			var peak, resident int64
			total, n := int64(0), 0
			for total < 10*limit {
				size := 100 + int(float64(3996)*float64(total)/float64(10*limit))
				size += r.IntN(size/5+1) - size/10
				d, err := c.Reserve(fmt.Appendf(nil, "key:%d", n), 0, 0, size)
				if err != nil {
					t.Fatalf("after %d bytes, value of %d: %v", total, size, err)
				}
				if _, res := c.Store(d, Set, 0); res != Stored {
					t.Fatal(res)
				}
				total += int64(size)
				n++
				if readers && r.IntN(2) == 0 {
					c.Begin()
					c.Get(fmt.Appendf(nil, "key:%d", n-1-r.IntN(min(n, 5000))))
					c.Release()
				}
				if n%10000 == 0 {
					peak = max(peak, s.Stats().Bytes)
					resident = max(resident, residentBytes()-before)
				}
			}
			st := s.Stats()
			t.Logf("%d items stored, %d left of %d bytes; used %d, peak %d, resident %d of %d; moved %d, evicted %d", n, st.Items, st.ItemBytes,
				st.Bytes, peak, resident, limit, st.Moved, st.Evictions)
			if peak > limit {
				t.Errorf("%d bytes used of %d", peak, limit)
			}
			if !heapReserve && resident > limit+limit/16+8<<20 {
				t.Errorf("%d bytes resident, the limit is %d", resident, limit)
			}
			if st.ItemBytes < limit*3/4 {
				t.Errorf("items take %d bytes of %d: the rest is lost to fragmentation", st.ItemBytes, limit)
			}
		})
	}
}
