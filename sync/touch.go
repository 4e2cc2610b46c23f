package sync

import (
	"context"
	"errors"

	"github.com/rowcached/rowcached/binlog"
)

// errReplaced says that a table was closed, to be copied again, while somebody looked at its rows.
var errReplaced = errors.New("the table is being copied again")

// watch remembers which of a few keys of a table the tail touches. It belongs to Engine.mu.
type watch struct{ touched map[string]bool }

// watchLocked begins to look at keys of a table, whose strings are the item keys.
func (t *table) watchLocked(keys []string) *watch {
	w := &watch{touched: make(map[string]bool, len(keys))}
	for _, k := range keys {
		w.touched[k] = false
	}
	t.watches = append(t.watches, w)
	return w
}

func (t *table) unwatchLocked(w *watch) {
	for i, have := range t.watches {
		if have == w {
			t.watches = append(t.watches[:i], t.watches[i+1:]...)
			return
		}
	}
}

// touchLocked notes that the tail changes a key. It is cheap when nobody looks.
func (t *table) touchLocked(key []byte) {
	for _, w := range t.watches {
		if _, ok := w.touched[string(key)]; ok {
			w.touched[string(key)] = true
		}
	}
}

// waiter is somebody who waits for the tail to reach a position.
type waiter struct {
	goal binlog.Position
	done chan struct{}
}

// awaitReached waits until everything up to goal is visible in memory. false: ctx ended first.
func (e *Engine) awaitReached(ctx context.Context, goal binlog.Position) bool {
	done := make(chan struct{})
	e.mu.Lock()
	e.waiters = append(e.waiters, waiter{goal, done})
	e.wakeLocked()
	e.mu.Unlock()
	select {
	case <-done:
		return true
	case <-ctx.Done():
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for i, w := range e.waiters {
		if w.done == done {
			e.waiters = append(e.waiters[:i], e.waiters[i+1:]...)
			break
		}
	}
	return false
}

// releaseLocked lets those go whose position is reached. The applier calls it between two transactions.
func (e *Engine) releaseLocked() {
	left := e.waiters[:0]
	for _, w := range e.waiters {
		if !e.cfg.Source.Reached(w.goal) {
			left = append(left, w)
			continue
		}
		if e.batch.Len() > 0 {
			e.publishLocked()
		}
		close(w.done)
	}
	clear(e.waiters[len(left):])
	e.waiters = left
}
