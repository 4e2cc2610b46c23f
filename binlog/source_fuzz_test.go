package binlog

import (
	"encoding/binary"
	"errors"
	"io"
	"testing"
)

// fuzzEvents cuts data into events: a type, a size of two bytes, the body.
func fuzzEvents(data []byte) []rawEvent {
	var events []rawEvent
	for len(data) >= 3 {
		n := min(int(binary.LittleEndian.Uint16(data[1:])), len(data)-3)
		events = append(events, rawEvent{typ: data[0], size: uint32(headerSize + n), body: data[3 : 3+n], flags: uint16(data[0]) >> 7 * flagIgnorable * uint16(n&1)})
		data = data[3+n:]
	}
	return events
}

func fuzzEvent(data []byte, typ byte, body []byte) []byte {
	data = binary.LittleEndian.AppendUint16(append(data, typ), uint16(len(body)))
	return append(data, body...)
}

// FuzzSource feeds events of any content to a source that has no connection. Nothing must panic; what is given out must be
// well-formed: every event inside one Begin and its Commit or Abort, and a position that only a Commit moves on.
func FuzzSource(f *testing.F) {
	gtid := append([]byte{0}, make([]byte, 24)...)
	gtid[1], gtid[17] = 7, 1
	tableMap := append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2}, "db\x00\x01t\x00\x02\x03\x03\x00\x00"...)
	rows := append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff}, 0, 1, 0, 0, 0, 2, 0, 0, 0)
	update := append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff, 0xff}, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0)
	query := func(text string) []byte { return queryEvent("db", text, 0, 255).body }
	join := func(parts ...any) []byte {
		var data []byte
		for i := 0; i < len(parts); i += 2 {
			data = fuzzEvent(data, byte(parts[i].(int)), parts[i+1].([]byte))
		}
		return data
	}
	f.Add(join(evGTID, gtid, evQuery, query("BEGIN"), evTableMap, tableMap, evWriteRows2, rows, evUpdateRows2, update, evXID, make([]byte, 8)))
	f.Add(join(evGTID, gtid, evQuery, query("TRUNCATE TABLE t"), evGTID, gtid, evQuery, query("DROP DATABASE db")))
	f.Add(join(evGTID, gtid, evQuery, query("XA START 'a'"), evTableMap, tableMap, evWriteRows2, rows, evQuery, query("XA END 'a'"),
		evXAPrepare, []byte("\x00\x01\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00\x00a"), evQuery, query("XA COMMIT 'a'")))
	f.Add(join(evGTID, gtid, evQuery, query("BEGIN"), evQuery, query("SAVEPOINT a"), evTableMap, tableMap, evWriteRows2, rows,
		evQuery, query("INSERT INTO x VALUES(1)"), evQuery, query("ROLLBACK TO a"), evQuery, query("ROLLBACK")))
	f.Add(join(evMariaGTID, append(make([]byte, 12), 0), evTableMap, tableMap, evWriteRows1, append(rows[:8:8], rows[10:]...), evXID, make([]byte, 8)))
	f.Add(join(evMariaGTID, append(make([]byte, 12), mariaPreparedXA), evTableMap, tableMap, evIncident, []byte{1, 0}))
	f.Add(join(evGTID, gtid, evPayload, payloadEvent(f, true, logEvent(evQuery, query("BEGIN")), logEvent(evTableMap, tableMap), logEvent(evWriteRows2, rows), logEvent(evXID, make([]byte, 8))).body))
	f.Add(join(evRotate, append([]byte{4, 0, 0, 0, 0, 0, 0, 0}, "binlog.000001"...), evHeartbeat, []byte("binlog.000001"), 200, []byte("?"), evGTIDTagged, []byte{1, 2, 3}, evPartialUpdate, rows))
	f.Fuzz(func(t *testing.T, data []byte) {
		table := &Table{TableName: TableName{"db", "t"}, Versioned: -1, Columns: []Column{{Name: "id", Kind: KindInt, Bytes: 4}, {Name: "v", Kind: KindInt, Bytes: 4}}}
		s := NewSource(Config{})
		defer s.Close()
		s.Watch(table)
		s.WatchName(TableName{"db", "x"})
		s.done = &gtids{mysql: newGTIDSet()}
		open := false
		take := func(ev *Event) {
			inside := true
			switch ev.Kind {
			case EventBegin:
				if open {
					t.Fatal("a transaction inside a transaction")
				}
				open, inside = true, false
			case EventHeartbeat:
				inside = false
				if open {
					t.Fatal("a heartbeat inside a transaction")
				}
			case EventRows:
				for n := 0; ; n++ {
					before, after, err := ev.NextRow()
					if err == io.EOF {
						break
					}
					if err != nil || before == nil && after == nil || n > len(data)+100 {
						t.Fatalf("row %d: %v %v %v", n, before, after, err)
					}
				}
			case EventInvalidate:
				if ev.Reason == "" || ev.All == (len(ev.Tables) > 0) {
					t.Fatalf("%+v", ev)
				}
			}
			if inside && !open {
				t.Fatalf("%v outside a transaction", ev.Kind)
			}
			if ev.Kind == EventCommit || ev.Kind == EventAbort {
				open = false
			}
		}
		drain := func() {
			for s.queued < len(s.queue) {
				ev := s.queue[s.queued]
				s.queued++
				take(&ev)
			}
			s.queue, s.queued = s.queue[:0], 0
		}
		one := func(e *rawEvent) error {
			ev, err := s.handle(t.Context(), e)
			if err == nil && ev != nil {
				if s.queued < len(s.queue) {
					s.push(*ev)
				} else {
					take(ev)
				}
			}
			drain()
			return err
		}
		for _, e := range fuzzEvents(data) {
			if e.typ == evHeartbeat || e.typ == evHeartbeat2 {
				s.at.file = "" // no question to a server that is not there
			}
			if err := one(&e); err != nil {
				return // the connection would be closed
			}
			for s.payload.active() || s.replay.active() {
				inner, err := rawEvent{}, error(nil)
				if s.replay.active() {
					inner, err = s.replay.next()
				} else {
					inner, err = s.payload.next()
				}
				if errors.Is(err, io.EOF) {
					s.payload.reset()
					break
				}
				if err != nil || inner.typ == evPayload {
					return
				}
				if err := one(&inner); err != nil {
					return
				}
			}
		}
	})
}
