package server

import "golang.org/x/sys/unix"

type sendResult uint8

const (
	sendDone sendResult = iota
	sendBlocked
	sendFailed
)

// send sends the worker's output. When the socket is full the output stays with
// the connection, its items pinned, and the worker gets another.
func (l *loop) send(s *socket) sendResult {
	r := l.write(s, l.w.out)
	if r != sendBlocked {
		if r == sendFailed {
			l.w.out.drop()
		}
		return r
	}
	l.w.out.pin()
	s.out = l.w.out
	l.w.out = newOutput(l.srv.cfg.NoCAS)
	l.w.sess.Release()
	if s.cut {
		l.later(s)
	}
	return sendBlocked
}

// resume sends what was left over. true: all of it, and the connection reads
// again.
func (l *loop) resume(s *socket) bool {
	switch l.write(s, s.out) {
	case sendBlocked:
		if s.cut {
			l.later(s)
		}
		return false
	case sendFailed:
		l.drop(s)
		return false
	}
	s.out = nil
	if s.phase == phaseClosed {
		l.drop(s)
		return false
	}
	if len(s.held) > 0 {
		l.feed(s, s.held)
	} else {
		l.charge(s, nil)
	}
	return s.out == nil && s.phase != phaseClosed
}

// write sends o until it is empty, the socket is full, or the turn is over (cut).
func (l *loop) write(s *socket, o *output) sendResult {
	l.w.count.publish()
	for {
		vec := o.pending()
		if len(vec) == 0 {
			if o.empty() {
				return sendDone
			}
			o.recycle()
			o.fill()
			continue
		}
		n, e := writeVectors(s.fd, vec)
		if e != 0 {
			switch e {
			case unix.EAGAIN:
				return sendBlocked
			case unix.EINTR:
				continue
			}
			return sendFailed
		}
		l.w.count.add(cBytesWritten, uint64(n))
		l.turn -= n
		if !o.advance(n) {
			return sendBlocked
		}
		o.recycle()
		if o.waiting() {
			o.fill()
			if l.turn <= 0 {
				s.cut = true
				return sendBlocked
			}
			continue
		}
		return sendDone
	}
}
