package memory

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

// store stores an unmapped key.
func store(t testing.TB, c *Session, key, value string, flags uint32, expire int64) uint64 {
	t.Helper()
	d, err := c.Reserve([]byte(key), flags, expire, len(value))
	if err != nil {
		t.Fatalf("reserve %s: %v", key, err)
	}
	copy(d.Data(), value)
	cas, r := c.Store(d, Set, 0)
	if r != Stored {
		t.Fatalf("store %s: %v", key, r)
	}
	return cas
}

// get gives the value of a key, or "(miss)".
func get(c *Session, key string) string {
	c.Begin()
	defer c.Release()
	it := c.Get([]byte(key))
	if !it.OK() {
		return "(miss)"
	}
	return string(it.Value())
}

// clock is a time that a test moves.
type clock struct{ now int64 }

func (c *clock) unix() int64 { return c.now }

func newStore(t testing.TB, o Options) *Store {
	t.Helper()
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { closeChecked(t, s) })
	return s
}

func newSession(t testing.TB, s *Store) *Session {
	c := s.NewSession()
	t.Cleanup(c.Close)
	return c
}

func TestItemForms(t *testing.T) {
	s := newStore(t, Options{MaxItemSize: 4 << 20, Limit: 64 << 20})
	c := newSession(t, s)
	for _, keyLen := range []int{1, 2, 7, 8, 9, 15, 16, 17, 31, 32, 33, 250} {
		for _, n := range []int{0, 1, 9, 10, 99, 100, 999, 1000, 2047, 4096, 65400, 65535, 65536, 70000, 1 << 20, 3 << 20} {
			for _, flags := range []uint32{0, 7, 1 << 31, 1<<32 - 1} {
				for _, expire := range []int64{0, s.Now() + 1000} {
					key, value := strings.Repeat("k", keyLen), strings.Repeat("v", n)
					cas := store(t, c, key, value, flags, expire)
					c.Begin()
					it := c.Get([]byte(key))
					if !it.OK() || string(it.Value()) != value || it.Flags() != flags || it.Expire() != expire || it.CAS() != cas || string(it.Key()) != key {
						t.Fatalf("key of %d, value of %d, flags %d, expire %d: ok %v, value of %d, flags %d, expire %d", keyLen, n, flags, expire,
							it.OK(), len(it.Value()), it.Flags(), it.Expire())
					}
					if want := fmt.Sprintf("VALUE %s %d %d\r\n%s\r\n", key, flags, n, value); string(it.Wire()) != want {
						t.Fatalf("wire %.60q", it.Wire())
					}
					c.Release()
				}
			}
		}
	}
}

func TestLimits(t *testing.T) {
	s := newStore(t, Options{})
	c := newSession(t, s)
	if _, err := c.Reserve(nil, 0, 0, 1); err != ErrKey {
		t.Errorf("empty key: %v", err)
	}
	if _, err := c.Reserve(make([]byte, 251), 0, 0, 1); err != ErrKey {
		t.Errorf("long key: %v", err)
	}
	if _, err := c.Reserve([]byte("k"), 0, 0, 1<<20); err != ErrTooLarge {
		t.Errorf("1 MiB: %v", err)
	}
	if _, err := c.Reserve([]byte("k"), 0, 0, -1); err != ErrTooLarge {
		t.Errorf("negative: %v", err)
	}
	if _, err := New(Options{Limit: 1000}); err == nil {
		t.Error("a limit of 1000 bytes was taken")
	}
	b := s.NewBatch()
	defer b.Close()
	sp, _ := s.NewSpace("t")
	if err := b.Put(sp, []byte("k"), make([]byte, 1<<20), 0, 0, 0); err != ErrTooLarge {
		t.Errorf("row of 1 MiB: %v", err)
	}
	for n := 0; ; n++ {
		err := b.Put(sp, fmt.Appendf(nil, "k%d", n), make([]byte, 100_000), 0, 0, 0)
		if err == ErrNoMemory {
			if n < 500 {
				t.Errorf("out of memory after %d rows of 100,000 bytes", n)
			}
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if st := s.Stats(); st.NoMemory != 1 || st.TooLarge != 3 || st.Bytes > st.Limit {
		t.Errorf("stats %+v", st)
	}
}

func TestExpiryAndClock(t *testing.T) {
	ck := &clock{1_700_000_000}
	s := newStore(t, Options{Clock: ck.unix})
	c := newSession(t, s)
	store(t, c, "never", "1", 0, 0)
	store(t, c, "past", "1", 0, -1)
	store(t, c, "soon", "1", 0, ck.now+5)
	store(t, c, "touched", "1", 0, 0)
	if got := get(c, "past"); got != "(miss)" {
		t.Errorf("negative expiry: %s", got)
	}
	c.Begin()
	if it, r := c.Touch([]byte("touched"), ck.now+3); r != Touched || it.Expire() != ck.now+3 {
		t.Errorf("touch: %v", r)
	}
	c.Release()
	ck.now += 4
	if get(c, "soon") != "1" || get(c, "touched") != "(miss)" || get(c, "never") != "1" {
		t.Error("after 4 seconds")
	}
	ck.now++
	if get(c, "soon") != "(miss)" {
		t.Error("an item outlived its expiry")
	}
	store(t, c, "later", "1", 0, ck.now+1000)
	s.AdjustClock(1000)
	if get(c, "later") != "(miss)" || get(c, "never") != "1" {
		t.Error("after AdjustClock")
	}
	if st := s.Stats(); st.GetExpired == 0 {
		t.Errorf("stats %+v", st)
	}
	s.round(t.Context())
	if st := s.Stats(); st.Items != 1 {
		t.Errorf("%d items are left after the sweep", st.Items)
	}
}

func TestFlushAll(t *testing.T) {
	ck := &clock{1_700_000_000}
	s := newStore(t, Options{Clock: ck.unix})
	c := newSession(t, s)
	b := s.NewBatch()
	defer b.Close()
	sp, _ := s.NewSpace("t")
	s.OpenSpace(sp)
	if err := b.Put(sp, []byte("row"), []byte("1"), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
	b.Publish()
	store(t, c, "a", "1", 0, 0)
	c.FlushAll(0)
	if get(c, "a") != "(miss)" || get(c, "row") != "1" {
		t.Error("flush_all: the unmapped item must go and the row stay")
	}
	store(t, c, "a", "2", 0, 0)
	if get(c, "a") != "2" {
		t.Error("an item set in the second of the flush must stay")
	}
	c.FlushAll(ck.now + 10)
	store(t, c, "b", "1", 0, 0)
	ck.now += 9
	if get(c, "a") != "2" || get(c, "b") != "1" {
		t.Error("a flush took effect before its time")
	}
	ck.now++
	if get(c, "a") != "(miss)" || get(c, "b") != "(miss)" {
		t.Error("a flush did not take effect at its time")
	}
	store(t, c, "c", "1", 0, 0)
	if get(c, "c") != "1" {
		t.Error("an item set at the time of the flush must stay")
	}
	if st := s.Stats(); st.GetFlushed != 3 {
		t.Errorf("get_flushed is %d, want 3", st.GetFlushed)
	}
}

func TestMetaForms(t *testing.T) {
	s := newStore(t, Options{})
	c := newSession(t, s)
	put := func(value string, o StoreOptions) (uint64, Result) {
		d, err := c.Reserve([]byte("k"), 5, 0, len(value))
		if err != nil {
			t.Fatal(err)
		}
		copy(d.Data(), value)
		return c.StoreWith(d, o)
	}
	if _, r := put("v", StoreOptions{Mode: Append}); r != NotStored {
		t.Errorf("append to nothing: %v", r)
	}
	if _, r := put("v", StoreOptions{Mode: Append, Vivify: true, VivifyExpire: s.Now() + 50}); r != Stored || get(c, "k") != "v" {
		t.Errorf("vivifying append: %v", r)
	}
	c.Begin()
	if it := c.Peek([]byte("k")); it.Flags() != 5 || it.Expire() != s.Now()+50 {
		t.Errorf("vivified with flags %d and expiry %d", it.Flags(), it.Expire())
	}
	c.Release()
	if cas, r := put("w", StoreOptions{NewCAS: 77}); r != Stored || cas != 77 {
		t.Errorf("explicit cas: %d %v", cas, r)
	}
	if _, r := put("x", StoreOptions{Compare: true, CAS: 78}); r != Exists {
		t.Errorf("cas above: %v", r)
	}
	if _, r := put("x", StoreOptions{Compare: true, CAS: 76}); r != Exists {
		t.Errorf("cas below without I: %v", r)
	}
	if _, r := put("x", StoreOptions{Compare: true, CAS: 76, Stale: true, NewCAS: 90}); r != Stored {
		t.Errorf("cas below with I: %v", r)
	}
	if _, r := put("x", StoreOptions{Compare: true, CAS: 91, Stale: true}); r != Exists {
		t.Errorf("cas above with I: %v", r)
	}
	c.Begin()
	it := c.Get([]byte("k"))
	if !it.Stale() || it.Won() || it.CAS() != 90 {
		t.Errorf("stale %v, won %v, cas %d", it.Stale(), it.Won(), it.CAS())
	}
	if !c.TryWin(it) || c.TryWin(it) || !c.Get([]byte("k")).Won() {
		t.Error("the token must be handed out once")
	}
	c.Release()
	if r := c.DeleteWith([]byte("k"), DeleteOptions{Stale: true, Touch: true, Expire: s.Now() + 30, NewCAS: 99}); r != Deleted {
		t.Errorf("mark stale: %v", r)
	}
	c.Begin()
	it = c.Get([]byte("k"))
	if !it.Stale() || it.Won() || it.CAS() != 99 || it.Expire() != s.Now()+30 || string(it.Value()) != "x" {
		t.Errorf("stale %v, won %v, cas %d, expire %d, value %q", it.Stale(), it.Won(), it.CAS(), it.Expire(), it.Value())
	}
	c.Release()
	if r := c.DeleteWith([]byte("k"), DeleteOptions{Empty: true}); r != Deleted || get(c, "k") != "" {
		t.Errorf("empty: %v", r)
	}
	if r := c.Delete([]byte("k"), 1); r != Exists {
		t.Errorf("delete with another cas: %v", r)
	}
	if r := c.Delete([]byte("k"), 0); r != Deleted || get(c, "k") != "(miss)" {
		t.Errorf("delete: %v", r)
	}
	c.Begin()
	it, r := c.Vivify([]byte("k"), s.Now()+10, 0)
	if r != Stored || !it.Won() || len(it.Value()) != 0 || it.Expire() != s.Now()+10 {
		t.Errorf("vivify: %v, won %v", r, it.Won())
	}
	if _, r := c.Vivify([]byte("k"), 0, 0); r != NotStored {
		t.Errorf("vivify again: %v", r)
	}
	c.Release()
	n, _, r := c.Incr([]byte("n"), 5, IncrOptions{Create: true, Initial: 13, CreateExpire: s.Now() + 10})
	if n != 13 || r != Stored {
		t.Errorf("create: %d %v", n, r)
	}
	n, cas, r := c.Incr([]byte("n"), 5, IncrOptions{Touch: true, Expire: s.Now() + 20})
	if n != 18 || r != Stored {
		t.Errorf("incr: %d %v", n, r)
	}
	if n, _, r = c.Incr([]byte("n"), 9, IncrOptions{Decr: true, Compare: true, CAS: cas}); n != 9 || r != Stored || get(c, "n") != "9 " {
		t.Errorf("decr: %d %v %q", n, r, get(c, "n"))
	}
	if _, _, r = c.Incr([]byte("n"), 9, IncrOptions{Compare: true, CAS: cas}); r != Exists {
		t.Errorf("incr with an old cas: %v", r)
	}
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"0": "0", " 12": "12", "12 ": "12", "+5": "5", "000000000000000000007": "7", "18446744073709551615": "18446744073709551615",
		"18446744073709551616": "bad", "": "bad", "-5": "bad", "1x": "bad", " ": "bad", "12 x": "12",
	} {
		got := "bad"
		if v, ok := parseNumber([]byte(text)); ok {
			got = fmt.Sprint(v)
		}
		if got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}

func TestAccessTimes(t *testing.T) {
	ck := &clock{1_700_000_000}
	s := newStore(t, Options{Clock: ck.unix})
	c := newSession(t, s)
	store(t, c, "k", "v", 0, 0)
	ck.now += 7
	c.Begin()
	it := c.Peek([]byte("k"))
	if it.Fetched() || it.LastAccess() != ck.now-7 {
		t.Errorf("before: fetched %v, last access %d seconds ago", it.Fetched(), ck.now-it.LastAccess())
	}
	c.Bump(it)
	if !it.Fetched() || it.LastAccess() != ck.now {
		t.Errorf("after: fetched %v, last access %d seconds ago", it.Fetched(), ck.now-it.LastAccess())
	}
	c.Release()
}

// TestNoAllocations: the paths that every request takes allocate nothing on the Go heap.
func TestNoAllocations(t *testing.T) {
	s := newStore(t, Options{})
	c := newSession(t, s)
	b := s.NewBatch()
	defer b.Close()
	sp, _ := s.NewSpace("t")
	s.OpenSpace(sp)
	key, row, value := []byte("some:key:of:24:bytes:123"), []byte("row:1"), bytes.Repeat([]byte("v"), 100)
	set := func() {
		d, err := c.Reserve(key, 0, 0, len(value))
		if err != nil {
			t.Fatal(err)
		}
		copy(d.Data(), value)
		c.Store(d, Set, 0)
	}
	publish := func() {
		for range 4 {
			if err := b.Put(sp, row, value, 0, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
		b.Delete(sp, row)
		b.Publish()
	}
	for range 1000 {
		set()
		publish()
	}
	for name, f := range map[string]func(){
		"get":     func() { c.Begin(); c.Get(key); c.End(); c.Release() },
		"miss":    func() { c.Begin(); c.Get(row); c.End(); c.Release() },
		"set":     set,
		"publish": publish,
		"touch":   func() { c.Begin(); c.Touch(key, s.Now()+100); c.Release() },
		"append": func() {
			set()
			d, _ := c.Reserve(key, 0, 0, 1)
			c.Store(d, Append, 0)
		},
		"delete": func() { c.Delete(key, 0) },
		"pin": func() {
			set()
			c.Begin()
			it := c.Get(key)
			it.Pin()
			c.Release()
			it.Unpin()
		},
	} {
		if n := testing.AllocsPerRun(2000, f); n != 0 {
			t.Errorf("%s allocates %.2f times", name, n)
		}
	}
}
