package binlog

import (
	"bytes"
	"encoding/json"
)

// storedTable is a Table as it is stored beside a position (I5): all of it, the fields that only this package uses too.
type storedTable struct {
	Schema    string         `json:"schema"`
	Name      string         `json:"name"`
	Columns   []storedColumn `json:"columns"`
	Keys      []Key          `json:"keys"`
	Versioned int            `json:"versioned"`
	Volatile  bool           `json:"volatile,omitempty"`
	Hidden    int            `json:"hidden,omitempty"`
}

type plainColumn Column

type storedColumn struct {
	plainColumn
	Period  bool   `json:"period,omitempty"`
	Unknown []bool `json:"unknown,omitempty"`
}

// MarshalJSON gives a form that UnmarshalJSON reads back whole.
func (t *Table) MarshalJSON() ([]byte, error) {
	s := storedTable{Schema: t.Schema, Name: t.TableName.Name, Keys: t.Keys, Versioned: t.Versioned, Volatile: t.Volatile, Hidden: t.hidden}
	for _, c := range t.Columns {
		s.Columns = append(s.Columns, storedColumn{plainColumn(c), c.period, c.unknown})
	}
	return json.Marshal(s)
}

// UnmarshalJSON reads what MarshalJSON wrote.
func (t *Table) UnmarshalJSON(b []byte) error {
	var s storedTable
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	*t = Table{TableName: TableName{s.Schema, s.Name}, Keys: s.Keys, Versioned: s.Versioned, Volatile: s.Volatile, hidden: s.Hidden}
	for _, c := range s.Columns {
		column := Column(c.plainColumn)
		column.period, column.unknown = c.Period, c.Unknown
		t.Columns = append(t.Columns, column)
	}
	return nil
}

// Same reports whether both definitions are stored alike, and so decode every row image alike.
func (t *Table) Same(o *Table) bool {
	a, errA := json.Marshal(t)
	b, errB := json.Marshal(o)
	return errA == nil && errB == nil && bytes.Equal(a, b)
}
