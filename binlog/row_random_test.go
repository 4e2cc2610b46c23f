package binlog

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"

	"github.com/rowcached/rowcached/integration/servers"
)

// TestTwoPathsRandom compares random values of the types whose text takes arithmetic. It prints its seed.
func TestTwoPathsRandom(t *testing.T) {
	const rows = 4000
	seed := uint64(time.Now().UnixNano())
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Logf("seed %d", seed)
			srv := servers.Start(t, kind, "--character-set-server=utf8mb4")
			mariadb := kind.Flavor() == "mariadb"
			srv.Exec(t, "CREATE DATABASE db")
			name := TableName{"db", "r"}
			conn := querySession(t, srv.DB(), mariadb)
			exec := func(q string) {
				t.Helper()
				if _, err := conn.ExecContext(context.Background(), q); err != nil {
					t.Fatalf("%.300s: %v", q, err)
				}
			}
			exec("CREATE TABLE db.r (id INT PRIMARY KEY, d DOUBLE, d2 DOUBLE(30,5), f FLOAT, f2 FLOAT(20,3), n DECIMAL(40,17), n2 DECIMAL(9,4), " +
				"t TIME(6), t2 TIME(1), dt DATETIME(6), dt2 DATETIME(3), ts TIMESTAMP(6) NULL, da DATE, b BIT(37), u BIGINT UNSIGNED, m MEDIUMINT, v VARCHAR(200), j JSON)")
			random := rand.New(rand.NewPCG(seed, 1))
			var q strings.Builder
			for id := range rows {
				if q.Len() == 0 {
					q.WriteString("INSERT INTO db.r VALUES ")
				} else {
					q.WriteByte(',')
				}
				second := random.Int64N(1 << 31)
				stamp := time.Unix(second, random.Int64N(1e9)/1000*1000).UTC().Format("2006-01-02 15:04:05.000000")
				clock := fmt.Sprintf("%s%d:%d:%d.%06d", []string{"", "-"}[random.IntN(2)], random.IntN(838), random.IntN(60), random.IntN(60), random.IntN(1000000))
				fmt.Fprintf(&q, "(%d,%s,%s,%s,%s,'%s','%s','%s','%s','%s','%s','%s','%s',%d,%d,%d,'%s','%s')", id,
					randomReal(random, 300), randomReal(random, 20), randomReal(random, 37), randomReal(random, 15),
					randomDecimal(random, 23, 17), randomDecimal(random, 5, 4), clock, clock, stamp, stamp, stamp, stamp[:10],
					random.Uint64()>>random.IntN(64)&(1<<37-1), random.Uint64()>>random.IntN(64), random.IntN(1<<24)-1<<23, randomText(random), randomJSON(random, 4))
				if q.Len() > 100000 || id == rows-1 {
					exec(q.String())
					q.Reset()
				}
			}
			table, err := LoadTable(context.Background(), conn, name)
			if err != nil {
				t.Fatal(err)
			}
			compareLive(t, srv, conn, map[TableName]*Table{name: table}, mariadb)
			compareWire(t, srv, conn, table, mariadb)
			t.Logf("%d rows of %d columns", rows, len(table.Columns))
		})
	}
}

// compareWire compares every value that the query path gives with the bytes of a plain SELECT, save for a FLOAT without
// decimals.
func compareWire(t *testing.T, srv *servers.Server, conn *sql.Conn, table *Table, mariadb bool) {
	t.Helper()
	wire := wireRows(t, wireSession(t, srv.Addr, mariadb), "SELECT * FROM "+table.Quoted()+" ORDER BY id")
	n := 0
	eachRow(t, conn, table, " ORDER BY id", func(row *Row) {
		rest := wire[n]
		n++
		for i := range table.Columns {
			c := &table.Columns[i]
			plain, _, size, err := gomysql.LengthEncodedString(rest)
			if err != nil {
				t.Fatal(err)
			}
			rest = rest[size:]
			text, err := row.AppendText(nil, i)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(text, plain) && !(c.Kind == KindFloat && c.Decimals < 0) {
				t.Errorf("%s: SELECT gives %.200q, the query path %.200q", c.Type, plain, text)
			}
		}
	})
	if n != len(wire) {
		t.Errorf("%d rows on the wire, %d by the query path", len(wire), n)
	}
}

// randomReal gives a number whose exponent is at most so great, often one with few digits or near a power of two.
func randomReal(random *rand.Rand, exponent int) string {
	f := random.Float64() * math.Pow(10, float64(random.IntN(2*exponent)-exponent))
	switch random.IntN(5) {
	case 0:
		return fmt.Sprintf("%.*e", random.IntN(5), f)
	case 1:
		f = math.Ldexp(1, random.IntN(60)-20) + float64(random.IntN(3)-1)
	case 2:
		f = float64(random.IntN(2000001)-1000000) / 1000
	}
	return fmt.Sprintf("%.17e", f)
}

func randomDecimal(random *rand.Rand, whole, scale int) string {
	digits := func(n int) string {
		var s strings.Builder
		for range random.IntN(n + 1) {
			s.WriteByte(byte('0' + random.IntN(10)))
		}
		return s.String()
	}
	return []string{"", "-"}[random.IntN(2)] + "0" + digits(whole) + "." + digits(scale) + "0"
}

func randomText(random *rand.Rand) string {
	letters := []rune("abc xyz é ü 日本 😀 \t ")
	var s strings.Builder
	for range random.IntN(60) {
		s.WriteRune(letters[random.IntN(len(letters))])
	}
	return s.String()
}

// randomJSON gives a document as SQL text between single quotes takes it.
func randomJSON(random *rand.Rand, depth int) string {
	kind := random.IntN(9)
	if depth == 0 {
		kind = random.IntN(7)
	}
	switch kind {
	case 0:
		return []string{"null", "true", "false"}[random.IntN(3)]
	case 1, 2:
		return fmt.Sprint(int64(random.Uint64()) >> random.IntN(64))
	case 3:
		return fmt.Sprint(random.Uint64() >> random.IntN(64))
	case 4:
		return randomReal(random, 300)
	case 5, 6:
		return `"` + strings.ReplaceAll(randomText(random), "\t", `\\t\\"\\\\\\u0007`) + strings.Repeat("z", random.IntN(2)*random.IntN(300)) + `"`
	case 7:
		var items []string
		for range random.IntN(6) {
			items = append(items, randomJSON(random, depth-1))
		}
		return "[" + strings.Join(items, ",") + "]"
	}
	var items []string
	for range random.IntN(6) {
		items = append(items, fmt.Sprintf(`"%s%d":%s`, strings.TrimSpace(strings.ReplaceAll(randomText(random), "\t", "")), random.IntN(9), randomJSON(random, depth-1)))
	}
	return "{" + strings.Join(items, ",") + "}"
}
