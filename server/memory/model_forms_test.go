package memory

import (
	"bytes"
	"strconv"
)

// The forms of the model's operations that the meta and binary protocols add, and look-ups in
// groups.

// group looks several keys up at once: each must be what a look-up alone gives.
func (m *model) group() {
	m.t.Helper()
	var keys [][]byte
	for range 1 + m.r.IntN(2*GroupKeys) {
		keys = append(keys, []byte(m.key()), []byte(m.rowKey()))
	}
	items := make([]Item, len(keys))
	m.c.Begin()
	defer m.c.Release()
	m.c.GetAll(keys, items)
	for i, key := range keys {
		want := m.visible(string(key))
		it := items[i]
		if it.OK() != (want != nil) {
			m.t.Fatalf("get %s in a group: hit %v, want %v", key, it.OK(), want != nil)
		}
		if want != nil && (!bytes.Equal(it.Value(), want.value) || !bytes.Equal(it.Key(), key) || it.CAS() != want.cas || it.Flags() != want.flags) {
			m.t.Fatalf("get %s in a group: %.80q cas %d, want %.80q cas %d", key, it.Wire(), it.CAS(), want.value, want.cas)
		}
	}
}

// create counts in a key that may have to be made first, perhaps on a condition.
func (m *model) create() {
	key := "count:" + strconv.Itoa(m.r.IntN(200))
	old := m.unmapped(key)
	o := IncrOptions{Create: true, Initial: m.r.Uint64() >> m.r.IntN(64), CreateExpire: m.expire()}
	if m.r.IntN(3) == 0 {
		o.Compare, o.CAS = true, m.r.Uint64()
		if old != nil && m.r.IntN(2) == 0 {
			o.CAS = old.cas
		}
	}
	if m.r.IntN(3) == 0 {
		o.Touch, o.Expire = true, m.expire()
	}
	delta := m.r.Uint64() >> m.r.IntN(64)
	v, cas, r := m.c.Incr([]byte(key), delta, o)
	switch {
	case old == nil:
		if r != Stored || v != o.Initial {
			m.t.Fatalf("%s is made with %d: %d %v", key, o.Initial, v, r)
		}
		m.items[key] = &modelItem{value: strconv.AppendUint(nil, v, 10), expire: int64(expiry32(o.CreateExpire)), cas: m.newCAS(cas)}
	case o.Compare && o.CAS != old.cas:
		if r != Exists {
			m.t.Fatalf("count of %s with another cas: %v", key, r)
		}
	default:
		was, err := strconv.ParseUint(string(bytes.TrimRight(old.value, " ")), 10, 64)
		if err != nil {
			m.t.Fatal(err)
		}
		if r != Stored || v != was+delta {
			m.t.Fatalf("%s is %d, and %d more %d %v", key, was, delta, v, r)
		}
		text := strconv.AppendUint(nil, v, 10)
		for len(text) < len(old.value) {
			text = append(text, ' ')
		}
		it := &modelItem{value: text, expire: old.expire, cas: m.newCAS(cas), stale: old.stale}
		if o.Touch {
			it.expire = int64(expiry32(o.Expire))
		}
		m.items[key] = it
	}
}

// conditional stores in every mode on the condition of a cas, which may be older for a stale store.
func (m *model) conditional() {
	key, value, expire := m.key(), m.value(), m.expire()
	old := m.unmapped(key)
	o := StoreOptions{Mode: []Mode{Set, Replace, Append, Prepend}[m.r.IntN(4)], Compare: true, CAS: m.r.Uint64()}
	extends := o.Mode == Append || o.Mode == Prepend
	if old != nil {
		o.CAS = old.cas + uint64(m.r.IntN(3)) - 1
		o.Stale = !extends && m.r.IntN(2) == 0
	}
	d, err := m.c.Reserve([]byte(key), 3, expire, len(value))
	if err != nil {
		m.t.Fatalf("reserve %s of %d bytes: %v", key, len(value), err)
	}
	copy(d.Data(), value)
	cas, r := m.c.StoreWith(d, o)
	want := Stored
	stale := false
	switch {
	case m.owned(key):
		want = Mapped
	case old == nil:
		want = NotFound
	case o.CAS > old.cas, o.CAS < old.cas && !o.Stale:
		want = Exists
	case extends && itemSize(len(key), old.flags, len(old.value)+len(value)) > m.s.maxItem:
		want = TooLarge
	default:
		stale = o.CAS < old.cas
	}
	if r != want {
		m.t.Fatalf("store %s %+v: %v, want %v (old %+v)", key, o, r, want, old)
	}
	if r != Stored {
		return
	}
	it := &modelItem{value: value, flags: 3, expire: int64(expiry32(expire)), cas: m.newCAS(cas), stale: stale}
	switch o.Mode {
	case Append:
		it.value, it.flags, it.expire = append(bytes.Clone(old.value), value...), old.flags, old.expire
	case Prepend:
		it.value, it.flags, it.expire = append(bytes.Clone(value), old.value...), old.flags, old.expire
	default:
		if stale {
			it.expire = old.expire
		}
	}
	m.items[key] = it
}

// vivify makes an empty item where there is none, and empties one that there is.
func (m *model) vivify() {
	key, expire := m.key(), m.expire()
	old := m.unmapped(key)
	if old != nil && m.r.IntN(2) == 0 {
		r := m.c.DeleteWith([]byte(key), DeleteOptions{Empty: true, Touch: true, Expire: expire})
		if m.owned(key) {
			if r != Mapped {
				m.t.Fatalf("%s is emptied: %v", key, r)
			}
			return
		}
		if r != Deleted {
			m.t.Fatalf("%s is emptied: %v", key, r)
		}
		m.c.Begin()
		defer m.c.Release()
		it := &modelItem{value: nil, expire: int64(expiry32(expire)), stale: old.stale, cas: m.s.casBase + m.s.seq.Load()}
		m.newCAS(it.cas)
		m.items[key] = it
		return
	}
	m.c.Begin()
	defer m.c.Release()
	it, r := m.c.Vivify([]byte(key), expire, 0)
	switch {
	case m.owned(key):
		if r != Mapped {
			m.t.Fatalf("vivify %s: %v", key, r)
		}
	case old != nil:
		if r != NotStored {
			m.t.Fatalf("vivify %s, which there is: %v", key, r)
		}
	default:
		if r != Stored || !it.Won() || len(it.Value()) != 0 {
			m.t.Fatalf("vivify %s: %v %.60q", key, r, it.Wire())
		}
		m.items[key] = &modelItem{expire: int64(expiry32(expire)), cas: m.newCAS(it.CAS())}
	}
}
