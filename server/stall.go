package server

import (
	"cmp"
	"iter"
	"slices"
	"time"
)

// A client that does not go on keeps the server holding things for it: an item whose data it has
// announced, replies that it does not read and what they consist of, a line that does not end. One
// connection's share is bounded by the sizes of an item, an output and a line, but connections are
// many. So what all of them make the server hold is counted, and may be a quarter of the memory
// limit: of items in queued replies those alone that were replaced meanwhile, for only they take
// memory that others could use. Above that, connections that have not moved for a while are
// closed. A client that moves by a byte now and then would escape that: so well above the
// quarter, or when a value was refused because of what others hold, those that have waited longest
// are closed, moving or not. Nothing is held against a client as long as there is room.
const (
	stallGrace = time.Second            // without a byte in either direction
	pressEvery = 200 * time.Millisecond // between two looks at the connections of a loop
	pressFast  = time.Millisecond       // the same while far too much is held
	pressShare = 10                     // of a loop's time, one part goes into looking at most
	stallLeast = 4 << 10                // less than that is not counted
	askEvery   = 64                     // values stored between two looks at what is pinned
)

// stall is what is known of a connection that waits for its client.
type stall struct {
	cost  int64  // bytes held for it, as Server.held counts them
	begin int64  // unix nanoseconds of the first look that found it waiting; 0: it did not wait at the last one
	since int64  // of the first look that found it where it is
	moved uint64 // bytes that its client had moved then
}

// heldLimit is how many bytes may be held for clients that do not go on.
func (s *Server) heldLimit() int64 { return s.cfg.Memory.Limit() / 4 }

// hold notes how many bytes are held for a connection from now on.
func (s *Server) hold(c *conn, bytes int64) {
	if bytes < stallLeast {
		bytes = 0
	}
	if d := bytes - c.stall.cost; d != 0 {
		c.stall.cost = bytes
		s.holdMore(d)
	}
	if bytes == 0 {
		c.stall.begin = 0
	}
}

// holdMore notes that n more bytes are held, or fewer.
func (s *Server) holdMore(n int64) {
	s.held.Add(n)
	if n > 0 {
		s.checkHeld()
	}
}

// heldBytes is what clients that do not go on make the server hold.
func (s *Server) heldBytes() int64 { return s.held.Load() + s.cfg.Memory.PinnedBytes() }

// checkHeld wakes the engines if more is held than is allowed. They look at their connections
// until it is not.
func (s *Server) checkHeld() {
	if s.heldBytes() > s.heldLimit() && !s.pressing.Swap(true) {
		for _, wake := range s.wakers {
			wake()
		}
	}
}

// mayWait says whether there is room for a value of which only a part has arrived. One is
// always taken, be it as large as it may, and so are small ones.
func (s *Server) mayWait(size int) bool {
	held, limit := s.heldBytes(), s.heldLimit()
	if size <= readBytes || held <= limit || held+int64(size) <= 2*limit {
		return true
	}
	s.refusing.Store(true)
	return false
}

// waiting is what is held for the connection while its input is not complete: what has come
// of it, and the item that is to take it.
func (c *conn) waiting(held []byte) int64 {
	n := int64(len(held))
	if c.phase == phaseBody {
		n += int64(c.store.size)
	}
	return n
}

// cost is what an output takes of the heap while it waits to be sent.
func (o *output) cost() int64 {
	n := outBytes + outVectors*vectorSize + foundSize*len(o.todo)
	for _, b := range o.owned {
		n += len(b)
	}
	return int64(n)
}

// replaced is how many bytes of the output's items nobody else needs any more.
func (o *output) replaced() (n int64) {
	for _, it := range o.items {
		if it.Replaced() {
			n += int64(it.Size())
		}
	}
	for _, f := range o.todo[o.next:] {
		if f.item.Replaced() {
			n += int64(f.item.Size())
		}
	}
	return n
}

// What a piece of an output and an entry of its todo take, in bytes.
const (
	vectorSize = 16
	foundSize  = 48
)

// victim is a connection that waits for its client.
type victim[S any] struct {
	socket S
	conn   *conn
	cost   int64
}

// presser says when a loop looks at its connections next. It belongs to the loop.
type presser struct{ next time.Time }

// press closes, by drop, waiting connections as far as too much is held. It looks at all of
// them, which takes a while, so it does that only now and then.
func press[S any](p *presser, s *Server, all iter.Seq[victim[S]], drop func(S)) {
	begin := time.Now()
	if begin.Before(p.next) {
		return
	}
	now := begin.UnixNano()
	var list []victim[S]
	for v := range all {
		st := &v.conn.stall
		moved := v.conn.info.moved()
		switch {
		case st.begin == 0:
			st.begin, st.since, st.moved = now, now, moved
		case st.moved != moved:
			st.since, st.moved = now, moved
		}
		list = append(list, v)
	}
	s.cfg.Memory.Reclaim()
	total, limit := s.heldBytes(), s.heldLimit()
	far, refusing := total > limit+limit/2, s.refusing.Load()
	slices.SortStableFunc(list, func(a, b victim[S]) int { return cmp.Compare(a.conn.stall.begin, b.conn.stall.begin) })
	least := total / int64(4*max(1, len(list))) // who holds much less than others is not to blame
	for _, v := range list {
		if total <= limit {
			break
		}
		st := &v.conn.stall
		if v.cost >= least && (far || now-st.since >= int64(stallGrace) || refusing && now-st.begin >= int64(stallGrace)) {
			total -= v.cost
			s.stalled.Add(1)
			drop(v.socket)
		}
	}
	pause := pressEvery
	switch {
	case total <= limit:
		s.refusing.Store(false)
		s.pressing.Store(false)
		s.checkHeld() // the memory of what was dropped comes back later; or more has come
	case far:
		pause = pressFast
	}
	p.next = begin.Add(max(pause, pressShare*time.Since(begin)))
}
