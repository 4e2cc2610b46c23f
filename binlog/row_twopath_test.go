package binlog

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"

	"github.com/rowcached/rowcached/integration/servers"
)

// A typeSection is one column type of testdata/types.txt with its values.
type typeSection struct {
	servers []string
	with    []string // the statements to run before
	typ     string
	values  []string
}

func readTypes(t *testing.T) []typeSection {
	t.Helper()
	f, err := os.Open("testdata/types.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []typeSection
	var on, with, types, values []string
	flush := func() {
		for _, typ := range types {
			all = append(all, typeSection{on, with, typ, values})
		}
		types, values = nil, nil
	}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		line := strings.TrimSpace(scan.Text())
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "on":
			flush()
			on = strings.Fields(rest)
		case "with":
			flush()
			with = []string{rest}
			if rest == "" {
				with = nil
			}
		case "type":
			if values != nil {
				flush()
			}
			types = append(types, rest)
		default:
			values = append(values, line)
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	flush()
	return all
}

// queried is what the query path gave for a row.
type queried struct {
	text   []byte
	null   bool
	int    int64
	isInt  bool
	source string // the value as testdata has it
}

// TestTwoPaths stores every value of testdata/types.txt in a column of every type named with it, on every server, and
// compares what the query path and the log's row images give (I2).
func TestTwoPaths(t *testing.T) {
	sections := readTypes(t)
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			testTwoPaths(t, kind, sections)
		})
	}
}

func testTwoPaths(t *testing.T, kind servers.Kind, sections []typeSection) {
	ctx := context.Background()
	srv := servers.Start(t, kind, "--character-set-server=utf8mb4")
	mariadb := kind.Flavor() == "mariadb"
	db := srv.DB()
	srv.Exec(t, "CREATE DATABASE two")
	conn := querySession(t, db, mariadb)
	exec := func(q string) error {
		_, err := conn.ExecContext(ctx, q)
		return err
	}

	wire := wireSession(t, srv.Addr, mariadb)

	tables := map[TableName]*Table{}
	rows := map[TableName]map[int64]queried{}
	var types, refused int
	for i, s := range sections {
		if !slices.Contains(s.servers, string(kind)) {
			continue
		}
		types++
		for _, w := range s.with {
			if err := exec(w); err != nil {
				t.Fatalf("%s: %v", w, err)
			}
			if strings.HasPrefix(w, "SET GLOBAL") { // for the sessions that come
				conn = querySession(t, db, mariadb)
			}
		}
		name := TableName{"two", fmt.Sprintf("t%d", i)}
		if err := exec(fmt.Sprintf("CREATE TABLE %s (id INT PRIMARY KEY, v %s, n INT)", name.Quoted(), s.typ)); err != nil {
			t.Errorf("%s: %v", s.typ, err)
			continue
		}
		values := s.values
		if !strings.Contains(s.typ, "GENERATED") {
			values = append([]string{"NULL"}, values...)
		}
		source := map[int64]string{}
		insert := fmt.Sprintf("INSERT INTO %s (id, v, n) VALUES ", name.Quoted())
		var tuples []string
		for k, v := range values {
			tuples = append(tuples, fmt.Sprintf("(%d, %s, 77)", k+1, v))
		}
		whole := exec(insert+strings.Join(tuples, ",")) == nil
		for k, v := range values {
			if !whole {
				if err := exec(insert + tuples[k]); err != nil {
					t.Logf("%s does not take %.60s: %v", s.typ, v, err)
					refused++
					continue
				}
			}
			source[int64(k+1)] = v
		}
		if err := exec(fmt.Sprintf("UPDATE %s SET n=78", name.Quoted())); err != nil {
			t.Fatal(err)
		}
		if len(source) < 2 && len(values) > 1 {
			t.Errorf("%s took no value", s.typ)
		}
		table, err := LoadTable(ctx, conn, name)
		if err != nil {
			t.Error(err)
			continue
		}
		tables[name] = table
		rows[name] = queryRows(t, conn, table, source)
		compareSelect(t, wire, table, rows[name])
		if len(rows[name]) != len(source) {
			t.Errorf("%s: %d rows of %d", s.typ, len(rows[name]), len(source))
		}
	}

	log := logComparer{decoders: decoders{mariadb: mariadb}, tables: tables, rows: rows, seen: map[rowID]int{}}
	readLog(t, db, func(l logRow) int { return log.compare(t, l) })
	values := 0
	for name, all := range rows {
		for id, q := range all {
			values++
			if n := log.seen[rowID{name, id}]; n != 3 { // inserted, before, after
				t.Errorf("%s, %.60s: %d images instead of 3", tables[name].Columns[1].Type, q.source, n)
				log.differences++
			}
		}
	}
	t.Logf("%s %s: %d column types, %d values (%d refused by the server), %d row images (%d without the column), %d differences",
		kind, srv.Version, types, values, refused, log.images, log.absent, log.differences)
}

type rowID struct {
	table TableName
	id    int64
}

// logComparer compares row images with what queries gave.
type logComparer struct {
	decoders
	tables map[TableName]*Table
	rows   map[TableName]map[int64]queried
	row    Row
	seen   map[rowID]int // images of each row

	images, absent, differences int
}

// compare reads an image and gives its size.
func (c *logComparer) compare(t *testing.T, l logRow) int {
	t.Helper()
	table := c.tables[l.table.name]
	if table == nil {
		return len(l.data)
	}
	typ := table.Columns[1].Type
	n, id, err := len(l.data), int64(0), error(nil)
	if d := c.get(t, table, l.table); d != nil {
		n, err = c.row.SetImage(d, l.present, l.data)
	} else {
		c.differences++
		return n
	}
	if err == nil {
		id, _, _ = c.row.Int(0)
		c.images++
		c.seen[rowID{table.TableName, id}]++
	} else {
		n = len(l.data)
	}
	want, ok := c.rows[table.TableName][id]
	var got []byte
	var number int64
	var isInt bool
	if err == nil {
		got, err = c.row.AppendText(nil, 1)
		number, _, isInt = c.row.Int(1)
	}
	tail := int64(77)
	if l.after {
		tail = 78
	}
	switch {
	case err != nil:
		t.Errorf("%s, %.60s: %v", typ, want.source, err)
	case !ok:
		t.Errorf("%s: row %d is not in the table", typ, id)
	case !c.row.Has(1) && table.Columns[1].Unlogged:
		c.absent++
		return n
	case c.row.IsNull(1) != want.null || !bytes.Equal(got, want.text):
		t.Errorf("%s, %.60s:\nquery %.300q null %v\nimage %.300q null %v present %v, event %d, after %v",
			typ, want.source, want.text, want.null, got, c.row.IsNull(1), c.row.Has(1), l.event, l.after)
	case isInt != want.isInt || number != want.int:
		t.Errorf("%s, %.60s: query's number %d, %v; image's %d, %v", typ, want.source, want.int, want.isInt, number, isInt)
	default:
		if next, _, _ := c.row.Int(2); next == tail {
			return n
		}
		t.Errorf("%s, %.60s: the next column is not %d", typ, want.source, tail)
	}
	c.differences++
	return n
}

// queryRows reads a table's rows by the query path.
func queryRows(t *testing.T, conn *sql.Conn, table *Table, source map[int64]string) map[int64]queried {
	t.Helper()
	all := map[int64]queried{}
	eachRow(t, conn, table, "", func(row *Row) {
		id, _, ok := row.Int(0)
		text, err := row.AppendText(nil, 1)
		if err != nil || !ok {
			t.Fatalf("%s: %v", table.Columns[1].Type, err)
		}
		q := queried{text: text, null: row.IsNull(1), source: source[id]}
		q.int, _, q.isInt = row.Int(1)
		all[id] = q
	})
	return all
}

// wireSession opens a session with SessionSettings whose results show the bytes on the wire.
func wireSession(t *testing.T, addr string, mariadb bool) *client.Conn {
	t.Helper()
	conn, err := client.Connect(addr, "root", "", "", func(c *client.Conn) error {
		c.UnsetCapability(gomysql.CLIENT_QUERY_ATTRIBUTES) // see wireRows
		c.UnsetCapability(gomysql.CLIENT_DEPRECATE_EOF)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) // an error would only say that the server is gone
	for _, s := range SessionSettings(mariadb) {
		if _, err := conn.Execute(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return conn
}

// compareSelect compares what the query path gave with the bytes of a plain SELECT, which only a FLOAT without decimals
// may differ from: the server prints six digits of it.
func compareSelect(t *testing.T, wire *client.Conn, table *Table, want map[int64]queried) {
	t.Helper()
	c := &table.Columns[1]
	rows := wireRows(t, wire, "SELECT id, v FROM "+table.Quoted())
	if len(rows) != len(want) {
		t.Errorf("%s: %d rows on the wire, %d by the query path", c.Type, len(rows), len(want))
	}
	for _, data := range rows {
		first, _, n, err := gomysql.LengthEncodedString(data)
		if err != nil {
			t.Fatal(err)
		}
		plain, null, _, err := gomysql.LengthEncodedString(data[n:])
		if err != nil {
			t.Fatal(err)
		}
		id, _ := parseInt(first)
		q := want[id]
		if c.Kind == KindFloat && c.Decimals < 0 {
			continue
		}
		if null != q.null || !bytes.Equal(plain, q.text) {
			t.Errorf("%s, %.60s: SELECT gives %.200q, the query path %.200q", c.Type, q.source, plain, q.text)
		}
	}
}

// wireRows runs a query and gives the packets of its rows.
func wireRows(t *testing.T, wire *client.Conn, query string) [][]byte {
	t.Helper()
	wire.ResetSequence()
	if err := wire.WritePacket(append([]byte{0, 0, 0, 0, gomysql.COM_QUERY}, query...)); err != nil {
		t.Fatal(err)
	}
	read := func() []byte {
		b, err := wire.ReadPacket()
		if err != nil {
			t.Fatal(err)
		}
		if len(b) > 0 && b[0] == gomysql.ERR_HEADER {
			t.Fatalf("%s: %q", query, b)
		}
		return b
	}
	columns, _ := packedInt(read())
	for range columns {
		read()
	}
	var rows [][]byte
	read() // the end of the columns
	for {
		b := read()
		if b[0] == gomysql.EOF_HEADER && len(b) < 9 {
			return rows
		}
		rows = append(rows, b)
	}
}
