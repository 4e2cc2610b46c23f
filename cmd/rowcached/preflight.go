package main

import (
	"context"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
)

// preflight finds out before anything is copied whether the source can be followed (G5): a server that keeps some changes
// out of its log, or tells them as statements, is refused rather than served from. While the source cannot be asked it
// waits, and waiting says for what.
func preflight(ctx context.Context, source *binlog.Source, specs []mapping.Spec, waiting *atomic.Pointer[string], log *slog.Logger) error {
	defer waiting.Store(nil)
	for pause := time.Second; ; pause = min(2*pause, 15*time.Second) {
		faults := 0
		err := inspect(ctx, source, specs, func(string, ...any) {}, func(f binlog.Fault) {
			faults++
			log.Error(f.What, "fix", f.Fix)
		})
		switch {
		case ctx.Err() != nil:
			return nil
		case err == nil && faults == 0:
			return nil
		case err == nil:
			return fmt.Errorf("the source cannot be served from: the log above has what is wrong and what mends it (as `rowcached check` does); faults: %d", faults)
		}
		f := connectionFault(err)
		waiting.Store(&f.What)
		log.Error(f.What, "fix", f.Fix, "trying_again_in", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}
