package sync

import (
	"sync/atomic"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
	"github.com/rowcached/rowcached/server/memory"
)

// table is one mapped table. Everything but the atomics belongs to Engine.mu.
type table struct {
	index int
	spec  mapping.Spec
	name  binlog.TableName

	state State
	since time.Time
	err   error

	mapping *mapping.Mapping // nil until the definition was read once
	def     *binlog.Table    // that mapping was made for
	space   memory.Space
	live    bool // space exists and belongs to this table

	// generation counts the copies; what a copy of an older one reports is ignored.
	generation int
	cancelCopy func() // ends the copy under way; nil when there is none

	watches []*watch // who looks at keys of it

	goal binlog.Position // StateWaiting, StateCatching: what the tail must reach

	// unlogged: StateCatching from stored rows, and the source had another definition before goal. If the log does not tell
	// of the change until then, it never will.
	unlogged bool

	retryAt time.Time // StateFailed
	backoff time.Duration

	mended  int64  // items that were changed otherwise than by row events
	stepped uint64 // the number of the last transaction that had rows of it

	resyncs map[string]uint64

	estimated atomic.Int64
	copied    atomic.Int64
	progress  atomic.Int64
	inserts   atomic.Int64
	updates   atomic.Int64
	deletes   atomic.Int64
	skipped   atomic.Int64

	verified verifyCounters

	skipLogged atomic.Bool
}

// changesLocked counts the row changes that were followed, and those that did not come from the log.
func (t *table) changesLocked() int64 {
	return t.inserts.Load() + t.updates.Load() + t.deletes.Load() + t.mended
}

// enter moves the table to a state. Needs Engine.mu.
func (t *table) enterLocked(s State, err error) {
	t.state, t.err, t.since = s, err, time.Now()
}
