package memory

import (
	"bytes"
	"sync/atomic"
	"unsafe"
)

// A lookup waits for memory twice: for the line of the index, and for the item. One after
// the other, a hundred lookups wait two hundred times. GetAll goes over the keys in three
// passes, asking for all lines, then for all items, and only then looking, so that
// the waits of a group overlap.

// GroupKeys is how many keys are on their way at once: more would not be fetched at
// once by any processor.
const GroupKeys = 32

// lookahead is what the first passes found out about a key.
type lookahead struct {
	hash uint64
	line unsafe.Pointer // the key's home line; nil when its segment is empty
	word uint64         // the first word with the key's tag
}

// prefetchHome asks for a key's home line.
func (s *Store) prefetchHome(hash uint64) {
	g, tag := s.locate(hash)
	base, lines := s.lines(g.desc.Load())
	prefetchLine(unsafe.Add(base, home(tag, lines)*lineBytes))
}

// prefetchMatch asks for the item that a key's home line names. The item may be gone
// already: nothing is read of it.
func (s *Store) prefetchMatch(hash uint64) {
	g, tag := s.locate(hash)
	base, lines := s.lines(g.desc.Load())
	if lines == 0 {
		return
	}
	line := unsafe.Add(base, home(tag, lines)*lineBytes)
	for j := range lineWords {
		if w := atomic.LoadUint64((*uint64)(unsafe.Add(line, j*8))); w>>offsetBits == tag && w != 0 {
			prefetchLine(s.region.at(w & offsetMask << unitShift))
			return
		}
	}
}

// GetAll is Get for several keys: items[i] is that of keys[i]. Between Begin and End only.
func (c *Session) GetAll(keys [][]byte, items []Item) {
	for len(keys) > GroupKeys {
		c.getGroup(keys[:GroupKeys], items)
		keys, items = keys[GroupKeys:], items[GroupKeys:]
	}
	if len(keys) < 3 {
		for i, key := range keys {
			items[i] = c.Get(key)
		}
		return
	}
	c.getGroup(keys, items)
}

// Warm asks for what look-ups of the keys will read, so that their waits overlap though
// they are looked up one by one. Keys beyond GroupKeys are left out. Between Begin and End only.
func (c *Session) Warm(keys [][]byte) { c.askFor(keys[:min(len(keys), GroupKeys)]) }

func (c *Session) getGroup(keys [][]byte, items []Item) {
	s := c.s
	c.askFor(keys)
	for i, key := range keys {
		a := &c.ahead[i]
		if a.word != 0 {
			it := s.itemAt(a.word)
			if m := it.meta(); metaKeyLen(m) == len(key) && bytes.Equal(it.key(m), key) && s.visible(it, m, c.now) == seen {
				c.part.viewing = true
				c.Bump(it)
				items[i] = it
				continue
			}
		}
		items[i] = c.find(key, a.hash)
		if items[i].p != nil {
			c.Bump(items[i])
		}
	}
}

// askFor is the first two passes.
func (c *Session) askFor(keys [][]byte) {
	s := c.s
	ahead := c.ahead[:len(keys)]
	for i, key := range keys {
		a := &ahead[i]
		a.hash = s.seeds.sum(key)
		g, tag := s.locate(a.hash)
		base, lines := s.lines(g.desc.Load())
		a.line = nil
		if lines != 0 {
			a.line = unsafe.Add(base, home(tag, lines)*lineBytes)
			prefetchLine(a.line)
		}
	}
	for i := range ahead {
		a := &ahead[i]
		a.word = 0
		if a.line == nil {
			continue
		}
		tag := a.hash & tagMask
		for j := range lineWords {
			if w := atomic.LoadUint64((*uint64)(unsafe.Add(a.line, j*8))); w>>offsetBits == tag && w != 0 {
				a.word = w
				prefetchItem(s.region.at(w & offsetMask << unitShift))
				break
			}
		}
	}
}
