package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// Where a table's copy meets the tail of the log (invariant I3). The numbers in the names are those of the
// public reports.

var copyRows = flag.Int("copyrows", 200_000, "ids of the table that TestCopy70Ranges copies while it is written to")

// Case 65: rows that two writers change at full speed while the daemon starts are neither lost, doubled nor stale;
// also when it was killed before and starts from what it had stored (G1, G6).
func TestCopy65Handoff(t *testing.T) {
	const ids, starts = 400, 20
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL)")
		fill(t, s, ids/2)
		d := servers.NewDaemon(t, "--source", s.DSN("root"), "--table", "db.t", "--state.checkpoint_interval", "100ms")
		for start := range starts {
			if start%2 == 0 {
				d.StateDir = t.TempDir()
			}
			l := startLoad(t, s, 2, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, i int) error {
				id := 1 + r.IntN(ids)
				switch r.IntN(4) {
				case 0:
					return execute(ctx, conn, "DELETE FROM t WHERE id=%d", id)
				case 1:
					return execute(ctx, conn, "UPDATE t SET v=v+1 WHERE id=%d", id)
				default:
					return execute(ctx, conn, "INSERT INTO t VALUES(%d,%d) ON DUPLICATE KEY UPDATE v=v+1", id, i)
				}
			})
			d.Start()
			d.WaitReady()
			l.end(t)
			sameAsRows(t, d, s, ids)
			if t.Failed() {
				t.Fatalf("at start %d", start+1)
			}
			d.Kill()
		}
	})
}

// A row's value as far as these tests look at it.
type row struct {
	ID int `json:"id"`
	V  int `json:"v"`
}

func parse(value []byte) (row, error) {
	var r row
	if err := json.Unmarshal(value, &r); err != nil {
		return r, fmt.Errorf("value %q: %w", value, err)
	}
	return r, nil
}

// Case 67: while a big table is copied, rows are updated over and over, deleted and inserted again. What is served
// never goes back (G2), and from the moment of readiness on there is an answer for each.
func TestCopy67NoTimeTravel(t *testing.T) {
	const rows = 100_000
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL, pad CHAR(100) NOT NULL DEFAULT 'x')")
		fill(t, s, rows)
		var turn atomic.Int64
		l := startLoad(t, s, 1, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, _ int) error {
			v := turn.Add(1)
			for _, id := range []int{1, rows / 2, rows} {
				if err := execute(ctx, conn, "UPDATE t SET v=%d WHERE id=%d", v, id); err != nil {
					return err
				}
			}
			if err := execute(ctx, conn, "DELETE FROM t WHERE id=2"); err != nil {
				return err
			}
			return execute(ctx, conn, "INSERT INTO t(id,v) VALUES(2,%d)", v)
		})
		d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t")
		keys := []string{"t:1", "t:2", fmt.Sprint("t:", rows/2), fmt.Sprint("t:", rows)}
		last := map[string]int{}
		ready := false
		for deadline := time.Now().Add(30 * time.Second); ; {
			before := ready
			values, err := d.Fetch(keys...)
			if err != nil && before {
				t.Fatalf("after readiness: %v", err)
			}
			for _, key := range keys {
				value, hit := values[key]
				if !hit {
					if before && err == nil && key != "t:2" {
						t.Fatalf("%s: a miss after readiness", key)
					}
					continue
				}
				r, err := parse(value)
				if err != nil {
					t.Fatal(err)
				}
				if r.V < last[key] {
					t.Fatalf("%s: %d after %d", key, r.V, last[key])
				}
				last[key] = r.V
			}
			if !ready && d.Ready() == nil {
				ready = true
				deadline = time.Now().Add(time.Second)
			}
			if time.Now().After(deadline) {
				break
			}
		}
		if !ready {
			t.Fatal("not ready within 30 s of load")
		}
		l.end(t)
		sameAsRows(t, d, s, rows)
	})
}

// Case 70: low ids vanish and rows appear at every place while the table is copied in ranges: none is skipped or
// kept.
func TestCopy70Ranges(t *testing.T) {
	rows := *copyRows
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL)")
		fill(t, s, rows)
		s.Exec(t, "DELETE FROM db.t WHERE id%7=0")
		var low atomic.Int64
		l := startLoad(t, s, 2, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, _ int) error {
			if err := execute(ctx, conn, "DELETE FROM t WHERE id=%d", low.Add(1)); err != nil {
				return err
			}
			return execute(ctx, conn, "INSERT INTO t VALUES(%d,1) ON DUPLICATE KEY UPDATE v=v+1", 7*(1+r.IntN(rows/7)))
		})
		begin := time.Now()
		d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t")
		d.WaitReady()
		took := time.Since(begin)
		l.end(t)
		sameAsRows(t, d, s, rows)
		t.Logf("%d ids, %s rows copied, ready after %v, %d deletes by writers; every key equal to its row",
			rows, d.Metric(`rowcached_snapshot_rows_total{table="t"}`), took.Round(time.Millisecond), low.Load())
	})
}

// Case 73: two tables that every transaction changes together are served together from the moment of readiness on
// (G3), however far apart their copies were.
func TestCopy73LinkedTables(t *testing.T) {
	const starts = 5
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, `CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL);
			CREATE TABLE db.u(id INT PRIMARY KEY, v INT NOT NULL, pad CHAR(100) NOT NULL DEFAULT 'x')`)
		fill(t, s, 20_000)
		s.Exec(t, "INSERT INTO db.u(id,v) SELECT id, v FROM db.t")
		var turn atomic.Int64
		l := startLoad(t, s, 1, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, _ int) error {
			v := turn.Add(1)
			return execute(ctx, conn, "BEGIN; UPDATE t SET v=%d WHERE id IN (1,20000); UPDATE u SET v=%d WHERE id IN (1,20000); COMMIT", v, v)
		})
		for range starts {
			d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t", "--table", "db.u")
			d.WaitReady()
			keys := []string{"t:1", "u:1", "u:20000", "t:20000"}
			for end := time.Now().Add(300 * time.Millisecond); time.Now().Before(end); {
				values, err := d.Fetch(keys...)
				if err != nil {
					t.Fatal(err)
				}
				seen := map[int]bool{}
				for _, key := range keys {
					r, err := parse(values[key])
					if err != nil {
						t.Fatalf("%s: %v", key, err)
					}
					seen[r.V] = true
				}
				if len(seen) != 1 {
					t.Fatalf("half a transaction in one answer: %q", values)
				}
			}
			d.Kill()
		}
		l.end(t)
	})
}

// Case 76: the log that a copy began with is purged while it runs: the daemon begins anew rather than going on from
// wherever the log begins now (G5).
func TestCopy76PurgedLogs(t *testing.T) {
	const rows = 100_000
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL)")
		fill(t, s, rows)
		l := startLoad(t, s, 1, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, i int) error {
			return execute(ctx, conn, "UPDATE t SET v=v+1 WHERE id=%d", 1+r.IntN(rows))
		})
		d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t")
		for deadline := time.Now().Add(15 * time.Second); d.Ready() != nil && time.Now().Before(deadline); {
			purge(t, s)
		}
		d.WaitReady()
		l.end(t)
		sameAsRows(t, d, s, rows)

		// And while it is away: its stored position is gone when it comes back.
		d.Stop()
		s.Exec(t, "UPDATE db.t SET v=v+1 WHERE id<1000; DELETE FROM db.t WHERE id=1000")
		purge(t, s)
		d.Start()
		d.WaitReady()
		sameAsRows(t, d, s, rows)
	})
}

// purge removes all but the newest binlog file. A server keeps one that it is sending, which is no error.
func purge(t *testing.T, s *servers.Server) {
	t.Helper()
	s.Exec(t, "FLUSH BINARY LOGS")
	rows, err := s.DB().Query("SHOW BINARY LOGS")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var file string
	for rows.Next() {
		targets := make([]any, len(columns))
		for i := range targets {
			targets[i] = new(sql.RawBytes)
		}
		targets[0] = &file
		if err := rows.Scan(targets...); err != nil {
			t.Fatal(err)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	s.Exec(t, "PURGE BINARY LOGS TO '"+file+"'")
}

// Case 77: no writer waits for a copy, not even behind another session's long SELECT (G7).
func TestCopy77WritersGoOn(t *testing.T) {
	const rows = 100_000
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL)")
		fill(t, s, rows)

		long := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		conn := s.Session(t)
		go func() { // waited for below
			_, err := conn.ExecContext(ctx, "SELECT SLEEP(60) FROM db.t LIMIT 1")
			long <- err
		}()
		defer func() {
			cancel()
			if err := <-long; err == nil {
				t.Error("the long SELECT ended by itself")
			}
		}()

		var slowest atomic.Int64
		var next atomic.Int64
		next.Store(rows)
		l := startLoad(t, s, 1, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, _ int) error {
			began := time.Now()
			err := execute(ctx, conn, "INSERT INTO t VALUES(%d,1)", next.Add(1))
			slowest.Store(max(slowest.Load(), int64(time.Since(began)))) // one writer only
			return err
		})
		d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t")
		d.WaitReady()
		l.end(t)
		if took := time.Duration(slowest.Load()); took > time.Second {
			t.Errorf("an INSERT took %v while the table was copied", took)
		}
		sameAsRows(t, d, s, int(next.Load()))
	})
}
