//go:build linux && !race

package memory

import "golang.org/x/sys/unix"

const mapNoReserve = unix.MAP_NORESERVE

// adviseHuge asks for huge pages: a random get then costs one miss of the
// translation cache less. A kernel without them refuses, which is no error.
func adviseHuge(b []byte) { _ = unix.Madvise(b, unix.MADV_HUGEPAGE) }

// giveBack returns the memory of b to the system; it reads as zeros afterwards.
func giveBack(b []byte) { _ = unix.Madvise(b, unix.MADV_DONTNEED) }
