package server

import (
	"errors"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

func modeOf(op protocol.Op) memory.Mode {
	switch op {
	case protocol.OpAdd:
		return memory.Add
	case protocol.OpReplace:
		return memory.Replace
	case protocol.OpAppend:
		return memory.Append
	case protocol.OpPrepend:
		return memory.Prepend
	case protocol.OpCAS:
		return memory.CAS
	}
	return memory.Set
}

// set executes a storage command, as far as its data block has arrived. It says
// how much of after it took. A block whose length is known is always taken off
// the connection, whatever is wrong, so that the next command is found.
func (w *worker) set(c *conn, t *protocol.Text, f protocol.Fault, after []byte) int {
	if f != protocol.FaultNone {
		w.fault(c, f, t.NoReply)
		if t.Bytes >= 0 {
			c.swallow = t.Bytes + 2
		}
		return 0
	}
	key, refused := w.foreign(t.Key, t.NoReply)
	if refused {
		c.swallow = t.Bytes + 2
		return 0
	}
	w.srv.prefixes.set(key)
	c.store = storage{size: t.Bytes, mode: modeOf(t.Op), cas: t.CAS, noReply: t.NoReply, op: t.Op}
	if line := w.reserve(&c.store, key, t.Flags, w.expiry(t.Exptime), len(after)); line != "" {
		if line == retry {
			return tryAgain
		}
		w.reply(t.NoReply, line)
		if t.Op == protocol.OpSet {
			w.sess.Delete(key, 0) // the old value must not outlive a set that failed
		}
		c.swallow = t.Bytes + 2
		return 0
	}
	return w.body(c, after)
}

// retry is what reserve says when items that this loop is about to send stand in
// the way: the command is executed again once they were sent. tryAgain tells serve.
const (
	retry    = "retry"
	tryAgain = -1
)

// reserve takes memory for s.size bytes, of which have are at hand; on failure it gives
// the line to answer.
func (w *worker) reserve(s *storage, key []byte, flags uint32, expire int64, have int) string {
	if s.size > w.srv.cfg.MaxItemSize {
		w.count.add(cTooLarge, 1)
		return protocol.TooLarge
	}
	if have < s.size && !w.srv.mayWait(s.size) {
		w.count.add(cNoMemory, 1)
		return protocol.NoMemory
	}
	if w.reserved++; w.reserved%askEvery == 0 {
		w.srv.checkHeld()
	}
	d, err := w.sess.Reserve(key, flags, expire, s.size)
	if err == memory.ErrNoMemory {
		w.srv.checkHeld()
		if len(w.out.items) > 0 {
			return retry
		}
		w.leave()
		w.sess.Release()
		d, err = w.sess.Reserve(key, flags, expire, s.size)
	}
	if err != nil {
		if errors.Is(err, memory.ErrTooLarge) {
			w.count.add(cTooLarge, 1)
			return protocol.TooLarge
		}
		w.count.add(cNoMemory, 1)
		return protocol.NoMemory
	}
	w.count.add(cSet, 1)
	s.draft, s.active = d, true
	return ""
}

// body takes in a data block and its line end, and stores it when it is whole.
func (w *worker) body(c *conn, in []byte) int {
	s := &c.store
	n := 0
	if s.have < s.size {
		n = copy(s.draft.Data()[s.have:], in)
		s.have += n
	}
	if s.have >= s.size {
		if s.bin == nil {
			for s.have < s.size+2 && n < len(in) {
				s.tail[s.have-s.size] = in[n]
				s.have++
				n++
			}
			if s.have == s.size+2 {
				c.phase = phaseCommand
				w.finish(s)
				return n
			}
		} else {
			c.phase = phaseCommand
			w.binaryFinish(s)
			return n
		}
	}
	c.phase = phaseBody
	return n
}

// finish stores a whole block of a text or meta command.
func (w *worker) finish(s *storage) {
	s.active = false
	if s.tail != [2]byte{'\r', '\n'} {
		s.draft.Abort()
		w.reply(s.noReply && s.meta == nil, protocol.BadChunk)
		return
	}
	if s.meta != nil {
		w.metaFinish(s)
		return
	}
	_, r := w.sess.Store(s.draft, s.mode, s.cas)
	if s.op == protocol.OpCAS {
		w.countCAS(r)
	}
	if r == memory.TooLarge {
		// The block alone was small enough, the sum was not.
		w.count.add(cTooLarge, 1)
		r = memory.NotStored
	}
	w.reply(s.noReply, w.resultLine(r))
}

func (w *worker) countCAS(r memory.Result) {
	switch r {
	case memory.Stored:
		w.count.add(cCASHit, 1)
	case memory.Exists:
		w.count.add(cCASBad, 1)
	case memory.NotFound:
		w.count.add(cCASMiss, 1)
	}
}

// resultLine is the text protocol's word for a result.
func (w *worker) resultLine(r memory.Result) string {
	switch r {
	case memory.Stored:
		return protocol.Stored
	case memory.Deleted:
		return protocol.Deleted
	case memory.Touched:
		return protocol.Touched
	case memory.NotStored:
		return protocol.NotStored
	case memory.Exists:
		return protocol.Exists
	case memory.NotFound:
		return protocol.NotFound
	case memory.TooLarge:
		w.count.add(cTooLarge, 1)
		return protocol.TooLarge
	case memory.NoMemory:
		w.count.add(cNoMemory, 1)
		return protocol.NoMemory
	case memory.NonNumeric:
		return protocol.NonNumeric
	case memory.Mapped:
		w.count.add(cRefused, 1)
		return w.srv.refusal(0)
	}
	panic("server: result " + r.String() + " of memory is unknown")
}
