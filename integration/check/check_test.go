// Package check runs "rowcached check" against real servers that are not as they should be.
package check

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

const account = "CREATE USER r IDENTIFIED BY 'secret'; GRANT REPLICATION SLAVE, %s ON *.* TO r; GRANT SELECT ON db.* TO r;"

// monitor is the privilege to ask for the log's end.
func monitor(k servers.Kind) string {
	if k.Flavor() == "mariadb" {
		return "BINLOG MONITOR"
	}
	return "REPLICATION CLIENT"
}

// faults takes the output of check apart: every fault is a line, and what mends it is the next.
func faults(t *testing.T, output string) (what, fixes []string) {
	t.Helper()
	lines := strings.Split(strings.TrimSuffix(output, "\n"), "\n")
	for i := 0; i < len(lines); i++ {
		if strings.HasPrefix(lines[i], "ok     ") {
			continue
		}
		w, ok := strings.CutPrefix(lines[i], "FAULT  ")
		if !ok || i+1 == len(lines) || !strings.HasPrefix(lines[i+1], "  fix: ") {
			t.Fatalf("line %d is neither in order nor a fault with its fix:\n%s", i+1, output)
		}
		what, fixes = append(what, w), append(fixes, strings.TrimPrefix(lines[i+1], "  fix: "))
		i++
	}
	return what, fixes
}

var statement = regexp.MustCompile(`^(SET GLOBAL|GRANT|ALTER TABLE|CREATE) `)

// Case 184 among others: each fault gives one line and one fix; a fix that is SQL mends it when it is run as printed.
func TestFaults(t *testing.T) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			srv := servers.Start(t, kind)
			srv.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t (id INT PRIMARY KEY, name VARCHAR(9), n INT NULL);"+
				"CREATE TABLE db.loose (a INT NOT NULL, b INT); CREATE VIEW db.v AS SELECT * FROM db.t;"+
				strings.Replace(account, "%s", monitor(kind), 1))
			for _, tc := range []struct {
				name, before, after string
				args                []string // besides --source; default --table db.t
				what, fix           string   // of the one fault; fix "": what is printed is run
			}{
				{name: "in order"},
				{name: "statement format", before: "SET GLOBAL binlog_format = 'STATEMENT'", what: "binlog_format is STATEMENT"},
				{name: "mixed format", before: "SET GLOBAL binlog_format = 'MIXED'", what: "binlog_format is MIXED"},
				{name: "minimal images", before: "SET GLOBAL binlog_row_image = 'MINIMAL'", what: "binlog_row_image is MINIMAL"},
				{name: "noblob images", before: "SET GLOBAL binlog_row_image = 'NOBLOB'", what: "binlog_row_image is NOBLOB"},
				{name: "no replication", before: "REVOKE REPLICATION SLAVE ON *.* FROM r", what: "lacks the privilege REPLICATION SLAVE"},
				{name: "no monitoring", before: "REVOKE " + monitor(kind) + " ON *.* FROM r", what: "lacks the privilege " + monitor(kind)},
				{name: "no select", before: "REVOKE SELECT ON db.* FROM r", after: "REVOKE SELECT ON db.t FROM r; GRANT SELECT ON db.* TO r", what: "table db.t"},
				{name: "one column only", before: "REVOKE SELECT ON db.* FROM r; GRANT SELECT (id) ON db.t TO r",
					after: "REVOKE SELECT (id) ON db.t FROM r; REVOKE SELECT ON db.t FROM r; GRANT SELECT ON db.* TO r", what: "table db.t"},
				{name: "no table", args: []string{"--table", "db.missing"}, what: "table db.missing does not exist", fix: "create the table, or correct its name"},
				{name: "a view", args: []string{"--table", "db.v"}, what: "db.v", fix: "table"},
				{name: "no unique key", args: []string{"--table", "db.loose"}, what: "no primary key", fix: "ALTER TABLE `db`.`loose` ADD PRIMARY KEY"},
				{name: "wrong password", args: []string{"--source", srv.DSN("r:wrong"), "--table", "db.t"}, what: "Access denied", fix: "source.dsn"},
				{name: "no server", args: []string{"--source", "r@tcp(127.0.0.1:1)/", "--table", "db.t"}, what: "cannot be reached", fix: "start the server"},
			} {
				t.Run(tc.name, func(t *testing.T) {
					if tc.before != "" {
						srv.Exec(t, tc.before)
					}
					args := []string{"check", "--source", srv.DSN("r:secret")}
					if tc.args == nil {
						tc.args = []string{"--table", "db.t"}
					}
					args = append(args, tc.args...)
					exit, output := servers.RunDaemon(t, args...)
					t.Log(output)
					what, fixes := faults(t, output)
					if tc.what == "" {
						if exit != 0 || len(what) != 0 || !strings.Contains(output, "table db.t, keys t:{id}") {
							t.Errorf("exit %d", exit)
						}
						return
					}
					if exit != 1 || len(what) != 1 || !strings.Contains(what[0], tc.what) || !strings.Contains(fixes[0], tc.fix) {
						t.Errorf("exit %d; want one fault that says %q and a fix that says %q", exit, tc.what, tc.fix)
					}
					if tc.fix != "" {
						return
					}
					for _, fix := range fixes {
						sql, ok := strings.CutPrefix(fix, "create the table, or correct its name, or: ")
						if !ok && !statement.MatchString(sql) {
							t.Errorf("the fix is no statement: %s", fix)
							continue
						}
						srv.Exec(t, sql)
					}
					if exit, output := servers.RunDaemon(t, args...); exit != 0 {
						t.Errorf("after the fix: exit %d\n%s", exit, output)
					}
					if tc.after != "" {
						srv.Exec(t, tc.after)
					}
				})
			}
		})
	}
}

// Case 182: faults of the server that only a restart mends.
func TestServerWithoutLog(t *testing.T) {
	for _, kind := range servers.Kinds() {
		for option, want := range map[string]string{"--skip-log-bin": "log_bin is OFF", "--binlog-ignore-db=db": "binlog_ignore_db is set (db)"} {
			t.Run(string(kind)+option, func(t *testing.T) {
				t.Parallel()
				srv := servers.Start(t, kind, option)
				srv.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t (id INT PRIMARY KEY)")
				exit, output := servers.RunDaemon(t, "check", "--source", srv.DSN("root"), "--table", "db.t")
				t.Log(output)
				what, fixes := faults(t, output)
				if exit != 1 || len(what) != 1 || !strings.Contains(what[0], want) || !strings.Contains(fixes[0], "restart") {
					t.Errorf("exit %d; want one fault that says %q", exit, want)
				}
			})
		}
	}
}

// A mapping that does not fit its table is a fault; a configuration that cannot be read is a usage error.
func TestMappings(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB1011)
	srv.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t (id INT PRIMARY KEY, name VARCHAR(9) NOT NULL); CREATE TABLE db.u LIKE db.t")
	for _, tc := range []struct {
		yaml      string
		exit      int
		what, fix string
	}{
		{"tables: [{table: db.t, key: 'x:{name}'}]", 1, "more than one row may have the same name", "use the columns of the primary key, {id}"},
		{"tables: [{table: db.t, value: {columns: [nmae]}}]", 1, `no column "nmae"`, "did you mean name?"},
		{"tables: [{table: db.t, key: 'x:{id}'}, {table: db.u, key: 'x:{id}'}]", 1, `could both write the key "x:1"`, "begin one of the templates"},
		{"tables: [{table: db.t, keey: 'x:{id}'}]", 2, "", `did you mean "tables.key"?`},
		{"tables: [{table: db.t}, {table: db.u}]", 0, "", ""},
	} {
		path := t.TempDir() + "/rowcached.yaml"
		writeFile(t, path, "source: {dsn: '"+srv.DSN("root")+"'}\n"+tc.yaml+"\n")
		exit, output := servers.RunDaemon(t, "check", "-c", path)
		t.Log(output)
		if exit != tc.exit {
			t.Errorf("%s: exit %d, want %d", tc.yaml, exit, tc.exit)
		}
		if exit == 2 {
			if !strings.Contains(output, tc.fix) {
				t.Errorf("%s: want it to say %s", tc.yaml, tc.fix)
			}
			continue
		}
		what, fixes := faults(t, output)
		if tc.exit == 1 && (len(what) != 1 || !strings.Contains(what[0], tc.what) || !strings.Contains(fixes[0], tc.fix)) {
			t.Errorf("%s: want one fault that says %q and a fix that says %q", tc.yaml, tc.what, tc.fix)
		}
	}
}

// What init writes passes check, whatever the tables are called.
func TestInit(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB1011)
	srv.Exec(t, "CREATE DATABASE db; CREATE DATABASE db2; CREATE TABLE db.t (id INT PRIMARY KEY); CREATE TABLE db2.t (a INT, b VARCHAR(9), PRIMARY KEY (a, b));"+
		"CREATE TABLE db2.`o.d d{}` (k INT NOT NULL UNIQUE); CREATE TABLE db2.loose (k INT); CREATE VIEW db2.v AS SELECT 1;"+
		"CREATE USER r IDENTIFIED BY 'secret'; GRANT SELECT, REPLICATION SLAVE, BINLOG MONITOR ON *.* TO r")
	exit, text := servers.RunDaemon(t, "init", "--source", srv.DSN("r:secret"), "--schema", "db", "--schema", "db2")
	t.Log(text)
	if exit != 0 || strings.Contains(text, "secret") || !strings.Contains(text, "# - table: \"db2.loose\"") {
		t.Fatalf("exit %d", exit)
	}
	dir := t.TempDir()
	writeFile(t, dir+"/password", "secret\n")
	writeFile(t, dir+"/rowcached.yaml", strings.Replace(text, "/path/to/a/file/with/the/password", dir+"/password", 1))
	exit, output := servers.RunDaemon(t, "check", "-c", dir+"/rowcached.yaml")
	if exit != 0 || strings.Count(output, "ok     table ") != 3 {
		t.Errorf("exit %d\n%s", exit, output)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}
