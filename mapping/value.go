package mapping

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"unicode/utf8"

	"github.com/rowcached/rowcached/binlog"
)

// value is the compiled form of ValueSpec: the bytes before each column, the column, and the bytes at the end.
type value struct {
	parts []part
	end   string
}

// part is a column and the literal bytes before it.
type part struct {
	before string
	col    int
	how    rendering
}

// rendering is how a column's text goes into the value.
type rendering uint8

const (
	asText     rendering = iota // text values: the bytes alone, nothing for NULL
	asInt                       // bare: integers without ZEROFILL's zeros, BIT as an unsigned number
	asNumber                    // bare, as the text is
	asPadded                    // bare, leading zeros taken off (ZEROFILL of DECIMAL, FLOAT, DOUBLE)
	asString                    // quoted
	asBase64                    // quoted, standard base64 with padding
	asDocument                  // embedded as the server wrote it
	asChecked                   // embedded if it is JSON, else quoted
)

// jsonRendering gives the rendering of a column in a json value.
func jsonRendering(c *binlog.Column) rendering {
	switch c.Kind {
	case binlog.KindInt, binlog.KindBit:
		return asInt
	case binlog.KindDecimal, binlog.KindFloat, binlog.KindDouble:
		if c.Zerofill {
			return asPadded
		}
		return asNumber
	case binlog.KindBinary, binlog.KindGeometry, binlog.KindVector:
		return asBase64
	case binlog.KindJSON:
		return asDocument
	case binlog.KindText:
		if c.JSON {
			return asChecked
		}
		return asString
	default:
		return asString
	}
}

// compileValue fills the defaults of s in and joins it with the table.
func compileValue(s *ValueSpec, t *binlog.Table) (value, error) {
	var v value
	if s.Format == "" {
		s.Format = FormatJSON
	}
	if err := oneOf("value.format", s.Format, FormatJSON, FormatText); err != nil {
		return v, err
	}
	var ordinals []int
	for _, name := range s.Columns {
		o, err := column(t, name)
		if err != nil {
			return v, fmt.Errorf("value.columns: %w", err)
		}
		for _, had := range ordinals {
			if had == o {
				return v, fmt.Errorf("value.columns: %s stands there twice; take one away", name)
			}
		}
		ordinals = append(ordinals, o)
	}
	if len(s.Columns) == 0 {
		for i := range t.Columns {
			if !t.Columns[i].Invisible {
				ordinals = append(ordinals, i)
			}
		}
	}
	if len(ordinals) == 0 {
		return v, errors.New("value.columns: every column is invisible; name the ones to serve")
	}
	if s.Format == FormatText {
		if s.Separator == "" {
			s.Separator = "|"
		}
		for i, o := range ordinals {
			p := part{col: o, how: asText}
			if i > 0 {
				p.before = s.Separator
			}
			v.parts = append(v.parts, p)
		}
		return v, nil
	}
	if s.Separator != "" {
		return v, errors.New("value.separator: only text values have one; add `format: text` or take it away")
	}
	for i, o := range ordinals {
		c := &t.Columns[o]
		open := byte(',')
		if i == 0 {
			open = '{'
		}
		before := append([]byte{open, '"'}, c.Name...)
		before = append(quote(before, 2), ':')
		v.parts = append(v.parts, part{before: string(before), col: o, how: jsonRendering(c)})
	}
	v.end = "}"
	return v, nil
}

// AppendValue appends the value of a row. On an error dst is as it was: ErrAbsent when the row image lacks a
// column, or what Row.AppendText said.
func (m *Mapping) AppendValue(dst []byte, r *binlog.Row) ([]byte, error) {
	start := len(dst)
	for i := range m.value.parts {
		p := &m.value.parts[i]
		dst = append(dst, p.before...)
		if !r.Has(p.col) {
			return dst[:start], ErrAbsent
		}
		var err error
		if dst, err = p.append(dst, r); err != nil {
			return dst[:start], err
		}
	}
	return append(dst, m.value.end...), nil
}

func (p *part) append(dst []byte, r *binlog.Row) ([]byte, error) {
	if r.IsNull(p.col) {
		if p.how == asText {
			return dst, nil
		}
		return append(dst, "null"...), nil
	}
	switch p.how {
	case asInt:
		if v, unsigned, ok := r.Int(p.col); !ok {
			return dst, fmt.Errorf("column %d: not an integer", p.col)
		} else if unsigned {
			return strconv.AppendUint(dst, uint64(v), 10), nil
		} else {
			return strconv.AppendInt(dst, v, 10), nil
		}
	case asString:
		at := len(dst) + 1
		dst, err := r.AppendText(append(dst, '"'), p.col)
		if err != nil {
			return dst, err
		}
		if !utf8.Valid(dst[at:]) {
			dst = appendValid(dst[:at], bytes.Clone(dst[at:]))
		}
		return quote(dst, at), nil
	case asBase64:
		at := len(dst) + 1
		dst, err := r.AppendText(append(dst, '"'), p.col)
		if err != nil {
			return dst, err
		}
		return append(encode(dst, at), '"'), nil
	case asPadded:
		at := len(dst)
		dst, err := r.AppendText(dst, p.col)
		if err != nil {
			return dst, err
		}
		return unpad(dst, at), nil
	case asChecked:
		at := len(dst)
		dst, err := r.AppendText(dst, p.col)
		if err == nil && !json.Valid(dst[at:]) { // stored while check_constraint_checks was off
			dst = slices.Insert(dst, at, '"')
			dst = quote(dst, at+1)
		}
		return dst, err
	case asDocument:
		at := len(dst)
		dst, err := r.AppendText(dst, p.col)
		if err == nil && len(dst) == at { // an empty document reads as JSON null
			dst = append(dst, "null"...)
		}
		return dst, err
	default: // asText, asNumber
		return r.AppendText(dst, p.col)
	}
}

// appendValid appends text with U+FFFD for each byte that is no UTF-8. Servers give such text for labels whose bytes a
// change of charset has spoilt; a JSON string cannot hold it.
func appendValid(dst, text []byte) []byte {
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		dst = utf8.AppendRune(dst, r)
		text = text[n:]
	}
	return dst
}

// unpad takes the leading zeros off the number in dst[at:], but not the one before a point.
func unpad(dst []byte, at int) []byte {
	n := 0
	for at+n+1 < len(dst) && dst[at+n] == '0' && '0' <= dst[at+n+1] && dst[at+n+1] <= '9' {
		n++
	}
	if at+n+1 < len(dst) && dst[at+n] == '0' && dst[at+n+1] == '-' { // servers pad the negative zero of a DOUBLE so
		n++
	}
	if n == 0 {
		return dst
	}
	return append(dst[:at], dst[at+n:]...)
}

// quote escapes dst[at:] as the inside of a JSON string and closes it: the quote, the backslash and control
// bytes, nothing else (RFC 8259 section 7). The text must be UTF-8.
func quote(dst []byte, at int) []byte {
	extra := 0
	for _, b := range dst[at:] {
		extra += int(escapes[b])
	}
	if extra == 0 {
		return append(dst, '"')
	}
	r := len(dst) - 1
	dst = slices.Grow(dst, extra)
	dst = dst[:len(dst)+extra]
	w := len(dst)
	for ; w-1 > r; r-- { // once they meet, nothing before needs moving
		b := dst[r]
		switch escapes[b] {
		case 0:
			w--
			dst[w] = b
		case 1:
			w -= 2
			dst[w], dst[w+1] = '\\', short(b)
		default:
			w -= 6
			copy(dst[w:], `\u00`)
			dst[w+4], dst[w+5] = upperHex[b>>4], upperHex[b&15]
		}
	}
	return append(dst, '"')
}

// escapes is how many bytes longer each byte gets in a JSON string.
var escapes = func() (t [256]uint8) {
	for b := range 0x20 {
		t[b] = 5
	}
	for _, b := range "\"\\\b\f\n\r\t" {
		t[b] = 1
	}
	return t
}()

func short(b byte) byte {
	switch b {
	case '\b':
		return 'b'
	case '\f':
		return 'f'
	case '\n':
		return 'n'
	case '\r':
		return 'r'
	case '\t':
		return 't'
	default:
		return b
	}
}

// encode replaces dst[at:] by its standard base64.
func encode(dst []byte, at int) []byte {
	raw := len(dst) - at
	n := base64.StdEncoding.EncodedLen(raw)
	// The raw bytes move out of the way of what is made of them.
	dst = slices.Grow(dst, n)
	dst = dst[:at+n+raw]
	copy(dst[at+n:], dst[at:at+raw])
	base64.StdEncoding.Encode(dst[at:], dst[at+n:])
	return dst[:at+n]
}
