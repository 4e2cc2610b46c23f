package binlog

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"time"
)

const (
	readerSize    = 512 << 10   // one read takes what the kernel has, up to this
	packetMax     = 1<<24 - 1   // a packet of this length goes on in the next one
	oversizeKeep  = 4 << 20     // a buffer for packets larger than the reader's is kept up to this size
	eventSizeMost = 4<<30 - 1   // the header's size field
	longAgo       = time.Second // a deadline this far in the past ends a read at once
)

// packetReader takes the packets of a dump from a connection without copying or allocating: a packet that lies whole in
// the buffer is given out in place. The naive way, a four-byte read for the header and one for the body into a new slice,
// costs two copies and an allocation for each of the five events of a one-row transaction.
type packetReader struct {
	conn    net.Conn
	timeout time.Duration // of silence, after which a read fails
	silence time.Duration // how long reads have waited in vain since the last byte, given up ones included
	buf     []byte
	r, w    int    // the unread bytes are buf[r:w]
	seq     byte   // of the next packet
	big     []byte // a packet larger than buf, or one sent in parts
	onRead  func(n int)

	ctx  context.Context // the context that stop watches
	stop func() bool
}

func newPacketReader(conn net.Conn, timeout time.Duration, seq byte, onRead func(int)) packetReader {
	return packetReader{conn: conn, timeout: timeout, seq: seq, buf: make([]byte, readerSize), onRead: onRead}
}

// whole reports whether the next packet is in the buffer to its end.
func (p *packetReader) whole() bool {
	if p.w-p.r < 4 {
		return false
	}
	n := packetLength(p.buf[p.r:])
	return n < packetMax && p.w-p.r >= 4+n
}

// packetAt gives the payload of the packet that begins at offset at of the unread bytes, and where the next one begins. It is
// not ok when that packet is not in the buffer to its end. The payload is only to be looked at.
func (p *packetReader) packetAt(at int) (payload []byte, next int, ok bool) {
	b := p.buf[p.r+at : p.w]
	if len(b) < 4 {
		return nil, 0, false
	}
	n := packetLength(b)
	if n >= packetMax || len(b) < 4+n {
		return nil, 0, false
	}
	return b[4 : 4+n], at + 4 + n, true
}

func packetLength(b []byte) int { return int(b[0]) | int(b[1])<<8 | int(b[2])<<16 }

// next gives the payload of the next packet, valid until the next call. When ctx ends it returns ctx's error and has lost
// nothing: next may be called again.
func (p *packetReader) next(ctx context.Context) ([]byte, error) {
	for {
		have := p.w - p.r
		if have < 4 {
			if err := p.fill(ctx); err != nil {
				return nil, err
			}
			continue
		}
		n := packetLength(p.buf[p.r:])
		if n < packetMax && have >= 4+n {
			if err := p.takeSeq(p.buf[p.r+3]); err != nil {
				return nil, err
			}
			b := p.buf[p.r+4 : p.r+4+n : p.r+4+n]
			p.r += 4 + n
			return b, nil
		}
		if n == packetMax || 4+n > len(p.buf) {
			return p.nextBig(ctx)
		}
		if err := p.fill(ctx); err != nil {
			return nil, err
		}
	}
}

// nextBig reads a packet that the buffer cannot hold, or one sent in parts, into a slice of its own. A cancelled ctx in
// the middle breaks the connection: half a packet is of no use.
func (p *packetReader) nextBig(ctx context.Context) ([]byte, error) {
	if cap(p.big) > oversizeKeep {
		p.big = nil
	}
	p.big = p.big[:0]
	for {
		for p.w-p.r < 4 {
			if err := p.fill(ctx); err != nil {
				return nil, brokenPacket(err)
			}
		}
		n := packetLength(p.buf[p.r:])
		if err := p.takeSeq(p.buf[p.r+3]); err != nil {
			return nil, err
		}
		p.r += 4
		if len(p.big)+n > eventSizeMost {
			return nil, fmt.Errorf("%w: an event of more than 4 GiB", errProtocol)
		}
		if len(p.big) == 0 && n == packetMax {
			// The event's own header tells how much will come. It is believed up to a point.
			for p.w-p.r < 20 {
				if err := p.fill(ctx); err != nil {
					return nil, brokenPacket(err)
				}
			}
			size := int(binary.LittleEndian.Uint32(p.buf[p.r+1+9:])) + 1
			p.big = make([]byte, 0, min(max(size, n), 64<<20))
		}
		start := len(p.big)
		p.big = grow(p.big, n)
		part := p.big[start:]
		k := copy(part, p.buf[p.r:p.w])
		p.r += k
		for k < n {
			m, err := p.read(ctx, part[k:])
			k += m
			if err != nil {
				return nil, brokenPacket(err)
			}
		}
		if n < packetMax {
			return p.big, nil
		}
	}
}

// brokenPacket marks an error that hit in the middle of a packet: the connection cannot be used any more.
func brokenPacket(err error) error { return fmt.Errorf("%w: %w", errBrokenPacket, err) }

// grow makes b n bytes longer.
func grow(b []byte, n int) []byte {
	if len(b)+n <= cap(b) {
		return b[:len(b)+n]
	}
	c := make([]byte, len(b)+n, max(len(b)+n, 2*cap(b)))
	copy(c, b)
	return c
}

func (p *packetReader) takeSeq(seq byte) error {
	if seq != p.seq {
		return fmt.Errorf("%w: packet %d where %d was due", errProtocol, seq, p.seq)
	}
	p.seq++
	return nil
}

// fill reads once more into the buffer, whose packet at r is not whole.
func (p *packetReader) fill(ctx context.Context) error {
	switch {
	case p.r == p.w:
		p.r, p.w = 0, 0
	case p.r > 0 && (len(p.buf)-p.w < 4096 || p.r > len(p.buf)/2):
		p.w = copy(p.buf, p.buf[p.r:p.w])
		p.r = 0
	}
	n, err := p.read(ctx, p.buf[p.w:])
	p.w += n
	if n > 0 {
		return nil
	}
	return err
}

// read reads what there is, waiting at most the time-out and until ctx ends.
func (p *packetReader) read(ctx context.Context, b []byte) (int, error) {
	p.watch(ctx)
	start := time.Now()
again:
	if err := p.conn.SetReadDeadline(start.Add(max(time.Millisecond, p.timeout-p.silence))); err != nil {
		return 0, err
	}
	if err := ctx.Err(); err != nil { // after the deadline is set: one set by the end of ctx is not undone unseen
		return 0, err
	}
	n, err := p.conn.Read(b)
	waited := time.Since(start)
	if n > 0 {
		p.silence = 0
	} else if errors.Is(err, os.ErrDeadlineExceeded) {
		if ctx.Err() == nil && waited < (p.timeout-p.silence)/2 {
			goto again // the end of an earlier call's context came late
		}
		p.silence += waited
	}
	p.onRead(n)
	if err == nil && n == 0 {
		err = io.ErrNoProgress
	}
	if err != nil && n == 0 && ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return n, err
}

// watch makes the end of ctx interrupt a read. It costs something only when ctx is another than last time.
func (p *packetReader) watch(ctx context.Context) {
	if p.ctx == ctx {
		return
	}
	p.unwatch()
	p.ctx = ctx
	if ctx.Done() == nil {
		return
	}
	conn := p.conn
	p.stop = context.AfterFunc(ctx, func() {
		// An error means that the connection is closed, and then no read waits.
		_ = conn.SetReadDeadline(time.Now().Add(-longAgo))
	})
}

func (p *packetReader) unwatch() {
	if p.stop != nil {
		p.stop()
		p.stop = nil
	}
	p.ctx = nil
}
