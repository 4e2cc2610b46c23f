package binlog

import (
	"encoding/json"
	"reflect"
	"testing"
)

// TestTableStored: every field of a definition, those of this package too, comes back from its stored form. Fields are set by
// reflection, so that one added later is in the test.
func TestTableStored(t *testing.T) {
	table := Table{TableName: TableName{"a.b", "c`d"}, Keys: []Key{{"PRIMARY", []int{1, 0}}}, Versioned: 1, hidden: 2}
	kinds := reflect.TypeOf(Column{})
	for i := range kinds.NumField() {
		c := Column{Name: kinds.Field(i).Name}
		switch f := kinds.Field(i); {
		case f.Name == "period":
			c.period = true
		case f.Name == "unknown":
			c.unknown = []bool{false, true}
		case !f.IsExported():
			t.Fatalf("Column.%s is not stored", f.Name)
		default:
			switch v := reflect.ValueOf(&c).Elem().Field(i); v.Kind() {
			case reflect.Bool:
				v.SetBool(true)
			case reflect.String:
				v.SetString("é\x01")
			case reflect.Int:
				v.SetInt(-1)
			case reflect.Uint8:
				v.SetUint(7)
			case reflect.Slice:
				v.Set(reflect.ValueOf([]string{"x", ""}))
			default:
				t.Fatalf("Column.%s has a type that this test does not set", f.Name)
			}
		}
		table.Columns = append(table.Columns, c)
	}
	text, err := json.Marshal(&table)
	if err != nil {
		t.Fatal(err)
	}
	var back Table
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if !table.Same(&back) {
		t.Errorf("stored %+v\nread   %+v", table, back)
	}
	for i := range back.Columns {
		if name := kinds.Field(i).Name; name != "Name" {
			saved := back.Columns[i]
			back.Columns[i] = Column{Name: saved.Name}
			if table.Same(&back) {
				t.Errorf("a column that differs in %s is the same", name)
			}
			back.Columns[i] = saved
		}
	}
}
