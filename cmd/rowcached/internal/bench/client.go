package bench

import (
	"bytes"
	"fmt"
	"time"
)

// headroom is how much room a client needs in front of what it is given to read, for the part of a line that the bytes
// before left over. It bounds a line of a reply.
const headroom = 2048

// What a request is.
const (
	getRequest = iota
	setRequest
)

// keyAt is a key in a client's output.
type keyAt struct {
	number uint32
	off    uint32
	n      uint32
}

// client is one connection's state: a batch of requests on its way, and where in their replies it is. It does no I/O.
type client struct {
	w *worker

	out     []byte  // the batch, whole until all its replies are there
	sent    int     // bytes of out that the kernel has
	kinds   []uint8 // of the batch's requests
	keys    []keyAt // asked for, request by request
	began   time.Duration
	counted bool // the batch was sent while operations counted

	at    int // replies that are complete
	item  int // the key whose item comes next, of keys
	last  int // the end of the current request's keys
	bad   bool
	value []byte // what is still to come of the item's value; nil: not to be compared
	left  int    // bytes still to come of a value, or of a text to pass over
	tail  int    // bytes still to come of the line end after it
	skip  bool   // what is to come is not a value
	inRow bool   // an item's value or text is being read
	rest  []byte // the beginning of a line

	hits, misses uint64 // of the current reply
}

// busy tells whether replies are to come.
func (c *client) busy() bool { return c.at < len(c.kinds) }

// begin makes the next batch, whose latency counts from now. It gives false when there is nothing more to ask.
func (c *client) begin(now time.Duration) bool {
	w := c.w
	c.out, c.kinds, c.keys = c.out[:0], c.kinds[:0], c.keys[:0]
	c.sent, c.at, c.item, c.last = 0, 0, 0, 0
	c.began, c.counted = now, w.counting
	for len(c.kinds) < w.spec.Depth {
		kind, ok := w.next()
		if !ok {
			break
		}
		c.kinds = append(c.kinds, kind)
		w.proto.request(c, kind)
	}
	c.startReply()
	return len(c.kinds) > 0
}

// startReply turns to the next reply.
func (c *client) startReply() {
	c.item = c.last
	if c.at < len(c.kinds) {
		c.last += c.w.keysOf(c.kinds[c.at])
	}
	c.bad, c.inRow, c.skip = false, false, false
	c.hits, c.misses = 0, 0
}

// draw chooses a key, appends it to the output and remembers it.
func (c *client) draw() uint32 {
	number := c.w.choose()
	off := len(c.out)
	c.out = c.w.space.appendKey(c.out, number)
	c.keys = append(c.keys, keyAt{number, uint32(off), uint32(len(c.out) - off)})
	return number
}

// key is the key whose item comes next.
func (c *client) key() []byte {
	k := c.keys[c.item]
	return c.out[k.off : k.off+k.n]
}

// read takes buf[from:to], which the server sent; buf[from-headroom:from] may be overwritten. It tells whether the
// batch's replies are complete. An error means that the connection is of no more use.
func (c *client) read(buf []byte, from, to int, now time.Duration) (bool, error) {
	if n := len(c.rest); n > 0 {
		from -= n
		copy(buf[from:], c.rest)
		c.rest = c.rest[:0]
	}
	b := buf[from:to]
	for c.busy() {
		n, done, err := c.w.proto.reply(c, b)
		if err != nil {
			return false, err
		}
		b = b[n:]
		if !done {
			break
		}
		c.w.count(c, now)
		c.at++
		c.startReply()
	}
	if c.busy() {
		if len(b) > headroom {
			return false, fmt.Errorf("a line of more than %d bytes came: %.40q", headroom, b)
		}
		c.rest = append(c.rest, b...)
		return false, nil
	}
	if len(b) > 0 {
		return false, fmt.Errorf("more came than was asked for: %.40q", b)
	}
	return true, nil
}

// expect begins the value of the current key's item, with a line end of so many bytes after it.
func (c *client) expect(size, tail int) {
	c.inRow, c.left, c.tail = true, size, tail
	if c.w.spec.AnyValue {
		c.value = nil
		return
	}
	c.value = c.w.space.value(c.keys[c.item].number)
	if size != len(c.value) {
		c.spoil("the value of %s has %d bytes instead of %d", c.key(), size, len(c.value))
		c.value = nil
	}
}

// pass begins a text that is read over.
func (c *client) pass(size int) {
	c.inRow, c.skip, c.left, c.tail, c.value = true, true, size, 0, nil
}

// take reads on in the value and the line end after it. inRow is false when they are complete.
func (c *client) take(b []byte) (n int) {
	n = min(len(b), c.left)
	if c.value != nil {
		if !bytes.Equal(b[:n], c.value[:n]) {
			c.spoil("the value of %s is another one: %.60q", c.key(), b[:n])
			c.value = nil
		} else {
			c.value = c.value[n:]
		}
	}
	c.left -= n
	for c.left == 0 && c.tail > 0 && n < len(b) {
		if b[n] != "\n\r"[c.tail-1] {
			c.spoil("no line end follows the value of %s", c.key())
		}
		c.tail--
		n++
	}
	c.inRow = c.left > 0 || c.tail > 0
	return n
}

// spoil notes that the current reply is wrong, without losing the thread.
func (c *client) spoil(format string, args ...any) {
	if !c.bad {
		c.bad = true
		c.w.fault(format, args...)
	}
}

// found moves on behind an item.
func (c *client) found() {
	c.item++
	c.hits++
}

// absent moves on to a later key of the request: those before it are not there.
func (c *client) absent(to int) {
	c.misses += uint64(to - c.item)
	c.item = to
}
