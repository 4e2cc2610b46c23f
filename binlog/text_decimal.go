package binlog

import (
	"fmt"
	"strconv"
)

// decimalBytes is how many bytes hold 0 to 9 decimal digits.
var decimalBytes = [10]int{0, 1, 1, 2, 2, 3, 3, 4, 4, 4}

// decimalSize gives the bytes of so many digits, either side of the point.
func decimalSize(digits int) int { return digits/9*4 + decimalBytes[digits%9] }

// textDecimal appends DECIMAL(p,s): groups of nine digits in four bytes, most significant first, the odd digits at the
// outer ends in fewer; the first bit is set for a value that is not negative, and a negative one has every bit turned
// (the MySQL source documentation, decimal2bin).
func textDecimal(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	if len(cell) == 0 {
		return dst, fmt.Errorf("%w: a decimal of no digits", ErrCorrupt)
	}
	start := len(dst)
	var turn uint32
	if cell[0]&0x80 == 0 {
		turn = 0xffffffff
		dst = append(dst, '-')
		start++
	}
	pos := 0
	// group reads n digits.
	group := func(n int) (uint32, bool) {
		size := decimalBytes[n]
		var u uint32
		for i := range size {
			b := uint32(cell[pos+i])
			if pos+i == 0 {
				b ^= 0x80
			}
			u = u<<8 | b
		}
		pos += size
		u ^= turn >> (32 - 8*size)
		return u, u < powers10[n]
	}
	whole := false // a digit other than a leading zero was written
	if n := c.whole % 9; n > 0 {
		u, ok := group(n)
		if !ok {
			return dst, errDecimal
		}
		if u != 0 {
			dst = strconv.AppendUint(dst, uint64(u), 10)
			whole = true
		}
	}
	for range c.whole / 9 {
		u, ok := group(9)
		if !ok {
			return dst, errDecimal
		}
		if whole {
			dst = appendDigits(dst, u, 9)
		} else if u != 0 {
			dst = strconv.AppendUint(dst, uint64(u), 10)
			whole = true
		}
	}
	if !whole {
		dst = append(dst, '0')
	}
	if c.scale > 0 {
		dst = append(dst, '.')
		for range c.scale / 9 {
			u, ok := group(9)
			if !ok {
				return dst, errDecimal
			}
			dst = appendDigits(dst, u, 9)
		}
		if n := c.scale % 9; n > 0 {
			u, ok := group(n)
			if !ok {
				return dst, errDecimal
			}
			dst = appendDigits(dst, u, n)
		}
	}
	return padZeros(dst, start, c.pad), nil
}

var errDecimal = fmt.Errorf("%w: a decimal's group of digits is out of range", ErrCorrupt)

var powers10 = [10]uint32{1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000, 1000000000}

// appendDigits appends u as n digits.
func appendDigits(dst []byte, u uint32, n int) []byte {
	var space [9]byte
	for i := n - 1; i >= 0; i-- {
		space[i] = byte('0' + u%10)
		u /= 10
	}
	return append(dst, space[:n]...)
}

// appendPadded appends v, which is not negative, with at least n digits.
func appendPadded(dst []byte, v, n int) []byte {
	start := len(dst)
	return padZeros(strconv.AppendInt(dst, int64(v), 10), start, n)
}
