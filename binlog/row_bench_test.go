package binlog

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/replication"
)

const benchRows = 1000 // in an event

// BenchmarkDecode turns an event of rows with six columns into text, beside its naive sibling: go-mysql's decoding of the
// same event into boxed values, of which no text is made yet. An operation is a row.
func BenchmarkDecode(b *testing.B) {
	table, types, meta := userTable()
	var images []byte
	for i := range benchRows {
		images = append(images, userImage(1000000+i)...)
	}
	b.Run("text", func(b *testing.B) {
		d, err := NewImageDecoder(table, types, meta, false)
		if err != nil {
			b.Fatal(err)
		}
		present := presentAll(len(types))
		b.ReportAllocs()
		b.SetBytes(int64(len(images) / benchRows))
		var row Row
		var dst []byte
		rest := images
		for b.Loop() {
			if len(rest) == 0 {
				rest = images
			}
			n, err := row.SetImage(d, present, rest)
			if err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
			dst = dst[:0]
			for i := range types {
				if dst, err = row.AppendText(dst, i); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
	b.Run("go-mysql", func(b *testing.B) {
		parser := replication.NewBinlogParser()
		parser.SetUseDecimal(false)
		for _, event := range [][]byte{benchFormat(), benchTableMap(types)} {
			if _, err := parser.Parse(event); err != nil {
				b.Fatal(err)
			}
		}
		event := benchEvent(30, append([]byte{1, 0, 0, 0, 0, 0, 0, 0, 2, 0, byte(len(types)), presentAll(len(types))[0]}, images...))
		b.ReportAllocs()
		b.SetBytes(int64(len(images) / benchRows))
		rows := 0
		for b.Loop() {
			if rows == 0 {
				e, err := parser.Parse(event)
				if err != nil {
					b.Fatalf("%.100s", err) // it shows all of the data
				}
				if rows = len(e.Event.(*replication.RowsEvent).Rows); rows != benchRows {
					b.Fatal(rows)
				}
			}
			rows--
		}
	})
}

// benchEvent puts a header before an event's body.
func benchEvent(typ byte, body []byte) []byte {
	b := binary.LittleEndian.AppendUint32(nil, 1)
	b = append(b, typ)
	b = binary.LittleEndian.AppendUint32(b, 1)
	b = binary.LittleEndian.AppendUint32(b, uint32(19+len(body)))
	b = binary.LittleEndian.AppendUint32(b, 0)
	return append(append(b, 0, 0), body...)
}

// benchFormat is a FORMAT_DESCRIPTION event without checksums.
func benchFormat() []byte {
	b := []byte{4, 0}
	b = append(b, "8.0.0"+strings.Repeat("\x00", 45)...)
	b = append(b, 0, 0, 0, 0, 19)
	lengths := bytes.Repeat([]byte{0}, 41)
	lengths[19-1], lengths[30-1], lengths[31-1], lengths[32-1] = 8, 10, 10, 10
	return benchEvent(15, append(append(b, lengths...), 0, 0, 0, 0, 0))
}

// benchTableMap is the TABLE_MAP of userTable.
func benchTableMap(types []byte) []byte {
	b := []byte{1, 0, 0, 0, 0, 0, 1, 0, 1, 's', 0, 1, 't', 0, byte(len(types))}
	b = append(b, types...)
	b = append(b, 7, 0x90, 0x01, 0x90, 0x01, 10, 2, 0) // two lengths of 400, DECIMAL(10,2), no fraction
	return benchEvent(19, append(b, 0))
}
