package server

import (
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	maxEvents = 512
	// directBody is how much of a data block must be missing before it is read
	// straight into the item instead of by way of the loop's buffer.
	directBody = 16 << 10
)

// loop serves its connections over epoll. All of it belongs to its thread.
type loop struct {
	srv *Server
	w   *worker
	acc *acceptor
	mb  *mailbox
	ep  int

	sockets  []*socket // by descriptor
	count    int
	batch    batch
	in       []byte
	again    []*socket // have input left that was not served for fairness
	events   []unix.EpollEvent
	draining bool
	swept    int64
	turn     int // bytes that may still be sent in the turn of the connection being served
	presser  presser
}

// socket is a connection of the epoll engine. What every request looks at comes first.
type socket struct {
	fd     int
	queued bool    // in again
	unread bool    // there may be input that epoll will not report again
	ended  bool    // the client has closed its side: read until that is found
	cut    bool    // out waits for another turn, not for the client
	held   []byte  // input not used up
	out    *output // what could not be sent; nothing is read until it is
	conn
}

// connEvents: epoll reports each change once. A read that fills less than its
// buffer has emptied the socket, so no read is needed that finds nothing, and
// between two requests a connection costs epoll nothing. The end of the stream
// must be asked for (RDHUP): it may have come along with the last bytes.
const connEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func newLoop(s *Server, acc *acceptor) (threadLoop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	mb, err := newMailbox()
	if err != nil {
		unix.Close(ep)
		return nil, err
	}
	l := &loop{
		srv: s, w: s.worker(), acc: acc, mb: mb, ep: ep, batch: newBatch(),
		in: make([]byte, readBytes), events: make([]unix.EpollEvent, maxEvents),
	}
	err = l.watch(mb.wake, unix.EPOLLIN)
	for _, ls := range acc.sockets {
		if err == nil {
			err = l.watch(ls.fd, unix.EPOLLIN)
		}
	}
	if err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loop) box() *mailbox { return l.mb }

func (l *loop) watch(fd int, events uint32) error {
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (l *loop) close() {
	l.acc.close()
	unix.Close(l.ep)
	unix.Close(l.mb.wake)
}

func (l *loop) takeInbox() {
	list, stop := l.mb.take()
	for _, a := range list {
		l.adopt(a)
	}
	if stop && !l.draining {
		l.drain()
	}
}

func (l *loop) run() error {
	defer l.w.sess.Close()
	var deadline time.Time
	for {
		if l.draining {
			if l.count == 0 {
				return nil
			}
			if deadline.IsZero() {
				deadline = time.Now().Add(drainTime)
			}
			if time.Now().After(deadline) {
				l.closeAll()
				return nil
			}
		}
		n, err := l.wait()
		if err != nil {
			return err
		}
		for i := range n {
			ev := &l.events[i]
			if int(ev.Fd) < len(l.sockets) {
				if s := l.sockets[ev.Fd]; s != nil {
					l.handle(s, ev.Events)
					continue
				}
			}
			l.serveBatch() // a stop must find no request that was received and not served
			if int(ev.Fd) == l.mb.wake {
				l.takeInbox()
				continue
			}
			if ls := l.acc.find(int(ev.Fd)); ls != nil {
				l.acc.accept(ls, l.mb, l.adopt) // those beyond a turn are reported again
			}
		}
		l.serveBatch()
		l.serveAgain()
		l.sweep()
		if l.srv.pressing.Load() {
			press(&l.presser, l.srv, l.waiting, l.drop)
		}
	}
}

// wait gives the number of events. It asks without waiting first: a busy loop
// then never tells Go's scheduler of a system call.
func (l *loop) wait() (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.ep), uintptr(unsafe.Pointer(&l.events[0])), maxEvents, 0, 0, 0)
	if e == 0 && n > 0 || len(l.again) > 0 {
		return max(0, int(n)), nil
	}
	timeout := -1
	if l.srv.cfg.IdleTimeout > 0 {
		timeout = 1000
	}
	if l.srv.pressing.Load() {
		timeout = int(pressEvery / time.Millisecond)
	}
	if l.draining {
		timeout = 50
	}
	n, _, e = syscall.Syscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.ep), uintptr(unsafe.Pointer(&l.events[0])), maxEvents, uintptr(timeout), 0, 0)
	if e != 0 {
		if e == unix.EINTR {
			return 0, nil
		}
		return 0, fmt.Errorf("epoll_wait: %w", e)
	}
	return int(n), nil
}

func (l *loop) adopt(a arrival) {
	s := &socket{conn: *a.conn, fd: a.fd}
	if l.draining || l.watch(s.fd, connEvents) != nil {
		unix.Close(s.fd)
		l.srv.closed(&s.conn)
		return
	}
	for len(l.sockets) <= s.fd {
		l.sockets = append(l.sockets, make([]*socket, max(64, s.fd+1-len(l.sockets)))...)
	}
	l.sockets[s.fd] = s
	l.count++
}

// handle is called for an event of a connection.
func (l *loop) handle(s *socket, events uint32) {
	const input = unix.EPOLLIN | unix.EPOLLRDHUP | unix.EPOLLHUP | unix.EPOLLERR
	if events&input != 0 {
		s.unread = true
		s.ended = s.ended || events&input != unix.EPOLLIN
	}
	if s.out != nil {
		if s.cut {
			return // it has its turn in any case
		}
		l.turn = turnBytes
		if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) == 0 || !l.resume(s) {
			return
		}
	}
	if !s.unread || s.queued {
		return
	}
	if len(s.held) == 0 && len(s.store.rest()) < directBody {
		l.collect(s)
		return
	}
	l.read(s)
	if s.unread {
		l.later(s)
	}
}

// later gives the connection another turn after the others had theirs.
func (l *loop) later(s *socket) {
	if !s.queued && (s.out == nil || s.cut) && l.sockets[s.fd] == s {
		s.queued = true
		l.again = append(l.again, s)
	}
}

// read takes in what has arrived, once, and serves it.
func (l *loop) read(s *socket) {
	l.turn = turnBytes
	var n int
	var e syscall.Errno
	var data []byte
	var room int
	rest := s.store.rest()
	direct := len(rest) >= directBody && len(s.held) == 0
	switch {
	case direct:
		room = len(rest) + len(l.in)
		n, e = readTwo(s.fd, rest, l.in)
	case len(s.held) > readBytes/2:
		s.held = grow(s.held, readBytes)
		room = cap(s.held) - len(s.held)
		n, e = readOne(s.fd, s.held[len(s.held):cap(s.held)])
	default:
		room = len(l.in) - copy(l.in, s.held)
		n, e = readOne(s.fd, l.in[len(s.held):])
	}
	if !l.took(s, n, room, e) {
		return
	}
	switch {
	case direct:
		got := min(n, len(rest))
		s.store.have += got
		if n -= got; n == 0 && got < len(rest) {
			return
		}
		data = l.in[:n]
	case len(s.held) > readBytes/2:
		s.held = s.held[:len(s.held)+n]
		data = s.held
	default:
		data = l.in[:len(s.held)+n]
	}
	l.feed(s, data)
}

// took notes what a read of at most room bytes has given: n bytes or the error e.
// false: there is nothing to be served.
func (l *loop) took(s *socket, n, room int, e syscall.Errno) bool {
	switch e {
	case 0:
	case unix.EAGAIN:
		s.unread = false // also of a connection that was ended by an error: it has been taken
		return false
	case unix.EINTR:
		return false
	default:
		l.drop(s)
		return false
	}
	s.unread = n == room || s.ended
	if n == 0 {
		l.drop(s)
		return false
	}
	l.w.count.add(cBytesRead, uint64(n))
	now := l.srv.cfg.Clock()
	if s.info.lastSeen.Load() != now {
		s.info.lastSeen.Store(now)
	}
	return true
}

func grow(b []byte, room int) []byte {
	if cap(b)-len(b) >= room {
		return b
	}
	n := make([]byte, len(b), 2*cap(b)+room)
	copy(n, b)
	return n
}

// feed serves data, which is all the input there is (held included), and keeps
// what is not used up.
func (l *loop) feed(s *socket, data []byte) {
	l.serveBatch() // the worker's output has one connection's replies, or a batch's
	used, more := l.w.serve(&s.conn, data)
	l.proceed(s, data[used:], more)
}

// proceed sends the worker's output and goes on with data, which is what was not
// used up, as long as there is more to be served.
func (l *loop) proceed(s *socket, data []byte, more bool) {
	w := l.w
	for {
		if s.abandon {
			w.out.drop()
			l.drop(s)
			return
		}
		if !w.out.empty() {
			switch l.send(s) {
			case sendBlocked:
				l.hold(s, data)
				return
			case sendFailed:
				l.drop(s)
				return
			}
		}
		w.sess.Release()
		if s.phase == phaseClosed {
			l.drop(s)
			return
		}
		if !more {
			break
		}
		if (w.srv.cfg.RequestsPerTurn > 0 || l.turn <= 0 || w.over) && len(data) > 0 {
			l.hold(s, data)
			l.later(s)
			return
		}
		var used int
		used, more = w.serve(&s.conn, data)
		data = data[used:]
	}
	l.hold(s, data)
}

// hold keeps input that was not used up.
func (l *loop) hold(s *socket, data []byte) {
	s.note(s.out != nil)
	l.charge(s, data)
	if len(data) == 0 {
		s.held = nil
		return
	}
	if cap(s.held) >= len(data) && cap(s.held) <= 4*len(data)+4096 {
		s.held = s.held[:copy(s.held[:len(data)], data)]
		return
	}
	s.held = append(make([]byte, 0, len(data)+512), data...)
}

// charge notes what is held for the connection while it waits for its client.
func (l *loop) charge(s *socket, held []byte) {
	n := s.conn.waiting(held)
	if s.out != nil {
		n += s.out.cost()
	}
	l.srv.hold(&s.conn, n)
}

// waiting gives the connections that wait for their clients.
func (l *loop) waiting(yield func(victim[*socket]) bool) {
	for _, s := range l.sockets {
		if s == nil || s.stall.cost == 0 || s.cut {
			continue
		}
		cost := s.stall.cost
		if s.out != nil {
			cost += s.out.replaced()
		}
		if !yield(victim[*socket]{s, &s.conn, cost}) {
			return
		}
	}
}

// serveAgain gives connections another turn that had more input, or more to be sent, than
// fits in one.
func (l *loop) serveAgain() {
	list := l.again
	l.again = nil
	for _, s := range list {
		s.queued = false
		if l.sockets[s.fd] != s || s.out != nil && !s.cut {
			continue
		}
		l.turn = turnBytes
		if s.cut {
			s.cut = false
			if !l.resume(s) {
				continue
			}
		} else if len(s.held) > 0 {
			l.feed(s, s.held)
		}
		if s.unread && l.sockets[s.fd] == s && s.out == nil && !s.queued {
			l.read(s)
			if s.unread {
				l.later(s)
			}
		}
	}
}

// drop closes a connection and forgets it.
func (l *loop) drop(s *socket) {
	if s.out != nil {
		s.out.drop()
		s.out = nil
	}
	if l.sockets[s.fd] != s {
		return
	}
	s.held = nil
	l.sockets[s.fd] = nil
	l.count--
	l.srv.closed(&s.conn)
	unix.Close(s.fd)
}

// drain stops accepting and closes every connection that waits for nothing.
func (l *loop) drain() {
	l.draining = true
	l.acc.close()
	for _, s := range l.sockets {
		if s != nil {
			if s.out == nil {
				l.drop(s)
			} else {
				s.phase = phaseClosed
			}
		}
	}
}

func (l *loop) closeAll() {
	for _, s := range l.sockets {
		if s != nil {
			l.drop(s)
		}
	}
}

// sweep closes connections that were silent for too long, once a second.
func (l *loop) sweep() {
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
		if s != nil && now-s.info.lastSeen.Load() > limit {
			l.w.count.add(cIdleKick, 1)
			l.drop(s)
		}
	}
	l.w.count.publish()
}
