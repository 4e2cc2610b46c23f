package memory

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// pinTable counts the pins of items that have more than fit in their header:
// thousands of slow readers of one hot item.
type pinTable struct {
	mu     sync.Mutex
	counts map[unsafe.Pointer]int64 // all pins of an item whose field is pinMax; mu
}

// add pins the item at meta word p, whose field is about to be full or is.
func (t *pinTable) add(item unsafe.Pointer, p *uint32) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for {
		m := atomic.LoadUint32(p)
		switch n := metaPins(m); {
		case n == pinMax:
			t.counts[item]++
			return
		case n == pinMax-1:
			if atomic.CompareAndSwapUint32(p, m, m+metaPin) {
				if t.counts == nil {
					t.counts = map[unsafe.Pointer]int64{}
				}
				t.counts[item] = pinMax
				return
			}
		default:
			if atomic.CompareAndSwapUint32(p, m, m+metaPin) {
				return
			}
		}
	}
}

// sub takes a pin back; false if the count is in the header again. It goes back
// there at half of what fits, so that it does not swing.
func (t *pinTable) sub(item unsafe.Pointer, p *uint32) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	n, ok := t.counts[item]
	if !ok {
		return false
	}
	n--
	t.counts[item] = n
	if n <= pinMax/2 {
		delete(t.counts, item)
		for {
			m := atomic.LoadUint32(p)
			if atomic.CompareAndSwapUint32(p, m, m&(metaPin-1)|uint32(n)*metaPin) {
				break
			}
		}
	}
	return true
}
