package binlog

import (
	"context"
	"encoding/binary"
	"fmt"
	"time"
)

// onRotate follows the log into another file. The server also sends one at the start of a dump, to name the file.
func (s *Source) onRotate(e *rawEvent) (*Event, error) {
	if len(e.body) < 8 {
		return nil, e.corrupt("short")
	}
	file := string(e.body[8:])
	pos := binary.LittleEndian.Uint64(e.body)
	if file == s.at.file {
		if e.time != 0 && e.flags&flagArtificial == 0 {
			return nil, fmt.Errorf("%w: a ROTATE to the file it is in", errProtocol)
		}
		if s.firstFormat && pos > 4 && pos < 1<<32 && s.at.pos < 1<<32 {
			s.at.pos = max(s.at.pos, pos) // a dump by GTIDs may begin earlier in the file and leave out what we have
		}
		return nil, nil
	}
	if s.at.file != "" && logBase(s.at.file) == logBase(file) && logNumber(file) < logNumber(s.at.file) && !s.firstFormat {
		return nil, s.resetError(file, pos)
	}
	s.at = cursor{file: file, pos: pos, anchor: 4}
	s.settleBetween()
	return nil, nil
}

// resetError tells that the log began anew while it was followed.
func (s *Source) resetError(file string, pos uint64) error {
	return fmt.Errorf("%w: the source's log went back from %s to %s:%d (RESET BINARY LOGS AND GTIDS, RESET MASTER); every table will be copied again",
		ErrPositionLost, s.at, file, pos)
}

// onFormat takes in a FORMAT_DESCRIPTION (MySQL source documentation, page "Format_description_event"): each file begins
// with one, and each dump. Its time is the file's creation, which tells a file from a later one of the same name.
func (s *Source) onFormat(e *rawEvent) (*Event, error) {
	b := e.body
	if len(b) < formatHeaderSize+int(evTableMap)+1+1 {
		return nil, e.corrupt("short")
	}
	if v := binary.LittleEndian.Uint16(b); v != 4 {
		return nil, e.corrupt(fmt.Sprintf("log version %d", v))
	}
	if n := b[formatHeaderSize+evTableMap-1]; n != 8 {
		return nil, e.corrupt(fmt.Sprintf("table maps with a header of %d bytes", n))
	}
	// Since MySQL 5.6 and MariaDB 5.3 a byte before the event's own checksum tells whether the others have one.
	s.checksum = b[len(b)-checksumSize-1] == 1
	first := s.firstFormat
	s.firstFormat = false
	if first && s.resume.created != 0 && s.resume.file == s.at.file && s.resume.file != "" && s.resume.created != e.time {
		return nil, fmt.Errorf("%w: the source's %s is another file than before (RESET BINARY LOGS AND GTIDS, RESET MASTER); every table will be copied again",
			ErrPositionLost, s.at.file)
	}
	// The server's start is in the event of its first file; a dump by GTIDs may leave that file out. (MySQL source
	// documentation, page "Format_description_event": created is 0 unless the server has just started.)
	restarted := !first && binary.LittleEndian.Uint32(b[createdOffset:]) != 0 ||
		first && s.formatIn != "" && s.formatIn != s.at.file
	s.formatIn = s.at.file
	s.at.created = e.time
	if s.resume.file == s.at.file {
		s.resume.created = e.time
	}
	if e.end != 0 && e.flags&flagArtificial == 0 && !first {
		s.at.moveTo(e.end)
	}
	switch {
	case first:
	case s.tx.open && s.tx.begun:
		// A transaction that the former file did not end was rolled back when the server restarted.
		s.tx = transaction{number: s.tx.number}
		s.settle()
		s.push(Event{Kind: EventAbort})
	default:
		s.settleBetween()
	}
	if !restarted {
		return nil, nil
	}
	ev := Event{Kind: EventInvalidate, Reason: ReasonRestart}
	for _, w := range s.watches.names {
		if w.table != nil && w.table.Volatile {
			ev.add(w.name)
		}
	}
	if len(ev.Tables) == 0 {
		return nil, nil
	}
	return s.alone(s.invalidate(ev)), nil
}

// onHeartbeat takes in a sign of life. It tells where the source's log ends, which must not lie behind.
func (s *Source) onHeartbeat(ctx context.Context, e *rawEvent) (*Event, error) {
	file, pos := string(e.body), uint64(0)
	if e.typ == evHeartbeat2 {
		var err error
		if file, pos, err = parseHeartbeat2(e); err != nil {
			return nil, err
		}
	} else {
		c := s.at
		if c.file == file {
			pos = c.pos&^(1<<32-1) | uint64(e.end) // cannot be told from a wrap: no more than a hint
		} else {
			pos = uint64(e.end)
		}
	}
	s.counts.heartbeat.Store(time.Now().UnixNano())
	if file != "" && s.at.file != "" && logBase(file) == logBase(s.at.file) && !s.firstFormat {
		back := logNumber(file) < logNumber(s.at.file) ||
			file == s.at.file && pos < s.at.pos && (e.typ == evHeartbeat2 || s.at.pos < 1<<32)
		if back && pos != 0 {
			return nil, s.resetError(file, pos)
		}
		if file == s.at.file && pos > s.at.pos && e.typ == evHeartbeat2 {
			s.at.pos = pos // skipped transactions
			s.settleBetween()
		} else if file == s.at.file && uint64(e.end) > s.at.pos && s.at.pos < 1<<32 {
			s.at.pos = uint64(e.end)
			s.settleBetween()
		}
	}
	if s.tx.open || s.tx.skip {
		return nil, nil
	}
	if err := s.checkIdle(ctx); err != nil {
		return nil, err
	}
	s.healthy()
	s.ev = Event{Kind: EventHeartbeat}
	return &s.ev, nil
}

// idleCheckMost bounds the question that an idle source is asked: what it logs meanwhile waits.
const idleCheckMost = time.Second

// checkIdle asks an idle source where its log ends. A dump that lives through RESET BINARY LOGS AND GTIDS or RESET MASTER is
// told nothing: it goes on waiting at its old place, sends heartbeats from there and none of what the new log holds. So the
// end must not lie before what was given out, and what it was one heartbeat ago must have come by now.
func (s *Source) checkIdle(ctx context.Context) error {
	if s.at.file == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, min(idleCheckMost, s.cfg.ReadTimeout/4))
	defer cancel()
	end, err := s.written(ctx, s.pool.db)
	if err != nil {
		return nil // the next heartbeat asks again; a broken connection shows by itself
	}
	if end.Server != s.server.identity {
		return fmt.Errorf("%w: another server answers queries (%s) than sends the log (%s)", errStuck, end.Server, s.server.identity)
	}
	if logBase(end.File) == logBase(s.at.file) && fileBefore(end.File, end.Pos, s.at.file, s.at.pos) {
		return s.resetError(end.File, end.Pos)
	}
	if !s.idleEnd.IsZero() && !s.Reached(s.idleEnd) {
		return fmt.Errorf("%w: its log reached %s a heartbeat ago and the dump is at %s", errStuck, s.idleEnd, s.at)
	}
	s.idleEnd = end
	return nil
}

// parseHeartbeat2 reads HEARTBEAT_LOG_EVENT_V2 (MySQL source documentation, page "Heartbeat_event_v2"): fields of a type
// byte, a length and a value.
func parseHeartbeat2(e *rawEvent) (file string, pos uint64, err error) {
	b := byteReader{b: e.body}
	for len(b.b) > 0 {
		kind := b.byte()
		if kind == 0 {
			break
		}
		value := byteReader{b: b.take(int(min(b.lenenc(), 1<<20)))}
		switch kind {
		case 1:
			file = string(value.b)
		case 2:
			pos = value.lenenc()
		}
	}
	if b.short {
		return "", 0, e.corrupt("cut short")
	}
	return file, pos, nil
}
