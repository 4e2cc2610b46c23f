package server

import (
	"net"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The sockets never block, so their calls need not be told to Go's scheduler.

func readOne(fd int, b []byte) (int, syscall.Errno) {
	n, _, e := syscall.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), 0, 0, 0)
	return int(n), e
}

func readTwo(fd int, a, b []byte) (int, syscall.Errno) {
	vec := [2]unix.Iovec{vector(a), vector(b)}
	n, _, e := syscall.RawSyscall(unix.SYS_READV, uintptr(fd), uintptr(unsafe.Pointer(&vec[0])), 2)
	return int(n), e
}

func writeVectors(fd int, vec []unix.Iovec) (int, syscall.Errno) {
	if len(vec) == 1 {
		n, _, e := syscall.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(vec[0].Base)), uintptr(vec[0].Len), unix.MSG_NOSIGNAL, 0, 0)
		return int(n), e
	}
	m := unix.Msghdr{Iov: &vec[0]}
	m.SetIovlen(len(vec))
	n, _, e := syscall.RawSyscall(unix.SYS_SENDMSG, uintptr(fd), uintptr(unsafe.Pointer(&m)), unix.MSG_NOSIGNAL)
	return int(n), e
}

func sockAddr(sa unix.Sockaddr) net.Addr {
	switch a := sa.(type) {
	case *unix.SockaddrInet4:
		return &net.TCPAddr{IP: net.IP(a.Addr[:]), Port: a.Port}
	case *unix.SockaddrInet6:
		return &net.TCPAddr{IP: net.IP(a.Addr[:]), Port: a.Port}
	case *unix.SockaddrUnix:
		return &net.UnixAddr{Name: a.Name, Net: "unix"}
	}
	return nil
}
