package integration

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// replicate makes one server the replica of another, by GTID.
func replicate(t *testing.T, replica, source *servers.Server) {
	t.Helper()
	host, port, _ := strings.Cut(source.Addr, ":")
	if replica.Flavor == "mariadb" {
		replica.Exec(t, fmt.Sprintf("CHANGE MASTER TO MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='root', MASTER_CONNECT_RETRY=1, MASTER_USE_GTID=slave_pos; START SLAVE", host, port))
		return
	}
	replica.Exec(t, fmt.Sprintf("CHANGE REPLICATION SOURCE TO SOURCE_HOST='%s', SOURCE_PORT=%s, SOURCE_USER='root', SOURCE_CONNECT_RETRY=1, SOURCE_AUTO_POSITION=1, GET_SOURCE_PUBLIC_KEY=1; START REPLICA", host, port))
}

func stopReplica(t *testing.T, s *servers.Server) {
	t.Helper()
	if s.Flavor == "mariadb" {
		s.Exec(t, "STOP SLAVE")
		return
	}
	s.Exec(t, "STOP REPLICA")
}

// Cases 82, 86: when the source is gone the daemon goes on at its replica, by GTID and without copying; a replica that lacks what
// was applied is waited for, and when it stays behind everything is copied, with the reason.
func TestFailover82(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		options := []string{"--log-slave-updates=ON"}
		if kind.Flavor() == "mysql" {
			options = nil
		}
		a, b := servers.Start(t, kind, options...), servers.Start(t, kind, options...)
		replicate(t, b, a)
		a.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT); INSERT INTO db.t VALUES(1,1),(2,1)")
		d := servers.StartDaemon(t, "--source", a.DSN("root"), "--table", "db.t", "--source.failover", b.DSN("root"), "--source.failover_patience", "3s")
		d.WaitReady()
		serves := func(key, value string) {
			t.Helper()
			within(t, key+" "+value, func() bool { got, _ := d.Get(key); return string(got) == value })
		}
		a.Exec(t, "UPDATE db.t SET v=2 WHERE id=1; INSERT INTO db.t VALUES(3,1)")
		serves("t:3", `{"id":3,"v":1}`)
		onReplica := func(id, v int) func() bool {
			return func() bool {
				var got int
				err := b.DB().QueryRow("SELECT v FROM db.t WHERE id=?", id).Scan(&got)
				return err == nil && got == v
			}
		}
		within(t, "the replica", onReplica(3, 1))
		a.Kill()
		b.Exec(t, "UPDATE db.t SET v=3 WHERE id=1; DELETE FROM db.t WHERE id=2")
		serves("t:1", `{"id":1,"v":3}`)
		serves("t:2", "")
		if n := d.Metric(`rowcached_resyncs_total{table="t",reason="failover"}`); n != "" || strings.Contains(d.Log(), "copying everything again") {
			t.Errorf("the failover copied: %q\n%s", n, d.Log())
		}
		d.WaitReady()

		// A restart while the first server is away.
		if code := d.Stop(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		d.Start()
		d.WaitReady()
		serves("t:1", `{"id":1,"v":3}`)
		if n := d.Metric(`rowcached_snapshot_rows_total{table="t"}`); n != "0" {
			t.Errorf("the restart copied %s rows", n)
		}

		// The first server comes back as a replica, stops replicating, and then is all there is: it lacks what was applied.
		a.Restart()
		replicate(t, a, b)
		within(t, "the old source", func() bool {
			var got int
			return a.DB().QueryRow("SELECT v FROM db.t WHERE id=1").Scan(&got) == nil && got == 3
		})
		stopReplica(t, a)
		b.Exec(t, "UPDATE db.t SET v=4 WHERE id=1")
		serves("t:1", `{"id":1,"v":4}`)
		b.Kill()
		d.WaitLog("cannot go on from here yet")
		if got, _ := d.Get("t:1"); string(got) != `{"id":1,"v":4}` {
			t.Errorf("served %q while there is hope", got)
		}
		if err := d.Ready(); err == nil || !strings.Contains(err.Error(), "lacks transactions") {
			t.Errorf("/-/ready: %v", err)
		}
		d.WaitLog("copying everything again")
		serves("t:1", `{"id":1,"v":3}`)
		if !strings.Contains(d.Log(), "lacks transactions already followed") {
			t.Error("the log does not say why everything was copied")
		}
	})
}

// A rotated password is taken from its file at the next connection; until then, and after grants are revoked, /-/ready says what
// to do, and rows are served on.
func TestPasswordRotated(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		grant := "GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'r'@'%'"
		revoke := "REVOKE REPLICATION SLAVE ON *.* FROM 'r'@'%'"
		if kind.Flavor() == "mariadb" {
			grant = "GRANT REPLICATION SLAVE, BINLOG MONITOR ON *.* TO 'r'@'%'"
		}
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT); INSERT INTO db.t VALUES(1,1); CREATE USER 'r'@'%' IDENTIFIED BY 'one'; GRANT SELECT ON db.* TO 'r'@'%'; "+grant)
		file := filepath.Join(t.TempDir(), "password")
		write := func(word string) {
			t.Helper()
			if err := os.WriteFile(file, []byte(word+"\n"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		write("one")
		d := servers.StartDaemon(t, "--source", s.DSN("r"), "--source.password_file", file, "--table", "db.t")
		d.WaitReady()
		kill := func() {
			t.Helper()
			var id int
			if err := s.DB().QueryRow("SELECT ID FROM information_schema.PROCESSLIST WHERE COMMAND LIKE 'Binlog Dump%'").Scan(&id); err != nil {
				t.Fatal(err)
			}
			s.Exec(t, fmt.Sprintf("KILL %d", id))
		}
		unready := func(words ...string) {
			t.Helper()
			within(t, strings.Join(words, ", "), func() bool {
				err := d.Ready()
				for _, w := range words {
					if err == nil || !strings.Contains(err.Error(), w) {
						return false
					}
				}
				return true
			})
			if got, _ := d.Get("t:1"); string(got) != `{"id":1,"v":1}` {
				t.Errorf("served %q", got)
			}
		}
		s.Exec(t, "ALTER USER 'r'@'%' IDENTIFIED BY 'two'")
		kill()
		unready("Access denied")
		write("two")
		d.WaitReady()
		s.Exec(t, revoke)
		kill()
		unready("GRANT REPLICATION SLAVE")
		s.Exec(t, grant+"; UPDATE db.t SET v=2")
		within(t, "the change", func() bool { got, _ := d.Get("t:1"); return string(got) == `{"id":1,"v":2}` })
		d.WaitReady()
	})
}
