package memory

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// kind says what the slots of a span hold. Kinds do not mix in a span, so that
// eviction never meets an item that it must not take.
type kind uint8

const (
	kindYoung  kind = iota // unmapped items since they were stored
	kindOld                // unmapped items that were read again
	kindMapped             // rows
	kindIndex              // the lines of a segment
	kinds
)

func (k kind) evictable() bool { return k <= kindOld }

// span is a run of grains cut into slots of one class, or one large item. The
// struct is new for every run, so a stale pointer finds dead set, never another's data.
type span struct {
	id     uint32
	first  int // grain
	grains int
	base   uint64 // byte offset
	size   uint32 // bytes of a slot
	slots  uint32
	class  int

	kind    atomic.Uint32 // constant but for large items, which get old where they are
	bump    atomic.Uint32 // slots ever used; those above are raw memory; written with pool.mu
	expires atomic.Uint32 // a lower bound of the expiry times in it, unix seconds; 0 none

	// pool.mu
	free    uint32 // first free slot + 1
	live    uint32 // slots taken: linked, retired, or being filled
	walkers uint32 // who looks at the slots: it stays as it is until they leave
	listed  bool   // in pool.partial
	drained bool   // takes no new items; is being emptied
	dead    bool
	next    *span // pool.partial
	prev    *span

	// queues.mu
	queue *queue
	qnext *span
	qprev *span
}

func (sp *span) offset(slot uint32) uint64 { return sp.base + uint64(slot)*uint64(sp.size) }

// pool hands out the slots of one class and kind.
type pool struct {
	mu      sync.Mutex
	partial *span // spans with a free slot, not drained; mu
	spans   int   // mu
	slots   int64 // in all spans; mu
	used    int64 // mu
	grains  int64 // mu
	_       [8]byte
}

func (p *pool) list(sp *span) {
	sp.listed = true
	sp.prev, sp.next = nil, p.partial
	if p.partial != nil {
		p.partial.prev = sp
	}
	p.partial = sp
}

func (p *pool) unlist(sp *span) {
	if !sp.listed {
		return
	}
	sp.listed = false
	if sp.prev != nil {
		sp.prev.next = sp.next
	} else {
		p.partial = sp.next
	}
	if sp.next != nil {
		sp.next.prev = sp.prev
	}
	sp.next, sp.prev = nil, nil
}

// spanTable finds spans by id. Ids are reused.
type spanTable struct {
	mu    sync.Mutex
	spans atomic.Pointer[[]atomic.Pointer[span]]
	free  []uint32 // mu
	next  uint32   // mu; ids start at 1
}

func (t *spanTable) add(sp *span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if n := len(t.free); n > 0 {
		sp.id = t.free[n-1]
		t.free = t.free[:n-1]
	} else {
		t.next++
		sp.id = t.next
	}
	all := t.spans.Load()
	if all == nil || int(sp.id) >= len(*all) {
		grown := make([]atomic.Pointer[span], max(256, 2*int(sp.id)))
		if all != nil {
			for i := range *all {
				grown[i].Store((*all)[i].Load())
			}
		}
		t.spans.Store(&grown)
		all = &grown
	}
	(*all)[sp.id].Store(sp)
}

func (t *spanTable) remove(sp *span) {
	t.mu.Lock()
	defer t.mu.Unlock()
	(*t.spans.Load())[sp.id].Store(nil)
	t.free = append(t.free, sp.id)
}

// at gives the span with that id, nil if there is none; ids run to len.
func (t *spanTable) at(id uint32) *span {
	all := t.spans.Load()
	if all == nil || int(id) >= len(*all) {
		return nil
	}
	return (*all)[id].Load()
}

func (t *spanTable) len() uint32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.next + 1
}

// spanOf finds the span of an offset that the caller keeps from being freed.
func (s *Store) spanOf(off uint64) *span {
	return s.table.at(s.region.owner[off>>grainShift].Load())
}

// newSpan takes grains for a span; nil when the limit is reached.
func (s *Store) newSpan(k kind, class, size int, why demand) *span {
	sp := &span{class: class, walkers: 1} // its maker holds it until a slot is taken
	var (
		first int
		ok    bool
	)
	if class == largeClass {
		sp.grains = (size + grainSize - 1) >> grainShift
		sp.size, sp.slots = uint32(size), 1
		first, ok = s.region.allocRun(sp.grains, why)
	} else {
		sp.grains = s.layout.span >> grainShift
		sp.size = uint32(s.layout.slotSize(class))
		sp.slots = uint32(s.layout.span) / sp.size
		first, ok = s.region.allocSpan(why)
	}
	if !ok {
		return nil
	}
	sp.first, sp.base = first, uint64(first)<<grainShift
	sp.kind.Store(uint32(k))
	s.table.add(sp)
	for i := first; i < first+sp.grains; i++ {
		s.region.owner[i].Store(sp.id)
	}
	if k.evictable() {
		s.queues.push(sp, k)
	}
	return sp
}

// takeFree takes a free slot of a span that is there already.
func (s *Store) takeFree(k kind, size int) (uint64, bool) {
	class := s.layout.classOf(size)
	if class == largeClass {
		return 0, false
	}
	p := &s.pools[k][class]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.partial == nil {
		return 0, false
	}
	return s.takeLocked(p, p.partial), true
}

// take is the allocation without any attempt to make room: a free slot, or one of
// a new span if there is room for it.
func (s *Store) take(k kind, size int, why demand) (uint64, bool) {
	if off, ok := s.takeFree(k, size); ok {
		return off, true
	}
	class := s.layout.classOf(size)
	p := &s.pools[k][class]
	sp := s.newSpan(k, class, size, why)
	if sp == nil {
		return 0, false
	}
	p.mu.Lock()
	p.spans++
	p.slots += int64(sp.slots)
	p.grains += int64(sp.grains)
	p.list(sp)
	off := s.takeLocked(p, sp)
	sp.walkers--
	p.mu.Unlock()
	return off, true
}

func (s *Store) takeLocked(p *pool, sp *span) uint64 {
	var slot uint32
	if sp.free != 0 {
		slot = sp.free - 1
		sp.free = uint32(*(*uint64)(s.region.at(sp.offset(slot))))
	} else {
		slot = sp.bump.Load()
		if k := kind(sp.kind.Load()); k != kindIndex {
			atomic.StoreUint32(metaAt(s.region.at(sp.offset(slot))), 0)
		}
		sp.bump.Store(slot + 1)
	}
	sp.live++
	p.used++
	if sp.free == 0 && sp.bump.Load() == sp.slots {
		p.unlist(sp)
	}
	return sp.offset(slot)
}

// lockPool locks the pool that the span belongs to.
func (s *Store) lockPool(sp *span) *pool {
	for {
		k := sp.kind.Load()
		p := &s.pools[k][sp.class]
		p.mu.Lock()
		if sp.kind.Load() == k {
			return p
		}
		p.mu.Unlock() // a large item got old meanwhile
	}
}

// age makes the large item of a span an old one, where it is.
func (s *Store) age(sp *span) {
	young, old := &s.pools[kindYoung][sp.class], &s.pools[kindOld][sp.class]
	young.mu.Lock()
	defer young.mu.Unlock()
	old.mu.Lock()
	defer old.mu.Unlock()
	if sp.dead || kind(sp.kind.Load()) != kindYoung {
		return
	}
	young.spans, old.spans = young.spans-1, old.spans+1
	young.grains, old.grains = young.grains-int64(sp.grains), old.grains+int64(sp.grains)
	young.slots, old.slots = young.slots-int64(sp.slots), old.slots+int64(sp.slots)
	young.used, old.used = young.used-int64(sp.live), old.used+int64(sp.live)
	sp.kind.Store(uint32(kindOld))
}

// give frees a slot that nobody can see any more.
func (s *Store) give(off uint64) {
	f := freer{s: s}
	f.give(off)
	f.done()
}

// freer frees slots, keeping a pool locked as long as they are of one.
type freer struct {
	s *Store
	p *pool // locked, unless nil
	n int
}

func (f *freer) give(off uint64) {
	s := f.s
	sp := s.spanOf(off)
	if k := kind(sp.kind.Load()); f.p == nil || f.p != &s.pools[k][sp.class] {
		f.done()
		f.p = s.lockPool(sp)
	}
	mem := s.region.at(off)
	if kind(sp.kind.Load()) != kindIndex {
		atomic.StoreUint32(metaAt(mem), 0)
	}
	*(*uint64)(mem) = uint64(sp.free)
	sp.free = uint32((off-sp.base)/uint64(sp.size)) + 1
	sp.live--
	f.p.used--
	f.n++
	if !sp.listed && !sp.drained {
		f.p.list(sp)
	}
	if sp.live == 0 {
		s.releaseEmptyLocked(f.p, sp, false)
		f.p = nil
	}
}

// done unlocks.
func (f *freer) done() {
	if f.p != nil {
		f.p.mu.Unlock()
		f.p = nil
	}
}

// releaseEmptyLocked gives the span's grains back if nothing holds it, and
// unlocks the pool. Unless it must, a pool keeps its last span until the keeper
// comes round, so that a lone item that is replaced again and again does not make and
// free one each time.
func (s *Store) releaseEmptyLocked(p *pool, sp *span, must bool) {
	last := sp.listed && p.partial == sp && sp.next == nil && sp.class != largeClass && !must && !s.region.tight.Load()
	if sp.live != 0 || sp.walkers != 0 || sp.dead || last {
		p.mu.Unlock()
		return
	}
	sp.dead = true
	p.unlist(sp)
	p.spans--
	p.slots -= int64(sp.slots)
	p.grains -= int64(sp.grains)
	p.mu.Unlock()
	s.queues.remove(sp)
	s.table.remove(sp)
	s.region.free(sp.first, sp.grains)
}

// walk keeps a span as it is until leave; false if it is gone already.
func (s *Store) walk(sp *span) bool {
	p := s.lockPool(sp)
	defer p.mu.Unlock()
	if sp.dead {
		return false
	}
	sp.walkers++
	return true
}

func (s *Store) leave(sp *span) {
	p := s.lockPool(sp)
	sp.walkers--
	s.releaseEmptyLocked(p, sp, false)
}

// noteExpiry lowers the span's bound.
func (sp *span) noteExpiry(unix uint32) {
	for unix != 0 {
		old := sp.expires.Load()
		if old != 0 && old <= unix || sp.expires.CompareAndSwap(old, unix) {
			return
		}
	}
}

func metaAt(item unsafe.Pointer) *uint32 { return (*uint32)(unsafe.Add(item, offMeta)) }
