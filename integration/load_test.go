package integration

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowcached/rowcached/integration/scenario"
	"github.com/rowcached/rowcached/integration/servers"
)

// forEachKind runs the test on each kind of server, at most two at once.
func forEachKind(t *testing.T, test func(t *testing.T, kind servers.Kind)) {
	t.Helper()
	lanes := make(chan struct{}, 2)
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lanes <- struct{}{}
			defer func() { <-lanes }()
			test(t, kind)
		})
	}
}

// seeded returns a source of randomness whose seed is in the log of a failed test.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	return rand.New(rand.NewPCG(seed, 0))
}

// A load is a set of writers at full speed.
type load struct {
	stop  context.CancelFunc
	group *errgroup.Group
}

// startLoad starts n writers, each on its own connection and with its own randomness. Each calls write
// until the load is stopped, with the number of the call.
func startLoad(t *testing.T, s *servers.Server, n int, write func(ctx context.Context, conn *sql.Conn, r *rand.Rand, i int) error) *load {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	group, ctx := errgroup.WithContext(ctx)
	r := seeded(t)
	for range n {
		conn := s.Session(t)
		if _, err := conn.ExecContext(ctx, "USE db"); err != nil {
			stop()
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(r.Uint64(), 0))
		group.Go(func() error {
			for i := 1; ctx.Err() == nil; i++ {
				// A statement that has begun is finished: nothing is left in doubt.
				if err := write(context.WithoutCancel(ctx), conn, r, i); err != nil {
					return err
				}
			}
			return nil
		})
	}
	l := &load{stop: stop, group: group}
	t.Cleanup(func() { l.end(t) })
	return l
}

// end stops the writers and waits for them. The second call does nothing.
func (l *load) end(t *testing.T) {
	t.Helper()
	if l.group == nil {
		return
	}
	l.stop()
	if err := l.group.Wait(); err != nil {
		t.Errorf("a writer: %v", err)
	}
	l.group = nil
}

func execute(ctx context.Context, conn *sql.Conn, format string, args ...any) error {
	query := fmt.Sprintf(format, args...)
	if _, err := conn.ExecContext(ctx, query); err != nil {
		return fmt.Errorf("%s: %w", query, err)
	}
	return nil
}

// fill inserts rows into db.t(id, v): ids from 1 to rows, v being 0, other columns their defaults.
func fill(t *testing.T, s *servers.Server, rows int) {
	t.Helper()
	var script strings.Builder
	for from := 1; from <= rows; from += 5000 {
		script.WriteString("INSERT INTO db.t(id,v) VALUES")
		for id := from; id <= min(rows, from+4999); id++ {
			if id > from {
				script.WriteByte(',')
			}
			fmt.Fprintf(&script, "(%d,0)", id)
		}
		script.WriteString(";\n")
	}
	s.Exec(t, script.String())
}

// sameAsRows waits until the daemon serves the rows of db.t and nothing under the other ids up to maxID.
// The table must be quiet.
func sameAsRows(t *testing.T, d *servers.Daemon, s *servers.Server, maxID int) {
	t.Helper()
	want, err := scenario.Items(t.Context(), s.DB(), "db.t")
	if err != nil {
		t.Fatal(err)
	}
	keys := slices.Collect(maps.Keys(want))
	for id := range maxID + 1 {
		if key := fmt.Sprintf("t:%d", id); want[key] == nil {
			keys = append(keys, key)
		}
	}
	deadline := time.Now().Add(10 * time.Second)
	for part := range slices.Chunk(keys, 100) {
		for {
			err := compare(d, part, want)
			if err == nil {
				break
			}
			if time.Now().After(deadline) {
				t.Fatalf("%d rows on %s: %v", len(want), s.Kind, err)
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if items, err := strconv.ParseFloat(d.Metric(`rowcached_items{table="t"}`), 64); err != nil || items != float64(len(want)) {
		t.Errorf("rowcached_items is %.0f (%v), there are %d rows", items, err, len(want))
	}
}

func compare(d *servers.Daemon, keys []string, want map[string][]byte) error {
	got, err := d.Fetch(keys...)
	if err != nil {
		return err
	}
	var failed []error
	for _, key := range keys {
		value, hit := got[key]
		expected, row := want[key]
		if hit != row || string(value) != string(expected) {
			failed = append(failed, fmt.Errorf("%s: served %q (hit: %v), should be %q (row: %v)", key, value, hit, expected, row))
		}
	}
	if len(failed) > 5 {
		failed = append(failed[:5], fmt.Errorf("and %d more", len(failed)-5))
	}
	return errors.Join(failed...)
}
