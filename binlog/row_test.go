package binlog

import (
	"bytes"
	"database/sql"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// testColumns is a table with a column of every kind, and what a TABLE_MAP says of it.
func testColumns() (*Table, []byte, []uint16) {
	type column struct {
		Column
		typ  byte
		meta uint16
	}
	columns := []column{
		{Column{Kind: KindInt, Bytes: 1}, typeTiny, 0},
		{Column{Kind: KindInt, Bytes: 2, Unsigned: true}, typeShort, 0},
		{Column{Kind: KindInt, Bytes: 3}, typeInt24, 0},
		{Column{Kind: KindInt, Bytes: 4, Unsigned: true, Zerofill: true, Width: 12}, typeLong, 0},
		{Column{Kind: KindInt, Bytes: 8}, typeLongLong, 0},
		{Column{Kind: KindBit, Width: 12}, typeBit, 1<<8 | 4},
		{Column{Kind: KindDecimal, Precision: 20, Decimals: 6}, typeNewDecimal, 20<<8 | 6},
		{Column{Kind: KindFloat, Decimals: -1}, typeFloat, 4},
		{Column{Kind: KindDouble, Decimals: -1}, typeDouble, 8},
		{Column{Kind: KindDouble, Decimals: 3}, typeDouble, 8},
		{Column{Kind: KindYear, Width: 4}, typeYear, 0},
		{Column{Kind: KindDate}, typeDate, 0},
		{Column{Kind: KindTime, Decimals: 3}, typeTime2, 3},
		{Column{Kind: KindDatetime, Decimals: 6}, typeDatetime2, 6},
		{Column{Kind: KindTimestamp, Decimals: 1}, typeTimestamp2, 1},
		{Column{Kind: KindTime}, typeTime, 0},
		{Column{Kind: KindDatetime}, typeDatetime, 0},
		{Column{Kind: KindTimestamp}, typeTimestamp, 0},
		{Column{Kind: KindTime, Decimals: 2}, typeTime, 0},
		{Column{Kind: KindDatetime, Decimals: 3}, typeDatetime, 0},
		{Column{Kind: KindTimestamp, Decimals: 6}, typeTimestamp, 0},
		{Column{Kind: KindText, Charset: "utf8mb4", MaxBytes: 1020}, typeString, 0xce<<8 | 0xfc},
		{Column{Kind: KindText, Charset: "gbk", MaxBytes: 20}, typeString, 0xfe<<8 | 20},
		{Column{Kind: KindText, Charset: "latin1", MaxBytes: 100}, typeVarchar, 100},
		{Column{Kind: KindText, Charset: "utf16", MaxBytes: 400}, typeVarchar, 400},
		{Column{Kind: KindText, Charset: "gb18030", MaxBytes: 65535}, typeBlob, 2},
		{Column{Kind: KindText, Charset: "ujis", MaxBytes: 255}, typeBlob, 1},
		{Column{Kind: KindBinary, Width: 16, MaxBytes: 16}, typeString, 0xfe<<8 | 16},
		{Column{Kind: KindBinary, MaxBytes: 1<<24 - 1}, typeBlob, 3},
		{Column{Kind: KindEnum, Labels: []string{"a", "é"}}, typeString, typeEnum<<8 | 1},
		{Column{Kind: KindSet, Labels: []string{"p", "q", "r"}}, typeString, typeSet<<8 | 1},
		{Column{Kind: KindJSON}, typeJSON, 4},
		{Column{Kind: KindGeometry}, typeGeometry, 4},
		{Column{Kind: KindVector, Width: 3}, typeVector, 4},
		{Column{Kind: KindUUID, Width: 16}, typeString, 0xfe<<8 | 16},
		{Column{Kind: KindInet4, Width: 4}, typeString, 0xfe<<8 | 4},
		{Column{Kind: KindInet6, Width: 16}, typeString, 0xfe<<8 | 16},
		{Column{Kind: KindText, Charset: "utf8mb4", Compressed: true}, typeBlobCompressed, 2},
		{Column{Kind: KindText, Charset: "latin1", Compressed: true}, typeCharCompressed, 300},
	}
	t := &Table{TableName: TableName{"s", "t"}, Versioned: -1}
	var types []byte
	var meta []uint16
	for i, c := range columns {
		c.Name, c.Nullable = "c"+string(rune('A'+i)), true
		t.Columns = append(t.Columns, c.Column)
		types, meta = append(types, c.typ), append(meta, c.meta)
	}
	return t, types, meta
}

// present is the bitmap of n columns that are all present.
func presentAll(n int) []byte {
	b := bytes.Repeat([]byte{0xff}, (n+7)/8)
	if n%8 != 0 {
		b[len(b)-1] = 1<<(n%8) - 1
	}
	return b
}

// userTable is the table of the benchmark: a row that people have.
func userTable() (*Table, []byte, []uint16) {
	t := &Table{TableName: TableName{"s", "t"}, Versioned: -1, Columns: []Column{
		{Name: "id", Kind: KindInt, Bytes: 8},
		{Name: "name", Kind: KindText, Charset: "utf8mb4", MaxBytes: 400},
		{Name: "email", Kind: KindText, Charset: "utf8mb4", MaxBytes: 400},
		{Name: "balance", Kind: KindDecimal, Precision: 10, Decimals: 2},
		{Name: "seen", Kind: KindDatetime},
		{Name: "visits", Kind: KindInt, Bytes: 4},
	}}
	return t, []byte{typeLongLong, typeVarchar, typeVarchar, typeNewDecimal, typeDatetime2, typeLong},
		[]uint16{0, 400, 400, 10<<8 | 2, 0, 0}
}

// userImage is a row of it.
func userImage(id int) []byte {
	b := []byte{0}
	b = binary.LittleEndian.AppendUint64(b, uint64(id))
	for _, s := range []string{"user number and so on", "user@example.com"} {
		b = binary.LittleEndian.AppendUint16(b, uint16(len(s)))
		b = append(b, s...)
	}
	b = append(b, 0x80, 0x01, 0xe2, 0x40, 0x05)       // 123456.05
	b = append(b, 0x99, 0xb2, 0x44, 0x31, 0x05)       // 2024-01-02 03:04:05
	return binary.LittleEndian.AppendUint32(b, 77777) // visits
}

func TestImage(t *testing.T) {
	table, types, meta := userTable()
	d, err := NewImageDecoder(table, types, meta, false)
	if err != nil {
		t.Fatal(err)
	}
	image := userImage(-5)
	var row Row
	n, err := row.SetImage(d, presentAll(6), append(bytes.Clone(image), "next"...))
	if err != nil || n != len(image) {
		t.Fatalf("%d bytes of %d, %v", n, len(image), err)
	}
	if got, want := texts(t, &row), "-5|user number and so on|user@example.com|123456.05|2024-01-02 03:04:05|77777"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if v, unsigned, ok := row.Int(0); v != -5 || unsigned || !ok {
		t.Error(v, unsigned, ok)
	}
	if _, _, ok := row.Int(1); ok {
		t.Error("a VARCHAR is no integer")
	}

	// Columns 0, 3 and 5 alone, 3 NULL.
	partial := append([]byte{0b010}, image[1:9]...)
	partial = append(partial, image[len(image)-4:]...)
	if n, err = row.SetImage(d, []byte{0b101001}, partial); err != nil || n != len(partial) {
		t.Fatal(n, err)
	}
	for i, want := range []string{"has", "", "", "has null", "", "has"} {
		got := ""
		if row.Has(i) {
			got = "has"
		}
		if row.IsNull(i) {
			got += " null"
		}
		if got != want {
			t.Errorf("column %d: %q, want %q", i, got, want)
		}
	}
	if got, want := texts(t, &row), "-5|||||77777"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}

	// No columns at all, as for the insert of a row of defaults with binlog_row_image=MINIMAL.
	if n, err = row.SetImage(d, []byte{0}, nil); err != nil || n != 0 || row.Has(0) {
		t.Fatal(n, err)
	}
}

// texts gives all of a row's texts.
func texts(t *testing.T, row *Row) string {
	t.Helper()
	var all []string
	for i := range row.Table().Columns {
		text, err := row.AppendText(nil, i)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, string(text))
	}
	return strings.Join(all, "|")
}

// TestImageCut cuts an image at every byte: an error that names the table and the place, and shows no data.
func TestImageCut(t *testing.T) {
	table, types, meta := userTable()
	d, err := NewImageDecoder(table, types, meta, false)
	if err != nil {
		t.Fatal(err)
	}
	image := userImage(1)
	var row Row
	for n := range image {
		_, err := row.SetImage(d, presentAll(6), image[:n])
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "s.t") || !strings.Contains(err.Error(), "offset") {
			t.Errorf("%d bytes: %v", n, err)
		}
		if err != nil && strings.Contains(err.Error(), "user@") {
			t.Errorf("%d bytes: the message shows data: %v", n, err)
		}
	}
	if _, err := row.SetImage(d, nil, image); !errors.Is(err, ErrCorrupt) {
		t.Errorf("no bitmap: %v", err)
	}
}

func TestPartialImage(t *testing.T) {
	table := &Table{TableName: TableName{"s", "t"}, Versioned: -1, Columns: []Column{
		{Name: "id", Kind: KindInt, Bytes: 1}, {Name: "a", Kind: KindJSON}, {Name: "b", Kind: KindJSON}}}
	d, err := NewImageDecoder(table, []byte{typeTiny, typeJSON, typeJSON}, []uint16{0, 4, 4}, false)
	if err != nil {
		t.Fatal(err)
	}
	document := []byte{3, 0, 0, 0, jsonInt16, 7, 0}
	image := append([]byte{0, 5}, append(document, document...)...)
	var row Row
	if n, err := row.SetPartialImage(d, presentAll(3), append([]byte{0}, image...)); err != nil || n != len(image)+1 || texts(t, &row) != "5|7|7" {
		t.Errorf("whole documents: %d bytes, %v", n, err)
	}
	if n, err := row.SetPartialImage(d, presentAll(3), append([]byte{1, 0b10}, image...)); err != nil || n != len(image)+2 {
		t.Fatalf("%d bytes, %v", n, err)
	}
	if !row.Has(1) || row.Has(2) || row.IsNull(2) {
		t.Error("the second document is not absent")
	}
	if _, err := row.AppendText(nil, 2); !errors.Is(err, ErrPartialJSON) {
		t.Errorf("partial document: %v", err)
	}
	for _, cut := range [][]byte{nil, {1}, {2, 0}, {0}} {
		if _, err := row.SetPartialImage(d, presentAll(3), cut); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%x: %v", cut, err)
		}
	}
}

func TestQuery(t *testing.T) {
	table, _, _ := testColumns()
	var row Row
	row.SetQuery(table, []int{4, 3, 10, 7, 5}, []sql.RawBytes{[]byte("-12"), []byte("42"), []byte("0"), []byte("1.6777216e+07"), nil})
	for col, want := range map[int]string{4: "-12", 3: "000000000042", 10: "0000", 7: "16777216"} {
		if got, err := row.AppendText(nil, col); string(got) != want || err != nil || !row.Has(col) || row.IsNull(col) {
			t.Errorf("column %d: %q, %v; want %q", col, got, err, want)
		}
	}
	if !row.Has(5) || !row.IsNull(5) || row.Has(0) || row.IsNull(0) {
		t.Error("column 5 is NULL, column 0 absent")
	}
	if v, _, ok := row.Int(4); v != -12 || !ok {
		t.Error(v, ok)
	}
	if v, unsigned, ok := row.Int(3); v != 42 || !unsigned || !ok {
		t.Error(v, unsigned, ok)
	}
}

func TestShape(t *testing.T) {
	table, types, meta := testColumns()
	if _, err := NewImageDecoder(table, types, meta, true); err != nil {
		t.Fatal(err)
	}
	for i, c := range table.Columns {
		// Another type of a value as long; other metadata.
		for _, wrong := range []struct {
			typ  byte
			meta uint16
		}{{typeTiny, 0}, {typeBlob, 4}, {types[i], meta[i] ^ 3}, {types[i], meta[i] ^ 0x3100}, {99, 0}} {
			if c.Kind == KindInt && c.Bytes == 1 && wrong.typ == typeTiny || wrong.meta != meta[i] && types[i] == wrong.typ && metaFree(c, types[i]) {
				continue
			}
			ty, me := bytes.Clone(types), append([]uint16(nil), meta...)
			ty[i], me[i] = wrong.typ, wrong.meta
			if _, err := NewImageDecoder(table, ty, me, true); !errors.Is(err, ErrShape) {
				t.Errorf("%v as type %d, metadata %#x: %v", c, wrong.typ, wrong.meta, err)
			}
		}
	}
	for _, n := range []int{0, 1, len(types) - 1} {
		if _, err := NewImageDecoder(table, types[:n], meta[:n], true); !errors.Is(err, ErrShape) {
			t.Errorf("%d columns: %v", n, err)
		}
	}
	if _, err := NewImageDecoder(table, append(bytes.Clone(types), typeTiny), append(append([]uint16(nil), meta...), 0), true); !errors.Is(err, ErrShape) {
		t.Errorf("a column more: %v", err)
	}
	table.hidden = 1
	if _, err := NewImageDecoder(table, append(bytes.Clone(types), typeTiny), append(append([]uint16(nil), meta...), 0), true); err != nil {
		t.Errorf("a hidden column: %v", err)
	}
}

// metaFree says whether any metadata fits: where there is none, and where it tells no more than the definition does not.
func metaFree(c Column, typ byte) bool {
	switch typ {
	case typeNewDecimal, typeBit, typeTime2, typeDatetime2, typeTimestamp2:
		return false
	case typeString, typeVarchar, typeBlob:
		return c.MaxBytes == 0 && c.Kind != KindEnum && c.Kind != KindSet && c.Kind != KindUUID && c.Kind != KindInet4 && c.Kind != KindInet6
	}
	return true
}

func TestRowAllocates(t *testing.T) {
	table, types, meta := testColumns()
	table.Columns, types, meta = table.Columns[:len(types)-2], types[:len(types)-2], meta[:len(meta)-2] // not COMPRESSED
	d, err := NewImageDecoder(table, types, meta, false)
	if err != nil {
		t.Fatal(err)
	}
	image, present := zeroImage(d), presentAll(len(types))
	var row Row
	var dst []byte
	if allocs := testing.AllocsPerRun(100, func() {
		if _, err := row.SetImage(d, present, image); err != nil {
			t.Fatal(err)
		}
		dst = dst[:0]
		for i := range types {
			if dst, err = row.AppendText(dst, i); err != nil {
				t.Fatal(err)
			}
			row.Int(i)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations for a row image", allocs)
	}
	cols := []int{0, 1, 3, 7, 8, 10, 23}
	vals := []sql.RawBytes{[]byte("1"), []byte("2"), []byte("3"), []byte("0.10000000149011612"), []byte("1e15"), []byte("0"), []byte("text")}
	if allocs := testing.AllocsPerRun(100, func() {
		row.SetQuery(table, cols, vals)
		dst = dst[:0]
		for _, c := range cols {
			if dst, err = row.AppendText(dst, c); err != nil {
				t.Fatal(err)
			}
			row.Int(c)
		}
	}); allocs != 0 {
		t.Errorf("%v allocations for a query's row", allocs)
	}
}

// zeroImage is an image whose values are few zeros, of which every type makes something.
func zeroImage(d *ImageDecoder) []byte {
	image := make([]byte, (len(d.columns)+7)/8)
	for i := range d.columns {
		c := &d.columns[i]
		cell := make([]byte, c.fixed)
		switch {
		case c.column.Kind == KindDecimal, c.column.Kind == KindDatetime && c.fixed == 8 && c.fsp == 6:
			cell[0] = 0x80
		case c.column.Kind == KindTime && c.fsp == 3:
			cell[0] = 0x80
		case c.column.Kind == KindTime && c.fsp == 2:
			copy(cell, []byte{0x11, 0x80, 0x00, 0x00})
		case c.column.Kind == KindJSON:
			cell = []byte{jsonSmallArray, 1, 0, 7, 0, jsonInt16, 5, 0}
		case c.prefix > 0:
			cell = []byte{'0', '1', '2', '3'}
		}
		var prefix [4]byte
		binary.LittleEndian.PutUint32(prefix[:], uint32(len(cell)))
		image = append(append(image, prefix[:c.prefix]...), cell...)
	}
	return image
}
