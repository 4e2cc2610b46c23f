package binlog

import (
	"encoding/binary"
	"slices"
)

// xaMost bounds the row events kept of prepared XA transactions, in bytes. What does not fit is not kept: the tables
// concerned are invalidated at XA COMMIT instead.
const xaMost = 64 << 20

// xaStore keeps the row events of XA transactions from XA START to XA COMMIT, since other transactions come between.
type xaStore struct {
	current *xaTransaction // being captured
	ready   map[string]*xaTransaction
	bytes   int
	most    int
}

// xaTransaction is what is known of one.
type xaTransaction struct {
	events  []byte // each: type, four bytes of length, body
	tables  []TableName
	mapped  map[uint64][]byte // ids whose TABLE_MAP is in events
	missing []TableName       // tables whose rows are not in events
	full    bool              // events hit the bound
	unclear []Event           // EventInvalidate met inside
}

func (x *xaStore) init() { *x = xaStore{ready: make(map[string]*xaTransaction), most: xaMost} }

func (x *xaStore) start() {
	x.current = &xaTransaction{mapped: make(map[uint64][]byte)}
}

// rows keeps a row event of the transaction being captured.
func (x *xaStore) rows(t *tableEntry, e *rawEvent) {
	c := x.current
	if c == nil {
		return
	}
	name := TableName{Schema: string(t.schema), Name: string(t.name)}
	need := 10 + len(e.body) + len(t.raw)
	if t.watch == nil || t.watch.table == nil || c.full || x.bytes+need > x.most {
		if t.watch != nil && t.watch.table != nil {
			c.drop(x)
		}
		if !slices.Contains(c.missing, name) {
			c.missing = append(c.missing, name)
		}
		return
	}
	before := len(c.events)
	if raw, ok := c.mapped[t.id]; !ok || !slices.Equal(raw, t.raw) {
		c.events = appendKept(c.events, evTableMap, t.raw)
		c.mapped[t.id] = t.raw
		if !slices.Contains(c.tables, name) {
			c.tables = append(c.tables, name)
		}
	}
	c.events = appendKept(c.events, e.typ, e.body)
	x.bytes += len(c.events) - before
}

// drop gives up keeping events: all tables so far are missing.
func (c *xaTransaction) drop(x *xaStore) {
	if c.full {
		return
	}
	c.full = true
	x.bytes -= len(c.events)
	c.events = nil
	for _, n := range c.tables {
		if !slices.Contains(c.missing, n) {
			c.missing = append(c.missing, n)
		}
	}
}

func appendKept(b []byte, typ byte, body []byte) []byte {
	b = append(b, typ)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(body)))
	return append(b, body...)
}

// prepare ends the capture under the xid.
func (x *xaStore) prepare(xid string) {
	if x.current == nil {
		return
	}
	if old := x.ready[xid]; old != nil {
		x.bytes -= len(old.events)
	}
	x.ready[xid] = x.current
	x.current = nil
}

// abandon ends the capture and forgets what it kept.
func (x *xaStore) abandon() {
	if x.current != nil {
		x.bytes -= len(x.current.events)
		x.current = nil
	}
}

// take removes and gives a prepared transaction, nil when it is not known.
func (x *xaStore) take(xid string) *xaTransaction {
	t := x.ready[xid]
	if t != nil {
		delete(x.ready, xid)
		x.bytes -= len(t.events)
	}
	return t
}

// xaReplay gives kept events out at XA COMMIT.
type xaReplay struct {
	on     bool
	events []byte
}

func (r *xaReplay) active() bool { return r.on }
func (r *xaReplay) reset()       { *r = xaReplay{} }

// next gives the next event; after the last an XID, so that the transaction commits.
func (r *xaReplay) next() (rawEvent, error) {
	if len(r.events) == 0 {
		r.reset()
		return rawEvent{typ: evXID}, nil
	}
	n := binary.LittleEndian.Uint32(r.events[1:])
	e := rawEvent{typ: r.events[0], body: r.events[5 : 5+n]}
	r.events = r.events[5+n:]
	return e, nil
}

// onXAPrepare ends XA START ... XA END: the transaction waits for its XA COMMIT, or is committed in one phase (MySQL
// source documentation, page "XA_prepare_event"; MariaDB writes the same).
func (s *Source) onXAPrepare(e *rawEvent) (*Event, error) {
	b := byteReader{b: e.body}
	onePhase := b.byte() != 0
	format := int32(b.uint(4))
	gtrid, bqual := int(b.uint(4)), int(b.uint(4))
	data := b.take(gtrid + bqual)
	if b.short || gtrid > len(data) {
		return nil, e.corrupt("cut short")
	}
	s.tx.capture = false
	if !onePhase {
		s.xa.prepare(xidKey(format, data[:gtrid], data[gtrid:]))
		return s.giveCommit(), nil
	}
	t := s.xa.current
	s.xa.abandon()
	return s.commitXA(t)
}

// commitXA gives out a transaction that was kept; nil is one that is not known.
func (s *Source) commitXA(t *xaTransaction) (*Event, error) {
	if t == nil {
		s.push(*s.invalidateAll(ReasonXA))
		s.pushCommit()
		return nil, nil
	}
	for _, ev := range t.unclear {
		s.push(*s.invalidate(ev))
	}
	var names []TableName
	for _, n := range t.missing {
		if w := s.watches.find(n.Schema, n.Name); w != nil {
			names = append(names, w.name)
		}
	}
	if len(names) > 0 {
		s.push(*s.invalidate(Event{Kind: EventInvalidate, Tables: names, Reason: ReasonXA}))
	}
	s.tx.begun = true
	s.replay = xaReplay{on: true, events: t.events}
	return nil, nil
}

// xidKey gives one string for an xid.
func xidKey(format int32, gtrid, bqual []byte) string {
	b := binary.LittleEndian.AppendUint32(nil, uint32(format))
	b = append(b, byte(len(gtrid)))
	b = append(append(b, gtrid...), bqual...)
	return string(b)
}
