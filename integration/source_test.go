package integration

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// Attached to a source that is slow, silent or away. The numbers are those of the public reports.

func number(t *testing.T, d *servers.Daemon, sample string) float64 {
	t.Helper()
	n, err := strconv.ParseFloat(d.Metric(sample), 64)
	if err != nil {
		t.Fatalf("%s: %v", sample, err)
	}
	return n
}

// until waits for a condition.
func until(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); !holds(); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within 30 s", what)
		}
	}
}

const oneRow = "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT); INSERT INTO db.t VALUES(1,1);"

func follow(t *testing.T, s *servers.Server) *servers.Daemon {
	t.Helper()
	s.Exec(t, oneRow)
	d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t")
	d.WaitReady()
	return d
}

// Cases 142 and 143: while the source is stopped, memory still answers and the staleness is visible (G8); it is followed again
// by itself. A daemon whose source does not answer ends when it is told to.
func TestSourceAway(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		d := follow(t, s)
		s.Stop()
		until(t, "the outage is seen", func() bool {
			err := d.Ready()
			return err != nil && strings.Contains(err.Error(), "not connected to the source")
		})
		lag := number(t, d, "rowcached_replication_lag_seconds")
		until(t, "the lag grows", func() bool { return number(t, d, "rowcached_replication_lag_seconds") > lag })
		if n := number(t, d, "rowcached_source_connected"); n != 0 {
			t.Errorf("rowcached_source_connected is %v", n)
		}
		if v, _ := d.Get("t:1"); string(v) != `{"id":1,"v":1}` {
			t.Errorf("meanwhile get t:1 gives %q", v)
		}
		s.Restart()
		s.Exec(t, "UPDATE db.t SET v=2")
		until(t, "the source is followed again", func() bool {
			v, _ := d.Get("t:1")
			return d.Ready() == nil && string(v) == `{"id":1,"v":2}`
		})

		s.Pause() // as if the network swallowed everything
		began := time.Now()
		code := d.Stop()
		s.Resume()
		if took := time.Since(began); code != 0 || took > 10*time.Second {
			t.Errorf("exit %d after %v", code, took)
		}
	})
}

// Case 136: the source falls silent without closing the connection, rows change, it is heard again: the daemon notices by
// itself and catches up.
func TestSourceSilent(t *testing.T) {
	t.Parallel()
	s := servers.Start(t, servers.MySQL97)
	d := follow(t, s)
	s.Exec(t, "UPDATE db.t SET v=2")
	s.Pause()
	until(t, "the silence is noticed", func() bool { return number(t, d, "rowcached_source_connected") == 0 })
	s.Resume()
	s.Exec(t, "UPDATE db.t SET v=3; INSERT INTO db.t VALUES(2,2)")
	until(t, "caught up", func() bool {
		values, err := d.Fetch("t:1", "t:2")
		return err == nil && string(values["t:1"]) == `{"id":1,"v":3}` && string(values["t:2"]) == `{"id":2,"v":2}`
	})
}

// Case 175: what is written to tables that are not mapped is no lag, neither while it is written nor after.
func TestLagUnmapped(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		d := follow(t, s)
		s.Exec(t, "CREATE DATABASE other; CREATE TABLE other.x(id INT PRIMARY KEY AUTO_INCREMENT, v INT)")
		for range 200 {
			s.Exec(t, "INSERT INTO other.x(v) VALUES(1),(2),(3)")
		}
		until(t, "no lag", func() bool { return d.Ready() == nil && number(t, d, "rowcached_replication_lag_seconds") == 0 })
		if n := number(t, d, `rowcached_binlog_rows_total{op="insert",table="t"}`); n != 0 {
			t.Errorf("%v rows of the mapped table", n)
		}
	})
}

// Case 176: lag counts from the commit, not from the statement; a session's own clock does not make it years.
func TestLagFromCommit(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		d := follow(t, s)
		const sum = "rowcached_replication_commit_to_visible_seconds_sum"
		before := number(t, d, sum)
		const nap = 4
		s.Exec(t, fmt.Sprintf("BEGIN; INSERT INTO db.t VALUES(2,2); DO SLEEP(%d); COMMIT", nap))
		until(t, "the row", func() bool { _, hit := d.Get("t:2"); return hit })
		if took := number(t, d, sum) - before; took > nap-1 {
			t.Errorf("a transaction that slept %d s and then committed counts as %.1f s late", nap, took)
		}
		before = number(t, d, sum)
		s.Exec(t, "SET TIMESTAMP=1; INSERT INTO db.t VALUES(3,3)")
		until(t, "the row", func() bool { _, hit := d.Get("t:3"); return hit })
		if took := number(t, d, sum) - before; took > 60 {
			t.Errorf("a session in 1970 counts as %.0f s late", took)
		}
	})
}

// Case 122: nothing that MySQL 9 no longer has is used against it, and nothing fails there.
func TestStatementsOfToday(t *testing.T) {
	log := filepath.Join(t.TempDir(), "general.log")
	s := servers.Start(t, servers.MySQL97, "--general-log=ON", "--general-log-file="+log)
	d := follow(t, s)
	s.Exec(t, "ALTER TABLE db.t ADD COLUMN w INT DEFAULT 3")
	until(t, "the new column", func() bool { v, _ := d.Get("t:1"); return string(v) == `{"id":1,"v":1,"w":3}` })
	d.Stop()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "Binlog Dump") {
		t.Fatalf("the server's log has no dump:\n%s", text)
	}
	for line := range strings.Lines(strings.ToUpper(string(text))) {
		for _, word := range []string{"SLAVE", "MASTER", "EXPIRE_LOGS_DAYS", "DEFAULT_AUTHENTICATION_PLUGIN"} {
			if strings.Contains(line, word) && !strings.Contains(line, "@MASTER_") && !strings.Contains(line, "@SLAVE_") &&
				!strings.Contains(line, "REPLICATION SLAVE") && !strings.Contains(line, "LOG_SLAVE_UPDATES") {
				t.Errorf("used: %s", line)
			}
		}
	}
	for _, word := range []string{"rpl_semi_sync_master", "deprecated and will be removed", "Got fatal error"} {
		if strings.Contains(s.Log(), word) {
			t.Errorf("%q is in the server's log:\n%s", word, s.Log())
		}
	}
}

// Cases 121 and 187: an account of caching_sha2_password whose password the server does not remember logs in over TLS. Where
// TLS is required, a server that has none gets no password, however it asks; the log says what to change.
func TestFirstLogin(t *testing.T) {
	s := servers.Start(t, servers.MySQL97)
	s.Exec(t, oneRow+"CREATE USER r IDENTIFIED WITH caching_sha2_password BY 'secret-SECRET'; GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO r")
	for _, mode := range []string{"preferred", "required", "disabled"} {
		s.Exec(t, "FLUSH PRIVILEGES") // forgets
		d := servers.StartDaemon(t, "--source", s.DSN("r:secret-SECRET"), "--table", "db.t", "--source.tls.mode", mode)
		d.WaitReady()
		s.Exec(t, "UPDATE db.t SET v=v+1")
		d.Stop()
		if strings.Contains(d.Log(), "SECRET") {
			t.Errorf("%s: the password is in the log", mode)
		}
	}
	// Somebody in between who offers no TLS.
	bare := servers.Start(t, servers.MySQL97, "--tls-version=")
	bare.Exec(t, oneRow+"CREATE USER r IDENTIFIED WITH caching_sha2_password BY 'secret-SECRET'; GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO r")
	exit, output := servers.RunDaemon(t, "check", "--source", bare.DSN("r:secret-SECRET"), "--table", "db.t", "--source.tls.mode", "required")
	if exit != 1 || !strings.Contains(output, "TLS") || strings.Contains(output, "SECRET") {
		t.Errorf("exit %d\n%s", exit, output)
	}
	// An account that must use TLS, told not to: one clear fault, no storm of attempts.
	s.Exec(t, "ALTER USER r REQUIRE SSL")
	exit, output = servers.RunDaemon(t, "check", "--source", s.DSN("r:secret-SECRET"), "--table", "db.t", "--source.tls.mode", "disabled")
	if exit != 1 || !strings.Contains(output, "source.tls.mode: required") {
		t.Errorf("exit %d\n%s", exit, output)
	}
}

// Case 131: compressed transactions that grow a thousandfold pass in bounded memory.
func TestPayloadExpands(t *testing.T) {
	const rows, size = 300, 1 << 20
	s := servers.Start(t, servers.MySQL97)
	s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT, b LONGBLOB)")
	config := filepath.Join(t.TempDir(), "rowcached.yaml")
	if err := os.WriteFile(config, []byte("tables: [{table: db.t, value: {columns: [id, v]}}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	d := servers.StartDaemon(t, "--source", s.DSN("root"), "-c", config)
	d.WaitReady()
	before := resident(t, d.Pid())
	peak := watchResident(t, d.Pid())
	var script strings.Builder
	script.WriteString("USE db; SET SESSION binlog_transaction_compression=ON; BEGIN;")
	for i := range rows / 20 {
		script.WriteString("INSERT INTO t VALUES")
		for j := range 20 {
			fmt.Fprintf(&script, "(%d,%d,REPEAT('a',%d)),", 20*i+j, i, size)
		}
		script.WriteString("(" + strconv.Itoa(100_000+i) + ",0,'');")
	}
	script.WriteString("COMMIT")
	s.Exec(t, script.String())
	until(t, "the last row", func() bool { _, hit := d.Get(fmt.Sprintf("t:%d", rows-1)); return hit })
	most := peak()
	t.Logf("%d MiB of rows; resident before %d MiB, at most %d MiB", rows*size>>20, before>>20, most>>20)
	if grown := most - before; grown > 100<<20 {
		t.Errorf("the daemon grew by %d MiB", grown>>20)
	}
	sameAs(t, d, s, `{"id":%d,"v":%d}`, "SELECT id, v FROM db.t")
}

// resident is the resident memory of a process in bytes.
func resident(t *testing.T, pid int) int64 {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(text))
	pages, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// watchResident samples a process's resident memory until the function that it gives is called, which gives the most.
func watchResident(t *testing.T, pid int) func() int64 {
	t.Helper()
	stop, done := make(chan struct{}), make(chan int64)
	go func() {
		var most int64
		for {
			if text, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", pid)); err == nil {
				var size, pages int64
				if _, err := fmt.Sscan(string(text), &size, &pages); err == nil {
					most = max(most, pages*int64(os.Getpagesize()))
				}
			}
			select {
			case <-stop:
				done <- most
				return
			case <-time.After(5 * time.Millisecond):
			}
		}
	}()
	return func() int64 { close(stop); return <-done }
}

// sameAs compares every row of a query of two integers, id and v, with what is served under t:ID.
func sameAs(t *testing.T, d *servers.Daemon, s *servers.Server, format, query string) {
	t.Helper()
	rows, err := s.DB().Query(query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id, v int
		if err := rows.Scan(&id, &v); err != nil {
			t.Fatal(err)
		}
		n++
		if got, _ := d.Get(fmt.Sprintf("t:%d", id)); string(got) != fmt.Sprintf(format, id, v) {
			t.Fatalf("t:%d is %q, the row's v is %d", id, got, v)
		}
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	if items := number(t, d, `rowcached_items{table="t"}`); math.Abs(items-float64(n)) > 0 {
		t.Errorf("%v items for %d rows", items, n)
	}
}
