package memory

import (
	"sync/atomic"
	"unsafe"
)

// Mode is what a store command asks for.
type Mode uint8

const (
	Set Mode = iota
	Add
	Replace
	Append
	Prepend
	CAS // set only if the item's cas still is the one given
)

// Result is the outcome of a client's write.
type Result uint8

const (
	Stored Result = iota
	NotStored
	Exists   // the cas differs
	NotFound // there is no such item
	TooLarge
	NoMemory
	Mapped // the key belongs to a table
	Deleted
	Touched
	NonNumeric // incr or decr of something that is not a number
)

func (r Result) String() string {
	return [...]string{"STORED", "NOT_STORED", "EXISTS", "NOT_FOUND", "TOO_LARGE", "NO_MEMORY", "MAPPED", "DELETED", "TOUCHED", "NON_NUMERIC"}[r]
}

// Draft is an item whose data is still arriving. It ends with Store or Abort,
// exactly once, on the session that reserved it.
type Draft struct {
	c *Session
	d draft
}

// Reserve takes memory for an item of n data bytes. Errors: ErrKey, ErrTooLarge,
// ErrNoMemory: nothing could be evicted, or what was is still viewed by this
// session; after Release it is worth another try.
func (c *Session) Reserve(key []byte, flags uint32, expire int64, n int) (Draft, error) {
	d, err := c.s.draft(kindYoung, c.part, 0, key, flags, expiry32(expire), n, 0, false)
	return Draft{c, d}, err
}

// OK tells whether the draft holds memory.
func (d *Draft) OK() bool { return d.c != nil && d.d.off != 0 }

// Data is where the value goes, n bytes; valid until Store or Abort.
func (d *Draft) Data() []byte { return d.d.data(d.c.s) }

// Key is the key given to Reserve.
func (d *Draft) Key() []byte { return d.d.key(d.c.s) }

// Abort gives the memory back.
func (d *Draft) Abort() {
	d.c.s.abandon(d.c.part, d.d)
	d.d.off = 0
}

// StoreOptions are what the meta protocol adds to a store.
type StoreOptions struct {
	Mode    Mode
	Compare bool   // store only if the item's cas is CAS
	CAS     uint64 //
	Stale   bool   // with Compare: an older CAS stores too, marks the item stale, and keeps its expiry and token (ms I)
	NewCAS  uint64 // the cas that the item gets (ms E); 0: chosen
	// Vivify makes Append and Prepend of a missing key store the draft as it is (ms N).
	Vivify       bool
	VivifyExpire int64
}

// Store makes the draft an item. cas is compared in mode CAS only. The new cas is
// valid for Stored.
func (c *Session) Store(d Draft, mode Mode, cas uint64) (newCAS uint64, r Result) {
	return c.StoreWith(d, StoreOptions{Mode: mode, Compare: mode == CAS, CAS: cas})
}

// StoreWith is Store with everything the meta and binary protocols can ask for.
func (c *Session) StoreWith(dr Draft, o StoreOptions) (newCAS uint64, r Result) {
	d := dr.d
	if o.Mode == Append || o.Mode == Prepend {
		return c.extend(d, o)
	}
	if o.NewCAS != 0 {
		var ok bool
		if d, ok = c.widen(d, o.NewCAS); !ok {
			return 0, NoMemory
		}
	}
	s := c.s
	if o.Stale && d.meta&(metaWide|metaTimed) == 0 {
		// A stale store keeps the old item's expiry, for which there must be room.
		w, ok := s.copyDraft(c.part, d, headTimed)
		w.meta |= metaTimed
		s.abandon(c.part, d)
		if !ok {
			return 0, NoMemory
		}
		d = w
	}
	now := s.now()
	g, tag := s.locate(d.hash)
	s.lockRoom(g, c.part)
	old := s.findLocked(g, tag, d.key(s), 0, true)
	if old.ok() && metaSpace(old.m) != 0 {
		g.mu.Unlock()
		s.abandon(c.part, d)
		return 0, Mapped
	}
	exists := old.ok() && !s.gone(old.it, old.m, now)
	r, stale := o.decide(old, exists)
	if r != Stored {
		g.mu.Unlock()
		s.abandon(c.part, d)
		return 0, r
	}
	if stale {
		// It only replaces the value: the time and the token that was handed out stay.
		d.meta |= metaStale | old.m&metaWon
		d.expire = uint32(old.it.Expire())
	}
	newCAS = c.replaceLocked(g, tag, d, old, exists, now)
	return newCAS, Stored
}

// decide applies the mode and the cas.
func (o *StoreOptions) decide(old place, exists bool) (r Result, stale bool) {
	if !exists {
		switch {
		case o.Compare:
			return NotFound, false
		case o.Mode == Replace:
			return NotStored, false
		}
		return Stored, false
	}
	if o.Mode == Add {
		return NotStored, false
	}
	if o.Compare {
		if cas := old.it.CAS(); cas != o.CAS {
			if !o.Stale || o.CAS > cas {
				return Exists, false
			}
			return Stored, true
		}
	}
	return Stored, false
}

// replaceLocked links the draft in place of old, unlocks the segment and retires
// old. The frequency is the key's, so it goes over to the new item.
func (c *Session) replaceLocked(g *segment, tag uint64, d draft, old place, exists bool, now int64) uint64 {
	s := c.s
	var off uint64
	if old.ok() {
		off = *old.word & offsetMask << unitShift
		if exists {
			d.access = atomic.LoadUint32(old.it.access()) & accessFreq
		} else {
			c.countGone(old.it)
		}
	}
	cas := s.linkLocked(g, tag, c.part, d, old, now).CAS()
	g.mu.Unlock()
	s.retire(c.part, off)
	return cas
}

func (c *Session) countGone(it Item) {
	c.part.count.expired.add(1)
	if !it.Fetched() {
		c.part.count.expiredUnfetched.add(1)
	}
}

// widen gives a draft a cas from outside, which needs the wide header.
func (c *Session) widen(d draft, cas uint64) (draft, bool) {
	s := c.s
	if d.meta&metaWide != 0 {
		d.cas = cas
		return d, true
	}
	w, ok := s.copyDraft(c.part, d, headWide)
	if ok {
		w.meta = d.meta&^metaTimed | metaWide
		w.cas = cas
	}
	s.abandon(c.part, d)
	return w, ok
}

// copyDraft copies a draft into a slot with another header; the meta bits are the caller's.
func (s *Store) copyDraft(p *participant, d draft, head int) (draft, bool) {
	from := headLen(d.meta)
	w := d
	w.size, w.value = d.size-from+head, d.value-from+head
	off, ok := s.alloc(kindYoung, w.size, p, false)
	if !ok {
		p.count.noMemory.add(1)
		return draft{}, false
	}
	p.count.drafts.add(1)
	w.off = off
	copy(s.slot(off, w.size)[head:], s.slot(d.off, d.size)[from:])
	return w, true
}

func (s *Store) slot(off uint64, size int) []byte {
	return unsafe.Slice((*byte)(s.region.at(off)), size)
}

// held is what hold changed.
type held struct {
	state uint64
	mine  bool
}

// hold keeps what the session reads under a lock readable after it, until unhold.
func (c *Session) hold() held {
	if c.part.viewing {
		return held{}
	}
	h := held{c.part.state.load(), true}
	if h.state == 0 {
		c.part.state.set(c.s.epoch.Load() << 1)
	}
	c.part.viewing = true
	return h
}

func (c *Session) unhold(h held) {
	if h.mine {
		c.part.viewing = false
		c.part.state.lower(h.state)
	}
}

// view keeps an item that is about to be given out readable until Release.
func (c *Session) view() {
	if c.part.state.load() == 0 {
		c.part.state.set(c.s.epoch.Load() << 1)
	}
	c.part.viewing = true
}

// extend appends or prepends: a new item of old's flags and expiry.
func (c *Session) extend(d draft, o StoreOptions) (uint64, Result) {
	s := c.s
	defer c.unhold(c.hold())
	key := d.key(s)
	g, tag := s.locate(d.hash)
	for {
		now := s.now()
		g.mu.Lock()
		old := s.findLocked(g, tag, key, 0, true)
		if old.ok() && metaSpace(old.m) != 0 {
			g.mu.Unlock()
			s.abandon(c.part, d)
			return 0, Mapped
		}
		if !old.ok() || s.gone(old.it, old.m, now) {
			g.mu.Unlock()
			switch {
			case o.Vivify:
				return c.vivifyDraft(d, o)
			case o.Compare:
				s.abandon(c.part, d)
				return 0, NotFound
			}
			s.abandon(c.part, d)
			return 0, NotStored
		}
		r, stale := o.decide(old, true)
		if r != Stored {
			g.mu.Unlock()
			s.abandon(c.part, d)
			return 0, r
		}
		off := *old.word & offsetMask << unitShift
		g.mu.Unlock()

		it := old.it
		was := it.Value()
		n, err := s.draft(kindYoung, c.part, 0, key, it.Flags(), expiry32(it.Expire()), len(was)+d.n, o.NewCAS, false)
		if err != nil {
			s.abandon(c.part, d)
			if err == ErrNoMemory {
				return 0, NoMemory
			}
			return 0, TooLarge
		}
		c.copied += int64(n.n)
		to := n.data(s)
		if o.Mode == Append {
			copy(to[copy(to, was):], d.data(s))
		} else {
			copy(to[copy(to, d.data(s)):], was)
		}
		if stale {
			n.meta |= metaStale
		}
		if cas, ok := c.swap(g, tag, n, off); ok {
			s.abandon(c.part, d)
			return cas, Stored
		}
		s.abandon(c.part, n)
	}
}

// swap links d in place of the item at off, if that still is the key's.
func (c *Session) swap(g *segment, tag uint64, d draft, off uint64) (uint64, bool) {
	s := c.s
	now := s.now()
	g.mu.Lock()
	word, line := s.findExactLocked(g, tag, off)
	if word == nil {
		g.mu.Unlock()
		return 0, false
	}
	old := place{word: word, line: line, it: s.itemAt(*word)}
	old.m = old.it.meta()
	return c.replaceLocked(g, tag, d, old, true, now), true
}

// vivifyDraft stores the draft of an append to a missing key.
func (c *Session) vivifyDraft(d draft, o StoreOptions) (uint64, Result) {
	s := c.s
	n, err := s.draft(kindYoung, c.part, 0, d.key(s), flagsOf(d.key(s), s.slot(d.off, d.size)[headLen(d.meta):]),
		expiry32(o.VivifyExpire), d.n, o.NewCAS, false)
	if err != nil {
		s.abandon(c.part, d)
		return 0, NoMemory
	}
	copy(n.data(s), d.data(s))
	s.abandon(c.part, d)
	return c.StoreWith(Draft{c, n}, StoreOptions{Mode: Add})
}

// flagsOf reads the flags out of a wire form.
func flagsOf(key, wire []byte) (f uint32) {
	for i := wireLead + len(key) + 1; wire[i] != ' '; i++ {
		f = f*10 + uint32(wire[i]-'0')
	}
	return f
}
