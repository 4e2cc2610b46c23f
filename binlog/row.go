package binlog

import (
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
)

// ErrCorrupt is wrapped by every error about bytes that are not what their type says. The message names the table, the
// column and the offset, never the bytes.
var ErrCorrupt = errors.New("corrupt row image")

// ErrPartialJSON says that a row image holds the difference of a JSON document (binlog_row_value_options=PARTIAL_JSON)
// instead of the document: the row has to be read from the table again.
var ErrPartialJSON = errors.New("the row image holds a partial JSON update")

// Row is one row of a table: from a row image of the log, or from the bytes of a query. Both give the same text for
// every column type (I2).
//
// A Row is reused: what it refers to is the caller's memory (the event's bytes, the query's), and it is valid until that
// memory changes or the row is set again. Once warm it allocates nothing, save for what zlib needs in a COMPRESSED
// column. A Row is for one goroutine at a time; the zero Row is ready to be set.
type Row struct {
	table *Table
	image *ImageDecoder  // nil: the row came from a query
	data  []byte         // the row image
	vals  []sql.RawBytes // the query's values
	cells []cell         // one for each column of the table
	zlib  *inflater      // made by the first COMPRESSED cell
}

// cell is where a column's bytes are.
type cell struct {
	off uint32 // offset in Row.data, or index in Row.vals
	n   uint32 // bytes in Row.data; cellNull, cellAbsent
}

const (
	cellNull    = 1<<32 - 1 - iota // SQL NULL
	cellAbsent                     // not in the image or not asked for
	cellPartial                    // a difference of a JSON document
	cellMax     = 1<<32 - 16
)

// Table gives the definition that the row was set with, nil before that.
func (r *Row) Table() *Table { return r.table }

// SetQuery makes r the row that a query gave. cols are the ordinals in t.Columns that vals belong to, in the same order;
// every other column is absent. The query selected t.SelectExpr of each in a session with SessionSettings. A nil value is
// SQL NULL.
func (r *Row) SetQuery(t *Table, cols []int, vals []sql.RawBytes) {
	r.table, r.image, r.data, r.vals = t, nil, nil, vals
	cells := r.size(len(t.Columns))
	for i := range cells {
		cells[i] = cell{n: cellAbsent}
	}
	for k, c := range cols {
		if vals[k] == nil {
			cells[c] = cell{n: cellNull}
		} else {
			cells[c] = cell{off: uint32(k), n: uint32(min(len(vals[k]), cellMax))}
		}
	}
}

// size makes r.cells n long.
func (r *Row) size(n int) []cell {
	if cap(r.cells) < n {
		r.cells = make([]cell, n)
	}
	r.cells = r.cells[:n]
	return r.cells
}

// SetImage makes r the row whose image starts data: the NULL bitmap, then the cells of the columns present (see the
// MySQL source documentation's page "Rows_event"). present is the columns-present bitmap of the event (column i is bit
// i%8 of byte i/8). n is the number of bytes that the image takes, so that the next image starts at data[n].
//
// It finds every cell in one pass and checks that each lies within data; the bytes of a cell are looked at when its text
// is asked for.
func (r *Row) SetImage(d *ImageDecoder, present, data []byte) (n int, err error) {
	return r.setImage(d, present, nil, data)
}

// SetPartialImage is SetImage for an after image of PARTIAL_UPDATE_ROWS_EVENT, which begins with the options of the row
// and, when a JSON column may be partial, a bitmap of the JSON columns that are. Such a column is absent from r and its
// AppendText gives ErrPartialJSON.
func (r *Row) SetPartialImage(d *ImageDecoder, present, data []byte) (n int, err error) {
	if len(data) < 1 {
		return 0, d.corruptAt(-1, 0, "no row options")
	}
	options := data[0] // a packed integer; the only bit defined is 1, PARTIAL_JSON_UPDATES
	if options > 1 {
		return 0, d.corruptAt(-1, 0, "unknown row options")
	}
	if options == 0 {
		n, err = r.setImage(d, present, nil, data[1:])
		return n + 1, err
	}
	size := (d.jsons + 7) / 8
	if len(data) < 1+size {
		return 0, d.corruptAt(-1, 1, "the bitmap of partial columns is cut short")
	}
	n, err = r.setImage(d, present, data[1:1+size], data[1+size:])
	return n + 1 + size, err
}

func (r *Row) setImage(d *ImageDecoder, present, partial, data []byte) (int, error) {
	r.table, r.image, r.data, r.vals = d.table, d, data, nil
	cols := d.columns
	cells := r.size(len(cols)) // the hidden columns have cells that nobody asks for
	if len(present) < (len(cols)+7)/8 {
		return 0, d.corruptAt(-1, 0, "the bitmap of present columns is cut short")
	}
	if uint64(len(data)) > cellMax {
		data = data[:cellMax]
	}
	count := countBits(present, len(cols))
	pos := (count + 7) / 8
	if pos > len(data) {
		return 0, d.corruptAt(-1, 0, "the NULL bitmap is cut short")
	}
	nulls := data[:pos]
	all := count == len(cols)
	bit := 0
	for i := range cols {
		if !all && present[i>>3]>>(i&7)&1 == 0 {
			cells[i] = cell{n: cellAbsent}
			continue
		}
		if nulls[bit>>3]>>(bit&7)&1 != 0 {
			cells[i] = cell{n: cellNull}
			bit++
			continue
		}
		bit++
		c := &cols[i]
		size, prefix := int(c.fixed), int(c.prefix)
		if prefix > 0 {
			if prefix > len(data)-pos {
				return 0, d.corruptAt(i, pos, "the length is cut short")
			}
			switch b := data[pos:]; prefix {
			case 1:
				size = int(b[0])
			case 2:
				size = int(b[0]) | int(b[1])<<8
			default:
				size = int(littleUint(b[:prefix]))
			}
			pos += prefix
		}
		if size > len(data)-pos {
			return 0, d.corruptAt(i, pos, "the value is cut short")
		}
		cells[i] = cell{off: uint32(pos), n: uint32(size)}
		pos += size
	}
	if partial != nil {
		r.markPartial(partial)
	}
	return pos, nil
}

// markPartial marks the JSON columns that a bitmap of them says are partial.
func (r *Row) markPartial(partial []byte) {
	json := 0
	for i := range r.image.columns {
		if !r.image.columns[i].json {
			continue
		}
		if partial[json>>3]>>(json&7)&1 != 0 && r.cells[i].n <= cellMax {
			r.cells[i].n = cellPartial
		}
		json++
	}
}

// countBits counts the bits set among the first n of b.
func countBits(b []byte, n int) int {
	count := 0
	for _, x := range b[:n/8] {
		count += bits.OnesCount8(x)
	}
	if n%8 != 0 {
		count += bits.OnesCount8(b[n/8] & (1<<(n%8) - 1))
	}
	return count
}

// Has says whether the row has column col: false when a partial image left it out or the query did not ask for it.
func (r *Row) Has(col int) bool {
	n := r.cells[col].n
	return n != cellAbsent && n != cellPartial
}

// IsNull says whether column col is SQL NULL.
func (r *Row) IsNull(col int) bool { return r.cells[col].n == cellNull }

// AppendText appends the text of column col: the bytes that SELECT gives in a session with SessionSettings, except that a
// FLOAT without decimals has all the digits of its value. For SQL NULL it appends nothing. The error wraps ErrCorrupt, or
// is ErrPartialJSON.
func (r *Row) AppendText(dst []byte, col int) ([]byte, error) {
	c := r.cells[col]
	if c.n > cellMax {
		if c.n == cellPartial {
			return dst, fmt.Errorf("column %s of %s: %w", r.table.Columns[col].Name, r.table.TableName, ErrPartialJSON)
		}
		return dst, nil
	}
	if r.image == nil {
		return r.appendQuery(dst, col, r.vals[c.off])
	}
	d := &r.image.columns[col]
	out, err := d.text(r, d, dst, r.data[c.off:c.off+c.n])
	if err != nil {
		return dst, fmt.Errorf("column %s of %s at offset %d of its row: %w", r.table.Columns[col].Name, r.table.TableName, c.off, err)
	}
	return out, nil
}

// appendQuery appends a value as a query gave it, made equal to what the log gives. go-sql-driver makes a number of
// whatever has a number's type, and database/sql bytes of that: the zeros before integers and years and the layout of
// floating-point numbers have to be put back.
func (r *Row) appendQuery(dst []byte, col int, v []byte) ([]byte, error) {
	c := &r.table.Columns[col]
	switch {
	case c.Kind == KindFloat, c.Kind == KindDouble:
		f, ok := parseFloat(v)
		if !ok {
			return dst, fmt.Errorf("%w: column %s of %s: the query's value is not a number", ErrCorrupt, c.Name, r.table.TableName)
		}
		return appendColumnReal(dst, c, f), nil
	case c.Kind == KindInt && c.Zerofill, c.Kind == KindYear:
		start := len(dst)
		return padZeros(append(dst, v...), start, c.Width), nil
	}
	return append(dst, v...), nil
}

// Int gives the number in an integer, BIT or YEAR(4) column. For an unsigned one v holds its 64 bits, to be read as
// uint64(v). It is not ok for SQL NULL, an absent column and every other type.
func (r *Row) Int(col int) (v int64, unsigned, ok bool) {
	c := r.cells[col]
	if c.n > cellMax {
		return 0, false, false
	}
	column := &r.table.Columns[col]
	var b []byte
	if r.image != nil {
		b = r.data[c.off : c.off+c.n]
	} else {
		b = r.vals[c.off]
	}
	switch column.Kind {
	case KindInt:
		if r.image == nil {
			v, ok = parseInt(b)
			return v, column.Unsigned, ok
		}
		if column.Unsigned {
			return int64(littleUint(b)), true, true
		}
		return littleInt(b), false, true
	case KindBit:
		if len(b) > 8 {
			return 0, true, false
		}
		var u uint64
		for _, x := range b {
			u = u<<8 | uint64(x)
		}
		return int64(u), true, true
	case KindYear:
		if column.Width == 2 {
			return 0, true, false
		}
		if r.image == nil {
			v, ok = parseInt(b)
			return v, true, ok
		}
		if len(b) != 1 {
			return 0, true, false
		}
		if v = int64(b[0]); v != 0 {
			v += 1900
		}
		return v, true, true
	}
	return 0, false, false
}

// parseInt reads the server's text of an integer, which may begin with zeros; an unsigned one above the signed range
// wraps around.
func parseInt(b []byte) (int64, bool) {
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		b = b[1:]
	}
	if len(b) == 0 {
		return 0, false
	}
	var u uint64
	for _, c := range b {
		if c < '0' || c > '9' {
			return 0, false
		}
		u = u*10 + uint64(c-'0')
	}
	if negative {
		return -int64(u), true
	}
	return int64(u), true
}

// littleUint reads up to 8 bytes, least significant first.
func littleUint(b []byte) uint64 {
	switch len(b) {
	case 4:
		return uint64(binary.LittleEndian.Uint32(b))
	case 8:
		return binary.LittleEndian.Uint64(b)
	}
	var u uint64
	for i := len(b) - 1; i >= 0; i-- {
		u = u<<8 | uint64(b[i])
	}
	return u
}

// littleInt reads 1 to 8 bytes of two's complement, least significant first.
func littleInt(b []byte) int64 {
	switch len(b) {
	case 4:
		return int64(int32(binary.LittleEndian.Uint32(b)))
	case 8:
		return int64(binary.LittleEndian.Uint64(b))
	}
	shift := 64 - 8*len(b)
	return int64(littleUint(b)<<shift) >> shift
}
