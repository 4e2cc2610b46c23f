package memory

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// When may the memory of a replaced item be used again? The naive answer, a lock
// that readers hold, or a count in every item that they raise and lower, costs
// each get two writes to memory that other cores want. Instead time is cut into
// epochs. A session announces the epoch at which it began to look (one store to its
// own cache line for a whole batch of requests) and takes that back in Release. A
// retired item carries the epoch at which it was unlinked, and is free once every
// announced epoch is younger: who began later could not find it any more. Items that
// outlive a batch, because a slow client has not taken them yet, are pinned.
//
// Eviction and sweeping come to items from the other side, slot by slot, and would
// find a retired one as well. So retiring marks the item dead before it reads the
// epoch: an item that is not dead to someone who has announced is retired later than
// that, if at all.

// participant is whoever retires items, and perhaps views some.
type participant struct {
	_ [64]byte
	// state is 0 when it views nothing, else epoch<<1, with bit 0 set between Begin
	// and End, when a publisher must wait for it. Written by its owner.
	state state
	// viewing: an item was given out since Begin, so the epoch must stay. Owner only.
	viewing bool
	allocs  uint32            // owner only
	fresh   [freshMax]retired // retired, not in limbo yet; owner only
	nfresh  int               // owner only
	count   counters
	limbo   limbo
	_       [64]byte
}

// state is an announcement.
type state struct{ v uint64 }

func (s *state) load() uint64 { return atomic.LoadUint64(&s.v) }

// set announces more: everything that follows happens after it, for everyone.
func (s *state) set(v uint64) { atomic.StoreUint64(&s.v, v) }

// lower announces less: everything that went before happened before it.
func (s *state) lower(v uint64) { storeRelease64(&s.v, v) }

// limbo holds retired slots in the order of their epochs.
type limbo struct {
	mu     sync.Mutex
	queue  []retired // ring; mu
	head   int       // mu
	n      atomic.Int64
	bytes  atomic.Int64 // of the n; written with mu
	pinned []uint64     // passed their epoch but are pinned; mu
	held   atomic.Int64 // len(pinned); written with mu
	stuck  atomic.Int64 // bytes of pinned; written with mu
}

type retired struct {
	off   uint64 // bit 0 set: lines of the index, which have no header
	epoch uint64
	size  int
}

const (
	retiredLines = 1
	limboBatch   = 64      // slots in limbo from which their owner tries to free them
	freshMax     = 32      // slots that an owner keeps to itself to save a lock
	freshSize    = 4 << 10 // unless one is that large
)

func (l *limbo) pushLocked(r retired) {
	n := int(l.n.Load())
	if n == len(l.queue) {
		grown := make([]retired, max(256, 2*n))
		for i := range n {
			grown[i] = l.queue[(l.head+i)%len(l.queue)]
		}
		l.queue, l.head = grown, 0
	}
	l.queue[(l.head+n)%len(l.queue)] = r
	l.n.Store(int64(n + 1))
	l.bytes.Add(int64(r.size))
}

// retire takes an unlinked slot into the limbo of p; off 0 is nothing.
func (s *Store) retire(p *participant, off uint64) {
	if off == 0 {
		return
	}
	size := 0
	if off&retiredLines == 0 {
		it := s.itemIn(off)
		it.setMeta(metaDead, 0)
		size = it.Size()
	}
	p.fresh[p.nfresh] = retired{off, s.epoch.Load(), size}
	if p.nfresh++; p.nfresh == freshMax || size >= freshSize {
		p.settle()
		if l := &p.limbo; l.n.Load() >= limboBatch {
			s.drain(l, s.oldest())
		}
	}
}

// settle puts what the participant has retired where others can free it.
func (p *participant) settle() {
	if p.nfresh == 0 {
		return
	}
	l := &p.limbo
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, r := range p.fresh[:p.nfresh] {
		l.pushLocked(r)
	}
	p.nfresh = 0
}

// join adds a participant.
func (s *Store) join() *participant {
	p := &participant{}
	s.joinAs(p)
	return p
}

func (s *Store) joinAs(p *participant) {
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	all := append([]*participant(nil), *s.members.all.Load()...)
	all = append(all, p)
	s.members.all.Store(&all)
}

// part ends a participant: what it retired is freed by the others.
func (s *Store) part(p *participant) {
	p.state.lower(0)
	s.members.mu.Lock()
	defer s.members.mu.Unlock()
	var all []*participant
	for _, q := range *s.members.all.Load() {
		if q != p {
			all = append(all, q)
		}
	}
	s.members.all.Store(&all)
	s.members.past.merge(&p.count)
	p.settle()
	p.limbo.mu.Lock()
	defer p.limbo.mu.Unlock()
	k := &s.evictor.part.limbo
	k.mu.Lock()
	defer k.mu.Unlock()
	epoch := s.epoch.Load()
	for n := p.limbo.n.Load(); n > 0; n-- {
		r := p.limbo.queue[p.limbo.head]
		k.pushLocked(retired{r.off, epoch, r.size})
		p.limbo.head = (p.limbo.head + 1) % len(p.limbo.queue)
	}
	p.limbo.n.Store(0)
	p.limbo.bytes.Store(0)
	k.pinned = append(k.pinned, p.limbo.pinned...)
	k.held.Store(int64(len(k.pinned)))
	k.stuck.Add(p.limbo.stuck.Load())
	p.limbo.pinned = nil
	p.limbo.held.Store(0)
	p.limbo.stuck.Store(0)
}

// members are all participants; the slice is replaced, never changed.
type members struct {
	mu   sync.Mutex
	all  atomic.Pointer[[]*participant]
	past counters // of those that left; mu
}

// oldest starts a new epoch and gives the oldest that someone still views.
func (s *Store) oldest() uint64 {
	oldest := s.epoch.Add(1)
	for _, p := range *s.members.all.Load() {
		if e := p.state.load() >> 1; e != 0 && e < oldest {
			oldest = e
		}
	}
	return oldest
}

// drain frees what nobody can see any more; it gives the number of slots freed.
func (s *Store) drain(l *limbo, oldest uint64) int {
	if l.n.Load() == 0 && l.held.Load() == 0 {
		return 0
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	f := freer{s: s}
	n := l.n.Load()
	for ; n > 0; n-- {
		r := l.queue[l.head]
		if r.epoch >= oldest {
			break
		}
		l.head = (l.head + 1) % len(l.queue)
		l.bytes.Add(int64(-r.size))
		if r.off&retiredLines == 0 && metaPins(atomic.LoadUint32(metaAt(s.region.at(r.off)))) != 0 {
			l.pinned = append(l.pinned, r.off)
			l.stuck.Add(int64(r.size))
			continue
		}
		f.give(r.off &^ retiredLines)
	}
	l.n.Store(n)
	keep := l.pinned[:0]
	for _, off := range l.pinned {
		if metaPins(atomic.LoadUint32(metaAt(s.region.at(off)))) != 0 {
			keep = append(keep, off)
			continue
		}
		l.stuck.Add(-int64(s.itemIn(off).Size()))
		f.give(off)
	}
	f.done()
	l.pinned = keep
	l.held.Store(int64(len(keep)))
	return f.n
}

// Reclaim frees what no session can see and nothing pins any more. Whoever stores does that
// in passing; this is for those who want to know what is left (PinnedBytes).
func (s *Store) Reclaim() { s.reclaim() }

// reclaim drains every limbo.
func (s *Store) reclaim() int {
	oldest := s.oldest()
	freed := 0
	for _, p := range *s.members.all.Load() {
		freed += s.drain(&p.limbo, oldest)
	}
	return freed
}

// pause is one step of waiting for another goroutine's short section: first give
// the processor away, then sleep.
func pause(step int) {
	if step < 64 {
		runtime.Gosched()
		return
	}
	time.Sleep(20 * time.Microsecond)
}
