//go:build !race

package memory

import "unsafe"

// storeRelaxed writes a word whose value is a hint (when an item was read last,
// how often): readers load it atomically, writers may overwrite each other. An
// aligned 32-bit store is indivisible on every platform Go runs on; unlike
// atomic.StoreUint32 it is not a full barrier, which would cost every get five
// nanoseconds. The race detector gets the atomic form (relaxed_race.go).
func storeRelaxed(p unsafe.Pointer, v uint32) { *(*uint32)(p) = v }

func storeRelaxed64(p *uint64, v uint64) { *p = v }
