package memory

import (
	"bytes"
	"sync"
	"sync/atomic"
	"unsafe"
)

// The index. The naive form, a Go map behind a lock, makes the collector scan it,
// stops for a whole rehash when it grows, and readers write to the lock. Here a key's
// hash chooses a segment by its top bits and within it a line of 8 words, one cache
// line, by multiplying its 26-bit tag with the number of lines; a segment so can have
// any number of lines and grows by a fifth. A word is tag << 38 | offset in units of
// 8 bytes, so growing moves words without looking at a single item.
//
// A full line overflows into the next one. An item lies beyond its home line only
// if all lines in between are full, so a reader stops at the first line with a free
// word. A removal keeps that: it pulls an overflowed word back. A reader that passes
// the destination before and the origin after such a move would miss the item; the
// mover raises the segment's version between its two stores, and a reader that has
// missed looks again if the version changed.
const (
	offsetBits = 38
	tagBits    = 26
	offsetMask = 1<<offsetBits - 1
	tagMask    = 1<<tagBits - 1
	lineWords  = 8
	lineBytes  = lineWords * 8
	fillWords  = 7 // grow when that many words of a line are taken on average
)

// segment is one part of the index.
type segment struct {
	desc    atomic.Uint64 // offset of the lines in units << tagBits | lines; 0: none
	version atomic.Uint64 // see above; written with mu
	mu      sync.Mutex
	count   gauge // words taken; written with mu
	items   gauge // items of space 0; written with mu
	bytes   gauge // their sizes; written with mu
	_       [16]byte
}

func home(tag uint64, lines uint64) uint64 { return tag * lines >> tagBits }

// locate splits a hash.
func (s *Store) locate(hash uint64) (*segment, uint64) {
	return &s.segments[hash>>s.segmentShift], hash & tagMask
}

// lines gives the segment's lines, with mu or in an announced epoch.
func (s *Store) lines(desc uint64) (unsafe.Pointer, uint64) {
	return s.region.at(desc >> tagBits << unitShift), desc & tagMask
}

func wordAt(base unsafe.Pointer, line uint64, i int) *uint64 {
	return (*uint64)(unsafe.Add(base, line*lineBytes+uint64(i)*8))
}

func (s *Store) itemAt(word uint64) Item { return s.itemIn(word & offsetMask << unitShift) }

func (s *Store) itemIn(off uint64) Item { return Item{s.region.at(off), s} }

func makeWord(tag, off uint64) uint64 { return tag<<offsetBits | off>>unitShift }

// place is where a word is, for a writer that holds the segment.
type place struct {
	word *uint64
	line uint64
	it   Item
	m    uint32
}

func (p place) ok() bool { return p.word != nil }

// findLocked looks for the key's item in space sp. With any, an item of another
// space that is loading or open is found as well, and preferred.
func (s *Store) findLocked(g *segment, tag uint64, key []byte, sp Space, any bool) (found place) {
	base, lines := s.lines(g.desc.Load())
	if lines == 0 {
		return
	}
	line := home(tag, lines)
	for range lines {
		free := false
		for i := range lineWords {
			word := wordAt(base, line, i)
			w := *word
			if w>>offsetBits != tag || w == 0 {
				free = free || w == 0
				continue
			}
			it := s.itemAt(w)
			m := it.meta()
			if metaKeyLen(m) != len(key) || !bytes.Equal(it.key(m), key) {
				continue
			}
			switch is := metaSpace(m); {
			case is == sp && !any:
				return place{word, line, it, m}
			case is == sp:
				found = place{word, line, it, m}
			case any && s.owned(it, m):
				return place{word, line, it, m}
			}
		}
		if free {
			return
		}
		if line++; line == lines {
			line = 0
		}
	}
	return
}

// owned tells whether an item, or what is remembered of one, shows that its key
// belongs to a table.
func (s *Store) owned(it Item, m uint32) bool {
	switch s.spaces.state(metaSpace(m)) {
	case spaceLoading:
		return true
	case spaceOpen:
		return m&metaTomb == 0 && !s.gone(it, m, s.now())
	}
	return false
}

// hasRoomLocked tells whether one more word may be inserted without growing.
func (s *Store) hasRoomLocked(g *segment) bool {
	lines := int64(g.desc.Load() & tagMask)
	return g.count.load() < lines*fillWords
}

// insertLocked adds a word; the caller has seen a free one with hasRoomLocked, or
// at least that not all are taken.
func (s *Store) insertLocked(g *segment, tag, off uint64) {
	base, lines := s.lines(g.desc.Load())
	s.insertInto(base, lines, makeWord(tag, off))
	g.count.add(1)
}

func (s *Store) insertInto(base unsafe.Pointer, lines, word uint64) {
	line := home(word>>offsetBits, lines)
	for {
		for i := range lineWords {
			if p := wordAt(base, line, i); *p == 0 {
				storeRelease64(p, word)
				return
			}
		}
		if line++; line == lines {
			line = 0
		}
	}
}

// fullLocked: but one word, all are taken.
func (s *Store) fullLocked(g *segment) bool {
	return g.count.load() >= int64(g.desc.Load()&tagMask)*lineWords-1
}

// lockRoom locks a segment that has room for one more word. It grows beyond the
// memory limit rather than fail: whoever publishes cannot turn back.
func (s *Store) lockRoom(g *segment, p *participant) {
	g.mu.Lock()
	if s.hasRoomLocked(g) {
		return
	}
	for {
		full := s.fullLocked(g)
		g.mu.Unlock()
		s.grow(g, p, full)
		g.mu.Lock()
		if !s.fullLocked(g) {
			return
		}
	}
}

// findExactLocked looks for the word of an item that is at that offset.
func (s *Store) findExactLocked(g *segment, tag, off uint64) (word *uint64, line uint64) {
	base, lines := s.lines(g.desc.Load())
	if lines == 0 {
		return nil, 0
	}
	want := makeWord(tag, off)
	line = home(tag, lines)
	for range lines {
		free := false
		for i := range lineWords {
			word := wordAt(base, line, i)
			if *word == want {
				return word, line
			}
			free = free || *word == 0
		}
		if free {
			break
		}
		if line++; line == lines {
			line = 0
		}
	}
	return nil, 0
}

// removeLocked takes a word out and pulls overflowed ones back. A word is never emptied while an overflowed one may still
// have to be found beyond it: what is pulled back is written over it, and stands in two places until its own is
// written over in turn. Only the last one is emptied.
func (s *Store) removeLocked(g *segment, word *uint64, line uint64) {
	base, lines := s.lines(g.desc.Load())
	g.count.add(-1)
	full := lineFull(base, line)
	hole := line
	for next := line; full; {
		if next++; next == lines {
			next = 0
		}
		if next == line {
			break
		}
		full = lineFull(base, next)
		// A word of this line may fill the hole if its home is at or before it.
		reach := (next + lines - hole) % lines
		for i := range lineWords {
			p := wordAt(base, next, i)
			w := *p
			if w == 0 || (next+lines-home(w>>offsetBits, lines))%lines < reach {
				continue
			}
			storeRelease64(word, w)
			g.version.Add(1)
			word, hole = p, next
			break
		}
	}
	storeRelease64(word, 0)
}

func lineFull(base unsafe.Pointer, line uint64) bool {
	for i := range lineWords {
		if *wordAt(base, line, i) == 0 {
			return false
		}
	}
	return true
}

// grow gives the segment about a fifth more lines, unless another did meanwhile.
// Without force it may fail for want of memory, which is no error as long as a
// word is free. The caller must not hold the segment.
func (s *Store) grow(g *segment, p *participant, force bool) {
	g.mu.Lock()
	old := g.desc.Load()
	room := s.hasRoomLocked(g)
	g.mu.Unlock()
	if room {
		return
	}
	lines := old & tagMask
	s.resize(g, p, old, max(lines+lines/6, lines+4, 16), force)
}

// resize replaces the lines if desc still is old.
func (s *Store) resize(g *segment, p *participant, old, lines uint64, force bool) {
	size := max(int(lines)*lineBytes, 1024)
	if c := s.layout.classOf(size); c != largeClass {
		size = s.layout.slotSize(c) &^ (lineBytes - 1)
	} else {
		size = (size + grainSize - 1) &^ (grainSize - 1)
	}
	lines = uint64(size / lineBytes)
	off, ok := s.alloc(kindIndex, size, p, force)
	if !ok {
		return
	}
	base := s.region.at(off)
	clear(unsafe.Slice((*uint64)(base), lines*lineWords))
	g.mu.Lock()
	if g.desc.Load() != old || g.count.load() >= int64(lines*fillWords) {
		g.mu.Unlock()
		s.give(off)
		return
	}
	from, n := s.lines(old)
	for i := range n * lineWords {
		if w := *wordAt(from, 0, int(i)); w != 0 {
			s.insertInto(base, lines, w)
		}
	}
	g.desc.Store(off>>unitShift<<tagBits | lines)
	g.mu.Unlock()
	s.indexBytes.Add(int64(size))
	if n != 0 {
		s.indexBytes.Add(-int64(n * lineBytes))
		s.retire(p, s.linesOffset(old)|retiredLines)
	}
}

func (s *Store) linesOffset(desc uint64) uint64 { return desc >> tagBits << unitShift }
