package memory

import (
	"fmt"
	"testing"
	"time"
)

func put(t testing.TB, b *Batch, sp Space, key, value string) {
	t.Helper()
	if err := b.Put(sp, []byte(key), []byte(value), 0, 0, 0); err != nil {
		t.Fatal(err)
	}
}

// TestCopyMeetsTail is I3: a copied row never overwrites what the log said of its key.
func TestCopyMeetsTail(t *testing.T) {
	s := newStore(t, Options{})
	c := newSession(t, s)
	b := s.NewBatch()
	defer b.Close()
	sp, err := s.NewSpace("t")
	if err != nil {
		t.Fatal(err)
	}
	l := s.Load(sp)
	defer l.Close()
	load := func(key, value string) {
		t.Helper()
		if err := l.Put([]byte(key), []byte(value), 0, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	load("copied", "old")
	load("updated later", "old")
	load("deleted later", "old")
	put(t, b, sp, "updated before", "new")
	b.Delete(sp, []byte("deleted before"))
	put(t, b, sp, "updated later", "new")
	b.Delete(sp, []byte("deleted later"))
	b.Publish()
	load("updated before", "old")
	load("deleted before", "old")
	load("deleted later", "old")
	b.Delete(sp, []byte("back"))
	b.Publish()
	put(t, b, sp, "back", "again")
	b.Publish()
	load("back", "old")
	mark := b.Mark()
	b.Delete(sp, []byte("rolled back"))
	put(t, b, sp, "rolled back too", "new")
	b.Truncate(mark)
	b.Publish()
	load("rolled back", "old")
	load("rolled back too", "old")

	if got := get(c, "copied"); got != "(miss)" {
		t.Errorf("a loading space is seen: %s", got)
	}
	d, err := c.Reserve([]byte("deleted before"), 0, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, r := c.Store(d, Set, 0); r != Mapped {
		t.Errorf("client's set on a deleted row of a loading space: %v", r)
	}
	if st := s.SpaceStats(sp); st.Items != 6 {
		t.Errorf("%d items, want 6", st.Items)
	}
	b.Open(sp)
	b.Publish()
	for key, want := range map[string]string{
		"copied": "old", "updated later": "new", "deleted later": "(miss)", "updated before": "new", "deleted before": "(miss)",
		"back": "again", "rolled back": "old", "rolled back too": "old",
	} {
		if got := get(c, key); got != want {
			t.Errorf("%s: %s, want %s", key, got, want)
		}
	}
	// The tombstones are swept; then the space holds its rows alone.
	s.round(t.Context())
	if n := s.spaces.counts[sp].entries.Load(); n != 6 {
		t.Errorf("%d entries after the sweep, want 6", n)
	}
}

func TestDropSpace(t *testing.T) {
	s := newStore(t, Options{Limit: 64 << 20})
	c := newSession(t, s)
	b := s.NewBatch()
	defer b.Close()
	old, _ := s.NewSpace("t")
	const rows = 50_000
	fill := func(sp Space, value string) {
		l := s.Load(sp)
		defer l.Close()
		for n := range rows {
			if err := l.Put(fmt.Appendf(nil, "k%d", n), []byte(value), 0, 0, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	fill(old, "old")
	s.OpenSpace(old)
	next, _ := s.NewSpace("t")
	fill(next, "new")
	if got := get(c, "k7"); got != "old" {
		t.Errorf("while the next space loads: %s", got)
	}
	b.Drop(old)
	b.Open(next)
	b.Publish()
	if got := get(c, "k7"); got != "new" {
		t.Errorf("after the change: %s", got)
	}
	if st := s.SpaceStats(old); st.Items != 0 {
		t.Errorf("a dropped space has %d items", st.Items)
	}
	if l := s.Load(old); l.Put([]byte("x"), nil, 0, 0, 0) != ErrDropped {
		t.Error("a dropped space was loaded")
	} else {
		l.Close()
	}
	for s.spaces.state(old) != spaceUnused {
		s.round(t.Context())
	}
	if st := s.Stats(); st.Items != rows {
		t.Errorf("%d items are left, want %d", st.Items, rows)
	}
	s.DropSpace(next)
	store(t, c, "k7", "mine", 0, 0)
	if got := get(c, "k7"); got != "mine" {
		t.Errorf("a client's item where a dropped row was: %s", got)
	}
	for s.spaces.state(next) != spaceUnused {
		s.round(t.Context())
	}
	s.round(t.Context())
	if st := s.Stats(); st.Items != 1 || st.Bytes > 8<<20 {
		t.Errorf("%d items, %d bytes are left", st.Items, st.Bytes)
	}
}

func TestMappedReplacesUnmapped(t *testing.T) {
	s := newStore(t, Options{})
	c := newSession(t, s)
	b := s.NewBatch()
	defer b.Close()
	store(t, c, "k", "client", 0, 0)
	store(t, c, "other", "client", 0, 0)
	sp, _ := s.NewSpace("t")
	s.OpenSpace(sp)
	put(t, b, sp, "k", "row")
	b.Publish()
	if got := get(c, "k"); got != "row" {
		t.Errorf("k: %s", got)
	}
	for _, r := range []Result{c.Delete([]byte("k"), 0), third(c.Incr([]byte("k"), 1, IncrOptions{Create: true})), second(c.Touch([]byte("k"), 0)),
		second(c.Vivify([]byte("k"), 0, 0))} {
		if r != Mapped {
			t.Errorf("a client's write to a row: %v", r)
		}
	}
	c.Release()
	b.Delete(sp, []byte("k"))
	b.Delete(sp, []byte("other"))
	b.Publish()
	if get(c, "k") != "(miss)" {
		t.Error("a deleted row is there")
	}
}

func second[A, B any](_ A, b B) B        { return b }
func third[A, B, C any](_ A, _ B, c C) C { return c }

func TestSpacesRunOut(t *testing.T) {
	s := newStore(t, Options{})
	var all []Space
	for {
		sp, err := s.NewSpace("t")
		if err == ErrSpaces {
			break
		}
		all = append(all, sp)
	}
	if len(all) != maxSpaces-1 {
		t.Errorf("%d spaces", len(all))
	}
	s.DropSpace(all[5])
	s.round(t.Context())
	if sp, err := s.NewSpace("t"); err != nil || sp != all[5] {
		t.Errorf("after a drop: %d %v", sp, err)
	}
}

// TestLargeBatch: above MaxAtomicBatch a batch appears in steps, and is counted.
func TestLargeBatch(t *testing.T) {
	s := newStore(t, Options{Limit: 64 << 20})
	c := newSession(t, s)
	b := s.NewBatch()
	defer b.Close()
	sp, _ := s.NewSpace("t")
	s.OpenSpace(sp)
	for n := range MaxAtomicBatch + 1000 {
		put(t, b, sp, fmt.Sprint("k", n), "v")
	}
	if b.Len() != MaxAtomicBatch+1000 || b.Bytes() < b.Len()*30 {
		t.Errorf("%d changes, %d bytes", b.Len(), b.Bytes())
	}
	start := time.Now()
	b.Publish()
	t.Logf("published %d in %v", MaxAtomicBatch+1000, time.Since(start))
	if get(c, "k0") != "v" || get(c, fmt.Sprint("k", MaxAtomicBatch+999)) != "v" {
		t.Error("a key is missing")
	}
	if st := s.Stats(); st.Stepped != 1 || st.Items != MaxAtomicBatch+1000 {
		t.Errorf("%d stepped, %d items", st.Stepped, st.Items)
	}
}
