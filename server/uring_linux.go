package server

import (
	"fmt"
	"time"
	"unsafe"

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
	if len(l.outputs) < 64 {
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
	if !s.armed && !s.closing && !s.stopping {
		if len(s.held) > heldLimit && (s.sending != nil || s.out != nil) {
			s.stopping = true
			return
		}
		l.receive(s)
	}
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
