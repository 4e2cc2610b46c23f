package server

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// sent is called when a send has ended: all was sent, or the connection is broken.
func (l *ringLoop) sent(s *ringSocket, res int32) {
	o := s.sending
	s.sending = nil
	s.stall.begin = 0
	o.flying--
	if o != l.w.out && o.flying == 0 && o != s.out {
		l.spare(o)
	}
	switch {
	case s.closing:
		l.finish(s)
	case int(res) != s.want:
		l.drop(s)
	default:
		l.w.count.add(cBytesWritten, uint64(res))
		if s.out != nil || len(s.held) > 0 || s.phase == phaseClosed || !s.armed {
			l.goOn(s)
		}
	}
}

// spare keeps an output for another use; its items are given up.
func (l *ringLoop) spare(o *output) {
	l.srv.holdMore(-o.held)
	o.held = 0
	o.drop()
	if cap(o.todo) > spareTodo {
		o.todo = nil
	}
	if len(l.outputs) < spareOutputs {
		l.outputs = append(l.outputs, o)
	}
}

func (l *ringLoop) newOutput() *output {
	if n := len(l.outputs); n > 0 {
		o := l.outputs[n-1]
		l.outputs = l.outputs[:n-1]
		return o
	}
	return newOutput(l.srv.cfg.NoCAS)
}

// settle is called when every entry was submitted: the worker's output is free
// again if all sends from it have ended. If not, it stays with them, its items
// pinned, and the worker gets another. Views end here, unless w's output still has
// items to be laid out.
func (l *ringLoop) settle() {
	o := l.w.out
	if o.flying == 0 {
		o.recycle()
		l.mark = 0
	} else {
		n := l.newOutput()
		o.move(n)
		o.pin()
		l.park(o)
		l.w.out = n
		l.mark = 0
	}
	if !l.w.out.waiting() {
		l.w.sess.Release()
	}
}

// feed serves data, which is all the input there is (held included), and keeps what
// is not used up. The reply is one send.
func (l *ringLoop) feed(s *ringSocket, data []byte) {
	l.need(4)
	w := l.w
	if s.closing {
		return
	}
	if l.mark > 0 && w.out.crowded() {
		// Other connections' replies fill the output: they go first.
		l.turn(false)
		if s.closing {
			return
		}
	}
	used, more := w.serve(&s.conn, data)
	data = data[used:]
	if s.abandon {
		w.out.forget(l.mark)
		l.drop(s)
		return
	}
	l.hold(s, data)
	vec := w.out.pending()[l.mark:]
	switch {
	case len(vec) > 0:
		l.mark += len(vec)
		l.sendFrom(s, w.out, vec)
		if w.out.waiting() {
			l.rest(s)
		}
	case w.out.waiting():
		l.rest(s)
	case s.phase == phaseClosed:
		l.drop(s)
	case more:
		l.goOn(s)
	}
}

// rest sends the rest of a reply that did not fit into the worker's output. It
// goes round until all is sent, the client's socket is full, or others want their turn.
func (l *ringLoop) rest(s *ringSocket) {
	w := l.w
	for sent := 0; w.out.waiting(); sent += s.want {
		l.turn(false) // may give the worker another output, which has the rest
		if s.closing {
			w.out.drop()
			break
		}
		if s.sending != nil || sent >= turnBytes {
			w.out.pin()
			s.out = w.out
			l.park(s.out)
			w.out = l.newOutput()
			if s.sending == nil {
				l.goOn(s)
			}
			break
		}
		w.out.fill()
		vec := w.out.pending()[l.mark:]
		if len(vec) == 0 {
			continue
		}
		l.mark += len(vec)
		l.sendFrom(s, w.out, vec)
	}
}

// park notes what an output holds that waits for a client.
func (l *ringLoop) park(o *output) {
	n := o.cost()
	l.srv.holdMore(n - o.held)
	o.held = n
}

// sendFrom sends vectors of o. They stay where they are until the send has ended.
func (l *ringLoop) sendFrom(s *ringSocket, o *output, vec []unix.Iovec) {
	l.need(1)
	e := l.ring.next()
	if len(vec) == 1 {
		e.op, e.addr, e.len = opSend, uint64(uintptr(unsafe.Pointer(vec[0].Base))), uint32(min(vec[0].Len, 1<<31-1))
	} else {
		l.msgs = append(l.msgs, unix.Msghdr{Iov: &vec[0]})
		m := &l.msgs[len(l.msgs)-1]
		m.SetIovlen(len(vec))
		e.op, e.addr, e.len = opSendMsg, uint64(uintptr(unsafe.Pointer(m))), 1
	}
	e.opFlags = unix.MSG_WAITALL | unix.MSG_NOSIGNAL
	e.user = uint64(s.number)<<aboutBits | aboutSend
	l.target(e, s)
	s.want = 0
	for _, v := range vec {
		s.want += int(v.Len)
	}
	s.sending = o
	o.flying++
}
