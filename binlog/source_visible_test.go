package binlog

import (
	"context"
	"database/sql"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowcached/rowcached/integration/servers"
)

// TestVisible: under concurrent commits, all that is at or before Visible is seen by a SELECT that follows, and all that a
// SELECT saw is at or before the Written that follows. Each transaction inserts one row into v; a row's place in the log is
// learnt from the stream afterwards.
func TestVisible(t *testing.T) {
	eachServer(t, func(t *testing.T, srv *servers.Server) { testVisible(t, srv) }, "--sync-binlog=1", "--innodb-flush-log-at-trx-commit=1")
	t.Run("mysql97 by file", func(t *testing.T) {
		testVisible(t, servers.Start(t, servers.MySQL97, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF", "--sync-binlog=1"))
	})
}

// sighting is what one look at the server saw.
type sighting struct {
	visible, written Position
	seen             map[int64]bool
}

func testVisible(t *testing.T, srv *servers.Server) {
	srv.Exec(t, "CREATE DATABASE IF NOT EXISTS db; CREATE TABLE db.t(id BIGINT PRIMARY KEY, v INT)")
	f := newFollower(t, srv)
	f.watch("t")
	f.open()

	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	var next atomic.Int64
	group, gctx := errgroup.WithContext(ctx)
	for range 6 {
		conn := srv.Session(t)
		group.Go(func() error {
			for gctx.Err() == nil {
				if _, err := conn.ExecContext(context.WithoutCancel(gctx), "INSERT INTO db.t VALUES(?,1)", next.Add(1)); err != nil {
					return err
				}
			}
			return nil
		})
	}
	var sightings []sighting
	group.Go(func() error {
		for gctx.Err() == nil {
			s := sighting{seen: make(map[int64]bool)}
			var err error
			if s.visible, err = f.src.Visible(context.WithoutCancel(gctx), f.src.DB()); err != nil {
				return err
			}
			if s.seen, err = idsOf(context.WithoutCancel(gctx), f.src.DB()); err != nil {
				return err
			}
			if s.written, err = f.src.Written(context.WithoutCancel(gctx), f.src.DB()); err != nil {
				return err
			}
			sightings = append(sightings, s)
		}
		return nil
	})
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}

	// replay: the ids in commit order, each with the position after it
	type commit struct {
		id int64
		at Position
	}
	var commits []commit
	end, err := f.src.Written(t.Context(), f.src.DB())
	if err != nil {
		t.Fatal(err)
	}
	for id := int64(0); !f.src.Reached(end); {
		ev, err := f.src.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		switch ev.Kind {
		case EventRows:
			_, after, err := ev.NextRow()
			if err != nil {
				t.Fatal(err)
			}
			id, _, _ = after.Int(0)
		case EventCommit:
			commits = append(commits, commit{id, f.src.Position()})
		}
	}
	if len(sightings) < 2 || len(commits) < 20 {
		t.Fatalf("%d looks at %d commits", len(sightings), len(commits))
	}
	early, late := 0, 0
	for _, s := range sightings {
		for _, c := range commits {
			if s.visible.Covers(c.at) && !s.seen[c.id] {
				early++
			}
			if s.seen[c.id] && !s.written.Covers(c.at) {
				late++
			}
		}
	}
	if early > 0 || late > 0 {
		t.Errorf("in %d looks at %d commits: %d were at or before Visible and not seen, %d seen and not at or before Written",
			len(sightings), len(commits), early, late)
	}
	t.Logf("%d looks at %d commits", len(sightings), len(commits))
}

func idsOf(ctx context.Context, db *sql.DB) (map[int64]bool, error) {
	rows, err := db.QueryContext(ctx, "SELECT id FROM db.t")
	if err != nil {
		return nil, err
	}
	ids := make(map[int64]bool)
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			return nil, joinClose(err, rows)
		}
		ids[id] = true
	}
	return ids, joinClose(rows.Err(), rows)
}
