package memory

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Space is a set of items that appear and vanish together: the rows of one mapped
// table since its last copy. Space 0 holds the unmapped keys.
type Space uint16

const maxSpaces = 1 << metaSpaceBits

// The states of a space. Only items of an open one are seen by sessions.
const (
	spaceLoading uint32 = iota // hidden: being copied, and followed
	spaceOpen
	spaceDropped // invisible; being swept
	spaceUnused
)

var (
	// ErrSpaces says that all 4,095 spaces are in use, those being swept included.
	ErrSpaces = errors.New("memory: no space left for another table")
	// ErrDropped says that the space was dropped: stop loading it.
	ErrDropped = errors.New("memory: the space was dropped")
)

type spaceTable struct {
	mu     sync.Mutex
	names  [maxSpaces]string // mu
	states [maxSpaces]atomic.Uint32
	counts [maxSpaces]spaceCount
	dirty  atomic.Bool // a space was dropped or opened: there is something to sweep
	hidden atomic.Bool // the rows of all spaces are withheld
}

type spaceCount struct {
	items   atomic.Int64
	bytes   atomic.Int64
	entries atomic.Int64 // items and tombstones
	tombs   atomic.Int64
}

func (t *spaceTable) state(sp Space) uint32 { return t.states[sp].Load() }

// SpaceStats counts what a space holds; Bytes are of items with their headers.
type SpaceStats struct{ Items, Bytes int64 }

// NewSpace begins a space for a table: hidden and loading.
func (s *Store) NewSpace(table string) (Space, error) {
	t := &s.spaces
	t.mu.Lock()
	defer t.mu.Unlock()
	for sp := 1; sp < maxSpaces; sp++ {
		if t.states[sp].Load() == spaceUnused {
			t.names[sp] = table
			t.states[sp].Store(spaceLoading)
			return Space(sp), nil
		}
	}
	return 0, ErrSpaces
}

// OpenSpace makes a loaded space visible. What was remembered of deletions goes.
func (s *Store) OpenSpace(sp Space) {
	if s.spaces.states[sp].CompareAndSwap(spaceLoading, spaceOpen) && s.spaces.counts[sp].tombs.Load() != 0 {
		s.spaces.dirty.Store(true)
		s.wakeKeeper()
	}
}

// HideRows withholds the rows of every space from sessions, or gives them back; batches and loaders go on.
func (s *Store) HideRows(hide bool) { s.spaces.hidden.Store(hide) }

// DropSpace makes a space's items invisible at once; their memory is reclaimed in
// the background, after which the number may be given to another table.
func (s *Store) DropSpace(sp Space) {
	if sp == 0 {
		return
	}
	t := &s.spaces
	if t.states[sp].CompareAndSwap(spaceOpen, spaceDropped) || t.states[sp].CompareAndSwap(spaceLoading, spaceDropped) {
		t.dirty.Store(true)
		s.wakeKeeper()
	}
}

// SpaceStats counts a space's items. A dropped space holds none.
func (s *Store) SpaceStats(sp Space) SpaceStats {
	if sp == 0 {
		var st SpaceStats
		for i := range s.segments {
			st.Items += s.segments[i].items.load()
			st.Bytes += s.segments[i].bytes.load()
		}
		return st
	}
	if s.spaces.state(sp) > spaceOpen {
		return SpaceStats{}
	}
	c := &s.spaces.counts[sp]
	return SpaceStats{Items: c.items.Load(), Bytes: c.bytes.Load()}
}

// finishSpaces frees the numbers of spaces that are swept.
func (s *Store) finishSpaces() (left bool) {
	t := &s.spaces
	t.mu.Lock()
	defer t.mu.Unlock()
	for sp := 1; sp < maxSpaces; sp++ {
		switch t.states[sp].Load() {
		case spaceDropped:
			if t.counts[sp].entries.Load() == 0 {
				t.names[sp] = ""
				t.states[sp].Store(spaceUnused)
			} else {
				left = true
			}
		case spaceOpen:
			left = left || t.counts[sp].tombs.Load() != 0
		}
	}
	return left
}

// Loader puts copied rows into a loading space (I3). One goroutine; make one for
// each copy worker.
type Loader struct {
	s    *Store
	sp   Space
	part *participant
}

// Load begins to fill a space from a copy, while a Batch follows the log.
func (s *Store) Load(sp Space) *Loader { return &Loader{s, sp, s.join()} }

// Put stores a copied row unless the key is there, or was put or deleted by a batch
// since the space began. Errors: ErrNoMemory, ErrTooLarge, ErrKey, ErrDropped.
func (l *Loader) Put(key, value []byte, flags uint32, expire int64, cas uint64) error {
	s := l.s
	if s.spaces.state(l.sp) > spaceOpen {
		return ErrDropped
	}
	d, err := s.draft(kindMapped, l.part, l.sp, key, flags, expiry32(expire), len(value), cas, false)
	if err != nil {
		return err
	}
	copy(d.data(s), value)
	g, tag := s.locate(d.hash)
	s.lockRoom(g, l.part)
	// The state is looked at with the segment locked, as the sweep of a dropped space does.
	if s.spaces.state(l.sp) > spaceOpen {
		g.mu.Unlock()
		s.abandon(l.part, d)
		return ErrDropped
	}
	if s.findLocked(g, tag, key, l.sp, false).ok() {
		g.mu.Unlock()
		s.abandon(l.part, d)
		return nil
	}
	unmapped := s.unlinkUnmappedLocked(g, tag, key)
	s.linkLocked(g, tag, l.part, d, place{}, s.now())
	g.mu.Unlock()
	s.retire(l.part, unmapped)
	return nil
}

// Close ends the loader; the space stays as it is.
func (l *Loader) Close() { l.s.part(l.part) }
