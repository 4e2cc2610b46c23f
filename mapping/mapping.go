// Package mapping says which rows become which items: it turns a row into an item's key and value, and a key
// back into the texts of the row's key columns.
//
// A Mapping is compiled once from a Spec (what the operator wrote) and a Table (what the server has), and is
// then immutable: any number of goroutines may use one at the same time. Nothing here does I/O, and nothing
// on the path of a row allocates once the caller's buffer is large enough.
//
// What the package promises:
//   - two rows that differ in their key columns have different item keys, whatever the values hold;
//   - ParseKey is the exact inverse of AppendKey: it refuses every key that AppendKey would not have written;
//   - two mappings of one Set never write the same key;
//   - a json value is one valid JSON object, its members in the order of the columns.
//
// What it does not: it never asks whether a row exists, and it keeps no state between rows.
package mapping

import (
	"errors"
	"sort"

	"github.com/rowcached/rowcached/binlog"
)

// What AppendKey and AppendValue say when a row cannot become an item. The first three are counted and
// skipped by the caller; ErrAbsent means that the row must be read again.
var (
	ErrKeyEmpty   = errors.New("empty key")
	ErrKeyTooLong = errors.New("key longer than 250 bytes")
	ErrKeyBytes   = errors.New("key holds a blank or a control byte")
	ErrAbsent     = errors.New("the row image lacks a column of the mapping")
)

// MaxKey is the longest key that the memcached protocol carries, in bytes.
const MaxKey = 250

// Mapping makes items of the rows of one table.
type Mapping struct {
	spec    Spec
	name    string
	table   *binlog.Table
	columns []int // ordinals, ascending, each once

	key    template
	value  value
	flags  number
	cas    int // ordinal, or -1
	expire expiry
}

// Name is the container's name: what follows @@ in a request key, and the metric label.
func (m *Mapping) Name() string { return m.name }

// Spec gives back what the mapping was compiled from, its defaults filled in.
func (m *Mapping) Spec() Spec { return m.spec }

// Table is the definition that the mapping was compiled against.
func (m *Mapping) Table() *binlog.Table { return m.table }

// Columns gives the ordinals in Table().Columns that the mapping reads: key, value, flags, cas and expire,
// ascending, each once. The caller must not change the slice.
func (m *Mapping) Columns() []int { return m.columns }

// KeyColumns gives the ordinals of the key template's columns, in the template's order: the columns that
// ParseKey's texts belong to. The caller must not change the slice.
func (m *Mapping) KeyColumns() []int { return m.key.ordinals }

// collect fills columns from all the parts.
func (m *Mapping) collect() {
	seen := make(map[int]bool)
	add := func(ordinals ...int) {
		for _, o := range ordinals {
			if o >= 0 && !seen[o] {
				seen[o] = true
				m.columns = append(m.columns, o)
			}
		}
	}
	add(m.key.ordinals...)
	for _, p := range m.value.parts {
		add(p.col)
	}
	add(m.flags.col, m.cas, m.expire.col)
	sort.Ints(m.columns)
}
