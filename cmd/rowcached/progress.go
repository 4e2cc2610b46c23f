package main

import (
	"context"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/schollz/progressbar/v3"
	"golang.org/x/term"
)

// showProgress tells how far the copies are until every table is ready: a bar on a terminal, a log line every few
// seconds elsewhere. Later copies show only in the log and the metrics.
func showProgress(ctx context.Context, engine *syncEngine, w io.Writer, log *slog.Logger) error {
	terminal := isTerminal(w)
	interval := 5 * time.Second
	var bar *progressbar.ProgressBar
	if terminal {
		interval = 200 * time.Millisecond
	}
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		st := engine.Status()
		if st.Ready {
			if bar != nil {
				return bar.Finish()
			}
			return nil
		}
		var done, all int64
		copying := 0
		for _, t := range st.Tables {
			done += t.CopyProgress
			all += max(t.RowsEstimated, t.CopyProgress, 1)
			if t.State == stateCopying {
				copying++
			}
		}
		if copying == 0 { // waiting for the source, or for the tail: the log and /-/ready say so
			continue
		}
		if !terminal {
			log.Info("copying", "rows", done, "of_about", all, "tables", copying)
			continue
		}
		if bar == nil {
			bar = progressbar.NewOptions64(all, progressbar.OptionSetWriter(w), progressbar.OptionSetDescription("copying rows"),
				progressbar.OptionShowCount(), progressbar.OptionShowIts(), progressbar.OptionClearOnFinish(), progressbar.OptionThrottle(interval))
		}
		bar.ChangeMax64(all)
		if err := bar.Set64(done); err != nil {
			return err
		}
	}
}

func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}
