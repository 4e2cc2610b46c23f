//go:build unix

package memory

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"syscall"
	"testing"
	"time"
)

const benchItems = 1 << 20

// cpu reports the processor time of each operation: on a machine with other work
// the time that passes says nothing.
func cpu(b *testing.B) func() {
	used := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := used()
	return func() { b.ReportMetric(float64(used()-start)/float64(b.N), "cpu-ns/op") }
}

func benchKey(key []byte, n uint64) []byte {
	const digits = "0123456789abcdef"
	for i := 23; i >= 8; i-- {
		key[i] = digits[n&15]
		n >>= 4
	}
	return key
}

func newBenchKey() []byte { return []byte("bench:k:................") }

// benchStore is filled with a million items of 24-byte keys and 100-byte values.
func benchStore(b *testing.B) *Store {
	s, err := New(Options{Limit: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { s.Close() })
	c := s.NewSession()
	defer c.Close()
	key, value := newBenchKey(), make([]byte, 100)
	for n := range uint64(benchItems) {
		d, err := c.Reserve(benchKey(key, n), 0, 0, len(value))
		if err != nil {
			b.Fatal(err)
		}
		copy(d.Data(), value)
		c.Store(d, Set, 0)
	}
	return s
}

// benchKeys are random keys out of those stored, prepared so that only the store is measured.
func benchKeys(n int) [][]byte {
	r := rand.New(rand.NewPCG(1, 2))
	all := make([]byte, 24*n)
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = all[24*i : 24*i+24]
		copy(keys[i], "bench:k:")
		benchKey(keys[i], r.Uint64N(benchItems))
	}
	return keys
}

func BenchmarkGet(b *testing.B) {
	s := benchStore(b)
	c := s.NewSession()
	defer c.Close()
	keys := benchKeys(1 << 16)
	sum := 0
	run := func(b *testing.B, group int, get func(keys [][]byte)) {
		defer cpu(b)()
		for i := 0; i < b.N; i += group {
			at := i & (1<<16 - 1)
			c.Begin()
			get(keys[at:min(at+group, 1<<16)])
			c.End()
			c.Release()
		}
	}
	one := func(keys [][]byte) {
		for _, k := range keys {
			sum += len(c.Get(k).Wire())
		}
	}
	b.Run("hit/1", func(b *testing.B) { run(b, 1, one) })
	b.Run("hit/16", func(b *testing.B) { run(b, 16, one) })
	items := make([]Item, 64)
	all := func(keys [][]byte) {
		c.GetAll(keys, items)
		for i := range keys {
			sum += len(items[i].Wire())
		}
	}
	b.Run("hit/all/1", func(b *testing.B) { run(b, 1, all) })
	b.Run("hit/all/16", func(b *testing.B) { run(b, 16, all) })
	b.Run("hit/all/64", func(b *testing.B) { run(b, 64, all) })
	b.Run("hit/hot", func(b *testing.B) {
		defer cpu(b)()
		c.Begin()
		for i := range b.N {
			sum += len(c.Get(keys[i&15]).Wire())
		}
		c.Release()
	})
	b.Run("miss", func(b *testing.B) {
		defer cpu(b)()
		key := newBenchKey()
		for i := range b.N {
			c.Begin()
			if c.Get(benchKey(key, uint64(i)|1<<40)).OK() {
				b.Fatal("hit")
			}
			c.Release()
		}
	})
	b.Run("begin end", func(b *testing.B) {
		defer cpu(b)()
		for range b.N {
			c.Begin()
			c.End()
			c.Release()
		}
	})
	b.Run("hash", func(b *testing.B) {
		defer cpu(b)()
		for i := range b.N {
			sum += int(s.seeds.sum(keys[i&1023]))
		}
	})
}

func BenchmarkSet(b *testing.B) {
	s := benchStore(b)
	c := s.NewSession()
	defer c.Close()
	keys := benchKeys(1 << 16)
	value := make([]byte, 100)
	set := func(k []byte) {
		d, err := c.Reserve(k, 0, 0, len(value))
		if err != nil {
			b.Fatal(err)
		}
		copy(d.Data(), value)
		c.Store(d, Set, 0)
	}
	b.Run("replace", func(b *testing.B) {
		defer cpu(b)()
		for i := range b.N {
			set(keys[i&(1<<16-1)])
		}
	})
	b.Run("hot", func(b *testing.B) {
		defer cpu(b)()
		for i := range b.N {
			set(keys[i&15])
		}
	})
	b.Run("new, evicting", func(b *testing.B) {
		defer cpu(b)()
		if err := s.SetLimit(128 << 20); err != nil {
			b.Fatal(err)
		}
		key := newBenchKey()
		for i := range b.N {
			set(benchKey(key, uint64(i)|1<<41))
		}
	})
}

func BenchmarkPublish(b *testing.B) {
	s := benchStore(b)
	sp, err := s.NewSpace("t")
	if err != nil {
		b.Fatal(err)
	}
	s.OpenSpace(sp)
	keys := benchKeys(1 << 16)
	for _, k := range keys {
		k[0] = 'r'
	}
	value := make([]byte, 100)
	for _, size := range []int{1, 10, 1000} {
		b.Run(map[int]string{1: "1", 10: "10", 1000: "1000"}[size], func(b *testing.B) {
			defer cpu(b)()
			batch := s.NewBatch()
			defer batch.Close()
			for i := range b.N {
				if err := batch.Put(sp, keys[i&(1<<16-1)], value, 0, 0, 0); err != nil {
					b.Fatal(err)
				}
				if batch.Len() == size {
					batch.Publish()
				}
			}
		})
	}
}

// BenchmarkNaive is what one would write first: a map and a lock.
func BenchmarkNaive(b *testing.B) {
	type item struct{ value []byte }
	var mu sync.RWMutex
	items := map[string]*item{}
	key := newBenchKey()
	for n := range uint64(benchItems) {
		items[string(benchKey(key, n))] = &item{value: make([]byte, 100)}
	}
	keys := benchKeys(1 << 16)
	sum := 0
	b.Run("get", func(b *testing.B) {
		defer cpu(b)()
		for i := range b.N {
			mu.RLock()
			sum += len(items[string(keys[i&(1<<16-1)])].value)
			mu.RUnlock()
		}
	})
	b.Run("set", func(b *testing.B) {
		defer cpu(b)()
		value := make([]byte, 100)
		for i := range b.N {
			mu.Lock()
			items[string(keys[i&(1<<16-1)])] = &item{value: bytes.Clone(value)}
			mu.Unlock()
		}
	})
}
