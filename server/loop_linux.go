package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

const haveLoops = true

const (
	maxEvents = 512
	// directBody is how much of a data block must be missing before it is read
	// straight into the item instead of by way of the loop's buffer.
	directBody = 16 << 10
)

// loops is the epoll engine: one OS thread per core, each with connections of
// its own. The first loop accepts and hands out.
type loops struct {
	srv  *Server
	list []*loop
}

// loop serves its connections. All fields but the inbox belong to its thread.
type loop struct {
	w     *worker
	all   *loops
	index int
	ep    int
	wake  int // an eventfd

	mu    sync.Mutex
	inbox []*socket // guarded by mu: connections handed over
	stop  bool      // guarded by mu

	listeners map[int32]*listenSocket
	sockets   []*socket // by descriptor
	count     int
	in        []byte
	again     []*socket // have input left that was not served for fairness
	events    []unix.EpollEvent
	draining  bool
	spare     int // a descriptor kept for telling the client that there are no more
	swept     int64
}

type listenSocket struct {
	fd   int
	file *os.File
	l    *listener
}

// socket is a connection of the epoll engine.
type socket struct {
	conn
	fd     int
	held   []byte  // input not used up
	out    *output // what could not be sent; nothing is read until it is
	queued bool    // in again
	unread bool    // there may be input that epoll will not report again
	ended  bool    // the client has closed its side: read until that is found
}

// connEvents: epoll reports each change once. A read that fills less than its
// buffer has emptied the socket, so no read is needed that finds nothing, and
// between two requests a connection costs epoll nothing. The end of the stream
// must be asked for (RDHUP): it may have come along with the last bytes.
const connEvents = unix.EPOLLIN | unix.EPOLLOUT | unix.EPOLLRDHUP | unix.EPOLLET

func newLoops(s *Server, ls []*listener) (engine, string, error) {
	e := &loops{srv: s}
	for i := range s.threads() {
		l, err := newLoop(e, i)
		if err != nil {
			e.close()
			return nil, "", err
		}
		e.list = append(e.list, l)
	}
	first := e.list[0]
	for _, l := range ls {
		if err := first.listen(l); err != nil {
			e.close()
			return nil, "", err
		}
	}
	return e, "epoll", nil
}

func newLoop(e *loops, index int) (*loop, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("epoll_create1: %w", err)
	}
	wake, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		unix.Close(ep)
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	l := &loop{
		w: e.srv.worker(), all: e, index: index, ep: ep, wake: wake, spare: -1,
		listeners: make(map[int32]*listenSocket),
		in:        make([]byte, readBytes),
		events:    make([]unix.EpollEvent, maxEvents),
	}
	if err := l.watch(wake, unix.EPOLLIN); err != nil {
		l.close()
		return nil, err
	}
	return l, nil
}

func (l *loop) watch(fd int, events uint32) error {
	if err := unix.EpollCtl(l.ep, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: events, Fd: int32(fd)}); err != nil {
		return fmt.Errorf("epoll_ctl: %w", err)
	}
	return nil
}

func (l *loop) listen(ln *listener) error {
	filer, ok := ln.Listener.(interface{ File() (*os.File, error) })
	if !ok {
		return fmt.Errorf("listener %s has no descriptor", ln.Addr())
	}
	f, err := filer.File()
	if err != nil {
		return fmt.Errorf("listener %s: %w", ln.Addr(), err)
	}
	fd := int(f.Fd())
	if err := unix.SetNonblock(fd, true); err != nil {
		f.Close()
		return fmt.Errorf("listener %s: %w", ln.Addr(), err)
	}
	l.listeners[int32(fd)] = &listenSocket{fd: fd, file: f, l: ln}
	return l.watch(fd, unix.EPOLLIN)
}

func (e *loops) close() {
	for _, l := range e.list {
		l.close()
	}
}

func (l *loop) close() {
	l.closeListeners()
	unix.Close(l.ep)
	unix.Close(l.wake)
	if l.spare >= 0 {
		unix.Close(l.spare)
	}
}

func (l *loop) closeListeners() {
	for fd, ls := range l.listeners {
		ls.file.Close()
		delete(l.listeners, fd)
	}
}

// run gives every loop a thread of its own. A loop is in the kernel for most of
// its time and never waits there while it has work, so each is counted as one
// processor more for Go's scheduler: other goroutines do not queue behind it.
func (e *loops) run(ctx context.Context) error {
	n := len(e.list)
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + n)
	defer runtime.GOMAXPROCS(procs)
	cores := usableCores()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, l := range e.list {
		wg.Go(func() {
			runtime.LockOSThread()
			if len(cores) == n {
				var set unix.CPUSet
				set.Set(cores[i])
				// Without the pin the loop is merely slower.
				_ = unix.SchedSetaffinity(0, &set)
				defer restoreAffinity(cores)
			}
			defer runtime.UnlockOSThread()
			errs[i] = l.run()
		})
	}
	stopped := make(chan struct{})
	wg.Go(func() {
		select {
		case <-ctx.Done():
		case <-stopped:
		}
		for _, l := range e.list {
			l.hand(nil)
		}
	})
	// A loop that fails takes the others with it.
	wg.Wait()
	close(stopped)
	e.close()
	return errors.Join(errs...)
}

func usableCores() []int {
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return nil
	}
	var list []int
	for i := range len(set) * 64 {
		if set.IsSet(i) {
			list = append(list, i)
		}
	}
	return list
}

func restoreAffinity(cores []int) {
	var set unix.CPUSet
	for _, c := range cores {
		set.Set(c)
	}
	_ = unix.SchedSetaffinity(0, &set)
}

// hand gives the loop a connection, or tells it to stop (nil).
func (l *loop) hand(s *socket) {
	l.mu.Lock()
	if s == nil {
		l.stop = true
	} else {
		l.inbox = append(l.inbox, s)
	}
	l.mu.Unlock()
	one := [8]byte{7: 0, 0: 1}
	// EAGAIN means that the loop is about to wake anyway.
	_, _ = unix.Write(l.wake, one[:])
}

func (l *loop) takeInbox() {
	var b [8]byte
	_, _ = unix.Read(l.wake, b[:])
	l.mu.Lock()
	list := l.inbox
	l.inbox = nil
	stop := l.stop
	l.mu.Unlock()
	for _, s := range list {
		l.adopt(s)
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
			if int(ev.Fd) == l.wake {
				l.takeInbox()
				continue
			}
			if int(ev.Fd) < len(l.sockets) {
				if s := l.sockets[ev.Fd]; s != nil {
					l.handle(s, ev.Events)
					continue
				}
			}
			if ls := l.listeners[ev.Fd]; ls != nil {
				l.accept(ls)
			}
		}
		l.serveAgain()
		l.sweep()
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
	if l.all.srv.cfg.IdleTimeout > 0 {
		timeout = 1000
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

// accept takes every waiting connection and hands them out in turn.
func (l *loop) accept(ls *listenSocket) {
	for range 64 {
		fd, sa, err := unix.Accept4(ls.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		if err != nil {
			if err == unix.EMFILE || err == unix.ENFILE {
				l.refuseOne(ls)
			}
			return
		}
		if l.spare < 0 {
			l.spare, _ = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		c, ok := l.all.srv.open(fd, ls.l.Addr(), sockAddr(sa))
		if !ok {
			tellFull(fd)
			continue
		}
		if _, isUnix := sa.(*unix.SockaddrUnix); !isUnix {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		}
		s := &socket{conn: *c, fd: fd}
		target := l.all.list[int(c.info.id)%len(l.all.list)]
		if target == l {
			l.adopt(s)
		} else {
			target.hand(s)
		}
	}
}

// refuseOne tells one client that the process has no descriptor left.
func (l *loop) refuseOne(ls *listenSocket) {
	if l.spare < 0 {
		return
	}
	unix.Close(l.spare)
	l.spare = -1
	if fd, _, err := unix.Accept4(ls.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC); err == nil {
		l.all.srv.rejected.Add(1)
		tellFull(fd)
	}
	l.spare, _ = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

func (l *loop) adopt(s *socket) {
	if l.draining || l.watch(s.fd, connEvents) != nil {
		unix.Close(s.fd)
		l.all.srv.closed(&s.conn)
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
		if events&(unix.EPOLLOUT|unix.EPOLLHUP|unix.EPOLLERR) == 0 || !l.resume(s) {
			return
		}
	}
	if !s.unread || s.queued {
		return
	}
	l.read(s)
	if s.unread {
		l.later(s)
	}
}

// later gives the connection another turn after the others had theirs.
func (l *loop) later(s *socket) {
	if !s.queued && s.out == nil && l.sockets[s.fd] == s {
		s.queued = true
		l.again = append(l.again, s)
	}
}

// read takes in what has arrived, once, and serves it.
func (l *loop) read(s *socket) {
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
	if e != 0 {
		switch e {
		case unix.EAGAIN:
			s.unread = false // also of a connection that was ended by an error: it has been taken
		case unix.EINTR:
		default:
			l.drop(s)
		}
		return
	}
	s.unread = n == room || s.ended
	if n == 0 {
		l.drop(s)
		return
	}
	l.w.count.add(cBytesRead, uint64(n))
	now := l.all.srv.cfg.Clock()
	if s.info.lastSeen.Load() != now {
		s.info.lastSeen.Store(now)
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
	w := l.w
	for {
		used, more := w.serve(&s.conn, data)
		data = data[used:]
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
		if w.srv.cfg.RequestsPerTurn > 0 && len(data) > 0 {
			l.hold(s, data)
			l.later(s)
			return
		}
	}
	l.hold(s, data)
}

// hold keeps input that was not used up.
func (l *loop) hold(s *socket, data []byte) {
	s.note(s.out != nil)
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

// serveAgain gives connections another turn that had more input than fits in one.
func (l *loop) serveAgain() {
	list := l.again
	l.again = nil
	for _, s := range list {
		s.queued = false
		if l.sockets[s.fd] != s || s.out != nil {
			continue
		}
		if len(s.held) > 0 {
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
	l.w.out = newOutput(l.all.srv.cfg.NoCAS)
	l.w.sess.Release()
	return sendBlocked
}

// resume sends what was left over. true: all of it, and the connection reads
// again.
func (l *loop) resume(s *socket) bool {
	switch l.write(s, s.out) {
	case sendBlocked:
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
	}
	return s.out == nil && s.phase != phaseClosed
}

// write sends o until it is empty or the socket is full.
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
		if !o.advance(n) {
			return sendBlocked
		}
		o.recycle()
		if o.waiting() {
			o.fill()
			continue
		}
		return sendDone
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
	l.all.srv.closed(&s.conn)
	unix.Close(s.fd)
}

// drain stops accepting and closes every connection that waits for nothing.
func (l *loop) drain() {
	l.draining = true
	l.closeListeners()
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
	limit := int64(l.all.srv.cfg.IdleTimeout / time.Second)
	if limit == 0 {
		return
	}
	now := l.all.srv.cfg.Clock()
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
