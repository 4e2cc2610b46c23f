package memory

import (
	"encoding/binary"
	"errors"
	"sync/atomic"
	"unsafe"
)

// An image is the rows of some spaces as bytes, to be stored outside and loaded again by a later process. It is fuzzy: the
// rows of one segment of the index are of one instant, those of different segments are not. Each row is in it once, in the
// form that it had at some instant while the image was made, so that who replays the log from before that over the image
// has every row right at its end (I6).
//
// A row's record is, little-endian: u32 length of the wire form, u16 space as numbered by the caller, u8 length of the key,
// u8 bits (1: an expiry, 2: a cas from outside), u32 expiry if there is one, u64 cas if there is one, the wire form.
const (
	recordHead   = 8
	recordExpiry = 1
	recordCAS    = 2
)

// ErrImage says that bytes given to LoadImage are not an image's records.
var ErrImage = errors.New("memory: these are not the records of an image")

// Image makes an image of the spaces in number: number[space] is what the record calls the space; a space that is not
// in it is left out.
type Image struct {
	s      *Store
	number map[Space]uint16
	at     int
	words  []uint64
}

// NewImage begins an image.
func (s *Store) NewImage(number map[Space]uint16) *Image { return &Image{s: s, number: number} }

// Next appends the records of one more segment of the index, some thousand rows at most, to dst. more is false at the end.
// Nobody waits for it longer than it takes to copy a few thousand words.
func (m *Image) Next(dst []byte) (out []byte, rows int, more bool) {
	s := m.s
	if m.at >= len(s.segments) {
		return dst, 0, false
	}
	g := &s.segments[m.at]
	m.at++
	p := s.join()
	defer s.part(p)
	// Announced before the words are read: what they refer to stays readable though it be unlinked meanwhile.
	p.state.set(s.epoch.Load() << 1)
	g.mu.Lock()
	base, lines := s.lines(g.desc.Load())
	m.words = append(m.words[:0], unsafe.Slice((*uint64)(base), lines*lineWords)...)
	g.mu.Unlock()
	for _, w := range m.words {
		if w == 0 {
			continue
		}
		it := s.itemAt(w)
		meta := it.meta()
		number, ok := m.number[metaSpace(meta)]
		if !ok || meta&metaTomb != 0 {
			continue
		}
		dst = appendRecord(dst, it, meta, number)
		rows++
	}
	return dst, rows, m.at < len(s.segments)
}

func appendRecord(dst []byte, it Item, meta uint32, number uint16) []byte {
	bits := byte(0)
	var expiry uint32
	if e := it.expiryAt(meta); e != nil {
		if expiry = atomic.LoadUint32(e); expiry != 0 {
			bits |= recordExpiry
		}
	}
	var cas uint64
	if meta&metaWide != 0 {
		if cas = *(*uint64)(unsafe.Add(it.p, 16)); cas != 0 {
			bits |= recordCAS
		}
	}
	n := it.wireLen(meta)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
	dst = binary.LittleEndian.AppendUint16(dst, number)
	dst = append(dst, byte(metaKeyLen(meta)), bits)
	if bits&recordExpiry != 0 {
		dst = binary.LittleEndian.AppendUint32(dst, expiry)
	}
	if bits&recordCAS != 0 {
		dst = binary.LittleEndian.AppendUint64(dst, cas)
	}
	return append(dst, unsafe.Slice((*byte)(unsafe.Add(it.p, headLen(meta))), n)...)
}

// LoadImage stores the rows of records, whole ones, into loading spaces: space[n] takes those of number n, and 0 there leaves
// them out. No row of them may be there already. It may be called by several goroutines at once. Errors: ErrImage,
// ErrNoMemory, ErrTooLarge.
func (s *Store) LoadImage(records []byte, space []Space) (rows int, err error) {
	p := s.join()
	defer s.part(p)
	now := s.accessNow(s.now())
	for len(records) > 0 {
		r, rest, ok := cutRecord(records)
		if !ok || int(r.number) >= len(space) {
			return rows, ErrImage
		}
		records = rest
		if space[r.number] == 0 {
			continue
		}
		if err := s.loadRecord(p, r, space[r.number], now); err != nil {
			return rows, err
		}
		rows++
	}
	return rows, nil
}

// record is one of an image, cut into its parts.
type record struct {
	number uint16
	key    []byte // in wire
	expiry uint32
	cas    uint64
	wire   []byte
}

func cutRecord(b []byte) (r record, rest []byte, ok bool) {
	if len(b) < recordHead {
		return r, nil, false
	}
	n := uint64(binary.LittleEndian.Uint32(b))
	r.number = binary.LittleEndian.Uint16(b[4:])
	keyLen, bits := int(b[6]), b[7]
	at := recordHead
	if bits&recordExpiry != 0 && len(b) >= at+4 {
		r.expiry = binary.LittleEndian.Uint32(b[at:])
		at += 4
	}
	if bits&recordCAS != 0 && len(b) >= at+8 {
		r.cas = binary.LittleEndian.Uint64(b[at:])
		at += 8
	}
	if uint64(len(b)-at) < n || n < uint64(wireLead+keyLen+len(" 0 0\r\n\r\n")) || keyLen == 0 || keyLen > MaxKey {
		return r, nil, false
	}
	r.wire = b[at : at+int(n)]
	r.key = r.wire[wireLead : wireLead+keyLen]
	return r, b[at+int(n):], true
}

func (s *Store) loadRecord(p *participant, r record, sp Space, access uint32) error {
	const most = 64 // more than itemSize exceeds the wire form by
	if len(r.wire)+most > s.maxItem &&
		itemSize(len(r.key), flagsOf(r.key, r.wire), len(r.wire)-dataAt(r.wire, len(r.key))-2) > s.maxItem {
		p.count.tooLarge.add(1)
		return ErrTooLarge
	}
	d := draft{hash: s.seeds.sum(r.key), cas: r.cas, expire: r.expiry}
	s.prefetchHome(d.hash)
	head := headPlain
	switch {
	case r.cas != 0 || len(r.wire) >= wideFrom:
		head, d.meta = headWide, metaWide
	case r.expiry != 0:
		head, d.meta = headTimed, metaTimed
	}
	d.meta |= uint32(len(r.key)) | uint32(sp)<<metaSpaceShift
	d.size = head + len(r.wire)
	off, ok := s.alloc(kindMapped, d.size, p, false)
	if !ok {
		p.count.noMemory.add(1)
		return ErrNoMemory
	}
	p.count.drafts.add(1)
	p.count.stored.add(1)
	d.off = off
	copy(s.slot(off, d.size)[head:], r.wire)
	g, tag := s.locate(d.hash)
	s.lockRoom(g, p)
	unmapped := s.unlinkUnmappedLocked(g, tag, r.key)
	s.linkAsLocked(g, tag, p, d, place{}, s.seq.Add(1), access)
	g.mu.Unlock()
	s.retire(p, unmapped)
	return nil
}

// Grow makes room in the index for rows more, so that loading them does not grow it step by step. It is a hint.
func (s *Store) Grow(rows int64) {
	p := s.join()
	defer s.part(p)
	per := uint64(rows)/uint64(len(s.segments)) + 1
	for i := range s.segments {
		g := &s.segments[i]
		old := g.desc.Load()
		want := (uint64(g.count.load()) + per + per/8) / (fillWords - 1)
		if want > old&tagMask {
			s.resize(g, p, old, want, false)
		}
	}
}

// Seeds gives what the store's hash depends on, to be stored beside an image and given to New: rows then come back in the
// order of the index. Who knows them can choose keys that collide, so they belong into a file that nobody else may read.
func (s *Store) Seeds() [2]uint64 { return [2]uint64{s.seeds.a, s.seeds.b} }

// CASCeiling gives a number above every cas that this store has chosen or will choose with its next four billion changes.
// A store that is made later with it as Options.CASFloor repeats none of them.
func (s *Store) CASCeiling() uint64 { return s.casBase + s.seq.Load() + 1<<32 }
