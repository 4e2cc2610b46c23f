package binlog

import (
	"bufio"
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

const (
	payloadWindow = 128 << 20 // what a zstd frame may ask to look back; the server's levels use up to 8 MiB, ultra ones 128
	payloadBuffer = 64 << 10
	payloadKeep   = 4 << 20
	inflateMost   = 1 << 30 // rows of one MariaDB event; max_allowed_packet's own limit
)

// payloadReader gives the events inside a TRANSACTION_PAYLOAD. It decompresses as it goes: a transaction that grows a
// thousandfold takes no more memory than its largest event.
type payloadReader struct {
	on     bool
	raw    bytes.Reader
	zstd   *zstd.Decoder
	plain  *bufio.Reader
	header [headerSize]byte
	event  []byte
}

func (p *payloadReader) active() bool { return p.on }

func (p *payloadReader) reset() {
	p.on = false
	if p.zstd != nil {
		// Forget the packet; an error is what resetting to nothing gives.
		_ = p.zstd.Reset(nil)
	}
}

// open begins with a TRANSACTION_PAYLOAD (MySQL source documentation, page "Transaction_payload_event"): fields of a
// type, a length and a value, then the payload. The packet stays in the connection's buffer, which is not read on before
// the payload has ended.
func (p *payloadReader) open(e *rawEvent) error {
	b := byteReader{b: e.body}
	compression := uint64(255)
	size := uint64(0)
	for {
		kind := b.lenenc()
		if kind == 0 || b.short {
			break
		}
		value := byteReader{b: b.take(int(min(b.lenenc(), 1<<20)))}
		switch kind {
		case 1:
			size = value.lenenc()
		case 2:
			compression = value.lenenc()
		}
	}
	if b.short || size > uint64(len(b.b)) {
		return e.corrupt("cut short")
	}
	data := b.b
	if size != 0 {
		data = data[:size]
	}
	p.raw.Reset(data)
	var plain io.Reader = &p.raw
	switch compression {
	case 255: // none
	case 0:
		if p.zstd == nil {
			d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxWindow(payloadWindow), zstd.WithDecoderLowmem(true))
			if err != nil {
				return fmt.Errorf("make a zstd decoder: %w", err)
			}
			p.zstd = d
		}
		if err := p.zstd.Reset(&p.raw); err != nil {
			return e.corrupt("zstd: " + err.Error())
		}
		plain = p.zstd
	default:
		return e.corrupt(fmt.Sprintf("compression %d", compression))
	}
	if p.plain == nil {
		p.plain = bufio.NewReaderSize(plain, payloadBuffer)
	} else {
		p.plain.Reset(plain)
	}
	p.on = true
	return nil
}

// next gives the next event, valid until the next call; io.EOF at the end. The events inside have no checksum.
func (p *payloadReader) next() (rawEvent, error) {
	if _, err := io.ReadFull(p.plain, p.header[:]); err != nil {
		if err == io.EOF {
			return rawEvent{}, io.EOF
		}
		return rawEvent{}, fmt.Errorf("%w: read a compressed transaction: %w", errProtocol, err)
	}
	size := int(binary.LittleEndian.Uint32(p.header[9:]))
	if size < headerSize {
		return rawEvent{}, fmt.Errorf("%w: a compressed event of %d bytes", errProtocol, size)
	}
	if cap(p.event) > payloadKeep && size <= payloadKeep {
		p.event = nil
	}
	p.event = append(p.event[:0], p.header[:]...)
	// Grown as the bytes come: the header alone is not believed.
	for len(p.event) < size {
		start := len(p.event)
		p.event = grow(p.event, min(size-start, 1<<20))
		if _, err := io.ReadFull(p.plain, p.event[start:]); err != nil {
			return rawEvent{}, fmt.Errorf("%w: read a compressed transaction: %w", errProtocol, err)
		}
	}
	return parseEvent(p.event, false)
}

// inflateMariaDB appends to dst what MariaDB compressed for log_bin_compress: a byte with the algorithm and the number of
// length bytes, the length of the plain bytes with its highest byte first, then a zlib stream.
func inflateMariaDB(dst, b []byte) ([]byte, error) {
	if len(b) < 2 {
		return dst, errors.New("compressed data is cut short")
	}
	if b[0]&0x80 == 0 || b[0]>>4&7 != 0 {
		return dst, fmt.Errorf("unknown compression %#x", b[0])
	}
	n := int(b[0] & 7)
	if n < 1 || n > 4 || len(b) < 1+n {
		return dst, errors.New("compressed data has no length")
	}
	size := 0
	for _, c := range b[1 : 1+n] {
		size = size<<8 | int(c)
	}
	if size > inflateMost {
		return dst, fmt.Errorf("compressed data grows to %d bytes", size)
	}
	z, err := zlib.NewReader(bytes.NewReader(b[1+n:]))
	if err != nil {
		return dst, fmt.Errorf("zlib: %w", err)
	}
	start := len(dst)
	for len(dst)-start < size {
		at := len(dst)
		dst = grow(dst, min(size-(at-start), 1<<20))
		if _, err := io.ReadFull(z, dst[at:]); err != nil {
			return dst[:start], fmt.Errorf("zlib: %w", err)
		}
	}
	var more [1]byte
	if _, err := io.ReadFull(z, more[:]); err != io.EOF { // the end, where the checksum is
		return dst[:start], fmt.Errorf("zlib: more than %d bytes, or a wrong end", size)
	}
	return dst, z.Close()
}
