package sync

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
	"github.com/rowcached/rowcached/server/memory"
)

// applier is the tail's side of the engine. All of it is guarded by Engine.mu.
type applier struct {
	begun      int // Batch.Mark at the transaction's begin
	inTx       bool
	txStepped  bool     // part of this transaction was published already
	commit     commit   // of the transaction being read
	pending    []commit // of those prepared and not yet visible
	savepoints []savepoint
	restarts   []restart // decided inside the transaction, carried out at its commit

	actions  []func()  // for the applier to run between two transactions
	waiters  []waiter  // for the tail to reach a position
	lost     error     // set by the watchdog
	wake     func()    // ends the tail's wait; nil when it was ended
	server   string    // that the log comes from
	lastWord time.Time // last event of any kind
	freshAt  time.Time // memory holds what the source held then

	position   binlog.Position // the source's, a moment ago: the source itself belongs to the applier
	positionAt time.Time

	keyBuf, oldKeyBuf, valBuf []byte
}

// commit is when the source committed, and how exactly it says so.
type commit struct {
	at        time.Time
	precision time.Duration
}

type savepoint struct {
	name string
	mark int
}

// restart is a table that must be copied again; with err it is put aside first, since copying at once would not help.
type restart struct {
	t      *table
	reason string
	err    error
}

// apply gives every event of the tail its effect, in order, until the source ends.
func (e *Engine) apply(ctx context.Context) error {
	src := e.cfg.Source
	e.mu.Lock()
	wait := e.waitLocked(ctx)
	e.mu.Unlock()
	for {
		ev, err := src.Next(wait)
		if err != nil && (ctx.Err() != nil || wait.Err() == nil) {
			return err
		}
		e.mu.Lock()
		if e.lost != nil {
			err = e.lost
			e.mu.Unlock()
			return err
		}
		if err != nil { // woken up
			wait = e.waitLocked(ctx)
			e.betweenLocked()
			e.mu.Unlock()
			continue
		}
		err = e.handleLocked(ev)
		if err == nil {
			if !e.inTx && e.batch.Len() > 0 && (!src.Buffered() || e.batch.Len() >= groupItems || e.batch.Bytes() >= groupBytes) {
				e.publishLocked()
			}
			e.betweenLocked()
		}
		e.mu.Unlock()
		if err != nil {
			return err
		}
	}
}

// betweenLocked does, between two transactions, what waits for that: what other goroutines want of the source, which
// belongs to the applier, and tables whose goal is reached.
func (e *Engine) betweenLocked() {
	if e.inTx {
		return
	}
	e.serverLocked()
	for len(e.actions) > 0 {
		f := e.actions[0]
		e.actions = e.actions[1:]
		f()
	}
	e.advanceLocked()
	if len(e.waiters) > 0 {
		e.releaseLocked()
	}
	if !e.cfg.Source.Buffered() || e.lastWord.Sub(e.positionAt) > 100*time.Millisecond {
		e.position, e.positionAt = e.cfg.Source.Position(), e.lastWord
	}
}

// serverLocked notices that the log comes from another server now. Positions that were asked of the former one, and rows that
// were read there, do not join this log: what is not ready yet begins anew.
func (e *Engine) serverLocked() {
	now := e.cfg.Source.Server()
	if now == e.server {
		return
	}
	before := e.server
	e.server = now
	if before == "" {
		return
	}
	e.log.Info("another server is followed now", "server", now, "before", before)
	for _, t := range e.tables {
		if t.state == StateCopying || t.state == StateCatching || t.state == StateWaiting {
			e.restartLocked(t, "failover")
		}
	}
}

// onApplier has the applier run f between two transactions, with Engine.mu held, and waits for it. It reports false, and
// then f must not be relied on, when ctx ended first.
func (e *Engine) onApplier(ctx context.Context, f func()) bool {
	done := make(chan struct{})
	e.mu.Lock()
	e.actions = append(e.actions, func() { defer close(done); f() })
	e.wakeLocked()
	e.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
		return false
	}
}

// waitLocked makes the context of the tail's next waits, which wakeLocked ends.
func (e *Engine) waitLocked(ctx context.Context) context.Context {
	e.wakeLocked()
	wait, cancel := context.WithCancel(ctx)
	e.wake = cancel
	return wait
}

// wakeLocked has the applier look at the tables though the source is silent.
func (e *Engine) wakeLocked() {
	if e.wake != nil {
		e.wake()
		e.wake = nil
	}
}

func (e *Engine) handleLocked(ev *binlog.Event) error {
	e.lastWord = time.Now()
	switch ev.Kind {
	case binlog.EventBegin:
		e.resetTransactionLocked()
		e.inTx, e.begun, e.commit = true, e.batch.Mark(), commit{ev.CommitTime, ev.CommitPrecision}
	case binlog.EventRows:
		return e.rowsLocked(ev)
	case binlog.EventSavepoint:
		e.savepoints = append(e.savepoints, savepoint{ev.Name, e.batch.Mark()})
	case binlog.EventRollbackTo:
		e.rollbackToLocked(ev.Name)
	case binlog.EventCommit:
		e.commitLocked()
	case binlog.EventAbort:
		e.abortLocked()
	case binlog.EventInvalidate:
		e.invalidateLocked(ev)
	case binlog.EventHeartbeat:
		if !e.inTx && e.batch.Len() == 0 {
			e.lag.Store(0)
			e.freshLocked(e.lastWord)
		}
	default:
		panic(fmt.Sprintf("sync: event kind %d is not known here", ev.Kind))
	}
	return nil
}

// resetTransactionLocked forgets the state of the transaction that was being read, not its prepared items.
func (e *Engine) resetTransactionLocked() {
	e.inTx, e.txStepped = false, false
	e.savepoints, e.restarts = e.savepoints[:0], e.restarts[:0]
}

func (e *Engine) commitLocked() {
	e.transactions.Add(1)
	e.pending = append(e.pending, e.commit)
	restarts := e.restarts
	e.resetTransactionLocked()
	if len(restarts) == 0 {
		if e.batch.Len() == 0 {
			e.freshLocked(freshAsOf(e.commit))
			e.pending = e.pending[:0]
		}
		return
	}
	// What stands before the change of a table becomes visible before the table disappears, in source order.
	e.publishLocked()
	for _, r := range restarts {
		if r.err != nil {
			e.failLocked(r.t, r.err)
			continue
		}
		e.restartLocked(r.t, r.reason)
	}
}

// noteRestartLocked decides that a table is copied again when this transaction commits.
func (e *Engine) noteRestartLocked(t *table, reason string, err error) {
	if !e.restartingLocked(t) {
		e.restarts = append(e.restarts, restart{t, reason, err})
	}
}

func (e *Engine) restartingLocked(t *table) bool {
	for _, r := range e.restarts {
		if r.t == t {
			return true
		}
	}
	return false
}

// abortLocked drops a transaction that the connection's end cut short. It will be given again, whole.
func (e *Engine) abortLocked() {
	if e.inTx {
		e.batch.Truncate(e.begun)
	}
	stepped := e.txStepped
	e.resetTransactionLocked()
	if stepped {
		// Part of it is visible, and it may not come again: the source may have lost it, or another one may answer.
		e.hideStepped()
	}
}

// hideStepped copies the tables again of which a transaction that was not followed to its end became visible in part.
func (e *Engine) hideStepped() {
	for _, t := range e.tables {
		if t.stepped == e.transactions.Load()+1 {
			e.restartLocked(t, "torn")
		}
	}
}

func (e *Engine) rollbackToLocked(name string) {
	for i := len(e.savepoints) - 1; i >= 0; i-- {
		if s := e.savepoints[i]; s.name == name {
			if e.txStepped {
				break // what was rolled back may be visible already
			}
			e.batch.Truncate(s.mark)
			e.savepoints = e.savepoints[:i+1]
			return
		}
	}
	// An unknown savepoint, or rows that are out already: only a copy tells what is true.
	if !e.txStepped {
		e.batch.Truncate(e.begun)
	}
	for _, t := range e.tables {
		e.noteRestartLocked(t, "savepoint", nil)
	}
}

func (e *Engine) invalidateLocked(ev *binlog.Event) {
	if ev.All {
		for _, t := range e.tables {
			e.noteRestartLocked(t, ev.Reason, nil)
		}
	}
	for _, n := range ev.Tables {
		if t := e.byName[n]; t != nil {
			e.noteRestartLocked(t, ev.Reason, nil)
		}
	}
	if !e.inTx {
		e.commitLocked()
	}
}

// publishLocked makes everything prepared visible in one step (I7).
func (e *Engine) publishLocked() {
	e.batch.Publish()
	now := time.Now()
	for _, c := range e.pending {
		d := latency(now, c)
		if e.cfg.OnVisible != nil {
			e.cfg.OnVisible(d)
		}
		e.lag.Store(int64(d))
	}
	if n := len(e.pending); n > 0 {
		e.freshLocked(freshAsOf(e.pending[n-1]))
	}
	e.pending = e.pending[:0]
}

// latency gives the time from commit to now, at least: what the source tells in whole seconds may be a second less.
func latency(now time.Time, c commit) time.Duration {
	d := now.Sub(c.at)
	if c.precision >= time.Second {
		d -= c.precision
	}
	return max(d, 0)
}

// rowsLocked prepares the items of one rows event.
func (e *Engine) rowsLocked(ev *binlog.Event) error {
	t := e.byName[ev.Table.TableName]
	if t == nil || !t.live || e.restartingLocked(t) {
		return nil
	}
	m := t.mapping
	t.stepped = e.transactions.Load() + 1
	var n int64
	defer func() {
		e.rowsSeen.Add(uint64(n))
		switch ev.Op {
		case binlog.OpInsert:
			t.inserts.Add(n)
		case binlog.OpUpdate:
			t.updates.Add(n)
		case binlog.OpDelete:
			t.deletes.Add(n)
		}
	}()
	for {
		before, after, err := ev.NextRow()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			e.log.Error("a row of a mapped table could not be decoded; copying the table again", "table", t.name.String(), "err", err)
			e.noteRestartLocked(t, "decode", nil)
			return nil
		}
		n++
		if reason, err := e.rowLocked(t, m, before, after); reason != "" {
			e.noteRestartLocked(t, reason, err)
			return nil
		}
		if e.batch.Bytes() >= wholeBytes {
			e.stepLocked()
		}
	}
}

// stepLocked publishes part of a transaction that is too large to be held back (G3's exception, I9).
func (e *Engine) stepLocked() {
	if !e.txStepped {
		e.txStepped = true
		e.stepped.Add(1)
	}
	e.batch.Publish()
	e.begun = e.batch.Mark()
	for i := range e.savepoints {
		e.savepoints[i].mark = e.begun
	}
}

// rowLocked prepares one row change. A reason is given when the row alone does not tell what the table holds now.
func (e *Engine) rowLocked(t *table, m *mapping.Mapping, before, after *binlog.Row) (reason string, fatal error) {
	var hadOld bool
	if before != nil {
		for _, c := range m.KeyColumns() {
			if !before.Has(c) {
				return "row_image", nil
			}
		}
		var err error
		e.oldKeyBuf, err = m.AppendKey(e.oldKeyBuf[:0], before)
		hadOld = !unkeyed(err)
		t.touchLocked(e.oldKeyBuf)
	}
	if after == nil {
		if hadOld {
			e.batch.Delete(t.space, e.oldKeyBuf)
		}
		return "", nil
	}
	for _, c := range m.Columns() {
		if !after.Has(c) {
			return "row_image", nil
		}
	}
	var err error
	e.keyBuf, err = m.AppendKey(e.keyBuf[:0], after)
	t.touchLocked(e.keyBuf)
	if err != nil {
		e.skipLocked(t, err)
	}
	if unkeyed(err) {
		if hadOld {
			e.batch.Delete(t.space, e.oldKeyBuf)
		}
		return "", nil
	}
	if hadOld && string(e.keyBuf) != string(e.oldKeyBuf) {
		e.batch.Delete(t.space, e.oldKeyBuf)
	}
	e.valBuf, err = m.AppendValue(e.valBuf[:0], after)
	if err != nil {
		e.log.Error("a row could not be rendered; copying its table again", "table", t.name.String(), "err", err)
		return "decode", nil
	}
	cas, _ := m.CAS(after)
	err = e.batch.Put(t.space, e.keyBuf, e.valBuf, m.Flags(after), m.Expire(after, time.Now().Unix()), cas)
	switch {
	case errors.Is(err, memory.ErrTooLarge):
		e.skipLocked(t, err)
		e.batch.Delete(t.space, e.keyBuf)
	case err != nil:
		return "memory", fmt.Errorf("%s does not fit into memory; raise memory.limit: %w", t.name, err)
	}
	return "", nil
}

// unkeyed tells whether an error of AppendKey means that no item can have the key. One with a blank or a control byte can:
// the binary protocol and base64 keys of the meta commands reach it.
func unkeyed(err error) bool { return err != nil && !errors.Is(err, mapping.ErrKeyBytes) }

// skipLocked counts a row that the text protocol cannot carry, or none can, and says so once for each table.
func (e *Engine) skipLocked(t *table, err error) {
	t.skipped.Add(1)
	if !t.skipLogged.CompareAndSwap(false, true) {
		return
	}
	what := "a row cannot be served over memcached and is left out; further ones of this table are only counted"
	if !unkeyed(err) {
		what = "a row's key can be asked for only by the binary protocol or a base64 meta key; further ones of this table are only counted"
	}
	e.log.Warn(what, "table", t.name.String(), "err", err)
}
