package memory

import (
	"sync"
	"sync/atomic"
)

// MaxAtomicBatch is how many changes one Publish makes visible in one step. A
// larger batch becomes visible in steps of that size, and Stats.Stepped counts it.
const MaxAtomicBatch = 65536

// publisher excludes all sessions for the moment in which a batch appears. The
// naive form, one lock that every reader takes shared, makes all cores write to one
// cache line for every request. Here a session marks its own line between Begin and
// End, and looks at busy, which rarely changes; the publisher sets busy and then
// waits until every mark is gone. Each side writes first and looks then, so one of
// the two sees the other.
type publisher struct {
	mu       sync.Mutex // held while busy; sessions wait on it
	busy     atomic.Bool
	sessions atomic.Pointer[[]*Session] // replaced with mu, never changed
}

func (p *publisher) add(c *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := append(append([]*Session(nil), *p.sessions.Load()...), c)
	p.sessions.Store(&all)
}

func (p *publisher) remove(c *Session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	var all []*Session
	for _, q := range *p.sessions.Load() {
		if q != c {
			all = append(all, q)
		}
	}
	p.sessions.Store(&all)
}

// wait returns when no publisher is at work.
func (p *publisher) wait() {
	for range 256 { // mostly a microsecond
		if !p.busy.Load() {
			return
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
}

// excludeLocked returns when no session is between Begin and End.
func (p *publisher) excludeLocked() {
	p.busy.Store(true)
	for _, c := range *p.sessions.Load() {
		for step := -256; c.part.state.load()&1 != 0; step++ {
			if step >= 0 {
				pause(step)
			}
		}
	}
}

type opKind uint8

const (
	opPut opKind = iota
	opDelete
	opOpen
	opDrop
)

type op struct {
	kind opKind
	sp   Space
	d    draft // opPut; for opDelete the tombstone if off is not 0
	hash uint64
	key  int32 // opDelete: where the key is in Batch.keys
	len  int32
}

// Batch is a group of changes to mapped keys, in order; one goroutine. Items are complete
// before Publish, which only swaps words of the index (I7).
type Batch struct {
	s     *Store
	part  *participant
	ops   []op
	keys  []byte
	bytes int
	old   []uint64 // slots to retire after Publish
}

// NewBatch makes an empty batch; it may be used again after Publish and Discard.
func (s *Store) NewBatch() *Batch { return &Batch{s: s, part: s.join()} }

// Close discards what is in the batch and unregisters it.
func (b *Batch) Close() {
	b.Discard()
	b.s.part(b.part)
}

// Put adds an item: flags are the client's, expire unix seconds (0 never), cas 0:
// chosen. key and value are copied. Errors: ErrNoMemory, ErrTooLarge, ErrKey.
func (b *Batch) Put(sp Space, key, value []byte, flags uint32, expire int64, cas uint64) error {
	s := b.s
	d, err := s.draft(kindMapped, b.part, sp, key, flags, expiry32(expire), len(value), cas, false)
	if err != nil {
		return err
	}
	copy(d.data(s), value)
	b.ops = append(b.ops, op{kind: opPut, sp: sp, d: d, hash: d.hash})
	b.bytes += d.size
	return nil
}

// Delete removes a key. While its space loads, the deletion is remembered (I3).
func (b *Batch) Delete(sp Space, key []byte) {
	s := b.s
	if len(key) == 0 || len(key) > MaxKey {
		return
	}
	o := op{kind: opDelete, sp: sp, hash: s.seeds.sum(key), key: int32(len(b.keys)), len: int32(len(key))}
	if s.spaces.state(sp) == spaceLoading {
		// A tombstone must not fail, so it may go beyond the limit.
		d, err := s.draft(kindMapped, b.part, sp, key, 0, 0, 0, 0, true)
		if err != nil {
			panic("memory: no address space for a tombstone: " + err.Error())
		}
		d.meta |= metaTomb
		o.d = d
	}
	b.keys = append(b.keys, key...)
	b.ops = append(b.ops, o)
	b.bytes += len(key)
}

// Open makes a space visible when the batch is published, in order with the rest.
func (b *Batch) Open(sp Space) { b.ops = append(b.ops, op{kind: opOpen, sp: sp}) }

// Drop drops a space when the batch is published, in order with the rest.
func (b *Batch) Drop(sp Space) { b.ops = append(b.ops, op{kind: opDrop, sp: sp}) }

// Len is the number of changes in the batch.
func (b *Batch) Len() int { return len(b.ops) }

// Bytes is the size of the items in the batch.
func (b *Batch) Bytes() int { return b.bytes }

// Mark gives a point to which Truncate can go back: a savepoint.
func (b *Batch) Mark() int { return len(b.ops) }

// Truncate discards what was added since the mark.
func (b *Batch) Truncate(mark int) {
	for i := len(b.ops) - 1; i >= mark; i-- {
		o := &b.ops[i]
		if o.d.off != 0 {
			b.s.abandon(b.part, o.d)
		}
		if o.kind == opDelete {
			b.keys = b.keys[:o.key]
			b.bytes -= int(o.len)
		} else {
			b.bytes -= o.d.size
		}
	}
	b.ops = b.ops[:mark]
}

// Discard empties the batch.
func (b *Batch) Discard() { b.Truncate(0) }

// Publish makes the batch visible: sessions see all of it or nothing (G3), up to
// MaxAtomicBatch changes. The batch is empty afterwards.
func (b *Batch) Publish() {
	s := b.s
	if len(b.ops) == 0 {
		return
	}
	b.part.count.published.add(1)
	if len(b.ops) > MaxAtomicBatch {
		b.part.count.stepped.add(1)
	}
	for i := range b.ops {
		b.makeRoom(&b.ops[i])
	}
	now := s.now()
	b.part.state.set(s.epoch.Load() << 1) // prefetchMatch reads lines without a lock
	if len(b.ops) == 1 && b.ops[0].kind <= opDelete {
		// One word is swapped: no session can see half of that.
		b.apply(&b.ops[0], now)
	} else {
		s.publish.mu.Lock()
		for first := 0; first < len(b.ops); first += MaxAtomicBatch {
			s.publish.excludeLocked()
			b.applyAll(b.ops[first:min(first+MaxAtomicBatch, len(b.ops))], now)
			s.publish.busy.Store(false)
		}
		s.publish.mu.Unlock()
	}
	b.part.state.lower(0)
	for _, off := range b.old {
		s.retire(b.part, off)
	}
	b.part.settle()
	b.ops, b.keys, b.old, b.bytes = b.ops[:0], b.keys[:0], b.old[:0], 0
}

// makeRoom grows the segment of an op before the sessions are excluded.
func (b *Batch) makeRoom(o *op) {
	if o.kind <= opDelete {
		g, _ := b.s.locate(o.hash)
		b.s.lockRoom(g, b.part)
		g.mu.Unlock()
	}
}

// applyAll applies ops in order, asking for the memory of those to come: the
// sessions are waiting.
func (b *Batch) applyAll(ops []op, now int64) {
	const ahead = 8
	for i := range ops {
		if i+2*ahead < len(ops) {
			b.s.prefetchHome(ops[i+2*ahead].hash)
		}
		if i+ahead < len(ops) {
			b.s.prefetchMatch(ops[i+ahead].hash)
		}
		b.apply(&ops[i], now)
	}
}

func (b *Batch) apply(o *op, now int64) {
	s := b.s
	switch o.kind {
	case opOpen:
		s.OpenSpace(o.sp)
		return
	case opDrop:
		s.DropSpace(o.sp)
		return
	}
	key := b.keys[o.key : o.key+o.len]
	if o.kind == opPut {
		key = o.d.key(s)
	}
	g, tag := s.locate(o.hash)
	s.lockRoom(g, b.part)
	defer g.mu.Unlock()
	state := s.spaces.state(o.sp)
	if state > spaceOpen {
		b.abandon(o)
		return
	}
	b.retire(s.unlinkUnmappedLocked(g, tag, key))
	old := s.findLocked(g, tag, key, o.sp, false)
	switch {
	case o.kind == opPut || state == spaceLoading && o.d.off != 0:
		if old.ok() {
			b.retire(*old.word & offsetMask << unitShift)
		}
		s.linkLocked(g, tag, b.part, o.d, old, now)
	default:
		if old.ok() {
			b.retire(s.unlinkLocked(g, old))
		}
		b.abandon(o)
	}
}

func (b *Batch) retire(off uint64) {
	if off != 0 {
		b.old = append(b.old, off)
	}
}

// abandon gives back what was prepared for an op that came to nothing.
func (b *Batch) abandon(o *op) {
	if o.d.off != 0 {
		b.s.abandon(b.part, o.d)
	}
}
