//go:build unix && !linux && !race

package memory

import "golang.org/x/sys/unix"

const mapNoReserve = unix.MAP_NORESERVE

func adviseHuge([]byte) {}

// giveBack is a hint here: the system takes the memory when it needs it.
func giveBack(b []byte) { _ = unix.Madvise(b, unix.MADV_FREE) }
