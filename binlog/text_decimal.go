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
	d := decimalReader{cell: cell, flip: 0x80}
	if cell[0]&0x80 == 0 {
		d.turn = 0xffffffff
		dst = append(dst, '-')
		start++
	}
	var whole uint32 // the first digits before the point that are not all zeros
	if n := c.whole % 9; n > 0 {
		whole = d.group(n)
	}
	groups := c.whole / 9
	for ; whole == 0 && groups > 0; groups-- {
		whole = d.group(9)
	}
	dst = strconv.AppendUint(dst, uint64(whole), 10)
	for ; groups > 0; groups-- {
		dst = appendDigits(dst, d.group(9), 9)
	}
	if c.scale > 0 {
		dst = append(dst, '.')
		for range c.scale / 9 {
			dst = appendDigits(dst, d.group(9), 9)
		}
		if n := c.scale % 9; n > 0 {
			dst = appendDigits(dst, d.group(n), n)
		}
	}
	if d.bad {
		return dst, errDecimal
	}
	return padZeros(dst, start, c.pad), nil
}

// decimalReader reads a decimal's groups of digits.
type decimalReader struct {
	cell []byte
	flip byte   // for the first byte
	turn uint32 // all bits for a negative value
	bad  bool   // a group is out of range
}

// group reads n digits.
func (d *decimalReader) group(n int) uint32 {
	size := decimalBytes[n]
	u := uint32(d.cell[0] ^ d.flip)
	d.flip = 0
	for _, b := range d.cell[1:size] {
		u = u<<8 | uint32(b)
	}
	d.cell = d.cell[size:]
	u ^= d.turn >> (32 - 8*size)
	if u >= powers10[n] {
		d.bad = true
		return 0
	}
	return u
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
