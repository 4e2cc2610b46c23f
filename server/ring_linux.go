package server

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface to io_uring, as far as it is used here: see io_uring_setup(2),
// io_uring_enter(2), io_uring_register(2) and linux/io_uring.h.
const (
	ringSetupCQSize       = 1 << 3
	ringSetupClamp        = 1 << 4
	ringSetupSubmitAll    = 1 << 7
	ringSetupCoopTaskrun  = 1 << 8
	ringSetupSingleIssuer = 1 << 12
	ringSetupDeferTaskrun = 1 << 13

	ringEnterGetEvents      = 1 << 0
	ringEnterExtArg         = 1 << 3
	ringEnterRegisteredRing = 1 << 4

	ringOffSQ   = 0
	ringOffSQEs = 0x10000000

	ringRegisterFilesUpdate = 6
	ringRegisterFiles2      = 13
	ringRegisterRingFDs     = 20
	ringRegisterBuffers     = 22 // a ring of provided buffers
	ringFilesSparse         = 1
	ringBuffersIncremental  = 2

	opPollAdd     = 6
	opSendMsg     = 9
	opAsyncCancel = 14
	opSend        = 26
	opRecv        = 27

	sqeFixedFile    = 1 << 0
	sqeBufferSelect = 1 << 5
	sqeCQESkip      = 1 << 6

	pollMultishot = 1 << 0
	recvMultishot = 1 << 1

	cqeBuffer     = 1 << 0
	cqeMore       = 1 << 1
	cqeBufferMore = 1 << 4
)

// ringParams is struct io_uring_params.
type ringParams struct {
	sqEntries, cqEntries, flags, sqThreadCPU, sqThreadIdle, features, wqFD uint32
	_                                                                      [3]uint32
	sq                                                                     struct {
		head, tail, mask, entries, flags, dropped, array, _ uint32
		_                                                   uint64
	}
	cq struct {
		head, tail, mask, entries, overflow, cqes, flags, _ uint32
		_                                                   uint64
	}
}

// sqe is struct io_uring_sqe.
type sqe struct {
	op, flags uint8
	ioprio    uint16
	fd        int32
	off       uint64
	addr      uint64
	len       uint32
	opFlags   uint32
	user      uint64
	bufGroup  uint16
	_         uint16
	_         int32
	_         [2]uint64
}

// cqe is struct io_uring_cqe.
type cqe struct {
	user  uint64
	res   int32
	flags uint32
}

// ring is one io_uring. It is made and used on one thread.
type ring struct {
	fd      int
	enterFD int // the descriptor, or its registered number
	enter   uintptr
	mem     []byte // both rings
	sqeMem  []byte

	sqHead, sqTail *uint32
	sqMask         uint32
	sqes           []sqe
	tail           uint32 // the next free entry
	submitted      uint32 // entries the kernel was told of

	cqHead, cqTail *uint32
	cqMask         uint32
	cqes           []cqe
}

func newRing(entries, completions uint32) (*ring, error) {
	p := ringParams{
		flags: ringSetupCQSize | ringSetupClamp | ringSetupSubmitAll | ringSetupCoopTaskrun |
			ringSetupSingleIssuer | ringSetupDeferTaskrun,
		cqEntries: completions,
	}
	fd, _, e := syscall.Syscall(unix.SYS_IO_URING_SETUP, uintptr(entries), uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", e)
	}
	r := &ring{fd: int(fd), enterFD: int(fd)}
	size := max(int(p.sq.array+p.sqEntries*4), int(p.cq.cqes+p.cqEntries*uint32(unsafe.Sizeof(cqe{}))))
	var err error
	if r.mem, err = unix.Mmap(r.fd, ringOffSQ, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		r.close()
		return nil, fmt.Errorf("mmap of the ring: %w", err)
	}
	if r.sqeMem, err = unix.Mmap(r.fd, ringOffSQEs, int(p.sqEntries)*int(unsafe.Sizeof(sqe{})), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		r.close()
		return nil, fmt.Errorf("mmap of the ring's entries: %w", err)
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.mem[off])) }
	r.sqHead, r.sqTail, r.sqMask = at(p.sq.head), at(p.sq.tail), *at(p.sq.mask)
	r.cqHead, r.cqTail, r.cqMask = at(p.cq.head), at(p.cq.tail), *at(p.cq.mask)
	r.sqes = unsafe.Slice((*sqe)(unsafe.Pointer(&r.sqeMem[0])), p.sqEntries)
	r.cqes = unsafe.Slice((*cqe)(unsafe.Pointer(&r.mem[p.cq.cqes])), p.cqEntries)
	index := unsafe.Slice(at(p.sq.array), p.sqEntries)
	for i := range index {
		index[i] = uint32(i) // entry i is always entry i
	}
	// A registered descriptor saves the kernel a look-up at each call; without it all works too.
	reg := struct {
		offset, _ uint32
		data      uint64
	}{offset: ^uint32(0), data: uint64(fd)}
	if n, e := r.register(ringRegisterRingFDs, unsafe.Pointer(&reg), 1); e == 0 && n == 1 {
		r.enterFD, r.enter = int(reg.offset), ringEnterRegisteredRing
	}
	return r, nil
}

func (r *ring) close() {
	if r.mem != nil {
		_ = unix.Munmap(r.mem)
	}
	if r.sqeMem != nil {
		_ = unix.Munmap(r.sqeMem)
	}
	unix.Close(r.fd)
}

func (r *ring) register(op uintptr, arg unsafe.Pointer, n uintptr) (int, syscall.Errno) {
	v, _, e := syscall.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(arg), n, 0, 0)
	return int(v), e
}

// room is how many entries can still be filled before they are submitted.
func (r *ring) room() int { return len(r.sqes) - int(r.tail-atomic.LoadUint32(r.sqHead)) }

// next gives an entry to be filled; there must be room.
func (r *ring) next() *sqe {
	e := &r.sqes[r.tail&r.sqMask]
	r.tail++
	*e = sqe{}
	return e
}

// submit tells the kernel of the filled entries and lets it complete what it can.
// It does not wait.
func (r *ring) submit() error {
	return r.enterRing(0, ringEnterGetEvents, nil, false)
}

// wait is submit that waits for a completion; with a timeout if it is not nil.
func (r *ring) wait(timeout *unix.Timespec) error {
	return r.enterRing(1, ringEnterGetEvents, timeout, true)
}

func (r *ring) enterRing(least uintptr, flags uintptr, timeout *unix.Timespec, block bool) error {
	atomic.StoreUint32(r.sqTail, r.tail)
	n := r.tail - r.submitted
	var arg unsafe.Pointer
	var size uintptr
	var ext struct {
		sigmask   uint64
		sigmaskSz uint32
		_         uint32
		ts        uint64
	}
	if timeout != nil {
		ext.ts = uint64(uintptr(unsafe.Pointer(timeout)))
		arg, size = unsafe.Pointer(&ext), unsafe.Sizeof(ext)
		flags |= ringEnterExtArg
	}
	var e syscall.Errno
	if block {
		_, _, e = syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.enterFD), uintptr(n), least, flags|r.enter, uintptr(arg), size)
	} else {
		_, _, e = syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.enterFD), uintptr(n), least, flags|r.enter, uintptr(arg), size)
	}
	runtime.KeepAlive(timeout)
	r.submitted = atomic.LoadUint32(r.sqHead)
	switch e {
	case 0, unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ETIME:
		return nil
	}
	return fmt.Errorf("io_uring_enter: %w", e)
}

// ready is how many completions wait.
func (r *ring) ready() uint32 { return atomic.LoadUint32(r.cqTail) - *r.cqHead }

// take gives the next completion.
func (r *ring) take() cqe {
	head := *r.cqHead
	c := r.cqes[head&r.cqMask]
	atomic.StoreUint32(r.cqHead, head+1)
	return c
}

// files registers a table of n descriptors, all empty.
func (r *ring) files(n int) syscall.Errno {
	reg := struct {
		nr, flags  uint32
		_          uint64
		data, tags uint64
	}{nr: uint32(n), flags: ringFilesSparse}
	_, e := r.register(ringRegisterFiles2, unsafe.Pointer(&reg), unsafe.Sizeof(reg))
	return e
}

// setFile puts a descriptor into the table; -1 takes it out.
func (r *ring) setFile(at int, fd int32) syscall.Errno {
	up := struct {
		offset, _ uint32
		fds       uint64
	}{offset: uint32(at), fds: uint64(uintptr(unsafe.Pointer(&fd)))}
	_, e := r.register(ringRegisterFilesUpdate, unsafe.Pointer(&up), 1)
	runtime.KeepAlive(&fd)
	return e
}

// buffers is a ring of buffers that the kernel receives into. Where it can, it uses
// a buffer bit by bit: many small requests then lie side by side.
type buffers struct {
	mem         []byte // the ring, then the buffers
	n           int
	size        int
	tail        uint16
	offset      []int // of the next bytes in each buffer
	incremental bool
}

const bufferGroup = 1

func (r *ring) provide(n, size, smallSize int) (*buffers, error) {
	b := &buffers{n: n, size: size, incremental: true, offset: make([]int, n)}
	try := func() (syscall.Errno, error) {
		head := (b.n*16 + 4095) &^ 4095
		var err error
		if b.mem, err = unix.Mmap(-1, 0, head+b.n*b.size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
			return 0, fmt.Errorf("mmap of receive buffers: %w", err)
		}
		reg := struct {
			addr    uint64
			entries uint32
			group   uint16
			flags   uint16
			_       [3]uint64
		}{addr: uint64(uintptr(unsafe.Pointer(&b.mem[0]))), entries: uint32(b.n), group: bufferGroup}
		if b.incremental {
			reg.flags = ringBuffersIncremental
		}
		_, e := r.register(ringRegisterBuffers, unsafe.Pointer(&reg), 1)
		if e != 0 {
			_ = unix.Munmap(b.mem)
		}
		return e, nil
	}
	e, err := try()
	if err == nil && e == unix.EINVAL { // kernels before 6.12 use whole buffers
		b.incremental = false
		b.n, b.size = n*size/smallSize, smallSize
		b.offset = make([]int, b.n)
		e, err = try()
	}
	if err != nil {
		return nil, err
	}
	if e != 0 {
		return nil, fmt.Errorf("register receive buffers: %w", e)
	}
	for i := range b.n {
		b.give(i)
	}
	b.publish()
	return b, nil
}

func (b *buffers) at(id int) []byte {
	head := (b.n*16 + 4095) &^ 4095
	return b.mem[head+id*b.size : head+(id+1)*b.size]
}

// got gives the n bytes that a completion is about. done: the buffer is used up and
// may be given back when they were looked at.
func (b *buffers) got(c cqe, n int) (id int, data []byte, done bool) {
	id = int(c.flags >> 16)
	data = b.at(id)[b.offset[id] : b.offset[id]+n]
	if b.incremental && c.flags&cqeBufferMore != 0 {
		b.offset[id] += n
		return id, data, false
	}
	return id, data, true
}

// give offers a buffer to the kernel again, once publish is called.
func (b *buffers) give(id int) {
	b.offset[id] = 0
	mem := b.at(id)
	e := (*struct {
		addr uint64
		len  uint32
		id   uint16
	})(unsafe.Pointer(&b.mem[int(b.tail)&(b.n-1)*16]))
	e.addr, e.len, e.id = uint64(uintptr(unsafe.Pointer(&mem[0]))), uint32(b.size), uint16(id)
	b.tail++
}

func (b *buffers) publish() {
	// The tail lies in the first entry's last 16 bits. The kernel looks at it only
	// while this thread is in a call, so it needs no barrier.
	*(*uint16)(unsafe.Pointer(&b.mem[14])) = b.tail
}

func (b *buffers) close() { _ = unix.Munmap(b.mem) }

// probeRing tries whether io_uring may be used, in the way in which it will be.
func probeRing() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r, err := newRing(8, 16)
		if err != nil {
			done <- err
			return
		}
		defer r.close()
		b, err := r.provide(2, 4096, 4096)
		if err == nil {
			b.close()
		}
		done <- err
	}()
	return <-done
}
