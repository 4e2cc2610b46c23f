package server

import (
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

func (l *ringLoop) takeInbox() {
	list, stop := l.mb.take()
	for _, a := range list {
		l.adopt(a)
	}
	l.halted = l.halted || stop
}

func (l *ringLoop) adopt(a arrival) {
	s := &ringSocket{conn: *a.conn, fd: a.fd}
	if l.draining {
		unix.Close(a.fd)
		l.srv.closed(a.conn)
		return
	}
	if n := len(l.free); n > 0 {
		s.number = l.free[n-1]
		l.free = l.free[:n-1]
		l.sockets[s.number] = s
	} else {
		s.number = len(l.sockets)
		l.sockets = append(l.sockets, s)
	}
	if s.number < l.fixed {
		if e := l.ring.setFile(s.number, int32(a.fd)); e != 0 {
			panic(fmt.Sprintf("server: descriptor %d into place %d of the ring's table: %v", a.fd, s.number, e))
		}
	}
	l.count++
	l.goOn(s) // receives
}

// drop ends a connection. Its number stays taken until the kernel has said the last
// word about it.
func (l *ringLoop) drop(s *ringSocket) {
	if s.closing {
		return
	}
	s.closing = true
	s.held = nil
	if s.out != nil && s.out != s.sending {
		l.spare(s.out)
	}
	s.out = nil
	l.srv.closed(&s.conn)
	if s.armed || s.sending != nil {
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR) // ends what is on its way
	}
	l.finish(s)
}

// finish gives the number back when nothing more can come.
func (l *ringLoop) finish(s *ringSocket) {
	if s.armed || s.sending != nil || l.sockets[s.number] != s {
		return
	}
	if s.number < l.fixed {
		_ = l.ring.setFile(s.number, -1)
	}
	unix.Close(s.fd)
	l.sockets[s.number] = nil
	l.free = append(l.free, s.number)
	l.count--
}

// drain stops accepting and closes every connection that waits for nothing.
func (l *ringLoop) drain() {
	l.draining = true
	l.acc.close()
	for _, s := range l.sockets {
		if s == nil || s.closing {
			continue
		}
		if s.sending == nil && s.out == nil {
			l.drop(s)
		} else {
			s.phase = phaseClosed
		}
	}
}

// forget gives back what connections hold when the ring is gone.
func (l *ringLoop) forget() {
	for _, s := range l.sockets {
		if s == nil {
			continue
		}
		if s.out != nil && s.out != s.sending {
			s.out.drop()
		}
		if o := s.sending; o != nil {
			if o.flying--; o.flying == 0 {
				o.drop()
			}
		}
		if !s.closing {
			l.srv.closed(&s.conn)
		}
		unix.Close(s.fd)
	}
	l.w.out.drop()
}

// sweep closes connections that were silent for too long, once a second.
func (l *ringLoop) sweep() {
	limit := int64(l.srv.cfg.IdleTimeout / time.Second)
	if limit == 0 {
		return
	}
	now := l.srv.cfg.Clock()
	if now == l.swept {
		return
	}
	l.swept = now
	for _, s := range l.sockets {
		if s != nil && !s.closing && now-s.info.lastSeen.Load() > limit {
			l.w.count.add(cIdleKick, 1)
			l.drop(s)
		}
	}
	l.w.count.publish()
}

// waiting gives the connections that wait for their clients.
func (l *ringLoop) waiting(yield func(victim[*ringSocket]) bool) {
	for _, s := range l.sockets {
		if s == nil || s.closing {
			continue
		}
		cost := s.stall.cost
		if o := s.sending; o != nil && o != l.w.out && o.flying > 0 {
			cost += (o.held + o.replaced()) / int64(o.flying)
		}
		if s.out != nil && s.out != s.sending && !s.going {
			cost += s.out.held + s.out.replaced()
		}
		if cost > 0 && !yield(victim[*ringSocket]{s, &s.conn, cost}) {
			return
		}
	}
}
