package protocol

import "math"

// Uint reads an unsigned decimal number that fills all of b.
// ok is false for an empty b, any other byte, or a value over 64 bits.
func Uint(b []byte) (v uint64, ok bool) {
	if len(b) == 0 || len(b) > 20 {
		return 0, false
	}
	for _, c := range b {
		d := uint64(c - '0')
		if d > 9 {
			return 0, false
		}
		if v > (math.MaxUint64-d)/10 {
			return 0, false
		}
		v = v*10 + d
	}
	return v, true
}

// Int reads a decimal number with an optional minus that fills all of b.
func Int(b []byte) (v int64, ok bool) {
	neg := len(b) > 0 && b[0] == '-'
	if neg {
		b = b[1:]
	}
	u, ok := Uint(b)
	if !ok || u > math.MaxInt64 {
		return 0, false
	}
	if neg {
		return -int64(u), true
	}
	return int64(u), true
}

// AppendUint appends v in decimal. It is strconv.AppendUint without the base.
func AppendUint(dst []byte, v uint64) []byte {
	if v < 10 {
		return append(dst, byte('0'+v))
	}
	var b [20]byte
	i := len(b)
	for v >= 10 {
		q := v / 10
		i--
		b[i] = byte('0' + v - q*10)
		v = q
	}
	i--
	b[i] = byte('0' + v)
	return append(dst, b[i:]...)
}

// AppendInt appends v in decimal.
func AppendInt(dst []byte, v int64) []byte {
	if v < 0 {
		return AppendUint(append(dst, '-'), -uint64(v))
	}
	return AppendUint(dst, uint64(v))
}
