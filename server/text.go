package server

import (
	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// line executes a command line. after is what follows it: a storage command
// takes its data block from there and line says how much it took.
func (w *worker) line(c *conn, line, after []byte) int {
	t := &w.text
	f := t.Parse(line)
	switch t.Op {
	case protocol.OpGet, protocol.OpGets, protocol.OpGat, protocol.OpGats:
		if f != protocol.FaultNone {
			w.fault(c, f, false)
			return 0
		}
		w.get(t)
		return 0
	case protocol.OpSet, protocol.OpAdd, protocol.OpReplace, protocol.OpAppend, protocol.OpPrepend, protocol.OpCAS:
		return w.set(c, t, f, after)
	case protocol.OpMetaSet:
		return w.metaSet(c, t, f, after)
	}
	if f != protocol.FaultNone {
		if t.Op == protocol.OpFlushAll && w.srv.cfg.NoFlush {
			w.flushAll(t)
			return 0
		}
		w.fault(c, f, t.NoReply)
		return 0
	}
	switch t.Op {
	case protocol.OpDelete:
		w.delete(t)
	case protocol.OpIncr, protocol.OpDecr:
		w.arith(t)
	case protocol.OpTouch:
		w.touch(t)
	case protocol.OpMetaGet:
		w.metaGet(t)
	case protocol.OpMetaDelete:
		w.metaDelete(t)
	case protocol.OpMetaArith:
		w.metaArith(t)
	case protocol.OpMetaDebug:
		w.metaDebug(t)
	case protocol.OpMetaNoop:
		w.out.str(protocol.MetaNoop)
	case protocol.OpFlushAll:
		w.flushAll(t)
	case protocol.OpVersion:
		w.out.str("VERSION " + MemcachedVersion + "\r\n")
	case protocol.OpQuit:
		c.phase = phaseClosed
	default:
		w.admin(c, t)
	}
	return 0
}

// expiry turns an exptime of the protocol into unix seconds, 0 being never. Up
// to 30 days it is relative, above it is a date, below zero it has passed.
func (w *worker) expiry(exptime int64) int64 {
	const maxRelative = 30 * 24 * 3600
	switch {
	case exptime == 0:
		return 0
	case exptime < 0:
		return 1
	case exptime <= maxRelative:
		return w.srv.cfg.Clock() + exptime
	}
	return exptime
}

// foreign answers a write to a key of a mapped table (G4: such a key is written
// with SQL), and says whether it was one. item is the key to be used.
func (w *worker) foreign(key []byte, silent bool) (item []byte, refused bool) {
	if w.srv.cfg.Tables == nil {
		return key, false
	}
	item, owner, err := w.srv.cfg.Tables.Resolve(w.itemBuf[:0], key)
	switch {
	case err != nil:
		w.reply(silent, "CLIENT_ERROR "+oneLine(err.Error())+"\r\n")
		return nil, true
	case owner != 0:
		w.count.add(cRefused, 1)
		w.reply(silent, w.srv.refusal(owner))
		return nil, true
	case len(item) > protocol.MaxKey:
		w.reply(silent, protocol.FaultFormat.Line())
		return nil, true
	}
	return item, false
}

func (w *worker) delete(t *protocol.Text) {
	key, refused := w.foreign(t.Key, t.NoReply)
	if refused {
		return
	}
	w.srv.prefixes.delete(key)
	switch r := w.sess.Delete(key, 0); r {
	case memory.Deleted:
		w.count.add(cDeleteHit, 1)
		w.reply(t.NoReply, protocol.Deleted)
	case memory.NotFound:
		w.count.add(cDeleteMiss, 1)
		w.reply(t.NoReply, protocol.NotFound)
	default:
		w.reply(t.NoReply, w.resultLine(r))
	}
}

func (w *worker) touch(t *protocol.Text) {
	key, refused := w.foreign(t.Key, t.NoReply)
	if refused {
		return
	}
	w.count.add(cTouch, 1)
	w.enter()
	_, r := w.sess.Touch(key, w.expiry(t.Exptime))
	if r == memory.Touched {
		w.count.add(cTouchHit, 1)
		w.reply(t.NoReply, protocol.Touched)
		return
	}
	w.count.add(cTouchMiss, 1)
	w.reply(t.NoReply, w.resultLine(r))
}

func (w *worker) arith(t *protocol.Text) {
	key, refused := w.foreign(t.Key, t.NoReply)
	if refused {
		return
	}
	decr := t.Op == protocol.OpDecr
	v, _, r := w.sess.Incr(key, t.Delta, memory.IncrOptions{Decr: decr})
	w.countArith(decr, r)
	if r == memory.Stored {
		if !t.NoReply {
			w.out.buf = append(protocol.AppendUint(w.out.buf, v), "\r\n"...)
		}
		return
	}
	w.reply(t.NoReply, w.resultLine(r))
}

func (w *worker) countArith(decr bool, r memory.Result) {
	switch {
	case r == memory.Stored && decr:
		w.count.add(cDecrHit, 1)
	case r == memory.Stored:
		w.count.add(cIncrHit, 1)
	case r == memory.NotFound && decr:
		w.count.add(cDecrMiss, 1)
	case r == memory.NotFound:
		w.count.add(cIncrMiss, 1)
	}
}

// flushAll makes every unmapped item a miss, now or at a time to come. Rows are
// not touched (G7).
func (w *worker) flushAll(t *protocol.Text) {
	w.count.add(cFlush, 1)
	if w.srv.cfg.NoFlush {
		w.reply(t.NoReply, protocol.FlushForbidden)
		return
	}
	at := int64(0)
	if t.Exptime > 0 {
		at = w.expiry(t.Exptime)
	}
	w.sess.FlushAll(at)
	w.reply(t.NoReply, protocol.OK)
}
