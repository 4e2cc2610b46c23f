package binlog

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rowcached/rowcached/integration/servers"
)

var update = flag.Bool("update", false, "write the tables under charset/ anew, from MySQL")

// charsetLongest gives the most bytes that a character may have, by character set; one for the rest.
var charsetLongest = map[string]int{
	"big5": 2, "cp932": 2, "sjis": 2, "gbk": 2, "gb2312": 2, "euckr": 2, "ujis": 3, "eucjpms": 3, "gb18030": 4,
	"ucs2": 2, "utf16": 4, "utf16le": 4, "utf32": 4, "utf8mb3": 3, "utf8mb4": 4,
}

// TestCharsetTables reads the tables from MySQL and compares them with those in the repository, or writes them.
func TestCharsetTables(t *testing.T) {
	s := newCharsetServer(t, servers.MySQL97)
	file := func(name string, b []byte) {
		t.Helper()
		name = "charset/" + name + ".bin"
		if *update {
			if err := os.WriteFile(name, b, 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		had, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(had, b) {
			t.Errorf("%s differs from what the server has", name)
		}
	}
	// code gives the code point of a text that has to be one character; a question mark is none.
	code := func(text []byte) rune {
		r, n := utf8.DecodeRune(text)
		if n != len(text) || n == 0 || r == '?' || r > 0xffff {
			return 0
		}
		return r
	}

	var sequences [][]byte
	for a := range 256 {
		sequences = append(sequences, []byte{byte(a)})
	}
	s.store(t, sequences)
	var single []byte
	for name := range strings.FieldsSeq(charsetSingleNames) {
		table := make([]byte, 512)
		s.text(t, name, 1, func(i int, text []byte) {
			r := code(text)
			if string(text) == "?" && i == '?' {
				r = '?'
			}
			binary.LittleEndian.PutUint16(table[2*i:], uint16(r))
		})
		single = append(single, table...)
	}
	file("single", single)

	sequences = nil
	for a := range 128 {
		for b := range 256 {
			sequences = append(sequences, []byte{0x80 | byte(a), byte(b)})
		}
	}
	long := len(sequences)
	for a := range 128 {
		for b := range 128 {
			sequences = append(sequences, []byte{0x8f, 0x80 | byte(a), 0x80 | byte(b)})
		}
	}
	s.store(t, sequences)
	for _, name := range []string{"big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis"} {
		cs, err := findCharset(name, false)
		if err != nil {
			t.Fatal(err)
		}
		size := cs.pairs.size()
		table := make([]byte, 2*size)
		if name == "ujis" || name == "eucjpms" {
			table = make([]byte, 4*size)
		}
		s.text(t, name, charsetLongest[name], func(i int, text []byte) {
			b := sequences[i]
			place := 0
			if i >= long {
				if len(table) == 2*size {
					return
				}
				b, place = b[1:], size
			}
			if k := cs.pairs.index(b[0], b[1]); k >= 0 {
				binary.LittleEndian.PutUint16(table[2*(place+k):], uint16(code(text)))
			}
		})
		file(name, table)
	}

	// The characters of four bytes of gb18030 are few runs of code points. The rows hold ten each, which differ in the
	// last byte.
	sequences = nil
	for i := range 126 * 10 * 126 {
		var b []byte
		for d := range 10 {
			b = append(b, 0x81+byte(i/1260), 0x30+byte(i/126%10), 0x81+byte(i%126), 0x30+byte(d))
		}
		sequences = append(sequences, b)
	}
	s.store(t, sequences)
	codes := make([]rune, 10*len(sequences))
	s.text(t, "gb18030", 4, func(i int, text []byte) {
		if utf8.RuneCount(text) != 10 {
			t.Fatalf("%x: %q", sequences[i], text)
		}
		for d := range 10 {
			r, n := utf8.DecodeRune(text)
			text = text[n:]
			if r == '?' {
				r = 0
			}
			codes[10*i+d] = r
		}
	})
	var runs []byte
	for i, r := range codes {
		if i > 0 && (r == 0 && codes[i-1] == 0 || r != 0 && r == codes[i-1]+1) {
			continue
		}
		runs = append(runs, byte(i), byte(i>>8), byte(i>>16), byte(r), byte(r>>8), byte(r>>16))
	}
	file("gb18030-long", runs)
}

// TestCharsets compares the conversion of every character set, on every server, with what SELECT gives: of every byte,
// every pair of bytes, every three and four bytes that a character set gives a meaning, each whole, cut short and followed
// by others.
func TestCharsets(t *testing.T) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			s := newCharsetServer(t, kind)
			charsets := serverCharsets(t, s)
			compared, differences := 0, 0
			for _, sequences := range charsetSequences() {
				s.store(t, sequences.bytes)
				for _, name := range charsets {
					if len(sequences.charsets) > 0 && !strings.Contains(" "+sequences.charsets+" ", " "+name+" ") {
						continue
					}
					cs, err := findCharset(name, s.mariadb)
					if err != nil {
						t.Error(err)
						continue
					}
					bad := 0
					s.text(t, name, max(charsetLongest[name], 1), func(i int, want []byte) {
						compared++
						got := sequences.bytes[i]
						if cs != nil {
							got = cs.appendUTF8(nil, got)
						}
						if bytes.Equal(got, want) {
							return
						}
						if bad++; bad <= 5 {
							t.Errorf("%s of %x: %q, the server has %q", name, sequences.bytes[i], got, want)
						}
					})
					if bad > 5 {
						t.Errorf("%s: %d differences in all", name, bad)
					}
					differences += bad
				}
			}
			t.Logf("%s %s: %d character sets, %d sequences, %d differences", kind, s.srv.Version, len(charsets), compared, differences)
		})
	}
}

func serverCharsets(t *testing.T, s *charsetServer) []string {
	t.Helper()
	rows, err := s.srv.DB().Query("SELECT CHARACTER_SET_NAME FROM information_schema.CHARACTER_SETS WHERE CHARACTER_SET_NAME<>'binary' ORDER BY 1")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return all
}

// sequenceSet is bytes to compare in some character sets, all when none is named.
type sequenceSet struct {
	charsets string
	bytes    [][]byte
}

func charsetSequences() []sequenceSet {
	var single sequenceSet
	pairs := sequenceSet{charsets: "ascii latin1 swe7 big5 cp932 sjis gbk gb2312 euckr ujis eucjpms gb18030 ucs2 utf16 utf16le utf32 utf8mb3 utf8mb4"}
	for a := range 256 {
		single.bytes = append(single.bytes, []byte{byte(a)}, []byte{byte(a), ' ', ' '}, []byte{'a', byte(a)})
		for b := range 256 {
			pairs.bytes = append(pairs.bytes, []byte{byte(a), byte(b)}, []byte{byte(a), byte(b), ' ', ' '}, []byte{byte(a), byte(b), byte(a), byte(b)})
		}
	}
	// Behind the first bytes of long characters, all that may follow them and their neighbours.
	eucjp, mb3, long := sequenceSet{charsets: "ujis eucjpms"}, sequenceSet{charsets: "utf8mb3"}, sequenceSet{charsets: "gb18030"}
	for b := range 256 {
		for c := range 256 {
			eucjp.bytes = append(eucjp.bytes, []byte{0x8f, byte(b), byte(c)})
			for _, a := range []byte{0xdf, 0xe0, 0xe1, 0xed, 0xef, 0xf0} {
				if b >= 0x7e && b <= 0xc1 && c >= 0x7e && c <= 0xc1 {
					mb3.bytes = append(mb3.bytes, []byte{a, byte(b), byte(c)}, []byte{a, byte(b), byte(c), '0'})
				}
			}
			for _, a := range []byte{0x80, 0x81, 0xfe, 0xff} {
				if b >= 0x2f && b <= 0x3a {
					long.bytes = append(long.bytes, []byte{a, byte(b), byte(c)}, []byte{a, byte(b), byte(c), '0'}, []byte{a, byte(b), byte(c), ':'})
				}
			}
		}
	}
	wide := sequenceSet{charsets: "utf16 utf16le utf32 ucs2 gb18030"}
	for _, a := range []byte{0x00, 0x01, 0x10, 0x1f, 0x20, 0x30, 0xd8, 0xdb, 0xdc, 0xff} {
		for b := 0; b < 256; b += 5 {
			for _, c := range []byte{0, 1, 0x30, 0x39, 0x81, 0xd7, 0xd8, 0xdb, 0xdc, 0xdf, 0xe0, 0xfe, 0xff} {
				for _, d := range []byte{0, 0x30, 0xd8, 0xdf, 0xff} {
					wide.bytes = append(wide.bytes, []byte{a, byte(b), c, d}, []byte{byte(b), a, c, d}, []byte{byte(b), a, c})
				}
			}
		}
	}
	// Every code point, ten to a row, and every character of four bytes of gb18030.
	utf16, utf32, gb18030 := sequenceSet{charsets: "utf16 utf16le"}, sequenceSet{charsets: "utf32"}, sequenceSet{charsets: "gb18030"}
	var row16, row32, row18030 []byte
	for code := uint32(0x10000); code < 0x110000; code++ {
		row16 = binary.BigEndian.AppendUint16(row16, uint16(0xd800+(code-0x10000)>>10))
		row16 = binary.BigEndian.AppendUint16(row16, uint16(0xdc00+(code-0x10000)&0x3ff))
		if len(row16) == charsetOctets {
			utf16.bytes = append(utf16.bytes, row16)
			little := bytes.Clone(row16)
			for i := 0; i < len(little); i += 2 {
				little[i], little[i+1] = little[i+1], little[i]
			}
			utf16.bytes = append(utf16.bytes, little)
			row16 = nil
		}
	}
	for code := uint32(0); code < 0x110000; code++ {
		if row32 = binary.BigEndian.AppendUint32(row32, code); len(row32) == charsetOctets {
			utf32.bytes = append(utf32.bytes, row32)
			row32 = nil
		}
	}
	for i := range 126 * 10 * 126 * 10 {
		row18030 = append(row18030, 0x81+byte(i/12600), 0x30+byte(i/1260%10), 0x81+byte(i/10%126), 0x30+byte(i%10))
		if len(row18030) == 40 {
			gb18030.bytes = append(gb18030.bytes, row18030)
			row18030 = nil
		}
	}
	return []sequenceSet{single, pairs, eucjp, mb3, long, wide, utf16, utf32, gb18030}
}

// TestCharsetUnknown: a character set nobody knows is refused.
func TestCharsetUnknown(t *testing.T) {
	if _, err := findCharset("klingon", false); err == nil {
		t.Fatal("no error")
	}
}

func BenchmarkCharset(b *testing.B) {
	for _, name := range []string{"latin1", "utf8mb3", "gbk", "utf16"} {
		cs, err := findCharset(name, false)
		if err != nil {
			b.Fatal(err)
		}
		src := bytes.Repeat([]byte("a plain text of some fifty characters in all, \xb0\xa1"), 2)
		b.Run(fmt.Sprint(name), func(b *testing.B) {
			b.SetBytes(int64(len(src)))
			b.ReportAllocs()
			var dst []byte
			for b.Loop() {
				dst = cs.appendUTF8(dst[:0], src)
			}
		})
	}
}
