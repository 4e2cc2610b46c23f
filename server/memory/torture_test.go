package memory

import (
	"bytes"
	"encoding/binary"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

var (
	tortureTime = flag.Duration("torture", 1500*time.Millisecond, "how long the torture test runs")
	tortureSeed = flag.Uint64("torture.seed", 0, "seed of the torture test; 0: chosen and printed")
)

// provenValue makes a value whose every byte follows from its key, version and length.
func provenValue(dst []byte, key []byte, version uint64, n int) []byte {
	h := seeds{1, 3}.sum(key) ^ version*0x9e3779b97f4a7c15 ^ uint64(n)
	dst = binary.LittleEndian.AppendUint64(dst[:0], version)
	for len(dst) < n {
		h = h*6364136223846793005 + 1442695040888963407
		dst = binary.LittleEndian.AppendUint64(dst, h^h>>29)
	}
	return dst[:max(n, 8)]
}

// proven checks a value and gives its version.
func proven(scratch []byte, key, value []byte) (version uint64, ok bool) {
	if len(value) < 8 {
		return 0, false
	}
	version = binary.LittleEndian.Uint64(value)
	return version, bytes.Equal(value, provenValue(scratch, key, version, len(value)))
}

// torturer is what the goroutines of the torture test share.
type torturer struct {
	t      *testing.T
	s      *Store
	stop   atomic.Bool
	seed   uint64
	groups int
	width  int
	space  atomic.Uint32
	pins   chan pinnedItem
	gets   atomic.Int64
	hits   atomic.Int64
	wg     sync.WaitGroup // all but the sender
	sent   sync.WaitGroup // the sender
}

type pinnedItem struct {
	it   Item
	key  []byte
	wire []byte
}

// run repeats a worker's step until the end.
func (tt *torturer) run(n uint64, step func(r *rand.Rand), end func()) {
	tt.wg.Add(1)
	go func() {
		defer tt.wg.Done()
		defer end()
		r := rand.New(rand.NewPCG(tt.seed, n))
		for !tt.stop.Load() && !tt.t.Failed() {
			step(r)
		}
	}()
}

func groupKey(dst []byte, group, i int) []byte {
	return strconv.AppendInt(append(strconv.AppendInt(append(dst[:0], "g:"...), int64(group), 10), ':'), int64(i), 10)
}

// publisher writes whole groups: every key of a group has the group's version.
func (tt *torturer) publisher() (step func(r *rand.Rand), end func()) {
	b := tt.s.NewBatch()
	versions := make([]uint64, tt.groups)
	var key, value []byte
	return func(r *rand.Rand) {
		sp := Space(tt.space.Load())
		for range 1 + r.IntN(4) {
			g := r.IntN(tt.groups)
			versions[g]++
			if r.IntN(10) == 0 {
				for i := range tt.width {
					b.Delete(sp, groupKey(key, g, i))
				}
				continue
			}
			mark := b.Mark()
			for i := range tt.width {
				key = groupKey(key, g, i)
				value = provenValue(value, key, versions[g], 20+r.IntN(300))
				if err := b.Put(sp, key, value, 7, 0, 0); err != nil {
					b.Truncate(mark)
					break
				}
			}
		}
		switch r.IntN(200) {
		case 0:
			b.Discard()
		case 1: // a new space takes over, empty but for what follows
			next, err := tt.s.NewSpace("g")
			if err != nil {
				break // all are being swept
			}
			b.Drop(sp)
			b.Open(next)
			tt.space.Store(uint32(next))
		}
		b.Publish()
	}, b.Close
}

// reader checks bytes, whole transactions, and that no key goes back.
func (tt *torturer) reader() (step func(r *rand.Rand), end func()) {
	c := tt.s.NewSession()
	seen := make([]uint64, tt.groups)
	keys, items := make([][]byte, tt.width), make([]Item, tt.width)
	var key, scratch []byte
	scratch = make([]byte, 0, 1<<16)
	return func(r *rand.Rand) {
		c.Begin()
		for range 1 + r.IntN(4) {
			g := r.IntN(tt.groups)
			var first uint64
			hits := 0
			together := r.IntN(2) == 0
			if together {
				for i := range tt.width {
					keys[i] = groupKey(keys[i], g, i)
				}
				c.GetAll(keys, items)
			}
			for i := range tt.width {
				key = groupKey(key, g, i)
				var it Item
				if together {
					it = items[i]
				} else {
					it = c.Get(key)
				}
				if !it.OK() {
					continue
				}
				version, ok := proven(scratch, key, it.Value())
				if !ok || !bytes.Equal(it.Key(), key) {
					tt.t.Errorf("wrong bytes under %s: %.60q", key, it.Wire())
				}
				if hits++; hits == 1 {
					first = version
				}
				if version != first {
					tt.t.Errorf("group %d has versions %d and %d: a torn transaction (G3)", g, first, version)
				}
			}
			if hits != 0 && hits != tt.width {
				tt.t.Errorf("group %d: %d of %d keys: a torn transaction (G3)", g, hits, tt.width)
			}
			if hits != 0 && first < seen[g] {
				tt.t.Errorf("group %d went back from %d to %d (G2)", g, seen[g], first)
			}
			if hits != 0 {
				seen[g] = first
			}
			tt.gets.Add(int64(tt.width))
			tt.hits.Add(int64(hits))
		}
		if r.IntN(2) == 0 {
			c.End()
		}
		c.Release()
	}, c.Close
}

// client stores, changes, reads and pins unmapped keys.
func (tt *torturer) client(keys int) (step func(r *rand.Rand), end func()) {
	c := tt.s.NewSession()
	var key, value, scratch []byte
	scratch = make([]byte, 0, 1<<18)
	return func(r *rand.Rand) {
		c.Begin()
		defer c.Release()
		for range 1 + r.IntN(10) {
			key = strconv.AppendInt(append(key[:0], "u:"...), int64(r.IntN(keys)), 10)
			n := 20 + r.IntN(300)
			if r.IntN(300) == 0 {
				n = r.IntN(200000)
			}
			switch r.IntN(10) {
			case 0, 1, 2:
				value = provenValue(value, key, r.Uint64(), n)
				d, err := c.Reserve(key, 0, int64(r.IntN(2))*(tt.s.Now()+100), len(value))
				if err != nil {
					continue
				}
				copy(d.Data(), value)
				c.Store(d, Mode(r.IntN(3)), 0)
			case 3:
				c.Delete(key, 0)
			case 4:
				c.Touch(key, tt.s.Now()+int64(r.IntN(3)))
			case 5:
				n := strconv.AppendInt(append([]byte(nil), "n:"...), int64(r.IntN(20)), 10)
				c.Incr(n, 1, IncrOptions{Create: true, Initial: 1})
			default:
				it := c.Get(key)
				tt.gets.Add(1)
				if !it.OK() {
					continue
				}
				tt.hits.Add(1)
				if _, ok := proven(scratch, key, it.Value()); !ok || !bytes.Equal(it.Key(), key) {
					tt.t.Errorf("wrong bytes under %s: %.60q", key, it.Wire())
				}
				if r.IntN(20) == 0 {
					it.Pin()
					select {
					case tt.pins <- pinnedItem{it, bytes.Clone(key), bytes.Clone(it.Wire())}:
					default:
						it.Unpin()
					}
				}
			}
		}
	}, c.Close
}

// sender looks at pinned items long after their sessions released them.
func (tt *torturer) sender() {
	tt.sent.Add(1)
	go func() {
		defer tt.sent.Done()
		var held []pinnedItem
		for p := range tt.pins {
			held = append(held, p)
			if len(held) < 100 {
				continue
			}
			for _, p := range held {
				if !bytes.Equal(p.it.Wire(), p.wire) {
					tt.t.Errorf("the pinned item %s changed from %.60q to %.60q (I8)", p.key, p.wire, p.it.Wire())
				}
				p.it.Unpin()
			}
			held = held[:0]
		}
		for _, p := range held {
			p.it.Unpin()
		}
	}()
}

// TestTorture lets everything happen at once: transactions, spaces that replace each other,
// clients that write more than fits, pins. Readers prove every byte.
func TestTorture(t *testing.T) {
	seed := *tortureSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-torture.seed=%d -torture=%v", seed, *tortureTime)
	s, err := New(Options{Limit: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	c := s.NewSession()
	for n := range 60000 { // nearly full from the start
		key := fmt.Appendf(nil, "u:%d", n)
		value := provenValue(nil, key, 1, 100)
		store(t, c, string(key), string(value), 0, 0)
	}
	c.Close()
	tt := &torturer{t: t, s: s, seed: seed, groups: 200, width: 8, pins: make(chan pinnedItem, 100)}
	sp, err := s.NewSpace("g")
	if err != nil {
		t.Fatal(err)
	}
	s.OpenSpace(sp)
	tt.space.Store(uint32(sp))
	tt.sender()
	step, end := tt.publisher()
	tt.run(1, step, end)
	for n := range uint64(2) {
		step, end = tt.reader()
		tt.run(10+n, step, end)
		step, end = tt.client(60000)
		tt.run(20+n, step, end)
	}
	time.Sleep(*tortureTime)
	tt.stop.Store(true)
	tt.wg.Wait()
	close(tt.pins)
	tt.sent.Wait()
	st := s.Stats()
	t.Logf("%d gets, %d hits; %d published, %d evictions, %d moved, %d items, bytes %d of %d, retired %d",
		tt.gets.Load(), tt.hits.Load(), st.Published, st.Evictions, st.Moved, st.Items, st.Bytes, st.Limit, st.Retired)
	if st.Evictions == 0 || st.Published == 0 || tt.hits.Load() == 0 {
		t.Error("the test did not do what it is for")
	}
	if st.Bytes > st.Limit {
		t.Errorf("%d bytes used of %d", st.Bytes, st.Limit)
	}
	closeChecked(t, s)
}
