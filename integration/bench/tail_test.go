package bench

import (
	"context"
	"database/sql"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

var (
	tailRows     = flag.Int("tail.rows", 200_000, "of the items, how many are rows of the table that is changed (BenchmarkTail)")
	tailChanges  = flag.Int("tail.changes", 2000, "row changes a second (BenchmarkTail)")
	tailPerTx    = flag.Int("tail.pertransaction", 10, "row changes in a transaction (BenchmarkTail)")
	tailRate     = flag.Int("tail.rate", 20_000, "gets a second (BenchmarkTail)")
	tailRounds   = flag.Int("tail.rounds", 5, "rounds (BenchmarkTail)")
	tailDuration = flag.Duration("tail.duration", 3*time.Second, "of a measurement; a round has three (BenchmarkTail)")
	tailKind     = flag.String("tail.kind", string(servers.MariaDB118), "database server (BenchmarkTail)")
)

// BenchmarkTail compares the latency of gets with millions of items in memory, in alternating rounds: while nothing is
// written ("quiet"), while rows of a table that is not mapped are changed ("elsewhere": the database has its work, and the
// daemon reads the log and drops what it reads), and while rows of a mapped table are changed ("applied"). Gets are paced
// and counted from when they are due, so a reply that is held up holds up those behind it. It needs one run:
//
//	go test ./integration/bench -run '^$' -bench Tail -benchtime 1x
//
// On a machine of few cores the database takes time from server and load alike; the ratio to "elsewhere" leaves that out.
func BenchmarkTail(b *testing.B) {
	for range b.N {
		tail(b)
	}
	b.ReportMetric(0, "ns/op")
}

func tail(b *testing.B) {
	srv := servers.Start(b, servers.Kind(*tailKind), "--innodb-buffer-pool-size=512M")
	conn := srv.Session(b)
	ctx := context.Background()
	execute := func(format string, args ...any) {
		if _, err := conn.ExecContext(ctx, fmt.Sprintf(format, args...)); err != nil {
			b.Fatal(err)
		}
	}
	execute("CREATE DATABASE db")
	execute("CREATE TABLE db.t(id INT PRIMARY KEY, v CHAR(87) NOT NULL)")
	for from := 1; from <= *tailRows; from += 2000 {
		var values []string
		for id := from; id < min(from+2000, *tailRows+1); id++ {
			values = append(values, fmt.Sprintf("(%d,'%087d')", id, id))
		}
		execute("INSERT INTO db.t VALUES%s", strings.Join(values, ","))
	}
	execute("CREATE TABLE db.other LIKE db.t")
	execute("INSERT INTO db.other SELECT * FROM db.t")
	d := servers.StartDaemon(b, "--source", srv.DSN("root"), "--table", "db.t", "-m", strconv.Itoa(*items/2500+256), "-t", "1")
	d.WaitReady()

	plain := fmt.Sprint(*items - *tailRows)
	if exit, output, _ := measure(b, "--address", d.Addr(), "--keys", plain, "--rounds", "1", "--operations", "1000"); exit != 0 {
		b.Fatalf("exit %d\n%s", exit, output)
	}
	load := func() round {
		exit, output, f := measure(b, "--address", d.Addr(), "--keys", plain, "--no-fill", "--rounds", "1", "--duration", tailDuration.String(),
			"--rate", fmt.Sprint(*tailRate))
		if exit != 0 {
			b.Fatalf("exit %d\n%s", exit, output)
		}
		r := f.Results[0].Targets[0].Rounds[0]
		if r.Misses != 0 {
			b.Fatalf("%d misses", r.Misses)
		}
		return r
	}
	modes := []string{"quiet", "elsewhere", "applied"}
	results := map[string][]round{}
	for n := range *tailRounds {
		order := slices.Clone(modes)
		if n%2 == 1 {
			slices.Reverse(order)
		}
		for _, mode := range order {
			var done func() int
			table := map[string]string{"elsewhere": "db.other", "applied": "db.t"}[mode]
			before := changes(b, d)
			begin := time.Now()
			if table != "" {
				done = change(b, conn, table)
			}
			r := load()
			results[mode] = append(results[mode], r)
			if table == "" {
				continue
			}
			made := done()
			took := time.Since(begin).Seconds()
			if rate := float64(made) / took; rate < 0.9*float64(*tailChanges) {
				b.Fatalf("the database made only %.0f changes a second", rate)
			}
			if mode == "applied" {
				for changes(b, d) < before+made { // all that was changed was applied
					if time.Since(begin) > *tailDuration+30*time.Second {
						b.Fatalf("%d of %d changes were applied", changes(b, d)-before, made)
					}
					time.Sleep(time.Millisecond)
				}
			}
		}
	}
	through := func(a, c string, f func(round) float64) float64 {
		var list []float64
		for i := range results[a] {
			list = append(list, f(results[a][i])/f(results[c][i]))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	middle := func(a string, f func(round) float64) float64 {
		var list []float64
		for _, r := range results[a] {
			list = append(list, f(r))
		}
		slices.Sort(list)
		return list[len(list)/2]
	}
	for _, q := range []struct {
		name string
		of   func(round) float64
	}{
		{"p50", func(r round) float64 { return r.Latency.P50 }},
		{"p99", func(r round) float64 { return r.Latency.P99 }},
		{"p99.9", func(r round) float64 { return r.Latency.P999 }},
	} {
		for _, mode := range modes {
			b.ReportMetric(middle(mode, q.of), q.name+"-"+mode+"-us")
		}
		b.ReportMetric(through("applied", "quiet", q.of), q.name+"-applied/quiet")
		b.ReportMetric(through("applied", "elsewhere", q.of), q.name+"-applied/elsewhere")
	}
}

// change changes rows of the table at the rate asked for, until the function that it returns is called; that tells how many.
func change(b *testing.B, conn *sql.Conn, table string) (done func() int) {
	b.Helper()
	ctx, stop := context.WithCancel(context.Background())
	made, ended := 0, make(chan error, 1)
	r := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	go func() {
		each := time.Duration(float64(time.Second) * float64(*tailPerTx) / float64(*tailChanges))
		for due := time.Now(); ctx.Err() == nil; due = due.Add(each) {
			time.Sleep(time.Until(due))
			ids := map[int]bool{}
			for len(ids) < *tailPerTx {
				ids[1+r.IntN(*tailRows)] = true
			}
			var list []string
			for id := range ids {
				list = append(list, strconv.Itoa(id))
			}
			query := fmt.Sprintf("UPDATE %s SET v = '%087d' WHERE id IN (%s)", table, r.Uint64(), strings.Join(list, ","))
			if _, err := conn.ExecContext(context.Background(), query); err != nil {
				ended <- err
				return
			}
			made += len(ids)
		}
		ended <- nil
	}()
	return func() int {
		stop()
		if err := <-ended; err != nil {
			b.Fatal(err)
		}
		return made
	}
}

// changes is how many updates the daemon has followed on the mapped table.
func changes(b *testing.B, d *servers.Daemon) int {
	b.Helper()
	text := d.Metric(`rowcached_binlog_rows_total{op="update",table="t"}`)
	if text == "" {
		return 0
	}
	n, err := strconv.ParseFloat(text, 64)
	if err != nil {
		b.Fatal(err)
	}
	return int(n)
}
