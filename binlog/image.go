package binlog

import (
	"errors"
	"fmt"
	"math/bits"
)

// ErrShape is wrapped when a TABLE_MAP does not fit the definition it is to be read with: the columns' count, types or
// metadata differ, or a value names a label that the definition does not tell. The definition is not the one that was
// valid where the event stands (I5): the table has to be loaded and copied again.
var ErrShape = errors.New("the row images do not fit the table's definition")

// The column types of TABLE_MAP (enum_field_types in the MySQL source documentation; 140 and 141 are MariaDB's).
const (
	typeTiny           = 1
	typeShort          = 2
	typeLong           = 3
	typeFloat          = 4
	typeDouble         = 5
	typeTimestamp      = 7
	typeLongLong       = 8
	typeInt24          = 9
	typeDate           = 10
	typeTime           = 11
	typeDatetime       = 12
	typeYear           = 13
	typeNewDate        = 14
	typeVarchar        = 15
	typeBit            = 16
	typeTimestamp2     = 17
	typeDatetime2      = 18
	typeTime2          = 19
	typeBlobCompressed = 140
	typeCharCompressed = 141
	typeVector         = 242
	typeJSON           = 245
	typeNewDecimal     = 246
	typeEnum           = 247
	typeSet            = 248
	typeTinyBlob       = 249
	typeMediumBlob     = 250
	typeLongBlob       = 251
	typeBlob           = 252
	typeVarString      = 253
	typeString         = 254
	typeGeometry       = 255
)

// columnMeta reads the metadata block of a TABLE_MAP: for each type the 0, 1 or 2 bytes that belong to it, those of
// types STRING and NEWDECIMAL with the first byte above the second, the others little-endian, as go-mysql gives them. It
// knows MariaDB's types 140 and 141 and does not take their metadata for a neighbour's.
func columnMeta(types, block []byte) ([]uint16, error) {
	meta := make([]uint16, len(types))
	pos := 0
	for i, t := range types {
		size := 0
		switch t {
		case typeString, typeNewDecimal, typeVarString, typeVarchar, typeBit, typeCharCompressed, typeEnum, typeSet:
			size = 2
		case typeBlob, typeDouble, typeFloat, typeGeometry, typeVector, typeJSON, typeBlobCompressed,
			typeTime2, typeDatetime2, typeTimestamp2, typeTinyBlob, typeMediumBlob, typeLongBlob:
			size = 1
		}
		if pos+size > len(block) {
			return nil, fmt.Errorf("%w: metadata of column %d is cut short", ErrCorrupt, i)
		}
		switch {
		case size == 1:
			meta[i] = uint16(block[pos])
		case size == 2 && (t == typeString || t == typeNewDecimal || t == typeEnum || t == typeSet):
			meta[i] = uint16(block[pos])<<8 | uint16(block[pos+1])
		case size == 2:
			meta[i] = uint16(block[pos+1])<<8 | uint16(block[pos])
		}
		pos += size
	}
	return meta, nil
}

// ImageDecoder reads the row images that follow one TABLE_MAP: a table's definition joined with the types and metadata
// the log gives. It does not change once made, and may be shared.
type ImageDecoder struct {
	table   *Table
	columns []imageColumn // of the image: the table's, then any that the server hides
	jsons   int           // how many of them are JSON
	mariadb bool
}

// imageColumn says where a column's cell ends and how its bytes become text.
type imageColumn struct {
	text    textFunc
	column  *Column  // nil: a hidden column
	charset *charset // of KindText, unless its bytes are UTF-8 already
	fixed   uint32   // bytes of the cell when prefix is 0
	prefix  uint8    // bytes of the length before the cell
	json    bool
	char    bool // a CHAR: blanks at the end do not count
	mariadb bool
	fsp     int // digits of a second's fraction
	whole   int // DECIMAL: digits before the point
	scale   int // DECIMAL: digits after it
	pad     int // width of ZEROFILL, bytes of BINARY
	labels  [][]byte
	members []bool // labels[i] is known
}

// textFunc appends the text of a cell.
type textFunc func(r *Row, c *imageColumn, dst, cell []byte) ([]byte, error)

// Table gives the definition.
func (d *ImageDecoder) Table() *Table { return d.table }

// corruptAt tells that an image is wrong at an offset; i is the ordinal of the column, -1 for what precedes the cells.
func (d *ImageDecoder) corruptAt(i, offset int, what string) error {
	if i < 0 || i >= len(d.table.Columns) {
		return fmt.Errorf("%w: table %s, offset %d: %s", ErrCorrupt, d.table.TableName, offset, what)
	}
	return fmt.Errorf("%w: table %s, column %s, offset %d: %s", ErrCorrupt, d.table.TableName, d.table.Columns[i].Name, offset, what)
}

// NewImageDecoder joins a definition with a TABLE_MAP's column types and metadata (as columnMeta gives them). mariadb
// says which server writes the log. It fails with ErrShape when the two do not fit.
func NewImageDecoder(t *Table, types []byte, meta []uint16, mariadb bool) (*ImageDecoder, error) {
	if len(types) < len(t.Columns) || len(types) > len(t.Columns)+t.hidden {
		return nil, fmt.Errorf("%w: %s has %d columns, its row images %d", ErrShape, t.TableName, len(t.Columns), len(types))
	}
	if len(meta) != len(types) {
		return nil, fmt.Errorf("%w: %s: metadata of %d columns for %d", ErrShape, t.TableName, len(meta), len(types))
	}
	d := &ImageDecoder{table: t, columns: make([]imageColumn, len(types)), mariadb: mariadb}
	for i := range types {
		c := &d.columns[i]
		if err := c.bounds(types[i], meta[i]); err != nil {
			return nil, fmt.Errorf("%w: %s, column %d: %v", ErrShape, t.TableName, i+1, err)
		}
		if c.json {
			d.jsons++
		}
		if i >= len(t.Columns) {
			continue
		}
		c.column, c.mariadb = &t.Columns[i], mariadb
		if err := c.compile(types[i], meta[i], mariadb); err != nil {
			return nil, fmt.Errorf("%w: %s.%s is %s, its row images have type %d, metadata %#x: %v",
				ErrShape, t.TableName, c.column.Name, c.column.Type, types[i], meta[i], err)
		}
	}
	return d, nil
}

// realString takes the metadata of type STRING apart: the column's real type and its greatest length in bytes. Lengths
// above 255 have two bits of theirs in the type's byte.
func realString(meta uint16) (typ byte, length int) {
	typ, length = byte(meta>>8), int(meta&0xff)
	if typ&0x30 != 0x30 {
		length |= int(typ&0x30^0x30) << 4
		typ |= 0x30
	}
	return typ, length
}

// bounds finds how the end of a cell is known.
func (c *imageColumn) bounds(typ byte, meta uint16) error {
	switch typ {
	case typeTiny, typeYear:
		c.fixed = 1
	case typeShort:
		c.fixed = 2
	case typeInt24, typeDate, typeNewDate, typeTime:
		c.fixed = 3
	case typeLong, typeFloat, typeTimestamp:
		c.fixed = 4
	case typeLongLong, typeDouble, typeDatetime:
		c.fixed = 8
	case typeTimestamp2, typeDatetime2, typeTime2:
		if meta > 6 {
			return errors.New("more than 6 digits of a second")
		}
		c.fsp = int(meta)
		c.fixed = map[byte]uint32{typeTimestamp2: 4, typeDatetime2: 5, typeTime2: 3}[typ] + uint32(c.fsp+1)/2
	case typeBit:
		c.fixed = uint32(meta >> 8)
		if meta&0xff != 0 {
			c.fixed++
		}
	case typeNewDecimal:
		c.scale = int(meta & 0xff)
		c.whole = int(meta>>8) - c.scale
		if c.whole < 0 || c.whole > 81 || c.scale > 81 {
			return errors.New("impossible precision")
		}
		c.fixed = uint32(decimalSize(c.whole) + decimalSize(c.scale))
	case typeVarchar, typeVarString, typeCharCompressed:
		c.prefix = 1
		if meta > 255 {
			c.prefix = 2
		}
	case typeString:
		real, length := realString(meta)
		if real == typeEnum || real == typeSet {
			c.fixed = uint32(meta & 0xff)
			return nil
		}
		c.prefix = 1
		if length > 255 {
			c.prefix = 2
		}
	case typeEnum, typeSet:
		c.fixed = uint32(meta & 0xff)
	case typeBlob, typeBlobCompressed, typeJSON, typeGeometry, typeVector, typeTinyBlob, typeMediumBlob, typeLongBlob:
		if meta < 1 || meta > 4 {
			return errors.New("impossible length of a length")
		}
		c.prefix = uint8(meta)
		c.json = typ == typeJSON
	default:
		return errors.New("unknown type")
	}
	return nil
}

// compile checks that the type fits the column's definition and chooses the function that makes its text.
func (c *imageColumn) compile(typ byte, meta uint16, mariadb bool) error {
	column := c.column
	if typ == typeCharCompressed || typ == typeBlobCompressed {
		if !column.Compressed {
			return errors.New("compressed")
		}
	} else if column.Compressed {
		return errors.New("not compressed")
	}
	misfit := errors.New("another type")
	oneOf := func(types ...byte) error {
		for _, t := range types {
			if t == typ {
				return nil
			}
		}
		return misfit
	}
	if column.Zerofill {
		c.pad = column.Width
	}
	switch column.Kind {
	case KindInt:
		want := map[int]byte{1: typeTiny, 2: typeShort, 3: typeInt24, 4: typeLong, 8: typeLongLong}[column.Bytes]
		c.text = textInt
		if column.Unsigned {
			c.text = textUint
		}
		if column.Zerofill {
			c.text = textZerofill
		}
		return oneOf(want)
	case KindBit:
		c.text = textRaw
		if typ == typeBit && int(meta>>8)*8+int(meta&0xff) != column.Width {
			return errors.New("another number of bits")
		}
		return oneOf(typeBit)
	case KindDecimal:
		c.text = textDecimal
		if typ == typeNewDecimal && (c.scale != column.Decimals || c.whole+c.scale != column.Precision) {
			return errors.New("another precision")
		}
		return oneOf(typeNewDecimal)
	case KindFloat:
		c.text = textFloat
		return oneOf(typeFloat)
	case KindDouble:
		c.text = textDouble
		return oneOf(typeDouble)
	case KindYear:
		c.text = textYear
		return oneOf(typeYear)
	case KindDate:
		c.text = textDate
		return oneOf(typeDate, typeNewDate)
	case KindTime, KindDatetime, KindTimestamp:
		return c.compileTemporal(typ)
	case KindText, KindBinary:
		return c.compileString(typ, meta, mariadb)
	case KindEnum, KindSet:
		return c.compileLabels(typ, meta)
	case KindJSON:
		c.text = textJSON
		return oneOf(typeJSON)
	case KindGeometry:
		c.text = textRaw
		return oneOf(typeGeometry)
	case KindVector:
		c.text = textRaw
		return oneOf(typeVector, typeVarchar)
	case KindUUID, KindInet4, KindInet6:
		c.pad = 16
		switch column.Kind {
		case KindUUID:
			c.text = textUUID
		case KindInet4:
			c.text, c.pad = textInet4, 4
		case KindInet6:
			c.text = textInet6
		}
		if real, length := realString(meta); typ == typeString && (real != typeString || length != c.pad) {
			return errors.New("another length")
		}
		return oneOf(typeString)
	}
	return misfit
}

// compileTemporal handles TIME, DATETIME and TIMESTAMP: those of MySQL 5.6 and later, and the older ones, of which
// MariaDB's with fractions (mysql56_temporal_format=OFF) have no metadata, so that the definition gives their size.
func (c *imageColumn) compileTemporal(typ byte) error {
	fsp := c.column.Decimals
	var modern, old byte
	switch c.column.Kind {
	case KindTime:
		modern, old, c.text = typeTime2, typeTime, textTime2
		if typ == old {
			c.text = textTimeOld
			if fsp > 0 {
				c.text, c.fixed = textTimeHires, uint32(hiresTimeBytes[fsp])
			}
		}
	case KindDatetime:
		modern, old, c.text = typeDatetime2, typeDatetime, textDatetime2
		if typ == old {
			c.text = textDatetimeOld
			if fsp > 0 {
				c.text, c.fixed = textDatetimeHires, uint32(hiresDatetimeBytes[fsp])
			}
		}
	default:
		modern, old, c.text = typeTimestamp2, typeTimestamp, textTimestamp2
		if typ == old {
			c.text = textTimestampOld
			if fsp > 0 {
				c.text, c.fixed = textTimestampHires, 4+uint32(fsp+1)/2
			}
		}
	}
	switch {
	case typ == old:
		c.fsp = fsp
		return nil
	case typ != modern:
		return errors.New("another type")
	case c.fsp != fsp:
		return errors.New("another number of fractional digits")
	}
	return nil
}

// compileString handles what has a length: in a character set or binary.
func (c *imageColumn) compileString(typ byte, meta uint16, mariadb bool) error {
	column := c.column
	length := 0
	switch typ {
	case typeVarchar, typeVarString, typeCharCompressed:
		length = int(meta)
	case typeString:
		var real byte
		if real, length = realString(meta); real != typeString {
			return errors.New("another type")
		}
		c.char = column.Kind == KindText
		if column.Kind == KindBinary {
			c.pad = length
		}
	case typeBlob, typeBlobCompressed, typeTinyBlob, typeMediumBlob, typeLongBlob:
		length = 1<<(8*meta) - 1
	default:
		return errors.New("another type")
	}
	if column.MaxBytes > 0 && length != column.MaxBytes && !column.Compressed {
		return fmt.Errorf("another length: %d instead of %d bytes", length, column.MaxBytes)
	}
	if column.Kind == KindText && column.Charset != "binary" {
		cs, err := findCharset(column.Charset, mariadb)
		if err != nil {
			return err
		}
		c.charset = cs
	}
	switch {
	case column.Compressed:
		c.text = textCompressed
	case c.pad > 0:
		c.text = textBinary
	case c.charset == nil && c.char:
		c.text = textCharRaw
	case c.charset == nil:
		c.text = textRaw
	case c.char:
		c.text = textChar
	default:
		c.text = textCharset
	}
	return nil
}

// compileLabels handles ENUM and SET.
func (c *imageColumn) compileLabels(typ byte, meta uint16) error {
	real := typ
	if typ == typeString {
		real, _ = realString(meta)
	}
	column := c.column
	want, size := byte(typeEnum), 1
	if len(column.Labels) > 255 {
		size = 2
	}
	c.text = textEnum
	if column.Kind == KindSet {
		want = typeSet
		c.text = textSet
		if size = (len(column.Labels) + 7) / 8; size > 4 {
			size = 8
		}
		if size == 0 || len(column.Labels) > 64 {
			return errors.New("no labels")
		}
	}
	if real != want {
		return errors.New("another type")
	}
	if int(c.fixed) != size {
		return errors.New("another number of labels")
	}
	c.labels = make([][]byte, len(column.Labels))
	c.members = make([]bool, len(column.Labels))
	for i, l := range column.Labels {
		c.labels[i] = []byte(l)
		c.members[i] = !column.unknownLabel(i)
	}
	return nil
}

// textRaw appends the bytes as they are.
func textRaw(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	return append(dst, cell...), nil
}

// textBinary appends a BINARY(n) with the zeros that the image leaves out at its end.
func textBinary(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	dst = append(dst, cell...)
	for n := len(cell); n < c.pad; n++ {
		dst = append(dst, 0)
	}
	return dst, nil
}

func textEnum(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	ordinal := int(littleUint(cell))
	if ordinal == 0 {
		return dst, nil // what the server stores for a value that is no label
	}
	if ordinal > len(c.labels) {
		return dst, fmt.Errorf("%w: label %d of %d", ErrShape, ordinal, len(c.labels))
	}
	if !c.members[ordinal-1] {
		return dst, unknownLabelError(ordinal)
	}
	return append(dst, c.labels[ordinal-1]...), nil
}

func textSet(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	set := littleUint(cell)
	if n := bits.Len64(set); n > len(c.labels) {
		return dst, fmt.Errorf("%w: label %d of %d", ErrShape, n, len(c.labels))
	}
	for first := true; set != 0; first = false {
		i := bits.TrailingZeros64(set)
		set &= set - 1
		if !c.members[i] {
			return dst, unknownLabelError(i + 1)
		}
		if !first {
			dst = append(dst, ',')
		}
		dst = append(dst, c.labels[i]...)
	}
	return dst, nil
}

func unknownLabelError(ordinal int) error {
	return fmt.Errorf("%w: the server's definition does not tell label %d, which was in no row when the table was loaded", ErrShape, ordinal)
}
