package binlog

import "time"

// transaction is the one being read.
type transaction struct {
	open      bool // EventBegin was given out and EventCommit was not
	begun     bool // it goes on to an XID, COMMIT or ROLLBACK; else one statement is all of it
	skip      bool // given out by an earlier connection: nothing of it is given out again
	capture   bool // inside XA START ... XA PREPARE
	number    uint64
	gtid      gtidEvent
	time      time.Time
	precision time.Duration
	told      []Event // the EventInvalidate given out since EventBegin
}

// begin opens the transaction that a GTID event announces.
func (s *Source) begin(g gtidEvent, e *rawEvent) *Event {
	aborted := s.tx.open && s.tx.begun
	if s.tx.open && !s.tx.begun { // a group that held nothing that needs an end
		s.pushCommit()
		s.queue[len(s.queue)-1].end.at = s.started(e)
	}
	number := s.tx.number + 1
	s.tx = transaction{number: number, gtid: g, begun: g.isMaria && !g.standalone, told: s.tx.told[:0]}
	if aborted {
		s.push(Event{Kind: EventAbort}) // the source stopped inside it and never ended it
	}
	if g.number != 0 && s.done != nil && s.done.mysql != nil && s.done.mysql.has(g.source, g.number) {
		s.tx.skip = true
		return nil
	}
	if s.beforeSkip() {
		s.tx.skip = true
		return nil
	}
	if g.prepared {
		s.tx.capture = true
		s.xa.start()
	}
	ev := s.open(e)
	if s.queued < len(s.queue) {
		s.push(*ev)
		return nil
	}
	return ev
}

// started gives the place before an event of the log that has just been read.
func (s *Source) started(e *rawEvent) cursor {
	at := s.at
	at.pos -= min(at.pos, uint64(e.size))
	return at
}

// open makes the EventBegin of s.tx.
func (s *Source) open(e *rawEvent) *Event {
	s.tx.open = true
	t, precision := time.Unix(int64(e.time), 0), time.Second
	if s.tx.gtid.micros != 0 {
		t, precision = time.UnixMicro(int64(s.tx.gtid.micros)), time.Microsecond
	}
	s.tx.time, s.tx.precision = s.clock.at(t), precision
	s.ev = Event{Kind: EventBegin, CommitTime: s.tx.time, CommitPrecision: precision}
	return &s.ev
}

// ensure opens a transaction that no GTID event announced (servers before MySQL 5.7). It queues the EventBegin.
func (s *Source) ensure(e *rawEvent) {
	if s.tx.open {
		return
	}
	s.tx = transaction{number: s.tx.number + 1, told: s.tx.told[:0]}
	s.push(*s.open(e))
}

// commitPoint is what the position advances over when an EventCommit is given out.
type commitPoint struct {
	at   cursor
	gtid gtidEvent
}

// giveCommit ends the transaction with an EventCommit to be given out now.
func (s *Source) giveCommit() *Event {
	if s.queued < len(s.queue) {
		s.pushCommit()
		return nil
	}
	if !s.tx.open {
		s.settleBetween()
		return nil
	}
	s.reach(s.at, &s.tx.gtid)
	s.ev = s.endTransaction()
	return &s.ev
}

// pushCommit ends the transaction with an EventCommit behind what is queued. The position advances when it is given out.
func (s *Source) pushCommit() {
	if !s.tx.open {
		return
	}
	point := &commitPoint{at: s.at, gtid: s.tx.gtid}
	ev := s.endTransaction()
	ev.end = point
	s.push(ev)
}

func (s *Source) endTransaction() Event {
	ev := Event{Kind: EventCommit, CommitTime: s.tx.time, CommitPrecision: s.tx.precision}
	s.tx.open, s.tx.begun, s.tx.capture = false, false, false
	s.tables.tidy()
	s.healthy()
	return ev
}

// reach advances the position over a transaction that ends at a cursor.
func (s *Source) reach(at cursor, g *gtidEvent) {
	s.settleAt(at)
	if s.done == nil {
		return
	}
	switch {
	case g.isMaria && s.done.maria != nil:
		s.done.maria.add(g.maria)
	case g.number != 0 && s.done.mysql != nil:
		s.done.mysql.add(g.source, g.number)
	}
}

// skipped follows a transaction that is not given out and reports its end.
func (s *Source) skipped(e *rawEvent) bool {
	switch e.typ {
	case evXID, evXAPrepare, evPayload, evIncident:
		return true
	case evQuery, evQueryCompressed:
		st, err := s.stmt.read(e)
		if err != nil {
			return !s.tx.begun
		}
		switch st.class {
		case stmtBegin, stmtXAStart:
			s.tx.begun = true
			return false
		case stmtCommit, stmtRollback:
			return true
		}
		return !s.tx.begun
	case evGTID, evAnonymousGTID, evGTIDTagged, evMariaGTID:
		return true // cannot be: the former never ended
	}
	return false
}

// alone wraps an event that stands outside a BEGIN into a transaction of its own.
func (s *Source) alone(ev *Event) *Event {
	if ev == nil {
		if s.tx.open && !s.tx.begun {
			return s.giveCommit()
		}
		return nil
	}
	if s.tx.open && s.tx.begun {
		return ev
	}
	mine := *ev
	if !s.tx.open {
		s.tx = transaction{number: s.tx.number + 1, told: s.tx.told[:0]}
		s.push(*s.open(&rawEvent{time: uint32(time.Now().Unix())}))
	}
	s.push(mine)
	s.pushCommit()
	return nil
}

// invalidateAll makes an EventInvalidate for every table.
func (s *Source) invalidateAll(reason string) *Event {
	return s.invalidate(Event{Kind: EventInvalidate, All: true, Reason: reason})
}

// invalidateEntry makes one for a table, once in a transaction.
func (s *Source) invalidateEntry(t *tableEntry, reason string) *Event {
	if t.told == s.tx.number {
		return nil
	}
	t.told = s.tx.number
	return s.invalidate(Event{Kind: EventInvalidate, Tables: []TableName{t.watch.name}, Reason: reason})
}

func (s *Source) invalidate(ev Event) *Event {
	ev.CommitTime, ev.CommitPrecision = s.tx.time, s.tx.precision
	if s.tx.open {
		s.tx.told = append(s.tx.told, ev)
	}
	s.ev = ev
	return &s.ev
}
