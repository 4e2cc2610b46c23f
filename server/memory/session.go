package memory

import (
	"bytes"
	"sync/atomic"
	"unsafe"
)

// Session is one loop's access to the store; not for concurrent use. Lookups stand
// between Begin and End, which must be short, since a publisher waits for End; what
// they give stays readable until Release.
type Session struct {
	s    *Store
	part *participant
	now  int64 // unix seconds, at Begin
	// copied counts bytes of values that changes of a part had to copy whole.
	copied int64
	ahead  [GroupKeys]lookahead
}

// NewSession registers a session.
func (s *Store) NewSession() *Session {
	c := &Session{s: s, part: &participant{}, now: s.Now()}
	s.joinAs(c.part)
	s.publish.add(c)
	return c
}

// Close unregisters the session; what it views is given up.
func (c *Session) Close() {
	c.Release()
	c.s.publish.remove(c)
	c.s.part(c.part)
}

// Copied is how many bytes of values this session has copied because a request changed a part of
// an item, which may be far more than the request had: it tells the loop whose turn is over.
func (c *Session) Copied() int64 { return c.copied }

// Begin starts a group of lookups that sees every transaction whole or not at all.
func (c *Session) Begin() {
	s := c.s
	if s.clock.injected {
		s.tick()
	}
	c.now = s.now()
	for {
		state := c.part.state.load()
		if state == 0 {
			state = s.epoch.Load() << 1
		}
		c.part.state.set(state | 1)
		if !s.publish.busy.Load() {
			return
		}
		// A publisher is at work or about to be: let it pass. What was viewed before
		// stays announced.
		if !c.part.viewing {
			state = 0
		}
		c.part.state.set(state)
		s.publish.wait()
	}
}

// End ends the group; what it gave stays readable.
func (c *Session) End() {
	state := c.part.state.load() &^ 1
	if !c.part.viewing {
		state = 0
	}
	c.part.state.lower(state)
}

// Release gives up all views that are not pinned, and ends the group if End did not.
func (c *Session) Release() {
	c.part.viewing = false
	if c.part.state.load() != 0 {
		c.part.state.lower(0)
	}
}

// Get looks a key up and counts the access. Between Begin and End only.
func (c *Session) Get(key []byte) Item {
	it := c.find(key, c.s.seeds.sum(key))
	if it.p != nil {
		c.Bump(it)
	}
	return it
}

// Peek looks a key up and leaves no trace. Between Begin and End only.
func (c *Session) Peek(key []byte) Item { return c.find(key, c.s.seeds.sum(key)) }

// Bump counts an access to an item that Peek gave.
func (c *Session) Bump(it Item) {
	p := it.access()
	old := atomic.LoadUint32(p)
	freq := old & accessFreq
	if freq < accessFreq {
		freq++
	}
	if v := c.s.accessNow(c.now) | accessFetched | freq; v != old {
		storeRelaxed(unsafe.Pointer(p), v)
	}
}

// find is the lookup. It takes no lock: see index.go for why it finds what is there.
func (c *Session) find(key []byte, hash uint64) Item {
	s := c.s
	g := &s.segments[hash>>s.segmentShift]
	tag := hash & tagMask
	for {
		version := g.version.Load()
		base, lines := s.lines(g.desc.Load())
		if lines == 0 {
			return Item{}
		}
		line := home(tag, lines)
		for range lines {
			free := false
			for i := range lineWords {
				w := atomic.LoadUint64(wordAt(base, line, i))
				if w>>offsetBits != tag || w == 0 {
					free = free || w == 0
					continue
				}
				it := s.itemAt(w)
				m := it.meta()
				if metaKeyLen(m) != len(key) || !bytes.Equal(it.key(m), key) {
					continue
				}
				switch s.visible(it, m, c.now) {
				case seen:
					c.part.viewing = true
					return it
				case seenExpired:
					c.part.count.missExpired.add(1)
				case seenFlushed:
					c.part.count.missFlushed.add(1)
				}
			}
			if free {
				break
			}
			if line++; line == lines {
				line = 0
			}
		}
		if g.version.Load() == version {
			return Item{}
		}
	}
}

// sight is what a lookup makes of an item of its key.
type sight uint8

const (
	seen        sight = iota
	seenHidden        // its space is not open, or it stands for a deleted row
	seenExpired       // past its expiry
	seenFlushed       // stored before a flush_all
)

// visible applies the rules of spaces, flush_all and expiry.
func (s *Store) visible(it Item, m uint32, now int64) sight {
	if sp := metaSpace(m); sp != 0 {
		if s.spaces.state(sp) != spaceOpen || m&metaTomb != 0 || s.spaces.hidden.Load() {
			return seenHidden
		}
	} else if it.seq() <= s.flush.seq.Load() {
		return seenFlushed
	}
	if e := it.expiryAt(m); e != nil {
		if t := int64(atomic.LoadUint32(e)); t != 0 && t <= now {
			return seenExpired
		}
	}
	return seen
}

// gone tells whether an item is past its expiry or a flush, so that it may be
// removed. In a loading space nothing is: it shows that its key was touched (I3).
func (s *Store) gone(it Item, m uint32, now int64) bool {
	sp := metaSpace(m)
	if sp == 0 && it.seq() <= s.flush.seq.Load() {
		return true
	}
	if e := it.expiryAt(m); e != nil {
		t := int64(atomic.LoadUint32(e))
		return t != 0 && t <= now && s.spaces.state(sp) != spaceLoading
	}
	return false
}
