package bench

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// epollLoop drives the connections of one thread over epoll: all that have something to read are read into one buffer and
// sent their next batch at once. A thread of its own core asks again and again instead of waiting, because being woken
// takes longer than a reply does.
type epollLoop struct {
	w     *worker
	spin  bool
	fd    int
	conns []*socket
	buf   []byte
	free  []*socket // of a paced round: waiting for their time
	open  int       // batches on their way
	last  time.Duration
}

// socket is one connection.
type socket struct {
	client
	fd     int
	number int    // its place in the loop's list
	polls  uint32 // what epoll watches
}

func (l *epollLoop) run(ctx context.Context, fds []int) (err error) {
	if l.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll_create: %w", err)
	}
	defer unix.Close(l.fd)
	l.buf = make([]byte, headroom+256<<10)
	for i, fd := range fds {
		s := &socket{fd: fd, number: i, polls: unix.EPOLLIN}
		s.w = l.w
		l.conns = append(l.conns, s)
		if err := unix.EpollCtl(l.fd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: s.polls, Fd: int32(i)}); err != nil {
			return fmt.Errorf("epoll_ctl: %w", err)
		}
	}
	l.last = l.w.clock()
	l.w.tick(l.last)
	for _, s := range l.conns {
		if err := l.next(s, l.last); err != nil {
			return err
		}
	}
	return l.loop(ctx)
}

func (l *epollLoop) loop(ctx context.Context) error {
	var events [256]unix.EpollEvent
	for i := 0; l.open > 0 || len(l.free) > 0 && !l.w.ended; i++ {
		if i&1023 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		n, err := l.wait(events[:])
		if err != nil {
			return err
		}
		now := l.w.clock()
		l.w.tick(now)
		if n == 0 && l.open > 0 && now-l.last > replyLimit {
			return fmt.Errorf("no reply came for %v, of %d that were due", replyLimit, l.open)
		}
		for _, e := range events[:n] {
			l.last = now
			if err := l.serve(l.conns[e.Fd], e.Events); err != nil {
				return err
			}
		}
		if err := l.pace(now); err != nil {
			return err
		}
	}
	l.w.end(l.w.clock())
	if l.spin {
		l.w.idle = -1 // it took what there was as soon as it was there: that says nothing
	}
	return nil
}

// wait gives what is ready. It waits a while unless the thread has a core of its own.
func (l *epollLoop) wait(events []unix.EpollEvent) (int, error) {
	n, _, e := syscall.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(l.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)), 0, 0, 0)
	if e != 0 && e != syscall.EINTR {
		return 0, fmt.Errorf("epoll_wait: %w", e)
	}
	if e == 0 && n > 0 {
		return int(n), nil
	}
	began := l.w.clock()
	defer func() { l.w.waited(l.w.clock() - began) }()
	pause := l.w.pause(began, len(l.free) > 0)
	if l.spin || pause <= 0 {
		return 0, nil
	}
	ts := unix.NsecToTimespec(int64(pause))
	n, _, e = syscall.Syscall6(unix.SYS_EPOLL_PWAIT2, uintptr(l.fd), uintptr(unsafe.Pointer(&events[0])), uintptr(len(events)),
		uintptr(unsafe.Pointer(&ts)), 0, 0)
	if e == syscall.ENOSYS { // before Linux 5.11: in whole milliseconds
		var k int
		k, err := unix.EpollWait(l.fd, events, int(pause/time.Millisecond))
		if err != nil && !errors.Is(err, syscall.EINTR) {
			return 0, fmt.Errorf("epoll_wait: %w", err)
		}
		return max(k, 0), nil
	}
	if e != 0 && e != syscall.EINTR {
		return 0, fmt.Errorf("epoll_wait: %w", e)
	}
	if e != 0 {
		return 0, nil
	}
	return int(n), nil
}

// serve sends and reads what can be sent and read on a connection.
func (l *epollLoop) serve(s *socket, ready uint32) error {
	if ready&unix.EPOLLOUT != 0 {
		if err := l.send(s); err != nil {
			return err
		}
	}
	if ready&^unix.EPOLLOUT == 0 {
		return nil
	}
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(s.fd), uintptr(unsafe.Pointer(&l.buf[headroom])), uintptr(len(l.buf)-headroom), 0, 0, 0)
	switch {
	case e == syscall.EAGAIN || e == syscall.EINTR:
		return nil
	case e != 0:
		return fmt.Errorf("receive: %w", e)
	case n == 0:
		return errClosed
	}
	now := l.w.clock()
	done, err := s.read(l.buf, headroom, headroom+int(n), now)
	if err != nil || !done {
		return err
	}
	l.open--
	return l.next(s, now)
}

// next sends the connection's next batch, or keeps the connection until it is time.
func (l *epollLoop) next(s *socket, now time.Duration) error {
	if l.w.each > 0 {
		l.free = append(l.free, s)
		return nil
	}
	return l.begin(s, now)
}

func (l *epollLoop) begin(s *socket, now time.Duration) error {
	if !s.begin(now) {
		return nil
	}
	l.open++
	return l.send(s)
}

// pace sends the batches whose time has come, as far as there are free connections.
func (l *epollLoop) pace(now time.Duration) error {
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

// send sends what the kernel takes; epoll tells when it takes more.
func (l *epollLoop) send(s *socket) error {
	for s.sent < len(s.out) {
		n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(s.fd), uintptr(unsafe.Pointer(&s.out[s.sent])), uintptr(len(s.out)-s.sent),
			unix.MSG_NOSIGNAL, 0, 0)
		switch {
		case e == syscall.EINTR:
			continue
		case e == syscall.EAGAIN:
			return l.watch(s, unix.EPOLLIN|unix.EPOLLOUT)
		case e != 0:
			return fmt.Errorf("send: %w", e)
		}
		s.sent += int(n)
	}
	return l.watch(s, unix.EPOLLIN)
}

func (l *epollLoop) watch(s *socket, polls uint32) error {
	if s.polls == polls {
		return nil
	}
	s.polls = polls
	return unix.EpollCtl(l.fd, unix.EPOLL_CTL_MOD, s.fd, &unix.EpollEvent{Events: polls, Fd: int32(s.number)})
}
