package mapping

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	"github.com/rowcached/rowcached/binlog"
)

// Set is the mappings of one daemon: no two share a name, and none could write a key of another.
type Set struct {
	all      []*Mapping
	byName   map[string]*Mapping
	byPrefix []*Mapping // longest prefix first
}

// NewSet joins mappings. The order of ms is kept in All.
func NewSet(ms []*Mapping) (*Set, error) {
	s := &Set{all: ms, byName: make(map[string]*Mapping, len(ms)), byPrefix: slices.Clone(ms)}
	for i, m := range ms {
		if had := s.byName[m.name]; had != nil {
			return nil, fmt.Errorf("tables %s and %s are both named %q; give one of them another `name:`",
				had.table.TableName, m.table.TableName, m.name)
		}
		s.byName[m.name] = m
		for _, o := range ms[:i] {
			if key, ok := common(&o.key, &m.key); ok {
				return nil, fmt.Errorf("tables %s (key %q) and %s (key %q) could both write the key %q; begin one of the templates with another literal, such as %q",
					o.table.TableName, o.spec.Key, m.table.TableName, m.spec.Key, key, literal(m.name)+":"+columnsOf(m))
			}
		}
	}
	sort.SliceStable(s.byPrefix, func(i, j int) bool {
		return len(s.byPrefix[i].key.prefix) > len(s.byPrefix[j].key.prefix)
	})
	return s, nil
}

func columnsOf(m *Mapping) string {
	return pkTemplate(m.table, &binlog.Key{Columns: m.key.ordinals})
}

// All gives the mappings in the order of NewSet. The caller must not change the slice.
func (s *Set) All() []*Mapping { return s.all }

// ByName finds the container that "@@name" names, or nil.
func (s *Set) ByName(name []byte) *Mapping { return s.byName[string(name)] }

// Owner gives the mapping whose literal prefix is the longest that key begins with, or nil. Whether a row
// could have the key is ParseKey's to say.
func (s *Set) Owner(key []byte) *Mapping {
	for _, m := range s.byPrefix {
		if p := m.key.prefix; len(key) >= len(p) && string(key[:len(p)]) == p {
			return m
		}
	}
	return nil
}

// Resolve splits "@@name.rest" and appends the item key that it means to dst. ok is false when key is not of
// that form, or no container has the name (m is nil), or no row of it could have the key (m is not nil).
func (s *Set) Resolve(dst, key []byte) (item []byte, m *Mapping, ok bool) {
	if len(key) < 3 || key[0] != '@' || key[1] != '@' {
		return dst, nil, false
	}
	dot := slices.Index(key, '.')
	if dot < 0 {
		return dst, nil, false
	}
	m = s.ByName(key[2:dot])
	if m == nil {
		return dst, nil, false
	}
	item, ok = m.KeyFromText(dst, key[dot+1:])
	return item, m, ok
}

// Whether two templates could write one key is whether two small regular languages meet: a literal is its
// bytes, a column a run of the bytes its text may hold, escapes included. Comparing prefixes is not enough:
// "u{name}" writes "user:1" for the name "ser:1", while "k{id}" and "k:{id}" have nothing in common when id
// is an integer. common walks both templates at once, breadth first over pairs of places, so it also finds
// the shortest key that both could write.

// place is a position in a template: before byte off of literal lit (0 the prefix, i the suffix of slot i-1),
// or before the first byte of the column of slot lit, or behind at least one byte of it.
type place struct{ lit, off int }

const (
	entering = -1
	within   = -2
)

// step is the bytes that may come at a place and where they lead.
type step struct {
	any  func(byte) bool
	next place
}

func (k *template) literal(i int) string {
	if i == 0 {
		return k.prefix
	}
	return k.slots[i-1].suffix
}

// settle moves a place past the end of its literal, into the column there. end is true behind the last literal.
func (k *template) settle(p place) (_ place, end bool) {
	if p.off >= 0 && p.off == len(k.literal(p.lit)) {
		if p.lit == len(k.slots) {
			return p, true
		}
		return place{p.lit, entering}, false
	}
	return p, false
}

// places gives the places a template may be at when it is at p: a column may be over at any byte, though a
// number has one at least.
func (k *template) places(p place) []place {
	p, _ = k.settle(p)
	if p.off >= 0 || p.off == entering && k.slots[p.lit].kind != slotText {
		return []place{p}
	}
	after, _ := k.settle(place{p.lit + 1, 0})
	return []place{p, after}
}

func (k *template) ended(p place) bool {
	for _, q := range k.places(p) {
		if _, end := k.settle(q); end {
			return true
		}
	}
	return false
}

func (k *template) steps(p place) []step {
	var out []step
	for _, q := range k.places(p) {
		if _, end := k.settle(q); end {
			continue
		}
		if q.off >= 0 {
			b := k.literal(q.lit)[q.off]
			out = append(out, step{func(x byte) bool { return x == b }, place{q.lit, q.off + 1}})
			continue
		}
		s := &k.slots[q.lit]
		out = append(out, step{s.mayHold, place{q.lit, within}})
	}
	return out
}

// mayHold says whether a byte may stand in the column's part of a key.
func (s *slot) mayHold(b byte) bool {
	if !s.last && b == s.stop {
		return false
	}
	if s.kind == slotText {
		return true
	}
	return '0' <= b && b <= '9' || b == '-' && s.sign || b == '%' && !s.last
}

// common gives the shortest key that both templates could write. Where a column has a smaller language than
// mayHold says (a date, say) it errs towards finding one.
func common(a, b *template) (string, bool) {
	type pair struct{ a, b place }
	type from struct {
		pair
		by byte
	}
	start := pair{place{0, 0}, place{0, 0}}
	came := map[pair]from{start: {}}
	queue := []pair{start}
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		if a.ended(p.a) && b.ended(p.b) {
			var key []byte
			for q := p; q != start; q = came[q].pair {
				key = append(key, came[q].by)
			}
			slices.Reverse(key)
			return string(key), true
		}
		for _, sa := range a.steps(p.a) {
			for _, sb := range b.steps(p.b) {
				q := pair{sa.next, sb.next}
				if _, had := came[q]; had {
					continue
				}
				if by, ok := meet(sa.any, sb.any); ok {
					came[q] = from{p, by}
					queue = append(queue, q)
				}
			}
		}
	}
	return "", false
}

// likely is the order in which bytes are tried, so that the key in a message looks like one.
const likely = "1023456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ:-_./"

func meet(a, b func(byte) bool) (byte, bool) {
	for i := range len(likely) {
		if a(likely[i]) && b(likely[i]) {
			return likely[i], true
		}
	}
	for x := 0x21; x < 256; x++ {
		if a(byte(x)) && b(byte(x)) {
			return byte(x), true
		}
	}
	return 0, false
}

// Names lists the containers, for messages.
func (s *Set) Names() string {
	names := make([]string, len(s.all))
	for i, m := range s.all {
		names[i] = m.name
	}
	return strings.Join(names, ", ")
}
