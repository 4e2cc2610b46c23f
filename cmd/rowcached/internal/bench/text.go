package bench

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// textDialect is the text protocol ("protocol.txt", sections "Storage commands" and "Retrieval command").
type textDialect struct {
	space *keyspace
	rest  []byte // of an item's line, behind the key, when all values are of one size
}

func newTextDialect(space *keyspace) textDialect {
	d := textDialect{space: space}
	if space.sizeSpan == 0 {
		d.rest = fmt.Appendf(nil, " 0 %d\r\n", space.sizeMin)
	}
	return d
}

func (d textDialect) request(c *client, kind uint8) {
	if kind == setRequest {
		c.out = append(c.out, "set "...)
		number := c.draw()
		if d.rest != nil {
			c.out = append(c.out, " 0"...)
			c.out = append(c.out, d.rest...)
		} else {
			c.out = append(c.out, " 0 0 "...)
			c.out = strconv.AppendInt(c.out, int64(d.space.size(number)), 10)
			c.out = append(c.out, "\r\n"...)
		}
		c.out = append(append(c.out, d.space.value(number)...), "\r\n"...)
		return
	}
	c.out = append(c.out, "get"...)
	for range c.w.spec.perGet() {
		c.out = append(c.out, ' ')
		c.draw()
	}
	c.out = append(c.out, "\r\n"...)
}

func (d textDialect) reply(c *client, b []byte) (n int, done bool, err error) {
	if c.kinds[c.at] == setRequest {
		return storedReply(c, b, "STORED\r\n")
	}
	for {
		if c.inRow {
			n += c.take(b[n:])
			if c.inRow {
				return n, false, nil
			}
			c.found()
		}
		if n == len(b) {
			return n, false, nil
		}
		line := b[n:]
		// The item that is most likely next is recognised without reading its line.
		if c.item < c.last && d.rest != nil {
			k := c.keys[c.item]
			end := len("VALUE ") + int(k.n)
			if len(line) >= end+len(d.rest) && string(line[:len("VALUE ")]) == "VALUE " &&
				bytes.Equal(line[len("VALUE "):end], c.out[k.off:k.off+k.n]) && bytes.Equal(line[end:end+len(d.rest)], d.rest) {
				n += end + len(d.rest)
				c.expect(d.space.sizeMin, 2)
				continue
			}
		}
		line, size, err := cutLine(line)
		if size == 0 || err != nil {
			return n, false, err
		}
		n += size
		if string(line) == "END" {
			c.absent(c.last)
			return n, true, nil
		}
		words := bytes.Fields(line)
		if len(words) != 4 || string(words[0]) != "VALUE" {
			return n, true, refused(c, line)
		}
		bytesOf, err := strconv.Atoi(string(words[3]))
		if err != nil || bytesOf < 0 {
			return n, false, fmt.Errorf("a line of an item cannot be read: %q", line)
		}
		if err := seek(c, words[1]); err != nil {
			return n, false, err
		}
		c.expect(bytesOf, 2)
	}
}

// seek finds the key of an item that came among those that were asked for and have not come yet: replies are in order.
func seek(c *client, key []byte) error {
	for at := c.item; at < c.last; at++ {
		if k := c.keys[at]; bytes.Equal(c.out[k.off:k.off+k.n], key) {
			c.absent(at)
			return nil
		}
	}
	return fmt.Errorf("an item came that was not asked for: %q", key)
}

// storedReply reads the one line that a set gets.
func storedReply(c *client, b []byte, want string) (n int, done bool, err error) {
	if len(b) >= len(want) && string(b[:len(want)]) == want {
		return len(want), true, nil
	}
	line, n, err := cutLine(b)
	if n == 0 || err != nil {
		return 0, false, err
	}
	return n, true, refused(c, line)
}

// cutLine gives the line at the beginning of b, without its end, and its length; 0: it is not complete.
func cutLine(b []byte) (line []byte, size int, err error) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return nil, 0, nil
	}
	if i == 0 || b[i-1] != '\r' {
		return nil, 0, fmt.Errorf("a line ends without a carriage return: %.80q", b[:i+1])
	}
	return b[:i-1], i + 1, nil
}

// refused counts a reply that is an error of the server's. Any other line ends the connection.
func refused(c *client, line []byte) error {
	for _, word := range []string{"SERVER_ERROR", "CLIENT_ERROR", "ERROR", "NOT_STORED", "NS", "NF", "EX"} {
		if bytes.HasPrefix(line, []byte(word)) {
			c.spoil("the server answers %.200s", line)
			return nil
		}
	}
	return errors.New("a reply cannot be read: " + strconv.Quote(string(line[:min(len(line), 80)])))
}
