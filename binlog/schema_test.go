package binlog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/rowcached/rowcached/integration/servers"
)

// TestLoadTable reads definitions that are not what they look like, and compares every image of some rows with the table.
func TestLoadTable(t *testing.T) {
	type test struct {
		on      string // server kinds
		name    string
		create  string // after CREATE TABLE db.name
		columns string // names; (i) invisible, (v) virtual, (g) stored, (u) unlogged
		keys    string
		change  string // statements that write rows
	}
	const all, mysql, mariadb = "mysql97 mariadb1011 mariadb118", "mysql97", "mariadb1011 mariadb118"
	tests := []test{
		{all, "plain", "(id INT PRIMARY KEY, v INT)", "id v", "PRIMARY(id)", "INSERT INTO plain VALUES (1,2),(2,NULL); UPDATE plain SET v=3; DELETE FROM plain WHERE id=2"},
		{all, "composite", "(b INT, a VARCHAR(9), PRIMARY KEY (a, b))", "b a", "PRIMARY(a,b)", "INSERT INTO composite VALUES (1,'x')"},
		{all, "unique_keys", `(a INT NOT NULL, b INT, c VARCHAR(9) NOT NULL, d INT NOT NULL, e INT NOT NULL,
			UNIQUE u1 (a), UNIQUE u2 (b), UNIQUE u3 (c(3)), UNIQUE u4 (d, e), UNIQUE u5 (a, b), KEY k (d))`,
			"a b c d e", "u1(a) u4(d,e)", "INSERT INTO unique_keys VALUES (1,2,'x',3,4)"},
		{all, "invisible", "(id INT PRIMARY KEY, hid INT DEFAULT 5 INVISIBLE, v INT)", "id hid(i) v", "PRIMARY(id)",
			"INSERT INTO invisible (id, v) VALUES (1,7)"},
		{mysql, "gen_cols", "(id INT PRIMARY KEY, a INT AS (id+1) VIRTUAL, b INT AS (id+2) STORED, v INT)", "id a(v) b(g) v",
			"PRIMARY(id)", "INSERT INTO gen_cols (id, v) VALUES (1,7); UPDATE gen_cols SET v=8"},
		{"mariadb1011", "gen_cols", "(id INT PRIMARY KEY, a INT AS (id+1) VIRTUAL, b INT AS (id+2) STORED, v INT)", "id a(v) b(g) v",
			"PRIMARY(id)", "INSERT INTO gen_cols (id, v) VALUES (1,7); UPDATE gen_cols SET v=8"},
		{"mariadb118", "gen_cols", "(id INT PRIMARY KEY, a INT AS (id+1) VIRTUAL, b INT AS (id+2) STORED, v INT)", "id a(v)(u) b(g)(u) v",
			"PRIMARY(id)", "INSERT INTO gen_cols (id, v) VALUES (1,7); UPDATE gen_cols SET v=8"},
		{all, "Case`Name", "(`I``d` INT PRIMARY KEY, `v.w` INT)", "I`d v.w", "PRIMARY(I`d)", "INSERT INTO `Case``Name` VALUES (1,2)"},
		{mysql, "functional", "(id INT PRIMARY KEY, name VARCHAR(20), j JSON, UNIQUE f ((UPPER(name))), KEY m ((CAST(j->'$.z' AS UNSIGNED ARRAY))))",
			"id name j", "PRIMARY(id)", "INSERT INTO functional VALUES (1,'bob','{\"z\":[1,2]}')"},
		{mysql, "gipk", "(a INT)", "my_row_id(i) a", "PRIMARY(my_row_id)", "INSERT INTO gipk VALUES (5)"},
		{mysql, "unseen_key", "(a INT PRIMARY KEY, b INT NOT NULL, UNIQUE u (b) INVISIBLE)", "a b", "PRIMARY(a) u(b)", "INSERT INTO unseen_key VALUES (5,6)"},
		{mariadb, "hashed", "(a BLOB NOT NULL, b INT, UNIQUE u (a))", "a b", "u(a)", "INSERT INTO hashed VALUES (REPEAT('x',9000),1); UPDATE hashed SET b=2"},
		{mariadb, "versioned", "(id INT PRIMARY KEY, v INT) WITH SYSTEM VERSIONING", "id v row_start(i)(g) row_end(i)(g)", "PRIMARY(id)",
			"INSERT INTO versioned VALUES (1,2),(2,3); UPDATE versioned SET v=5 WHERE id=1; DELETE FROM versioned WHERE id=2"},
		{mariadb, "versioned_named", `(id INT PRIMARY KEY, rs TIMESTAMP(6) GENERATED ALWAYS AS ROW START, re TIMESTAMP(6) GENERATED ALWAYS AS ROW END,
			v INT, PERIOD FOR SYSTEM_TIME (rs, re)) WITH SYSTEM VERSIONING`, "id rs(g) re(g) v", "PRIMARY(id)",
			"INSERT INTO versioned_named (id, v) VALUES (1,2),(2,3); UPDATE versioned_named SET v=5 WHERE id=1; DELETE FROM versioned_named WHERE id=2"},
		{mariadb, "application", `(id INT, a DATE NOT NULL, b DATE NOT NULL, v INT, PERIOD FOR p (a, b), PRIMARY KEY (id, p WITHOUT OVERLAPS))`,
			"id a b v", "PRIMARY(id,b,a)", "INSERT INTO application VALUES (1,'2024-01-01','2025-01-01',2); DELETE FROM application FOR PORTION OF p FROM '2024-03-01' TO '2024-04-01'"},
	}
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			ctx := context.Background()
			srv := servers.Start(t, kind)
			srv.Exec(t, "CREATE DATABASE db")
			mdb := kind.Flavor() == "mariadb"
			conn := querySession(t, srv.DB(), mdb)
			tables := map[TableName]*Table{}
			for _, test := range tests {
				if !slices.Contains(strings.Fields(test.on), string(kind)) {
					continue
				}
				name := TableName{"db", test.name}
				set := ""
				if test.name == "gipk" {
					set = "SET sql_generate_invisible_primary_key=ON, GLOBAL show_gipk_in_create_table_and_information_schema=OFF;"
				}
				srv.Exec(t, "USE db;"+set+"CREATE TABLE "+name.Quoted()+" "+test.create+";"+test.change)
				table, err := LoadTable(ctx, conn, name)
				if err != nil {
					t.Error(err)
					continue
				}
				tables[name] = table
				if columns, keys := describe(table); columns != test.columns || keys != test.keys {
					t.Errorf("%s has columns %s, keys %s; want %s, %s", name, columns, keys, test.columns, test.keys)
				}
				if strings.HasPrefix(test.name, "versioned") != (table.Versioned >= 0) {
					t.Errorf("%s: versioned %d", name, table.Versioned)
				}
			}
			compareLive(t, srv, conn, tables, mdb)
		})
	}
}

// describe gives a table's columns and keys in a few words.
func describe(table *Table) (columns, keys string) {
	var names, all []string
	for _, c := range table.Columns {
		n := c.Name
		if c.Invisible {
			n += "(i)"
		}
		if c.Virtual {
			n += "(v)"
		} else if c.Generated {
			n += "(g)"
		}
		if c.Unlogged {
			n += "(u)"
		}
		names = append(names, n)
	}
	for _, k := range table.Keys {
		var of []string
		for _, i := range k.Columns {
			of = append(of, table.Columns[i].Name)
		}
		all = append(all, k.Name+"("+strings.Join(of, ",")+")")
	}
	return strings.Join(names, " "), strings.Join(all, " ")
}

func TestLoadTableRefuses(t *testing.T) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			ctx := context.Background()
			srv := servers.Start(t, kind)
			srv.Exec(t, `CREATE DATABASE db; USE db; CREATE TABLE t (id INT PRIMARY KEY, v INT); CREATE VIEW v AS SELECT * FROM t;
				CREATE USER some@'%'; GRANT SELECT (v) ON db.t TO some@'%'; CREATE USER none@'%'`)
			mariadb := kind.Flavor() == "mariadb"
			conn := querySession(t, srv.DB(), mariadb)
			load := func(q Querier, name string) error {
				_, err := LoadTable(ctx, q, TableName{"db", name})
				return err
			}
			if err := load(conn, "absent"); !errors.Is(err, ErrNoTable) {
				t.Errorf("absent: %v", err)
			}
			var unsupported *UnsupportedError
			if err := load(conn, "v"); !errors.As(err, &unsupported) {
				t.Errorf("view: %v", err)
			}
			if mariadb {
				srv.Exec(t, `USE db; CREATE SEQUENCE sq; CREATE TABLE trx (id INT PRIMARY KEY, rs BIGINT UNSIGNED GENERATED ALWAYS AS ROW START,
					re BIGINT UNSIGNED GENERATED ALWAYS AS ROW END, PERIOD FOR SYSTEM_TIME (rs, re)) WITH SYSTEM VERSIONING`)
				if err := load(conn, "sq"); !errors.As(err, &unsupported) {
					t.Errorf("sequence: %v", err)
				}
				if err := load(conn, "trx"); !errors.As(err, &unsupported) {
					t.Errorf("versioned by transaction: %v", err)
				}
			}
			if err := load(querySession(t, openDB(t, srv.DSN("some")), mariadb), "t"); !errors.As(err, &unsupported) || !strings.Contains(err.Error(), "grant SELECT") {
				t.Errorf("with a privilege on one column: %v", err)
			}
			if err := load(querySession(t, openDB(t, srv.DSN("none")), mariadb), "t"); !errors.Is(err, ErrNoTable) {
				t.Errorf("without a privilege: %v", err)
			}
		})
	}
}

// TestUnknownLabel: the schema shows a question mark for a label beyond utf8mb3. The label comes from a row that has it;
// until there is one, an image that has it does not fit.
func TestUnknownLabel(t *testing.T) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			ctx := context.Background()
			srv := servers.Start(t, kind)
			srv.Exec(t, `CREATE DATABASE db; USE db; SET NAMES utf8mb4;
				CREATE TABLE t (id INT PRIMARY KEY, e ENUM('a','😀','b?','🚀🚀') CHARACTER SET utf8mb4, s SET('x','🎈','y?','🐘🐘') CHARACTER SET utf8mb4);
				INSERT INTO t VALUES (1, 2, 7)`)
			mariadb := kind.Flavor() == "mariadb"
			conn := querySession(t, srv.DB(), mariadb)
			table, err := LoadTable(ctx, conn, TableName{"db", "t"})
			if err != nil {
				t.Fatal(err)
			}
			if got, want := fmt.Sprint(table.Columns[1].Labels, table.Columns[2].Labels), "[a 😀 b? ??] [x 🎈 y? ??]"; got != want {
				t.Errorf("labels %s, want %s", got, want)
			}
			srv.Exec(t, "SET NAMES utf8mb4; INSERT INTO db.t VALUES (2, 4, 8)")
			made := decoders{mariadb: mariadb}
			texts := func() []string {
				var all []string
				var row Row
				readLog(t, srv.DB(), func(l logRow) int {
					n, err := row.SetImage(made.get(t, table, l.table), l.present, l.data)
					if err != nil {
						t.Fatal(err)
					}
					for i := 1; i < 3; i++ {
						text, err := row.AppendText(nil, i)
						if errors.Is(err, ErrShape) {
							text = []byte("unknown")
						} else if err != nil {
							t.Fatal(err)
						}
						all = append(all, string(text))
					}
					return n
				})
				return all
			}
			if diff := cmp.Diff([]string{"😀", "x,🎈,y?", "unknown", "unknown"}, texts()); diff != "" {
				t.Error(diff)
			}
			if table, err = LoadTable(ctx, conn, table.TableName); err != nil {
				t.Fatal(err)
			}
			made.made = nil
			if diff := cmp.Diff([]string{"😀", "x,🎈,y?", "🚀🚀", "🐘🐘"}, texts()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestParseLabels(t *testing.T) {
	for typ, want := range map[string][]string{
		`enum('a','b')`:         {"a", "b"},
		`set('')`:               {""},
		`enum(x'E9fc','x',x'')`: {"\xe9\xfc", "x", ""},
		`enum('a''b','x\\y',',',')','\0\n\r\t\Z')`:  {"a'b", `x\y`, ",", ")", "\x00\n\r\t\x1a"},
		`enum('é','日')  CHARACTER SET latin1 blah(`: {"é", "日"},
	} {
		got, err := parseLabels(typ)
		if err != nil {
			t.Errorf("%s: %v", typ, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", typ, diff)
		}
	}
	for _, typ := range []string{"", "enum", "enum(", "enum(a)", "enum('a", "enum('a'", "enum('a',", "enum('a'x)", "enum(x'e')", "enum(x'zz')", "enum(x)", `enum('a\')`} {
		if got, err := parseLabels(typ); err == nil {
			t.Errorf("%s: %q", typ, got)
		}
	}
}

func TestQuoteName(t *testing.T) {
	if got := (TableName{"a`b", "c"}).Quoted(); got != "`a``b`.`c`" {
		t.Error(got)
	}
}
