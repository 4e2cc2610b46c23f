package memory

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"
)

var imageSeed = flag.Uint64("image.seed", 0, "seed of the image test; 0: chosen and printed")

// change is one step of the image test's log; no value is a deletion.
type change struct{ key, value string }

// play applies a log to a space in batches.
func play(s *Store, sp Space, log []change) error {
	b := s.NewBatch()
	defer b.Close()
	for i, c := range log {
		if c.value == "" {
			b.Delete(sp, []byte(c.key))
		} else if err := b.Put(sp, []byte(c.key), []byte(c.value), uint32(len(c.value)), int64(len(c.value)%2)<<31, uint64(len(c.value)%3)); err != nil {
			return err
		}
		if i%7 == 0 {
			b.Publish()
		}
	}
	b.Publish()
	return nil
}

// imageOf makes an image of the space and gives its blocks.
func imageOf(s *Store, sp Space, number uint16) (blocks [][]byte, rows int) {
	m := s.NewImage(map[Space]uint16{sp: number})
	for more := true; more; {
		var block []byte
		var n int
		block, n, more = m.Next(nil)
		blocks, rows = append(blocks, block), rows+n
	}
	return blocks, rows
}

// rowsOf reads every visible row.
func rowsOf(s *Store) map[string]string {
	rows := map[string]string{}
	s.Walk(func(it Item) bool {
		rows[string(it.Key())] = fmt.Sprintf("%s %d %d %v", it.Value(), it.Flags(), it.Expire(), it.CAS() < 3)
		return true
	})
	return rows
}

// TestImageFuzzy: an image made while the log goes on, loaded elsewhere, with the log played again over it from
// before the image was begun, gives what the log alone gives (G1, I6).
func TestImageFuzzy(t *testing.T) {
	seed := *imageSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-image.seed=%d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var log []change
	for range 60_000 {
		c := change{key: "row:" + strconv.Itoa(r.IntN(3000))}
		if r.IntN(3) > 0 {
			c.value = fmt.Sprintf("%0*d", 1+r.IntN(300), r.IntN(1000))
			if r.IntN(500) == 0 {
				c.value = fmt.Sprintf("%05000d", r.IntN(1000))
			}
		}
		log = append(log, c)
	}
	a := newStore(t, Options{Limit: 32 << 20})
	sp, err := a.NewSpace("t")
	if err != nil {
		t.Fatal(err)
	}
	other, err := a.NewSpace("other")
	if err != nil {
		t.Fatal(err)
	}
	a.OpenSpace(sp)
	a.OpenSpace(other)
	if err := play(a, other, []change{{"other:1", "x"}, {"row:1", "of another table"}}); err != nil {
		t.Fatal(err)
	}
	const before = 20_000
	if err := play(a, sp, log[:before]); err != nil {
		t.Fatal(err)
	}
	var busy sync.WaitGroup
	busy.Go(func() {
		if err := play(a, sp, log[before:]); err != nil {
			t.Error(err)
		}
	})
	blocks, n := imageOf(a, sp, 3)
	busy.Wait()
	a.DropSpace(other)
	want := rowsOf(a)

	b := newStore(t, Options{Limit: 32 << 20, Seeds: a.Seeds(), CASFloor: a.CASCeiling()})
	if b.casBase < a.casBase+a.seq.Load() {
		t.Errorf("the second store chooses cas numbers from %d, the first got to %d", b.casBase, a.casBase+a.seq.Load())
	}
	sp, err = b.NewSpace("t")
	if err != nil {
		t.Fatal(err)
	}
	b.Grow(int64(n))
	loaded := 0
	var mu sync.Mutex
	var loaders sync.WaitGroup
	work := make(chan []byte)
	for range 3 {
		loaders.Go(func() {
			for block := range work {
				n, err := b.LoadImage(block, []Space{0, 0, 0, sp})
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				loaded += n
				mu.Unlock()
			}
		})
	}
	for _, block := range blocks {
		work <- block
	}
	close(work)
	loaders.Wait()
	if loaded != n {
		t.Errorf("%d rows were loaded of %d", loaded, n)
	}
	if rows := rowsOf(b); len(rows) != 0 {
		t.Errorf("%d rows are seen before the space is open", len(rows))
	}
	if err := play(b, sp, log[before:]); err != nil {
		t.Fatal(err)
	}
	b.OpenSpace(sp)
	if got := rowsOf(b); !maps.Equal(got, want) {
		t.Errorf("%d rows after the image and the log, %d by the log alone", len(got), len(want))
		for k, v := range want {
			if got[k] != v {
				t.Fatalf("%s: got %q, want %q", k, got[k], v)
			}
		}
	}
	for _, s := range []*Store{a, b} {
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// TestImageCorrupt: no cut or number of a record makes loading do anything but refuse it.
func TestImageCorrupt(t *testing.T) {
	a := newStore(t, Options{Limit: 4 << 20})
	sp, err := a.NewSpace("t")
	if err != nil {
		t.Fatal(err)
	}
	if err := play(a, sp, []change{{"k", "some value"}}); err != nil {
		t.Fatal(err)
	}
	var record []byte
	blocks, _ := imageOf(a, sp, 0)
	for _, b := range blocks {
		record = append(record, b...)
	}
	for n := 1; n < len(record); n++ {
		if rows, err := a.LoadImage(record[:n], []Space{sp}); !errors.Is(err, ErrImage) || rows != 0 {
			t.Errorf("cut after %d of %d bytes: %d rows, %v", n, len(record), rows, err)
		}
	}
	if _, err := a.LoadImage(record, nil); !errors.Is(err, ErrImage) {
		t.Errorf("a space that there is not: %v", err)
	}
	if rows, err := a.LoadImage(record, []Space{0}); rows != 0 || err != nil {
		t.Errorf("a space that is left out: %d rows, %v", rows, err)
	}
}

// TestHideRows: withheld rows are misses, go on changing, and come back as they are then.
func TestHideRows(t *testing.T) {
	s := newStore(t, Options{Limit: 4 << 20})
	sp, err := s.NewSpace("t")
	if err != nil {
		t.Fatal(err)
	}
	s.OpenSpace(sp)
	if err := play(s, sp, []change{{"a", "1"}, {"b", "1"}}); err != nil {
		t.Fatal(err)
	}
	s.HideRows(true)
	if rows := rowsOf(s); len(rows) != 0 {
		t.Errorf("withheld rows are seen: %v", rows)
	}
	if err := play(s, sp, []change{{"a", "22"}, {"b", ""}}); err != nil {
		t.Fatal(err)
	}
	s.HideRows(false)
	if rows := rowsOf(s); len(rows) != 1 || rows["a"] == "" || rows["a"][:2] != "22" {
		t.Errorf("rows that are given back: %v", rows)
	}
}

// BenchmarkLoadImage loads rows with keys of 24 and values of 100 bytes; its sibling puts the same through a Loader, as a copy does.
func BenchmarkLoadImage(b *testing.B) {
	a, err := New(Options{Limit: 1 << 30})
	if err != nil {
		b.Fatal(err)
	}
	defer a.Close()
	sp, err := a.NewSpace("t")
	if err != nil {
		b.Fatal(err)
	}
	const n = 500_000
	key := func(i int) []byte { return fmt.Appendf(nil, "key:%020d", i) }
	fill := func(s *Store, sp Space) {
		l := s.Load(sp)
		defer l.Close()
		value := make([]byte, 100)
		for i := range n {
			if err := l.Put(key(i), value, 0, 0, 0); err != nil {
				b.Fatal(err)
			}
		}
	}
	fill(a, sp)
	blocks, _ := imageOf(a, sp, 0)
	run := func(b *testing.B, o Options, load func(*Store, Space)) {
		o.Limit = 1 << 30
		for range b.N {
			b.StopTimer()
			s, err := New(o)
			if err != nil {
				b.Fatal(err)
			}
			sp, err := s.NewSpace("t")
			if err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			load(s, sp)
			b.StopTimer()
			if err := s.Close(); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n)/float64(b.N), "ns/row")
	}
	image := func(s *Store, sp Space) {
		s.Grow(n)
		for _, block := range blocks {
			if _, err := s.LoadImage(block, []Space{sp}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("image", func(b *testing.B) { run(b, Options{Seeds: a.Seeds()}, image) })
	b.Run("image other seeds", func(b *testing.B) { run(b, Options{}, image) })
	b.Run("loader", func(b *testing.B) { run(b, Options{}, fill) })
}
