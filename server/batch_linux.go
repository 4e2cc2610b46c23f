package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// What is ready at the same time is served as a batch: first everything is received,
// then executed, then all replies are sent. One after the other a connection's receive and
// send would push each other's kernel code out of the processor's first cache.
const (
	batchMost = 64       // connections: the first of them waits for the last one's receive
	shareMost = 16 << 10 // bytes of a reply that is sent with others'; a larger one goes by itself
)

// batch is what was received and not served yet, and what was served and not sent yet.
type batch struct {
	in      []byte // what was received, one after the other
	used    int    // of in
	got     []received
	replies []reply
	mark    int // the worker's vectors before it belong to replies
}

type received struct {
	s        *socket
	from, to int // of in
}

// reply ends before that vector of the worker's output and begins where the one before ends.
type reply struct {
	s  *socket
	to int
}

func newBatch() batch {
	return batch{in: make([]byte, 2*readBytes), got: make([]received, 0, batchMost), replies: make([]reply, 0, batchMost)}
}

// collect receives from a connection of which nothing is held.
func (l *loop) collect(s *socket) {
	b := &l.batch
	n, e := readOne(s.fd, b.in[b.used:b.used+readBytes])
	if !l.took(s, n, readBytes, e) {
		return
	}
	b.got = append(b.got, received{s, b.used, b.used + n})
	b.used += n
	if len(b.got) == batchMost || b.used > readBytes {
		l.serveBatch()
	}
}

// serveBatch executes and answers what was collected.
func (l *loop) serveBatch() {
	b := &l.batch
	if len(b.got) == 0 {
		return
	}
	got := b.got
	b.got, b.used = b.got[:0], 0
	for i, r := range got {
		if i%groupKeys == 0 {
			for _, r := range got[i:min(i+groupKeys, len(got))] {
				l.w.warm(b.in[r.from:r.to])
			}
			l.w.warmed()
		}
		l.serveShared(r.s, b.in[r.from:r.to])
	}
	l.sendReplies()
	l.w.sess.Release()
	for _, r := range got {
		if r.s.unread {
			l.later(r.s)
		}
	}
}

// serveShared is feed for a connection of a batch. Its reply stays in the worker's
// output with those of the others, unless it is large or there is more to come.
func (l *loop) serveShared(s *socket, data []byte) {
	w, b := l.w, &l.batch
	if w.out.crowded() {
		l.sendReplies()
	}
	before := w.out.laidOut()
	used, more := w.serve(&s.conn, data)
	data = data[used:]
	if s.abandon {
		if len(b.replies) > 0 {
			w.out.forget(b.mark)
		} else {
			w.out.drop()
		}
		l.drop(s)
		return
	}
	if more || w.out.waiting() || s.phase == phaseClosed || w.out.laidOut()-before > shareMost {
		l.sendReplies()
		l.turn = turnBytes
		l.proceed(s, data, more)
		return
	}
	if vec := w.out.pending(); len(vec) > b.mark {
		b.mark = len(vec)
		b.replies = append(b.replies, reply{s, b.mark})
	}
	l.hold(s, data)
}

// sendReplies sends what was answered of a batch. What the worker's output has beyond
// that stays in it.
func (l *loop) sendReplies() {
	w, b := l.w, &l.batch
	if len(b.replies) == 0 {
		return
	}
	w.count.publish()
	o := w.out
	all := o.pending()
	from := 0
	for _, r := range b.replies {
		vec := all[from:r.to]
		from = r.to
		size := 0
		for i := range vec {
			size += int(vec[i].Len)
		}
		o.size -= size
		n, e := writeVectors(r.s.fd, vec)
		for e == unix.EINTR {
			n, e = writeVectors(r.s.fd, vec)
		}
		switch {
		case e == unix.EAGAIN:
			l.keep(r.s, vec, 0)
		case e != 0:
			l.drop(r.s)
		default:
			w.count.add(cBytesWritten, uint64(n))
			if n < size {
				l.keep(r.s, vec, n)
			}
		}
	}
	b.replies, b.mark = b.replies[:0], 0
	o.sent = from
	if o.empty() {
		o.recycle()
		w.sess.Release()
	}
}

// keep gives a connection an output of its own with what is left of vectors of the
// worker's, without the first n bytes.
func (l *loop) keep(s *socket, vec []unix.Iovec, n int) {
	o := newOutput(l.srv.cfg.NoCAS)
	for _, v := range vec {
		b := bytesOf(v)
		skip := min(n, len(b))
		n -= skip
		if b = b[skip:]; len(b) > 0 {
			o.takeFrom(l.w.out, b)
		}
	}
	o.pin()
	s.out = o
	s.note(true)
	l.charge(s, s.held)
}

// takeFrom lays out b, which is a part of a vector of from.
func (o *output) takeFrom(from *output, b []byte) {
	p := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for _, it := range from.items {
		w := it.Wire()
		if at := uintptr(unsafe.Pointer(unsafe.SliceData(w))); p >= at && p < at+uintptr(len(w)) {
			o.ref(it, b)
			return
		}
	}
	o.own(append([]byte(nil), b...))
}
