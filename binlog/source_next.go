package binlog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// String gives the cursor for messages.
func (c cursor) String() string { return c.file + ":" + strconv.FormatUint(c.pos, 10) }

// Next gives the next event, valid until the next call. It waits for the network as long as ctx lasts, and connects again
// by itself. An error is ctx's, or wraps ErrPositionLost (call Open again), or says that the source is not open.
func (s *Source) Next(ctx context.Context) (*Event, error) {
	for {
		if s.queued < len(s.queue) {
			s.ev = s.queue[s.queued]
			if s.queued++; s.queued == len(s.queue) {
				s.queue, s.queued = s.queue[:0], 0
			}
			if s.ev.end != nil {
				s.reach(s.ev.end.at, &s.ev.end.gtid)
			}
			return &s.ev, nil
		}
		if s.conn == nil {
			if err := s.reconnect(ctx); err != nil {
				return nil, err
			}
		}
		e, err := s.nextRaw(ctx)
		if err == nil {
			var ev *Event
			if ev, err = s.handle(ctx, &e); ev != nil && err == nil {
				if s.queued < len(s.queue) {
					s.push(*ev) // behind the EventBegin that it needed
					continue
				}
				return ev, nil
			}
		}
		if err != nil {
			if ctx.Err() != nil && !errors.Is(err, errBrokenPacket) && errors.Is(err, ctx.Err()) {
				return nil, ctx.Err()
			}
			if err := s.lost(err); err != nil {
				return nil, err
			}
		}
	}
}

// reconnect tries until it succeeds, the position is lost or ctx ends.
func (s *Source) reconnect(ctx context.Context) error {
	if s.lostErr != nil {
		return s.lostErr
	}
	if !s.opened {
		return errNotOpen
	}
	for {
		if err := sleep(ctx, s.retry.due()); err != nil {
			return err
		}
		err := s.connect(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if errors.Is(err, ErrPositionLost) {
			s.opened, s.lostErr = false, err
			return err
		}
		s.retry.failed(err)
	}
}

var errNotOpen = errors.New("the source is not open")

// lost ends a connection that failed with err. What was given out of a transaction is taken back first; an error is
// returned when there is no way to go on.
func (s *Source) lost(err error) error {
	err = s.judge(err)
	if errors.Is(err, errProtocol) {
		err = s.unread.again(s.resume, err)
	}
	s.disconnect()
	if s.tx.open && !s.tx.skip {
		s.push(Event{Kind: EventAbort})
	}
	s.tx = transaction{number: s.tx.number}
	s.replay.reset()
	if errors.Is(err, ErrPositionLost) {
		s.setState(StateLost, err)
		s.opened, s.lostErr = false, err
		if s.queued < len(s.queue) {
			return nil // the abort first; reconnect then tells
		}
		return err
	}
	s.setState(StateConnecting, err)
	s.retry.failed(err)
	return nil
}

// unreadable counts how often the log could not be read on from one place.
type unreadable struct {
	at    cursor
	times int
}

// unreadableMost is how often reading on from one place is tried: a broken connection does not break twice alike, an event
// that cannot be read stays so.
const unreadableMost = 3

// again makes the position lost when reading on from it failed too often.
func (u *unreadable) again(at cursor, err error) error {
	if u.at != at {
		*u = unreadable{at: at}
	}
	if u.times++; u.times < unreadableMost {
		return err
	}
	return fmt.Errorf("%w: the log cannot be read on from %s; every table will be copied again: %w", ErrPositionLost, at, err)
}

func (s *Source) push(ev Event) { s.queue = append(s.queue, ev) }

// nextRaw gives the next event of whatever is being read: an XA transaction that was kept, a compressed transaction, or the
// network. Only what comes from the network moves the cursor.
func (s *Source) nextRaw(ctx context.Context) (e rawEvent, err error) {
	if s.replay.active() {
		e, err = s.replay.next()
		return e, err
	}
	if s.payload.active() {
		e, err = s.payload.next()
		if err != io.EOF {
			if err == nil {
				s.counts.add(e.typ)
			}
			return e, err
		}
		s.payload.reset()
	}
	b, err := s.conn.reader.next(ctx)
	if err != nil {
		return e, err
	}
	if len(b) == 0 {
		return e, fmt.Errorf("%w: an empty packet", errProtocol)
	}
	switch b[0] {
	case 0:
	case 0xff:
		return e, errorPacket(b)
	case 0xfe:
		return e, errStreamEnd
	default:
		return e, fmt.Errorf("%w: a packet of type %#x", errProtocol, b[0])
	}
	e, err = parseEvent(b[1:], s.checksum && b[5] != evFormat)
	if err != nil {
		return e, err
	}
	s.counts.add(e.typ)
	return e, s.advance(&e)
}

// advance moves the cursor over an event of the log. The header has the low 32 bits of the next event's place; files grow
// beyond that. Events that are not in the file (artificial ones) have 0 there, and so have those that MariaDB 11.4 and
// later write through its caches: for these the sizes add up.
func (s *Source) advance(e *rawEvent) error {
	switch e.typ {
	case evRotate, evHeartbeat, evHeartbeat2, evFormat:
		return nil // they say for themselves where they stand
	}
	if e.flags&flagArtificial != 0 {
		return nil
	}
	switch e.typ {
	case evGTID, evAnonymousGTID, evGTIDTagged, evMariaGTID:
		s.starting = false
	}
	if s.starting { // the file's first events are sent however far on in the file the dump begins
		if s.at.pos < 1<<32 {
			s.at.pos = max(s.at.pos, uint64(e.end))
		}
		return nil
	}
	if e.end == 0 {
		s.at.pos += uint64(e.size)
		return nil
	}
	s.at.moveTo(e.end)
	return nil
}

// moveTo advances to the place whose low 32 bits are given.
func (c *cursor) moveTo(low uint32) {
	pos := c.pos&^(1<<32-1) | uint64(low)
	if pos < c.pos {
		pos += 1 << 32
	}
	c.pos = pos
}

// handle takes in one event and gives the event to give out, if any.
func (s *Source) handle(ctx context.Context, e *rawEvent) (*Event, error) {
	if s.tx.skip {
		if over := s.skipped(e); over {
			s.settle()
			s.tx = transaction{number: s.tx.number}
			s.payload.reset()
			return nil, nil
		}
		switch e.typ {
		case evFormat, evRotate, evHeartbeat, evHeartbeat2:
		default:
			return nil, nil
		}
	}
	switch e.typ {
	case evTableMap:
		return nil, s.tables.put(e.body)
	case evWriteRows1, evUpdateRows1, evDeleteRows1, evWriteRows2, evUpdateRows2, evDeleteRows2, evPartialUpdate,
		evWriteRowsZ1, evUpdateRowsZ1, evDeleteRowsZ1, evWriteRowsZ2, evUpdateRowsZ2, evDeleteRowsZ2:
		return s.onRows(e)
	case evQuery, evQueryCompressed, evExecuteLoad:
		return s.onQuery(e)
	case evXID:
		return s.giveCommit(), nil
	case evGTID, evAnonymousGTID:
		g, err := parseGTID(e)
		if err != nil {
			return nil, err
		}
		return s.begin(g, e), nil
	case evGTIDTagged:
		g, err := parseGTIDTagged(e)
		if err != nil {
			return nil, err
		}
		return s.begin(g, e), nil
	case evMariaGTID:
		g, err := parseMariaGTID(e, e.by)
		if err != nil {
			return nil, err
		}
		return s.begin(g, e), nil
	case evPayload:
		if s.payload.active() {
			return nil, e.corrupt("inside another")
		}
		return nil, s.payload.open(e)
	case evXAPrepare:
		return s.onXAPrepare(e)
	case evHeartbeat, evHeartbeat2:
		return s.onHeartbeat(ctx, e)
	case evRotate:
		return s.onRotate(e)
	case evFormat:
		return s.onFormat(e)
	case evPreviousGTIDs, evMariaGTIDList, evStop:
		s.settleBetween()
		return nil, nil
	case evIncident:
		return s.alone(s.invalidateAll(ReasonIncident)), nil
	case evStart, evIntvar, evRand, evUserVar, evIgnorable, evRowsQuery, evTransactionCtx, evViewChange,
		evAppendBlock, evDeleteFile, evBeginLoad, // the EXECUTE_LOAD that follows tells the statement
		evAnnotateRows, evCheckpoint, evStartEncryption:
		s.settleBetween()
		return nil, nil
	}
	if e.flags&flagIgnorable != 0 {
		s.settleBetween()
		return nil, nil
	}
	return s.alone(s.invalidateAll(ReasonUnknownEvent)), nil
}

// settle makes the cursor the place to resume at.
func (s *Source) settle() { s.settleAt(s.at) }

func (s *Source) settleAt(at cursor) {
	anchor := s.resume.anchor
	if s.resume.file != at.file {
		anchor = 4
	}
	if at.pos < s.far {
		anchor = at.pos
	}
	s.resume = at
	s.resume.anchor = anchor
}

// settleBetween is settle between two transactions; inside one it does nothing.
func (s *Source) settleBetween() {
	if !s.tx.open && !s.tx.skip && s.queued == len(s.queue) && !s.beforeSkip() {
		s.settle()
	}
}

// beforeSkip reports whether the cursor is still in what an earlier connection gave out.
func (s *Source) beforeSkip() bool {
	return s.skipTo.file != "" && fileBefore(s.at.file, s.at.pos, s.skipTo.file, s.skipTo.pos)
}
