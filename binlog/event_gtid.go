package binlog

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/go-mysql-org/go-mysql/replication"
)

// gtidEvent is what opens a transaction, of either flavor.
type gtidEvent struct {
	source     gtidSource // MySQL
	number     uint64     // MySQL; 0: anonymous
	maria      mariaGTID
	isMaria    bool
	standalone bool   // MariaDB: one statement without BEGIN
	prepared   bool   // MariaDB: XA START up to XA PREPARE
	micros     uint64 // MySQL: commit time, microseconds since 1970; 0: not told
}

// The flags of MariaDB's GTID event that matter here (MariaDB knowledge base, page "GTID_EVENT").
const (
	mariaStandalone = 1
	mariaPreparedXA = 64
)

// parseGTID reads GTID_EVENT and ANONYMOUS_GTID_EVENT (MySQL source documentation, page "Gtid_event").
func parseGTID(e *rawEvent) (g gtidEvent, err error) {
	b := e.body
	if len(b) < 25 {
		return g, e.corrupt("short")
	}
	if e.typ == evGTID {
		copy(g.source.uuid[:], b[1:17])
		if g.number = binary.LittleEndian.Uint64(b[17:]); g.number == 0 {
			return g, e.corrupt("number 0")
		}
	}
	// After a type byte of 2 come two sequence numbers, then the commit time in 7 bytes.
	if len(b) >= 25+1+16+7 && b[25] == 2 {
		g.micros = littleUint(b[42:49]) &^ (1 << 55)
	}
	return g, nil
}

// parseGTIDTagged reads GTID_TAGGED_LOG_EVENT.
func parseGTIDTagged(e *rawEvent) (g gtidEvent, err error) {
	defer func() { // the library checks lengths here and there only
		if recover() != nil {
			err = e.corrupt("cannot be decoded")
		}
	}()
	var t replication.GtidTaggedLogEvent
	if err := t.Decode(e.body); err != nil {
		return g, fmt.Errorf("%w: %w", e.corrupt("cannot be decoded"), err)
	}
	if len(t.SID) != 16 || t.GNO <= 0 {
		return g, e.corrupt("no GTID")
	}
	copy(g.source.uuid[:], t.SID)
	g.source.tag = t.Tag.String()
	g.number = uint64(t.GNO)
	g.micros = t.ImmediateCommitTimestamp
	return g, nil
}

// parseMariaGTID reads MariaDB's GTID_EVENT.
func parseMariaGTID(e *rawEvent, server uint32) (g gtidEvent, err error) {
	b := e.body
	if len(b) < 13 {
		return g, e.corrupt("short")
	}
	g.isMaria = true
	g.maria = mariaGTID{
		seq:    binary.LittleEndian.Uint64(b),
		domain: binary.LittleEndian.Uint32(b[8:]),
		server: server,
	}
	g.standalone = b[12]&mariaStandalone != 0
	g.prepared = b[12]&mariaPreparedXA != 0
	return g, nil
}

// commitClock keeps commit times from going backwards, and from the future.
type commitClock struct{ last time.Time }

func (c *commitClock) at(t time.Time) time.Time {
	if t.Before(c.last) {
		return c.last
	}
	if now := time.Now(); t.After(now) {
		t = now
	}
	if t.After(c.last) {
		c.last = t
	}
	return c.last
}
