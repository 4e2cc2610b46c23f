package binlog

import (
	"io"
	"time"
)

// EventKind says what an Event is about.
type EventKind uint8

// The kinds of event. A transaction is Begin, any number of the others, and Commit; Abort takes back what was
// given since Begin.
const (
	EventNone EventKind = iota
	// EventBegin opens a transaction. CommitTime and CommitPrecision are set.
	EventBegin
	// EventRows is a group of rows of one watched table: call NextRow until io.EOF.
	EventRows
	// EventCommit ends the transaction; Source.Position has advanced over it.
	EventCommit
	// EventAbort takes back everything since EventBegin: the connection was lost inside the transaction (it
	// comes again after the reconnect), or the source rolled it back.
	EventAbort
	// EventSavepoint names a point inside the transaction.
	EventSavepoint
	// EventRollbackTo takes back everything since the savepoint Name; the savepoint itself stays.
	EventRollbackTo
	// EventInvalidate says that tables changed in a way the rows given out do not show: Tables, or every table
	// when All is set. Reason is one of the Reason constants.
	EventInvalidate
	// EventHeartbeat says that the source is alive and has nothing to send.
	EventHeartbeat
)

// String gives the kind as a word, for messages and tests.
func (k EventKind) String() string {
	switch k {
	case EventBegin:
		return "begin"
	case EventRows:
		return "rows"
	case EventCommit:
		return "commit"
	case EventAbort:
		return "abort"
	case EventSavepoint:
		return "savepoint"
	case EventRollbackTo:
		return "rollback_to"
	case EventInvalidate:
		return "invalidate"
	case EventHeartbeat:
		return "heartbeat"
	default:
		return "none"
	}
}

// The reasons of EventInvalidate, fit for a metric's label.
const (
	ReasonDDL          = "ddl"           // the definition changed
	ReasonTruncate     = "truncate"      // TRUNCATE TABLE
	ReasonDrop         = "drop"          // DROP TABLE, DROP DATABASE
	ReasonRename       = "rename"        // RENAME TABLE
	ReasonStatement    = "statement"     // a change logged as a statement, or a statement that cannot be understood
	ReasonRowImage     = "row_image"     // row images that leave out what is needed (binlog_row_image)
	ReasonShape        = "shape"         // a row image that does not fit the definition, or is corrupt
	ReasonIncident     = "incident"      // the source logged that it lost changes
	ReasonPartialJSON  = "partial_json"  // binlog_row_value_options=PARTIAL_JSON
	ReasonXA           = "xa"            // an XA transaction whose rows are not at hand
	ReasonRestart      = "restart"       // the server was started anew, which empties tables of the engine MEMORY
	ReasonUnknownEvent = "unknown_event" // an event type that this program does not know
)

// Op is what happened to a row.
type Op uint8

// The operations on a row.
const (
	OpInsert Op = iota + 1
	OpUpdate
	OpDelete
)

// String gives the operation as a word, for metric labels.
func (o Op) String() string {
	switch o {
	case OpInsert:
		return "insert"
	case OpUpdate:
		return "update"
	case OpDelete:
		return "delete"
	default:
		return "none"
	}
}

// Event is one step of the source's history. It, and all it refers to except Table, is valid until the next call
// of Source.Next.
type Event struct {
	Kind EventKind

	// CommitTime of the transaction, from EventBegin to EventCommit, as exact as CommitPrecision says: a
	// microsecond on MySQL (the GTID event's stamp), a second on MariaDB. It never goes backwards, whatever
	// SET TIMESTAMP did in the session that wrote.
	CommitTime      time.Time
	CommitPrecision time.Duration

	Table *Table // EventRows
	Op    Op     // EventRows. For a system-versioned table NextRow sets it anew for each row.

	Name string // EventSavepoint, EventRollbackTo

	Tables []TableName // EventInvalidate: watched names only
	All    bool        // EventInvalidate
	Reason string      // EventInvalidate

	rows *rowsEvent
	end  *commitPoint // of an EventCommit that waits in the queue
}

// NextRow gives the next row of an EventRows: before is nil for an insert, after for a delete. Both are valid until
// the next call. The error is io.EOF at the end and nothing else: a row that cannot be decoded ends the event, and
// the source's next event is then an EventInvalidate for the table.
func (e *Event) NextRow() (before, after *Row, err error) {
	if e.Kind != EventRows {
		return nil, nil, io.EOF
	}
	return e.rows.next(e)
}
