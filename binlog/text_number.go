package binlog

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
)

func textInt(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	return strconv.AppendInt(dst, littleInt(cell), 10), nil
}

func textUint(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	return strconv.AppendUint(dst, littleUint(cell), 10), nil
}

func textZerofill(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	start := len(dst)
	return padZeros(strconv.AppendUint(dst, littleUint(cell), 10), start, c.pad), nil
}

// padZeros puts zeros before what dst has after start, to make it width bytes long.
func padZeros(dst []byte, start, width int) []byte {
	size := len(dst) - start
	if size >= width {
		return dst
	}
	for range width - size {
		dst = append(dst, '0')
	}
	copy(dst[len(dst)-size:], dst[start:start+size])
	for i := range width - size {
		dst[start+i] = '0'
	}
	return dst
}

// textYear appends YEAR: a byte that counts from 1900, 0 for the year 0000. A YEAR(2) shows its last two digits.
func textYear(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	year := int(cell[0])
	if c.column.Width == 2 {
		return appendPadded(dst, year%100, 2), nil
	}
	if year != 0 {
		year += 1900
	}
	return appendPadded(dst, year, 4), nil
}

// textFloat appends FLOAT.
func textFloat(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return c.appendReal(dst, float64(math.Float32frombits(binary.LittleEndian.Uint32(cell))))
}

// textDouble appends DOUBLE.
func textDouble(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	return c.appendReal(dst, math.Float64frombits(binary.LittleEndian.Uint64(cell)))
}

func (c *imageColumn) appendReal(dst []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return dst, fmt.Errorf("%w: not a finite number", ErrCorrupt)
	}
	if f == 0 && c.mariadb {
		f = 0 // it has no negative zero
	}
	return appendColumnReal(dst, c.column, f), nil
}

// appendColumnReal appends f as its column shows it: the shortest digits that give the float32 or float64 back, laid out
// as the server lays out a number, or exactly d decimals for FLOAT(m,d) and DOUBLE(m,d).
func appendColumnReal(dst []byte, c *Column, f float64) []byte {
	size := 64
	if c.Kind == KindFloat {
		f, size = float64(float32(f)), 32
	}
	start := len(dst)
	if c.Decimals >= 0 {
		dst = appendFixed(dst, f, c.Decimals)
	} else {
		dst = appendReal(dst, f, size)
	}
	if c.Zerofill {
		dst = padZeros(dst, start, c.Width)
	}
	return dst
}

// parseFloat reads the server's text of a DOUBLE without an allocation.
func parseFloat(v []byte) (float64, bool) {
	// Most are short: up to 15 digits and a small power of ten are exact in float64 arithmetic.
	if len(v) > 0 && len(v) <= 16 {
		i, digits, point := 0, 0, -1
		var mantissa uint64
		negative := v[0] == '-'
		if negative {
			i++
		}
		for ; i < len(v); i++ {
			switch c := v[i]; {
			case c >= '0' && c <= '9':
				mantissa = mantissa*10 + uint64(c-'0')
				digits++
			case c == '.' && point < 0:
				point = digits
			default:
				digits = 99
			}
		}
		if digits >= 1 && digits <= 15 {
			f := float64(mantissa)
			if point >= 0 {
				f /= pow10[digits-point]
			}
			if negative {
				f = math.Copysign(f, -1)
			}
			return f, true
		}
	}
	f, err := strconv.ParseFloat(string(v), 64) // the conversion does not escape
	return f, err == nil
}

// appendFixed appends f with so many decimals, as the server does (its my_fcvt): where the shortest digits that give the
// float64 back have no more decimals, zeros follow them, and the digits of the exact value do not show.
func appendFixed(dst []byte, f float64, decimals int) []byte {
	start := len(dst)
	dst = strconv.AppendFloat(dst, f, 'f', -1, 64)
	have, point := 0, false
	for i := len(dst) - 1; i >= start; i-- {
		if dst[i] == '.' {
			have, point = len(dst)-1-i, true
			break
		}
	}
	if have > decimals {
		return strconv.AppendFloat(dst[:start], f, 'f', decimals, 64)
	}
	if !point && decimals > 0 {
		dst = append(dst, '.')
	}
	for ; have < decimals; have++ {
		dst = append(dst, '0')
	}
	return dst
}

var pow10 = [...]float64{1, 1e1, 1e2, 1e3, 1e4, 1e5, 1e6, 1e7, 1e8, 1e9, 1e10, 1e11, 1e12, 1e13, 1e14, 1e15}

// realPlain is how far the point may be from the first digit before the server changes to an exponent.
const realPlain = 15

// appendReal appends the shortest digits that give f back as a float of so many bits, laid out as the server does (its
// my_gcvt): plain from 1e-15 below 1e15 and wherever there are digits behind the point, else d.ddde-n with no sign for a
// positive exponent and no zero before it.
func appendReal(dst []byte, f float64, size int) []byte {
	var space [32]byte
	e := strconv.AppendFloat(space[:0], f, 'e', -1, size) // [-]d[.ddd]e±dd
	if e[0] == '-' {
		dst = append(dst, '-')
		e = e[1:]
	}
	if f == 0 {
		return append(dst, '0')
	}
	// Take it apart: digits without the point, and the exponent.
	mark := len(e) - 1
	for e[mark] != 'e' {
		mark--
	}
	exponent := 0
	for _, c := range e[mark+2:] {
		exponent = exponent*10 + int(c-'0')
	}
	if e[mark+1] == '-' {
		exponent = -exponent
	}
	digits := e[:1]
	if mark > 1 {
		copy(e[1:], e[2:mark])
		digits = e[:mark-1]
	}
	point := exponent + 1 // the value is 0.digits times 10 to that power
	switch {
	case point > realPlain && point >= len(digits) || point < 1-realPlain:
		dst = append(dst, digits[0])
		if len(digits) > 1 {
			dst = append(dst, '.')
			dst = append(dst, digits[1:]...)
		}
		dst = append(dst, 'e')
		return strconv.AppendInt(dst, int64(exponent), 10)
	case point <= 0:
		dst = append(dst, '0', '.')
		for range -point {
			dst = append(dst, '0')
		}
		return append(dst, digits...)
	case point >= len(digits):
		dst = append(dst, digits...)
		for range point - len(digits) {
			dst = append(dst, '0')
		}
		return dst
	}
	dst = append(dst, digits[:point]...)
	dst = append(dst, '.')
	return append(dst, digits[point:]...)
}
