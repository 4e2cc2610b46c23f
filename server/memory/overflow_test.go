package memory

import (
	"fmt"
	"sync"
	"testing"
)

// TestRemovalHidesNothing looks up keys that are there while others, which had crowded them out of their lines of the index,
// are removed: what a removal pulls back must be found all the while.
func TestRemovalHidesNothing(t *testing.T) {
	s := newStore(t, Options{Limit: 64 << 20})
	w, c := newSession(t, s), newSession(t, s)
	g := &s.segments[0]
	misses, overflowed := 0, 0
	for round, n := 0, 0; round < 500; round++ {
		// All in one segment, so that the lookups are where the removals are.
		var first, last [][]byte
		for ; ; n++ {
			key := fmt.Appendf(nil, "key:%d", n)
			if s.seeds.sum(key)>>s.segmentShift != 0 {
				continue
			}
			lines := int64(g.desc.Load() & tagMask)
			if lines >= 24 && g.count.load() >= lines*fillWords-1 {
				break // one more would let the segment grow
			}
			if store(t, w, string(key), "x", 0, 0); len(first) < 80 {
				first = append(first, key)
			} else {
				last = append(last, key)
			}
		}
		base, lines := s.lines(g.desc.Load())
		for i := range lines * lineWords {
			if word := *wordAt(base, 0, int(i)); word != 0 && home(word>>offsetBits, lines) != i/lineWords {
				overflowed++
			}
		}
		done := make(chan struct{})
		var wg sync.WaitGroup
		wg.Go(func() {
			defer close(done)
			for _, key := range first {
				w.Delete(key, 0)
			}
		})
		for running := true; running; {
			select {
			case <-done:
				running = false
			default:
			}
			c.Begin()
			for _, key := range last {
				if !c.Get(key).OK() {
					misses++
				}
			}
			c.Release()
		}
		wg.Wait()
		for _, key := range last {
			w.Delete(key, 0)
		}
	}
	t.Logf("%d words were beyond their lines", overflowed)
	if misses > 0 || overflowed == 0 {
		t.Errorf("%d misses of keys that are there", misses)
	}
}
