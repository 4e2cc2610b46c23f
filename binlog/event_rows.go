package binlog

import (
	"fmt"
	"io"
)

// rowsEvent walks over the rows of one row event.
type rowsEvent struct {
	source  *Source
	entry   *tableEntry
	decoder *ImageDecoder
	op      Op
	first   []byte // columns present in the only image, or in the before image
	second  []byte // columns present in an update's after image
	data    []byte // the rows not yet read
	before  Row
	after   Row
	text    []byte // scratch
}

// rowsKind gives what a row event's type stands for.
func rowsKind(typ byte) (op Op, v2, compressed bool) {
	switch typ {
	case evWriteRows1:
		return OpInsert, false, false
	case evUpdateRows1:
		return OpUpdate, false, false
	case evDeleteRows1:
		return OpDelete, false, false
	case evWriteRows2:
		return OpInsert, true, false
	case evUpdateRows2, evPartialUpdate:
		return OpUpdate, true, false
	case evDeleteRows2:
		return OpDelete, true, false
	case evWriteRowsZ1:
		return OpInsert, false, true
	case evUpdateRowsZ1:
		return OpUpdate, false, true
	case evDeleteRowsZ1:
		return OpDelete, false, true
	case evWriteRowsZ2:
		return OpInsert, true, true
	case evUpdateRowsZ2:
		return OpUpdate, true, true
	case evDeleteRowsZ2:
		return OpDelete, true, true
	}
	return 0, false, false
}

// onRows handles a row event (MySQL source documentation, page "Rows_event"). For a table that is not watched it reads the
// table id and nothing more.
func (s *Source) onRows(e *rawEvent) (*Event, error) {
	if len(e.body) < 8 {
		return nil, e.corrupt("short")
	}
	id := tableID(e.body)
	if id == noTableID {
		return nil, nil
	}
	t := s.tables.get(id)
	if t == nil {
		s.ensure(e)
		return s.invalidateAll(ReasonShape), nil // rows of a table that was never named
	}
	t.resolve(&s.watches, s.server.mariadb)
	if s.tx.capture {
		s.xa.rows(t, e)
		return nil, nil
	}
	if t.watch == nil || t.watch.table == nil {
		return nil, nil
	}
	s.ensure(e)
	if e.typ == evPartialUpdate {
		return s.invalidateEntry(t, ReasonPartialJSON), nil
	}
	if t.decoder == nil {
		return s.invalidateEntry(t, ReasonShape), nil
	}
	r := &s.rows
	reason, err := s.setRows(r, t, e)
	if err != nil {
		s.log.Warn("a row event cannot be read", "table", t.watch.name.String(), "position", s.at.String(), "error", err)
	}
	if reason != "" {
		return s.invalidateEntry(t, reason), nil
	}
	s.ev = Event{Kind: EventRows, CommitTime: s.tx.time, CommitPrecision: s.tx.precision, Table: t.watch.table, Op: r.op, rows: r}
	return &s.ev, nil
}

// setRows points r at the rows of e. A reason says that the table has to be invalidated instead.
func (s *Source) setRows(r *rowsEvent, t *tableEntry, e *rawEvent) (reason string, err error) {
	op, v2, compressed := rowsKind(e.typ)
	b := byteReader{b: e.body[8:]}
	if v2 {
		extra := int(b.uint(2)) // its own two bytes included
		if extra < 2 {
			return ReasonShape, e.corrupt("extra data of negative length")
		}
		b.take(extra - 2)
	}
	columns := int(min(b.lenenc(), 1<<20))
	if columns != len(t.types) {
		return ReasonShape, e.corrupt(fmt.Sprintf("%d columns where TABLE_MAP has %d", columns, len(t.types)))
	}
	size := (columns + 7) / 8
	r.source, r.entry, r.decoder, r.op = s, t, t.decoder, op
	r.first = b.take(size)
	r.second = nil
	if op == OpUpdate {
		r.second = b.take(size)
	}
	if b.short {
		return ReasonShape, e.corrupt("cut short")
	}
	r.data = b.b
	if compressed {
		if s.rowBuf, err = inflateMariaDB(s.rowBuf[:0], b.b); err != nil {
			return ReasonShape, e.corrupt(err.Error())
		}
		r.data = s.rowBuf
	}
	if len(r.data) == 0 && countBits(r.first, columns) == 0 {
		return ReasonRowImage, nil // rows without a single column: their number is not even known
	}
	return "", nil
}

// next gives the next row of the event.
func (r *rowsEvent) next(ev *Event) (before, after *Row, err error) {
	for len(r.data) > 0 {
		ev.Op = r.op
		n, err := r.before.SetImage(r.decoder, r.first, r.data)
		if err == nil && r.op == OpUpdate {
			var m int
			m, err = r.after.SetImage(r.decoder, r.second, r.data[n:])
			n += m
		}
		if err == nil && n == 0 {
			err = fmt.Errorf("%w: a row without bytes", ErrCorrupt)
		}
		if err != nil {
			r.fail(err)
			return nil, nil, io.EOF
		}
		r.data = r.data[n:]
		switch r.op {
		case OpInsert:
			before, after = nil, &r.before
		case OpDelete:
			before, after = &r.before, nil
		default:
			before, after = &r.before, &r.after
		}
		if v := ev.Table.Versioned; v >= 0 {
			if before, after, err = r.live(before, after, v); err != nil {
				r.fail(err)
				return nil, nil, io.EOF
			}
			switch {
			case before == nil && after == nil:
				continue
			case before == nil:
				ev.Op = OpInsert
			case after == nil:
				ev.Op = OpDelete
			}
		}
		return before, after, nil
	}
	return nil, nil, io.EOF
}

// fail ends the event and queues the table's invalidation.
func (r *rowsEvent) fail(err error) {
	r.data = nil
	s := r.source
	s.log.Warn("a row cannot be read", "table", r.entry.watch.name.String(), "position", s.at.String(), "error", err)
	if ev := s.invalidateEntry(r.entry, ReasonShape); ev != nil {
		s.push(*ev)
	}
}

// live takes history rows of a system-versioned table away: the rows that live are those whose row_end is the end of time.
func (r *rowsEvent) live(before, after *Row, rowEnd int) (*Row, *Row, error) {
	for _, p := range []**Row{&before, &after} {
		if *p == nil {
			continue
		}
		if !(*p).Has(rowEnd) {
			return nil, nil, fmt.Errorf("%w: the row image lacks the end of the row's period", ErrCorrupt)
		}
		var err error
		if r.text, err = (*p).AppendText(r.text[:0], rowEnd); err != nil {
			return nil, nil, err
		}
		switch string(r.text) {
		case "2038-01-19 03:14:07.999999", "2106-02-07 06:28:15.999999", "18446744073709551615":
		default:
			*p = nil
		}
	}
	return before, after, nil
}
