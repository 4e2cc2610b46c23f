package sync

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
	"github.com/rowcached/rowcached/server/memory"
)

// restored is the rows of one table that were loaded from the state.
type restored struct {
	def     *binlog.Table
	mapping *mapping.Mapping
	space   memory.Space
}

// restore loads the stored rows into hidden spaces, by the tables' fingerprints. It gives nothing when there is no state, or
// none that can be used: then the tables are copied.
func (e *Engine) restore(ctx context.Context) map[string]*restored {
	st := e.cfg.State
	if st == nil || st.was == nil {
		return nil
	}
	began := time.Now()
	wanted := map[string]mapping.Spec{}
	for _, s := range e.cfg.Specs {
		wanted[fingerprint(s)] = s
	}
	list := map[string]*restored{}
	spaces := make([]memory.Space, len(st.was.Tables))
	drop := func() {
		for _, r := range list {
			e.cfg.Memory.DropSpace(r.space)
		}
	}
	for i, t := range st.was.Tables {
		spec, ok := wanted[t.Spec]
		if !ok {
			e.log.Info("the stored rows of a table are not used: its mapping has changed, or it was being copied", "table", t.Mapped)
			continue
		}
		m, err := mapping.Compile(spec, t.Table)
		if err == nil {
			spaces[i], err = e.cfg.Memory.NewSpace(m.Name())
		}
		if err != nil {
			drop()
			st.setAside(fmt.Errorf("table %s: %w", t.Mapped, err))
			return nil
		}
		list[t.Spec] = &restored{t.Table, m, spaces[i]}
	}
	if len(list) == 0 {
		st.setAside(errors.New("the mappings of all of its tables have changed"))
		return nil
	}
	if err := st.loadRows(ctx, st.was.Rows, e.cfg.Memory, spaces, e.cfg.CopyWorkers); err != nil {
		drop()
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, memory.ErrNoMemory), errors.Is(err, memory.ErrTooLarge):
			st.setAside(fmt.Errorf("%w; raise memory.limit or server.max_item_size to what they were", err))
		default:
			st.setAside(err)
		}
		return nil
	}
	e.log.Info("stored rows loaded", "tables", len(list), "rows", st.was.Rows.Rows, "took", time.Since(began).Round(time.Millisecond))
	return list
}

// resume attaches the tail where the stored state ends and has the restored tables catch up. It reports false, with
// everything dropped, when the source cannot go on from there.
func (e *Engine) resume(ctx context.Context, list map[string]*restored) (bool, error) {
	if len(list) == 0 {
		return false, nil
	}
	st := e.cfg.State
	goal, err := e.attachAt(ctx, st.was)
	switch {
	case err == nil:
	case ctx.Err() != nil:
		return false, err
	default:
		for _, r := range list {
			e.cfg.Memory.DropSpace(r.space)
		}
		st.setAside(err)
		e.noteError(err)
		return false, nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tables {
		r := list[fingerprint(t.spec)]
		if r == nil {
			continue
		}
		if r.def.TableName != t.name {
			e.cfg.Memory.DropSpace(r.space)
			continue
		}
		t.generation++
		t.unlogged = t.mapping == nil || !t.def.Same(r.def)
		t.mapping, t.def, t.space, t.live = r.mapping, r.def, r.space, true
		t.goal = goal
		t.enterLocked(StateCatching, nil)
		e.cfg.Source.Watch(r.def)
		// Nothing has changed since From until the first row event comes.
		e.cp.image = append(e.cp.image, imaged{t, t.generation, t.changesLocked(), t.def, t.space})
	}
	o, err := ownersOf(e.tables)
	if err != nil {
		return false, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	e.set.Store(o)
	return true, nil
}

// attachAt opens the log where the state's rows begin to be replayed, and gives the position from which on they are true. While
// the source cannot be reached it waits; any other error says that this source cannot go on from the state.
func (e *Engine) attachAt(ctx context.Context, was *stored) (goal binlog.Position, err error) {
	src := e.cfg.Source
	doubts := 0
	for pause := retryFirst; ; pause = min(2*pause, 15*time.Second) {
		if err = src.Open(ctx, was.From); err == nil {
			goal, err = src.Written(ctx, src.DB())
		}
		switch {
		case ctx.Err() != nil:
			return goal, ctx.Err()
		case errors.Is(err, binlog.ErrPositionLost):
			return goal, err
		case err == nil && goal.Covers(was.To):
			return goal, nil
		case err == nil:
			if doubts++; doubts >= watchdogDoubt { // what was sent may be a moment ahead of what the source says it has
				return goal, fmt.Errorf("%w: the source's log ends at %s and lacks transactions that were applied (up to %s)", errForeign, goal, was.To)
			}
		default:
			e.noteError(err)
			e.log.Error("the source's log cannot be opened; trying again", "err", err, "in", pause)
		}
		if !sleep(ctx, pause) {
			return goal, ctx.Err()
		}
	}
}
