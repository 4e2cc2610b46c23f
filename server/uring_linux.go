package server

import (
	"time"

	"golang.org/x/sys/unix"
)

// autoRing: "auto" chooses io_uring where it is to be had.
const autoRing = true

const (
	ringEntries     = 4096
	ringCompletions = 16384
	recvBuffers     = 32 // powers of two
	recvBufferSize  = 64 << 10
	recvSmallSize   = 4 << 10 // of each buffer where the kernel cannot use one bit by bit
	// heldLimit is how much input of a connection is taken in while its replies cannot
	// be sent.
	heldLimit = 64 << 10
	// spareOutputs is how many outputs are kept for another use, each with room for so many
	// items still to be laid out.
	spareOutputs = 16
	spareTodo    = 512
)

// What a completion is about; the rest of its number is the connection.
const (
	aboutRecv = iota + 1
	aboutSend
	aboutWake
	aboutListen
	aboutNothing
	aboutBits = 3
)

// ringLoop serves its connections over io_uring. It goes round: everything that
// has arrived is served, the replies being entries of the ring; then one call
// sends them and receives what came meanwhile. Most sends are complete when the
// call returns, and then the output they were taken from is free again; a client
// that does not read keeps its part of it (settle).
type ringLoop struct {
	srv  *Server
	w    *worker
	acc  *acceptor
	mb   *mailbox
	ring *ring
	bufs *buffers

	sockets  []*ringSocket // by number
	free     []int         // numbers to be used again
	fixed    int           // size of the ring's table of descriptors
	count    int
	events   []ringEvent
	msgs     []unix.Msghdr // of the sends that were not submitted yet
	mark     int           // the worker's vectors before it belong to sends that are on their way
	outputs  []*output     // spare
	halted   bool          // told to stop
	draining bool
	swept    int64
	presser  presser
	err      error
}

// ringEvent is a completion that waits to be handled, or a connection that can go on.
type ringEvent struct {
	s    *ringSocket
	res  int32
	more bool   // the request goes on
	recv bool   // else: go on with the input held
	data []byte // received
	done int    // the buffer that is used up with data, plus one
	ear  int    // the listening socket that has more connections, plus one; s is nil
}

// ringSocket is a connection of the io_uring engine.
type ringSocket struct {
	conn
	fd       int
	number   int
	held     []byte  // input not used up
	want     int     // bytes of the send on its way
	sending  *output // what the send on its way was taken from
	out      *output // what is to be sent after that; nothing is served until it is
	armed    bool    // the kernel receives
	stopping bool    // receiving was called off
	closing  bool    // gone, but for completions that are still to come
	going    bool    // an event to go on is queued
	ended    bool    // the client has closed its side
}

func newRingLoop(s *Server, acc *acceptor) (threadLoop, error) {
	mb, err := newMailbox()
	if err != nil {
		return nil, err
	}
	acc.flags = unix.SOCK_CLOEXEC // the ring waits by itself, but not for sockets that say they never block
	return &ringLoop{srv: s, w: s.worker(), acc: acc, mb: mb, msgs: make([]unix.Msghdr, 0, ringEntries)}, nil
}

func (l *ringLoop) box() *mailbox { return l.mb }

func (l *ringLoop) close() {
	l.acc.close()
	unix.Close(l.mb.wake)
}

// open makes the ring, which must happen on the thread that uses it.
func (l *ringLoop) open() error {
	r, err := newRing(ringEntries, ringCompletions)
	if err != nil {
		return err
	}
	l.ring = r
	if l.bufs, err = r.provide(recvBuffers, recvBufferSize, recvSmallSize); err != nil {
		return err
	}
	// Descriptors of the ring's own table cost the kernel no look-up. It may be refused,
	// for it counts against limits; then the process's descriptors are used.
	l.fixed = l.srv.cfg.MaxConnections + 64
	if r.files(l.fixed) != 0 {
		l.fixed = 0
	}
	l.poll(l.mb.wake, aboutWake)
	for i, ls := range l.acc.sockets {
		l.poll(ls.fd, i<<aboutBits|aboutListen)
	}
	return nil
}

// poll reports whenever fd becomes readable.
func (l *ringLoop) poll(fd int, user int) {
	e := l.ring.next()
	e.op, e.fd, e.opFlags, e.len, e.user = opPollAdd, int32(fd), unix.POLLIN, pollMultishot, uint64(user)
}

func (l *ringLoop) run() error {
	defer l.w.sess.Close()
	defer func() {
		if l.ring != nil {
			l.ring.close() // cancels what is on its way
		}
		if l.bufs != nil {
			l.bufs.close()
		}
		l.forget()
	}()
	if err := l.open(); err != nil {
		return err
	}
	var deadline time.Time
	for l.err == nil {
		if l.draining {
			if l.count == 0 {
				return nil
			}
			if deadline.IsZero() {
				deadline = time.Now().Add(drainTime)
			}
			if time.Now().After(deadline) {
				return nil
			}
		}
		l.turn(len(l.events) == 0)
		l.handleAll()
		l.sweep()
		if l.srv.pressing.Load() {
			press(&l.presser, l.srv, l.waiting, l.drop)
		}
		if l.halted && !l.draining {
			l.drain() // here, where no connection is in the middle of anything
		}
	}
	return l.err
}

// turn submits, lets the kernel complete, and takes the completions in. With wait it
// returns only when there are some, but asks without waiting first: a busy loop then
// never tells Go's scheduler of a system call.
func (l *ringLoop) turn(wait bool) {
	l.bufs.publish()
	l.w.count.publish()
	err := l.ring.submit()
	if err == nil && wait && l.ring.ready() == 0 {
		l.settle() // no view is held while waiting
		var timeout *unix.Timespec
		switch {
		case l.draining:
			timeout = &unix.Timespec{Nsec: 50e6}
		case l.srv.pressing.Load():
			timeout = &unix.Timespec{Nsec: int64(pressEvery)}
		case l.srv.cfg.IdleTimeout > 0:
			timeout = &unix.Timespec{Sec: 1}
		}
		err = l.ring.wait(timeout)
	}
	if err != nil {
		l.err = err
		return
	}
	l.msgs = l.msgs[:0]
	for n := l.ring.ready(); n > 0; n-- {
		l.complete(l.ring.take())
	}
	l.settle()
}

// complete takes in one completion. Sends are dealt with here, for the output they
// were taken from is waiting; what was received is queued.
func (l *ringLoop) complete(c cqe) {
	about, number := int(c.user&(1<<aboutBits-1)), int(c.user>>aboutBits)
	switch about {
	case aboutWake:
		l.takeInbox()
		if c.flags&cqeMore == 0 {
			l.poll(l.mb.wake, aboutWake)
		}
	case aboutListen:
		if number < len(l.acc.sockets) {
			if c.flags&cqeMore == 0 && !l.draining {
				l.poll(l.acc.sockets[number].fd, int(c.user))
			}
			l.accept(number)
		}
	case aboutRecv:
		s := l.sockets[number]
		ev := ringEvent{s: s, res: c.res, more: c.flags&cqeMore != 0, recv: true}
		if !ev.more {
			s.armed = false
		}
		if c.flags&cqeBuffer != 0 {
			id, data, done := l.bufs.got(c, int(max(c.res, 0)))
			ev.data = data
			if done {
				ev.done = id + 1
			}
		}
		l.events = append(l.events, ev)
	case aboutSend:
		l.sent(l.sockets[number], c.res)
	}
}

// goOn queues a connection whose input waits.
func (l *ringLoop) goOn(s *ringSocket) {
	if !s.going && !s.closing {
		s.going = true
		l.events = append(l.events, ringEvent{s: s})
	}
}

// handleAll handles what is queued now. What is queued meanwhile waits for another turn.
func (l *ringLoop) handleAll() {
	n := len(l.events)
	for i := 0; i < n; i++ {
		if i%groupKeys == 0 {
			for _, ev := range l.events[i:min(i+groupKeys, n)] {
				l.w.warm(ev.data)
			}
			l.w.warmed()
		}
		ev := l.events[i]
		if ev.ear > 0 {
			l.accept(ev.ear - 1)
		} else if ev.recv {
			l.received(ev)
			if ev.done > 0 {
				l.bufs.give(ev.done - 1)
			}
		} else {
			ev.s.going = false
			l.resume(ev.s)
		}
	}
	l.events = l.events[:copy(l.events, l.events[n:])]
}

func (l *ringLoop) received(ev ringEvent) {
	s := ev.s
	switch {
	case s.closing:
		l.finish(s)
		return
	case ev.res == 0 && !ev.more, ev.res < 0 && ev.res != -int32(unix.ENOBUFS) && ev.res != -int32(unix.ECANCELED) && ev.res != -int32(unix.EINTR):
		s.ended = true
		if s.sending == nil && s.out == nil {
			l.drop(s)
		}
		return
	}
	if n := len(ev.data); n > 0 {
		l.w.count.add(cBytesRead, uint64(n))
		now := l.srv.cfg.Clock()
		if s.info.lastSeen.Load() != now {
			s.info.lastSeen.Store(now)
		}
		switch {
		case s.sending != nil || s.out != nil || s.going:
			s.held = append(s.held, ev.data...)
			l.srv.hold(&s.conn, s.waiting(s.held))
			if len(s.held) > heldLimit && s.armed && !s.stopping {
				l.stopReceiving(s)
			}
		case len(s.held) > 0:
			s.held = append(s.held, ev.data...)
			l.feed(s, s.held)
		default:
			l.feed(s, ev.data)
		}
	}
	if s.armed || s.closing {
		return
	}
	// Receiving goes on now, or when resume comes round: the send that was waited for may have ended before the kernel
	// said that receiving was called off.
	if (s.sending != nil || s.out != nil || s.going) && (s.stopping || len(s.held) > heldLimit) {
		s.stopping = true
		return
	}
	s.stopping = false
	l.receive(s)
}

// receive lets the kernel receive until further notice.
func (l *ringLoop) receive(s *ringSocket) {
	l.need(1)
	if s.closing {
		return
	}
	e := l.ring.next()
	e.op, e.ioprio, e.bufGroup, e.flags = opRecv, recvMultishot, bufferGroup, sqeBufferSelect
	e.user = uint64(s.number)<<aboutBits | aboutRecv
	l.target(e, s)
	s.armed = true
}

func (l *ringLoop) target(e *sqe, s *ringSocket) {
	e.fd = int32(s.fd)
	if s.number < l.fixed {
		e.fd = int32(s.number)
		e.flags |= sqeFixedFile
	}
}

func (l *ringLoop) stopReceiving(s *ringSocket) {
	l.need(1)
	e := l.ring.next()
	e.op, e.fd, e.addr, e.user = opAsyncCancel, -1, uint64(s.number)<<aboutBits|aboutRecv, aboutNothing
	s.stopping = true
}

// need makes room for n entries.
func (l *ringLoop) need(n int) {
	if l.ring.room() < n || len(l.msgs)+n > cap(l.msgs) {
		l.turn(false)
	}
}

// resume goes on with a connection whose send has ended.
func (l *ringLoop) resume(s *ringSocket) {
	if s.closing || s.sending != nil {
		return
	}
	if o := s.out; o != nil {
		o.recycle()
		o.fill()
		if vec := o.pending(); len(vec) > 0 {
			if !o.waiting() {
				s.out = nil
			}
			l.sendFrom(s, o, vec)
			return
		}
		s.out = nil
		l.spare(o)
	}
	if s.phase == phaseClosed {
		l.drop(s)
		return
	}
	if len(s.held) > 0 {
		l.feed(s, s.held)
		if s.closing {
			return
		}
	}
	if s.sending != nil || s.out != nil {
		return
	}
	switch {
	case s.ended:
		l.drop(s)
	default:
		s.stopping = false
		if !s.armed {
			l.receive(s)
		}
	}
}

// hold keeps input that was not used up.
func (l *ringLoop) hold(s *ringSocket, data []byte) {
	s.note(s.sending != nil)
	l.srv.hold(&s.conn, s.waiting(data))
	switch {
	case len(data) == 0:
		s.held = nil
	case len(s.held) >= len(data) && &s.held[len(s.held)-len(data)] == &data[0]:
		s.held = s.held[:copy(s.held, data)]
	default:
		s.held = append(make([]byte, 0, len(data)+512), data...)
	}
}

// accept takes connections of a listening socket, the rest of them in another turn.
func (l *ringLoop) accept(number int) {
	if number < len(l.acc.sockets) && l.acc.accept(l.acc.sockets[number], l.mb, l.adopt) {
		l.events = append(l.events, ringEvent{ear: number + 1})
	}
}
