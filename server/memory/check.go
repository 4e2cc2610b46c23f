package memory

import (
	"errors"
	"fmt"
	"sync/atomic"
)

// Check verifies every invariant of the store: index against items, items against
// spans, spans against the region, and the counters against all of them. No
// session, loader or batch may be in use meanwhile; the keeper is held.
func (s *Store) Check() error {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	s.publish.mu.Lock()
	defer s.publish.mu.Unlock()
	s.evictor.mu.Lock()
	defer s.evictor.mu.Unlock()
	c := checker{s: s, held: map[uint32]uint32{}, linked: map[uint64]bool{}}
	for i := range s.segments {
		c.segment(i)
	}
	c.limbos()
	c.spans()
	c.region()
	c.counters()
	if len(c.errs) > 20 {
		c.errs = append(c.errs[:20], fmt.Errorf("and %d more", len(c.errs)-20))
	}
	return errors.Join(c.errs...)
}

type checker struct {
	s      *Store
	errs   []error
	linked map[uint64]bool   // offsets of items and lines in use
	held   map[uint32]uint32 // slots in use by span id
	spaces [maxSpaces]struct{ items, bytes, entries, tombs int64 }
	index  int64
	grains int64
	live   int64 // slots taken in spans
}

func (c *checker) fail(format string, args ...any) {
	c.errs = append(c.errs, fmt.Errorf(format, args...))
}

// slot notes a slot in use and checks that its span knows it.
func (c *checker) slot(off uint64, size int, k ...kind) {
	s := c.s
	if c.linked[off] {
		c.fail("slot %#x is used twice", off)
		return
	}
	c.linked[off] = true
	sp := s.spanOf(off)
	if sp == nil {
		c.fail("slot %#x is in no span", off)
		return
	}
	c.held[sp.id]++
	slot := (off - sp.base) / uint64(sp.size)
	if sp.offset(uint32(slot)) != off || slot >= uint64(sp.bump.Load()) {
		c.fail("slot %#x is not at a slot of span %d, base %#x, size %d, %d used", off, sp.id, sp.base, sp.size, sp.bump.Load())
	}
	if size > int(sp.size) {
		c.fail("slot %#x of %d bytes holds %d", off, sp.size, size)
	}
	for _, want := range k {
		if kind(sp.kind.Load()) == want {
			return
		}
	}
	if len(k) != 0 {
		c.fail("slot %#x of kind %v is in a span of kind %d", off, k, sp.kind.Load())
	}
}

func (c *checker) segment(i int) {
	s := c.s
	g := &s.segments[i]
	g.mu.Lock()
	defer g.mu.Unlock()
	desc := g.desc.Load()
	base, lines := s.lines(desc)
	if lines != 0 {
		c.slot(s.linesOffset(desc), int(lines*lineBytes), kindIndex)
		c.index += int64(lines * lineBytes)
	}
	var count, items, bytes int64
	type id struct {
		key string
		sp  Space
	}
	seen := map[id]bool{}
	owned := map[string]bool{}
	for n := range lines * lineWords {
		w := *wordAt(base, 0, int(n))
		if w == 0 {
			continue
		}
		count++
		off := w & offsetMask << unitShift
		it := s.itemAt(w)
		m := it.meta()
		key := it.key(m)
		sp := metaSpace(m)
		if len(key) == 0 {
			c.fail("segment %d names slot %#x, which holds no item", i, off)
			continue
		}
		hash := s.seeds.sum(key)
		if at, tag := s.locate(hash); at != g || tag != w>>offsetBits {
			c.fail("item %q is in segment %d with tag %#x, its hash is %#x", key, i, w>>offsetBits, hash)
		}
		for line := home(w>>offsetBits, lines); line != n/lineWords; line = (line + 1) % lines {
			if !lineFull(base, line) {
				c.fail("item %q in line %d is behind line %d, which is not full", key, n/lineWords, line)
				break
			}
		}
		if seen[id{string(key), sp}] {
			c.fail("item %q of space %d is there twice", key, sp)
		}
		seen[id{string(key), sp}] = true
		if sp == 0 {
			c.slot(off, it.size(m), kindYoung, kindOld)
			items++
			bytes += int64(it.size(m))
		} else {
			c.slot(off, it.size(m), kindMapped)
			if s.owned(it, m) {
				owned[string(key)] = true
			}
		}
		c.item(it, m)
	}
	for key := range owned {
		if seen[id{key, 0}] {
			c.fail("key %q is unmapped and a table's", key)
		}
	}
	if count != g.count.load() || items != g.items.load() || bytes != g.bytes.load() {
		c.fail("segment %d counts %d words, %d items, %d bytes; it holds %d, %d, %d",
			i, g.count.load(), g.items.load(), g.bytes.load(), count, items, bytes)
	}
}

func (c *checker) item(it Item, m uint32) {
	n := &c.spaces[metaSpace(m)]
	n.entries++
	if m&metaTomb != 0 {
		n.tombs++
	} else {
		n.items++
		n.bytes += int64(it.size(m))
	}
	wire := it.Wire()
	want := fmt.Sprintf("VALUE %s %d %d\r\n", it.Key(), it.Flags(), len(it.Value()))
	if string(wire[:len(wire)-len(it.Value())-2]) != want || string(wire[len(wire)-2:]) != "\r\n" {
		c.fail("item %q has the wire form %.80q", it.Key(), wire)
	}
	if it.seq() == 0 || it.seq() > c.s.seq.Load() {
		c.fail("item %q has sequence %d of %d", it.Key(), it.seq(), c.s.seq.Load())
	}
}

func (c *checker) limbos() {
	for _, p := range *c.s.members.all.Load() {
		for _, r := range p.fresh[:p.nfresh] {
			c.slot(r.off&^retiredLines, 0)
		}
		l := &p.limbo
		l.mu.Lock()
		for i := range int(l.n.Load()) {
			c.slot(l.queue[(l.head+i)%len(l.queue)].off&^retiredLines, 0)
		}
		stuck := int64(0)
		for _, off := range l.pinned {
			c.slot(off, 0)
			stuck += int64(c.s.itemIn(off).Size())
		}
		if n := l.stuck.Load(); n != stuck {
			c.fail("%d bytes are pinned, counted as %d", stuck, n)
		}
		l.mu.Unlock()
	}
}

func (c *checker) spans() {
	s := c.s
	var (
		pools [kinds][totalClasses]struct {
			spans               int
			slots, used, grains int64
		}
		queued = map[*span]bool{}
		grains [2]int64
	)
	for i, q := range []*queue{&s.queues.young, &s.queues.old} {
		for sp := q.head; sp != nil; sp = sp.qnext {
			queued[sp] = true
			grains[i] += int64(sp.grains)
			if sp.dead || kind(sp.kind.Load()) != kindYoung+kind(i) {
				c.fail("queue %d holds span %d, kind %d, dead %v", i, sp.id, sp.kind.Load(), sp.dead)
			}
		}
		if grains[i] != q.grains {
			c.fail("queue %d counts %d grains, has %d", i, q.grains, grains[i])
		}
	}
	for id := uint32(1); id < s.table.len(); id++ {
		sp := s.table.at(id)
		if sp == nil {
			continue
		}
		c.grains += int64(sp.grains)
		k := kind(sp.kind.Load())
		if k.evictable() != queued[sp] && sp != s.evictor.cur {
			c.fail("span %d of kind %d: queued is %v", id, k, queued[sp])
		}
		p := &pools[k][sp.class]
		p.spans++
		p.slots += int64(sp.slots)
		p.used += int64(sp.live)
		p.grains += int64(sp.grains)
		c.live += int64(sp.live)
		free := uint32(0)
		for slot := sp.free; slot != 0; free++ {
			off := sp.offset(slot - 1)
			if c.linked[off] {
				c.fail("slot %#x is free and in use", off)
			}
			if k != kindIndex && atomic.LoadUint32(metaAt(s.region.at(off))) != 0 {
				c.fail("slot %#x is free and has an item's mark", off)
			}
			slot = uint32(*(*uint64)(s.region.at(off)))
		}
		if free+sp.live != sp.bump.Load() {
			c.fail("span %d: %d free + %d live of %d", id, free, sp.live, sp.bump.Load())
		}
		if c.held[id] > sp.live {
			c.fail("span %d: %d slots are linked or retired, %d live", id, c.held[id], sp.live)
		}
		if room := free != 0 || sp.bump.Load() < sp.slots; room && !sp.drained != sp.listed {
			c.fail("span %d: room %v, drained %v, listed %v", id, room, sp.drained, sp.listed)
		}
		if sp.walkers != 0 && sp != s.evictor.cur || sp.live == 0 && sp.walkers == 0 && (!sp.listed || sp.next != nil) {
			c.fail("span %d: %d walkers, %d live", id, sp.walkers, sp.live)
		}
		for g := sp.first; g < sp.first+sp.grains; g++ {
			if s.region.owner[g].Load() != id {
				c.fail("grain %d of span %d is owned by %d", g, id, s.region.owner[g].Load())
			}
		}
	}
	for k := range kinds {
		for class := range totalClasses {
			p, n := &s.pools[k][class], pools[k][class]
			if p.spans != n.spans || p.slots != n.slots || p.used != n.used || p.grains != n.grains {
				c.fail("pool %d/%d counts %d spans, %d slots, %d used, %d grains; has %d, %d, %d, %d",
					k, class, p.spans, p.slots, p.used, p.grains, n.spans, n.slots, n.used, n.grains)
			}
		}
	}
}

func (c *checker) region() {
	r := &c.s.region
	var used, dirty int64
	for _, a := range []*area{&r.low, &r.high} {
		for i := range a.units {
			if a == &r.low && i == 0 {
				continue // offset 0 stands for nothing
			}
			if a.used.has(i) {
				used += int64(a.unit)
				if !a.dirty.has(i) {
					c.fail("unit %d of %d grains is used, but not counted as memory", i, a.unit)
				}
			}
			if a.dirty.has(i) {
				dirty += int64(a.unit)
			}
			if owner := r.owner[a.first+i*a.unit].Load(); a.used.has(i) != (owner != 0) {
				c.fail("unit %d of %d grains: used %v, owner %d", i, a.unit, a.used.has(i), owner)
			}
		}
	}
	if used != r.usedN.Load() || dirty != r.dirtyN.Load() || used != c.grains {
		c.fail("region counts %d used and %d dirty grains, has %d and %d, spans have %d", r.usedN.Load(), r.dirtyN.Load(), used, dirty, c.grains)
	}
	if c.index != c.s.indexBytes.Load() {
		c.fail("index counts %d bytes, has %d", c.s.indexBytes.Load(), c.index)
	}
}

func (c *checker) counters() {
	s := c.s
	for sp := 1; sp < maxSpaces; sp++ {
		n, have := c.spaces[sp], &s.spaces.counts[sp]
		if n.items != have.items.Load() || n.bytes != have.bytes.Load() || n.entries != have.entries.Load() || n.tombs != have.tombs.Load() {
			c.fail("space %d counts %d items, %d bytes, %d entries, %d tombstones; has %+v",
				sp, have.items.Load(), have.bytes.Load(), have.entries.Load(), have.tombs.Load(), n)
		}
		if s.spaces.states[sp].Load() == spaceUnused && n.entries != 0 {
			c.fail("space %d is unused and has %d entries", sp, n.entries)
		}
	}
	var all counters
	s.members.mu.Lock()
	all.merge(&s.members.past)
	s.members.mu.Unlock()
	for _, p := range *s.members.all.Load() {
		all.merge(&p.count)
	}
	drafts := int64(all.drafts.load() - all.settled.load())
	if held := int64(len(c.linked)); c.live != held+drafts {
		c.fail("%d slots are taken: %d linked or retired, %d drafts", c.live, held, drafts)
	}
}
