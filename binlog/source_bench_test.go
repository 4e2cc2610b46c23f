package binlog

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowcached/rowcached/integration/servers"
)

// BenchmarkSource follows a log that is there already: 100,000 one-row transactions, then 300,000 rows inserted in
// transactions of 1000. It reports transactions and rows a second; "unwatched" is the same log with no table watched, and
// "packets" only takes the packets off the connection, which no follower can beat.
//
//	go test ./binlog -run '^$' -bench BenchmarkSource -benchtime 5x
func BenchmarkSource(b *testing.B) {
	for _, kind := range []servers.Kind{servers.MySQL97, servers.MariaDB1011} {
		b.Run(string(kind), func(b *testing.B) { benchmarkSource(b, kind) })
	}
}

func benchmarkSource(b *testing.B, kind servers.Kind) {
	srv := servers.Start(b, kind, "--innodb-flush-log-at-trx-commit=0", "--innodb-buffer-pool-size=256M")
	srv.Exec(b, `CREATE DATABASE IF NOT EXISTS db; CREATE TABLE db.t(id INT PRIMARY KEY, a BIGINT, b VARCHAR(40), c VARCHAR(40), d DATETIME, e DECIMAL(12,2));
		CREATE TABLE db.u LIKE db.t; INSERT INTO db.t VALUES(1,1,'some text in b','more text in c','2024-01-02 03:04:05',12.34)`)
	conn := srv.Session(b)
	exec := func(q string) {
		b.Helper()
		if _, err := conn.ExecContext(context.Background(), q); err != nil {
			b.Fatal(err)
		}
	}
	exec("USE db")
	exec("CREATE PROCEDURE small(n INT) BEGIN WHILE n > 0 DO UPDATE t SET a=n, b=CONCAT('text ',n) WHERE id=1; SET n=n-1; END WHILE; END")
	exec("CREATE PROCEDURE bulk(n INT) BEGIN DECLARE i INT DEFAULT 0; WHILE i < n DO " +
		"IF i MOD 1000 = 0 THEN START TRANSACTION; END IF; " +
		"INSERT INTO u VALUES(i,i,CONCAT('text ',i),'some more text in c','2024-01-02 03:04:05',i/100); " +
		"SET i=i+1; IF i MOD 1000 = 0 THEN COMMIT; END IF; END WHILE; END")
	driver, err := mysql.ParseDSN(srv.DSN("root"))
	if err != nil {
		b.Fatal(err)
	}
	s := NewSource(Config{Driver: driver})
	defer s.Close()
	ctx := context.Background()
	at := func() Position {
		b.Helper()
		p, err := s.Visible(ctx, s.DB())
		if err != nil {
			b.Fatal(err)
		}
		return p
	}
	start := at()
	exec("CALL small(100000)")
	middle := at()
	exec("CALL bulk(300000)")
	end := at()
	var tables []*Table
	for _, n := range []string{"t", "u"} {
		t, err := LoadTable(ctx, s.DB(), TableName{"db", n})
		if err != nil {
			b.Fatal(err)
		}
		tables = append(tables, t)
	}
	follow := func(b *testing.B, from, to Position, watch bool) {
		for _, t := range tables {
			if watch {
				s.Watch(t)
			} else {
				s.Unwatch(t.TableName)
			}
		}
		var rows, transactions int
		var took time.Duration
		b.ReportAllocs()
		for range b.N {
			b.StopTimer()
			if err := s.Open(ctx, from); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			begin := time.Now()
			for done := false; !done; {
				ev, err := s.Next(ctx)
				if err != nil {
					b.Fatal(err)
				}
				switch ev.Kind {
				case EventRows:
					for {
						if _, _, err := ev.NextRow(); err == io.EOF {
							break
						}
						rows++
					}
				case EventCommit:
					transactions++
					done = s.Reached(to)
				}
			}
			took += time.Since(begin)
		}
		b.ReportMetric(float64(transactions)/took.Seconds(), "tx/s")
		b.ReportMetric(float64(rows)/took.Seconds(), "rows/s")
		b.ReportMetric(float64(took.Nanoseconds())/float64(max(1, transactions)), "ns/tx")
	}
	b.Run("small", func(b *testing.B) { follow(b, start, middle, true) })
	b.Run("small-unwatched", func(b *testing.B) { follow(b, start, middle, false) })
	b.Run("bulk", func(b *testing.B) { follow(b, middle, end, true) })
	b.Run("bulk-unwatched", func(b *testing.B) { follow(b, middle, end, false) })
	b.Run("packets", func(b *testing.B) {
		var took time.Duration
		for range b.N {
			b.StopTimer()
			if err := s.Open(ctx, start); err != nil {
				b.Fatal(err)
			}
			b.StartTimer()
			begin := time.Now()
			for n := 0; n < 500000; n++ {
				if _, err := s.conn.reader.next(ctx); err != nil {
					b.Fatal(err)
				}
			}
			took += time.Since(begin)
		}
		b.ReportMetric(float64(took.Nanoseconds())/100000/float64(b.N), "ns/tx")
	})
}
