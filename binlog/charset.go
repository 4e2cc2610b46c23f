package binlog

import (
	_ "embed" // the tables
	"encoding/binary"
	"fmt"
	"strings"
	"unicode/utf8"
)

// The tables under charset/ were read from a server (TestCharsetTables with -update writes them): for each character a
// code point of 16 bits, least significant byte first, 0 where there is none.
var (
	//go:embed charset/single.bin
	charsetSingle string // of each set in charsetSingleNames, 256 characters
	//go:embed charset/big5.bin
	charsetBig5 string
	//go:embed charset/cp932.bin
	charsetCP932 string
	//go:embed charset/eucjpms.bin
	charsetEUCJPMS string
	//go:embed charset/euckr.bin
	charsetEUCKR string
	//go:embed charset/gb18030.bin
	charsetGB18030 string
	//go:embed charset/gb18030-long.bin
	charsetGB18030Long string
	//go:embed charset/gb2312.bin
	charsetGB2312 string
	//go:embed charset/gbk.bin
	charsetGBK string
	//go:embed charset/sjis.bin
	charsetSJIS string
	//go:embed charset/ujis.bin
	charsetUJIS string
)

// charsetSingleNames are the character sets of one byte, in the order of charset/single.bin.
const charsetSingleNames = "armscii8 cp1250 cp1251 cp1256 cp1257 cp850 cp852 cp866 dec8 geostd8 greek hebrew hp8 keybcs2 koi8r koi8u " +
	"latin1 latin2 latin5 latin7 macce macroman swe7 tis620"

// charset converts text in one of the servers' character sets to UTF-8, unsound text included, as the server does when it
// sends a column: what has no Unicode character becomes a question mark. MySQL drops a character that is cut short at the
// end; MariaDB writes a question mark for each of its bytes.
type charset struct {
	decode func(cs *charset, src []byte) (code rune, n int)
	table  string // of code points
	pairs  pairs  // where the pairs of bytes are in it
	ascii  bool   // bytes below 0x80 are ASCII wherever a character begins
	utf8   bool   // sound text is UTF-8 already
	blank  string // as CHAR is padded with
	mysql  bool   // MySQL's ways with unsound text, else MariaDB's
}

// What decode gives for a code when there is no character: n bytes become one question mark. n is 0 when src ends inside a
// character.
const noCode = -1

// pairs places the characters of two bytes in a table: rows of second bytes for each first byte.
type pairs struct{ first, last, from, to byte }

func (p pairs) size() int { return (int(p.last-p.first) + 1) * (int(p.to-p.from) + 1) }

// index gives the place of a pair, -1 when it has none.
func (p pairs) index(a, b byte) int {
	if a < p.first || a > p.last || b < p.from || b > p.to {
		return -1
	}
	return int(a-p.first)*(int(p.to-p.from)+1) + int(b-p.from)
}

// at reads a table's code point.
func tableCode(table string, i int) rune { return rune(table[2*i]) | rune(table[2*i+1])<<8 }

// findCharset gives the conversion from a character set, nil when the server sends its bytes as they are.
func findCharset(name string, mariadb bool) (*charset, error) {
	cs := &charset{ascii: true, blank: " ", mysql: !mariadb}
	switch name {
	case "utf8mb4":
		return nil, nil
	case "utf8mb3", "utf8":
		cs.decode, cs.utf8 = decodeUTF8MB3, true
	case "ascii":
		cs.decode = decodeASCII
	case "ucs2":
		cs.decode, cs.ascii, cs.blank = decodeUCS2, false, "\x00 "
	case "utf16":
		cs.decode, cs.ascii, cs.blank = decodeUTF16, false, "\x00 "
	case "utf16le":
		cs.decode, cs.ascii, cs.blank = decodeUTF16LE, false, " \x00"
	case "utf32":
		cs.decode, cs.ascii, cs.blank = decodeUTF32, false, "\x00\x00\x00 "
	case "big5":
		cs.decode, cs.table, cs.pairs = decodeDouble, charsetBig5, pairs{0xa1, 0xf9, 0x40, 0xfe}
	case "euckr":
		cs.decode, cs.table, cs.pairs = decodeDouble, charsetEUCKR, pairs{0x81, 0xfe, 0x41, 0xfe}
	case "gb2312":
		cs.decode, cs.table, cs.pairs = decodeDouble, charsetGB2312, pairs{0xa1, 0xf7, 0xa1, 0xfe}
	case "gbk":
		cs.decode, cs.table, cs.pairs = decodeDouble, charsetGBK, pairs{0x81, 0xfe, 0x40, 0xfe}
	case "gb18030":
		cs.decode, cs.table, cs.pairs = decodeGB18030, charsetGB18030, pairs{0x81, 0xfe, 0x40, 0xfe}
	case "cp932":
		cs.decode, cs.table, cs.pairs = decodeSJIS, charsetCP932, pairs{0x81, 0xfc, 0x40, 0xfc}
	case "sjis":
		cs.decode, cs.table, cs.pairs = decodeSJIS, charsetSJIS, pairs{0x81, 0xfc, 0x40, 0xfc}
	case "ujis":
		cs.decode, cs.table, cs.pairs = decodeEUCJP, charsetUJIS, pairs{0xa1, 0xfe, 0xa1, 0xfe}
	case "eucjpms":
		cs.decode, cs.table, cs.pairs = decodeEUCJP, charsetEUCJPMS, pairs{0xa1, 0xfe, 0xa1, 0xfe}
	default:
		i := 0
		for single := range strings.FieldsSeq(charsetSingleNames) {
			if single == name {
				cs.decode, cs.table = decodeSingle, charsetSingle[512*i:512*(i+1)]
				for b := range 128 {
					cs.ascii = cs.ascii && tableCode(cs.table, b) == rune(b)
				}
				return cs, nil
			}
			i++
		}
		return nil, fmt.Errorf("the character set %s is unknown", name)
	}
	return cs, nil
}

// trimBlanks takes the blanks off the end of a CHAR.
func (cs *charset) trimBlanks(src []byte) []byte {
	for n := len(cs.blank); len(src) >= n && string(src[len(src)-n:]) == cs.blank; {
		src = src[:len(src)-n]
	}
	return src
}

// appendUTF8 appends src in UTF-8.
func (cs *charset) appendUTF8(dst, src []byte) []byte {
	if cs.utf8 && soundUTF8MB3(src) {
		return append(dst, src...)
	}
	for len(src) > 0 {
		if cs.ascii {
			n := asciiRun(src)
			dst = append(dst, src[:n]...)
			if src = src[n:]; len(src) == 0 {
				break
			}
		}
		code, n := cs.decode(cs, src)
		if n == 0 {
			if cs.mysql {
				break
			}
			code, n = noCode, 1
		}
		dst = appendCode(dst, code)
		src = src[n:]
	}
	return dst
}

// asciiRun gives how many bytes below 0x80 src begins with.
func asciiRun(src []byte) int {
	n := 0
	for len(src)-n >= 8 && binary.LittleEndian.Uint64(src[n:])&0x8080808080808080 == 0 {
		n += 8
	}
	for n < len(src) && src[n] < utf8.RuneSelf {
		n++
	}
	return n
}

// appendCode appends a code point in UTF-8. As on the server, it may be a surrogate, or lie beyond Unicode.
func appendCode(dst []byte, code rune) []byte {
	switch {
	case code < 0 || code > 0x1fffff:
		return append(dst, '?')
	case code < 0x80:
		return append(dst, byte(code))
	case code < 0x800:
		return append(dst, 0xc0|byte(code>>6), 0x80|byte(code&63))
	case code < 0x10000:
		return append(dst, 0xe0|byte(code>>12), 0x80|byte(code>>6&63), 0x80|byte(code&63))
	}
	return append(dst, 0xf0|byte(code>>18), 0x80|byte(code>>12&63), 0x80|byte(code>>6&63), 0x80|byte(code&63))
}
