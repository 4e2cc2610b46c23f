package binlog

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"strconv"
)

// The event types (enum Log_event_type in the MySQL source documentation; from 160 on MariaDB's).
const (
	evStart            = 1
	evQuery            = 2
	evStop             = 3
	evRotate           = 4
	evIntvar           = 5
	evAppendBlock      = 9
	evDeleteFile       = 11
	evRand             = 13
	evUserVar          = 14
	evFormat           = 15
	evXID              = 16
	evBeginLoad        = 17
	evExecuteLoad      = 18
	evTableMap         = 19
	evWriteRows1       = 23
	evUpdateRows1      = 24
	evDeleteRows1      = 25
	evIncident         = 26
	evHeartbeat        = 27
	evIgnorable        = 28
	evRowsQuery        = 29
	evWriteRows2       = 30
	evUpdateRows2      = 31
	evDeleteRows2      = 32
	evGTID             = 33
	evAnonymousGTID    = 34
	evPreviousGTIDs    = 35
	evTransactionCtx   = 36
	evViewChange       = 37
	evXAPrepare        = 38
	evPartialUpdate    = 39
	evPayload          = 40
	evHeartbeat2       = 41
	evGTIDTagged       = 42
	evAnnotateRows     = 160
	evCheckpoint       = 161
	evMariaGTID        = 162
	evMariaGTIDList    = 163
	evStartEncryption  = 164
	evQueryCompressed  = 165
	evWriteRowsZ1      = 166
	evUpdateRowsZ1     = 167
	evDeleteRowsZ1     = 168
	evWriteRowsZ2      = 169
	evUpdateRowsZ2     = 170
	evDeleteRowsZ2     = 171
	headerSize         = 19
	flagArtificial     = 0x20
	flagIgnorable      = 0x80
	checksumSize       = 4
	noTableID          = 0xffffff // a row event that only ends a statement
	rowsFlagStatement  = 1        // the last row event of a statement
	queryHeaderSize    = 13
	formatHeaderSize   = 57 // of FORMAT_DESCRIPTION up to the post-header lengths
	createdOffset      = 52 // in FORMAT_DESCRIPTION: when the server started, 0 in a file that it began later
	formatServerOffset = 2
)

// eventTypeName gives a type's name for metrics.
func eventTypeName(t byte) string {
	switch t {
	case evQuery:
		return "query"
	case evStop:
		return "stop"
	case evRotate:
		return "rotate"
	case evFormat:
		return "format_description"
	case evXID:
		return "xid"
	case evTableMap:
		return "table_map"
	case evWriteRows1, evWriteRows2:
		return "write_rows"
	case evUpdateRows1, evUpdateRows2:
		return "update_rows"
	case evDeleteRows1, evDeleteRows2:
		return "delete_rows"
	case evWriteRowsZ1, evWriteRowsZ2:
		return "write_rows_compressed"
	case evUpdateRowsZ1, evUpdateRowsZ2:
		return "update_rows_compressed"
	case evDeleteRowsZ1, evDeleteRowsZ2:
		return "delete_rows_compressed"
	case evIncident:
		return "incident"
	case evHeartbeat, evHeartbeat2:
		return "heartbeat"
	case evRowsQuery:
		return "rows_query"
	case evGTID, evMariaGTID:
		return "gtid"
	case evGTIDTagged:
		return "gtid_tagged"
	case evAnonymousGTID:
		return "anonymous_gtid"
	case evPreviousGTIDs:
		return "previous_gtids"
	case evXAPrepare:
		return "xa_prepare"
	case evPartialUpdate:
		return "partial_update_rows"
	case evPayload:
		return "transaction_payload"
	case evAnnotateRows:
		return "annotate_rows"
	case evCheckpoint:
		return "binlog_checkpoint"
	case evMariaGTIDList:
		return "gtid_list"
	case evStartEncryption:
		return "start_encryption"
	case evQueryCompressed:
		return "query_compressed"
	case evIntvar, evRand, evUserVar:
		return "variable"
	case evAppendBlock, evDeleteFile, evBeginLoad, evExecuteLoad:
		return "load"
	case evTransactionCtx, evViewChange, evIgnorable, evStart:
		return "ignorable"
	}
	return "type_" + strconv.Itoa(int(t))
}

// rawEvent is an event as the log holds it: its header (MySQL source documentation, page "Binlog Event header") taken
// apart, and its body without checksum.
type rawEvent struct {
	typ   byte
	flags uint16
	time  uint32 // unix seconds
	by    uint32 // server_id of the server that wrote it first
	size  uint32 // of the whole event in the log
	end   uint32 // where the next event begins, its low 32 bits; 0 for an event that is not in the log
	body  []byte
}

// parseEvent takes an event apart. checksum says that its last four bytes are one.
func parseEvent(b []byte, checksum bool) (rawEvent, error) {
	if len(b) < headerSize {
		return rawEvent{}, fmt.Errorf("%w: an event of %d bytes", errProtocol, len(b))
	}
	e := rawEvent{
		time:  binary.LittleEndian.Uint32(b),
		typ:   b[4],
		by:    binary.LittleEndian.Uint32(b[5:]),
		size:  binary.LittleEndian.Uint32(b[9:]),
		end:   binary.LittleEndian.Uint32(b[13:]),
		flags: binary.LittleEndian.Uint16(b[17:]),
	}
	if uint64(e.size) != uint64(len(b)) {
		return rawEvent{}, fmt.Errorf("%w: an event of type %d says it has %d bytes and has %d", errProtocol, e.typ, e.size, len(b))
	}
	e.body = b[headerSize:]
	if checksum {
		if len(e.body) < checksumSize {
			return rawEvent{}, fmt.Errorf("%w: an event of type %d without room for its checksum", errProtocol, e.typ)
		}
		e.body = e.body[:len(e.body)-checksumSize]
	}
	return e, nil
}

// corrupt tells that an event cannot be read; the bytes stay out of the message.
func (e *rawEvent) corrupt(what string) error {
	return fmt.Errorf("%w: event of type %d (%s): %s", errProtocol, e.typ, eventTypeName(e.typ), what)
}

// ends reports whether one of the packets in the buffer ends a transaction, or tells anything else that is given out. It looks
// at types alone: what only turns a page (ROTATE, FORMAT_DESCRIPTION and the like) does not count, and neither does a
// transaction that is not here to its end.
func (p *packetReader) ends() bool {
	for at := 0; ; {
		b, next, ok := p.packetAt(at)
		if !ok {
			return false
		}
		if len(b) < 1+headerSize || b[0] != 0 {
			return true // an error, or the end
		}
		switch b[5] {
		case evXID, evXAPrepare, evPayload, evIncident, evHeartbeat, evHeartbeat2, evExecuteLoad, evQueryCompressed:
			return true
		case evQuery:
			if !bytes.HasSuffix(b, []byte("\x00BEGIN")) {
				return true // a statement of its own, COMMIT, or one inside a transaction, which is seldom
			}
		}
		at = next
	}
}
