package memory

// Compaction: when many slots of a class are free, the items of its sparsest span move to
// the free slots of its other spans, and the span's grains serve any class. Without it,
// values that grow from 100 bytes to 4 KB would leave the memory full of holes of 200.

// releaseLast frees the span that an empty pool keeps.
func (s *Store) releaseLast(p *pool) {
	p.mu.Lock()
	if p.used != 0 || p.partial == nil {
		p.mu.Unlock()
		return
	}
	s.releaseEmptyLocked(p, p.partial, true)
}

// releaseLasts does so for all pools.
func (s *Store) releaseLasts() {
	for k := range kinds {
		for class := range s.layout.sizes {
			s.releaseLast(&s.pools[k][class])
		}
	}
}

// beginCompactionLocked makes the sparsest span of the emptiest pool the evictor's
// current one: there a span is freed for the fewest moves. Unless desperate it does so
// only when that is worth it. The more memory is in free slots the sooner it is called again.
func (s *Store) beginCompactionLocked(desperate bool) bool {
	e := &s.evictor
	var (
		wasted int64 // bytes of free slots, but for a span of each pool
		least  = 1.0 // share of a pool's slots that are taken
		best   *pool
		kindOf kind
	)
	for k := range kinds {
		for c := range s.layout.sizes {
			p := &s.pools[k][c]
			p.mu.Lock()
			free, spans, slots := p.slots-p.used, p.spans, p.slots
			p.mu.Unlock()
			if spans != 0 && free == slots {
				s.releaseLast(p)
				continue
			}
			if spans < 2 || k == kindIndex {
				continue
			}
			per := slots / int64(spans)
			if free < per || !desperate && free < per+slots/8 {
				continue
			}
			wasted += (free - per) * int64(s.layout.slotSize(c))
			if share := float64(slots-free) / float64(slots); share < least {
				least, best, kindOf = share, p, k
			}
		}
	}
	e.every = int(min(compactEvery, 1+s.region.limitN.Load()<<grainShift/8/(wasted+1)))
	if best == nil {
		return false
	}
	best.mu.Lock()
	var sparse *span
	for sp := best.partial; sp != nil; sp = sp.next {
		if sp.walkers == 0 && (sparse == nil || sp.live < sparse.live) {
			sparse = sp
		}
	}
	if sparse == nil || best.slots-best.used-int64(sparse.slots-sparse.live) < int64(sparse.live) {
		best.mu.Unlock()
		return false
	}
	sparse.walkers++
	sparse.drained = true
	best.unlist(sparse)
	best.mu.Unlock()
	if kindOf.evictable() {
		s.queues.remove(sparse)
	}
	e.cur, e.slot, e.free = sparse, 0, true
	return true
}
