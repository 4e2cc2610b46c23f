package mapping

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/rowcached/rowcached/binlog"
)

// A key template is literal text with column names in braces: "user:{id}", "{a}:{b}". "{pk}" stands for the
// columns of the primary key joined by ':' (unless the table has a column of that name), "{{" and "}}" for
// the braces themselves.
//
// The naive way is to paste the texts together. Then the rows ('x:y','z') and ('x','y:z') of "{a}:{b}" share
// the key "x:y:z": one overwrites the other, and deleting one deletes both. So in a column that another
// column follows, two bytes are written as '%' and two upper-case hexadecimal digits: '%' itself and the
// first byte of the literal behind the column. That byte then ends the column wherever it stands, which is
// all that a parser needs to know; nothing else is ever escaped, and the last column never is. The literal
// must not begin with '%' or one of 0-9A-F, since the escapes hold those.

// template is a key template joined with a table.
type template struct {
	prefix   string // literal text before the first column
	slots    []slot
	ordinals []int // of the slots, in order
}

// slot is a column and the literal text behind it.
type slot struct {
	col    int
	kind   slotKind
	bytes  int  // of an integer column: its width
	sign   bool // an integer column that has negative values
	last   bool // no column follows: nothing is escaped
	stop   byte // unless last: the first byte of suffix
	suffix string
}

type slotKind uint8

const (
	slotText slotKind = iota
	slotInt           // integers and BIT: decimal digits in canonical form
)

func parseTemplate(s string, t *binlog.Table) (template, error) {
	var k template
	names, literals, err := splitTemplate(s, t)
	if err != nil {
		return k, err
	}
	if len(names) == 0 {
		return k, fmt.Errorf("there is no column in it, so every row would have one key; use %q", s+":{pk}")
	}
	k.prefix = literals[0]
	if err := checkLiteral(k.prefix); err != nil {
		return k, err
	}
	if strings.HasPrefix(k.prefix, "@@") {
		return k, errors.New("a key that begins with @@ addresses a table by name; begin the template with something else")
	}
	for i, name := range names {
		o, err := column(t, name)
		if err != nil {
			return k, err
		}
		for _, had := range k.ordinals {
			if had == o {
				return k, fmt.Errorf("column %s stands in it twice", name)
			}
		}
		sl := slot{col: o, suffix: literals[i+1], last: i == len(names)-1}
		switch c := &t.Columns[o]; c.Kind {
		case binlog.KindInt:
			sl.kind, sl.bytes, sl.sign = slotInt, c.Bytes, !c.Unsigned
		case binlog.KindBit:
			sl.kind, sl.bytes = slotInt, (c.Width+7)/8
		case binlog.KindJSON, binlog.KindGeometry, binlog.KindVector:
			return k, fmt.Errorf("column %s is %s, which cannot be part of a unique key", name, c.Type)
		}
		if err := checkLiteral(sl.suffix); err != nil {
			return k, err
		}
		if !sl.last {
			if sl.suffix == "" {
				return k, fmt.Errorf("{%s} and {%s} touch, so two rows could have one key; put a literal between them, such as {%s}:{%s}",
					name, names[i+1], name, names[i+1])
			}
			sl.stop = sl.suffix[0]
			if sl.stop == '%' || isUpperHex(sl.stop) {
				return k, fmt.Errorf("the literal %q between {%s} and {%s} begins with a byte that escapes use; begin it with another, such as ':'",
					sl.suffix, name, names[i+1])
			}
		}
		k.slots = append(k.slots, sl)
		k.ordinals = append(k.ordinals, o)
	}
	return k, nil
}

// splitTemplate gives the column names and the literals around them: one literal more than names.
func splitTemplate(s string, t *binlog.Table) (names, literals []string, err error) {
	var lit strings.Builder
	rest := s
	for rest != "" {
		switch {
		case strings.HasPrefix(rest, "{{"), strings.HasPrefix(rest, "}}"):
			lit.WriteByte(rest[0])
			rest = rest[2:]
		case rest[0] == '}':
			return nil, nil, errors.New("a } without its {; write }} for the brace itself")
		case rest[0] == '{':
			end := strings.IndexByte(rest, '}')
			if end < 0 {
				return nil, nil, errors.New("a { without its }; write {{ for the brace itself")
			}
			name := rest[1:end]
			rest = rest[end+1:]
			literals = append(literals, lit.String())
			lit.Reset()
			if name != "pk" || t.Column("pk") >= 0 {
				names = append(names, name)
				continue
			}
			pk := t.PrimaryKey()
			if pk == nil {
				return nil, nil, fmt.Errorf("{pk}: there is no primary key; name the columns of a unique key%s", keyHint(t))
			}
			for i, o := range pk.Columns {
				if i > 0 {
					literals = append(literals, ":")
				}
				names = append(names, t.Columns[o].Name)
			}
		default:
			lit.WriteByte(rest[0])
			rest = rest[1:]
		}
	}
	return names, append(literals, lit.String()), nil
}

func keyHint(t *binlog.Table) string {
	if len(t.Keys) == 0 {
		return ""
	}
	return ", " + uniqueKeys(t)
}

// literal writes s so that a template takes it as it stands.
func literal(s string) string {
	return strings.NewReplacer("{", "{{", "}", "}}").Replace(s)
}

func checkLiteral(s string) error {
	if len(s) > MaxKey {
		return fmt.Errorf("a literal of %d bytes does not fit a key of %d", len(s), MaxKey)
	}
	for i := 0; i < len(s); i++ {
		if unfit(s[i]) {
			return fmt.Errorf("the literal %q holds a blank or a control byte, which no memcached key carries; use ':' or another visible byte", s)
		}
	}
	return nil
}

// unfit says whether a byte cannot stand in a memcached key.
func unfit(b byte) bool { return b <= ' ' || b == 0x7f }

func isUpperHex(b byte) bool { return '0' <= b && b <= '9' || 'A' <= b && b <= 'F' }

// Prefix is the literal text that every key of the mapping begins with; it may be empty.
func (m *Mapping) Prefix() string { return m.key.prefix }

// AppendKey appends the item key of a row. With ErrKeyEmpty, ErrKeyTooLong or ErrKeyBytes the whole key has
// been appended all the same (a binary or base64 request could name it); with another error nothing has.
func (m *Mapping) AppendKey(dst []byte, r *binlog.Row) ([]byte, error) {
	start := len(dst)
	dst = append(dst, m.key.prefix...)
	for i := range m.key.slots {
		s := &m.key.slots[i]
		if !r.Has(s.col) || r.IsNull(s.col) {
			return dst[:start], ErrAbsent
		}
		var err error
		if dst, err = s.appendColumn(dst, r); err != nil {
			return dst[:start], err
		}
		dst = append(dst, s.suffix...)
	}
	return dst, CheckKey(dst[start:])
}

func (s *slot) appendColumn(dst []byte, r *binlog.Row) ([]byte, error) {
	at := len(dst)
	switch s.kind {
	case slotInt:
		if v, unsigned, ok := r.Int(s.col); ok {
			if unsigned {
				dst = strconv.AppendUint(dst, uint64(v), 10)
			} else {
				dst = strconv.AppendInt(dst, v, 10)
			}
			break
		}
		return dst, fmt.Errorf("key column %d: not an integer", s.col)
	default:
		var err error
		if dst, err = r.AppendText(dst, s.col); err != nil {
			return dst[:at], err
		}
	}
	if s.last {
		return dst, nil
	}
	return escape(dst, at, s.stop), nil
}

// escape writes '%' and stop in dst[at:] as %XX.
func escape(dst []byte, at int, stop byte) []byte {
	n := 0
	for _, b := range dst[at:] {
		if b == '%' || b == stop {
			n++
		}
	}
	if n == 0 {
		return dst
	}
	end := len(dst)
	dst = slices.Grow(dst, 2*n)
	dst = dst[:end+2*n]
	w := len(dst)
	for r := end - 1; r >= at; r-- {
		b := dst[r]
		if b == '%' || b == stop {
			w -= 3
			dst[w], dst[w+1], dst[w+2] = '%', upperHex[b>>4], upperHex[b&15]
			continue
		}
		w--
		dst[w] = b
	}
	return dst
}

const upperHex = "0123456789ABCDEF"

// CheckKey says whether memcached can carry a key: nil, ErrKeyEmpty, ErrKeyTooLong or ErrKeyBytes.
func CheckKey(key []byte) error {
	if len(key) == 0 {
		return ErrKeyEmpty
	}
	if len(key) > MaxKey {
		return ErrKeyTooLong
	}
	for _, b := range key {
		if unfit(b) {
			return ErrKeyBytes
		}
	}
	return nil
}

// ParseKey is the inverse of AppendKey: it gives the text of each key column, in the order of KeyColumns
// (integers and BIT in decimal). ok is false for a key that no row of the mapping could have. The texts may
// point into key.
func (m *Mapping) ParseKey(key []byte) (vals [][]byte, ok bool) {
	return m.parseKey(make([][]byte, 0, len(m.key.slots)), key)
}

// parseKey is ParseKey with the texts appended to vals.
func (m *Mapping) parseKey(vals [][]byte, key []byte) (_ [][]byte, ok bool) {
	if len(key) < len(m.key.prefix) || string(key[:len(m.key.prefix)]) != m.key.prefix {
		return nil, false
	}
	rest := key[len(m.key.prefix):]
	for i := range m.key.slots {
		s := &m.key.slots[i]
		end := len(rest) - len(s.suffix)
		if !s.last {
			end = 0
			for end < len(rest) && rest[end] != s.stop {
				end++
			}
		}
		if end < 0 || len(rest)-end < len(s.suffix) || string(rest[end:end+len(s.suffix)]) != s.suffix {
			return nil, false
		}
		text := rest[:end]
		rest = rest[end+len(s.suffix):]
		if !s.last {
			if text, ok = unescape(text, s.stop); !ok {
				return nil, false
			}
		}
		if s.kind != slotText && !canonical(text, s) {
			return nil, false
		}
		vals = append(vals, text)
	}
	return vals, true
}

// unescape undoes escape, and refuses what escape would not have written.
func unescape(text []byte, stop byte) ([]byte, bool) {
	var out []byte
	for i := 0; i < len(text); i++ {
		if text[i] != '%' {
			if out != nil {
				out = append(out, text[i])
			}
			continue
		}
		if i+2 >= len(text) || !isUpperHex(text[i+1]) || !isUpperHex(text[i+2]) {
			return nil, false
		}
		b := hexValue(text[i+1])<<4 | hexValue(text[i+2])
		if b != '%' && b != stop {
			return nil, false
		}
		if out == nil {
			out = append(make([]byte, 0, len(text)), text[:i]...)
		}
		out = append(out, b)
		i += 2
	}
	if out == nil {
		return text, true
	}
	return out, true
}

func hexValue(b byte) byte {
	if b <= '9' {
		return b - '0'
	}
	return b - 'A' + 10
}

// canonical says whether text is a number that the column can hold, written as AppendKey writes it.
func canonical(text []byte, s *slot) bool {
	digits := text
	neg := len(text) > 0 && text[0] == '-'
	if neg {
		digits = text[1:]
	}
	if len(digits) == 0 || len(digits) > 20 || digits[0] == '0' && (len(digits) > 1 || neg) || neg && !s.sign {
		return false
	}
	var v uint64
	for _, b := range digits {
		if b < '0' || b > '9' {
			return false
		}
		d := uint64(b - '0')
		if v > (1<<64-1-d)/10 {
			return false
		}
		v = v*10 + d
	}
	bits := uint(s.bytes * 8)
	if !s.sign {
		return bits >= 64 || v < 1<<bits
	}
	limit := uint64(1) << (bits - 1)
	if neg {
		return v <= limit
	}
	return v < limit
}

// KeyFromText appends the item key that rest names in a request for "@@name.rest": the column's own text for
// a key of one column ("7" for "user:{id}"), the template from its first column to its last for a composite
// one ("a:b"). false: no row could have that key, and dst is as it was.
func (m *Mapping) KeyFromText(dst, rest []byte) ([]byte, bool) {
	start := len(dst)
	dst = append(dst, m.key.prefix...)
	dst = append(dst, rest...)
	dst = append(dst, m.key.slots[len(m.key.slots)-1].suffix...)
	var texts [8][]byte // so that the usual key costs no allocation
	if _, ok := m.parseKey(texts[:0], dst[start:]); !ok {
		return dst[:start], false
	}
	return dst, true
}
