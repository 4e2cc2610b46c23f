package binlog

import (
	"context"
	"database/sql"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"

	"github.com/rowcached/rowcached/integration/servers"
)

// openDB opens a pool that is closed with the test.
func openDB(t *testing.T, dsn string) *sql.DB {
	t.Helper()
	config, err := mysql.ParseDSN(dsn)
	if err != nil {
		t.Fatal(err)
	}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		t.Fatal(err)
	}
	db := sql.OpenDB(connector)
	t.Cleanup(func() { db.Close() }) // an error would only say that the server is gone
	return db
}

// compareLive replays the log into a map of rows by key for each table, live rows only, and compares it with the tables.
func compareLive(t *testing.T, srv *servers.Server, conn *sql.Conn, tables map[TableName]*Table, mariadb bool) {
	t.Helper()
	replayed := map[TableName]map[string]string{}
	for name := range tables {
		replayed[name] = map[string]string{}
	}
	made := decoders{mariadb: mariadb}
	var row Row
	readLog(t, srv.DB(), func(l logRow) int {
		table := tables[l.table.name]
		if table == nil {
			return len(l.data)
		}
		d := made.get(t, table, l.table)
		if d == nil {
			return len(l.data)
		}
		n, err := row.SetImage(d, l.present, l.data)
		if err != nil {
			t.Errorf("%s: %v", table.TableName, err)
			return len(l.data)
		}
		key, text := rowTexts(t, &row)
		switch {
		case !isLive(t, &row):
			if l.after && l.event != 23 && l.event != 30 { // a versioned DELETE
				delete(replayed[table.TableName], key)
			}
		case l.after, l.event == 23, l.event == 30:
			replayed[table.TableName][key] = text
		default:
			delete(replayed[table.TableName], key)
		}
		return n
	})
	for name, table := range tables {
		queried := map[string]string{}
		eachRow(t, conn, table, "", func(row *Row) {
			if !isLive(t, row) {
				t.Errorf("%s: SELECT gives a row that is not live", name)
			}
			key, text := rowTexts(t, row)
			queried[key] = text
		})
		if len(queried) == 0 {
			t.Errorf("%s has no rows", name)
		}
		if diff := cmp.Diff(queried, replayed[name]); diff != "" {
			t.Errorf("%s: query - log +\n%s", name, diff)
		}
	}
}

// eachRow calls f with every row of a table by the query path.
func eachRow(t *testing.T, conn *sql.Conn, table *Table, tail string, f func(*Row)) {
	t.Helper()
	var exprs []string
	var cols []int
	for i := range table.Columns {
		exprs, cols = append(exprs, table.SelectExpr(i)), append(cols, i)
	}
	rows, err := conn.QueryContext(context.Background(), "SELECT "+strings.Join(exprs, ", ")+" FROM "+table.Quoted()+tail)
	if err != nil {
		t.Fatalf("%s: %v", table.Columns[1].Type, err)
	}
	defer rows.Close()
	vals := make([]sql.RawBytes, len(cols))
	ptrs := make([]any, len(cols))
	for i := range vals {
		ptrs[i] = &vals[i]
	}
	var row Row
	for rows.Next() {
		if err := rows.Scan(ptrs...); err != nil {
			t.Fatal(err)
		}
		row.SetQuery(table, cols, vals)
		f(&row)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
}

// rowTexts gives the texts of a row's first key and of all the columns that the log has and that do not change by
// themselves.
func rowTexts(t *testing.T, row *Row) (key, all string) {
	t.Helper()
	table := row.Table()
	texts := make([]string, len(table.Columns))
	for i := range texts {
		text, err := row.AppendText(nil, i)
		if err != nil {
			t.Fatal(err)
		}
		texts[i] = string(text)
		if !table.Columns[i].Unlogged {
			all += table.Columns[i].Name + "=" + texts[i] + " "
		}
	}
	for _, i := range table.Keys[0].Columns {
		key += texts[i] + "|"
	}
	return key, all
}

// isLive says whether a row is one that its table shows, which those of the past of a system-versioned table are not.
func isLive(t *testing.T, row *Row) bool {
	t.Helper()
	i := row.Table().Versioned
	if i < 0 {
		return true
	}
	text, err := row.AppendText(nil, i)
	if err != nil {
		t.Fatal(err)
	}
	return string(text) == "2038-01-19 03:14:07.999999" || string(text) == "2106-02-07 06:28:15.999999"
}
