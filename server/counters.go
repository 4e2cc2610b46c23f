package server

import (
	"math/bits"
	"sync/atomic"
)

// counter is one of the figures that a worker counts.
type counter uint8

const (
	cGet counter = iota // keys asked for
	cGetHit
	cGetMiss
	cSet
	cFlush
	cTouch
	cTouchHit
	cTouchMiss
	cMeta
	cDeleteHit
	cDeleteMiss
	cIncrHit
	cIncrMiss
	cDecrHit
	cDecrMiss
	cCASHit
	cCASMiss
	cCASBad
	cTooLarge
	cNoMemory
	cAuth
	cAuthError
	cBytesRead
	cBytesWritten
	cYield
	cRefused  // writes to keys of a mapped table
	cWithheld // reads of such keys while they are too old
	cProtocolError
	cIdleKick
	counterEnd
)

// counters are one worker's figures. The worker counts in n alone; publish makes
// what changed visible to other goroutines. So the hot path touches no cache
// line that another core writes.
type counters struct {
	n      [counterEnd]uint64
	dirty  uint64
	shared [counterEnd]atomic.Uint64
}

func (c *counters) add(k counter, d uint64) {
	c.n[k] += d
	c.dirty |= 1 << k
}

// publish is called before a reply leaves, so that whoever saw the reply also
// finds it counted.
func (c *counters) publish() {
	for c.dirty != 0 {
		k := bits.TrailingZeros64(c.dirty)
		c.dirty &= c.dirty - 1
		c.shared[k].Store(c.n[k])
	}
}

// totals is a sum over workers.
type totals [counterEnd]uint64

func (t *totals) add(c *counters) {
	for k := range t {
		t[k] += c.shared[k].Load()
	}
}
