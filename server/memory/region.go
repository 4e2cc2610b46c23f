package memory

import (
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
	"unsafe"
)

const (
	grainShift = 14
	grainSize  = 1 << grainShift // bytes: what the limit counts, and what large items are made of
	unitShift  = 3               // offsets in the index count units of 8 bytes
	maxRegion  = 1 << (offsetBits + unitShift)
)

// region is the reserved address space, several times larger than the limit. Its
// lower half consists of spans, all of one size, the upper one of runs of grains for
// large items. A large item that finds no run among the free grains takes fresh
// addresses, and as much memory is given back elsewhere.
type region struct {
	mem   []byte
	base  unsafe.Pointer
	owner []atomic.Uint32 // span id of each grain

	mu   sync.Mutex
	low  area // mu
	high area // mu

	usedN  atomic.Int64 // grains in use; written with mu
	dirtyN atomic.Int64 // grains that the system has given memory for; written with mu
	limitN atomic.Int64 // grains; written with mu
	slackN atomic.Int64 // headroom that eviction keeps; written with mu
	tight  atomic.Bool  // usedN is above limitN-slackN; written with mu
}

// area is a part of the region, cut into units of one size.
type area struct {
	first int // grain
	unit  int // grains
	units int
	used  bitmap // units that belong to a span
	dirty bitmap // units with memory; used implies dirty
	hint  int    // no free unit below
}

func newArea(first, unit, units int) area {
	a := area{first: first, unit: unit, units: units, used: make(bitmap, (units+63)/64), dirty: make(bitmap, (units+63)/64)}
	for i := units; i < len(a.used)*64; i++ {
		a.used.set(i)
	}
	return a
}

// find gives the first of n free units in a row; ok is false if there are none.
func (a *area) find(n int) (first int, ok bool) {
	first = a.used.nextZero(a.hint)
	a.hint = first
	for first+n <= a.units {
		end := min(a.used.nextOne(first), first+n)
		if end == first+n {
			return first, true
		}
		first = a.used.nextZero(end)
	}
	return 0, false
}

type bitmap []uint64

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
func (r *region) open(limit int64, span int) error {
	need := 2*uint64(limit) + uint64(limit)/4 + uint64(4*span)
	want := max(4*uint64(limit), 16<<30)
	if heapReserve {
		want = need
	}
	want = min(want, maxRegion)
	if need > want {
		return fmt.Errorf("memory limit of %d bytes is above the largest of %d", limit, int64(maxRegion)/5*2)
	}
	var err error
	for {
		n := want &^ uint64(2*span-1)
		if r.mem, err = reserve(n); err == nil {
			break
		}
		if want == need {
			return err
		}
		want = max(want/2, need)
	}
	r.base = basePointer(r.mem)
	grains := len(r.mem) >> grainShift
	r.owner = make([]atomic.Uint32, grains)
	unit := span >> grainShift
	r.low = newArea(0, unit, grains/2/unit)
	r.low.used.set(0) // offset 0 stands for nothing
	r.high = newArea(grains/2, 1, grains-grains/2)
	return nil
}

// roomFor is the largest limit that address space is reserved for.
func (r *region) roomFor() int64 { return int64(len(r.mem)) / 9 * 4 }

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
	r.slackN.Store(min(max(grains/64, min(grains/16, 128)), 4096))
	r.giveBackLocked()
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

// allocSpan takes a span's grains.
func (r *region) allocSpan(why demand) (first int, ok bool) { return r.alloc(&r.low, 1, why) }

// allocRun takes n grains in a row for a large item.
func (r *region) allocRun(n int, why demand) (first int, ok bool) { return r.alloc(&r.high, n, why) }

func (r *region) alloc(a *area, n int, why demand) (first int, ok bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	after := r.usedN.Load() + int64(n*a.unit)
	if why == normal && after > r.limitN.Load()-r.slackN.Load()/2 || why == moving && after > r.limitN.Load() {
		return 0, false
	}
	if first, ok = a.find(n); !ok {
		return 0, false
	}
	for i := first; i < first+n; i++ {
		a.used.set(i)
		if !a.dirty.has(i) {
			a.dirty.set(i)
			r.dirtyN.Add(int64(a.unit))
		}
	}
	r.usedN.Store(after)
	r.giveBackLocked()
	r.tightLocked()
	return a.first + first*a.unit, true
}

// free takes grains back.
func (r *region) free(first, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	a := &r.low
	if first >= r.high.first {
		a = &r.high
	}
	for i := first; i < first+n; i++ {
		r.owner[i].Store(0)
	}
	from := (first - a.first) / a.unit
	for i := from; i < from+n/a.unit; i++ {
		a.used.clear(i)
	}
	a.hint = min(a.hint, from)
	r.usedN.Add(int64(-n))
	r.giveBackLocked()
	r.tightLocked()
}

// trim returns a part of the free memory to the system when there is much of it, as
// after a flush_all or a table that is gone. What is left is used again without a fault.
func (r *region) trim() {
	r.mu.Lock()
	defer r.mu.Unlock()
	excess := r.dirtyN.Load() - r.usedN.Load() - r.limitN.Load()/16
	for _, a := range []*area{&r.high, &r.low} {
		if n := excess / 8 / int64(a.unit); n > 0 {
			r.giveBackFrom(a, n)
		}
	}
}

// giveBackLocked returns free memory to the system if there is more than the limit,
// that of large items first, and of high addresses first.
func (r *region) giveBackLocked() {
	for _, a := range []*area{&r.high, &r.low} {
		if n := r.dirtyN.Load() - r.limitN.Load(); n > 0 {
			r.giveBackFrom(a, (n+int64(a.unit)-1)/int64(a.unit))
		}
	}
}

func (r *region) giveBackFrom(a *area, n int64) {
	for w := len(a.used) - 1; w >= 0 && n > 0; w-- {
		for v := a.dirty[w] &^ a.used[w]; v != 0 && n > 0; {
			hi := 63 - bits.LeadingZeros64(v)
			lo := hi
			for lo > 0 && v>>(lo-1)&1 != 0 && int64(hi-lo+1) < n {
				lo--
			}
			for i := lo; i <= hi; i++ {
				v &^= 1 << i
				a.dirty[w] &^= 1 << i
			}
			from, to := a.first+(w<<6+lo)*a.unit, a.first+(w<<6+hi+1)*a.unit
			giveBack(r.mem[from<<grainShift : to<<grainShift])
			r.dirtyN.Add(int64(from - to))
			n -= int64(hi - lo + 1)
		}
	}
}

// at turns a byte offset into an address.
func (r *region) at(off uint64) unsafe.Pointer { return unsafe.Add(r.base, off) }
