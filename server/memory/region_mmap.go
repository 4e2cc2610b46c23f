//go:build unix && !race

package memory

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reserve takes n bytes of address space; memory arrives as it is touched.
func reserve(n uint64) ([]byte, error) {
	b, err := unix.Mmap(-1, 0, int(n), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|mapNoReserve)
	if err != nil {
		return nil, fmt.Errorf("reserve %d bytes of address space: %w", n, err)
	}
	adviseHuge(b)
	return b, nil
}

const heapReserve = false

func unreserve(b []byte) error { return unix.Munmap(b) }

func basePointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }
