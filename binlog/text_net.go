package binlog

import (
	"fmt"
	"strconv"
)

const hexDigits = "0123456789abcdef"

// fixed copies a cell whose zeros at the end the image leaves out.
func fixed(space *[16]byte, cell []byte, size int) ([]byte, error) {
	if len(cell) > size {
		return nil, fmt.Errorf("%w: %d bytes in a value of %d", ErrCorrupt, len(cell), size)
	}
	copy(space[:], cell)
	return space[:size], nil
}

// textUUID appends MariaDB's UUID. The server stores the groups of versions 1 to 5 in the opposite order, so that values
// sort by time, and other values as they are.
func textUUID(_ *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	var space [16]byte
	u, err := fixed(&space, cell, 16)
	if err != nil {
		return dst, err
	}
	order := [16]uint8{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
	if u[6]&0x80 != 0 && u[8] > 0 && u[8] < 0x60 {
		order = [16]uint8{12, 13, 14, 15, 10, 11, 8, 9, 6, 7, 0, 1, 2, 3, 4, 5}
	}
	for i, k := range order {
		if i == 4 || i == 6 || i == 8 || i == 10 {
			dst = append(dst, '-')
		}
		dst = append(dst, hexDigits[u[k]>>4], hexDigits[u[k]&15])
	}
	return dst, nil
}

func textInet4(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	var space [16]byte
	u, err := fixed(&space, cell, 4)
	if err != nil {
		return dst, err
	}
	for i, b := range u {
		if i > 0 {
			dst = append(dst, '.')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return dst, nil
}

// textInet6 appends MariaDB's INET6. It is not quite RFC 5952: a single zero group is left out as well, and whatever begins
// with six groups of zeros, or five and ffff, ends like an IPv4 address.
func textInet6(_ *Row, _ *imageColumn, dst, cell []byte) ([]byte, error) {
	var space [16]byte
	u, err := fixed(&space, cell, 16)
	if err != nil {
		return dst, err
	}
	var groups [8]uint16
	for i := range groups {
		groups[i] = uint16(u[2*i])<<8 | uint16(u[2*i+1])
	}
	gap, size := -1, 0 // the longest run of zeros
	for i := 0; i < 8; i++ {
		from := i
		for i < 8 && groups[i] == 0 {
			i++
		}
		if i-from > size {
			gap, size = from, i-from
		}
	}
	for i := 0; i < 8; i++ {
		if i == gap {
			if i == 0 {
				dst = append(dst, ':')
			}
			dst = append(dst, ':')
			i += size - 1
			continue
		}
		if i == 6 && gap == 0 && (size == 6 || size == 5 && groups[5] == 0xffff) {
			return textInet4(nil, nil, dst, u[12:])
		}
		dst = strconv.AppendUint(dst, uint64(groups[i]), 16)
		if i != 7 {
			dst = append(dst, ':')
		}
	}
	return dst, nil
}
