package bench

import (
	"context"
	"fmt"
	"net"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

const canPin = true

// drive puts the worker's load on the connections until its round is over, on a thread that is pinned to the core unless
// that is -1. It closes the connections.
func drive(ctx context.Context, engine string, w *worker, conns []net.Conn, core int) error {
	if engine == Net {
		return driveNet(ctx, w, conns)
	}
	fds, err := descriptors(conns)
	defer func() {
		for _, fd := range fds {
			unix.Close(fd)
		}
	}()
	if err != nil {
		return err
	}
	runtime.LockOSThread()
	if core >= 0 { // the thread ends with the goroutine, which stays locked to it
		var set unix.CPUSet
		set.Set(core)
		if err := unix.SchedSetaffinity(0, &set); err != nil {
			return fmt.Errorf("pin a thread to core %d: %w", core, err)
		}
	} else {
		defer runtime.UnlockOSThread()
	}
	if engine == Ring {
		return (&ringLoop{w: w, spin: core >= 0}).run(ctx, fds)
	}
	return (&epollLoop{w: w, spin: core >= 0}).run(ctx, fds)
}

// chooseEngine gives the engine that a name stands for.
func chooseEngine(name string) (string, error) {
	switch name {
	case Auto:
		if probeRing() != nil {
			return Epoll, nil
		}
		return Ring, nil
	case Ring:
		if err := probeRing(); err != nil {
			return "", fmt.Errorf("--engine io_uring: %w; choose auto or epoll", err)
		}
	}
	return name, nil
}

// descriptors takes the sockets out of the connections, which it closes. They never block.
func descriptors(conns []net.Conn) (fds []int, err error) {
	for _, c := range conns {
		raw, err := c.(syscall.Conn).SyscallConn()
		if err != nil {
			return fds, err
		}
		var fd int
		var dup error
		if err := raw.Control(func(s uintptr) { fd, dup = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) }); err != nil {
			return fds, err
		}
		if dup != nil {
			return fds, fmt.Errorf("take a connection's descriptor: %w", dup)
		}
		fds = append(fds, fd)
		if err := c.Close(); err != nil {
			return fds, err
		}
	}
	return fds, nil
}
