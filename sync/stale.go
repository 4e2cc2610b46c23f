package sync

import (
	"context"
	"fmt"
	"time"
)

// freshLocked notes that memory holds what the source held at a time.
func (e *Engine) freshLocked(at time.Time) {
	if at.After(e.freshAt) {
		e.freshAt = at
	}
}

// freshAsOf is the time at which what a commit made is known to have been the newest: its own, to the end of the second when the
// source tells no more than that.
func freshAsOf(c commit) time.Time {
	if c.precision >= time.Second {
		return c.at.Add(c.precision)
	}
	return c.at
}

// boundStaleness withholds the tables' rows while memory is older than MaxStaleness, until ctx ends.
func (e *Engine) boundStaleness(ctx context.Context) {
	most := e.cfg.MaxStaleness
	if most <= 0 {
		return
	}
	defer e.withhold(nil)
	for sleep(ctx, min(max(most/50, time.Millisecond), 100*time.Millisecond)) {
		e.mu.Lock()
		at := e.freshAt
		e.mu.Unlock()
		switch age := time.Since(at); {
		case at.IsZero(): // nothing was ever followed: no table is open
		case age > most:
			e.withhold(&staleError{since: at, most: most})
		default:
			e.withhold(nil)
		}
	}
}

// staleError says why rows are withheld.
type staleError struct {
	since time.Time
	most  time.Duration
}

func (s *staleError) Error() string {
	return fmt.Sprintf("stale: rows are as of %s, longer ago than max_staleness (%s); the source is away or the daemon lags",
		s.since.UTC().Format(time.RFC3339), s.most)
}

func (e *Engine) withhold(why *staleError) {
	before := e.stale.Swap(why)
	if (before == nil) == (why == nil) {
		return
	}
	if e.cfg.StaleMiss {
		e.cfg.Memory.HideRows(why != nil)
	}
	if why != nil {
		e.log.Error("rows are too old to be served", "as_of", why.since.UTC(), "max_staleness", why.most, "missed", e.cfg.StaleMiss)
	} else {
		e.log.Info("rows are served again")
	}
}

// Withheld implements server.Tables: why rows are not served now, for they are too old; nil: they are, or are misses instead.
func (e *Engine) Withheld() error {
	if why := e.stale.Load(); why != nil && !e.cfg.StaleMiss {
		return why
	}
	return nil
}
