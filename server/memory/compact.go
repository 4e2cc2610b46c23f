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

// beginCompactionLocked makes the sparsest span of the pool with most free memory
// the evictor's current one. Unless desperate it does so only when that is worth it.
func (s *Store) beginCompactionLocked(desperate bool) bool {
	e := &s.evictor
	var (
		most   int64
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
			if bytes := free * int64(s.layout.slotSize(c)); bytes > most {
				most, best, kindOf = bytes, p, k
			}
		}
	}
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
