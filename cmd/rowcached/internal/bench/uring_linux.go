package bench

import (
	"context"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ringLoop drives the connections of one thread over io_uring: the batches of a turn are sent, and the replies that came
// meanwhile received, in one call. What a turn costs is shared by all connections, which is why this is the engine of choice
// for many of them.
type ringLoop struct {
	w     *worker
	spin  bool
	ring  *ring
	conns []*ringSocket
	free  []*ringSocket // of a paced round: waiting for their time
	open  int           // batches on their way
	last  time.Duration
}

// ringSocket is one connection.
type ringSocket struct {
	client
	number  int
	sending bool // the kernel tells when it has the batch
	waiting bool // the replies are complete before that
}

// silentSend is how large a batch is that the kernel surely takes at once: its socket's buffer, empty after the replies to
// the batch before, is at least as large. A longer one may not be changed before the kernel says so.
const silentSend = 16 << 10

const sendDone = 1 << 32 // marks completions of sends

func (l *ringLoop) run(ctx context.Context, fds []int) (err error) {
	if l.ring, err = newRing(); err != nil {
		return err
	}
	defer l.ring.close()
	table := make([]int32, len(fds))
	for i, fd := range fds {
		table[i] = int32(fd)
	}
	if e := l.ring.register(registerFiles, unsafe.Pointer(&table[0]), uintptr(len(table))); e != 0 {
		return fmt.Errorf("register the connections: %w", e)
	}
	for i := range fds {
		s := &ringSocket{number: i}
		s.w = l.w
		l.conns = append(l.conns, s)
		if err := l.receive(s); err != nil {
			return err
		}
	}
	l.last = l.w.clock()
	l.w.tick(l.last)
	for _, s := range l.conns {
		if err := l.next(s, l.last); err != nil {
			return err
		}
	}
	for i := 0; l.open > 0 || len(l.free) > 0 && !l.w.ended; i++ {
		if i&1023 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		if err := l.turn(); err != nil {
			return err
		}
	}
	l.w.end(l.w.clock())
	if l.spin {
		l.w.idle = -1 // it took what there was as soon as it was there: that says nothing
	}
	return nil
}

// turn submits what was prepared and handles what is complete.
func (l *ringLoop) turn() error {
	if err := l.ring.submit(); err != nil {
		return err
	}
	if l.ring.ready() == 0 {
		began := l.w.clock()
		if pause := l.w.pause(began, len(l.free) > 0); pause > 0 && !l.spin {
			if err := l.ring.wait(int64(pause)); err != nil {
				return err
			}
		}
		l.w.waited(l.w.clock() - began)
	}
	now := l.w.clock()
	l.w.tick(now)
	n := l.ring.ready()
	if n == 0 && l.open > 0 && now-l.last > replyLimit {
		return fmt.Errorf("no reply came for %v, of %d that were due", replyLimit, l.open)
	}
	for ; n > 0; n-- {
		l.last = now
		if err := l.complete(l.ring.take()); err != nil {
			return err
		}
	}
	return l.pace(now)
}

func (l *ringLoop) complete(c completion) error {
	s := l.conns[uint32(c.user)]
	if c.user >= sendDone {
		if int(c.res) != len(s.out) {
			return fmt.Errorf("send: %w", syscall.Errno(max(-c.res, 0)))
		}
		s.sending = false
		if s.waiting {
			s.waiting = false
			return l.finish(s, l.w.clock())
		}
		return nil
	}
	switch {
	case c.res == -int32(unix.ENOBUFS):
		return l.receive(s)
	case c.res < 0:
		return fmt.Errorf("receive: %w", syscall.Errno(-c.res))
	case c.res == 0:
		return errClosed
	}
	id, n := int(c.flags>>16), int(c.res)
	from := headroom + l.ring.used[id]
	l.ring.used[id] += n
	now := l.w.clock()
	// What lies before it in the buffer has been read already: completions come in order.
	done, err := s.read(l.ring.buffer(id), from, from+n, now)
	if c.flags&doneBufferMore == 0 {
		l.ring.give(id)
	}
	if err == nil && c.flags&doneMore == 0 {
		err = l.receive(s)
	}
	switch {
	case err != nil || !done:
		return err
	case s.sending:
		s.waiting = true
		return nil
	}
	return l.finish(s, now)
}

// finish goes on after a batch whose replies are complete.
func (l *ringLoop) finish(s *ringSocket, now time.Duration) error {
	l.open--
	return l.next(s, now)
}

// next sends the connection's next batch, or keeps the connection until it is time.
func (l *ringLoop) next(s *ringSocket, now time.Duration) error {
	if l.w.each > 0 {
		l.free = append(l.free, s)
		return nil
	}
	return l.begin(s, now)
}

func (l *ringLoop) begin(s *ringSocket, now time.Duration) error {
	if !s.begin(now) {
		return nil
	}
	l.open++
	e, err := l.ring.next()
	if err != nil {
		return err
	}
	e.op, e.flags, e.fd, e.user = opSend, entryFixedFile, int32(s.number), sendDone|uint64(s.number)
	e.addr, e.len, e.opFlags = uint64(uintptr(unsafe.Pointer(&s.out[0]))), uint32(len(s.out)), unix.MSG_WAITALL|unix.MSG_NOSIGNAL
	if len(s.out) <= silentSend {
		e.flags |= entrySilent
	} else {
		s.sending = true
	}
	return nil
}

// pace sends the batches whose time has come, as far as there are free connections.
func (l *ringLoop) pace(now time.Duration) error {
	for len(l.free) > 0 {
		due, ok := l.w.overdue(now)
		if !ok {
			return nil
		}
		s := l.free[0]
		l.free = append(l.free[:0], l.free[1:]...)
		if err := l.begin(s, due); err != nil {
			return err
		}
		if !s.busy() {
			l.free = l.free[:0] // there is nothing more to ask
			return nil
		}
	}
	return nil
}

// receive lets the kernel receive on a connection from now on.
func (l *ringLoop) receive(s *ringSocket) error {
	e, err := l.ring.next()
	if err != nil {
		return err
	}
	e.op, e.flags, e.ioprio, e.fd, e.user = opRecv, entryFixedFile|entryBuffer, recvMultishot, int32(s.number), uint64(s.number)
	return nil
}
