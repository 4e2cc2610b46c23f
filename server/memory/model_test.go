package memory

import (
	"bytes"
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"strconv"
	"testing"
	"time"
)

var (
	modelOps  = flag.Int("model.ops", 300_000, "operations of the model test")
	modelSeed = flag.Uint64("model.seed", 0, "seed of the model test; 0: chosen and printed")
)

// modelItem is what the naive map knows of a key.
type modelItem struct {
	value  []byte
	flags  uint32
	expire int64
	cas    uint64
	space  Space
	stale  bool
}

// model is the naive sibling: a map, and rules written without any thought for speed.
type model struct {
	t       *testing.T
	s       *Store
	c       *Session
	b       *Batch
	r       *rand.Rand
	now     int64
	items   map[string]*modelItem // unmapped
	rows    map[Space]map[string]*modelItem
	touched map[Space]map[string]bool
	open    map[Space]bool
	flushAt int64
	cas     uint64 // highest seen
}

func (m *model) key() string { return "key:" + strconv.Itoa(m.r.IntN(4000)) }

// rowKey gives a key that only tables use, or, seldom, one that clients use too.
func (m *model) rowKey() string {
	if m.r.IntN(50) == 0 {
		return m.key()
	}
	return "row:" + strconv.Itoa(m.r.IntN(3000))
}

func (m *model) value() []byte {
	n := m.r.IntN(200)
	switch m.r.IntN(200) {
	case 0:
		n = m.r.IntN(70000)
	case 1:
		n = m.r.IntN(300000)
	case 2, 3, 4, 5:
		n = m.r.IntN(6000)
	}
	v := make([]byte, n)
	for i := range v {
		v[i] = byte('a' + i%26)
	}
	if n > 0 {
		v[m.r.IntN(n)] = byte(m.r.Uint32())
	}
	return v
}

func (m *model) expire() int64 {
	switch m.r.IntN(10) {
	case 0:
		return -1
	case 1, 2:
		return m.now + int64(m.r.IntN(20))
	case 3:
		return m.now + 100000
	}
	return 0
}

// tick lets time pass, in both.
func (m *model) tick() {
	m.now += int64(m.r.IntN(3))
	if m.flushAt != 0 && m.now >= m.flushAt {
		m.flushAt = 0
		clear(m.items)
	}
	m.s.tick()
}

func (m *model) unmapped(key string) *modelItem {
	it := m.items[key]
	if it != nil && it.expire != 0 && it.expire <= m.now {
		delete(m.items, key)
		return nil
	}
	return it
}

// owned tells whether a table holds the key in an open or a loading space.
func (m *model) owned(key string) bool {
	for sp, rows := range m.rows {
		if it := rows[key]; it != nil && (!m.open[sp] || it.expire == 0 || it.expire > m.now) || !m.open[sp] && m.touched[sp][key] {
			return true
		}
	}
	return false
}

func (m *model) visible(key string) *modelItem {
	for sp, rows := range m.rows {
		if it := rows[key]; it != nil && m.open[sp] && (it.expire == 0 || it.expire > m.now) {
			return it
		}
	}
	return m.unmapped(key)
}

func (m *model) compare(key string) {
	m.t.Helper()
	m.c.Begin()
	defer m.c.Release()
	var it Item
	if m.r.IntN(2) == 0 {
		it = m.c.Get([]byte(key))
	} else {
		it = m.c.Peek([]byte(key))
	}
	want := m.visible(key)
	if it.OK() != (want != nil) {
		m.t.Fatalf("get %s: hit %v, want %v", key, it.OK(), want != nil)
	}
	if want == nil {
		return
	}
	wire := fmt.Sprintf("VALUE %s %d %d\r\n%s\r\n", key, want.flags, len(want.value), want.value)
	expire := want.expire
	if !bytes.Equal(it.Wire(), []byte(wire)) || it.Flags() != want.flags || it.Expire() != expire ||
		it.CAS() != want.cas || it.Space() != want.space || it.Stale() != want.stale || !bytes.Equal(it.Value(), want.value) {
		m.t.Fatalf("get %s: %.80q flags %d expire %d cas %d space %d stale %v; want %.80q %+v", key, it.Wire(), it.Flags(), it.Expire(),
			it.CAS(), it.Space(), it.Stale(), wire, want)
	}
	if got := string(it.Head()) + string(it.Tail()); got != wire {
		m.t.Fatalf("head and tail of %s: %.80q", key, got)
	}
}

// newCAS checks that a cas is new, and notes it.
func (m *model) newCAS(cas uint64) uint64 {
	m.t.Helper()
	if cas <= m.cas {
		m.t.Fatalf("cas %d after %d", cas, m.cas)
	}
	m.cas = cas
	return cas
}

func (m *model) store() {
	key, flags, expire, value := m.key(), uint32(m.r.IntN(2)*m.r.IntN(1<<20)), m.expire(), m.value()
	if m.r.IntN(50) == 0 {
		key = m.rowKey()
	}
	if m.r.IntN(4) == 0 {
		value = []byte(strconv.FormatUint(m.r.Uint64()>>m.r.IntN(60), 10))
	}
	mode := Mode(m.r.IntN(6))
	if m.r.IntN(2) == 0 {
		mode = Set
	}
	old := m.unmapped(key)
	var cas uint64
	if mode == CAS {
		cas = m.r.Uint64()
		if old != nil && m.r.IntN(2) == 0 {
			cas = old.cas
		}
	}
	d, err := m.c.Reserve([]byte(key), flags, expire, len(value))
	if err != nil {
		m.t.Fatalf("reserve %s of %d bytes: %v", key, len(value), err)
	}
	copy(d.Data(), value)
	if m.r.IntN(100) == 0 {
		d.Abort()
		return
	}
	got, r := m.c.Store(d, mode, cas)
	want := Stored
	switch {
	case m.owned(key):
		want = Mapped
	case mode == CAS && old == nil:
		want = NotFound
	case mode == CAS && old.cas != cas:
		want = Exists
	case mode == Add && old != nil, (mode == Replace || mode == Append || mode == Prepend) && old == nil:
		want = NotStored
	case (mode == Append || mode == Prepend) && itemSize(len(key), old.flags, len(old.value)+len(value)) > m.s.maxItem:
		want = TooLarge
	}
	if r != want {
		m.t.Fatalf("store %s mode %d: %v, want %v (old %+v)", key, mode, r, want, old)
	}
	if r != Stored {
		return
	}
	it := &modelItem{value: value, flags: flags, expire: int64(expiry32(expire)), cas: m.newCAS(got)}
	switch mode {
	case Append:
		it.value, it.flags, it.expire = append(bytes.Clone(old.value), value...), old.flags, old.expire
	case Prepend:
		it.value, it.flags, it.expire = append(bytes.Clone(value), old.value...), old.flags, old.expire
	}
	m.items[key] = it
}

func (m *model) incr() {
	key, delta, decr := m.key(), m.r.Uint64()>>m.r.IntN(64), m.r.IntN(2) == 0
	old := m.unmapped(key)
	v, cas, r := m.c.Incr([]byte(key), delta, IncrOptions{Decr: decr})
	if m.owned(key) || old == nil {
		if r != NotFound && r != Mapped {
			m.t.Fatalf("incr of missing %s: %v", key, r)
		}
		return
	}
	digits := old.value // up to the first blank
	if end := bytes.IndexAny(digits, " \t\n\v\f\r"); end >= 0 {
		digits = digits[:end]
	}
	n, err := strconv.ParseUint(string(digits), 10, 64)
	if err != nil {
		if r != NonNumeric {
			m.t.Fatalf("incr of %q: %v", old.value, r)
		}
		return
	}
	if !decr {
		n += delta
	} else {
		n -= min(n, delta)
	}
	if r != Stored || v != n {
		m.t.Fatalf("incr of %q by %d decr %v: %d %v, want %d", old.value, delta, decr, v, r, n)
	}
	text := strconv.FormatUint(n, 10)
	for len(text) < len(old.value) {
		text += " "
	}
	m.items[key] = &modelItem{value: []byte(text), flags: old.flags, expire: old.expire, cas: m.newCAS(cas), stale: old.stale}
}

func (m *model) delete() {
	key := m.key()
	old := m.unmapped(key)
	var cas uint64
	if m.r.IntN(4) == 0 {
		cas = m.r.Uint64()
		if old != nil && m.r.IntN(2) == 0 {
			cas = old.cas
		}
	}
	want := Deleted
	switch {
	case m.owned(key):
		want = Mapped
	case old == nil:
		want = NotFound
	case cas != 0 && cas != old.cas:
		want = Exists
	}
	if r := m.c.Delete([]byte(key), cas); r != want {
		m.t.Fatalf("delete %s: %v, want %v", key, r, want)
	}
	if want == Deleted {
		delete(m.items, key)
	}
}

func (m *model) touch() {
	key, expire := m.key(), m.expire()
	old := m.unmapped(key)
	want := Touched
	switch {
	case m.owned(key):
		want = Mapped
	case old == nil:
		want = NotFound
	}
	m.c.Begin()
	it, r := m.c.Touch([]byte(key), expire)
	if r != want {
		m.t.Fatalf("touch %s: %v, want %v", key, r, want)
	}
	if r == Touched {
		if it.CAS() != old.cas || !bytes.Equal(it.Value(), old.value) {
			m.t.Fatalf("touch %s gave %.80q cas %d, want cas %d", key, it.Wire(), it.CAS(), old.cas)
		}
		old.expire = int64(expiry32(expire))
	}
	m.c.Release()
}

func (m *model) markStale() {
	key := m.key()
	old := m.unmapped(key)
	r := m.c.DeleteWith([]byte(key), DeleteOptions{Stale: true})
	if r != Deleted {
		if old != nil && !m.owned(key) {
			m.t.Fatalf("mark %s stale: %v", key, r)
		}
		return
	}
	m.c.Begin()
	it := m.c.Peek([]byte(key))
	if it.OK() {
		old.cas = m.newCAS(it.CAS())
		won := m.c.TryWin(it)
		if !won || m.c.TryWin(it) || !it.Won() {
			m.t.Fatalf("the token of %s was not handed out once", key)
		}
	}
	old.stale = true
	m.c.Release()
}

func (m *model) pickSpace() (Space, bool) {
	if len(m.rows) == 0 {
		return 0, false
	}
	n := m.r.IntN(len(m.rows))
	for sp := Space(1); sp < maxSpaces; sp++ {
		if m.rows[sp] != nil {
			if n == 0 {
				return sp, true
			}
			n--
		}
	}
	return 0, false
}

// batch prepares some changes with savepoints, and publishes or discards them.
func (m *model) batch() {
	var todo []func() // what the changes do, applied at publish
	for range 1 + m.r.IntN(20) {
		sp, ok := m.pickSpace()
		if !ok {
			break
		}
		switch key := m.rowKey(); m.r.IntN(10) {
		case 0, 1, 2:
			m.b.Delete(sp, []byte(key))
			todo = append(todo, func() {
				delete(m.rows[sp], key)
				delete(m.items, key)
				m.touched[sp][key] = true
			})
		case 3:
			if m.r.IntN(20) == 0 {
				m.b.Open(sp)
				todo = append(todo, func() { m.open[sp] = true })
			}
		default:
			value, flags, expire := m.value(), m.r.Uint32(), m.expire()
			cas := uint64(m.r.IntN(2)) * m.r.Uint64()
			if err := m.b.Put(sp, []byte(key), value, flags, expire, cas); err != nil {
				m.t.Fatalf("batch put: %v", err)
			}
			todo = append(todo, func() {
				delete(m.items, key)
				m.touched[sp][key] = true
				m.rows[sp][key] = &modelItem{value: value, flags: flags, expire: int64(expiry32(expire)), cas: cas, space: sp}
			})
		}
		if len(todo) > 0 && m.r.IntN(8) == 0 {
			keep := m.r.IntN(len(todo))
			m.b.Truncate(keep)
			todo = todo[:keep]
		}
	}
	if m.b.Len() != len(todo) {
		m.t.Fatalf("batch of %d, want %d", m.b.Len(), len(todo))
	}
	if m.r.IntN(10) == 0 {
		m.b.Discard()
		return
	}
	m.b.Publish()
	for _, f := range todo {
		f()
	}
	m.learnCAS()
}

// learnCAS reads the cas that the store chose for rows.
func (m *model) learnCAS() {
	m.c.Begin()
	for sp, rows := range m.rows {
		for key, it := range rows {
			if it.cas == 0 && m.open[sp] {
				if got := m.c.Peek([]byte(key)); got.OK() {
					it.cas = got.CAS()
				}
			}
		}
	}
	m.cas = m.s.casBase + m.s.seq.Load()
	m.c.Release()
}

func (m *model) load() {
	sp, ok := m.pickSpace()
	if !ok || m.open[sp] {
		return
	}
	l := m.s.Load(sp)
	defer l.Close()
	for range 50 {
		key, value, flags := m.rowKey(), m.value(), m.r.Uint32()
		if err := l.Put([]byte(key), value, flags, 0, 7); err != nil {
			m.t.Fatalf("load: %v", err)
		}
		if m.touched[sp][key] || m.rows[sp][key] != nil {
			continue
		}
		delete(m.items, key)
		m.rows[sp][key] = &modelItem{value: value, flags: flags, cas: 7, space: sp}
	}
}

func (m *model) spaces() {
	if sp, ok := m.pickSpace(); ok && m.r.IntN(2) == 0 {
		if m.open[sp] || m.r.IntN(3) == 0 {
			m.s.DropSpace(sp)
			delete(m.rows, sp)
			delete(m.touched, sp)
			delete(m.open, sp)
			return
		}
		m.s.OpenSpace(sp)
		m.open[sp] = true
		m.learnCAS()
		return
	}
	if len(m.rows) < 1 {
		sp, err := m.s.NewSpace("t")
		if err != nil {
			m.t.Fatal(err)
		}
		m.rows[sp], m.touched[sp] = map[string]*modelItem{}, map[string]bool{}
	}
}

func (m *model) flush() {
	at := int64(0)
	if m.r.IntN(2) == 0 {
		at = m.now + int64(m.r.IntN(5))
	}
	m.c.FlushAll(at)
	if at <= m.now {
		clear(m.items)
		m.flushAt = 0
	} else {
		m.flushAt = at
	}
}

// TestModel compares the store with a naive map over random operations of every kind.
func TestModel(t *testing.T) {
	seed := *modelSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("-model.seed=%d -model.ops=%d", seed, *modelOps)
	m := &model{t: t, r: rand.New(rand.NewPCG(seed, 1)), now: 1_700_000_000,
		items: map[string]*modelItem{}, rows: map[Space]map[string]*modelItem{}, touched: map[Space]map[string]bool{}, open: map[Space]bool{}}
	var err error
	m.s, err = New(Options{Limit: 256 << 20, Clock: func() int64 { return m.now }})
	if err != nil {
		t.Fatal(err)
	}
	defer closeChecked(t, m.s)
	m.c, m.b = m.s.NewSession(), m.s.NewBatch()
	defer m.c.Close()
	defer m.b.Close()
	ops := *modelOps
	if heapReserve { // the race detector is watching: there, one goroutine shows little
		ops /= 10
	}
	for n := range ops {
		switch m.r.IntN(40) {
		case 0, 1, 2, 3, 4, 5, 6, 7, 8, 9:
			m.store()
		case 10, 11:
			m.incr()
		case 12, 13:
			m.delete()
		case 14, 15:
			m.touch()
		case 16:
			m.markStale()
		case 17, 18:
			m.batch()
		case 19:
			m.tick()
		case 20:
			if m.r.IntN(10) == 0 {
				m.load()
			}
		case 21:
			if m.r.IntN(100) == 0 {
				m.spaces()
			}
		case 22:
			if m.r.IntN(400) == 0 {
				m.flush()
			}
		case 23:
			if m.r.IntN(2000) == 0 {
				if err := m.s.Check(); err != nil {
					t.Fatalf("after %d operations: %v", n, err)
				}
			}
		case 24, 25, 26:
			m.compare(m.rowKey())
		case 27:
			switch m.r.IntN(4) {
			case 0:
				m.group()
			case 1:
				m.create()
			case 2:
				m.conditional()
			default:
				m.vivify()
			}
		default:
			m.compare(m.key())
		}
	}
	for key := range maps.Keys(m.items) {
		m.compare(key)
	}
	for _, rows := range m.rows {
		for key := range rows {
			m.compare(key)
		}
	}
	walked := map[string]bool{}
	m.s.Walk(func(it Item) bool { walked[string(it.Key())] = true; return true })
	want := 0
	for key := range m.items {
		if m.visible(key) != nil {
			want++
			if !walked[key] {
				t.Errorf("the walk missed %s", key)
			}
		}
	}
	for sp, rows := range m.rows {
		for _, it := range rows {
			if m.open[sp] && (it.expire == 0 || it.expire > m.now) {
				want++
			}
		}
	}
	if len(walked) != want {
		t.Errorf("the walk saw %d keys, want %d", len(walked), want)
	}
}

// closeChecked ends a test: every invariant holds, and the keeper ends.
func closeChecked(t testing.TB, s *Store) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Errorf("check: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Errorf("close: %v", err)
	}
}
