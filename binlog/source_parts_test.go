package binlog

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// TestSourceXA: prepared rows are given out at XA COMMIT; what was not kept is told instead.
func TestSourceXA(t *testing.T) {
	eachServer(t, func(t *testing.T, srv *servers.Server) {
		srv.Exec(t, smallTable+"CREATE TABLE u(id INT PRIMARY KEY, v INT); CREATE TABLE w(id INT PRIMARY KEY, v INT)")
		f := newFollower(t, srv)
		prepare := func(xid, statements string) string {
			return fmt.Sprintf("USE db; XA START '%[1]s'; %[2]s; XA END '%[1]s'; XA PREPARE '%[1]s'", xid, statements)
		}
		srv.Exec(t, prepare("before", "INSERT INTO t VALUES(1,1)"))
		f.watch("t", "u")
		f.open()
		f.diff("prepared before the log was opened", f.run("XA COMMIT 'before'"), "begin\ninvalidate xa all\ncommit")

		f.diff("prepared", f.run(prepare("a", "INSERT INTO t VALUES(2,1); INSERT INTO u VALUES(2,1); INSERT INTO w VALUES(2,1); UPDATE t SET v=2 WHERE id=2")), "")
		f.killDump()
		f.diff("another one, after a reconnect", f.run(prepare("b", "INSERT INTO t VALUES(3,1)")), "")
		f.watch("w")
		f.diff("a table watched since", f.run("XA COMMIT 'a'"), `
			begin
			invalidate xa w
			insert t (2,1)
			insert u (2,1)
			update t (2,1) (2,2)
			commit`)
		f.src.Unwatch(TableName{"db", "t"})
		f.diff("a table watched no more", f.run("XA COMMIT 'b'; XA START 'n'; XA END 'n'; XA PREPARE 'n'; XA COMMIT 'n'"), "")
		f.watch("t")

		f.src.xa.most = 2000
		rows := "INSERT INTO t VALUES(10,1)"
		for i := 11; i < 400; i++ {
			rows += fmt.Sprintf(",(%d,1)", i)
		}
		f.diff("too large", f.run(prepare("c", rows+"; INSERT INTO u VALUES(10,1)")), "")
		f.diff("too large, committed", f.run("XA COMMIT 'c'"), "begin\ninvalidate xa t u\ncommit")
		if n := f.src.xa.bytes; n != 0 {
			t.Errorf("%d bytes are kept of nothing", n)
		}
		f.diff("a savepoint inside", f.run(prepare("d", "INSERT INTO u VALUES(11,1); SAVEPOINT s; INSERT INTO u VALUES(12,1); ROLLBACK TO s")+"; XA ROLLBACK 'd'"), "")
		checkPosition(t, f)
	})
}

// TestSourceBuffered: when Buffered says so, Next does not wait.
func TestSourceBuffered(t *testing.T) {
	srv := servers.Start(t, servers.MySQL97)
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.watch("t")
	f.open()
	script := "USE db;"
	for i := range 300 {
		script += fmt.Sprintf("INSERT INTO t VALUES(%d,1);", i)
		if i%100 == 50 {
			script += "FLUSH BINARY LOGS;"
		}
	}
	srv.Exec(t, script)
	end, err := f.src.Written(t.Context(), f.src.DB())
	if err != nil {
		t.Fatal(err)
	}
	atHand, waits := 0, 0
	for !f.src.Reached(end) {
		ctx := t.Context()
		if f.src.Buffered() {
			ctx = ended(t)
			atHand++
		} else {
			waits++
		}
		if err := f.step(ctx); err != nil {
			t.Fatalf("after %d events: %v", len(f.lines), err)
		}
	}
	if atHand < 10*waits {
		t.Errorf("%d events were at hand, %d had to be waited for", atHand, waits)
	}
}

// ended gives a context that is over: only what needs no waiting works with it.
func ended(t *testing.T) context.Context {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	return ctx
}

// TestSourceFold: with lower_case_table_names the case of a name in a statement does not matter.
func TestSourceFold(t *testing.T) {
	srv := servers.Start(t, servers.MariaDB118, "--lower-case-table-names=1")
	srv.Exec(t, smallTable)
	f := newFollower(t, srv)
	f.watch("t")
	f.src.WatchName(TableName{"db", "Later"})
	f.open()
	f.diff("case", f.run("USE db; INSERT INTO T VALUES(1,1); TRUNCATE TABLE DB.T; CREATE TABLE LATER(id INT)"), `
		begin
		insert t (1,1)
		commit
		begin
		invalidate truncate t
		commit
		begin
		invalidate ddl Later
		commit`)
	f.src.UnwatchName(TableName{"db", "later"})
	f.src.Unwatch(TableName{"db", "T"})
	f.diff("watched no more", f.run("USE db; INSERT INTO t VALUES(1,1); DROP TABLE t, later"), "")
	if n := len(f.src.watches.names); n != 0 {
		t.Errorf("%d names are left", n)
	}
}

// TestRowsCorrupt: a row that is cut short ends its event and invalidates its table, once in a transaction.
func TestRowsCorrupt(t *testing.T) {
	s := NewSource(Config{})
	defer s.Close()
	s.Watch(&Table{TableName: TableName{"db", "t"}, Versioned: -1, Columns: []Column{{Name: "id", Kind: KindInt, Bytes: 4}, {Name: "v", Kind: KindInt, Bytes: 4}}})
	gtid := &rawEvent{typ: evGTID, body: append(append([]byte{0, 1}, make([]byte, 15)...), 1, 0, 0, 0, 0, 0, 0, 0)}
	tableMap := &rawEvent{typ: evTableMap, body: append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2}, "db\x00\x01t\x00\x02\x03\x03\x00\x00"...)}
	rows := &rawEvent{typ: evWriteRows2, body: append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff}, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 3, 0)}
	for i, e := range []*rawEvent{gtid, tableMap, rows, rows} {
		ev, err := s.handle(t.Context(), e)
		if err != nil {
			t.Fatal(err)
		}
		if i < 2 {
			continue
		}
		if ev == nil || ev.Kind != EventRows {
			t.Fatalf("event %d gives %v", i, ev)
		}
		if _, after, err := ev.NextRow(); err != nil || after == nil {
			t.Fatalf("the first row: %v", err)
		}
		if _, _, err := ev.NextRow(); err != io.EOF {
			t.Fatalf("the second row: %v", err)
		}
		if len(s.queue) != 1 || s.queue[0].Kind != EventInvalidate || s.queue[0].Reason != ReasonShape || s.queue[0].Tables[0].Name != "t" {
			t.Fatalf("queued: %+v", s.queue)
		}
	}
}

// TestTransactionAllocates: a one-row transaction costs no allocation once its table is known.
func TestTransactionAllocates(t *testing.T) {
	s := NewSource(Config{})
	defer s.Close()
	s.Watch(&Table{TableName: TableName{"db", "t"}, Versioned: -1, Columns: []Column{{Name: "id", Kind: KindInt, Bytes: 4}, {Name: "v", Kind: KindInt, Bytes: 4}}})
	s.done = &gtids{mysql: newGTIDSet()}
	gtid := &rawEvent{typ: evGTID, body: append([]byte{0, 1}, make([]byte, 23)...)}
	events := []*rawEvent{
		gtid,
		queryEvent("db", "BEGIN", 0, 255),
		{typ: evTableMap, body: append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2}, "db\x00\x01t\x00\x02\x03\x03\x00\x00"...)},
		{typ: evUpdateRows2, body: append([]byte{1, 0, 0, 0, 0, 0, 1, 0, 2, 0, 2, 0xff, 0xff}, 0, 1, 0, 0, 0, 2, 0, 0, 0, 0, 1, 0, 0, 0, 3, 0, 0, 0)},
		{typ: evXID, body: make([]byte, 8)},
	}
	number := uint64(0)
	rows, commits := 0, 0
	if allocs := testing.AllocsPerRun(1000, func() {
		number++
		binary.LittleEndian.PutUint64(gtid.body[17:], number)
		for _, e := range events {
			ev, err := s.handle(t.Context(), e)
			if err != nil {
				t.Fatal(err)
			}
			if ev == nil {
				continue
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
				commits++
			}
		}
	}); allocs != 0 {
		t.Errorf("%v allocations", allocs)
	}
	if rows != int(number) || commits != int(number) {
		t.Errorf("%d rows and %d commits of %d transactions", rows, commits, number)
	}
}
