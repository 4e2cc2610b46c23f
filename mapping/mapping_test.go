package mapping

import (
	"database/sql"
	"testing"

	"github.com/rowcached/rowcached/binlog"
)

// users is a table with most kinds of column.
func users() *binlog.Table {
	return &binlog.Table{
		TableName: binlog.TableName{Schema: "shop", Name: "users"},
		Versioned: -1,
		Columns: []binlog.Column{
			{Name: "id", Kind: binlog.KindInt, Type: "int(10) unsigned zerofill", Bytes: 4, Unsigned: true, Zerofill: true, Width: 10},
			{Name: "Name", Kind: binlog.KindText, Type: "varchar(40)", Charset: "utf8mb4"},
			{Name: "region", Kind: binlog.KindText, Type: "varchar(40)", Charset: "utf8mb4", Nullable: true},
			{Name: "shard", Kind: binlog.KindInt, Type: "smallint", Bytes: 2},
			{Name: "price", Kind: binlog.KindDecimal, Type: "decimal(10,2) unsigned zerofill", Precision: 10, Decimals: 2, Zerofill: true, Unsigned: true, Nullable: true},
			{Name: "ratio", Kind: binlog.KindDouble, Type: "double", Decimals: -1, Nullable: true},
			{Name: "bits", Kind: binlog.KindBit, Type: "bit(12)", Width: 12, Nullable: true},
			{Name: "born", Kind: binlog.KindYear, Type: "year", Nullable: true},
			{Name: "doc", Kind: binlog.KindJSON, Type: "json", Nullable: true},
			{Name: "raw", Kind: binlog.KindBinary, Type: "varbinary(40)", Nullable: true},
			{Name: "kind", Kind: binlog.KindEnum, Type: "enum('a','b')", Labels: []string{"a", "b"}, Nullable: true},
			{Name: "expires", Kind: binlog.KindInt, Type: "bigint", Bytes: 8, Nullable: true},
			{Name: "hidden", Kind: binlog.KindInt, Type: "int", Bytes: 4, Invisible: true, Nullable: true},
		},
		Keys: []binlog.Key{
			{Name: "PRIMARY", Columns: []int{0}},
			{Name: "by_name", Columns: []int{1, 3}},
		},
	}
}

// query makes a row of column texts by name; a nil text is NULL.
func query(t testing.TB, table *binlog.Table, texts map[string][]byte) *binlog.Row {
	t.Helper()
	var cols []int
	var vals []sql.RawBytes
	for name, text := range texts {
		o := table.Column(name)
		if o < 0 {
			t.Fatalf("the table has no column %q", name)
		}
		cols, vals = append(cols, o), append(vals, text)
	}
	r := new(binlog.Row)
	r.SetQuery(table, cols, vals)
	return r
}

func compiled(t testing.TB, s Spec, table *binlog.Table) *Mapping {
	t.Helper()
	m, err := Compile(s, table)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestColumnsAreThoseTheMappingReads(t *testing.T) {
	m := compiled(t, Spec{Key: "u:{name}:{shard}", Value: ValueSpec{Columns: []string{"raw", "id"}}, Expire: "expires", Flags: "SHARD"}, users())
	want := []int{0, 1, 3, 9, 11}
	got := m.Columns()
	if len(got) != len(want) {
		t.Fatalf("columns %v, want %v", got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Fatalf("columns %v, want %v", got, want)
		}
	}
}

func TestNoAllocationPerRow(t *testing.T) {
	table := users()
	r := query(t, table, map[string][]byte{
		"id": []byte("0000000042"), "Name": []byte("a:b%\"c\""), "shard": []byte("-7"), "region": []byte("\x01 \n \\"),
		"price": []byte("00000012.50"), "ratio": []byte("1e20"), "bits": {0x0a, 0xbc}, "born": []byte("1999"),
		"doc": []byte(`{"a": 1}`), "raw": {0, 1, 2, 255}, "kind": []byte("b"), "expires": []byte("1700000000"),
	})
	for _, format := range []string{FormatJSON, FormatText} {
		m := compiled(t, Spec{Key: "u:{name}:{shard}", Value: ValueSpec{Format: format}, Expire: "expires", Flags: "shard", CAS: "expires"}, table)
		buf := make([]byte, 0, 4096)
		allocs := testing.AllocsPerRun(1000, func() {
			var err error
			if buf, err = m.AppendKey(buf[:0], r); err != nil {
				t.Fatal(err)
			}
			if buf, err = m.AppendValue(buf[:0], r); err != nil {
				t.Fatal(err)
			}
			_ = m.Flags(r)
			_ = m.Expire(r, 1)
			_, _ = m.CAS(r)
		})
		if allocs != 0 {
			t.Errorf("%s: %v allocations for a row, want none", format, allocs)
		}
	}
}

func BenchmarkRow(b *testing.B) {
	table := users()
	r := query(b, table, map[string][]byte{
		"id": []byte("0000000042"), "Name": []byte("Ada Lovelace"), "shard": []byte("-7"), "region": nil,
		"price": []byte("00000012.50"), "ratio": []byte("1e20"), "bits": {0x0a, 0xbc}, "born": []byte("1999"),
		"doc": []byte(`{"a": 1}`), "raw": {0, 1, 2, 255}, "kind": []byte("b"), "expires": []byte("1700000000"),
	})
	for _, format := range []string{FormatJSON, FormatText} {
		b.Run(format, func(b *testing.B) {
			m := compiled(b, Spec{Key: "u:{id}", Value: ValueSpec{Format: format}}, table)
			buf := make([]byte, 0, 4096)
			b.ReportAllocs()
			for b.Loop() {
				buf, _ = m.AppendKey(buf[:0], r)
				buf, _ = m.AppendValue(buf, r)
			}
		})
	}
}
