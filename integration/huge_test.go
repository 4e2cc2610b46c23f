package integration

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

var hugeRows = flag.Int("hugerows", 100_000, "rows that TestHugeTransaction changes in one transaction; 2000000 shows that memory stays bounded")

// Case 130: transactions over every row of a table, an update and a delete: exact afterwards, in memory that does not grow
// with the transaction (I9), and never half of it served unless it is above the documented size (G3).
func TestHugeTransaction(t *testing.T) {
	rows := *hugeRows
	for _, kind := range []servers.Kind{servers.MySQL97, servers.MariaDB1011} {
		t.Run(string(kind), func(t *testing.T) {
			s := servers.Start(t, kind, "--innodb-buffer-pool-size=256M", "--max-binlog-size=1G")
			s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL, a CHAR(20) NOT NULL DEFAULT 'aaaaaaaaaaaaaaaaaaaa', b BIGINT NOT NULL DEFAULT 5000000000)")
			fill(t, s, rows)
			d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t", "--memory.limit", "2GiB")
			d.WaitReady()
			for range 3 { // small ones, so that buffers have their size
				s.Exec(t, "UPDATE db.t SET v=v+1 WHERE id<10000")
			}
			until(t, "small transactions", func() bool { v, _ := d.Get("t:1"); return strings.Contains(string(v), `"v":3,`) })
			before := resident(t, d.Pid())
			peak := watchResident(t, d.Pid())
			stepped := number(t, d, "rowcached_transactions_stepped_total")
			began := time.Now()
			s.Exec(t, "UPDATE db.t SET v=100")
			committed := time.Since(began)
			keys := []string{"t:1", fmt.Sprintf("t:%d", rows/2), fmt.Sprintf("t:%d", rows)}
			torn := false
			until(t, "the transaction", func() bool {
				values, err := d.Fetch(keys...)
				if err != nil {
					t.Fatal(err)
				}
				n := 0
				for _, key := range keys {
					if strings.Contains(string(values[key]), `"v":100,`) {
						n++
					}
				}
				torn = torn || n > 0 && n < len(keys)
				return n == len(keys)
			})
			visible := time.Since(began)
			most := peak()
			steps := number(t, d, "rowcached_transactions_stepped_total") - stepped
			t.Logf("%d rows in one transaction: committed after %v, visible after %v; resident %d MiB before, at most %d MiB; stepped: %v",
				rows, committed.Round(time.Millisecond), visible.Round(time.Millisecond), before>>20, most>>20, steps)
			if torn && steps == 0 {
				t.Error("half of the transaction was served, and it counts as whole")
			}
			if grown := most - before; grown > 256<<20 {
				t.Errorf("the daemon grew by %d MiB", grown>>20)
			}
			sameAs(t, d, s, `{"id":%d,"v":%d,"a":"aaaaaaaaaaaaaaaaaaaa","b":5000000000}`, "SELECT id, v FROM db.t")
			s.Exec(t, "DELETE FROM db.t WHERE id>10")
			until(t, "the delete", func() bool { return number(t, d, `rowcached_items{table="t"}`) == 10 })
		})
	}
}
