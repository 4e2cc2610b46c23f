package binlog

import (
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/rowcached/rowcached/integration/servers"
)

// checkAs gives what Check finds for an account.
func checkAs(t *testing.T, srv *servers.Server, user string) []Fault {
	t.Helper()
	d, err := mysql.ParseDSN(srv.DSN(user))
	if err != nil {
		t.Fatal(err)
	}
	s := NewSource(Config{Driver: d})
	defer s.Close()
	r, err := s.Check(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return r.Faults
}

// TestCheckPrivileges: Case 184: the fix of each fault, run as it is printed, mends it; a role will do as well.
func TestCheckPrivileges(t *testing.T) {
	eachServer(t, func(t *testing.T, srv *servers.Server) {
		if f := checkAs(t, srv, "root"); len(f) > 0 {
			t.Errorf("root: %v", f)
		}
		srv.Exec(t, "CREATE USER 'a''b'@'127.0.0.1' IDENTIFIED BY 'pw'; CREATE USER c@'127.0.0.1' IDENTIFIED BY 'pw'; CREATE ROLE follower")
		faults := checkAs(t, srv, "a'b:pw")
		if len(faults) != 2 {
			t.Fatalf("without privileges: %v", faults)
		}
		for _, f := range faults {
			srv.Exec(t, f.Fix)
		}
		if f := checkAs(t, srv, "a'b:pw"); len(f) > 0 {
			t.Errorf("after the fixes: %v", f)
		}
		for _, f := range faults {
			srv.Exec(t, strings.Replace(f.Fix, "'a''b'@'127.0.0.1'", "follower", 1))
		}
		srv.Exec(t, "GRANT follower TO c@'127.0.0.1'")
		if f := checkAs(t, srv, "c:pw"); len(f) != 2 {
			t.Errorf("with a role that is not in force: %v", f)
		}
		if srv.Flavor == "mysql" {
			srv.Exec(t, "SET DEFAULT ROLE follower TO c@'127.0.0.1'")
		} else {
			srv.Exec(t, "SET DEFAULT ROLE follower FOR c@'127.0.0.1'")
		}
		if f := checkAs(t, srv, "c:pw"); len(f) > 0 {
			t.Errorf("with a role: %v", f)
		}
	})
}

// TestCheckSettings: each setting that hides changes is a fault, and its fix, run as it is printed, mends it.
func TestCheckSettings(t *testing.T) {
	eachServer(t, func(t *testing.T, srv *servers.Server) {
		settings := map[string]string{
			"binlog_format":    "SET GLOBAL binlog_format='MIXED'",
			"binlog_row_image": "SET GLOBAL binlog_row_image='MINIMAL'",
		}
		if srv.Flavor == "mysql" {
			settings["binlog_row_value_options"] = "SET GLOBAL binlog_row_value_options='PARTIAL_JSON'"
		}
		for name, set := range settings {
			srv.Exec(t, set)
			faults := checkAs(t, srv, "root")
			if len(faults) != 1 || !strings.Contains(faults[0].What, name) {
				t.Errorf("%s: %v", name, faults)
				continue
			}
			srv.Exec(t, faults[0].Fix)
			if f := checkAs(t, srv, "root"); len(f) > 0 {
				t.Errorf("%s, after the fix: %v", name, f)
			}
		}
	})
}

// TestCheckOptions: Cases 181 and 182: what only the option file can change.
func TestCheckOptions(t *testing.T) {
	for kind, option := range map[servers.Kind]string{servers.MySQL97: "--log-replica-updates=OFF", servers.MariaDB118: "--log-slave-updates=OFF"} {
		t.Run(string(kind), func(t *testing.T) {
			srv := servers.Start(t, kind, option, "--binlog-ignore-db=other")
			faults := checkAs(t, srv, "root")
			if len(faults) != 1 || !strings.Contains(faults[0].What, "binlog_ignore_db") {
				t.Errorf("with a filter: %v", faults)
			}
			if srv.Flavor == "mysql" {
				srv.Exec(t, "CHANGE REPLICATION SOURCE TO SOURCE_HOST='127.0.0.1'")
			} else {
				srv.Exec(t, "CHANGE MASTER TO MASTER_HOST='127.0.0.1'")
			}
			faults = checkAs(t, srv, "root")
			if len(faults) != 2 || !strings.Contains(faults[1].What, "_updates") {
				t.Errorf("as a replica: %v", faults)
			}
		})
	}
	t.Run("no log", func(t *testing.T) {
		srv := servers.Start(t, servers.MySQL97, "--skip-log-bin", "--gtid-mode=OFF", "--enforce-gtid-consistency=OFF")
		if faults := checkAs(t, srv, "root"); len(faults) != 1 || !strings.Contains(faults[0].What, "log_bin") {
			t.Errorf("without a log: %v", faults)
		}
		f := newFollower(t, srv)
		if _, err := f.src.Visible(t.Context(), f.src.DB()); err == nil {
			t.Error("a server without a log has a position")
		}
	})
}
