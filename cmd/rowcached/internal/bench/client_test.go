package bench

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// conversation makes a client with a batch on its way, whose replies count.
func conversation(t testing.TB, change func(*Spec)) (*client, *worker) {
	t.Helper()
	k, s := space(t, change)
	w := &worker{spec: s, space: k, proto: dialectOf(s.Protocol, k), picker: newChooser(s, 0), rng: newChooser(s, 1).rng,
		sets: uint64((1 - s.GetShare) * (1 << 63)), quota: -1, counting: true, gets: &Histogram{}, stores: &Histogram{}, reported: func(uint64) {}}
	c := &client{w: w}
	if !c.begin(0) {
		t.Fatal("no batch")
	}
	return c, w
}

// answers makes the replies of a server that has the keys which has tells, by reading the requests.
func answers(t testing.TB, c *client, has func(key int) bool) []byte {
	t.Helper()
	var b []byte
	s, space := c.w.spec, c.w.space
	at := 0
	for _, kind := range c.kinds {
		n := c.w.keysOf(kind)
		for i := at; i < at+n; i++ {
			key := c.out[c.keys[i].off : c.keys[i].off+c.keys[i].n]
			value := space.value(c.keys[i].number)
			opaque := binary.BigEndian.AppendUint32(nil, uint32(i))
			switch {
			case kind == setRequest && s.Protocol == Text:
				b = append(b, "STORED\r\n"...)
			case kind == setRequest && s.Protocol == Meta:
				b = append(b, "HD\r\n"...)
			case kind == setRequest:
				b = append(append(append(b, 0x81, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), opaque...), "casnumbr"...)
			case !has(i):
				switch {
				case s.Workload == Multiget, s.Protocol == Text:
				case s.Protocol == Meta:
					b = append(b, "EN\r\n"...)
				default:
					b = append(append(append(b, 0x81, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 9), opaque...), "\x00\x00\x00\x00\x00\x00\x00\x00Not found"...)
				}
			case s.Protocol == Text:
				b = fmt.Appendf(b, "VALUE %s 0 %d\r\n%s\r\n", key, len(value), value)
			case s.Protocol == Meta && s.Workload == Multiget:
				b = fmt.Appendf(b, "VA %d k%s\r\n%s\r\n", len(value), key, value)
			case s.Protocol == Meta:
				b = fmt.Appendf(b, "VA %d\r\n%s\r\n", len(value), value)
			default:
				b = binary.BigEndian.AppendUint32(append(b, 0x81, 9, 0, 0, 4, 0, 0, 0), uint32(len(value)+4))
				b = append(append(append(b, opaque...), "casnumbr\x00\x00\x00\x00"...), value...)
			}
		}
		at += n
		switch {
		case kind == setRequest:
		case s.Protocol == Text:
			b = append(b, "END\r\n"...)
		case s.Workload == Multiget && s.Protocol == Meta:
			b = append(b, "MN\r\n"...)
		case s.Workload == Multiget:
			b = append(binary.BigEndian.AppendUint32(append(b, 0x81, 10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0), uint32(at)), "casnumbr"...)
		}
	}
	return b
}

// feed gives the client bytes in pieces.
func feed(c *client, reply []byte, size func() int) (done bool, err error) {
	buf := make([]byte, headroom+len(reply)+1)
	for len(reply) > 0 {
		n := min(size(), len(reply))
		copy(buf[headroom:], reply[:n])
		if done, err = c.read(buf, headroom, headroom+n, time.Microsecond); err != nil {
			return done, err
		}
		reply = reply[n:]
	}
	return done, nil
}

// TestReplies: in every protocol and workload, right replies count as hits and misses however they are cut, and a single
// byte of a value that is another one is an error.
func TestReplies(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		c, w := conversation(t, func(s *Spec) {
			s.Protocol = rapid.SampledFrom([]string{Text, Meta, Binary}).Draw(rt, "protocol")
			s.Workload = rapid.SampledFrom([]string{Get, Set, Mixed, Multiget}).Draw(rt, "workload")
			s.Depth = rapid.IntRange(1, 5).Draw(rt, "depth")
			s.KeysPerGet = rapid.IntRange(1, 5).Draw(rt, "keys per get")
			s.Keys = rapid.IntRange(1, 10).Draw(rt, "keys")
			s.GetShare = 0.5
			s.ValueMin = rapid.IntRange(0, 3).Draw(rt, "least")
			s.ValueMax = s.ValueMin + rapid.IntRange(0, 200).Draw(rt, "span")
			s.Seed = rapid.Uint64().Draw(rt, "seed")
		})
		hits, misses, gets := uint64(0), uint64(0), 0
		for _, kind := range c.kinds {
			if kind == getRequest {
				gets += w.keysOf(kind)
			}
		}
		have := map[int]bool{}
		reply := answers(t, c, func(i int) bool {
			have[i] = rapid.Bool().Draw(rt, "there")
			return have[i]
		})
		for _, there := range have {
			if there {
				hits++
			}
		}
		misses = uint64(gets) - hits
		if misses > 0 && w.spec.Protocol == Text && w.spec.Workload == Multiget && repeats(c) {
			return // which of two equal keys is the missing one cannot be told
		}
		if w.spec.Protocol == Meta && w.spec.Workload == Multiget && repeats(c) {
			return
		}
		size := func() int { return rapid.IntRange(1, 40).Draw(rt, "piece") }
		done, err := feed(c, reply, size)
		if err != nil || !done || w.errors != 0 || w.hits != hits || w.misses != misses || w.requests != uint64(w.spec.Depth) {
			rt.Fatalf("done %v, %v; errors %d (%s), hits %d of %d, misses %d of %d, requests %d\n%q", done, err, w.errors, w.firstFault,
				w.hits, hits, w.misses, misses, w.requests, reply)
		}
		if w.gets.Count()+w.stores.Count() != w.requests {
			rt.Fatalf("%d and %d latencies", w.gets.Count(), w.stores.Count())
		}
	})
}

// repeats tells whether the batch asks for a key twice.
func repeats(c *client) bool {
	seen := map[uint32]bool{}
	for _, k := range c.keys {
		if seen[k.number] {
			return true
		}
		seen[k.number] = true
	}
	return false
}

// TestWrongReplies: each kind of wrong reply is noticed, and those that can be read over are.
func TestWrongReplies(t *testing.T) {
	fixed := func(protocol, workload string) func(*Spec) {
		return func(s *Spec) {
			s.Protocol, s.Workload, s.Keys, s.KeysPerGet, s.ValueMin, s.ValueMax, s.Depth = protocol, workload, 1000, 2, 8, 8, 2
		}
	}
	all := func(int) bool { return true }
	for _, protocol := range []string{Text, Meta, Binary} {
		for _, workload := range []string{Get, Multiget} {
			c, w := conversation(t, fixed(protocol, workload))
			reply := answers(t, c, all)
			value := w.space.value(c.keys[0].number)
			at := bytes.Index(reply, value)
			reply[at+len(value)-1] ^= 1
			if done, err := feed(c, reply, func() int { return 7 }); err != nil || !done || w.errors != 1 || !strings.Contains(w.firstFault, "is another one") {
				t.Errorf("%s %s, a byte changed: done %v, %v, %d errors, %s", protocol, workload, done, err, w.errors, w.firstFault)
			}
			c, _ = conversation(t, fixed(protocol, workload))
			if done, err := feed(c, append(answers(t, c, all), '!'), func() int { return 1 << 20 }); err == nil {
				t.Errorf("%s %s, a byte too many: done %v", protocol, workload, done)
			}
		}
	}
	for _, tc := range []struct {
		protocol, workload, reply string
		fatal                     bool
	}{
		{Text, Get, "SERVER_ERROR out of memory\r\nERROR\r\n", false},
		{Text, Set, "SERVER_ERROR out of memory storing object\r\nNOT_STORED\r\n", false},
		{Meta, Set, "NS\r\nCLIENT_ERROR bad data chunk\r\n", false},
		{Meta, Get, "SERVER_ERROR x\r\nSERVER_ERROR y\r\n", false},
		{Text, Get, "VALUE nobody 0 8\r\nxxxxxxxx\r\nEND\r\n", true},
		{Text, Get, "VALUE bench 0 many\r\n", true},
		{Text, Get, "END\n", true},
		{Text, Get, "HTTP/1.1 400 Bad Request\r\n", true},
		{Text, Get, strings.Repeat("x", headroom+1), true},
		{Binary, Get, "HTTP/1.1 400 Bad Request\r\n", true},
		{Binary, Get, "\x81\x00\x00\x00\x00\x00\x00\x81\x00\x00\x00\x03\x00\x00\x00\x00casnumbroom" +
			"\x81\x00\x00\x00\x00\x00\x00\x82\x00\x00\x00\x00\x00\x00\x00\x01casnumbr", false},
	} {
		c, w := conversation(t, fixed(tc.protocol, tc.workload))
		done, err := feed(c, []byte(tc.reply), func() int { return 1 << 20 })
		if (err != nil) != tc.fatal || !tc.fatal && (!done || w.errors != 2) {
			t.Errorf("%s %s %.60q: done %v, %v, %d errors", tc.protocol, tc.workload, tc.reply, done, err, w.errors)
		}
	}
	// A value of another length is read to its own end.
	c, w := conversation(t, fixed(Text, Get))
	var reply []byte
	for i := range c.keys {
		reply = fmt.Appendf(reply, "VALUE %s 0 3\r\nabc\r\nEND\r\n", c.out[c.keys[i].off:c.keys[i].off+c.keys[i].n])
	}
	if done, err := feed(c, reply, func() int { return 5 }); err != nil || !done || w.errors != 2 {
		t.Errorf("another length: done %v, %v, %s errors", done, err, strconv.FormatUint(w.errors, 10))
	}
}
