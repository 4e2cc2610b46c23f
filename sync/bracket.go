package sync

import (
	"context"
	"errors"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
	"github.com/rowcached/rowcached/server/memory"
)

// restartLocked closes a table whose rows or definition changed unseen. It is copied again once the tail has
// reached what is now the end of the log, so that no row is decoded with a definition of another time (I5).
func (e *Engine) restartLocked(t *table, reason string) {
	t.resyncs[reason]++
	e.closeLocked(t)
	e.cfg.Source.Unwatch(t.name)
	e.log.Info("copying a table again", "table", t.name.String(), "reason", reason)
	t.goal = binlog.Position{}
	t.enterLocked(StateWaiting, nil)
	generation := t.generation
	e.goLocked(t, func(ctx context.Context) {
		goal, err := e.cfg.Source.Written(ctx, e.cfg.Source.DB())
		e.onApplier(ctx, func() {
			if t.generation != generation || ctx.Err() != nil {
				return
			}
			if err != nil {
				e.failLocked(t, err)
				return
			}
			t.goal = goal
		})
	})
}

// goLocked runs f on behalf of a table until it returns; closeLocked cancels its context.
func (e *Engine) goLocked(t *table, f func(ctx context.Context)) {
	ctx, cancel := context.WithCancel(e.running)
	t.cancelCopy = cancel
	e.copies.Add(1)
	go func() {
		defer e.copies.Done()
		defer cancel()
		f(ctx)
	}()
}

// advanceLocked moves tables on whose goal the tail has reached, between two transactions.
func (e *Engine) advanceLocked() {
	for _, t := range e.tables {
		switch t.state {
		case StateWaiting:
			if !t.goal.IsZero() && e.cfg.Source.Reached(t.goal) {
				e.beginLocked(t)
			}
		case StateCatching:
			if e.cfg.Source.Reached(t.goal) {
				if t.unlogged {
					e.restartLocked(t, "schema")
					continue
				}
				if e.batch.Len() > 0 {
					e.publishLocked()
				}
				e.cfg.Memory.OpenSpace(t.space)
				t.backoff = 0
				t.enterLocked(StateReady, nil)
				e.log.Info("table ready", "table", t.name.String(), "name", t.mapping.Name(),
					"rows", e.cfg.Memory.SpaceStats(t.space).Items)
			}
		case StateFailed:
			if time.Now().After(t.retryAt) {
				e.restartLocked(t, "retry")
			}
		}
	}
}

// beginLocked opens a table's bracket at the tail's position (I3, step 1) and starts its copy.
func (e *Engine) beginLocked(t *table) {
	e.closeLocked(t)
	t.goal = binlog.Position{}
	t.progress.Store(0)
	t.enterLocked(StateCopying, nil)
	generation, begun := t.generation, e.cfg.Source.Position()
	e.goLocked(t, func(ctx context.Context) {
		select {
		case e.slots <- struct{}{}:
			defer func() { <-e.slots }()
		case <-ctx.Done():
			return
		}
		// The log tells of a definition a moment before the engine shows it: without the wait the old one could be read, and
		// the tail would go on with it (sync/model, NO_DEFINITION).
		err := awaitVisible(ctx, e.cfg.Source, t.name, begun)
		var m *mapping.Mapping
		var def *binlog.Table
		if err == nil {
			m, def, err = e.compile(ctx, t.spec, t.name)
		}
		var c *copier
		var from binlog.Position
		if err == nil {
			var c1 *copier
			var from1 binlog.Position
			var err1 error
			if !e.onApplier(ctx, func() { c1, from1, err1 = e.enterLocked(t, generation, m, def) }) {
				return
			}
			if c, from, err = c1, from1, err1; c == nil && err == nil {
				return // an older generation
			}
		}
		var p1 binlog.Position
		if err == nil {
			p1, err = c.run(ctx, from)
		}
		e.onApplier(ctx, func() {
			if t.generation != generation || ctx.Err() != nil {
				return
			}
			if err != nil {
				e.failLocked(t, err)
				return
			}
			t.goal = p1
			t.enterLocked(StateCatching, nil)
		})
	})
}

// enterLocked makes the hidden space and has the tail follow the table with its present definition.
func (e *Engine) enterLocked(t *table, generation int, m *mapping.Mapping, def *binlog.Table) (*copier, binlog.Position, error) {
	if t.generation != generation {
		return nil, binlog.Position{}, nil
	}
	t.mapping, t.def, t.unlogged = m, def, false
	o, err := ownersOf(e.tables)
	if err != nil {
		return nil, binlog.Position{}, errors.Join(ErrConfig, err)
	}
	space, err := e.cfg.Memory.NewSpace(m.Name())
	if err != nil {
		return nil, binlog.Position{}, err
	}
	t.space, t.live = space, true
	e.set.Store(o)
	e.cfg.Source.Watch(def)
	return &copier{
		db: e.cfg.Source.DB(), source: e.cfg.Source, table: def, mapping: m, workers: e.cfg.CopyWorkers,
		loader:    func() *memory.Loader { return e.cfg.Memory.Load(space) },
		rows:      func(n int64) { t.progress.Add(n); t.copied.Add(n) },
		estimated: func(n int64) { t.estimated.Store(n) },
		skipped:   func(err error) { e.skipLocked(t, err) },
	}, e.cfg.Source.Position(), nil
}

// failLocked puts a table aside with the reason, hidden, to be tried again.
func (e *Engine) failLocked(t *table, err error) {
	e.closeLocked(t)
	e.cfg.Source.Unwatch(t.name)
	t.backoff = min(max(2*t.backoff, retryFirst), retryLast)
	t.retryAt = time.Now().Add(t.backoff)
	t.enterLocked(StateFailed, err)
	e.noteError(err)
	e.log.Error("a table cannot be mirrored; trying again", "table", t.name.String(), "err", err, "in", t.backoff)
}

// Resync copies one mapped table again, by its container name or schema.table. It fails when there is no such table.
func (e *Engine) Resync(name, reason string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tables {
		if t.spec.ContainerName() != name && t.name.String() != name {
			continue
		}
		e.actions = append(e.actions, func() { e.restartLocked(t, reason) })
		e.wakeLocked()
		return nil
	}
	return errors.New("no mapped table is called " + name)
}
