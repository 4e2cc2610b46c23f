package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowcached/rowcached/integration/servers"
)

const smallTable = "CREATE DATABASE IF NOT EXISTS db; USE db; CREATE TABLE t(id INT PRIMARY KEY, v INT);"

// until reads until the condition holds.
func (f *follower) until(what string, holds func() bool) {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), followLimit)
	defer cancel()
	for !holds() {
		if err := f.step(ctx); err != nil {
			f.t.Fatalf("%s: %v", what, err)
		}
	}
}

// lost reads until the position is lost, and gives the error.
func (f *follower) lost() error {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), followLimit)
	defer cancel()
	for {
		if err := f.step(ctx); err != nil {
			if !errors.Is(err, ErrPositionLost) {
				f.t.Fatalf("got %v, want a lost position", err)
			}
			if f.src.Status().State != StateLost {
				f.t.Errorf("the state is %v", f.src.Status().State)
			}
			return err
		}
	}
}

// dumpID gives the connection id of the dump.
func (f *follower) dumpID() int64 {
	f.t.Helper()
	var id int64
	if err := f.srv.DB().QueryRow("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%' ORDER BY ID DESC LIMIT 1").Scan(&id); err != nil {
		f.t.Fatalf("find the dump: %v", err)
	}
	return id
}

func (f *follower) killDump() {
	f.t.Helper()
	f.srv.Exec(f.t, fmt.Sprintf("KILL %d", f.dumpID()))
}

// TestSourceKilled: a killed dump is taken up again, and every transaction is given out once.
func TestSourceKilled(t *testing.T) {
	eachServer(t, testKilled)
	t.Run("mysql97 by file", func(t *testing.T) {
		testKilled(t, servers.Start(t, servers.MySQL97, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
	})
}

func testKilled(t *testing.T, srv *servers.Server) {
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.watch("t")
	f.open()
	f.run("USE db; INSERT INTO t VALUES(1,1)")
	for i := 2; i < 6; i++ {
		f.killDump()
		got := f.run(fmt.Sprintf("USE db; INSERT INTO t VALUES(%d,1)", i))
		f.diff("after a KILL", got, fmt.Sprintf("begin\ninsert t (%d,1)\ncommit", i))
	}
	// files that come and go between
	f.killDump()
	got := f.run("USE db; FLUSH BINARY LOGS; INSERT INTO t VALUES(10,1); FLUSH BINARY LOGS; FLUSH BINARY LOGS")
	f.diff("after new files", got, "begin\ninsert t (10,1)\ncommit")
	checkPosition(t, f)
	f.killDump()
	f.diff("after a rotation", f.run("USE db; INSERT INTO t VALUES(11,1)"), "begin\ninsert t (11,1)\ncommit")
	if n := f.src.Status().Reconnects; n < 6 {
		t.Errorf("%d reconnects, want 6 or more", n)
	}

	// inside a transaction that no buffer holds
	srv.Exec(t, "USE db; CREATE TABLE w(id INT PRIMARY KEY, s LONGTEXT)")
	f.watch("w")
	f.catchUp()
	var script strings.Builder
	script.WriteString("USE db; SET @s=REPEAT('x',1000000); BEGIN;")
	for i := range 60 {
		fmt.Fprintf(&script, "INSERT INTO w VALUES(%d,@s);", i)
	}
	script.WriteString("COMMIT")
	srv.Exec(t, script.String())
	f.until("the first rows", func() bool { return len(f.lines) > 3 })
	f.killDump()
	got = f.catchUp()
	abort := -1
	for i, l := range got {
		if l == "abort" {
			abort = i
		}
	}
	if abort < 0 {
		t.Fatalf("no abort in %d lines", len(got))
	}
	if rest := got[abort+1:]; len(rest) != 62 || rest[0] != "begin" || rest[61] != "commit" {
		t.Errorf("after the abort: %q", rest)
	}
}

// TestSourceRestart: a source that stops, or is killed, is followed again, and its MEMORY tables' loss is told.
func TestSourceRestart(t *testing.T) {
	eachServer(t, func(t *testing.T, srv *servers.Server) {
		srv.Exec(t, smallTable+"CREATE TABLE mem(id INT PRIMARY KEY) ENGINE=MEMORY; INSERT INTO mem VALUES(1)")
		f := newFollower(t, srv)
		f.watch("t", "mem")
		f.open()
		for i := range 2 {
			f.run(fmt.Sprintf("USE db; INSERT INTO t VALUES(%d,1)", 10*i))
			if i == 0 {
				srv.Stop()
			} else {
				srv.Kill()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
			for f.step(ctx) == nil {
			}
			cancel()
			if s := f.src.Status(); s.Connected || s.LastError == nil {
				t.Errorf("with the server down: %+v", s)
			}
			srv.Restart()
			srv.Exec(t, "SELECT COUNT(*) FROM db.mem")
			got := f.run(fmt.Sprintf("USE db; INSERT INTO t VALUES(%d,2)", 10*i+1))
			want := fmt.Sprintf("begin\ninvalidate restart mem\ncommit\nbegin\ninvalidate truncate mem\ncommit\nbegin\ninsert t (%d,2)\ncommit", 10*i+1)
			f.diff("after a restart", got, want)
			checkPosition(t, f)
		}
	}, "--server-id=77")
}

// reset is the statement that begins the log anew.
func reset(srv *servers.Server) string {
	if srv.Flavor == "mysql" {
		return "RESET BINARY LOGS AND GTIDS;"
	}
	return "RESET MASTER;"
}

// TestSourceReset: a log that began anew is never taken for the old one.
func TestSourceReset(t *testing.T) {
	eachServer(t, testReset, "--server-id=77")
	t.Run("mysql97 by file", func(t *testing.T) {
		testReset(t, servers.Start(t, servers.MySQL97, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
	})
}

func testReset(t *testing.T, srv *servers.Server) {
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.watch("t")
	f.open()
	f.run("USE db; INSERT INTO t VALUES(1,1),(2,2)")
	for _, updates := range []int{1, 50} { // the new log ends before the dump's place, and beyond it
		time.Sleep(1100 * time.Millisecond) // files are told apart by the second of their creation
		srv.Exec(t, reset(srv)+"USE db;"+strings.Repeat("UPDATE t SET v=v+1;", updates))
		err := f.lost()
		t.Logf("while connected, %d transactions: %v", updates, err)
		if updates == 1 {
			f.open()
			f.run("USE db; UPDATE t SET v=v+1")
		}
	}
	if err := f.src.Open(t.Context(), f.src.Position()); err == nil {
		f.lost()
	} else if !errors.Is(err, ErrPositionLost) {
		t.Errorf("the old position: %v", err)
	}
	f.open()
	f.run("USE db; UPDATE t SET v=v+1")
	p := f.src.Position()
	if err := f.src.Close(); err != nil {
		t.Fatal(err)
	}

	// while away, and then at least as much as before
	time.Sleep(1100 * time.Millisecond)
	srv.Exec(t, reset(srv)+"USE db; "+strings.Repeat("UPDATE t SET v=v+1;", 60))
	g := newFollower(t, srv)
	g.watch("t")
	err := g.src.Open(t.Context(), p)
	if err == nil {
		err = g.lost()
	}
	if !errors.Is(err, ErrPositionLost) {
		t.Errorf("reset while away: %v", err)
	}
	t.Log("while away:", err)
}

// TestSourcePurged: a position whose log is gone is lost, with the server's words.
func TestSourcePurged(t *testing.T) {
	eachServer(t, testPurged)
	t.Run("mysql97 by file", func(t *testing.T) {
		testPurged(t, servers.Start(t, servers.MySQL97, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF"))
	})
}

func testPurged(t *testing.T, srv *servers.Server) {
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.open()
	f.run("USE db; INSERT INTO t VALUES(1,1)")
	p := f.src.Position()
	f.run("USE db; INSERT INTO t VALUES(2,1); FLUSH BINARY LOGS; INSERT INTO t VALUES(3,1)")
	// MariaDB keeps a file until its engines have said that they need it no more.
	last := f.src.Position().File
	for first := ""; first != last; {
		srv.Exec(t, "FLUSH BINARY LOGS; PURGE BINARY LOGS TO '"+last+"'")
		row, err := queryNamed(t.Context(), srv.DB(), "SHOW BINARY LOGS")
		if err != nil {
			t.Fatal(err)
		}
		first = row["log_name"]
	}
	g := newFollower(t, srv)
	err := g.src.Open(t.Context(), p)
	if err == nil {
		err = g.lost()
	}
	if !errors.Is(err, ErrPositionLost) || !strings.Contains(err.Error(), "purged") {
		t.Errorf("got %v", err)
	}
	t.Log(err)

	// ahead of the source
	q := f.src.Position()
	switch {
	case q.GTIDs == "":
		q.Pos += 1000
	case srv.Flavor == "mysql":
		q.GTIDs, _, _ = strings.Cut(q.GTIDs, ":")
		q.GTIDs += ":1-1000"
	default:
		q.GTIDs = "0-1-1000"
	}
	if err := g.src.Open(t.Context(), q); err == nil {
		err = g.lost()
		t.Log(err)
	} else if !errors.Is(err, ErrPositionLost) {
		t.Errorf("ahead of the source: %v", err)
	}
}

// TestSourceHalfOpen: Cases 136 and 137: a server that stops answering is noticed, and followed again when it answers.
func TestSourceHalfOpen(t *testing.T) {
	eachServer(t, func(t *testing.T, srv *servers.Server) {
		srv.Exec(t, smallTable)
		f := newFollower(t, srv, func(c *Config) { c.ReadTimeout = time.Second })
		f.watch("t")
		f.open()
		f.run("USE db; INSERT INTO t VALUES(1,1)")
		id := f.dumpID()
		ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
		defer cancel()
		beats := 0
		for {
			ev, err := f.src.Next(ctx)
			if err != nil {
				break
			}
			if ev.Kind == EventHeartbeat {
				beats++
			}
		}
		if beats < 5 || f.dumpID() != id || f.src.Status().Reconnects != 0 {
			t.Errorf("an idle source: %d heartbeats, dump %d then %d", beats, id, f.dumpID())
		}
		srv.Pause()
		start := time.Now()
		for f.src.Status().Connected && time.Since(start) < followLimit {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			for f.step(ctx) == nil {
			}
			cancel()
		}
		if d := time.Since(start); d < 500*time.Millisecond || d > 20*time.Second {
			t.Errorf("a silent source counted as connected for %v", d)
		}
		srv.Resume()
		f.diff("after the silence", f.run("USE db; INSERT INTO t VALUES(2,1)"), "begin\ninsert t (2,1)\ncommit")
	})
}

// TestSourceCancel: a Next that was cancelled loses nothing.
func TestSourceCancel(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB1011)
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.watch("t")
	f.open()
	for i := range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
		start := time.Now()
		for f.step(ctx) == nil {
		}
		cancel()
		if d := time.Since(start); d > time.Second {
			t.Errorf("Next returned %v late", d)
		}
		srv.Exec(t, fmt.Sprintf("INSERT INTO db.t VALUES(%d,1)", i))
	}
	if got := f.catchUp(); len(got) != 60 {
		t.Errorf("%d lines for 20 transactions: %q", len(got), got)
	}
	if n := f.src.Status().Reconnects; n != 0 {
		t.Errorf("%d reconnects", n)
	}
}

// TestSourceSameID: Case 140: two replicas with one server id are told of; one that was chosen at random is chosen anew.
func TestSourceSameID(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB1011)
	srv.Exec(t, smallTable)
	f := newFollower(t, srv, func(c *Config) { c.ServerID = 4242 })
	g := newFollower(t, srv, func(c *Config) { c.ServerID = 4242 })
	f.open()
	g.open()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	for f.src.Status().LastError == nil && f.step(ctx) == nil {
	}
	if err := f.src.Status().LastError; !errors.Is(err, errDuplicateID) || !strings.Contains(err.Error(), "server_id") {
		t.Errorf("the older of two says %v", err)
	}
	h := newFollower(t, srv)
	h.watch("t")
	h.open()
	chosen := h.src.Status().ServerID
	k := newFollower(t, srv, func(c *Config) { c.ServerID = chosen })
	k.open()
	h.diff("after an id was taken", h.run("INSERT INTO db.t VALUES(1,1)"), "begin\ninsert t (1,1)\ncommit")
	if id := h.src.Status().ServerID; id == chosen {
		t.Errorf("kept the id %d that another has", id)
	}
}

// TestSourceFarOffset: Case 133: a log whose offsets are beyond what the dump command can name is taken up again at the last one that
// it can, and nothing is given out twice. The limit is lowered for this, since files of more than 4 GiB take their time.
func TestSourceFarOffset(t *testing.T) {
	srv := servers.Start(t, servers.MySQL97, "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.src.far = 2000
	f.watch("t")
	f.open()
	for i := range 20 {
		got := f.run(fmt.Sprintf("USE db; INSERT INTO t VALUES(%d,1); CREATE TABLE x%d(id INT); SET SESSION binlog_transaction_compression=ON; INSERT INTO t VALUES(%d,2)", i, i, i+100))
		f.diff("a round", got, fmt.Sprintf("begin\ninsert t (%d,1)\ncommit\nbegin\ninsert t (%d,2)\ncommit", i, i+100))
		if i%3 == 0 {
			f.killDump()
		}
	}
	if p := f.src.Position(); p.Pos < 3*f.src.far {
		t.Errorf("the log reached %s only", p)
	}
	if a := f.src.resume.anchor; a >= f.src.far {
		t.Errorf("the anchor is %d", a)
	}
	checkPosition(t, f)
}

// TestSourceDisorder: a MariaDB domain whose sequence goes backwards is taken up again by file.
func TestSourceDisorder(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB1011, "--server-id=77")
	srv.Exec(t, smallTable+"INSERT INTO t VALUES(1,1),(2,1)")
	f := newFollower(t, srv)
	f.watch("t")
	f.open()
	f.run("USE db; UPDATE t SET v=10; UPDATE t SET v=11; UPDATE t SET v=12; UPDATE t SET v=13; UPDATE t SET v=14 WHERE id=1")
	f.diff("backwards", f.run("USE db; SET GLOBAL gtid_strict_mode=0; SET SESSION gtid_seq_no=5; INSERT INTO t VALUES(3,1)"), "begin\ninsert t (3,1)\ncommit")
	f.killDump()
	f.diff("after it", f.run("USE db; INSERT INTO t VALUES(4,1)"), "begin\ninsert t (4,1)\ncommit")
	// another server cannot be joined
	srv.Restart("--server-id=78")
	f.lost()
}

// TestSourceOtherServer: by GTID the log of a server with another identity is followed on, and a position noted before counts.
func TestSourceOtherServer(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB118, "--server-id=77")
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.watch("t")
	f.open()
	f.run("USE db; INSERT INTO t VALUES(1,1)")
	srv.Exec(t, "USE db; INSERT INTO t VALUES(2,1)")
	noted, err := f.src.Written(t.Context(), f.src.DB())
	if err != nil {
		t.Fatal(err)
	}
	srv.Restart("--server-id=78")
	f.until("the noted position", func() bool { return f.src.Reached(noted) })
	f.diff("after the change", f.run("USE db; INSERT INTO t VALUES(3,1)"), "begin\ninsert t (2,1)\ncommit\nbegin\ninsert t (3,1)\ncommit")
	checkPosition(t, f)
}

// TestSourceIncident: what the server lost is told.
func TestSourceIncident(t *testing.T) {
	eachServer(t, func(t *testing.T, srv *servers.Server) {
		srv.Exec(t, `CREATE DATABASE IF NOT EXISTS db; USE db; CREATE TABLE t(id INT PRIMARY KEY, b LONGTEXT) ENGINE=MyISAM;
			SET GLOBAL max_binlog_stmt_cache_size=4096; SET GLOBAL binlog_stmt_cache_size=4096`)
		f := newFollower(t, srv)
		f.watch("t")
		f.open()
		if _, err := srv.DB().Exec("INSERT INTO db.t VALUES(1,'ok'),(2,REPEAT('a',200000))"); err == nil {
			t.Fatal("the insert did not fail")
		}
		got := f.run("SET GLOBAL max_binlog_stmt_cache_size=DEFAULT; SET GLOBAL binlog_stmt_cache_size=DEFAULT")
		f.diff("an incident", got, "begin\ninvalidate incident all\ncommit")
		f.diff("after it", f.run("INSERT INTO db.t VALUES(3,'c')"), "begin\ninsert t (3,c)\ncommit")
		checkPosition(t, f)
	})
}

// TestSourceTLS: Case 190: the dump and the pool both use TLS, also after a reconnect.
func TestSourceTLS(t *testing.T) {
	srv := servers.Start(t, servers.MySQL97)
	srv.Exec(t, smallTable+"CREATE USER r IDENTIFIED BY 'pw-SECRET' REQUIRE SSL; GRANT REPLICATION SLAVE, REPLICATION CLIENT, SELECT ON *.* TO r; SET GLOBAL require_secure_transport=ON")
	tlsOf := func(dsn string) func(*Config) {
		return func(c *Config) {
			d, err := mysql.ParseDSN(dsn)
			if err != nil {
				t.Fatal(err)
			}
			c.Driver = d
		}
	}
	f := newFollower(t, srv, tlsOf(srv.DSN("r:pw-SECRET")+"?tls=skip-verify"))
	f.watch("t")
	f.open()
	for i := range 2 {
		f.diff("over TLS", f.run(fmt.Sprintf("INSERT INTO db.t VALUES(%d,1)", i)), fmt.Sprintf("begin\ninsert t (%d,1)\ncommit", i))
		var kind string
		if err := srv.DB().QueryRow("SELECT CONNECTION_TYPE FROM performance_schema.threads WHERE PROCESSLIST_COMMAND LIKE 'Binlog Dump%'").Scan(&kind); err == nil && kind != "SSL/TLS" {
			t.Errorf("the dump is a connection of type %s", kind)
		}
		f.killDump()
	}
	g := newFollower(t, srv, tlsOf(srv.DSN("r:pw-SECRET")))
	err := g.src.Open(t.Context(), f.src.Position())
	if faultClass(err) != faultAccess {
		t.Errorf("without TLS: %v", err)
	}
	h := newFollower(t, srv, tlsOf(srv.DSN("r:wrong-SECRET")+"?tls=skip-verify"))
	err = h.src.Open(t.Context(), f.src.Position())
	if faultClass(err) != faultAccess || strings.Contains(err.Error(), "SECRET") {
		t.Errorf("with a wrong password: %v", err)
	}
	if strings.Contains(f.logs.String()+g.logs.String()+h.logs.String(), "SECRET") {
		t.Error("a password is in the log")
	}
}
