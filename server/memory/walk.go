package memory

import "sync/atomic"

// Cursor is a place in a walk over all items; 0 is the start.
type Cursor uint64

// Walk calls fn for every visible item until it returns false. An item is valid
// during its call. Items that are stored or deleted meanwhile may be missed.
func (s *Store) Walk(fn func(Item) bool) {
	for at, more := Cursor(0), true; more; {
		at, more = s.WalkFrom(at, fn)
	}
}

// WalkFrom walks over one segment, some thousand items at most, and gives where to go on;
// more is false at the end, and after fn has returned false.
func (s *Store) WalkFrom(at Cursor, fn func(Item) bool) (next Cursor, more bool) {
	if at >= Cursor(len(s.segments)) {
		return at, false
	}
	p := s.join()
	defer s.part(p)
	p.state.set(s.epoch.Load() << 1)
	now := s.now()
	base, lines := s.lines(s.segments[at].desc.Load())
	for i := range lines * lineWords {
		w := atomic.LoadUint64(wordAt(base, 0, int(i)))
		if w == 0 {
			continue
		}
		it := s.itemAt(w)
		if s.visible(it, it.meta(), now) == seen && !fn(it) {
			return at, false
		}
	}
	return at + 1, at+1 < Cursor(len(s.segments))
}
