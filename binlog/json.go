package binlog

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

// The types of MySQL's binary JSON ("JSON binary serialisation" in the MySQL source documentation).
const (
	jsonSmallObject = 0x00
	jsonLargeObject = 0x01
	jsonSmallArray  = 0x02
	jsonLargeArray  = 0x03
	jsonLiteral     = 0x04
	jsonInt16       = 0x05
	jsonUint16      = 0x06
	jsonInt32       = 0x07
	jsonUint32      = 0x08
	jsonInt64       = 0x09
	jsonUint64      = 0x0a
	jsonDouble      = 0x0b
	jsonString      = 0x0c
	jsonOpaque      = 0x0f
)

// jsonDepth is how deep the server lets a document nest.
const jsonDepth = 100

// jsonError is why a binary document cannot be read.
func jsonError(what string) error { return fmt.Errorf("%w: JSON: %s", ErrCorrupt, what) }

// jsonReader turns one binary document into text. Offsets in a corrupt document may overlap, so that a few bytes stand
// for text without end; a sound one never uses a byte twice, and that is the budget.
type jsonReader struct {
	values int // values that may still be seen: each has at least three bytes of its own
	bytes  int // bytes of strings, keys and opaque values that may still be seen
}

// textJSON appends the server's text of a binary document. An empty one, which old servers left behind, is null.
func textJSON(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	if len(cell) == 0 {
		return append(dst, "null"...), nil
	}
	j := jsonReader{values: len(cell)/3 + 1, bytes: len(cell)}
	return j.value(dst, cell[0], cell[1:], 0)
}

// value appends a value of type typ that begins data; data goes on to the end of what holds it.
func (j *jsonReader) value(dst []byte, typ byte, data []byte, depth int) ([]byte, error) {
	if j.values--; j.values < 0 {
		return dst, jsonError("values overlap")
	}
	switch typ {
	case jsonSmallObject, jsonLargeObject, jsonSmallArray, jsonLargeArray:
		if depth >= jsonDepth {
			return dst, jsonError("it is nested too deeply")
		}
		return j.container(dst, typ, data, depth)
	case jsonLiteral:
		if len(data) < 1 {
			return dst, jsonError("a literal is cut short")
		}
		switch data[0] {
		case 0:
			return append(dst, "null"...), nil
		case 1:
			return append(dst, "true"...), nil
		case 2:
			return append(dst, "false"...), nil
		}
		return dst, jsonError("an unknown literal")
	case jsonString:
		s, err := j.counted(data)
		if err != nil {
			return dst, err
		}
		return appendJSONString(dst, s), nil
	case jsonOpaque:
		if len(data) < 1 {
			return dst, jsonError("an opaque value is cut short")
		}
		s, err := j.counted(data[1:])
		if err != nil {
			return dst, err
		}
		return appendJSONOpaque(dst, data[0], s)
	}
	size := 8
	switch typ {
	case jsonInt16, jsonUint16:
		size = 2
	case jsonInt32, jsonUint32:
		size = 4
	case jsonInt64, jsonUint64, jsonDouble:
	default:
		return dst, jsonError("an unknown type")
	}
	if len(data) < size {
		return dst, jsonError("a number is cut short")
	}
	data = data[:size]
	switch typ {
	case jsonInt16, jsonInt32, jsonInt64:
		return strconv.AppendInt(dst, littleInt(data), 10), nil
	case jsonDouble:
		f := math.Float64frombits(binary.LittleEndian.Uint64(data))
		if math.IsNaN(f) || math.IsInf(f, 0) {
			return dst, jsonError("not a finite number")
		}
		return appendJSONDouble(dst, f), nil
	}
	return strconv.AppendUint(dst, littleUint(data), 10), nil
}

// container appends an object or an array: the number of its elements and its size in bytes, then for an object the
// offset and length of each key, then the type and offset (or the value itself, when it fits) of each value.
func (j *jsonReader) container(dst []byte, typ byte, data []byte, depth int) ([]byte, error) {
	word := 2
	if typ == jsonLargeObject || typ == jsonLargeArray {
		word = 4
	}
	if len(data) < 2*word {
		return dst, jsonError("a container is cut short")
	}
	count, size := littleUint(data[:word]), littleUint(data[word:2*word])
	if size > uint64(len(data)) {
		return dst, jsonError("a container is larger than what holds it")
	}
	data = data[:size]
	object := typ == jsonSmallObject || typ == jsonLargeObject
	keys := 2 * word
	values := uint64(keys)
	if object {
		values += count * uint64(word+2)
	}
	if values+count*uint64(1+word) > size {
		return dst, jsonError("a container is smaller than its list")
	}
	open, end := byte('['), byte(']')
	if object {
		open, end = '{', '}'
	}
	dst = append(dst, open)
	var err error
	for i := range int(count) {
		if i > 0 {
			dst = append(dst, ',', ' ')
		}
		if object {
			at := keys + i*(word+2)
			offset, length := littleUint(data[at:at+word]), littleUint(data[at+word:at+word+2])
			if offset+length > size {
				return dst, jsonError("a key lies outside its object")
			}
			if j.bytes -= int(length); j.bytes < 0 {
				return dst, jsonError("keys overlap")
			}
			dst = append(appendJSONString(dst, data[offset:offset+length]), ':', ' ')
		}
		at := int(values) + i*(1+word)
		inner, place := data[at], data[at+1:at+1+word]
		if inner == jsonLiteral || inner == jsonInt16 || inner == jsonUint16 || word == 4 && (inner == jsonInt32 || inner == jsonUint32) {
			dst, err = j.value(dst, inner, place, depth+1)
		} else {
			offset := littleUint(place)
			if offset > size {
				return dst, jsonError("a value lies outside its container")
			}
			dst, err = j.value(dst, inner, data[offset:], depth+1)
		}
		if err != nil {
			return dst, err
		}
	}
	return append(dst, end), nil
}

// counted reads a length of seven bits a byte, least significant first, and gives as many bytes.
func (j *jsonReader) counted(data []byte) ([]byte, error) {
	length := uint64(0)
	for i := 0; i < 5 && i < len(data); i++ {
		length |= uint64(data[i]&0x7f) << (7 * i)
		if data[i]&0x80 == 0 {
			data = data[i+1:]
			if length > uint64(len(data)) {
				return nil, jsonError("a string is cut short")
			}
			if j.bytes -= int(length); j.bytes < 0 {
				return nil, jsonError("strings overlap")
			}
			return data[:length], nil
		}
	}
	return nil, jsonError("a length is not complete")
}

// appendJSONDouble appends a number that came as a double, so that it still looks like one.
func appendJSONDouble(dst []byte, f float64) []byte {
	start := len(dst)
	dst = appendReal(dst, f, 64)
	for _, c := range dst[start:] {
		if c == '.' || c == 'e' {
			return dst
		}
	}
	return append(dst, '.', '0')
}

// appendJSONString appends s in quotes, with the server's escapes.
func appendJSONString(dst, s []byte) []byte {
	dst = append(dst, '"')
	from := 0
	for i, c := range s {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		dst = append(dst, s[from:i]...)
		from = i + 1
		switch c {
		case '\b':
			c = 'b'
		case '\t':
			c = 't'
		case '\n':
			c = 'n'
		case '\f':
			c = 'f'
		case '\r':
			c = 'r'
		case '"', '\\':
		default:
			dst = append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
			continue
		}
		dst = append(dst, '\\', c)
	}
	return append(append(dst, s[from:]...), '"')
}

// appendJSONOpaque appends a value of an SQL type that JSON lacks: decimals as numbers, dates and times as strings, every
// other as base64 with the number of its type.
func appendJSONOpaque(dst []byte, typ byte, data []byte) ([]byte, error) {
	switch typ {
	case typeNewDecimal:
		if len(data) < 2 {
			return dst, jsonError("a decimal is cut short")
		}
		c := imageColumn{whole: int(data[0]) - int(data[1]), scale: int(data[1])}
		if c.whole < 0 || c.whole > 81 || c.scale > 81 || len(data)-2 != decimalSize(c.whole)+decimalSize(c.scale) {
			return dst, jsonError("an impossible decimal")
		}
		return textDecimal(nil, &c, dst, data[2:])
	case typeDate, typeTime, typeDatetime, typeTimestamp:
		if len(data) != 8 {
			return dst, jsonError("a date or time is cut short")
		}
		dst, err := appendJSONTime(append(dst, '"'), typ, int64(binary.LittleEndian.Uint64(data)))
		return append(dst, '"'), err
	}
	dst = append(dst, `"base64:type`...)
	dst = append(strconv.AppendUint(dst, uint64(typ), 10), ':')
	// The server breaks the lines of its base64, and a line's end is escaped as in any string.
	const line = 57
	for len(data) > line {
		dst = append(base64.StdEncoding.AppendEncode(dst, data[:line]), '\\', 'n')
		data = data[line:]
	}
	return append(base64.StdEncoding.AppendEncode(dst, data), '"'), nil
}

// appendJSONTime appends a packed date or time: 40 bits of year*13+month, day, hour, minute and second (a TIME has ten
// bits of hours), then 24 of microseconds.
func appendJSONTime(dst []byte, typ byte, v int64) ([]byte, error) {
	if typ == typeTime {
		if v < 0 {
			dst = append(dst, '-')
			v = -v
		}
		dst, err := appendClock(dst, int(v>>36&1023), int(v>>30&63), int(v>>24&63))
		if err != nil {
			return dst, err
		}
		return appendFraction(dst, uint32(v&0xffffff), 6)
	}
	month := int(v >> 46)
	if typ == typeDate {
		return appendDate(dst, month/13, month%13, int(v>>41&31))
	}
	return appendDatetime(dst, month/13, month%13, int(v>>41&31), int(v>>36&31), int(v>>30&63), int(v>>24&63), uint32(v&0xffffff), 6)
}
