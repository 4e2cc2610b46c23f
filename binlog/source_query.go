package binlog

// onQuery handles a statement in the log.
func (s *Source) onQuery(e *rawEvent) (*Event, error) {
	st, err := s.stmt.read(e)
	if err != nil {
		return nil, err
	}
	switch st.class {
	case stmtBegin:
		s.ensure(e)
		s.tx.begun = true
		return nil, nil
	case stmtCommit:
		return s.giveCommit(), nil
	case stmtRollback:
		return s.rollback(), nil
	case stmtSavepoint:
		if !s.tx.open || s.tx.capture {
			return nil, nil
		}
		s.ev = Event{Kind: EventSavepoint, Name: st.name, CommitTime: s.tx.time, CommitPrecision: s.tx.precision}
		return &s.ev, nil
	case stmtRollbackTo:
		return s.rollbackTo(st.name), nil
	case stmtXAStart:
		s.ensure(e)
		s.tx.begun, s.tx.capture = true, true
		s.xa.abandon()
		s.xa.start()
		return nil, nil
	case stmtXAEnd:
		return nil, nil
	case stmtXAPrepare:
		s.tx.capture = false
		s.xa.prepare(st.name)
		return s.giveCommit(), nil
	case stmtXACommit:
		s.ensure(e)
		if st.onePhase && s.xa.current != nil {
			t := s.xa.current
			s.tx.capture = false
			s.xa.abandon()
			return s.commitXA(t)
		}
		return s.commitXA(s.xa.take(st.name))
	case stmtXARollback:
		s.ensure(e)
		s.xa.take(st.name)
		if s.tx.capture {
			s.tx.capture = false
			s.xa.abandon()
		}
		return s.giveCommit(), nil
	}
	s.ensure(e)
	ev := s.concerns(st)
	if ev != nil && s.tx.capture && s.xa.current != nil {
		s.xa.current.unclear = append(s.xa.current.unclear, *ev)
		ev = nil
	}
	if s.tx.begun {
		if ev == nil {
			return nil, nil
		}
		s.push(*s.invalidate(*ev)) // behind an EventBegin that ensure queued
		return nil, nil
	}
	if ev != nil {
		s.push(*s.invalidate(*ev))
	}
	s.pushCommit()
	return nil, nil
}

// concerns makes the EventInvalidate of a statement, nil when no watched table is concerned.
func (s *Source) concerns(st *statement) *Event {
	ev := Event{Kind: EventInvalidate, Reason: st.reason}
	switch st.class {
	case stmtIgnore:
		return nil
	case stmtTables:
		for _, n := range st.tables {
			w := s.watches.find(n.Schema, n.Name)
			if w == nil {
				continue
			}
			if st.ifAbsent && w.table != nil && !w.gone {
				continue // the table exists: nothing was done
			}
			w.gone = true // or may be
			ev.add(w.name)
		}
	case stmtSchema:
		for _, w := range s.watches.names {
			if s.watches.same(w.name.Schema, st.schema) {
				w.gone = true
				ev.add(w.name)
			}
		}
	default:
		for _, w := range s.watches.names {
			w.gone = true
		}
		ev.All = true
		return &ev
	}
	if len(ev.Tables) == 0 {
		return nil
	}
	return &ev
}

// add names a table once.
func (e *Event) add(n TableName) {
	for _, x := range e.Tables {
		if x == n {
			return
		}
	}
	e.Tables = append(e.Tables, n)
}

// rollback takes a transaction back that the source rolled back, which it logs when tables without transactions were
// changed inside it. Those tables' rows are logged on their own; what was told by statements stands.
func (s *Source) rollback() *Event {
	if !s.tx.open {
		s.settleBetween()
		return nil
	}
	if s.tx.capture {
		s.tx.capture = false
		s.xa.abandon()
	}
	told := append([]Event(nil), s.tx.told...)
	s.push(Event{Kind: EventAbort})
	s.push(Event{Kind: EventBegin, CommitTime: s.tx.time, CommitPrecision: s.tx.precision})
	for _, ev := range told {
		s.push(ev)
	}
	s.pushCommit()
	return nil
}

// rollbackTo takes back what came since a savepoint, except what was told by statements.
func (s *Source) rollbackTo(name string) *Event {
	if !s.tx.open {
		return nil
	}
	if s.tx.capture {
		// The events kept cannot be cut at a savepoint: give them up.
		if c := s.xa.current; c != nil {
			c.drop(&s.xa)
		}
		return nil
	}
	s.push(Event{Kind: EventRollbackTo, Name: name, CommitTime: s.tx.time, CommitPrecision: s.tx.precision})
	for _, ev := range s.tx.told {
		s.push(ev)
	}
	return nil
}
