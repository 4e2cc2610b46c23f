package binlog

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"hash/adler32"
	"io"
)

// The header byte of a value in a MariaDB COMPRESSED column: 0 before bytes that are not compressed, else the method in
// the high bits and in the low ones the number of bytes that give the length of the value, most significant first.
const (
	compressedZlib     = 0x80
	compressedRaw      = 0x08 // without zlib's own header and checksum
	compressedLength   = 0x07
	compressedMaxRatio = 1032 // of deflate
)

// inflater is what a Row keeps to read COMPRESSED columns with.
type inflater struct {
	source bytes.Reader
	flate  io.ReadCloser
	text   []byte // of the last value that has to be converted as well
}

// textCompressed appends the value of a COMPRESSED column.
func textCompressed(r *Row, c *imageColumn, dst, cell []byte) ([]byte, error) {
	if len(cell) == 0 {
		return dst, nil
	}
	if cell[0] == 0 {
		if c.charset != nil {
			return c.charset.appendUTF8(dst, cell[1:]), nil
		}
		return append(dst, cell[1:]...), nil
	}
	if r.zlib == nil {
		r.zlib = &inflater{}
	}
	z := r.zlib
	if c.charset == nil {
		return z.inflate(dst, cell)
	}
	var err error
	if z.text, err = z.inflate(z.text[:0], cell); err != nil {
		return dst, err
	}
	return c.charset.appendUTF8(dst, z.text), nil
}

// inflate appends what a compressed value holds.
func (z *inflater) inflate(dst, cell []byte) ([]byte, error) {
	head, size := cell[0], int(cell[0]&compressedLength)
	if head&^(compressedRaw|compressedLength) != compressedZlib || size < 1 || size > 4 || len(cell) < 1+size {
		return dst, fmt.Errorf("%w: the header of a compressed value is unknown", ErrCorrupt)
	}
	length, data := bigUint(cell[1:1+size]), cell[1+size:]
	var sum uint32
	if head&compressedRaw == 0 {
		if len(data) < 6 || data[0]&15 != 8 || data[1]&0x20 != 0 || (int(data[0])<<8|int(data[1]))%31 != 0 {
			return dst, fmt.Errorf("%w: not a zlib stream", ErrCorrupt)
		}
		sum = binary.BigEndian.Uint32(data[len(data)-4:])
		data = data[2 : len(data)-4]
	}
	if length > uint64(len(data))*compressedMaxRatio {
		return dst, fmt.Errorf("%w: a compressed value is too short for its length", ErrCorrupt)
	}
	z.source.Reset(data)
	if z.flate == nil {
		z.flate = flate.NewReader(&z.source)
	} else if err := z.flate.(flate.Resetter).Reset(&z.source, nil); err != nil {
		return dst, fmt.Errorf("%w: %v", ErrCorrupt, err)
	}
	start := len(dst)
	for need := int(length); len(dst)-start < need; {
		n := len(dst)
		if room := cap(dst) - n; room == 0 {
			// In steps: a corrupt length must not take memory that no data comes for.
			dst = append(dst, make([]byte, min(need-(n-start), 1<<20))...)[:n]
		}
		k, err := z.flate.Read(dst[n:min(cap(dst), start+need)])
		dst = dst[:n+k]
		if err != nil && len(dst)-start < need {
			return dst[:start], fmt.Errorf("%w: a compressed value ends early: %v", ErrCorrupt, err)
		}
	}
	if head&compressedRaw == 0 && adler32.Checksum(dst[start:]) != sum {
		return dst[:start], fmt.Errorf("%w: a compressed value has another checksum", ErrCorrupt)
	}
	return dst, nil
}
