package sync

import (
	"time"
)

// State is where a mapped table stands.
type State string

// The states of a table. Only in StateReady are its rows served; in every other state its keys miss.
const (
	StateWaiting  State = "waiting"  // for the tail to reach the end of the log as it was when a copy became necessary
	StateCopying  State = "copying"  // rows are being read
	StateCatching State = "catching" // copied; the tail has not yet reached what the copy saw
	StateReady    State = "ready"
	StateFailed   State = "failed" // cannot be mirrored as things are; LastError says why; tried again by itself
)

// States lists every State, for metrics that show one series for each.
func States() []State {
	return []State{StateWaiting, StateCopying, StateCatching, StateReady, StateFailed}
}

// TableStatus describes one mapped table.
type TableStatus struct {
	Name          string            `json:"name"`  // container name
	Table         string            `json:"table"` // schema.table
	State         State             `json:"state"`
	Since         time.Time         `json:"since"` // of State
	Items         int64             `json:"items"`
	Bytes         int64             `json:"bytes"`
	RowsEstimated int64             `json:"rows_estimated"` // by the source's statistics, at the start of the last copy
	RowsCopied    int64             `json:"rows_copied"`    // by all copies so far
	CopyProgress  int64             `json:"copy_progress"`  // rows read by the copy under way
	Inserts       int64             `json:"inserts"`        // row changes followed
	Updates       int64             `json:"updates"`
	Deletes       int64             `json:"deletes"`
	KeysSkipped   int64             `json:"keys_skipped"` // rows that memcached's text protocol cannot carry
	Resyncs       map[string]uint64 `json:"resyncs"`      // copies made necessary, by reason
	Verified      VerifyCounts      `json:"verified"`
	LastError     string            `json:"last_error,omitempty"`
}

// Status is a snapshot of the engine, safe to keep.
type Status struct {
	Ready         bool          `json:"ready"` // every table is StateReady
	Position      string        `json:"position"`
	Lag           time.Duration `json:"lag_ns"` // of the newest applied transaction; 0 when caught up; time since the last word from the source while it is away
	Transactions  uint64        `json:"transactions"`
	Stepped       uint64        `json:"transactions_stepped"` // too large to become visible in one step (G3)
	RowsSeen      uint64        `json:"rows_seen"`
	PositionsLost uint64        `json:"positions_lost"`         // times that everything had to be copied again
	CheckpointAt  time.Time     `json:"checkpoint_at,omitzero"` // when the state was last stored
	Withheld      string        `json:"withheld,omitempty"`     // why rows are not served: they are too old
	LastError     string        `json:"last_error,omitempty"`
	Tables        []TableStatus `json:"tables"`
}
