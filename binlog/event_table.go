package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// tableCacheMost bounds the table ids remembered; ids are never used again by a server, so old ones only cost memory.
const tableCacheMost = 4096

// tableCache knows which table an id in row events stands for. A TABLE_MAP that repeats the last one of its id, which is
// almost every one, costs a comparison of its bytes.
type tableCache struct {
	ids  map[uint64]*tableEntry
	last *tableEntry
}

// tableEntry is one TABLE_MAP and what is made of it.
type tableEntry struct {
	id     uint64
	raw    []byte // the event's body; schema, name, types and meta lie in it
	schema []byte
	name   []byte
	types  []byte
	meta   []byte

	gen     uint64 // of the watchSet that the rest was resolved against
	watch   *watch // nil: not wanted
	decoder *ImageDecoder
	err     error  // why there is no decoder
	told    uint64 // number of the transaction in which an EventInvalidate told of it
}

func (c *tableCache) init() {
	c.ids = make(map[uint64]*tableEntry)
	c.last = nil
}

// tidy bounds the cache; call it between transactions.
func (c *tableCache) tidy() {
	if len(c.ids) > tableCacheMost {
		c.init()
	}
}

func tableID(b []byte) uint64 {
	return uint64(binary.LittleEndian.Uint32(b)) | uint64(binary.LittleEndian.Uint16(b[4:]))<<32
}

// put takes in a TABLE_MAP's body (MySQL source documentation, page "Table_map_event").
func (c *tableCache) put(body []byte) error {
	if len(body) < 8 {
		return fmt.Errorf("%w: short TABLE_MAP", errProtocol)
	}
	id := tableID(body)
	e := c.last
	if e == nil || e.id != id {
		e = c.ids[id]
	}
	if e != nil && bytes.Equal(e.raw, body) {
		c.last = e
		return nil
	}
	e = &tableEntry{id: id, raw: bytes.Clone(body)}
	if err := e.parse(); err != nil {
		return err
	}
	c.ids[id] = e
	c.last = e
	return nil
}

func (e *tableEntry) parse() error {
	r := byteReader{b: e.raw[8:]}
	e.schema = r.take(int(r.byte()))
	r.byte() // NUL
	e.name = r.take(int(r.byte()))
	r.byte() // NUL
	n := r.lenenc()
	if n > uint64(len(r.b)) {
		return fmt.Errorf("%w: TABLE_MAP with %d columns in %d bytes", errProtocol, n, len(e.raw))
	}
	e.types = r.take(int(n))
	n = r.lenenc()
	if n > uint64(len(r.b)) {
		return fmt.Errorf("%w: TABLE_MAP with metadata of %d bytes in %d", errProtocol, n, len(e.raw))
	}
	e.meta = r.take(int(n))
	if r.short {
		return fmt.Errorf("%w: TABLE_MAP is cut short", errProtocol)
	}
	return nil
}

// get gives the entry of an id, nil when there was no TABLE_MAP.
func (c *tableCache) get(id uint64) *tableEntry {
	if c.last != nil && c.last.id == id {
		return c.last
	}
	return c.ids[id]
}

// resolve finds what is wanted of the table, and a decoder when its rows are.
func (e *tableEntry) resolve(w *watchSet, mariadb bool) {
	if e.gen == w.gen {
		return
	}
	e.gen = w.gen
	e.watch = w.findBytes(e.schema, e.name)
	e.decoder, e.err = nil, nil
	if e.watch == nil || e.watch.table == nil {
		return
	}
	meta, err := columnMeta(e.types, e.meta)
	if err == nil {
		e.decoder, err = NewImageDecoder(e.watch.table, e.types, meta, mariadb)
	}
	e.err = err
}

// byteReader reads a body without ever leaving it: past the end it gives zeros and sets short.
type byteReader struct {
	b     []byte
	short bool
}

func (r *byteReader) take(n int) []byte {
	if n < 0 || n > len(r.b) {
		r.short, r.b = true, nil
		return nil
	}
	x := r.b[:n:n]
	r.b = r.b[n:]
	return x
}

func (r *byteReader) byte() byte {
	if x := r.take(1); x != nil {
		return x[0]
	}
	return 0
}

func (r *byteReader) uint(n int) uint64 { return littleUint(r.take(n)) }

// lenenc reads a length-encoded integer.
func (r *byteReader) lenenc() uint64 {
	switch c := r.byte(); c {
	case 0xfc:
		return r.uint(2)
	case 0xfd:
		return r.uint(3)
	case 0xfe:
		return r.uint(8)
	default:
		return uint64(c)
	}
}
