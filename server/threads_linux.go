package server

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rowcached/rowcached/server/protocol"
)

const haveLoops = true

// threads is the engine of loops: one OS thread per core, each with connections of
// its own. The first loop accepts and hands out.
type threads struct {
	srv  *Server
	list []threadLoop
}

// threadLoop is one thread of the engine: over epoll or over io_uring.
type threadLoop interface {
	run() error // on its own thread, until the box says stop and all connections are closed
	box() *mailbox
	close() // gives back what a loop that does not run holds
}

// newLoops makes the loops of the configured kind.
func newLoops(s *Server, ls []*listener) (engine, string, error) {
	ring := s.cfg.Engine == "io_uring"
	if why := probeRing(); why != nil {
		if ring {
			return nil, "", fmt.Errorf("server.engine io_uring: %w; choose auto or epoll", why)
		}
		s.cfg.Logger.Info("io_uring is not to be had, epoll serves", "reason", why)
	} else if s.cfg.Engine == "auto" {
		ring = autoRing
	}
	e := &threads{srv: s}
	a, err := newAcceptor(s, ls)
	if err != nil {
		return nil, "", err
	}
	for i := range s.threads() {
		own := a
		if i > 0 {
			own = &acceptor{srv: s, spare: -1}
		}
		var l threadLoop
		if ring {
			l, err = newRingLoop(s, own)
		} else {
			l, err = newLoop(s, own)
		}
		if err != nil {
			e.close()
			a.close()
			return nil, "", err
		}
		e.list = append(e.list, l)
		a.targets = append(a.targets, l.box())
		s.wakers = append(s.wakers, l.box().ring)
	}
	if ring {
		return e, "io_uring", nil
	}
	return e, "epoll", nil
}

func (e *threads) close() {
	for _, l := range e.list {
		l.close()
	}
}

// run gives every loop a thread of its own. A loop is in the kernel for most of
// its time and never waits there while it has work, so each is counted as one
// processor more for Go's scheduler: other goroutines do not queue behind it.
func (e *threads) run(ctx context.Context) error {
	n := len(e.list)
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(procs + n)
	defer runtime.GOMAXPROCS(procs)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	cores := usableCores()
	errs := make([]error, n)
	var wg sync.WaitGroup
	for i, l := range e.list {
		wg.Go(func() {
			defer cancel() // a loop that fails takes the others with it
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			if len(cores) == n {
				var set unix.CPUSet
				set.Set(cores[i])
				// Without the pin the loop is merely slower.
				_ = unix.SchedSetaffinity(0, &set)
				defer restoreAffinity(cores)
			}
			errs[i] = l.run()
		})
	}
	<-ctx.Done()
	for _, l := range e.list {
		l.box().halt()
	}
	wg.Wait()
	for _, l := range e.list { // handed over when their loop had ended
		list, _ := l.box().take()
		for _, a := range list {
			unix.Close(a.fd)
			e.srv.closed(a.conn)
		}
	}
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

// mailbox is how other goroutines speak to a loop.
type mailbox struct {
	wake int // an eventfd, readable when there is something in the box

	mu   sync.Mutex
	list []arrival // guarded by mu
	stop bool      // guarded by mu
}

// arrival is a connection for a loop to take over.
type arrival struct {
	conn *conn
	fd   int
}

func newMailbox() (*mailbox, error) {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("eventfd: %w", err)
	}
	return &mailbox{wake: fd}, nil
}

func (m *mailbox) hand(a arrival) {
	m.mu.Lock()
	m.list = append(m.list, a)
	m.mu.Unlock()
	m.ring()
}

// halt tells the loop to end.
func (m *mailbox) halt() {
	m.mu.Lock()
	m.stop = true
	m.mu.Unlock()
	m.ring()
}

func (m *mailbox) ring() {
	one := [8]byte{1}
	// EAGAIN means that the loop is about to wake anyway.
	_, _ = unix.Write(m.wake, one[:])
}

// take empties the box.
func (m *mailbox) take() ([]arrival, bool) {
	var b [8]byte
	_, _ = unix.Read(m.wake, b[:])
	m.mu.Lock()
	defer m.mu.Unlock()
	list := m.list
	m.list = nil
	return list, m.stop
}

// acceptor takes connections of listening sockets and hands them out in turn. It
// belongs to one loop; those of the others have no sockets.
type acceptor struct {
	srv     *Server
	sockets []*listenSocket
	targets []*mailbox
	flags   int // of accepted sockets
	spare   int // a descriptor kept for telling a client that there are no more
}

type listenSocket struct {
	fd   int
	file *os.File
	l    *listener
}

func newAcceptor(s *Server, ls []*listener) (*acceptor, error) {
	a := &acceptor{srv: s, spare: -1, flags: unix.SOCK_NONBLOCK | unix.SOCK_CLOEXEC}
	for _, ln := range ls {
		filer, ok := ln.Listener.(interface{ File() (*os.File, error) })
		if !ok {
			a.close()
			return nil, fmt.Errorf("listener %s has no descriptor", ln.Addr())
		}
		f, err := filer.File()
		if err != nil {
			a.close()
			return nil, fmt.Errorf("listener %s: %w", ln.Addr(), err)
		}
		fd := int(f.Fd())
		a.sockets = append(a.sockets, &listenSocket{fd: fd, file: f, l: ln})
		if err := unix.SetNonblock(fd, true); err != nil {
			a.close()
			return nil, fmt.Errorf("listener %s: %w", ln.Addr(), err)
		}
	}
	return a, nil
}

func (a *acceptor) close() {
	for _, s := range a.sockets {
		// The kernel may still hold the socket for a poll of the ring.
		_ = unix.Shutdown(s.fd, unix.SHUT_RDWR)
		s.file.Close()
	}
	a.sockets = nil
	if a.spare >= 0 {
		unix.Close(a.spare)
		a.spare = -1
	}
}

// find gives the listening socket of a descriptor; nil if it is none.
func (a *acceptor) find(fd int) *listenSocket {
	for _, s := range a.sockets {
		if s.fd == fd {
			return s
		}
	}
	return nil
}

// acceptTurn is how many connections are taken before those that are there get their turn.
const acceptTurn = 32

// accept takes waiting connections of a socket. Those whose turn is the own
// mailbox's are given to adopt. more: there may be others.
func (a *acceptor) accept(ls *listenSocket, own *mailbox, adopt func(arrival)) (more bool) {
	for range acceptTurn {
		fd, sa, err := unix.Accept4(ls.fd, a.flags)
		switch err {
		case nil:
		case unix.EINTR, unix.ECONNABORTED:
			continue
		case unix.EMFILE, unix.ENFILE:
			if a.refuseOne(ls) {
				continue
			}
			return false
		default:
			return false
		}
		if a.spare < 0 {
			a.spare, _ = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		}
		c, ok := a.srv.open(fd, ls.l.Addr(), sockAddr(sa))
		if !ok {
			tellFull(fd)
			continue
		}
		if _, isUnix := sa.(*unix.SockaddrUnix); !isUnix {
			_ = unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 1)
			_ = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1)
		}
		if m := a.targets[int(c.info.id)%len(a.targets)]; m == own {
			adopt(arrival{c, fd})
		} else {
			m.hand(arrival{c, fd})
		}
	}
	return true
}

// refuseOne tells one client that the process has no descriptor left. false: there
// was none to tell.
func (a *acceptor) refuseOne(ls *listenSocket) bool {
	if a.spare < 0 {
		return false
	}
	unix.Close(a.spare)
	a.spare = -1
	fd, _, err := unix.Accept4(ls.fd, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
	if err == nil {
		a.srv.rejected.Add(1)
		tellFull(fd)
	}
	a.spare, _ = unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	return err == nil
}

// tellFull refuses a connection in memcached's words.
func tellFull(fd int) {
	_, _ = unix.Write(fd, []byte(protocol.TooManyConns))
	unix.Close(fd)
}
