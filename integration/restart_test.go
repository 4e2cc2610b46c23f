package integration

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/scenario"
	"github.com/rowcached/rowcached/integration/servers"
)

var restartRows = flag.Int("restartrows", 60_000, "rows of the table that TestRestartWarm restarts with")

// A restart takes its rows from the stored state and copies nothing; what happened meanwhile is in the log. Printed: the time
// from start to readiness of the copy, of a restart after SIGTERM, and of one after SIGKILL.
func TestRestartWarm(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind, "--max-allowed-packet=64M")
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id BIGINT PRIMARY KEY, v INT NOT NULL, pad VARCHAR(200) NOT NULL DEFAULT 'a value of some sixty bytes, as rows in tables often have them')")
		fill(t, s, *restartRows)
		d := servers.NewDaemon(t, "--source", s.DSN("root"), "--table", "db.t", "--memory.limit", fmt.Sprint(256<<20+*restartRows*400),
			"--state.checkpoint_interval", "300ms")
		timed := func() time.Duration {
			began := time.Now()
			d.Start()
			d.WaitReady()
			return time.Since(began)
		}
		copied := timed()
		if code := d.Stop(); code != 0 {
			t.Fatalf("exit code %d after SIGTERM", code)
		}
		s.Exec(t, "UPDATE db.t SET v=v+1 WHERE id%1000=0; DELETE FROM db.t WHERE id%1000=1; INSERT INTO db.t(id,v) VALUES(-1,-1)")
		warm := timed()
		check := func(what string) {
			t.Helper()
			if n := d.Metric(`rowcached_snapshot_rows_total{table="t"}`); n != "0" {
				t.Errorf("%s copied %s rows\n%s", what, n, d.Log())
			}
			want, err := scenario.Items(t.Context(), s.DB(), "db.t")
			if err != nil {
				t.Fatal(err)
			}
			var keys []string
			for id := range min(*restartRows, 20_000) {
				if keys = append(keys, fmt.Sprintf("t:%d", id-1)); len(keys) == 100 {
					if err := compare(d, keys, want); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
					keys = keys[:0]
				}
			}
		}
		check("the restart after SIGTERM")
		for d.Metric("rowcached_checkpoint_timestamp_seconds") == "" {
			time.Sleep(10 * time.Millisecond)
		}
		d.Kill()
		s.Exec(t, "UPDATE db.t SET v=v+1 WHERE id%1000=2; DELETE FROM db.t WHERE id%1000=3")
		killed := timed()
		check("the restart after SIGKILL")
		t.Logf("%d rows: copied and ready after %.2f s, restarted after SIGTERM in %.2f s, after SIGKILL in %.2f s; copy / restart: %.1f",
			*restartRows, copied.Seconds(), warm.Seconds(), killed.Seconds(), copied.Seconds()/warm.Seconds())
	})
}

// State that cannot be used is set aside with the reason, and the tables are copied.
func TestRestartSetAside(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		other := servers.Start(t, kind)
		for i, x := range []*servers.Server{s, other} {
			x.Exec(t, fmt.Sprintf("CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT); CREATE TABLE db.u(id INT PRIMARY KEY, v INT); INSERT INTO db.t VALUES(1,%d); INSERT INTO db.u VALUES(1,%d)", i, i))
		}
		other.Exec(t, strings.Repeat("UPDATE db.t SET v=v+2;", 30)) // its log is longer than the state's position
		args := func(s *servers.Server, tables ...string) []string {
			args := []string{"--source", s.DSN("root")}
			for _, table := range tables {
				args = append(args, "--table", table)
			}
			return args
		}
		d := servers.NewDaemon(t)
		start := func(a []string, value, copied string) {
			t.Helper()
			d.Args = a
			d.Start()
			d.WaitReady()
			if got, _ := d.Get("t:1"); string(got) != value {
				t.Errorf("served %q, want %q", got, value)
			}
			if n := d.Metric(`rowcached_snapshot_rows_total{table="t"}`); n != copied {
				t.Errorf("%s rows were copied, want %s", n, copied)
			}
		}
		aside := func(reason string) {
			t.Helper()
			log := d.Log()
			at := strings.LastIndex(log, "it was set aside")
			if at < 0 || !strings.Contains(strings.SplitN(log[at:], "\n", 2)[0], reason) {
				t.Errorf("the log does not say that the state was set aside because %q:\n%s", reason, log)
			}
			if _, err := os.Stat(filepath.Join(d.StateDir, "state.aside")); err != nil {
				t.Error(err)
			}
		}
		end := func() {
			t.Helper()
			if code := d.Stop(); code != 0 {
				t.Errorf("exit code %d after SIGTERM", code)
			}
		}
		both := args(s, "db.t", "db.u")
		start(both, `{"id":1,"v":0}`, "1")
		end()
		start(both, `{"id":1,"v":0}`, "0")
		end()

		// Another mapping of one table: the other one is taken over.
		fewer := append(args(s, "db.t"), "--table", "db.u")
		config := filepath.Join(t.TempDir(), "c.yaml")
		if err := os.WriteFile(config, []byte("tables:\n- {table: db.t, value: {columns: [v]}}\n- {table: db.u}\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		start([]string{"--source", s.DSN("root"), "-c", config}, `{"v":0}`, "1")
		if n := d.Metric(`rowcached_snapshot_rows_total{table="u"}`); n != "0" {
			t.Errorf("%s rows of the table whose mapping stayed were copied", n)
		}
		end()
		start(fewer, `{"id":1,"v":0}`, "1")
		end()

		// Another server, with the same tables and a longer log.
		start(args(other, "db.t", "db.u"), `{"id":1,"v":61}`, "1")
		aside("")
		end()

		// A state file of a later version.
		state := filepath.Join(d.StateDir, "state")
		text, err := os.ReadFile(state)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(state, append([]byte("rowcached state 99"), text[len("rowcached state 1"):]...), 0o600); err != nil {
			t.Fatal(err)
		}
		start(args(other, "db.t", "db.u"), `{"id":1,"v":61}`, "1")
		aside("version 99")
		end()

		// The source's log begins anew while the daemon is down, and grows beyond the old position.
		reset := "RESET MASTER;"
		if kind.Flavor() == "mysql" {
			reset = "RESET BINARY LOGS AND GTIDS;"
		}
		other.Exec(t, reset+strings.Repeat("UPDATE db.t SET v=v+2;", 100))
		start(args(other, "db.t", "db.u"), `{"id":1,"v":261}`, "1")
		aside("")
		end()
	})
}
