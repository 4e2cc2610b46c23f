package binlog

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"testing"
)

// FuzzImage: whatever the bytes, an image is an error that says so, or every text of it can be asked for.
func FuzzImage(f *testing.F) {
	table, types, meta := testColumns()
	var decoders []*ImageDecoder
	for _, mariadb := range []bool{false, true} {
		d, err := NewImageDecoder(table, types, meta, mariadb)
		if err != nil {
			f.Fatal(err)
		}
		decoders = append(decoders, d)
	}
	all := presentAll(len(types))
	f.Add(all, zeroImage(decoders[0]), false)
	f.Add([]byte{0x0f, 0, 0, 0, 0}, make([]byte, 11), true)
	f.Add(all, bytes.Repeat([]byte{0xff}, 300), false)
	for i := range types { // each column alone
		present := make([]byte, len(all))
		present[i/8] = 1 << (i % 8)
		f.Add(present, append([]byte{0}, bytes.Repeat([]byte{0x88, 1, 0x80}, 20)...), true)
		f.Add(present, append([]byte{0, 9, 0, 0, 0}, bytes.Repeat([]byte{0x81, 3}, 40)...), false)
	}
	f.Fuzz(func(t *testing.T, present, data []byte, mariadb bool) {
		d := decoders[0]
		if mariadb {
			d = decoders[1]
		}
		var row Row
		for _, set := range []func(*ImageDecoder, []byte, []byte) (int, error){row.SetImage, row.SetPartialImage} {
			n, err := set(d, present, data)
			if err != nil {
				if !errors.Is(err, ErrCorrupt) {
					t.Fatal(err)
				}
				continue
			}
			if n > len(data) {
				t.Fatalf("%d bytes of %d", n, len(data))
			}
			for i := range table.Columns {
				text, err := row.AppendText([]byte("before"), i)
				if err != nil && !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrShape) && !errors.Is(err, ErrPartialJSON) {
					t.Fatal(err)
				}
				if !bytes.HasPrefix(text, []byte("before")) || err != nil && len(text) != len("before") {
					t.Fatalf("column %d, %v: %q", i, err, text)
				}
				// The most that deflate, base64 and escapes make of a byte.
				if len(text) > 4096+compressedMaxRatio*4*len(data) {
					t.Fatalf("column %d: %d bytes of text from %d", i, len(text), len(data))
				}
				if !row.Has(i) && len(text) != len("before") {
					t.Fatalf("column %d is absent and has text", i)
				}
				row.Int(i)
			}
		}
	})
}

// FuzzJSON: whatever the bytes, a document is an error, or JSON of a size in proportion.
func FuzzJSON(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{jsonLiteral, 0})
	f.Add([]byte{jsonSmallArray, 1, 0, 7, 0, jsonInt16, 5, 0})
	f.Add([]byte{jsonSmallObject, 1, 0, 12, 0, 11, 0, 1, 0, jsonInt16, 5, 0, 'k'})
	f.Add([]byte{jsonOpaque, typeNewDecimal, 4, 3, 2, 0x81, 10})
	f.Add([]byte{jsonOpaque, typeTime, 8, 0, 0, 0, 0, 0x80, 0, 0, 0})
	f.Add(append([]byte{jsonDouble}, binary.LittleEndian.AppendUint64(nil, 0x3ff0000000000000)...))
	f.Add([]byte{jsonSmallArray, 2, 0, 10, 0, jsonSmallArray, 0, 0, jsonSmallArray, 0, 0}) // holds itself
	f.Fuzz(func(t *testing.T, cell []byte) {
		text, err := textJSON(nil, nil, nil, cell)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%x gives %q", cell, text)
		}
		if len(text) > 64+100*len(cell) {
			t.Fatalf("%d bytes give %d", len(cell), len(text))
		}
	})
}

func FuzzColumnMeta(f *testing.F) {
	f.Add([]byte{typeTiny, typeVarchar, typeString}, []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, types, block []byte) {
		meta, err := columnMeta(types, block)
		if err == nil && len(meta) != len(types) {
			t.Fatal(len(meta))
		}
		if err != nil {
			return
		}
		table := &Table{Versioned: -1, hidden: len(types)} // of hidden columns alone
		d, err := NewImageDecoder(table, types, meta, false)
		if err != nil {
			return
		}
		var row Row
		if n, err := row.SetImage(d, presentAll(len(types)), block); err == nil && n > len(block) {
			t.Fatal(n)
		}
	})
}

func FuzzParseLabels(f *testing.F) {
	f.Add(`enum('a','b''c','\\')`)
	f.Fuzz(func(t *testing.T, typ string) {
		if labels, err := parseLabels(typ); err == nil && len(labels) == 0 {
			t.Fatal("no labels and no error")
		}
	})
}

func FuzzCharset(f *testing.F) {
	names := []string{"latin1", "utf8mb3", "ucs2", "utf16", "utf16le", "utf32", "big5", "euckr", "gb2312", "gbk", "gb18030", "cp932", "sjis", "ujis", "eucjpms", "ascii"}
	for i := range names {
		f.Add(uint8(i), []byte{0x81, 0x30, 0x81, 0x30, 0x8f, 0xa1, 0xff}, false)
		f.Add(uint8(i), []byte{0x00, 0x11, 0xff, 0xd8, 0xdc, 0x41}, true)
	}
	f.Fuzz(func(t *testing.T, which uint8, src []byte, mariadb bool) {
		cs, err := findCharset(names[int(which)%len(names)], mariadb)
		if err != nil {
			t.Fatal(err)
		}
		if text := cs.appendUTF8(nil, src); len(text) > 3*len(src) {
			t.Fatalf("%d bytes give %d", len(src), len(text))
		}
		cs.trimBlanks(src)
	})
}
