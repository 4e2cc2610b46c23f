package server

import (
	"encoding/binary"
	"strings"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// noCreate is the expiry by which a binary increment asks that a missing counter
// stays missing.
const noCreate = 0xffffffff

// largestBody is the largest body that is believed.
const largestBody = 1<<30 + 1<<16

// binaryStore is what a reply needs to know when a value has arrived.
type binaryStore struct {
	op     protocol.Opcode
	sent   protocol.Opcode
	quiet  bool
	opaque uint32
}

// binaryCommand executes the first binary request of in; 0: it is not complete.
func (w *worker) binaryCommand(c *conn, in []byte) int {
	b := &w.bin
	n, ok := b.Parse(in)
	switch {
	case !ok:
		c.phase = phaseClosed
		return 0
	case n == 0:
		return 0
	case b.Value() < 0:
		w.binaryError(protocol.StatusUnknown)
		c.phase = phaseClosed
		return n
	case b.Body > largestBody:
		w.binaryError(protocol.StatusInvalid)
		c.phase = phaseClosed
		return n
	}
	if w.srv.cfg.SASL && !c.authed {
		switch b.Op {
		case protocol.BinSASLList, protocol.BinSASLAuth, protocol.BinSASLStep, protocol.BinVersion:
		default:
			w.binaryError(protocol.StatusAuthError)
			c.phase = phaseClosed
			return n
		}
	}
	if len(b.Key) > protocol.MaxKey || !b.Fits() {
		w.binaryError(protocol.StatusInvalid)
		c.phase = phaseClosed
		return n
	}
	switch b.Op {
	case protocol.BinSet, protocol.BinAdd, protocol.BinReplace, protocol.BinAppend, protocol.BinPrepend:
		took := w.binarySet(c, in[n:])
		if took == tryAgain {
			w.again = true
			return 0
		}
		return n + took
	case protocol.BinSASLAuth, protocol.BinSASLStep:
		return w.sasl(c, in, n)
	}
	c.swallow = b.Value() // of commands that have no use for one
	switch b.Op {
	case protocol.BinGet, protocol.BinGetK:
		w.binaryGet()
	case protocol.BinTouch, protocol.BinGat, protocol.BinGatK:
		w.binaryTouch()
	case protocol.BinDelete:
		w.binaryDelete()
	case protocol.BinIncr, protocol.BinDecr:
		w.binaryArith()
	case protocol.BinFlush:
		w.binaryFlush()
	case protocol.BinNoop:
		w.binaryReply(0, "")
	case protocol.BinVersion:
		w.binaryReply(0, MemcachedVersion)
	case protocol.BinQuit:
		w.binaryDone(0)
		c.phase = phaseClosed
	case protocol.BinStat:
		w.binaryStat()
	case protocol.BinSASLList:
		if !w.srv.cfg.SASL {
			w.binaryError(protocol.StatusUnknown)
			break
		}
		w.binaryReply(0, saslMechanisms)
	default:
		w.binaryError(protocol.StatusUnknown)
	}
	return n
}

func (w *worker) binaryHead(status protocol.Status, cas uint64, extras, key, body int) {
	r := protocol.BinaryReply{Op: w.bin.Sent, Status: status, Opaque: w.bin.Opaque, CAS: cas}
	w.out.buf = r.AppendHeader(w.out.buf, extras, key, body)
}

// binaryReply answers success with a body.
func (w *worker) binaryReply(cas uint64, body string) {
	w.binaryHead(protocol.StatusOK, cas, 0, 0, len(body))
	w.out.str(body)
}

// binaryDone answers success, unless the command is quiet.
func (w *worker) binaryDone(cas uint64) {
	if !w.bin.Quiet {
		w.binaryHead(protocol.StatusOK, cas, 0, 0, 0)
	}
}

func (w *worker) binaryError(s protocol.Status) { w.binaryMessage(s, s.Text()) }

func (w *worker) binaryMessage(s protocol.Status, text string) {
	w.binaryHead(s, 0, 0, 0, len(text))
	w.out.str(text)
}

// binaryForeign is foreign for the binary protocol.
func (w *worker) binaryForeign(key []byte) (item []byte, refused bool) {
	at := len(w.out.buf)
	item, refused = w.foreign(key, false)
	if refused {
		// The text protocol's line becomes the body of an error.
		text := string(w.out.buf[at : len(w.out.buf)-2])
		w.out.buf = w.out.buf[:at]
		w.binaryMessage(protocol.StatusNotSupported, text)
	}
	return item, refused
}

// binaryExpiry is expiry for the protocol's 32-bit seconds.
func (w *worker) binaryExpiry(v uint32) int64 { return w.expiry(int64(int32(v))) }

func (w *worker) binaryGet() {
	b := &w.bin
	at := len(w.out.buf)
	if line := w.withheld(b.Key); line != "" {
		w.binaryMessage(protocol.StatusTemporary, strings.TrimSuffix(strings.TrimPrefix(line, "SERVER_ERROR "), "\r\n"))
		return
	}
	key, refused := w.metaRead(b.Key)
	if refused {
		w.out.buf = w.out.buf[:at]
		w.binaryError(protocol.StatusInvalid)
		return
	}
	w.enter()
	w.count.add(cGet, 1)
	it := w.sess.Get(key)
	w.srv.prefixes.get(key, it.OK())
	if !it.OK() {
		w.count.add(cGetMiss, 1)
		w.binaryMiss()
		return
	}
	w.count.add(cGetHit, 1)
	w.binaryItem(it)
}

// binaryMiss answers a read of what is not there.
func (w *worker) binaryMiss() {
	b := &w.bin
	switch {
	case b.Quiet:
	case b.Op == protocol.BinGetK || b.Op == protocol.BinGatK:
		w.binaryHead(protocol.StatusNotFound, 0, 0, len(b.Key), len(b.Key))
		w.out.bytes(b.Key)
	default:
		w.binaryError(protocol.StatusNotFound)
	}
}

// binaryItem answers a read.
func (w *worker) binaryItem(it memory.Item) {
	b := &w.bin
	value := it.Value()
	key := []byte(nil)
	size := 4
	if b.Op == protocol.BinGetK || b.Op == protocol.BinGatK {
		key = b.Key
		size += len(key)
	}
	if b.Op != protocol.BinTouch {
		size += len(value)
	}
	w.binaryHead(protocol.StatusOK, w.cas(it), 4, len(key), size)
	w.out.buf = binary.BigEndian.AppendUint32(w.out.buf, it.Flags())
	w.out.bytes(key)
	if b.Op == protocol.BinTouch {
		return
	}
	if len(value) <= copyLimit {
		w.out.bytes(value)
		return
	}
	w.out.ref(it, value)
}

func (w *worker) binaryTouch() {
	b := &w.bin
	key, refused := w.binaryForeign(b.Key)
	if refused {
		return
	}
	w.enter()
	w.count.add(cTouch, 1)
	it, r := w.sess.Touch(key, w.binaryExpiry(b.Uint32(0)))
	if r != memory.Touched {
		w.count.add(cTouchMiss, 1)
		if r == memory.NotFound {
			w.binaryMiss()
			return
		}
		w.binaryResult(r)
		return
	}
	w.count.add(cTouchHit, 1)
	w.binaryItem(it)
}

func (w *worker) binaryDelete() {
	key, refused := w.binaryForeign(w.bin.Key)
	if refused {
		return
	}
	w.srv.prefixes.delete(key)
	switch r := w.sess.Delete(key, w.bin.CAS); r {
	case memory.Deleted:
		w.count.add(cDeleteHit, 1)
		w.binaryDone(0)
	case memory.NotFound:
		w.count.add(cDeleteMiss, 1)
		w.binaryError(protocol.StatusNotFound)
	default:
		w.binaryResult(r)
	}
}

func (w *worker) binaryArith() {
	b := &w.bin
	key, refused := w.binaryForeign(b.Key)
	if refused {
		return
	}
	decr := b.Op == protocol.BinDecr
	o := memory.IncrOptions{Decr: decr, Compare: b.CAS != 0, CAS: b.CAS}
	if e := b.Uint32(16); e != noCreate {
		o.Create, o.Initial, o.CreateExpire = true, b.Uint64(8), w.binaryExpiry(e)
	}
	v, cas, r := w.sess.Incr(key, b.Uint64(0), o)
	w.countArith(decr, r)
	if r != memory.Stored {
		w.binaryResult(r)
		return
	}
	if !b.Quiet {
		w.binaryHead(protocol.StatusOK, cas, 0, 0, 8)
		w.out.buf = binary.BigEndian.AppendUint64(w.out.buf, v)
	}
}

func (w *worker) binaryFlush() {
	w.count.add(cFlush, 1)
	if w.srv.cfg.NoFlush {
		w.binaryError(protocol.StatusAuthError)
		return
	}
	at := int64(0)
	if len(w.bin.Extras) == 4 {
		if e := int64(w.bin.Uint32(0)); e > 0 {
			at = w.expiry(e)
		}
	}
	w.sess.FlushAll(at)
	w.binaryDone(0)
}

// binaryResult answers a failure of the memory tier.
func (w *worker) binaryResult(r memory.Result) {
	switch r {
	case memory.NotFound:
		w.binaryError(protocol.StatusNotFound)
	case memory.Exists:
		w.binaryError(protocol.StatusExists)
	case memory.NotStored:
		w.binaryError(protocol.StatusNotStored)
	case memory.NonNumeric:
		w.binaryError(protocol.StatusNonNumeric)
	case memory.TooLarge:
		w.count.add(cTooLarge, 1)
		w.binaryError(protocol.StatusTooLarge)
	case memory.NoMemory:
		w.count.add(cNoMemory, 1)
		w.binaryError(protocol.StatusNoMemory)
	case memory.Mapped:
		w.count.add(cRefused, 1)
		text := w.srv.refusal(0)
		w.binaryMessage(protocol.StatusNotSupported, text[:len(text)-2])
	default:
		panic("server: result " + r.String() + " of memory is unknown")
	}
}

// binarySet begins a storage command; it says how much of after it took.
func (w *worker) binarySet(c *conn, after []byte) int {
	b := &w.bin
	size := b.Value()
	key, refused := w.binaryForeign(b.Key)
	if refused {
		c.swallow = size
		return 0
	}
	w.srv.prefixes.set(key)
	var flags uint32
	var expire int64
	if len(b.Extras) == 8 {
		flags, expire = b.Uint32(0), w.binaryExpiry(b.Uint32(4))
	}
	mode := memory.Set
	switch b.Op {
	case protocol.BinAdd:
		mode = memory.Add
	case protocol.BinReplace:
		mode = memory.Replace
	case protocol.BinAppend:
		mode = memory.Append
	case protocol.BinPrepend:
		mode = memory.Prepend
	}
	if b.CAS != 0 && (mode == memory.Set || mode == memory.Add || mode == memory.Replace) {
		mode = memory.CAS
	}
	c.store = storage{size: size, mode: mode, cas: b.CAS}
	if line := w.reserve(&c.store, key, flags, expire, len(after)); line != "" {
		switch line {
		case retry:
			return tryAgain
		case protocol.TooLarge:
			w.binaryError(protocol.StatusTooLarge)
		default:
			w.binaryError(protocol.StatusNoMemory)
		}
		if b.Op == protocol.BinSet {
			w.sess.Delete(key, 0)
		}
		c.swallow = size
		return 0
	}
	w.binNow = binaryStore{op: b.Op, sent: b.Sent, quiet: b.Quiet, opaque: b.Opaque}
	c.store.bin = &w.binNow
	n := w.body(c, after)
	if c.phase == phaseBody {
		later := w.binNow
		c.store.bin = &later
	}
	return n
}

// binaryFinish stores a value that has arrived whole.
func (w *worker) binaryFinish(s *storage) {
	s.active = false
	m := s.bin
	w.bin.Op, w.bin.Sent, w.bin.Quiet, w.bin.Opaque = m.op, m.sent, m.quiet, m.opaque
	o := memory.StoreOptions{Mode: s.mode, Compare: s.cas != 0, CAS: s.cas}
	cas, r := w.sess.StoreWith(s.draft, o)
	if o.Compare {
		w.countCAS(r)
	}
	extends := s.mode == memory.Append || s.mode == memory.Prepend
	switch {
	case r == memory.Stored:
		w.binaryDone(cas)
	case r == memory.NotStored && s.mode == memory.Add:
		w.binaryError(protocol.StatusExists)
	case r == memory.NotStored && s.mode == memory.Replace:
		w.binaryError(protocol.StatusNotFound)
	case extends && (r == memory.NotFound || r == memory.TooLarge):
		w.binaryError(protocol.StatusNotStored)
	default:
		w.binaryResult(r)
	}
}

// binaryStat answers a group of statistics, one reply a line and an empty one last.
func (w *worker) binaryStat() {
	w.work += statWork
	var list []Stat
	ok := true
	switch group := string(w.bin.Key); group {
	case "reset":
		w.srv.resetStats(w)
	case "detail on", "detail off":
		if ok = !w.srv.cfg.NoDump; ok {
			w.srv.prefixes.on.Store(group == "detail on")
		}
	case "detail dump":
		if ok = !w.srv.cfg.NoDump; ok {
			list = []Stat{{"detailed", string(w.srv.prefixes.dump())}}
		}
	default:
		list, ok = w.srv.statGroup(w, group)
	}
	if !ok {
		w.binaryError(protocol.StatusNotFound)
		return
	}
	r := protocol.BinaryReply{Op: w.bin.Sent, Opaque: w.bin.Opaque}
	var b []byte
	for _, s := range list {
		b = r.AppendHeader(b, 0, len(s.Name), len(s.Name)+len(s.Value))
		b = append(append(b, s.Name...), s.Value...)
	}
	w.out.own(r.AppendHeader(b, 0, 0, 0))
}
