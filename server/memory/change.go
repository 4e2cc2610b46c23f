package memory

import (
	"strconv"
	"sync/atomic"
)

// DeleteOptions are what the meta protocol adds to a deletion.
type DeleteOptions struct {
	Compare bool
	CAS     uint64
	NewCAS  uint64 // md E, with Stale or Empty; 0: chosen
	Stale   bool   // md I: keep the item, marked stale, with a new cas and no token handed out
	Empty   bool   // md x: keep the item, without its value and flags
	Touch   bool   // md T, with Stale or Empty
	Expire  int64
}

// Delete removes an unmapped key; cas 0 matches any. Results: Deleted, NotFound,
// Exists, Mapped.
func (c *Session) Delete(key []byte, cas uint64) Result {
	return c.DeleteWith(key, DeleteOptions{Compare: cas != 0, CAS: cas})
}

// DeleteWith deletes, empties, or marks stale. Results: as Delete, and NoMemory for
// the forms that keep the item.
func (c *Session) DeleteWith(key []byte, o DeleteOptions) Result {
	s := c.s
	if len(key) == 0 || len(key) > MaxKey {
		return NotFound
	}
	g, tag := s.locate(s.seeds.sum(key))
	if o.Stale || o.Empty {
		defer c.unhold(c.hold())
	}
	for {
		now := s.now()
		g.mu.Lock()
		old := s.findLocked(g, tag, key, 0, true)
		r := s.changeable(old, now, o.Compare, o.CAS)
		switch {
		case r == NotFound && old.ok() && metaSpace(old.m) == 0:
			c.countGone(old.it)
			off := s.unlinkLocked(g, old)
			g.mu.Unlock()
			s.retire(c.part, off)
			return NotFound
		case r != Stored:
			g.mu.Unlock()
			return r
		case !o.Stale && !o.Empty:
			off := s.unlinkLocked(g, old)
			g.mu.Unlock()
			s.retire(c.part, off)
			return Deleted
		}
		off := *old.word & offsetMask << unitShift
		g.mu.Unlock()

		it := old.it
		flags, value, expire := it.Flags(), it.Value(), it.Expire()
		if o.Empty {
			flags, value = 0, nil
		}
		if o.Touch {
			expire = o.Expire
		}
		d, err := s.draft(kindYoung, c.part, 0, key, flags, expiry32(expire), len(value), o.NewCAS, false)
		if err != nil {
			return NoMemory
		}
		c.copied += int64(len(value))
		copy(d.data(s), value)
		d.meta |= old.m & (metaStale | metaWon)
		if o.Stale {
			d.meta = d.meta&^metaWon | metaStale
		}
		if _, ok := c.swap(g, tag, d, off); ok {
			return Deleted
		}
		s.abandon(c.part, d)
	}
}

// changeable tells whether a client may change what was found: Stored, NotFound,
// Exists, Mapped.
func (s *Store) changeable(old place, now int64, compare bool, cas uint64) Result {
	switch {
	case !old.ok():
		return NotFound
	case metaSpace(old.m) != 0:
		return Mapped
	case s.gone(old.it, old.m, now):
		return NotFound
	case compare && old.it.CAS() != cas:
		return Exists
	}
	return Stored
}

// Touch sets the expiry (unix seconds, 0 never, negative: at once) of an unmapped
// key and counts an access; the cas stays. The item is readable until Release, so
// Touch stands between Begin and Release. Results: Touched, NotFound, Mapped, NoMemory.
func (c *Session) Touch(key []byte, expire int64) (Item, Result) {
	s := c.s
	if len(key) == 0 || len(key) > MaxKey {
		return Item{}, NotFound
	}
	c.view()
	g, tag := s.locate(s.seeds.sum(key))
	unix := expiry32(expire)
	for {
		now := s.now()
		g.mu.Lock()
		old := s.findLocked(g, tag, key, 0, true)
		if r := s.changeable(old, now, false, 0); r != Stored {
			g.mu.Unlock()
			return Item{}, r
		}
		it := old.it
		off := *old.word & offsetMask << unitShift
		if e := it.expiryAt(old.m); e != nil || unix == 0 {
			if e != nil {
				atomic.StoreUint32(e, unix)
				if unix != 0 {
					s.spanOf(off).noteExpiry(unix)
				}
			}
			g.mu.Unlock()
			c.Bump(it)
			return it, Touched
		}
		g.mu.Unlock()
		// The item has no room for an expiry: a copy takes its place, with its cas.
		d, err := s.draft(kindYoung, c.part, 0, key, it.Flags(), unix, len(it.Value()), 0, false)
		if err != nil {
			return Item{}, NoMemory
		}
		c.copied += int64(d.n)
		copy(d.data(s), it.Value())
		d.meta |= old.m & (metaStale | metaWon)
		if n, ok := c.swapKeeping(g, tag, d, off); ok {
			c.Bump(n)
			return n, Touched
		}
		s.abandon(c.part, d)
	}
}

// swapKeeping is swap for a copy that is the same item to the outside: sequence (and so
// the cas) and access stay.
func (c *Session) swapKeeping(g *segment, tag uint64, d draft, off uint64) (Item, bool) {
	s := c.s
	g.mu.Lock()
	word, line := s.findExactLocked(g, tag, off)
	if word == nil {
		g.mu.Unlock()
		return Item{}, false
	}
	old := place{word: word, line: line, it: s.itemAt(*word)}
	old.m = old.it.meta()
	it := s.linkAsLocked(g, tag, c.part, d, old, old.it.seq(), atomic.LoadUint32(old.it.access()))
	g.mu.Unlock()
	s.retire(c.part, off)
	return it, true
}

// IncrOptions are what incr, decr, meta ma and binary increments ask for.
type IncrOptions struct {
	Decr    bool
	Compare bool
	CAS     uint64
	NewCAS  uint64
	// Create stores Initial when the key is missing, with CreateExpire.
	Create       bool
	Initial      uint64
	CreateExpire int64
	// Touch sets Expire as well.
	Touch  bool
	Expire int64
}

// Incr adds delta to a decimal number, or takes it away, not below 0. A sum wraps at 64
// bits. A shorter result is padded with blanks at its end, as in memcached. The number
// and cas are valid for Stored. Results: Stored, NotFound, Exists, NonNumeric,
// NoMemory, Mapped, NotStored (Create lost against another client).
func (c *Session) Incr(key []byte, delta uint64, o IncrOptions) (value, cas uint64, r Result) {
	s := c.s
	if len(key) == 0 || len(key) > MaxKey {
		return 0, 0, NotFound
	}
	defer c.unhold(c.hold())
	g, tag := s.locate(s.seeds.sum(key))
	var text [20]byte
	for {
		now := s.now()
		g.mu.Lock()
		old := s.findLocked(g, tag, key, 0, true)
		r := s.changeable(old, now, o.Compare, o.CAS)
		if r != Stored {
			g.mu.Unlock()
			if r == NotFound && o.Create {
				return c.create(key, o)
			}
			return 0, 0, r
		}
		off := *old.word & offsetMask << unitShift
		g.mu.Unlock()

		it := old.it
		was := it.Value()
		v, ok := parseNumber(was)
		if !ok {
			return 0, 0, NonNumeric
		}
		switch {
		case !o.Decr:
			v += delta
		case v < delta:
			v = 0
		default:
			v -= delta
		}
		num := strconv.AppendUint(text[:0], v, 10)
		expire := it.Expire()
		if o.Touch {
			expire = o.Expire
		}
		d, err := s.draft(kindYoung, c.part, 0, key, it.Flags(), expiry32(expire), max(len(num), len(was)), o.NewCAS, false)
		if err != nil {
			return 0, 0, NoMemory
		}
		c.copied += int64(d.n)
		data := d.data(s)
		for i := copy(data, num); i < len(data); i++ {
			data[i] = ' '
		}
		d.meta |= old.m & (metaStale | metaWon)
		if cas, ok := c.swap(g, tag, d, off); ok {
			return v, cas, Stored
		}
		s.abandon(c.part, d)
	}
}

// create stores the initial value of a missing counter.
func (c *Session) create(key []byte, o IncrOptions) (uint64, uint64, Result) {
	var text [20]byte
	num := strconv.AppendUint(text[:0], o.Initial, 10)
	d, err := c.s.draft(kindYoung, c.part, 0, key, 0, expiry32(o.CreateExpire), len(num), o.NewCAS, false)
	if err != nil {
		return 0, 0, NoMemory
	}
	copy(d.data(c.s), num)
	cas, r := c.StoreWith(Draft{c, d}, StoreOptions{Mode: Add})
	return o.Initial, cas, r
}

// parseNumber reads a decimal number as memcached does: blanks before it, a plus
// sign, leading zeros, and a blank with anything behind it are allowed, a minus
// sign and an overflow are not.
func parseNumber(b []byte) (v uint64, ok bool) {
	i := 0
	for i < len(b) && isBlank(b[i]) {
		i++
	}
	if i < len(b) && b[i] == '+' {
		i++
	}
	first := i
	for ; i < len(b) && b[i] >= '0' && b[i] <= '9'; i++ {
		digit := uint64(b[i] - '0')
		if v > (1<<64-1-digit)/10 {
			return 0, false
		}
		v = v*10 + digit
	}
	if i == first {
		return 0, false
	}
	return v, i == len(b) || isBlank(b[i])
}

func isBlank(b byte) bool { return b == ' ' || b >= '\t' && b <= '\r' }

// Vivify stores an empty item for a key that is missing, with the token to fill it
// handed out to the caller (mg N). Results: Stored, NotStored when the key
// came to exist meanwhile, NoMemory, Mapped. The item is readable until Release.
func (c *Session) Vivify(key []byte, expire int64, newCAS uint64) (Item, Result) {
	s := c.s
	d, err := s.draft(kindYoung, c.part, 0, key, 0, expiry32(expire), 0, newCAS, false)
	if err != nil {
		return Item{}, NoMemory
	}
	c.view()
	d.meta |= metaWon
	now := s.now()
	g, tag := s.locate(d.hash)
	s.lockRoom(g, c.part)
	old := s.findLocked(g, tag, key, 0, true)
	switch r := s.changeable(old, now, false, 0); r {
	case Mapped:
		g.mu.Unlock()
		s.abandon(c.part, d)
		return Item{}, Mapped
	case Stored:
		g.mu.Unlock()
		s.abandon(c.part, d)
		return Item{}, NotStored
	}
	it := s.itemIn(d.off)
	c.replaceLocked(g, tag, d, old, false, now)
	return it, Stored
}

// TryWin hands the token to recache a stale or ageing item out, once: true for the
// first who asks (mg W, later ones get Z).
func (c *Session) TryWin(it Item) bool {
	if it.meta()&metaWon != 0 {
		return false
	}
	s := c.s
	g, tag := s.locate(s.seeds.sum(it.Key()))
	g.mu.Lock()
	defer g.mu.Unlock()
	// The item may have been moved since it was looked up; the key's is the one that counts.
	now := s.findLocked(g, tag, it.Key(), it.Space(), false)
	if !now.ok() || now.it.seq() != it.seq() || now.m&metaWon != 0 {
		return false
	}
	now.it.setMeta(metaWon, 0)
	it.setMeta(metaWon, 0)
	return true
}

// FlushAll makes every unmapped item that is stored now (at is 0 or past), or will
// have been stored by the unix second at, a miss. Items stored later are not touched.
func (c *Session) FlushAll(at int64) {
	s := c.s
	if at > s.now() {
		s.flush.at.Store(at)
		return
	}
	s.flush.at.Store(0)
	// The keeper sweeps within its period; a get before that counts as get_flushed.
	s.flush.seq.Store(s.seq.Load())
}
