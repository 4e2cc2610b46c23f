package memory

import (
	"errors"
	"unsafe"
)

var (
	// ErrNoMemory says that the limit is reached and nothing more may be evicted.
	ErrNoMemory = errors.New("memory: out of memory storing object")
	// ErrTooLarge says that the item is above Options.MaxItemSize.
	ErrTooLarge = errors.New("memory: object too large for cache")
	// ErrKey says that a key is empty or longer than 250 bytes.
	ErrKey = errors.New("memory: key length must be 1 to 250")
)

// MaxKey is the longest key in bytes.
const MaxKey = 250

// draft is an item that is being filled: it has a slot, its wire form is there but for the
// data, and nobody else knows it. Its slot's meta word stays 0 until it is linked.
type draft struct {
	off    uint64
	hash   uint64
	cas    uint64 // given from outside; 0: the sequence decides
	size   int    // header and wire
	value  int    // where the data starts in the slot
	n      int    // bytes of data
	meta   uint32
	expire uint32
	access uint32 // frequency taken over from the item that it replaces
}

// itemSize is what memcached would count for the item, which is what its limit
// on the item size means: its header, the cas, the key, flags, data.
func itemSize(key int, flags uint32, n int) int {
	size := 48 + 8 + key + 1 + n + 2
	if flags != 0 {
		size += 4
	}
	return size
}

func digits(v uint64) int {
	n := 1
	for ; v >= 10; v /= 10 {
		n++
	}
	return n
}

func putDecimal(dst []byte, at, digits int, v uint64) int {
	for i := at + digits - 1; i >= at; i-- {
		dst[i] = byte('0' + v%10)
		v /= 10
	}
	return at + digits
}

// draft takes a slot and writes everything but the data. The wide header holds a
// cas from outside; items that are large anyway have it in any case, so that a
// later touch can set their expiry in place.
func (s *Store) draft(k kind, p *participant, sp Space, key []byte, flags, expire uint32, n int, cas uint64, force bool) (draft, error) {
	if len(key) == 0 || len(key) > MaxKey {
		return draft{}, ErrKey
	}
	if n < 0 || itemSize(len(key), flags, n) > s.maxItem {
		p.count.tooLarge.add(1)
		return draft{}, ErrTooLarge
	}
	fd, nd := digits(uint64(flags)), digits(uint64(n))
	wire := wireLead + len(key) + 1 + fd + 1 + nd + 2 + n + 2
	d := draft{hash: s.seeds.sum(key), cas: cas, n: n, expire: expire}
	s.prefetchHome(d.hash) // it is needed when the data has arrived
	head := headPlain
	switch {
	case cas != 0 || wire >= wideFrom:
		head, d.meta = headWide, metaWide
	case expire != 0:
		head, d.meta = headTimed, metaTimed
	}
	d.meta |= uint32(len(key)) | uint32(sp)<<metaSpaceShift
	d.size, d.value = head+wire, head+wire-2-n
	off, ok := s.alloc(k, d.size, p, force)
	if !ok {
		p.count.noMemory.add(1)
		return draft{}, ErrNoMemory
	}
	p.count.drafts.add(1)
	d.off = off
	b := unsafe.Slice((*byte)(s.region.at(off)), d.size)
	at := head + copy(b[head:], "VALUE ")
	at += copy(b[at:], key)
	b[at] = ' '
	at = putDecimal(b, at+1, fd, uint64(flags))
	b[at] = ' '
	at = putDecimal(b, at+1, nd, uint64(n))
	b[at], b[at+1] = '\r', '\n'
	b[d.size-2], b[d.size-1] = '\r', '\n'
	return d, nil
}

// data is the value, to be filled before the draft is linked.
func (d *draft) data(s *Store) []byte {
	return unsafe.Slice((*byte)(s.region.at(d.off+uint64(d.value))), d.n)
}

func (d *draft) key(s *Store) []byte {
	return unsafe.Slice((*byte)(s.region.at(d.off+uint64(headLen(d.meta)+wireLead))), metaKeyLen(d.meta))
}

// abandon gives the slot of a draft back.
func (s *Store) abandon(p *participant, d draft) {
	p.count.settled.add(1)
	s.give(d.off)
}

// linkLocked makes a draft the item of its key: in place of old, or as a new word,
// for which the segment has room. The caller retires old's slot afterwards.
func (s *Store) linkLocked(g *segment, tag uint64, p *participant, d draft, old place, now int64) Item {
	p.count.stored.add(1)
	return s.linkAsLocked(g, tag, p, d, old, s.seq.Add(1), s.accessNow(now)|d.access)
}

// linkAsLocked is linkLocked with a given sequence and access word.
func (s *Store) linkAsLocked(g *segment, tag uint64, p *participant, d draft, old place, seq uint64, access uint32) Item {
	it := s.itemIn(d.off)
	wire := d.size - headLen(d.meta)
	*(*uint64)(it.p) = seq<<seqShift | uint64(min(wire, longWire))
	storeRelaxed(unsafe.Pointer(it.access()), access)
	if d.meta&metaWide != 0 {
		*(*uint64)(unsafe.Add(it.p, 16)) = d.cas
		*(*uint32)(unsafe.Add(it.p, 24)) = uint32(wire)
	}
	if e := it.expiryAt(d.meta); e != nil {
		storeRelaxed(unsafe.Pointer(e), d.expire)
	}
	storeRelease32(metaAt(it.p), d.meta)
	if old.ok() {
		s.countLocked(g, old.it, old.m, -1)
		storeRelease64(old.word, makeWord(tag, d.off))
	} else {
		s.insertLocked(g, tag, d.off)
	}
	s.countLocked(g, it, d.meta, 1)
	if d.expire != 0 {
		s.spanOf(d.off).noteExpiry(d.expire)
	}
	p.count.settled.add(1)
	return it
}

// unlinkLocked removes a key's word. The caller retires the slot.
func (s *Store) unlinkLocked(g *segment, old place) (off uint64) {
	off = *old.word & offsetMask << unitShift
	s.countLocked(g, old.it, old.m, -1)
	s.removeLocked(g, old.word, old.line)
	return off
}

// unlinkUnmappedLocked removes a client's item under a key that a table now
// writes; it gives the slot to retire, or 0.
func (s *Store) unlinkUnmappedLocked(g *segment, tag uint64, key []byte) (off uint64) {
	if g.items.load() != 0 {
		if old := s.findLocked(g, tag, key, 0, false); old.ok() {
			return s.unlinkLocked(g, old)
		}
	}
	return 0
}

// countLocked adds an item to the counts of its space, or takes it out.
func (s *Store) countLocked(g *segment, it Item, m uint32, sign int64) {
	size := int64(it.size(m)) * sign
	sp := metaSpace(m)
	if sp == 0 {
		g.items.add(sign)
		g.bytes.add(size)
		return
	}
	c := &s.spaces.counts[sp]
	c.entries.Add(sign)
	if m&metaTomb != 0 {
		c.tombs.Add(sign)
		return
	}
	c.items.Add(sign)
	c.bytes.Add(size)
}
