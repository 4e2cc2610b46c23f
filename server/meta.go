package server

import (
	"bytes"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// metaStore is what an ms needs to know when its block has arrived.
type metaStore struct {
	words []byte // the flags, for the reply
	key   []byte // as it was sent
	quiet bool
	opts  memory.StoreOptions
}

// metaRead finds the item key of a read; refused: the fault is answered.
func (w *worker) metaRead(key []byte) (item []byte, refused bool) {
	if line := w.withheld(key); line != "" {
		w.out.str(line)
		return nil, true
	}
	if w.srv.cfg.Tables == nil || len(key) < 3 || key[0] != '@' || key[1] != '@' {
		return key, false
	}
	item, _, err := w.srv.cfg.Tables.Resolve(w.itemBuf[:0], key)
	if err != nil {
		w.out.str("CLIENT_ERROR " + oneLine(err.Error()) + "\r\n")
		return nil, true
	}
	if len(item) > protocol.MaxKey {
		w.out.str(protocol.FaultFormat.Line())
		return nil, true
	}
	return item, false
}

// ttl is what flag t shows.
func (w *worker) ttl(expire int64) int64 {
	if expire == 0 {
		return -1
	}
	return max(expire-w.srv.cfg.Clock(), 0)
}

func (w *worker) cas(it memory.Item) uint64 {
	if w.srv.cfg.NoCAS {
		return 0
	}
	return it.CAS()
}

func (w *worker) words(which protocol.MetaFlags, info *protocol.MetaInfo) {
	w.out.buf = protocol.AppendMetaWords(w.out.buf, w.meta.Words, w.meta.KeySent, which, info)
	w.out.str("\r\n")
}

func (w *worker) metaGet(t *protocol.Text) {
	m := &w.meta
	if f := m.Parse(t, w.keyBuf[:]); f != protocol.FaultNone {
		w.fault(nil, f, false)
		return
	}
	var key []byte
	var refused bool
	if m.Given.Has('T') || m.Given.Has('N') {
		key, refused = w.foreign(m.Key, false)
	} else {
		key, refused = w.metaRead(m.Key)
	}
	if refused {
		return
	}
	w.enter()
	it := w.sess.Peek(key)
	created := false
	if !it.OK() && m.Given.Has('N') {
		var r memory.Result
		if it, r = w.sess.Vivify(key, w.expiry(m.Vivify), m.NewCAS); r == memory.NotStored {
			it = w.sess.Peek(key)
		}
		created = r == memory.Stored
	}
	w.srv.prefixes.get(key, it.OK() && !created)
	if !it.OK() {
		w.count.add(cGet, 1)
		w.count.add(cGetMiss, 1)
		if !m.Given.Has('q') {
			w.out.str("EN")
			w.words(protocol.MetaReturnMiss, &protocol.MetaInfo{})
		}
		return
	}
	info := protocol.MetaInfo{
		Flags: it.Flags(), CAS: w.cas(it), TTL: w.ttl(it.Expire()),
		Access: max(0, w.srv.cfg.Clock()-it.LastAccess()), Fetched: it.Fetched(),
	}
	info.NewTTL = info.TTL
	expire := it.Expire()
	switch {
	case m.Given.Has('T'):
		w.count.add(cTouch, 1)
		if touched, r := w.sess.Touch(key, w.expiry(m.TTL)); r == memory.Touched {
			w.count.add(cTouchHit, 1)
			it = touched
			expire = it.Expire()
			info.NewTTL = w.ttl(expire)
		}
	default:
		w.count.add(cGet, 1)
		w.count.add(cGetHit, 1)
		if !m.Given.Has('u') {
			w.sess.Bump(it)
		}
	}
	size := len(it.Value())
	info.Size = size
	value := m.Given.Has('v') && !(m.Given.Has('C') && info.CAS == m.CAS)
	if value {
		w.out.str("VA ")
		w.out.buf = protocol.AppendUint(w.out.buf, uint64(size))
	} else {
		w.out.str("HD")
	}
	w.out.buf = protocol.AppendMetaWords(w.out.buf, m.Words, m.KeySent, protocol.MetaReturnGet, &info)
	w.leases(it, created, expire)
	if value {
		w.out.tail(it, 0)
	} else {
		w.out.str("\r\n")
	}
}

// leases appends the server's own flags: Z, the token to recache is out; X, the
// value is stale; W, the client that reads this has won the token.
func (w *worker) leases(it memory.Item, created bool, expire int64) {
	if created {
		w.out.str(" W")
		return
	}
	m := &w.meta
	stale := it.Stale()
	wanted := stale || m.Given.Has('R') && expire != 0 && expire < w.expiry(m.Recache)
	sent := it.Won()
	won := wanted && !sent && w.sess.TryWin(it)
	if sent || wanted && !won {
		w.out.str(" Z")
	}
	if stale {
		w.out.str(" X")
	}
	if won {
		w.out.str(" W")
	}
}

func (w *worker) metaSet(c *conn, t *protocol.Text, f protocol.Fault, after []byte) int {
	m := &w.meta
	swallow := t.Bytes + 2
	if f == protocol.FaultNone {
		f = m.Parse(t, w.keyBuf[:])
	}
	var mode memory.Mode
	if f == protocol.FaultNone {
		switch m.Mode {
		case 0, 'S':
		case 'E':
			mode = memory.Add
		case 'A':
			mode = memory.Append
		case 'P':
			mode = memory.Prepend
		case 'R':
			mode = memory.Replace
		default:
			f = protocol.FaultModeSet
		}
	}
	if f != protocol.FaultNone {
		w.fault(c, f, false)
		if t.Bytes >= 0 {
			c.swallow = swallow
		}
		return 0
	}
	key, refused := w.foreign(m.Key, false)
	if refused {
		c.swallow = swallow
		return 0
	}
	w.srv.prefixes.set(key)
	o := memory.StoreOptions{Mode: mode, NewCAS: m.NewCAS}
	if m.Given.Has('C') && mode != memory.Add {
		o.Compare, o.CAS = true, m.CAS
		o.Stale = m.Given.Has('I') && (mode == memory.Set || mode == memory.Replace)
	}
	if m.Given.Has('N') && (mode == memory.Append || mode == memory.Prepend) {
		o.Vivify, o.VivifyExpire = true, w.expiry(m.Vivify)
	}
	c.store = storage{size: t.Bytes, op: t.Op}
	if line := w.reserve(&c.store, key, m.Flags, w.expiry(m.TTL), len(after)); line != "" {
		if line == retry {
			return tryAgain
		}
		w.out.str(line)
		w.sess.Delete(key, 0) // the old value must not outlive a set that failed
		c.swallow = swallow
		return 0
	}
	w.metaNow = metaStore{words: m.Words, key: m.KeySent, quiet: m.Given.Has('q'), opts: o}
	c.store.meta = &w.metaNow
	n := w.body(c, after)
	if c.phase == phaseBody { // the line will be gone when the rest arrives
		later := w.metaNow
		later.words, later.key = bytes.Clone(later.words), bytes.Clone(later.key)
		c.store.meta = &later
	}
	return n
}

// metaFinish stores a whole block.
func (w *worker) metaFinish(s *storage) {
	ms := s.meta
	var info protocol.MetaInfo
	info.Size = s.size
	extends := ms.opts.Mode == memory.Append || ms.opts.Mode == memory.Prepend
	var key [protocol.MaxKey]byte
	keyLen := 0
	if extends {
		keyLen = copy(key[:], s.draft.Key())
	}
	cas, r := w.sess.StoreWith(s.draft, ms.opts)
	if ms.opts.Compare {
		w.countCAS(r)
	}
	switch r {
	case memory.Stored:
		if ms.quiet {
			return
		}
		info.CAS = cas
		if extends {
			w.enter()
			if it := w.sess.Peek(key[:keyLen]); it.OK() {
				info.Size = len(it.Value())
			}
		}
		w.out.str("HD")
	case memory.Exists:
		w.out.str("EX")
	case memory.NotFound:
		if extends {
			w.out.str("NS")
		} else {
			w.out.str("NF")
		}
	case memory.NotStored, memory.TooLarge:
		w.out.str("NS")
	default:
		w.out.str(w.resultLine(r))
		return
	}
	w.out.buf = protocol.AppendMetaWords(w.out.buf, ms.words, ms.key, protocol.MetaReturnSet, &info)
	w.out.str("\r\n")
}

func (w *worker) metaDelete(t *protocol.Text) {
	m := &w.meta
	if f := m.Parse(t, w.keyBuf[:]); f != protocol.FaultNone {
		w.fault(nil, f, false)
		return
	}
	key, refused := w.foreign(m.Key, false)
	if refused {
		return
	}
	w.srv.prefixes.delete(key)
	o := memory.DeleteOptions{
		Compare: m.Given.Has('C'), CAS: m.CAS, NewCAS: m.NewCAS,
		Stale: m.Given.Has('I'), Empty: m.Given.Has('x'),
	}
	if m.Given.Has('T') {
		o.Touch, o.Expire = true, w.expiry(m.TTL)
	}
	switch r := w.sess.DeleteWith(key, o); r {
	case memory.Deleted:
		w.count.add(cDeleteHit, 1)
		if m.Given.Has('q') {
			return
		}
		w.out.str("HD")
	case memory.NotFound:
		w.count.add(cDeleteMiss, 1)
		w.out.str("NF")
	case memory.Exists:
		w.count.add(cDeleteMiss, 1)
		w.out.str("EX")
	case memory.NoMemory:
		w.out.str("SERVER_ERROR out of memory\r\n")
		return
	default:
		w.out.str(w.resultLine(r))
		return
	}
	w.words(protocol.MetaReturnDelete, &protocol.MetaInfo{})
}

func (w *worker) metaArith(t *protocol.Text) {
	m := &w.meta
	if f := m.Parse(t, w.keyBuf[:]); f != protocol.FaultNone {
		w.fault(nil, protocol.FaultFlagsArith, false)
		return
	}
	o := memory.IncrOptions{Compare: m.Given.Has('C'), CAS: m.CAS, NewCAS: m.NewCAS}
	switch m.Mode {
	case 0, 'I', '+':
	case 'D', '-':
		o.Decr = true
	default:
		w.fault(nil, protocol.FaultModeArith, false)
		return
	}
	key, refused := w.foreign(m.Key, false)
	if refused {
		return
	}
	if m.Given.Has('N') {
		o.Create, o.Initial, o.CreateExpire = true, m.Initial, w.expiry(m.Vivify)
	}
	if m.Given.Has('T') {
		o.Touch, o.Expire = true, w.expiry(m.TTL)
	}
	var info protocol.MetaInfo
	if m.Given.Has('t') {
		w.enter()
		info.TTL = -1
		if it := w.sess.Peek(key); it.OK() {
			info.TTL = w.ttl(it.Expire())
		} else if o.Create {
			info.TTL = w.ttl(o.CreateExpire)
		}
		info.NewTTL = info.TTL
		if o.Touch {
			info.NewTTL = w.ttl(o.Expire)
		}
	}
	v, cas, r := w.sess.Incr(key, m.Delta, o)
	w.countArith(o.Decr, r)
	info.CAS = cas
	switch r {
	case memory.Stored:
		if m.Given.Has('q') {
			return
		}
		var text [20]byte
		num := protocol.AppendUint(text[:0], v)
		if m.Given.Has('v') {
			w.out.str("VA ")
			w.out.buf = protocol.AppendUint(w.out.buf, uint64(len(num)))
		} else {
			w.out.str("HD")
		}
		w.words(protocol.MetaReturnArith, &info)
		if m.Given.Has('v') {
			w.out.bytes(num)
			w.out.str("\r\n")
		}
		return
	case memory.NotFound:
		w.out.str("NF")
	case memory.NotStored:
		w.out.str("NS")
	case memory.Exists:
		w.out.str("EX")
	case memory.NoMemory:
		w.out.str("SERVER_ERROR out of memory\r\n")
		return
	default:
		w.out.str(w.resultLine(r))
		return
	}
	w.words(protocol.MetaReturnMiss, &info)
}

// metaDebug answers what is known of an item, for people.
func (w *worker) metaDebug(t *protocol.Text) {
	w.count.add(cMeta, 1)
	m := &w.meta
	if f := m.Parse(t, w.keyBuf[:]); f != protocol.FaultNone {
		w.fault(nil, protocol.FaultFormat, false)
		return
	}
	key, refused := w.metaRead(m.Key)
	if refused {
		return
	}
	w.enter()
	it := w.sess.Peek(key)
	if !it.OK() {
		w.out.str(protocol.MetaMiss)
		return
	}
	fetched := "no"
	if it.Fetched() {
		fetched = "yes"
	}
	b := append(w.out.buf, "ME "...)
	b = append(b, m.KeySent...)
	b = protocol.AppendInt(append(b, " exp="...), w.ttl(it.Expire()))
	b = protocol.AppendInt(append(b, " la="...), max(0, w.srv.cfg.Clock()-it.LastAccess()))
	b = protocol.AppendUint(append(b, " cas="...), w.cas(it))
	b = append(append(b, " fetch="...), fetched...)
	b = protocol.AppendUint(append(b, " cls="...), uint64(it.Class()))
	b = protocol.AppendUint(append(b, " size="...), uint64(it.Size()))
	w.out.buf = append(b, "\r\n"...)
}
