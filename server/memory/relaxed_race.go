//go:build race

package memory

import (
	"sync/atomic"
	"unsafe"
)

// storeRelaxed is atomic where the race detector watches; see relaxed.go.
func storeRelaxed(p unsafe.Pointer, v uint32) { atomic.StoreUint32((*uint32)(p), v) }

func storeRelaxed64(p *uint64, v uint64) { atomic.StoreUint64(p, v) }
