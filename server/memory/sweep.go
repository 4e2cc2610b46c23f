package memory

import "context"

// sweep removes what lookups no longer find: expired and flushed items, rows of
// dropped spaces, tombstones of spaces that were opened. Spans without any of these
// are not looked at.
func (s *Store) sweep(ctx context.Context) {
	now := s.now()
	flush := s.flush.seq.Load()
	flushed := flush != s.keeper.flushSeen
	spaces := s.spaces.dirty.Swap(false)
	for id := uint32(1); id < s.table.len() && ctx.Err() == nil; id++ {
		sp := s.table.at(id)
		if sp == nil {
			continue
		}
		k := kind(sp.kind.Load())
		expires := sp.expires.Load()
		due := expires != 0 && int64(expires) <= now
		if k == kindIndex || !due && !(flushed && k.evictable()) && !(spaces && k == kindMapped) {
			continue
		}
		if s.walk(sp) {
			s.sweepSpan(sp, now)
			s.leave(sp)
		}
	}
	if ctx.Err() != nil {
		return
	}
	s.keeper.flushSeen = flush
	if spaces && s.finishSpaces() {
		s.spaces.dirty.Store(true) // what came in between is found next time
	}
	s.keeper.part.settle()
	s.drain(&s.keeper.part.limbo, s.oldest())
}

func (s *Store) sweepSpan(sp *span, now int64) {
	p := s.keeper.part
	// Items linked from here on lower the bound themselves.
	sp.expires.Store(0)
	const step = 512
	for first := uint32(0); first < sp.bump.Load(); first += step {
		p.state.set(s.epoch.Load() << 1)
		for slot := first; slot < min(first+step, sp.bump.Load()); slot++ {
			s.sweepSlot(sp, sp.offset(slot), now)
		}
		p.state.lower(0)
	}
}

func (s *Store) sweepSlot(sp *span, off uint64, now int64) {
	it := s.itemIn(off)
	m := it.meta()
	if m == 0 || m&metaDead != 0 {
		return
	}
	p := s.keeper.part
	switch state := s.spaces.state(metaSpace(m)); {
	case state > spaceOpen, state == spaceOpen && m&metaTomb != 0:
		s.unlink(p, it, s.seeds.sum(it.key(m)), off)
	case s.gone(it, m, now):
		if s.unlink(p, it, s.seeds.sum(it.key(m)), off) {
			p.count.swept.add(1)
			if !it.Fetched() {
				p.count.sweptUnfetched.add(1)
			}
		}
	default:
		sp.noteExpiry(uint32(it.Expire()))
	}
}
