package binlog

import "unicode/utf8"

// The functions here are charset.decode for one kind of character set each. src is not empty.

func decodeSingle(cs *charset, src []byte) (rune, int) {
	code := tableCode(cs.table, int(src[0]))
	if code == 0 && src[0] != 0 {
		return noCode, 1
	}
	return code, 1
}

func decodeASCII(_ *charset, src []byte) (rune, int) {
	if src[0] < utf8.RuneSelf {
		return rune(src[0]), 1
	}
	return noCode, 1
}

// decodeDouble is for big5, euckr, gb2312 and gbk. MySQL takes any byte above ASCII for the first of two; MariaDB looks at
// both.
func decodeDouble(cs *charset, src []byte) (rune, int) {
	a := src[0]
	if a < utf8.RuneSelf {
		return rune(a), 1
	}
	if !cs.mysql && (a < cs.pairs.first || a > cs.pairs.last) {
		return noCode, 1
	}
	if len(src) < 2 {
		return noCode, 0
	}
	b := src[1]
	if cs.mysql && cs.pairs.from == 0xa1 {
		b |= 0x80 // its gb2312 does not look at that bit
	}
	i := cs.pairs.index(a, b)
	if i >= 0 {
		if code := tableCode(cs.table, i); code != 0 {
			return code, 2
		}
	}
	if cs.mysql || i >= 0 && cs.second(b) {
		return noCode, 2
	}
	return noCode, 1
}

// second says whether b may be the second byte of a pair.
func (cs *charset) second(b byte) bool {
	switch cs.pairs.from {
	case 0x41: // euckr
		return b <= 0x5a || b >= 0x61 && b <= 0x7a || b >= 0x81
	case 0xa1: // gb2312
		return true
	}
	if cs.pairs.first == 0xa1 { // big5
		return b <= 0x7e || b >= 0xa1
	}
	return b != 0x7f // gbk, gb18030, sjis, cp932
}

// decodeSJIS is for sjis and cp932.
func decodeSJIS(cs *charset, src []byte) (rune, int) {
	a := src[0]
	switch {
	case a < utf8.RuneSelf:
		return rune(a), 1
	case a >= 0xa1 && a <= 0xdf: // half-width katakana
		return rune(a) - 0xa1 + 0xff61, 1
	case cs.mysql && len(src) < 2:
		return noCode, 0
	case a == 0x80 || a == 0xa0 || a > 0xfc:
		return noCode, 1
	case len(src) < 2:
		return noCode, 0
	}
	i := cs.pairs.index(a, src[1])
	if i < 0 || !cs.second(src[1]) {
		return noCode, 1
	}
	if code := tableCode(cs.table, i); code != 0 {
		return code, 2
	}
	return noCode, 2
}

// decodeEUCJP is for ujis and eucjpms: pairs of JIS X 0208, half-width katakana behind 0x8e, pairs of JIS X 0212 behind
// 0x8f, which stand second in the table.
func decodeEUCJP(cs *charset, src []byte) (rune, int) {
	a := src[0]
	switch {
	case a < utf8.RuneSelf:
		return rune(a), 1
	case a != 0x8e && a != 0x8f && (a < 0xa1 || a == 0xff):
		return noCode, 1
	case len(src) < 2:
		return noCode, 0
	case a == 0x8e:
		if b := src[1]; b >= 0xa1 && b <= 0xdf {
			return rune(b) - 0xa1 + 0xff61, 2
		}
		return noCode, 1
	case a == 0x8f:
		return cs.decodeEUCJPLong(src)
	}
	i := cs.pairs.index(a, src[1])
	if i < 0 {
		return noCode, 1
	}
	if code := tableCode(cs.table, i); code != 0 {
		return code, 2
	}
	return noCode, 2
}

func (cs *charset) decodeEUCJPLong(src []byte) (rune, int) {
	if len(src) < 3 {
		return noCode, 0
	}
	if src[1] == 0 && src[2] > 0 && src[2] < utf8.RuneSelf { // an oddity of the servers' tables
		return rune(src[2]), 3
	}
	i := cs.pairs.index(src[1], src[2])
	if i < 0 {
		return noCode, 1
	}
	if code := tableCode(cs.table, cs.pairs.size()+i); code != 0 {
		return code, 3
	}
	return noCode, 3
}

// decodeGB18030 is for MySQL's gb18030, with characters of one, two and four bytes.
func decodeGB18030(cs *charset, src []byte) (rune, int) {
	a := src[0]
	switch {
	case a < utf8.RuneSelf:
		return rune(a), 1
	case a == 0x80 || a == 0xff:
		return noCode, 1
	case len(src) < 2:
		return noCode, 0
	}
	b := src[1]
	if b >= 0x30 && b <= 0x39 {
		if len(src) < 4 {
			return noCode, 0
		}
		c, d := src[2], src[3]
		if c < 0x81 || c == 0xff || d < 0x30 || d > 0x39 {
			return noCode, 1
		}
		return longGB18030(((int(a-0x81)*10+int(b-0x30))*126+int(c-0x81))*10 + int(d-0x30)), 4
	}
	i := cs.pairs.index(a, b)
	if i < 0 || !cs.second(b) {
		return noCode, 1
	}
	if code := tableCode(cs.table, i); code != 0 {
		return code, 2
	}
	return noCode, 2
}

// gb18030Run is the size of an entry of charset/gb18030-long.bin: the first of a run of characters of four bytes, counted
// from 81308130, and its code point, which the following count on from; code points of 0 begin a run that has none.
const gb18030Run = 6

// longGB18030 gives the code point of the i-th character of four bytes.
func longGB18030(i int) rune {
	table := charsetGB18030Long
	number := func(at int) int { return int(table[at]) | int(table[at+1])<<8 | int(table[at+2])<<16 }
	low, high := 0, len(table)/gb18030Run // the last run that begins at or before i
	for high-low > 1 {
		middle := (low + high) / 2
		if number(middle*gb18030Run) <= i {
			low = middle
		} else {
			high = middle
		}
	}
	first, code := number(low*gb18030Run), number(low*gb18030Run+3)
	if code == 0 {
		return noCode
	}
	return rune(code + i - first)
}

// soundUTF8MB3 says whether src is UTF-8 without characters of four bytes.
func soundUTF8MB3(src []byte) bool {
	for _, b := range src {
		if b >= 0xf0 {
			return false
		}
	}
	return utf8.Valid(src)
}

// decodeUTF8MB3: MariaDB takes surrogates for characters.
func decodeUTF8MB3(cs *charset, src []byte) (rune, int) {
	a := src[0]
	switch {
	case a < utf8.RuneSelf:
		return rune(a), 1
	case a < 0xc2 || a > 0xef:
		return noCode, 1
	case a < 0xe0:
		if len(src) < 2 {
			return noCode, 0
		}
		if src[1]&0xc0 != 0x80 {
			return noCode, 1
		}
		return rune(a&0x1f)<<6 | rune(src[1]&0x3f), 2
	case len(src) < 3:
		return noCode, 0
	case src[1]&0xc0 != 0x80 || src[2]&0xc0 != 0x80 || a == 0xe0 && src[1] < 0xa0,
		cs.mysql && a == 0xed && src[1] >= 0xa0:
		return noCode, 1
	}
	return rune(a&0x0f)<<12 | rune(src[1]&0x3f)<<6 | rune(src[2]&0x3f), 3
}

func decodeUCS2(_ *charset, src []byte) (rune, int) {
	if len(src) < 2 {
		return noCode, 0
	}
	return rune(src[0])<<8 | rune(src[1]), 2
}

func decodeUTF16(_ *charset, src []byte) (rune, int) {
	return utf16Code(src, 0, 1)
}

func decodeUTF16LE(_ *charset, src []byte) (rune, int) {
	return utf16Code(src, 1, 0)
}

// utf16Code reads a character whose units have their high and low byte at these places.
func utf16Code(src []byte, high, low int) (rune, int) {
	if len(src) < 2 {
		return noCode, 0
	}
	unit := rune(src[high])<<8 | rune(src[low])
	switch {
	case unit < 0xd800 || unit > 0xdfff:
		return unit, 2
	case unit >= 0xdc00:
		return noCode, 1
	case len(src) < 4:
		return noCode, 0
	}
	second := rune(src[2+high])<<8 | rune(src[2+low])
	if second < 0xdc00 || second > 0xdfff {
		return noCode, 1
	}
	return 0x10000 + (unit-0xd800)<<10 + (second - 0xdc00), 4
}

// decodeUTF32: MySQL takes any number for a character, MariaDB those of Unicode.
func decodeUTF32(cs *charset, src []byte) (rune, int) {
	if len(src) < 4 {
		return noCode, 0
	}
	u := bigUint(src[:4])
	switch {
	case u <= 0x10ffff || cs.mysql && u <= 0x1fffff:
		return rune(u), 4
	case cs.mysql:
		return noCode, 4
	}
	return noCode, 1
}
