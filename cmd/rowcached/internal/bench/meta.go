package bench

import (
	"bytes"
	"fmt"
	"strconv"
)

// metaDialect is the meta protocol ("protocol.txt", section "Meta Commands"): mg and ms; a get of many keys is as many
// quiet mg that tell their keys, and mn.
type metaDialect struct {
	space *keyspace
	head  []byte // of an item, when all values are of one size
}

func newMetaDialect(space *keyspace) metaDialect {
	d := metaDialect{space: space}
	if space.sizeSpan == 0 {
		d.head = fmt.Appendf(nil, "VA %d", space.sizeMin)
	}
	return d
}

func (d metaDialect) request(c *client, kind uint8) {
	switch {
	case kind == setRequest:
		c.out = append(c.out, "ms "...)
		number := c.draw()
		c.out = strconv.AppendInt(append(c.out, ' '), int64(d.space.size(number)), 10)
		c.out = append(append(append(c.out, "\r\n"...), d.space.value(number)...), "\r\n"...)
	case c.w.spec.Workload == Multiget:
		for range c.w.spec.KeysPerGet {
			c.out = append(c.out, "mg "...)
			c.draw()
			c.out = append(c.out, " v k q\r\n"...)
		}
		c.out = append(c.out, "mn\r\n"...)
	default:
		c.out = append(c.out, "mg "...)
		c.draw()
		c.out = append(c.out, " v\r\n"...)
	}
}

func (d metaDialect) reply(c *client, b []byte) (n int, done bool, err error) {
	if c.kinds[c.at] == setRequest {
		return storedReply(c, b, "HD\r\n")
	}
	many := c.w.spec.Workload == Multiget
	for {
		if c.inRow {
			n += c.take(b[n:])
			if c.inRow {
				return n, false, nil
			}
			c.found()
			if !many {
				return n, true, nil
			}
		}
		if n == len(b) {
			return n, false, nil
		}
		if size := d.expected(c, b[n:], many); size > 0 {
			n += size
			c.expect(d.space.sizeMin, 2)
			continue
		}
		line, size, err := cutLine(b[n:])
		if size == 0 || err != nil {
			return n, false, err
		}
		n += size
		switch {
		case many && string(line) == "MN", !many && string(line) == "EN":
			c.absent(c.last)
			return n, true, nil
		case many && !bytes.HasPrefix(line, []byte("VA ")):
			// One of the quiet gets failed; its key is not told. The others and MN are still to come.
			c.last = max(c.last-1, c.item)
			if err := refused(c, line); err != nil {
				return n, false, err
			}
			continue
		}
		words := bytes.Fields(line)
		if len(words) < 2 || string(words[0]) != "VA" {
			return n, true, refused(c, line)
		}
		bytesOf, err := strconv.Atoi(string(words[1]))
		if err != nil || bytesOf < 0 {
			return n, false, fmt.Errorf("a line of an item cannot be read: %q", line)
		}
		if many {
			if len(words) != 3 || words[2][0] != 'k' {
				return n, false, fmt.Errorf("an item came without its key: %q", line)
			}
			if err := seek(c, words[2][1:]); err != nil {
				return n, false, err
			}
		}
		c.expect(bytesOf, 2)
	}
}

// expected recognises the line of the item that is most likely next, and gives its length.
func (d metaDialect) expected(c *client, b []byte, many bool) int {
	if d.head == nil || c.item == c.last || !bytes.HasPrefix(b, d.head) {
		return 0
	}
	n := len(d.head)
	if many {
		key := c.key()
		end := n + len(" k") + len(key)
		if len(b) < end || string(b[n:n+2]) != " k" || !bytes.Equal(b[n+2:end], key) {
			return 0
		}
		n = end
	}
	if len(b) < n+2 || string(b[n:n+2]) != "\r\n" {
		return 0
	}
	return n + 2
}
