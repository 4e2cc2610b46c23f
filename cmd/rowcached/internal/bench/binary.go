package bench

import (
	"encoding/binary"
	"fmt"
)

// binaryDialect is the binary protocol ("protocol_binary.txt"): GET and SET; a get of many keys is as many GETQ, which
// answer only hits, and a NOOP. The opaque of a request is its key's place in the batch.
type binaryDialect struct{}

const (
	binaryHeader  = 24
	binaryRequest = 0x80
	binaryAnswer  = 0x81

	opGet  = 0x00
	opSet  = 0x01
	opGetQ = 0x09
	opNoop = 0x0a

	statusOK      = 0
	statusMissing = 1
)

func appendHeader(b []byte, op byte, key, extras, value int, opaque uint32) []byte {
	b = append(b, binaryRequest, op)
	b = binary.BigEndian.AppendUint16(b, uint16(key))
	b = append(b, byte(extras), 0, 0, 0)
	b = binary.BigEndian.AppendUint32(b, uint32(key+extras+value))
	b = binary.BigEndian.AppendUint32(b, opaque)
	return append(b, 0, 0, 0, 0, 0, 0, 0, 0)
}

func (d binaryDialect) request(c *client, kind uint8) {
	if kind == setRequest {
		start := len(c.out)
		c.out = appendHeader(c.out, opSet, 0, 8, 0, uint32(len(c.keys)))
		c.out = append(c.out, 0, 0, 0, 0, 0, 0, 0, 0) // flags, expiry
		number := c.draw()
		c.out = append(c.out, c.w.space.value(number)...)
		setLengths(c.out[start:], int(c.keys[len(c.keys)-1].n))
		return
	}
	op := byte(opGet)
	if c.w.spec.Workload == Multiget {
		op = opGetQ
	}
	for range c.w.spec.perGet() {
		start := len(c.out)
		c.out = appendHeader(c.out, op, 0, 0, 0, uint32(len(c.keys)))
		c.draw()
		setLengths(c.out[start:], int(c.keys[len(c.keys)-1].n))
	}
	if op == opGetQ {
		c.out = appendHeader(c.out, opNoop, 0, 0, 0, uint32(len(c.keys)))
	}
}

// setLengths writes the lengths of a request whose key came after its header.
func setLengths(request []byte, key int) {
	binary.BigEndian.PutUint16(request[2:], uint16(key))
	binary.BigEndian.PutUint32(request[8:], uint32(len(request)-binaryHeader))
}

func (d binaryDialect) reply(c *client, b []byte) (n int, done bool, err error) {
	kind := c.kinds[c.at]
	many := kind == getRequest && c.w.spec.Workload == Multiget
	for {
		if c.inRow {
			n += c.take(b[n:])
			if c.inRow {
				return n, false, nil
			}
			if !c.skip {
				c.found()
			}
			c.skip = false
			if !many {
				return n, true, nil
			}
		}
		h := b[n:]
		if len(h) < binaryHeader {
			return n, false, nil
		}
		op, extras, status := h[1], int(h[4]), binary.BigEndian.Uint16(h[6:])
		body, opaque := int(binary.BigEndian.Uint32(h[8:])), int(binary.BigEndian.Uint32(h[12:]))
		if h[0] != binaryAnswer || int(binary.BigEndian.Uint16(h[2:]))+extras > body || body > 1<<30+1<<10 {
			return n, false, fmt.Errorf("a reply cannot be read: %q", h[:binaryHeader])
		}
		if many && op == opNoop && opaque == c.last {
			c.absent(c.last)
			return n + binaryHeader, true, nil
		}
		if opaque < c.item || opaque >= c.last {
			return n, false, fmt.Errorf("a reply came that was not asked for: %q", h[:binaryHeader])
		}
		switch {
		case status == statusMissing && kind == getRequest && !many:
			n += binaryHeader
			c.absent(c.last)
			c.pass(body)
		case status != statusOK:
			n += binaryHeader
			c.spoil("the server answers with status %#x", status)
			c.item = opaque + 1
			c.pass(body)
		case kind == setRequest:
			n += binaryHeader
			c.pass(body)
		default:
			if extras != 4 || h[2] != 0 || h[3] != 0 {
				return n, false, fmt.Errorf("a reply to get cannot be read: %q", h[:binaryHeader])
			}
			if len(h) < binaryHeader+extras {
				return n, false, nil
			}
			n += binaryHeader + extras
			c.absent(opaque)
			c.expect(body-extras, 0)
		}
	}
}
