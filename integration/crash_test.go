package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/scenario"
	"github.com/rowcached/rowcached/integration/servers"
)

var crashRounds = flag.Int("crashrounds", 8, "times that the crash test ends the daemon, on each kind of server")

// versions are the rows of db.t as the writers have committed them: the version of a row grows with each change, its
// deletion included.
type versions struct {
	rows      [64]sync.Mutex // one for each remainder of the ids
	mu        sync.Mutex
	committed []int64 // by id; mu
}

func (v *versions) snapshot() []int64 {
	v.mu.Lock()
	defer v.mu.Unlock()
	return append([]int64(nil), v.committed...)
}

// watcher asks the daemon for keys all the while. floor is what each row had come to when the daemon was started: everything
// that an earlier process served is at or before it, and so nothing older may be served.
type watcher struct {
	stop context.CancelFunc
	done chan struct{}
	hits int
	back string // the first key that went back
}

func watchVersions(d *servers.Daemon, floor []int64, seed uint64) *watcher {
	ctx, stop := context.WithCancel(context.Background())
	w := &watcher{stop: stop, done: make(chan struct{})}
	addr := d.Addr()
	go func() {
		defer close(w.done)
		r := rand.New(rand.NewPCG(seed, 1))
		var client *servers.Client
		for ctx.Err() == nil {
			if client == nil {
				var err error
				if client, err = servers.Connect(addr); err != nil {
					time.Sleep(time.Millisecond)
					continue
				}
			}
			keys := make([]string, 20)
			ids := map[string]int{}
			for i := range keys {
				id := r.IntN(len(floor))
				keys[i] = "t:" + strconv.Itoa(id)
				ids[keys[i]] = id
			}
			values, err := client.Fetch(keys...)
			if err != nil {
				client.Close()
				client = nil
				continue
			}
			for key, value := range values {
				var row struct{ V int64 }
				if err := json.Unmarshal(value, &row); err != nil {
					w.back = fmt.Sprintf("%s: %q: %v", key, value, err)
					return
				}
				w.hits++
				if id := ids[key]; row.V < floor[id] {
					w.back = fmt.Sprintf("%s has version %d and had %d", key, row.V, floor[id])
					return
				} else {
					floor[id] = row.V
				}
			}
		}
		if client != nil {
			client.Close()
		}
	}()
	return w
}

func (w *watcher) end(t *testing.T) {
	t.Helper()
	w.stop()
	<-w.done
	if w.back != "" {
		t.Errorf("a key went back (G2): %s", w.back)
	}
}

// Cases 146, 149: the daemon is killed at random instants, while it starts as well, under writers; it resumes from its stored
// state (G6). No key goes back over a restart (G2), and in the end every key equals its row (G1).
func TestCrash146(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		const ids = 3000
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v BIGINT NOT NULL, pad VARCHAR(200) NOT NULL DEFAULT '');"+
			"CREATE TABLE db.other(id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
		fill(t, s, ids-1)
		rows := &versions{committed: make([]int64, ids)}
		l := startLoad(t, s, 2, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, _ int) error { return rows.change(ctx, conn, r) })
		d := servers.NewDaemon(t, "--source", s.DSN("root"), "--table", "db.t", "--state.checkpoint_interval", "150ms")
		r := seeded(t)
		resumed := 0
		for round := range *crashRounds {
			floor := rows.snapshot()
			d.Start()
			w := watchVersions(d, floor, r.Uint64())
			if r.IntN(4) > 0 {
				d.WaitReady()
			}
			time.Sleep(time.Duration(r.IntN(900)) * time.Millisecond)
			if round == *crashRounds/2 { // a change of the table's definition may be the last that the state knows of
				s.Exec(t, "ALTER TABLE db.t ADD COLUMN z INT NOT NULL DEFAULT 7")
			}
			if r.IntN(4) == 0 {
				if code := d.Stop(); code != 0 {
					t.Errorf("exit code %d after SIGTERM", code)
				}
			} else {
				d.Kill()
			}
			w.end(t)
			resumed = strings.Count(d.Log(), "stored rows loaded")
		}
		if resumed == 0 {
			t.Errorf("none of %d starts resumed from the stored state", *crashRounds)
		}
		floor := rows.snapshot()
		d.Start()
		w := watchVersions(d, floor, r.Uint64())
		time.Sleep(200 * time.Millisecond)
		l.end(t)
		d.WaitReady()
		want, err := scenario.Items(t.Context(), s.DB(), "db.t")
		if err != nil {
			t.Fatal(err)
		}
		different := 0
		deadline := time.Now().Add(10 * time.Second)
		for id := range ids {
			key := "t:" + strconv.Itoa(id)
			value, hit := d.Get(key)
			row, exists := want[key]
			for (exists != hit || string(row) != string(value)) && time.Now().Before(deadline) { // it follows for a moment yet
				time.Sleep(time.Millisecond)
				value, hit = d.Get(key)
			}
			if exists != hit || string(row) != string(value) {
				if different++; different < 5 {
					t.Errorf("%s: served %q (%v), the row is %q (%v)", key, value, hit, row, exists)
				}
			}
		}
		w.end(t)
		t.Logf("%d starts, %d of them from stored state; %d keys compared, %d differences", *crashRounds+1, strings.Count(d.Log(), "stored rows loaded"), ids, different)
	})
}

// change changes one row, or one of a table that is not mapped, in a transaction of its own, and notes what it committed.
func (v *versions) change(ctx context.Context, conn *sql.Conn, r *rand.Rand) error {
	id := r.IntN(len(v.committed))
	// One writer has the row until its commit is over: versions grow in the log's order.
	v.rows[id%len(v.rows)].Lock()
	defer v.rows[id%len(v.rows)].Unlock()
	if r.IntN(10) == 0 {
		return execute(ctx, conn, "INSERT INTO db.other(v) VALUES(1)")
	}
	v.mu.Lock()
	next := v.committed[id] + 1
	v.mu.Unlock()
	query := fmt.Sprintf("INSERT INTO db.t(id,v,pad) VALUES(%d,%d,REPEAT('p',%d)) ON DUPLICATE KEY UPDATE v=VALUES(v), pad=VALUES(pad)", id, next, r.IntN(200))
	if r.IntN(3) == 0 {
		query = fmt.Sprintf("DELETE FROM db.t WHERE id=%d", id)
	}
	if err := execute(ctx, conn, "%s", query); err != nil {
		return err
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	v.committed[id] = next
	return nil
}
