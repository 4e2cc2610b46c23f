package sync

import (
	"context"
	"fmt"
	"time"

	"github.com/rowcached/rowcached/binlog"
)

const (
	watchdogInterval = 2 * time.Second

	// watchdogDoubt is how often in a row the source must be found behind us before it is believed: the log is sent
	// before the engine commits, so that the source may lack for a moment what it has sent.
	watchdogDoubt = 3
)

// watchdog compares, while the tail follows, the end of the source's log with what the tail was given. A log that was
// begun anew (RESET BINARY LOGS AND GTIDS, RESET MASTER, a restored backup) may leave the dump waiting for ever for a
// position that will not come.
func (e *Engine) watchdog(ctx context.Context) {
	behind := 0
	for sleep(ctx, watchdogInterval) {
		e.mu.Lock()
		ours := e.position
		e.mu.Unlock()
		limited, cancel := context.WithTimeout(ctx, 10*time.Second)
		theirs, err := e.cfg.Source.Written(limited, e.cfg.Source.DB())
		cancel()
		if err != nil || theirs.Server != ours.Server || theirs.Covers(ours) {
			behind = 0 // while the source cannot be asked the tail's own reconnecting tells
			continue
		}
		if behind++; behind < watchdogDoubt {
			continue
		}
		e.mu.Lock()
		e.lost = fmt.Errorf("%w: the source's log ends at %s, before what it has sent (%s): it was reset or restored; everything is copied again",
			binlog.ErrPositionLost, theirs, ours)
		e.wakeLocked()
		e.mu.Unlock()
		return
	}
}
