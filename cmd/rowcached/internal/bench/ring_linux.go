package bench

import (
	"fmt"
	"runtime"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The kernel's interface to io_uring, as far as a load needs it: see io_uring_setup(2), io_uring_enter(2),
// io_uring_register(2) and linux/io_uring.h. Package server has its own; neither package may import the other.
const (
	ringSetup = 1<<3 | 1<<4 | 1<<7 | 1<<8 | 1<<12 | 1<<13 // CQSIZE, CLAMP, SUBMIT_ALL, COOP_TASKRUN, SINGLE_ISSUER, DEFER_TASKRUN

	enterGetEvents = 1 << 0
	enterExtArg    = 1 << 3

	offEntries = 0x10000000

	registerFiles   = 2
	registerBuffers = 22 // a ring of provided buffers
	bufferBitByBit  = 2  // incremental consumption, since Linux 6.12

	opSend = 26
	opRecv = 27

	entryFixedFile = 1 << 0
	entryBuffer    = 1 << 5
	entrySilent    = 1 << 6 // no completion unless it fails

	recvMultishot = 1 << 1

	doneBuffer     = 1 << 0
	doneMore       = 1 << 1
	doneBufferMore = 1 << 4
)

// entry is struct io_uring_sqe.
type entry struct {
	op, flags uint8
	ioprio    uint16
	fd        int32
	off, addr uint64
	len       uint32
	opFlags   uint32
	user      uint64
	group     uint16
	_         [22]byte
}

// completion is struct io_uring_cqe.
type completion struct {
	user  uint64
	res   int32
	flags uint32
}

// ring is one io_uring with a ring of receive buffers, which the kernel fills bit by bit. One thread uses it.
type ring struct {
	fd             int
	mem, entryMem  []byte
	sqHead, sqTail *uint32
	cqHead, cqTail *uint32
	entries        []entry
	done           []completion
	tail, told     uint32 // entries filled, and those the kernel knows
	timeout        unix.Timespec
	ext            struct {
		_, _, ts uint64
	}

	bufs    []byte // the ring of descriptors, then the buffers, each behind its headroom
	bufTail uint16
	used    [ringBuffers]int
}

const (
	ringEntries = 2048
	ringBuffers = 32 // a power of two
	ringBuffer  = 64 << 10
	ringHead    = 4096 // of the buffers' memory
)

func newRing() (*ring, error) {
	// struct io_uring_params
	var p struct {
		sqEntries, cqEntries, flags  uint32
		_                            [7]uint32
		sqHead, sqTail, _, _, _, _   uint32
		array, _                     uint32
		_                            uint64
		cqHead, cqTail, _, _, _, cqe uint32
		_                            [2]uint32
		_                            uint64
	}
	p.cqEntries, p.flags = 16384, ringSetup
	fd, _, e := syscall.Syscall(unix.SYS_IO_URING_SETUP, ringEntries, uintptr(unsafe.Pointer(&p)), 0)
	if e != 0 {
		return nil, fmt.Errorf("io_uring_setup: %w", e)
	}
	r := &ring{fd: int(fd)}
	var err error
	size := max(p.array+p.sqEntries*4, p.cqe+p.cqEntries*uint32(unsafe.Sizeof(completion{})))
	if r.mem, err = unix.Mmap(r.fd, 0, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		r.close()
		return nil, fmt.Errorf("mmap of the ring: %w", err)
	}
	size = p.sqEntries * uint32(unsafe.Sizeof(entry{}))
	if r.entryMem, err = unix.Mmap(r.fd, offEntries, int(size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		r.close()
		return nil, fmt.Errorf("mmap of the ring's entries: %w", err)
	}
	at := func(off uint32) *uint32 { return (*uint32)(unsafe.Pointer(&r.mem[off])) }
	r.sqHead, r.sqTail, r.cqHead, r.cqTail = at(p.sqHead), at(p.sqTail), at(p.cqHead), at(p.cqTail)
	r.entries = unsafe.Slice((*entry)(unsafe.Pointer(&r.entryMem[0])), p.sqEntries)
	r.done = unsafe.Slice((*completion)(unsafe.Pointer(&r.mem[p.cqe])), p.cqEntries)
	index := unsafe.Slice(at(p.array), p.sqEntries)
	for i := range index {
		index[i] = uint32(i) // entry i is always entry i
	}
	if err := r.provide(); err != nil {
		r.close()
		return nil, err
	}
	return r, nil
}

// provide gives the kernel the receive buffers.
func (r *ring) provide() (err error) {
	if r.bufs, err = unix.Mmap(-1, 0, ringHead+ringBuffers*(headroom+ringBuffer), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS); err != nil {
		return fmt.Errorf("mmap of receive buffers: %w", err)
	}
	reg := struct {
		addr         uint64
		entries      uint32
		group, flags uint16
		_            [3]uint64
	}{addr: uint64(uintptr(unsafe.Pointer(&r.bufs[0]))), entries: ringBuffers, flags: bufferBitByBit}
	if e := r.register(registerBuffers, unsafe.Pointer(&reg), 1); e != 0 {
		return fmt.Errorf("register receive buffers (Linux 6.12 is needed): %w", e)
	}
	for i := range ringBuffers {
		r.give(i)
	}
	return nil
}

// buffer is a receive buffer behind its headroom.
func (r *ring) buffer(id int) []byte {
	const stride = headroom + ringBuffer
	return r.bufs[ringHead+id*stride:][:stride]
}

// give offers a buffer to the kernel again, at the next call.
func (r *ring) give(id int) {
	r.used[id] = 0
	d := (*struct {
		addr uint64
		len  uint32
		id   uint16
	})(unsafe.Pointer(&r.bufs[int(r.bufTail)%ringBuffers*16]))
	d.addr, d.len, d.id = uint64(uintptr(unsafe.Pointer(&r.buffer(id)[headroom]))), ringBuffer, uint16(id)
	r.bufTail++
	// The tail lies in the first descriptor. The kernel looks at it only while this thread is in a call.
	*(*uint16)(unsafe.Pointer(&r.bufs[14])) = r.bufTail
}

func (r *ring) register(op uintptr, arg unsafe.Pointer, n uintptr) syscall.Errno {
	_, _, e := syscall.RawSyscall6(unix.SYS_IO_URING_REGISTER, uintptr(r.fd), op, uintptr(arg), n, 0, 0)
	return e
}

func (r *ring) close() {
	for _, m := range [][]byte{r.mem, r.entryMem} {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	unix.Close(r.fd) // ends what is on its way; only then may the buffers go
	if r.bufs != nil {
		_ = unix.Munmap(r.bufs)
	}
}

// next gives an entry to be filled.
func (r *ring) next() (*entry, error) {
	if int(r.tail-atomic.LoadUint32(r.sqHead)) == len(r.entries) {
		if err := r.submit(); err != nil {
			return nil, err
		}
	}
	e := &r.entries[int(r.tail)%len(r.entries)]
	r.tail++
	*e = entry{}
	return e, nil
}

// submit tells the kernel of the filled entries and lets it complete what it can, without waiting.
func (r *ring) submit() error {
	atomic.StoreUint32(r.sqTail, r.tail)
	_, _, e := syscall.RawSyscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), uintptr(r.tail-r.told), 0, enterGetEvents, 0, 0)
	return r.entered(e)
}

// wait waits for a completion, but not longer than so many nanoseconds.
func (r *ring) wait(limit int64) error {
	r.timeout = unix.NsecToTimespec(limit)
	r.ext.ts = uint64(uintptr(unsafe.Pointer(&r.timeout)))
	_, _, e := syscall.Syscall6(unix.SYS_IO_URING_ENTER, uintptr(r.fd), 0, 1, enterGetEvents|enterExtArg, uintptr(unsafe.Pointer(&r.ext)), unsafe.Sizeof(r.ext))
	runtime.KeepAlive(r)
	return r.entered(e)
}

func (r *ring) entered(e syscall.Errno) error {
	r.told = atomic.LoadUint32(r.sqHead)
	switch e {
	case 0, unix.EINTR, unix.EAGAIN, unix.EBUSY, unix.ETIME:
		return nil
	}
	return fmt.Errorf("io_uring_enter: %w", e)
}

// ready is how many completions wait.
func (r *ring) ready() int { return int(atomic.LoadUint32(r.cqTail) - *r.cqHead) }

// take gives the next completion.
func (r *ring) take() completion {
	c := r.done[int(*r.cqHead)%len(r.done)]
	atomic.StoreUint32(r.cqHead, *r.cqHead+1)
	return c
}

// probeRing tries whether io_uring may be used as it will be. The rings are for one thread, this is another.
func probeRing() error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		r, err := newRing()
		if err == nil {
			r.close()
		}
		done <- err
	}()
	return <-done
}
