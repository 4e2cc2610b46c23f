package server

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

const (
	outBytes   = 64 << 10  // room for replies that are copied
	outVectors = 512       // pieces in one writev
	outSoft    = 512 << 10 // bytes after which a reply is sent before more is laid out
	headerRoom = 640       // more than any line made of one request's words
	copyLimit  = 1 << 10   // items up to this size are copied, larger ones sent from where they are
)

// output is what is to be sent to one connection: small replies copied into one
// buffer, larger items by reference. Its size is bounded: what a multi-key get
// found but does not fit waits in todo as references to items.
type output struct {
	buf  []byte // never grows beyond its capacity, because vec points into it
	run  int    // where the bytes of buf begin that no vector holds yet
	vec  []unix.Iovec
	sent int // vectors sent whole
	size int // bytes in vec

	items []memory.Item // that vec points into
	owned [][]byte      // slices of the Go heap that vec points into

	todo    []found
	next    int    // todo before it is laid out
	withCAS bool   // of todo
	noCAS   bool   // cas numbers are shown as 0
	end     string // what follows todo
	walk    *walk  // a listing that is under way

	pinned bool  // items and todo are pinned
	flying int   // sends of its vectors that have not ended (io_uring)
	held   int64 // bytes that Server.held counts for it (io_uring)
}

// found is an item to be sent.
type found struct {
	item memory.Item
	key  []byte // the key to be shown, when it is not the item's own
}

func newOutput(noCAS bool) *output {
	return &output{
		noCAS: noCAS,
		buf:   make([]byte, 0, outBytes),
		vec:   make([]unix.Iovec, 0, outVectors),
	}
}

func (o *output) empty() bool {
	return len(o.buf) == o.run && o.size == 0 && !o.waiting()
}

// waiting says that there is more to be laid out.
func (o *output) waiting() bool { return o.next < len(o.todo) || o.end != "" || o.walk != nil }

// full says that what was laid out should be sent before another request is
// looked at.
func (o *output) full() bool { return !o.room() || o.waiting() }

// room says that one more item, or one reply without one, can be laid out.
func (o *output) room() bool {
	return cap(o.buf)-len(o.buf) >= headerRoom+copyLimit && cap(o.vec)-len(o.vec) >= 4 && o.laidOut() <= outSoft
}

// laidOut is how many bytes there are to be sent.
func (o *output) laidOut() int { return o.size + len(o.buf) - o.run }

// crowded says that another connection's replies should not be laid out behind those
// that are there: a large one would have to be cut in two.
func (o *output) crowded() bool {
	return cap(o.buf)-len(o.buf) < outBytes*3/8 || o.laidOut() > outSoft*3/4 || cap(o.vec)-len(o.vec) < outVectors/4
}

// fits says that all of items can be laid out.
func (o *output) fits(items []memory.Item) bool {
	if !o.room() {
		return false
	}
	copied, refs, size := 0, 0, o.laidOut()
	for _, it := range items {
		if !it.OK() {
			continue
		}
		n := len(it.Wire())
		size += n
		if n <= copyLimit {
			copied += n
		} else {
			refs++
		}
	}
	return cap(o.buf)-len(o.buf)-copied >= headerRoom && cap(o.vec)-len(o.vec)-2*refs >= 4 && size <= outSoft
}

// roomFor is how many items with a reply each can be laid out.
func (o *output) roomFor() int {
	if !o.room() {
		return 0
	}
	return min((cap(o.buf)-len(o.buf)-headerRoom)/(copyLimit+len(protocol.End)), (cap(o.vec)-len(o.vec)-4)/2)
}

func (o *output) str(s string)   { o.buf = append(o.buf, s...) }
func (o *output) bytes(b []byte) { o.buf = append(o.buf, b...) }

// place is how far an output is laid out; back returns to it.
type place struct{ buf, run, vec, size, items int }

func (o *output) place() place { return place{len(o.buf), o.run, len(o.vec), o.size, len(o.items)} }

func (o *output) back(p place) {
	o.buf, o.run, o.vec, o.size, o.items = o.buf[:p.buf], p.run, o.vec[:p.vec], p.size, o.items[:p.items]
	o.todo = o.todo[:0]
}

// cut makes a vector of the bytes that were copied since the last one.
func (o *output) cut() {
	if n := len(o.buf) - o.run; n > 0 {
		o.vec = append(o.vec, vector(o.buf[o.run:]))
		o.run = len(o.buf)
		o.size += n
	}
}

func vector(b []byte) unix.Iovec {
	v := unix.Iovec{Base: unsafe.SliceData(b)}
	v.SetLen(len(b))
	return v
}

func bytesOf(v unix.Iovec) []byte { return unsafe.Slice(v.Base, v.Len) }

// ref sends the bytes of an item from where they are.
func (o *output) ref(it memory.Item, b []byte) {
	o.cut()
	o.vec = append(o.vec, vector(b))
	o.size += len(b)
	o.items = append(o.items, it)
}

// own sends b, which must not be changed any more.
func (o *output) own(b []byte) {
	if len(b) <= cap(o.buf)-len(o.buf)-headerRoom {
		o.bytes(b)
		return
	}
	o.cut()
	o.vec = append(o.vec, vector(b))
	o.size += len(b)
	o.owned = append(o.owned, b)
}

// wire lays out "VALUE key flags bytes\r\ndata\r\n" as it is kept.
func (o *output) wire(it memory.Item) {
	b := it.Wire()
	if len(b) <= copyLimit {
		o.bytes(b)
		return
	}
	o.ref(it, b)
}

// tail lays out what follows an item's first line, without the first skip bytes.
func (o *output) tail(it memory.Item, skip int) {
	b := it.Tail()[skip:]
	if len(b) <= copyLimit {
		o.bytes(b)
		return
	}
	o.ref(it, b)
}

// value lays out one item of a get. It needs room.
func (o *output) value(f found) {
	if f.key == nil {
		if !o.withCAS {
			o.wire(f.item)
			return
		}
		o.bytes(f.item.Head())
	} else {
		o.str("VALUE ")
		o.bytes(f.key)
		o.bytes(f.item.Head()[len("VALUE ")+len(f.item.Key()):])
	}
	if o.withCAS {
		o.buf = append(o.buf, ' ')
		cas := f.item.CAS()
		if o.noCAS {
			cas = 0
		}
		o.buf = protocol.AppendUint(o.buf, cas)
	}
	o.tail(f.item, 0)
}

// fill lays out as much of todo as there is room for.
func (o *output) fill() {
	for o.next < len(o.todo) {
		if !o.room() {
			return
		}
		n := len(o.items)
		o.value(o.todo[o.next])
		if o.pinned && len(o.items) == n {
			o.todo[o.next].item.Unpin() // was copied
		}
		o.next++
	}
	if o.end != "" {
		o.str(o.end)
		o.end = ""
	}
	if o.walk != nil && o.room() {
		piece, done := o.walk.step()
		o.own(piece)
		if done {
			o.walk = nil
		}
	}
}

// pending gives the vectors not yet sent.
func (o *output) pending() []unix.Iovec {
	o.cut()
	return o.vec[o.sent:]
}

// advance notes that n bytes of pending were sent. done: nothing is left of it.
func (o *output) advance(n int) (done bool) {
	o.size -= n
	for o.sent < len(o.vec) {
		v := &o.vec[o.sent]
		if l := int(v.Len); n < l {
			v.Base = (*byte)(unsafe.Add(unsafe.Pointer(v.Base), n))
			v.SetLen(l - n)
			return false
		} else {
			n -= l
		}
		o.sent++
	}
	return true
}

// recycle makes room for more after everything laid out was sent.
func (o *output) recycle() {
	if o.pinned {
		for i := range o.items {
			o.items[i].Unpin()
		}
	}
	clear(o.owned)
	o.buf, o.vec, o.items, o.owned = o.buf[:0], o.vec[:0], o.items[:0], o.owned[:0]
	o.run, o.sent, o.size = 0, 0, 0
	o.settleTodo()
	if len(o.todo) == 0 {
		o.pinned = false
		if cap(o.todo) > 4096 {
			o.todo = nil
		}
	}
}

// settleTodo empties todo once all of it is laid out. Without it an output whose
// sends never end all at once would carry on what it sent long ago.
func (o *output) settleTodo() {
	if o.next == len(o.todo) {
		o.todo, o.next = o.todo[:0], 0
	}
}

// pin keeps every item alive beyond the session's Release: the socket is full
// and what is left will be sent later.
func (o *output) pin() {
	if o.pinned {
		return
	}
	o.pinned = true
	for i := range o.items {
		o.items[i].Pin()
	}
	for i := o.next; i < len(o.todo); i++ {
		f := &o.todo[i]
		f.item.Pin()
		if f.key != nil {
			f.key = append([]byte(nil), f.key...)
		}
	}
}

// drop forgets everything: the connection is gone.
func (o *output) drop() {
	if o.pinned {
		for ; o.next < len(o.todo); o.next++ {
			o.todo[o.next].item.Unpin()
		}
	}
	o.next, o.end, o.walk = len(o.todo), "", nil
	o.recycle()
}

// move gives what is not laid out yet to another output, which is empty.
func (o *output) move(to *output) {
	o.settleTodo()
	to.todo, o.todo = o.todo, to.todo[:0]
	to.next, o.next = o.next, 0
	to.end, o.end = o.end, ""
	to.walk, o.walk = o.walk, nil
	to.withCAS, to.pinned = o.withCAS, o.pinned
}

// forget takes back what was laid out after the first n vectors.
func (o *output) forget(n int) {
	o.next, o.end, o.walk = len(o.todo), "", nil
	o.cut()
	for _, v := range o.vec[n:] {
		o.size -= int(v.Len)
	}
	o.vec = o.vec[:n]
}
