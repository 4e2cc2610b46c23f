package memory

import (
	"sync"
	"sync/atomic"
	"unsafe"
)

// Eviction follows S3-FIFO (Yang and others, SOSP 2023): most keys are read once or never, so
// new items pass a short queue, a tenth of the memory, and only those that were
// read in it get into the long one; there, an item that was read since the hand last
// passed stays. Queues of items would cost 16 bytes for each item; here the
// queues are of spans. A young span is emptied: what was read moves to old spans, the
// rest goes, and the whole span is free, for any class. An old span is passed in place.
//
// Room is made as it is used: while memory is tight each allocation looks at a
// few slots, so no single set pays for a whole span.
const (
	youngShare   = 10 // per cent of the evictable grains
	promoteFreq  = 1  // reads that make a young item an old one
	stepSlots    = 48 // slots looked at in one step
	stepEvery    = 8  // allocations between two steps of a participant
	roomAttempts = 1 << 16
	roomWaits    = 256 // some ten milliseconds
	compactEvery = 8   // most spans passed between two looks for one to compact
)

// queue is a list of spans in the order in which they are to be looked at.
type queue struct {
	head, tail *span
	grains     int64
}

// queues hold all evictable spans that are not just being looked at.
type queues struct {
	mu         sync.Mutex
	young, old queue // mu
}

func (q *queues) push(sp *span, k kind) {
	q.mu.Lock()
	defer q.mu.Unlock()
	to := &q.young
	if k == kindOld {
		to = &q.old
	}
	sp.queue, sp.qnext, sp.qprev = to, nil, to.tail
	if to.tail != nil {
		to.tail.qnext = sp
	} else {
		to.head = sp
	}
	to.tail = sp
	to.grains += int64(sp.grains)
}

func (q *queues) remove(sp *span) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.removeLocked(sp)
}

func (q *queues) removeLocked(sp *span) {
	from := sp.queue
	if from == nil {
		return
	}
	if sp.qprev != nil {
		sp.qprev.qnext = sp.qnext
	} else {
		from.head = sp.qnext
	}
	if sp.qnext != nil {
		sp.qnext.qprev = sp.qprev
	} else {
		from.tail = sp.qprev
	}
	from.grains -= int64(sp.grains)
	sp.queue, sp.qnext, sp.qprev = nil, nil, nil
}

// next takes the span that is to be looked at now out of its queue.
func (q *queues) next() *span {
	q.mu.Lock()
	defer q.mu.Unlock()
	from := &q.old
	if from.head == nil || q.young.grains*100 > (q.young.grains+q.old.grains)*youngShare && q.young.head != nil {
		from = &q.young
	}
	sp := from.head
	if sp != nil {
		q.removeLocked(sp)
	}
	return sp
}

// evictor is the hand that passes over the spans.
type evictor struct {
	mu     sync.Mutex
	part   *participant      // used with mu
	cur    *span             // being looked at; it counts us as a walker; mu
	slot   uint32            // next slot of cur; mu
	passed int               // spans looked at since the last look for one to compact; mu
	every  int               // spans until the next such look; mu
	free   bool              // evict nothing, only move: cur is being compacted; mu
	hashes [stepSlots]uint64 // of the items being looked at; mu
}

// evictStep looks at up to n slots, and gives what it freed the chance to be used.
// It reports whether there was anything to look at.
func (s *Store) evictStepLocked(n int) (looked bool) {
	e := &s.evictor
	e.part.state.set(s.epoch.Load() << 1)
	for n > 0 {
		if e.cur == nil && !s.nextSpanLocked() {
			break
		}
		looked = true
		sp := e.cur
		bump := sp.bump.Load()
		last := min(bump, e.slot+uint32(min(n, stepSlots)))
		// Two passes, as in GetAll: the lines of the index arrive while others are asked for.
		// An item that is linked between them is judged by a wrong hash, and so not found and left.
		for slot := e.slot; slot < last; slot++ {
			it := s.itemIn(sp.offset(slot))
			if m := it.meta(); m != 0 && m&metaDead == 0 {
				hash := s.seeds.sum(it.key(m))
				s.prefetchHome(hash)
				e.hashes[slot-e.slot] = hash
			}
		}
		for slot := e.slot; slot < last; slot++ {
			s.judge(sp, sp.offset(slot), e.hashes[slot-e.slot])
		}
		n -= int(last - e.slot)
		e.slot = last
		if last >= bump {
			n -= 4
			s.passedLocked(sp)
		}
	}
	e.part.state.lower(0)
	e.part.settle()
	s.drain(&e.part.limbo, s.oldest())
	return looked
}

// nextSpanLocked chooses what to look at next: a span to compact if much memory is in
// free slots, else the next of the queues.
func (s *Store) nextSpanLocked() bool {
	e := &s.evictor
	if e.passed++; e.passed >= e.every {
		e.passed = 0
		if s.beginCompactionLocked(false) {
			return true
		}
	}
	if s.noEvict {
		return false
	}
	for {
		sp := s.queues.next()
		if sp == nil {
			return false
		}
		p := s.lockPool(sp)
		if sp.dead {
			p.mu.Unlock()
			continue
		}
		sp.walkers++
		k := kind(sp.kind.Load())
		if k == kindYoung {
			sp.drained = true
			p.unlist(sp)
		}
		p.mu.Unlock()
		e.cur, e.slot, e.free = sp, 0, false
		return true
	}
}

// passedLocked ends the look at a span.
func (s *Store) passedLocked(sp *span) {
	e := &s.evictor
	e.cur = nil
	k := kind(sp.kind.Load())
	p := s.lockPool(sp)
	if e.free && sp.live != 0 {
		// Some items could not be moved: the span is used again as it is.
		sp.drained = false
		if sp.bump.Load() < sp.slots || sp.free != 0 {
			p.list(sp)
		}
	}
	p.mu.Unlock()
	if k.evictable() {
		s.queues.push(sp, k)
	}
	s.leave(sp)
}

// judge decides about the item in a slot: gone, evicted, moved, or left.
func (s *Store) judge(sp *span, off, hash uint64) {
	e := &s.evictor
	it := s.itemIn(off)
	m := it.meta()
	if m == 0 || m&metaDead != 0 {
		return
	}
	count := &e.part.count
	if s.gone(it, m, s.now()) && s.unlink(e.part, it, hash, off) {
		count.expired.add(1)
		if !it.Fetched() {
			count.expiredUnfetched.add(1)
		}
		return
	}
	k := kind(sp.kind.Load())
	if e.free {
		s.move(e.part, it, m, hash, off, k, true)
		return
	}
	access := it.access()
	a := atomic.LoadUint32(access)
	freq := a & accessFreq
	if k == kindYoung {
		if freq >= promoteFreq {
			if sp.class == largeClass {
				storeRelaxed(unsafe.Pointer(access), a&^accessFreq)
				s.age(sp)
				return
			}
			if s.move(e.part, it, m, hash, off, kindOld, false) {
				return
			}
		}
	} else if freq > 0 {
		storeRelaxed(unsafe.Pointer(access), a-1)
		return
	}
	if !s.unlink(e.part, it, hash, off) {
		return
	}
	count.evictions.add(1)
	if a&accessFetched == 0 {
		count.evictedUnfetched.add(1)
	}
	if s.now()-it.LastAccess() < 60 {
		count.evictedActive.add(1)
	}
}

// unlink removes an item that a walker came upon, if it still is its key's.
func (s *Store) unlink(p *participant, it Item, hash, off uint64) bool {
	g, tag := s.locate(hash)
	g.mu.Lock()
	word, line := s.findExactLocked(g, tag, off)
	if word == nil {
		g.mu.Unlock()
		return false
	}
	s.unlinkLocked(g, place{word: word, line: line, it: it, m: it.meta()})
	g.mu.Unlock()
	s.retire(p, off)
	return true
}

// move copies an item to another slot and lets the index name that one. With
// keep the frequency stays, else it starts again.
func (s *Store) move(p *participant, it Item, m uint32, hash, off uint64, to kind, keep bool) bool {
	size := it.size(m)
	var (
		dst uint64
		ok  bool
	)
	if keep {
		dst, ok = s.takeFree(to, size)
	} else {
		dst, ok = s.take(to, size, moving)
	}
	if !ok {
		return false
	}
	g, tag := s.locate(hash)
	g.mu.Lock()
	word, _ := s.findExactLocked(g, tag, off)
	if word == nil {
		g.mu.Unlock()
		s.give(dst)
		return true // it was retired meanwhile: nothing is left to move
	}
	n := s.itemIn(dst)
	m = it.meta()
	*(*uint64)(n.p) = it.word()
	a := atomic.LoadUint32(it.access())
	if !keep {
		a &^= accessFreq
	}
	storeRelaxed(unsafe.Pointer(n.access()), a)
	copy(unsafe.Slice((*byte)(n.p), size)[headPlain:], unsafe.Slice((*byte)(it.p), size)[headPlain:])
	var expire uint32
	if e := it.expiryAt(m); e != nil {
		expire = atomic.LoadUint32(e)
		storeRelaxed(unsafe.Pointer(n.expiryAt(m)), expire)
	}
	storeRelease32(metaAt(n.p), unpinned(m))
	storeRelease64(word, makeWord(tag, dst))
	g.mu.Unlock()
	if expire != 0 {
		s.spanOf(dst).noteExpiry(expire)
	}
	s.retire(p, off)
	p.count.moved.add(1)
	return true
}

// alloc finds a slot of size bytes. It evicts what it must and may.
func (s *Store) alloc(k kind, size int, p *participant, force bool) (uint64, bool) {
	if off, ok := s.takeFree(k, size); ok {
		p.allocs++
		if p.allocs%stepEvery == 0 && s.region.tight.Load() && s.evictor.mu.TryLock() {
			s.evictStepLocked(stepSlots)
			s.evictor.mu.Unlock()
		}
		return off, true
	}
	if off, ok := s.take(k, size, normal); ok {
		return off, true
	}
	return s.makeRoom(k, size, p, force)
}

// makeRoom evicts until there is a slot of that size. What it evicts is free only
// when no session can see it any more; rather than evict more than it needs it waits
// for that, but not without end.
func (s *Store) makeRoom(k kind, size int, p *participant, force bool) (uint64, bool) {
	e := &s.evictor
	waits := 0
	for range roomAttempts {
		// A session that views nothing need not hold the epoch back.
		if state := p.state.load(); state != 0 && !p.viewing {
			p.state.set(s.epoch.Load()<<1 | state&1)
		}
		p.settle()
		freed := s.reclaim()
		if off, ok := s.take(k, size, normal); ok {
			return off, true
		}
		waiting := s.inLimbo()
		if freed == 0 && waiting > int64(2*size)+s.region.slackN.Load()<<grainShift/2 {
			// Enough was evicted, but someone may still see it. If that is the caller,
			// waiting is in vain.
			if waits++; waits > roomWaits || p.viewing && waits > 1 {
				break
			}
			pause(waits)
			continue
		}
		e.mu.Lock()
		looked := s.evictStepLocked(stepSlots)
		if !looked {
			looked = s.beginCompactionLocked(true)
		}
		e.mu.Unlock()
		if off, ok := s.takeFree(k, size); ok {
			return off, true
		}
		if !looked && freed == 0 {
			if waits++; waiting == 0 || waits > roomWaits || p.viewing {
				break
			}
			pause(waits)
		}
	}
	if force {
		return s.take(k, size, forced)
	}
	return 0, false
}

// inLimbo is how many bytes of retired items wait for sessions.
func (s *Store) inLimbo() (n int64) {
	for _, p := range *s.members.all.Load() {
		n += p.limbo.bytes.Load()
	}
	return n
}
