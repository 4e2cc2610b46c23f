package binlog

import "strings"

// onQuery gives a logged statement its meaning.
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
		return s.commit(), nil
	case stmtRollback:
		return s.rolledBack(e), nil
	case stmtSavepoint, stmtRollbackTo:
		if !s.tx.open {
			return nil, nil
		}
		kind := EventSavepoint
		if st.class == stmtRollbackTo {
			kind = EventRollbackTo
		}
		s.ev = Event{Kind: kind, Name: st.name, CommitTime: s.tx.time, CommitPrecision: s.tx.precision}
		if s.tx.capture { // inside XA what is kept cannot be cut back
			s.xa.current.unclear = append(s.xa.current.unclear, Event{Kind: EventInvalidate, All: true, Reason: ReasonXA})
			return nil, nil
		}
		return &s.ev, nil
	case stmtXAStart:
		s.ensure(e)
		s.tx.begun, s.tx.capture = true, true
		s.xa.start()
		return nil, nil
	case stmtXACommit:
		s.ensure(e)
		return s.commitXA(s.xa.take(st.xid))
	case stmtXARollback:
		s.xa.take(st.xid)
		return s.alone(nil), nil
	case stmtIgnored:
		return s.alone(nil), nil
	}
	ev := s.concerns(st)
	if s.tx.capture && ev != nil {
		s.xa.current.unclear = append(s.xa.current.unclear, *ev)
		return nil, nil
	}
	return s.alone(ev), nil
}

// rolledBack ends a transaction that the source rolled back and logged all the same, because it changed tables that cannot
// be rolled back: nothing of what was given out counts, and what stands must be read.
func (s *Source) rolledBack(e *rawEvent) *Event {
	if !s.tx.open {
		s.settleBetween()
		return nil
	}
	s.xa.abandon()
	s.push(Event{Kind: EventAbort})
	s.tx.told = s.tx.told[:0]
	s.push(*s.open(e))
	s.push(*s.invalidateAll(ReasonStatement))
	s.push(*s.commit())
	return nil
}

// concerns makes the EventInvalidate of a statement, nil when no watched name is concerned.
func (s *Source) concerns(st statement) *Event {
	if st.class == stmtUnknown {
		if len(s.watches.names) == 0 {
			return nil
		}
		return s.invalidateAll(st.reason)
	}
	var names []TableName
	for _, n := range st.tables {
		if w := s.watches.find(n.Schema, n.Name); w != nil {
			names = append(names, w.name)
		}
	}
	if st.schema != "" {
		for _, w := range s.watches.names {
			if w.name.Schema == st.schema || s.watches.fold && strings.EqualFold(w.name.Schema, st.schema) {
				names = append(names, w.name)
			}
		}
	}
	if len(names) == 0 {
		return nil
	}
	return s.invalidate(Event{Kind: EventInvalidate, Tables: names, Reason: st.reason})
}
