//go:build !unix || race

package memory

import "unsafe"

// The race detector ignores memory that is not Go's; here the region is a Go
// allocation, so that the detector sees every access to an item. It also is the
// form for systems without mmap.

const heapReserve = true

func reserve(n uint64) ([]byte, error) {
	words := make([]uint64, n/8+grainSize/8)
	p := unsafe.Pointer(&words[0])
	skip := (grainSize - uintptr(p)%grainSize) % grainSize
	return unsafe.Slice((*byte)(unsafe.Add(p, skip)), n), nil
}

func unreserve([]byte) error { return nil }

func basePointer(b []byte) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(b)) }

// giveBack keeps the memory: there is no way to return a part of an allocation.
func giveBack([]byte) {}
