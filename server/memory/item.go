package memory

import (
	"sync/atomic"
	"unsafe"
)

// An item in its slot, byte offsets:
//
//	 0  u64  sequence << 16 | wire length (65535: see the wide header)   immutable
//	 8  u32  last access << 5 | fetched << 2 | frequency                 a hint, relaxed
//	12  u32  meta: key length, space, form, state, pins                  atomic; 0: no item
//	16  u32  expiry, unix seconds (form "timed")                         atomic
//	16  u64  cas, u32 wire length, u32 expiry (form "wide")              expiry atomic
//	16, 20 or 32   "VALUE <key> <flags> <bytes>\r\n<data>\r\n"            immutable
//
// The sequence grows with every change in the store. It is the cas (plus the
// store's base) unless the wide form carries one that was given from outside, and
// it is what flush_all compares. A small item that never expires pays 16 bytes.
const (
	offMeta   = 12
	headPlain = 16
	headTimed = 20
	headWide  = 32

	seqShift = 16
	longWire = 1<<seqShift - 1
	maxSeq   = 1 << 48

	accessFreq    = 3 // mask, saturating
	accessFetched = 1 << 2
	accessShift   = 5

	metaSpaceShift = 8
	metaSpaceBits  = 12
	metaTimed      = 1 << 20
	metaWide       = 1 << 21
	metaTomb       = 1 << 22 // a deleted row, remembered while its space loads (I3)
	metaStale      = 1 << 23
	metaWon        = 1 << 24 // the token to recache was handed out
	metaDead       = 1 << 25 // unlinked: who looks at slots must not look further
	metaPin        = 1 << 26
	pinMax         = 63 // all ones: the rest is counted in Store.pins

	wireLead = len("VALUE ")
	// wideFrom is the wire length from which items get the wide header, which a later
	// touch or an explicit cas can fill in place; below it they are copied.
	wideFrom = 2048
)

// Item is a view of one item. It and the slices it gives are valid until the
// session's Release; while pinned, until Unpin.
type Item struct {
	p unsafe.Pointer
	s *Store
}

func (it Item) word() uint64    { return *(*uint64)(it.p) }
func (it Item) seq() uint64     { return it.word() >> seqShift }
func (it Item) access() *uint32 { return (*uint32)(unsafe.Add(it.p, 8)) }
func (it Item) meta() uint32    { return atomic.LoadUint32(metaAt(it.p)) }
func metaKeyLen(m uint32) int   { return int(m & 0xff) }
func metaSpace(m uint32) Space  { return Space(m >> metaSpaceShift & (1<<metaSpaceBits - 1)) }
func metaPins(m uint32) uint32  { return m / metaPin }
func unpinned(m uint32) uint32  { return m & (metaPin - 1) }

// headLen is the size of the header in its form.
func headLen(m uint32) int {
	switch {
	case m&metaWide != 0:
		return headWide
	case m&metaTimed != 0:
		return headTimed
	}
	return headPlain
}

// expiryAt gives the expiry word, nil for an item without one.
func (it Item) expiryAt(m uint32) *uint32 {
	switch {
	case m&metaWide != 0:
		return (*uint32)(unsafe.Add(it.p, 28))
	case m&metaTimed != 0:
		return (*uint32)(unsafe.Add(it.p, 16))
	}
	return nil
}

func (it Item) wireLen(m uint32) int {
	if m&metaWide != 0 {
		return int(*(*uint32)(unsafe.Add(it.p, 24)))
	}
	return int(it.word() & longWire)
}

// size is what the item takes of its slot.
func (it Item) size(m uint32) int { return headLen(m) + it.wireLen(m) }

// OK is false for a miss.
func (it Item) OK() bool { return it.p != nil }

// Wire is the item as a text get answers it: "VALUE key flags bytes\r\ndata\r\n".
func (it Item) Wire() []byte {
	m := it.meta()
	return unsafe.Slice((*byte)(unsafe.Add(it.p, headLen(m))), it.wireLen(m))
}

// Key is the item's key.
func (it Item) Key() []byte { return it.key(it.meta()) }

func (it Item) key(m uint32) []byte {
	return unsafe.Slice((*byte)(unsafe.Add(it.p, headLen(m)+wireLead)), metaKeyLen(m))
}

// dataAt gives where the value starts in the wire form: the line ends at the
// first newline after the key.
func dataAt(wire []byte, keyLen int) int {
	i := wireLead + keyLen + len(" 0 0\r")
	for wire[i] != '\n' {
		i++
	}
	return i + 1
}

// Value is the item's data without the closing "\r\n".
func (it Item) Value() []byte {
	m := it.meta()
	w := unsafe.Slice((*byte)(unsafe.Add(it.p, headLen(m))), it.wireLen(m))
	return w[dataAt(w, metaKeyLen(m)) : len(w)-2 : len(w)-2]
}

// Head is the first line without its "\r\n", where gets puts the cas: Head,
// " ", cas, and then Tail.
func (it Item) Head() []byte {
	w, i := it.split()
	return w[: i-2 : i-2]
}

// Tail is what follows Head: "\r\n", the data, "\r\n".
func (it Item) Tail() []byte {
	w, i := it.split()
	return w[i-2:]
}

func (it Item) split() ([]byte, int) {
	m := it.meta()
	w := unsafe.Slice((*byte)(unsafe.Add(it.p, headLen(m))), it.wireLen(m))
	return w, dataAt(w, metaKeyLen(m))
}

// Flags are the client's.
func (it Item) Flags() uint32 {
	m := it.meta()
	p := (*byte)(unsafe.Add(it.p, headLen(m)+wireLead+metaKeyLen(m)+1))
	var f uint32
	for *p != ' ' {
		f = f*10 + uint32(*p-'0')
		p = (*byte)(unsafe.Add(unsafe.Pointer(p), 1))
	}
	return f
}

// CAS changes with every change of the item.
func (it Item) CAS() uint64 {
	if it.meta()&metaWide != 0 {
		if cas := *(*uint64)(unsafe.Add(it.p, 16)); cas != 0 {
			return cas
		}
	}
	return it.s.casBase + it.seq()
}

// Expire is in unix seconds; 0 never.
func (it Item) Expire() int64 {
	if e := it.expiryAt(it.meta()); e != nil {
		return int64(atomic.LoadUint32(e))
	}
	return 0
}

// LastAccess is in unix seconds: the last Get, or the store if there was none.
func (it Item) LastAccess() int64 {
	return it.s.started + int64(atomic.LoadUint32(it.access())>>accessShift)
}

// Fetched tells whether a Get has read it since it was stored.
func (it Item) Fetched() bool { return atomic.LoadUint32(it.access())&accessFetched != 0 }

// Space is 0 for an unmapped key.
func (it Item) Space() Space { return metaSpace(it.meta()) }

// Stale is set by an invalidation (meta md with I); the value still is served.
func (it Item) Stale() bool { return it.meta()&metaStale != 0 }

// Won tells that the token to recache has been handed out.
func (it Item) Won() bool { return it.meta()&metaWon != 0 }

// Size is the item in bytes, header included.
func (it Item) Size() int { return it.size(it.meta()) }

// Class is the size class for `stats items` and mn/me: 1 is the smallest.
func (it Item) Class() int { return it.s.layout.classOf(it.Size()) + 1 }

// Pin keeps the item's bytes beyond Release, until Unpin. Call it before Release.
func (it Item) Pin() {
	p := metaAt(it.p)
	for {
		m := atomic.LoadUint32(p)
		if metaPins(m) >= pinMax-1 {
			it.s.pins.add(it.p, p)
			return
		}
		if atomic.CompareAndSwapUint32(p, m, m+metaPin) {
			return
		}
	}
}

// Unpin takes one Pin back, on any goroutine. The item must not be used afterwards.
func (it Item) Unpin() {
	p := metaAt(it.p)
	for {
		m := atomic.LoadUint32(p)
		if metaPins(m) == pinMax {
			if it.s.pins.sub(it.p, p) {
				return
			}
			continue
		}
		if atomic.CompareAndSwapUint32(p, m, m-metaPin) {
			return
		}
	}
}

// Replaced tells whether the item is nobody's value any more: only views and pins keep its memory.
func (it Item) Replaced() bool { return it.meta()&metaDead != 0 }

// setMeta sets and clears state bits.
func (it Item) setMeta(set, clear uint32) {
	p := metaAt(it.p)
	for {
		m := atomic.LoadUint32(p)
		if atomic.CompareAndSwapUint32(p, m, m&^clear|set) {
			return
		}
	}
}
