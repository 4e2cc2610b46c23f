package server

import (
	"bytes"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// keysAtHand is how many bytes of further keys of an over-long get line are
// waited for at most.
const keysAtHand = 64 << 10

// get executes get, gets, gat and gats.
func (w *worker) get(t *protocol.Text) {
	w.enter()
	if t.Op == protocol.OpGet && len(t.Rest) == 0 && t.Key[0] != '@' && !w.srv.prefixes.on.Load() && !w.withholding() {
		w.count.add(cGet, 1)
		it := w.sess.Get(t.Key)
		if it.OK() {
			w.count.add(cGetHit, 1)
			w.out.wire(it)
		} else {
			w.count.add(cGetMiss, 1)
		}
		w.out.str(protocol.End)
		return
	}
	g := getCommand{op: t.Op, exptime: t.Exptime}
	if w.find(g, t.Key, t.Rest) {
		w.out.end = protocol.End
		w.out.fill()
	}
}

// getRun answers several one-key gets that came together, looked up as one group so
// that their waits for memory overlap. It says how many bytes they took, 0 if in
// does not begin with two of them.
func (w *worker) getRun(in []byte) (used int) {
	if w.withholding() {
		return 0
	}
	keys := w.keys[:0]
	for most := min(len(w.items), w.out.roomFor()); len(keys) < most; {
		rest := in[used:]
		if len(rest) < len("get k\n") || string(rest[:4]) != "get " {
			break
		}
		n, next := protocol.LineEnd(rest)
		if n < len("get k") {
			break
		}
		key := rest[4:n]
		if len(key) > protocol.MaxKey || key[0] == '@' || bytes.IndexByte(key, ' ') >= 0 {
			break
		}
		keys = append(keys, key)
		used += next
	}
	if len(keys) < 2 {
		return 0
	}
	w.enter()
	items := w.items[:len(keys)]
	w.sess.GetAll(keys, items)
	hits := 0
	for _, it := range items {
		if it.OK() {
			hits++
			w.out.wire(it)
		}
		w.out.str(protocol.End)
	}
	w.countGets(len(keys), hits)
	return used
}

func (w *worker) countGets(keys, hits int) {
	w.count.add(cGet, uint64(keys))
	w.count.add(cGetHit, uint64(hits))
	w.count.add(cGetMiss, uint64(keys-hits))
}

// find looks the keys up, all under one Begin (G3), and leaves what was found in
// the output's todo. false: a key was wrong, the fault is answered and nothing
// else is.
func (w *worker) find(g getCommand, key, rest []byte) bool {
	o := w.out
	o.settleTodo()
	o.withCAS = g.withCAS()
	before := o.place()
	if line := w.withheldAny(key, rest); line != "" {
		o.back(before)
		o.str(line)
		return false
	}
	at := int64(0)
	if g.touches() {
		at = w.expiry(g.exptime)
	}
	slow := g.touches() || w.srv.prefixes.on.Load()
	keys := w.keys[:0]
	for len(key) > 0 {
		if slow || key[0] == '@' || len(key) > protocol.MaxKey {
			w.findGroup(keys)
			keys = keys[:0]
			if fault := w.findOne(g, key, at); fault != "" {
				o.back(before)
				o.str(fault)
				return false
			}
		} else if keys = append(keys, key); len(keys) == len(w.items) {
			w.findGroup(keys)
			keys = keys[:0]
		}
		key, rest = protocol.NextWord(rest)
	}
	w.findGroup(keys)
	return true
}

// findGroup looks up keys that need nothing but a look-up. What is found is laid
// out at once as long as there is room.
func (w *worker) findGroup(keys [][]byte) {
	if len(keys) == 0 {
		return
	}
	items := w.items[:len(keys)]
	w.sess.GetAll(keys, items)
	o := w.out
	direct := len(o.todo) == 0 && !o.withCAS && o.fits(items)
	hits := 0
	for _, it := range items {
		switch {
		case !it.OK():
			continue
		case direct:
			o.wire(it)
		default:
			o.todo = append(o.todo, found{item: it})
		}
		hits++
	}
	w.countGets(len(keys), hits)
}

// findOne looks up a key of any kind. A fault is the line to be answered.
func (w *worker) findOne(g getCommand, key []byte, at int64) (fault string) {
	if len(key) > protocol.MaxKey {
		return protocol.FaultFormat.Line()
	}
	shown := []byte(nil)
	if g.touches() {
		line := len(w.out.buf)
		item, refused := w.foreign(key, false)
		if refused {
			fault = string(w.out.buf[line:])
			w.out.buf = w.out.buf[:line]
			return fault
		}
		w.count.add(cTouch, 1)
		it, r := w.sess.Touch(item, at)
		if r != memory.Touched {
			w.count.add(cTouchMiss, 1)
			return ""
		}
		w.count.add(cTouchHit, 1)
		w.out.todo = append(w.out.todo, found{item: it})
		return ""
	}
	if key[0] == '@' && w.srv.cfg.Tables != nil && len(key) > 2 && key[1] == '@' {
		item, _, err := w.srv.cfg.Tables.Resolve(w.itemBuf[:0], key)
		switch {
		case err != nil:
			return "CLIENT_ERROR " + oneLine(err.Error()) + "\r\n"
		case len(item) > protocol.MaxKey:
			return protocol.FaultFormat.Line()
		}
		shown, key = key, item
	}
	w.count.add(cGet, 1)
	it := w.sess.Get(key)
	w.srv.prefixes.get(key, it.OK())
	if !it.OK() {
		w.count.add(cGetMiss, 1)
		return ""
	}
	w.count.add(cGetHit, 1)
	w.out.todo = append(w.out.todo, found{item: it, key: shown})
	return ""
}

// longGet begins to answer a get whose line has grown over longLine.
func (w *worker) longGet(c *conn, in []byte) int {
	cut := bytes.LastIndexByte(in, ' ')
	t := &w.text
	c.scanned = 0
	if cut < 0 {
		cut = len(in)
	}
	if f := t.Parse(in[:cut]); f != protocol.FaultNone {
		w.fault(c, f, false)
		c.phase = phaseLine
		return cut
	}
	c.keys = getCommand{op: t.Op, exptime: t.Exptime}
	c.phase = phaseKeys
	w.enter()
	if !w.find(c.keys, t.Key, t.Rest) {
		c.phase = phaseLine
	}
	w.out.fill()
	return cut
}

// moreKeys answers further keys of such a line.
func (w *worker) moreKeys(c *conn, in []byte) int {
	end := ""
	n, next := protocol.LineEnd(in)
	if next == 0 {
		if len(in) < keysAtHand {
			return 0
		}
		if n = bytes.LastIndexByte(in, ' '); n <= 0 {
			w.out.str(protocol.FaultFormat.Line())
			c.phase = phaseLine
			return len(in)
		}
		next = n
	} else {
		c.phase, end = phaseCommand, protocol.End
	}
	w.enter()
	key, rest := protocol.NextWord(in[:n])
	if !w.find(c.keys, key, rest) {
		if c.phase == phaseKeys {
			c.phase = phaseLine
		}
		return next
	}
	w.out.end = end
	w.out.fill()
	return next
}
