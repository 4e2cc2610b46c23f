package sync

import (
	"context"
	"errors"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/server/memory"
)

// Stored state trails memory (I6). Stopping the applier while millions of rows are written would be exact and would
// stall the cache for seconds, so the image is fuzzy, and the log makes it exact:
//
//  1. Between two transactions, with nothing prepared that is not visible, the position From is noted. Everything up to From
//     is in memory.
//  2. The rows are written while the log goes on. Each is written as it was at some instant since From.
//  3. Between two transactions again, the position To is noted. Nothing after To is in the image.
//  4. The rows file is synced; the state file that names it, From and To replaces the old one in one rename.
//
// A restart loads the rows into hidden spaces and follows the log from From. A key that was touched between From and To may
// be in the image with any of its values of that time, or be missing, and passes over older ones; by the time the log
// reaches To its newest event has been applied. A key that was not touched since From is in the image as it was at From. So
// at To, and at every transaction after it, each key is what the source held there (G1). A space is opened when the tail has
// reached To and what was the end of the log after the restart: whatever an earlier process served came from before that
// end, so no key goes back (G2).
const (
	defaultInterval = 10 * time.Second

	// imageShare bounds the time that goes into writing images: one in so many parts. In between the log is the record.
	imageShare = 50
)

// checkpointer is what the engine knows of its stored state. It belongs to whoever writes one: the checkpoint goroutine
// while it runs, and then Run.
type checkpointer struct {
	image     []imaged // what the stored rows file holds
	imageAt   time.Time
	imageTook time.Duration
	failed    bool // the last one did
}

// imaged is a table at the instant at which an image was begun.
type imaged struct {
	t          *table
	generation int
	changes    int64
	def        *binlog.Table
	space      memory.Space
}

// checkpoints writes the state at every interval until ctx ends.
func (e *Engine) checkpoints(ctx context.Context) {
	interval := e.cfg.CheckpointInterval
	if interval <= 0 {
		interval = defaultInterval
	}
	for sleep(ctx, interval) {
		e.checkpoint(ctx, func(f func()) bool { return e.onApplier(ctx, f) }, false)
	}
}

// lastCheckpoint writes the state when the tail has ended in order: then it is exact.
func (e *Engine) lastCheckpoint() {
	e.mu.Lock()
	if e.inTx {
		e.batch.Truncate(e.begun)
		if e.txStepped {
			e.hideStepped()
		}
		e.resetTransactionLocked()
	}
	e.mu.Unlock()
	e.checkpoint(context.Background(), func(f func()) bool {
		e.mu.Lock()
		defer e.mu.Unlock()
		f()
		return true
	}, true)
}

// checkpoint writes the state, unless there is none to write or an image would come too soon. quiet runs a function between
// two transactions, with Engine.mu held.
func (e *Engine) checkpoint(ctx context.Context, quiet func(func()) bool, last bool) {
	began := time.Now()
	wrote, err := e.tryCheckpoint(ctx, quiet, last)
	switch {
	case err != nil && ctx.Err() != nil:
	case err != nil:
		e.noteError(err)
		if !e.cp.failed || last {
			e.log.Error("the state could not be stored; the daemon goes on, and a restart copies what is not stored; look at the space and the rights of state.dir",
				"err", err)
		}
		e.cp.failed = true
	case wrote:
		e.cp.failed = false
		e.checkpointAt.Store(time.Now().UnixNano())
		if last {
			e.log.Info("state stored", "rows", e.cfg.State.last.Rows.Rows, "bytes", e.cfg.State.last.Rows.Bytes, "took", time.Since(began).Round(time.Millisecond))
		}
	}
}

func (e *Engine) tryCheckpoint(ctx context.Context, quiet func(func()) bool, last bool) (wrote bool, err error) {
	var from binlog.Position
	var tables []imaged
	if !quiet(func() { from, tables = e.imagedLocked() }) || len(tables) == 0 {
		return false, nil
	}
	st := e.cfg.State
	next := stored{
		WrittenAt: time.Now(), From: from, To: from, Seeds: e.cfg.Memory.Seeds(), CAS: e.cfg.Memory.CASCeiling(),
	}
	if st.last != nil && sameImage(tables, e.cp.image) {
		next.Rows, next.Tables = st.last.Rows, st.last.Tables
		return true, st.write(&next)
	}
	if !last && time.Since(e.cp.imageAt) < imageShare*e.cp.imageTook {
		return false, nil
	}
	began := time.Now()
	number := map[memory.Space]uint16{}
	for i, x := range tables {
		number[x.space] = uint16(i)
	}
	if next.Rows, err = st.writeRows(ctx, e.cfg.Memory.NewImage(number)); err != nil {
		return false, err
	}
	if !quiet(func() {
		next.To, _ = e.imagedLocked()
		for _, x := range tables {
			entry := storedTable{Mapped: x.t.name.String()}
			if x.t.generation == x.generation && x.t.state == StateReady {
				entry.Spec, entry.Table = fingerprint(x.t.spec), x.def
			}
			next.Tables = append(next.Tables, entry)
		}
	}) {
		return false, nil
	}
	next.CAS = e.cfg.Memory.CASCeiling()
	if err := st.write(&next); err != nil {
		return false, err
	}
	e.cp.image, e.cp.imageAt, e.cp.imageTook = tables, time.Now(), time.Since(began)
	return true, nil
}

// imagedLocked makes everything that was applied visible, and gives the position and the tables that are true there. It must
// be called between two transactions.
func (e *Engine) imagedLocked() (binlog.Position, []imaged) {
	if e.batch.Len() > 0 {
		e.publishLocked()
	}
	var list []imaged
	for _, t := range e.tables {
		if t.state == StateReady {
			list = append(list, imaged{t, t.generation, t.changesLocked(), t.def, t.space})
		}
	}
	return e.cfg.Source.Position(), list
}

// sameImage reports whether nothing has changed between two images of the same tables.
func sameImage(a, b []imaged) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// errForeign says that the stored state is of another source.
var errForeign = errors.New("it is not of this source")
