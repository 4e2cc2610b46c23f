package binlog

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/rowcached/rowcached/integration/servers"
)

// follower reads a real server's log as text.
type follower struct {
	t     *testing.T
	srv   *servers.Server
	src   *Source
	lines []string // what was given out and not asked for
	logs  strings.Builder
}

// followLimit bounds every wait of these tests.
const followLimit = 60 * time.Second

// newFollower makes a source on the server. change may alter its configuration.
func newFollower(t *testing.T, srv *servers.Server, change ...func(*Config)) *follower {
	t.Helper()
	driver, err := mysql.ParseDSN(srv.DSN("root"))
	if err != nil {
		t.Fatal(err)
	}
	f := &follower{t: t, srv: srv}
	cfg := Config{Driver: driver, Heartbeat: 200 * time.Millisecond, ReadTimeout: 5 * time.Second,
		Logger: slog.New(slog.NewTextHandler(&f.logs, nil))}
	for _, c := range change {
		c(&cfg)
	}
	f.src = NewSource(cfg)
	t.Cleanup(func() {
		if err := f.src.Close(); err != nil {
			t.Errorf("close the source: %v", err)
		}
		if t.Failed() {
			t.Logf("log:\n%s", f.logs.String())
		}
	})
	return f
}

// watch loads and watches tables of the schema db.
func (f *follower) watch(names ...string) {
	f.t.Helper()
	for _, n := range names {
		table, err := LoadTable(f.t.Context(), f.src.DB(), TableName{"db", n})
		if err != nil {
			f.t.Fatal(err)
		}
		f.src.Watch(table)
	}
}

// open opens the log at its present end.
func (f *follower) open() {
	f.t.Helper()
	p, err := f.src.Visible(f.t.Context(), f.src.DB())
	if err != nil {
		f.t.Fatal(err)
	}
	f.openAt(p)
}

func (f *follower) openAt(p Position) {
	f.t.Helper()
	if err := f.src.Open(f.t.Context(), p); err != nil {
		f.t.Fatalf("open at %s: %v", p, err)
	}
}

// run runs a script and gives what the log says of it.
func (f *follower) run(script string) []string {
	f.t.Helper()
	// The session that prepared an XA transaction ends a moment after its connection is closed; until then nobody else has it.
	for start := time.Now(); ; {
		_, err := f.srv.DB().Exec(script)
		if err == nil {
			return f.catchUp()
		}
		if code, _, _ := serverFault(err); code != 1397 || time.Since(start) > followLimit {
			f.t.Fatalf("%s: %v", script, err)
		}
	}
}

// catchUp reads to the log's present end and gives the transactions that had something to say.
func (f *follower) catchUp() []string {
	f.t.Helper()
	ctx, cancel := context.WithTimeout(f.t.Context(), followLimit)
	defer cancel()
	end, err := f.src.Written(ctx, f.src.DB())
	if err != nil {
		f.t.Fatal(err)
	}
	for !f.src.Reached(end) {
		if err := f.step(ctx); err != nil {
			f.t.Fatalf("at %s, on the way to %s: %v\n%s", f.src.Position(), end, err, strings.Join(f.lines, "\n"))
		}
	}
	lines := f.lines
	f.lines = nil
	return lines
}

// step reads one event.
func (f *follower) step(ctx context.Context) error {
	ev, err := f.src.Next(ctx)
	if err != nil {
		return err
	}
	f.take(ev)
	return nil
}

// take notes an event. A transaction that is empty leaves nothing.
func (f *follower) take(ev *Event) {
	add := func(format string, args ...any) { f.lines = append(f.lines, fmt.Sprintf(format, args...)) }
	switch ev.Kind {
	case EventHeartbeat:
	case EventBegin:
		add("begin")
		if age := time.Since(ev.CommitTime); age < -time.Second || age > time.Hour {
			f.t.Errorf("a commit time of %v", ev.CommitTime)
		}
	case EventCommit:
		if n := len(f.lines); n > 0 && f.lines[n-1] == "begin" {
			f.lines = f.lines[:n-1]
			return
		}
		add("commit")
	case EventRows:
		for {
			before, after, err := ev.NextRow()
			if err == io.EOF {
				return
			}
			if err != nil {
				f.t.Fatal(err)
			}
			switch {
			case before == nil:
				add("%s %s %s", ev.Op, ev.Table.Name, rowLine(f.t, after))
			case after == nil:
				add("%s %s %s", ev.Op, ev.Table.Name, rowLine(f.t, before))
			default:
				add("%s %s %s %s", ev.Op, ev.Table.Name, rowLine(f.t, before), rowLine(f.t, after))
			}
		}
	case EventInvalidate:
		names := "all"
		if !ev.All {
			var list []string
			for _, n := range ev.Tables {
				list = append(list, n.Name)
			}
			names = strings.Join(list, " ")
		}
		add("invalidate %s %s", ev.Reason, names)
	case EventSavepoint, EventRollbackTo:
		add("%s %s", ev.Kind, ev.Name)
	default:
		add("%s", ev.Kind)
	}
}

// rowLine prints a row as (1,x,NULL); an absent column is a dash. Long values are cut.
func rowLine(t *testing.T, r *Row) string {
	t.Helper()
	var cells []string
	for i := range r.Table().Columns {
		switch {
		case !r.Has(i):
			cells = append(cells, "-")
		case r.IsNull(i):
			cells = append(cells, "NULL")
		default:
			text, err := r.AppendText(nil, i)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 40 {
				text = fmt.Appendf(nil, "%s...%d", text[:4], len(text))
			}
			cells = append(cells, string(text))
		}
	}
	return "(" + strings.Join(cells, ",") + ")"
}

// diff compares lines with a text of lines.
func (f *follower) diff(name string, got []string, want string) {
	f.t.Helper()
	var lines []string
	for l := range strings.SplitSeq(strings.TrimSpace(want), "\n") {
		if l = strings.TrimSpace(l); l != "" {
			lines = append(lines, l)
		}
	}
	if d := cmp.Diff(lines, got, cmpopts.EquateEmpty()); d != "" {
		f.t.Errorf("%s (-want +got):\n%s", name, d)
	}
}

// eachServer runs a test on every kind of server.
func eachServer(t *testing.T, run func(t *testing.T, srv *servers.Server), options ...string) {
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) { run(t, servers.Start(t, kind, options...)) })
	}
}
