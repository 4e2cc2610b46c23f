package server

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/rowcached/rowcached/server/memory"
)

// driver does what an engine does, without a socket: it hands bytes to a worker
// in pieces and takes the replies off it in pieces.
type driver struct {
	t     testing.TB
	srv   *Server
	w     *worker
	c     *conn
	store *memory.Store
	base  uint64 // the first cas of the store
	rng   *rand.Rand
	out   []byte
}

// How the bytes of a run are moved.
type manner struct {
	chunk  int  // bytes received at once; 0: all, -1: any number
	direct bool // data blocks are received into the item
	slow   bool // the client takes replies in small bits, long after the session's views ended
}

func newDriver(t testing.TB, setup byte, seed uint64) *driver {
	store, err := memory.New(memory.Options{Limit: 2 << 20, MaxItemSize: 1 << 20, Clock: func() int64 { return 1_900_000_000 }})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Memory: store, Listen: []string{"127.0.0.1:0"}}
	switch setup % 8 {
	case 1:
		cfg.Auth = ann()
	case 2:
		cfg.Auth, cfg.SASL = ann(), true
	case 3:
		cfg.Tables = testTables{}
	case 4:
		cfg.RequestsPerTurn = 1
	case 5:
		cfg.NoFlush, cfg.NoDump, cfg.NoWatch, cfg.NoCAS = true, true, true, true
	case 6:
		cfg.Protocol = ProtocolText
	case 7:
		cfg.MaxItemSize = 100
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	d := &driver{t: t, srv: s, w: s.worker(), store: store, rng: rand.New(rand.NewPCG(seed, uint64(setup)))}
	c, ok := s.open(0, nil, nil)
	if !ok {
		t.Fatal("no connection")
	}
	d.c = c
	draft, err := d.w.sess.Reserve([]byte("base"), 0, 0, 0)
	if err != nil {
		t.Fatal(err)
	}
	if d.base, _ = d.w.sess.Store(draft, memory.Set, 0); d.base == 0 {
		t.Fatal("no cas")
	}
	return d
}

// ann may log in.
func ann() *Users {
	u := &Users{}
	u.list.Store(&[]user{{name: []byte("ann"), password: []byte("secret")}})
	return u
}

// run feeds in and gives every byte that was answered. closed: the server closed
// the connection.
func (d *driver) run(in []byte, m manner) (out []byte, closed bool) {
	var held []byte
	for len(in) > 0 && !closed {
		n := len(in)
		switch {
		case m.chunk > 0:
			n = min(n, m.chunk)
		case m.chunk < 0:
			n = 1 + d.rng.IntN(min(n, 1+d.rng.IntN(300)))
		}
		piece := in[:n]
		in = in[n:]
		if rest := d.c.store.rest(); m.direct && len(rest) > 0 && len(held) == 0 {
			took := copy(rest, piece)
			d.c.store.have += took
			piece = piece[took:]
		}
		buffer := append(held, piece...)
		data := buffer
		for idle := 0; ; {
			used, more := d.w.serve(d.c, data)
			if used > len(data) || used < 0 {
				d.t.Fatalf("%d of %d bytes were used", used, len(data))
			}
			data = data[used:]
			if d.c.abandon {
				d.w.out.drop()
				closed = true
				break
			}
			before := len(d.out)
			d.drain(m.slow)
			d.w.sess.Release()
			if d.c.phase == phaseClosed {
				closed = true
				break
			}
			if !more {
				break
			}
			if idle++; used > 0 || len(d.out) > before {
				idle = 0
			}
			if idle > 2 {
				d.t.Fatalf("no progress with %d bytes of input: %.60q", len(data), data)
			}
		}
		held = bytes.Clone(data)
		// The buffer is the loop's: other connections' bytes are in it next.
		for i := range buffer {
			buffer[i] = '~'
		}
	}
	return d.out, closed
}

// drain takes off what the worker has to send.
func (d *driver) drain(slow bool) {
	o := d.w.out
	if slow && !o.empty() {
		// The socket is full: the output stays with the connection, and other
		// clients use the memory meanwhile.
		o.pin()
		d.w.out = newOutput(d.srv.cfg.NoCAS)
		d.w.sess.Release()
		d.disturb()
	}
	for {
		vec := o.pending()
		n := 0
		for i := range vec {
			if len(vec[i:]) == 0 || vec[i].Len == 0 {
				d.t.Fatal("an empty vector")
			}
			b := unsafe.Slice(vec[i].Base, vec[i].Len)
			if slow && d.rng.IntN(3) == 0 {
				b = b[:d.rng.IntN(len(b))]
			}
			d.out = append(d.out, b...)
			n += len(b)
			if len(b) < int(vec[i].Len) {
				break
			}
		}
		if len(vec) > 0 && !o.advance(n) {
			continue
		}
		o.recycle()
		if !o.waiting() {
			break
		}
		o.fill()
	}
	if !o.empty() {
		d.t.Fatal("an output that was sent is not empty")
	}
}

// disturb makes the memory of items that are no longer viewed be used again.
func (d *driver) disturb() {
	c := d.store.NewSession()
	defer c.Close()
	for i := range 8 {
		key := strconv.AppendInt([]byte("disturb"), int64(i), 10)
		if draft, err := c.Reserve(key, 0, 0, 50+500*i); err == nil {
			for j := range draft.Data() {
				draft.Data()[j] = '!'
			}
			c.Store(draft, memory.Set, 0)
			c.Delete(key, 0)
		}
	}
}

// finish closes the connection and checks that nothing is left behind: no draft
// holds a slot, no pin holds an item.
func (d *driver) finish() {
	d.srv.closed(d.c)
	d.w.out.drop()
	d.w.leave()
	sess := d.w.sess
	sess.Release()
	var keys [][]byte
	d.store.Walk(func(it memory.Item) bool {
		keys = append(keys, bytes.Clone(it.Key()))
		return true
	})
	for _, k := range keys {
		sess.Delete(k, 0)
	}
	// Slots are given back in batches of retirements.
	for range 200 {
		draft, err := sess.Reserve([]byte("last"), 0, 0, 1)
		if err != nil {
			d.t.Fatal(err)
		}
		sess.Store(draft, memory.Set, 0)
		sess.Delete([]byte("last"), 0)
	}
	sess.Close()
	// The keeper may be holding some that it has just swept.
	var pinned, leaked int64
	for deadline := time.Now().Add(2 * time.Second); ; time.Sleep(time.Millisecond) {
		d.store.Reclaim()
		st := d.store.Stats()
		pinned, leaked = st.Pinned, -st.Items-st.Retired
		for _, c := range st.Classes {
			leaked += c.Used
		}
		if pinned == 0 && leaked <= 0 || time.Now().After(deadline) {
			break
		}
	}
	if pinned != 0 {
		d.t.Errorf("%d items are pinned after the end", pinned)
	}
	if leaked > 0 {
		d.t.Errorf("%d slots are taken by nothing", leaked)
	}
	if err := d.store.Check(); err != nil {
		d.t.Errorf("memory: %v", err)
	}
	if err := d.store.Close(); err != nil {
		d.t.Error(err)
	}
}

var casText = regexp.MustCompile(`\d{19}`)

// plain makes the cas numbers of an output relative to the store's first, so that
// outputs of two stores can be compared.
func (d *driver) plain(out []byte) []byte {
	const span = 1 << 20
	out = casText.ReplaceAllFunc(out, func(m []byte) []byte {
		if v, err := strconv.ParseUint(string(m), 10, 64); err == nil && v-d.base < span {
			return strconv.AppendUint([]byte("cas"), v-d.base, 10)
		}
		return m
	})
	out = bytes.Clone(out)
	for i := 0; i+8 <= len(out); i++ {
		if v := binary.BigEndian.Uint64(out[i:]); v-d.base < span {
			binary.BigEndian.PutUint64(out[i:], v-d.base)
		}
	}
	return out
}

// comparable says whether what is answered to in depends on the bytes alone.
// Otherwise: statistics; listings, which may not follow other commands of the
// same packet; a line that is closed upon when it has not come whole.
func comparable(in []byte) bool {
	for _, w := range []string{"stat", "dump", "cache_memlimit"} {
		if bytes.Contains(in, []byte(w)) {
			return false
		}
	}
	if i := bytes.IndexByte(in, 0x80); i >= 0 && bytes.IndexByte(in[i:], 0x10) >= 0 {
		return false // perhaps a binary stat
	}
	for line := range bytes.SplitSeq(in, []byte("\n")) {
		if len(line) > 2000 {
			return false
		}
	}
	return true
}

var manners = []manner{
	{chunk: 1}, {chunk: 7, direct: true}, {chunk: -1, slow: true}, {chunk: -1, direct: true, slow: true},
}

// checkConnection plays in in one piece and in other manners, and compares the outputs.
func checkConnection(t testing.TB, setup byte, in []byte, seed uint64, others ...manner) {
	var want []byte
	var wantClosed, abandoned bool
	for i, m := range append([]manner{{}}, others...) {
		d := newDriver(t, setup, seed)
		out, closed := d.run(in, m)
		out = d.plain(out)
		abandon := d.c.abandon
		if m.slow {
			// Items of other clients came in between and took cas numbers.
			out = casless.ReplaceAll(out, []byte("cas"))
		}
		d.finish()
		if i == 0 {
			want, wantClosed, abandoned = out, closed, abandon
			continue
		}
		if !comparable(in) || m.slow && bytes.IndexByte(in, 0x80) >= 0 {
			continue
		}
		w := want
		if m.slow {
			w = casless.ReplaceAll(w, []byte("cas"))
		}
		switch {
		case abandoned && abandon:
			// Replies that were not sent yet are lost then: the more came at once, the more.
			if !bytes.HasPrefix(out, w) {
				t.Fatalf("set-up %d, %+v: %q, in one piece %q", setup%8, m, out, w)
			}
		case !bytes.Equal(out, w) || closed != wantClosed || abandon != abandoned:
			t.Fatalf("set-up %d, %+v: closed %v, %q\nin one piece: closed %v, %q", setup%8, m, closed, out, wantClosed, w)
		}
	}
}

var casless = regexp.MustCompile(`cas\d+`)

// seeds are all exchanges of testdata, and what found faults before.
func connectionSeeds(t testing.TB) (list [][]byte) {
	for _, x := range loadExchanges(t) {
		var in []byte
		for _, s := range x.steps {
			if s.kind == '>' {
				in = append(in, s.data...)
			}
		}
		if len(in) < 8000 {
			list = append(list, in)
		}
	}
	for _, s := range []string{
		"set k 0 0 5\r\nab", "set k 0 0 1\r\nx\r\nget k k k k k k k\r\ngets k\r\nmg k v\r\n", "mg k N30 v t\r\nmd k I T30\r\nmg k v\r\nmg k v\r\n",
		"ms a2V5 3 b k O1 s\r\nabc\r\nms k 3 MA N0 k O2\r\nabc\r\nms k 3 MP\r\ndef\r\nmg k v s\r\n", "set k 0 0 20\r\n18446744073709551615\r\nincr k 1\r\n",
		// The second get ends at a bad key, from which the third must not suffer.
		"set k 0 0 1\r\nx\r\nget k row:1\r\nget k " + strings.Repeat("a", 251) + "\r\nget k row:1\r\n",
		"get a\nget b\n", "\r\n\r\n", "set k 0 0 -1\r\nget k\r\n", "set k 0 0 101\r\n", "get " + string(bytes.Repeat([]byte("k "), 900)) + "\r\n",
	} {
		list = append(list, []byte(s))
	}
	// Items that are sent from where they are: by get and gets, by mg, by binary get.
	large := "set l 7 0 3000\r\n" + strings.Repeat("0123456789", 300) + "\r\n"
	for _, s := range []string{"get l k l\r\n", "gets l l\r\nget l\r\n", "mg l v k\r\nmg l s v f c\r\nmn\r\n", "gat 100 l l\r\n", "get" + strings.Repeat(" l", 300) + "\r\nmn\r\n", "append l 0 0 3\r\nabc\r\nget l\r\ndelete l\r\nget l\r\n"} {
		list = append(list, []byte(large+s))
	}
	small := "set s 7 0 200\r\n" + strings.Repeat("0123456789", 20) + "\r\n" // more of them than the buffer holds
	list = append(list, []byte(small+"get"+strings.Repeat(" s", 900)+"\r\nmn\r\n"), []byte(small+"gets"+strings.Repeat(" s", 900)+"\r\nmn\r\n"))
	bin := "\x80\x01\x00\x01\x08\x00\x00\x00\x00\x00\x07\xd9" + strings.Repeat("\x00", 12) + "\xde\xad\xbe\xef\x00\x00\x00\x00l" + strings.Repeat("v", 2000)
	list = append(list, []byte(bin+"\x80\x0c\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01"+strings.Repeat("\x00", 12)+"l"))
	return list
}

// FuzzConnection: no bytes break a connection or the memory tier, and what they
// are answered does not depend on how they arrive. The memory tier's own goroutine
// makes coverage jitter, so that nearly every input looks interesting: run it with
// -fuzzminimizetime=1x, or most of the time goes into making inputs smaller.
func FuzzConnection(f *testing.F) {
	for i, in := range connectionSeeds(f) {
		for j := range manners {
			f.Add(byte(i), in, uint64(j))
		}
	}
	f.Fuzz(func(t *testing.T, setup byte, in []byte, seed uint64) {
		if len(in) > 64<<10 {
			return
		}
		checkConnection(t, setup, in, seed, manners[seed%uint64(len(manners))])
	})
}

// TestRandomConnections strings whole, cut and spoilt commands together, which a
// fuzzer takes long to find. It prints its seed; SEED repeats a run.
func TestRandomConnections(t *testing.T) {
	seed := rand.Uint64()
	if s := os.Getenv("SEED"); s != "" {
		var err error
		if seed, err = strconv.ParseUint(s, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("SEED=%d", seed)
	seeds := connectionSeeds(t)
	rng := rand.New(rand.NewPCG(seed, 1))
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	for range rounds {
		var in []byte
		for range 1 + rng.IntN(6) {
			s := slices.Clone(seeds[rng.IntN(len(seeds))])
			switch rng.IntN(6) {
			case 0:
				s = s[:rng.IntN(len(s)+1)]
			case 1:
				s[rng.IntN(len(s))] = byte(rng.Uint32())
			case 2:
				at := rng.IntN(len(s))
				s = slices.Insert(s, at, s[:at]...)
			}
			in = append(in, s...)
		}
		setup := byte(rng.Uint32())
		if len(in) > 30000 {
			continue
		}
		checkConnection(t, setup, in, seed, manners...)
		if t.Failed() {
			t.Fatalf("set-up %d, input %q", setup%8, in)
		}
	}
}
