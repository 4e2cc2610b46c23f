package memory

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	grainShift = 16
	grainSize  = 1 << grainShift // bytes: what spans are made of, and what the limit counts
	unitShift  = 3               // offsets in the index count units of 8 bytes
	maxRegion  = 1 << (offsetBits + unitShift)
)

// region is the reserved address space. It is several times larger than the limit:
// a large item that finds no run of free grains among the used ones takes fresh
// addresses, and as many grains as it needs are given back elsewhere.
type region struct {
	mem    []byte
	base   unsafe.Pointer
	grains int
	owner  []atomic.Uint32 // span id of each grain

	mu    sync.Mutex
	used  bitmap // grains that belong to a span; mu
	dirty bitmap // grains that the system has given memory for; used implies dirty; mu
	hint  int    // no free grain below; mu

	usedN  atomic.Int64 // written with mu
	dirtyN atomic.Int64 // written with mu
	limitN atomic.Int64 // grains; written with mu
	slackN atomic.Int64 // headroom that eviction keeps; written with mu
	tight  atomic.Bool  // usedN is above limitN-slackN; written with mu
}

type bitmap []uint64

func newBitmap(n int) bitmap        { return make(bitmap, (n+63)/64) }
func (b bitmap) has(i int) bool     { return b[i>>6]>>(i&63)&1 != 0 }
func (b bitmap) set(i int)          { b[i>>6] |= 1 << (i & 63) }
func (b bitmap) clear(i int)        { b[i>>6] &^= 1 << (i & 63) }
func (b bitmap) nextZero(i int) int { return b.next(i, ^uint64(0)) }
func (b bitmap) nextOne(i int) int  { return b.next(i, 0) }

// next finds the first bit at or after i that is 1 after flip; len*64 if none.
func (b bitmap) next(i int, flip uint64) int {
	for w := i >> 6; w < len(b); w++ {
		v := b[w] ^ flip
		if w == i>>6 {
			v &= ^uint64(0) << (i & 63)
		}
		if v != 0 {
			return w<<6 + bits.TrailingZeros64(v)
		}
	}
	return len(b) << 6
}

// open reserves address space for limit bytes, four times as much where the
// system lets it.
func (r *region) open(limit int64) error {
	need := uint64(limit) + uint64(limit)/4 + 64*grainSize
	want := max(4*uint64(limit), 16<<30)
	if heapReserve {
		want = 2 * need
	}
	want = min(want, maxRegion)
	if need > want {
		return fmt.Errorf("memory limit of %d bytes is above the largest of %d", limit, int64(maxRegion)/5*4)
	}
	var err error
	for {
		n := want &^ (grainSize - 1)
		if r.mem, err = reserve(n); err == nil {
			break
		}
		if want == need {
			return err
		}
		want = max(want/2, need)
	}
	r.base = basePointer(r.mem)
	r.grains = len(r.mem) >> grainShift
	r.owner = make([]atomic.Uint32, r.grains)
	r.used, r.dirty = newBitmap(r.grains), newBitmap(r.grains)
	r.used.set(0) // offset 0 stands for nothing
	for i := r.grains; i < len(r.used)*64; i++ {
		r.used.set(i)
	}
	return nil
}

func (r *region) close() error {
	if r.mem == nil {
		return nil
	}
	err := unreserve(r.mem)
	r.mem, r.base = nil, nil
	return err
}

// setLimit changes how many grains may be used at once.
func (r *region) setLimit(grains int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.limitN.Store(grains)
	r.slackN.Store(min(max(grains/64, min(grains/16, 32)), 1024))
	r.giveBackLocked(r.dirtyN.Load() - grains)
	r.tightLocked()
}

func (r *region) tightLocked() {
	r.tight.Store(r.usedN.Load() > r.limitN.Load()-r.slackN.Load())
}

// demand says how near to the limit an allocation may go.
type demand uint8

const (
	normal demand = iota
	moving        // may use what is kept for moving items, which frees more than it takes
	forced        // may exceed the limit
)

// alloc takes n grains in a row.
func (r *region) alloc(n int, why demand) (first int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := r.usedN.Load() + int64(n)
	if why == normal && after > r.limitN.Load()-r.slackN.Load()/2 || why == moving && after > r.limitN.Load() {
		return 0, false
	}
	first = r.used.nextZero(r.hint)
	r.hint = first
	for {
		if first+n > r.grains {
			return 0, false
		}
		end := min(r.used.nextOne(first), first+n)
		if end == first+n {
			break
		}
		first = r.used.nextZero(end)
	}
	fresh := int64(0)
	for i := first; i < first+n; i++ {
		r.used.set(i)
		if !r.dirty.has(i) {
			r.dirty.set(i)
			fresh++
		}
	}
	r.usedN.Add(int64(n))
	r.dirtyN.Add(fresh)
	if fresh > 0 {
		r.giveBackLocked(r.dirtyN.Load() - r.limitN.Load())
	}
	r.tightLocked()
	return first, true
}

func (r *region) free(first, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := first; i < first+n; i++ {
		r.used.clear(i)
		r.owner[i].Store(0)
	}
	r.hint = min(r.hint, first)
	r.usedN.Add(int64(-n))
	r.giveBackLocked(r.dirtyN.Load() - r.limitN.Load())
	r.tightLocked()
}

// giveBackLocked returns the memory of n free grains to the system, the highest first.
func (r *region) giveBackLocked(n int64) {
	for w := len(r.used) - 1; w >= 0 && n > 0; w-- {
		for v := r.dirty[w] &^ r.used[w]; v != 0 && n > 0; {
			hi := 63 - bits.LeadingZeros64(v)
			lo := hi
			for lo > 0 && v>>(lo-1)&1 != 0 && int64(hi-lo+1) < n {
				lo--
			}
			for i := lo; i <= hi; i++ {
				v &^= 1 << i
				r.dirty[w] &^= 1 << i
			}
			from, to := (w<<6+lo)<<grainShift, (w<<6+hi+1)<<grainShift
			giveBack(r.mem[from:to])
			r.dirtyN.Add(int64(-(hi - lo + 1)))
			n -= int64(hi - lo + 1)
		}
	}
}

// at turns a byte offset into an address.
func (r *region) at(off uint64) unsafe.Pointer { return unsafe.Add(r.base, off) }
