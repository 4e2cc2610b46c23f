// Package bench measures the whole product against real servers. Its benchmarks print ratios of two things
// measured in the same run, never bare times to be compared with another day's.
package bench

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"testing"
	"time"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-mysql-org/go-mysql/replication"

	"github.com/rowcached/rowcached/integration/servers"
)

// BenchmarkCommitToVisible commits one-row transactions on an otherwise idle server, one after the other, and
// times two witnesses of each from the moment before the statement is sent: a bare dump client that receives
// the row event, and a memcached client that reads the new value. Run it with a fixed count, e.g.
//
//	go test ./integration/bench -run '^$' -bench CommitToVisible -benchtime 2000x
func BenchmarkCommitToVisible(b *testing.B) {
	for _, kind := range servers.Kinds() {
		b.Run(string(kind), func(b *testing.B) { commitToVisible(b, kind) })
	}
}

func commitToVisible(b *testing.B, kind servers.Kind) {
	srv := servers.Start(b, kind)
	srv.Exec(b, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v BIGINT NOT NULL); INSERT INTO db.t VALUES(1, -1)")
	d := servers.StartDaemon(b, "--source", srv.DSN("root"), "--table", "db.t")
	d.WaitReady()
	seen := dump(b, srv, kind)
	client := servers.Dial(b, d.Addr())
	conn := srv.Session(b)
	ctx := context.Background()

	bare := make([]time.Duration, 0, b.N)
	visible := make([]time.Duration, 0, b.N)
	b.ResetTimer()
	for i := range b.N {
		want := []byte(fmt.Sprintf(`{"id":1,"v":%d}`, i))
		done := make(chan error, 1)
		begin := time.Now()
		go func() {
			_, err := conn.ExecContext(ctx, "UPDATE db.t SET v = "+strconv.Itoa(i)+" WHERE id = 1")
			done <- err
		}()
		for !slices.Equal(client.Get("t:1")["t:1"], want) {
			if time.Since(begin) > 10*time.Second {
				b.Fatalf("value %d did not become visible", i)
			}
		}
		visible = append(visible, time.Since(begin))
		if err := <-done; err != nil {
			b.Fatal(err)
		}
		bare = append(bare, (<-seen).Sub(begin))
	}
	b.StopTimer()
	slices.Sort(bare)
	slices.Sort(visible)
	at := func(d []time.Duration, q float64) float64 {
		return float64(d[min(int(q*float64(len(d))), len(d)-1)].Microseconds())
	}
	for _, q := range []float64{0.50, 0.99} {
		name := fmt.Sprintf("p%.0f", q*100)
		b.ReportMetric(at(visible, q), name+"-visible-us")
		b.ReportMetric(at(bare, q), name+"-bare-us")
		b.ReportMetric(at(visible, q)/at(bare, q), name+"-ratio")
	}
	b.ReportMetric(0, "ns/op")
}

// dump starts a bare dump client at the end of the log. It sends the time at which each rows event arrived.
func dump(b *testing.B, srv *servers.Server, kind servers.Kind) <-chan time.Time {
	host, portText, err := net.SplitHostPort(srv.Addr)
	if err != nil {
		b.Fatal(err)
	}
	port, err := strconv.ParseUint(portText, 10, 16)
	if err != nil {
		b.Fatal(err)
	}
	cfg := replication.BinlogSyncerConfig{
		ServerID: 4_000_001, Flavor: kind.Flavor(), Host: host, Port: uint16(port), User: "root",
		Logger:              slog.New(slog.NewTextHandler(io.Discard, nil)),
		RowsEventDecodeFunc: func(*replication.RowsEvent, []byte) error { return nil },
	}
	var file string
	var pos uint32
	if err := status(srv, &file, &pos); err != nil {
		b.Fatal(err)
	}
	seen := make(chan time.Time, 1024)
	handler := arrival(func(e *replication.BinlogEvent) {
		switch e.Header.EventType {
		case replication.UPDATE_ROWS_EVENTv1, replication.UPDATE_ROWS_EVENTv2:
			seen <- time.Now()
		}
	})
	cfg.SynchronousEventHandler = handler
	syncer := replication.NewBinlogSyncer(cfg)
	if _, err := syncer.StartSync(gomysql.Position{Name: file, Pos: pos}); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(syncer.Close)
	return seen
}

type arrival func(*replication.BinlogEvent)

// HandleEvent implements replication.EventHandler.
func (f arrival) HandleEvent(e *replication.BinlogEvent) error { f(e); return nil }

// status reads the end of the log; the statement's name depends on the server.
func status(srv *servers.Server, file *string, pos *uint32) error {
	rows, err := srv.DB().Query("SHOW BINARY LOG STATUS")
	if err != nil {
		rows, err = srv.DB().Query("SHOW MASTER STATUS")
	}
	if err != nil {
		return err
	}
	defer rows.Close()
	cols, err := rows.Columns()
	if err != nil {
		return err
	}
	dest := []any{file, pos}
	for range cols[2:] {
		dest = append(dest, new(any))
	}
	rows.Next()
	if err := rows.Scan(dest...); err != nil {
		return err
	}
	return rows.Err()
}
