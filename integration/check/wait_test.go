package check

import (
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// A daemon whose source is down serves the keys of no table, says what it waits for, and goes on when the source is
// there.
func TestWaitForTheSource(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB1011)
	srv.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t (id INT PRIMARY KEY); INSERT INTO db.t VALUES (1)")
	srv.Stop()
	d := servers.StartDaemon(t, "--source", srv.DSN("root"), "--table", "db.t")
	d.WaitLog("the source cannot be reached")
	if err := d.Ready(); err == nil || !strings.Contains(err.Error(), "503") || !strings.Contains(err.Error(), "the source cannot be reached") {
		t.Errorf("/-/ready says %v", err)
	}
	if reply := d.Cmd("set k 0 0 1\r\nx\r\n"); reply != "STORED\r\n" {
		t.Errorf("set answers %q", reply)
	}
	if v, hit := d.Get("t:1"); hit {
		t.Errorf("get t:1 gives %q before the source was ever seen", v)
	}
	srv.Restart()
	d.WaitReady()
	if v, _ := d.Get("t:1"); string(v) != `{"id":1}` {
		t.Errorf("get t:1 gives %q", v)
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit %d", code)
	}
}

// SIGTERM while the source is down, or while a table is copied, ends the daemon at once and in order.
func TestStopWhileWaiting(t *testing.T) {
	d := servers.StartDaemon(t, "--source", "root@tcp(127.0.0.1:1)/", "--table", "db.t")
	began := time.Now()
	if code := d.Stop(); code != 0 || time.Since(began) > 10*time.Second {
		t.Errorf("exit %d after %v", code, time.Since(began))
	}
	srv := servers.Start(t, servers.MariaDB1011)
	srv.Exec(t, "CREATE DATABASE db; USE db; CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200)); INSERT INTO t SELECT seq, REPEAT('x', 200) FROM seq_1_to_500000")
	d = servers.StartDaemon(t, "--source", srv.DSN("root"), "--table", "db.t")
	d.WaitLog("following the source")
	began = time.Now()
	if code := d.Stop(); code != 0 || time.Since(began) > 10*time.Second {
		t.Errorf("exit %d after %v", code, time.Since(began))
	}
}
