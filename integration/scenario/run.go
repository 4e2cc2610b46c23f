package scenario

import (
	"database/sql"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// expectLimit bounds the time an expectation is given to come true.
const expectLimit = 10 * time.Second

// run is one scenario at work on one server.
type run struct {
	t        *testing.T
	scenario *Scenario
	server   *servers.Server
	sqlOnly  bool

	sessions map[string]*sql.Conn
	config   string // path of the configuration file, if there is one
	oracle   oracle
	daemon   *servers.Daemon // nil until started
	gate     *servers.Gate   // between the daemon and the server, in the modes that need it
	expected map[string]line // the last expectation of each key
	known    map[string]bool // every key that a row was seen to have
}

// Run runs the scenario on a server that nothing else uses meanwhile. All databases but the server's own
// are dropped first.
func (s *Scenario) Run(t *testing.T, server *servers.Server) {
	t.Helper()
	s.run(t, server, false)
}

// CheckSQL runs only the statements of the scenario, and compares the expectations with what the rows on
// the server should be rendered to. It checks the scenario, not the daemon.
func (s *Scenario) CheckSQL(t *testing.T, server *servers.Server) {
	t.Helper()
	s.run(t, server, true)
}

func (s *Scenario) run(t *testing.T, server *servers.Server, sqlOnly bool) {
	t.Helper()
	r := &run{
		t: t, scenario: s, server: server, sqlOnly: sqlOnly,
		sessions: map[string]*sql.Conn{}, expected: map[string]line{}, known: map[string]bool{},
	}
	r.emptyServer()
	if err := r.oracle.byTables(s.tables); err != nil {
		t.Fatal(err)
	}
	for i, st := range s.steps {
		if !st.only.on(server.Kind) {
			continue
		}
		if st.verb == "cleanup" {
			t.Cleanup(func() { server.Exec(t, st.body) })
		}
		if !r.step(st) {
			t.Fatalf("in section %d (%s)", i+1, st.verb)
		}
	}
	if s.Recheck && !sqlOnly && r.daemon != nil && len(r.expected) > 0 {
		r.recheck()
	}
}

func (r *run) emptyServer() {
	r.t.Helper()
	rows, err := r.server.DB().Query("SHOW DATABASES")
	if err != nil {
		r.t.Fatal(err)
	}
	defer rows.Close()
	script := ""
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			r.t.Fatal(err)
		}
		if !slices.Contains([]string{"mysql", "sys", "information_schema", "performance_schema"}, name) {
			script += "DROP DATABASE `" + strings.ReplaceAll(name, "`", "``") + "`; "
		}
	}
	if err := rows.Err(); err != nil {
		r.t.Fatal(err)
	}
	r.server.Exec(r.t, script+"CREATE DATABASE db CHARACTER SET utf8mb4")
}

// step runs one section; false if it failed.
func (r *run) step(st step) bool {
	r.t.Helper()
	switch st.verb {
	case "config":
		return r.configure(st.body)
	case "sql":
		return r.sql(st)
	case "change":
		return r.change(st)
	case "server":
		if st.words[0] == "kill" {
			r.server.Kill()
		}
		r.server.Restart()
		return true
	case "cleanup":
		return true
	}
	if r.sqlOnly {
		if st.verb == "expect" {
			return r.expectRows(st.lines)
		}
		return true
	}
	switch st.verb {
	case "start":
		r.prepare()
		r.daemon.Start()
		if len(st.words) == 0 {
			r.daemon.WaitReady()
		}
	case "stop":
		return r.stopped()
	case "kill":
		r.daemon.Kill()
	case "restart":
		if !r.stopped() {
			return false
		}
		if len(st.words) > 0 && !r.forget() {
			return false
		}
		r.daemon.Start()
		r.daemon.WaitReady()
	case "pause":
		r.daemon.Pause()
	case "resume":
		r.daemon.Resume()
	case "wait":
		return r.settle() && r.noLag()
	case "expect":
		return r.expect(st.lines, "")
	case "verify":
		return r.verify()
	case "twopath":
		return r.twoPath(st.lines)
	case "cmd":
		return r.commands(st.lines)
	case "expect-log":
		for row := range nonEmpty(st.body) {
			r.daemon.WaitLog(row)
		}
	case "log-without":
		for row := range nonEmpty(st.body) {
			if strings.Contains(r.daemon.Log(), row) {
				r.t.Errorf("%q is in the daemon's log", row)
				return false
			}
		}
	case "refuse":
		r.prepare()
		if err := r.daemon.Launch(); err != nil {
			r.t.Fatal(err)
		}
		return r.ended(r.daemon.Wait(30*time.Second), -1, r.daemon.Log(), st.body)
	case "check":
		code := 0
		if len(st.words) > 0 {
			code, _ = strconv.Atoi(st.words[0]) // parsed before
		}
		exit, output := servers.RunDaemon(r.t, append([]string{"check"}, r.flags()...)...)
		return r.ended(exit, code, output, st.body)
	}
	return true
}

func nonEmpty(text string) func(yield func(string) bool) {
	return func(yield func(string) bool) {
		for row := range strings.Lines(text) {
			if row = strings.TrimSpace(row); row != "" && !yield(row) {
				return
			}
		}
	}
}

func (r *run) configure(text string) bool {
	r.t.Helper()
	if err := r.oracle.byConfig(text); err != nil {
		r.t.Error(err)
		return false
	}
	r.config = filepath.Join(r.t.TempDir(), "rowcached.yaml")
	if err := os.WriteFile(r.config, []byte(text), 0o644); err != nil {
		r.t.Error(err)
		return false
	}
	return true
}

// flags returns the arguments of "run" and "check".
func (r *run) flags() []string {
	flags := []string{"--source", r.server.DSN("root")}
	if r.gate != nil {
		flags = []string{"--source", r.gate.DSN("root"), "--source.tls.mode", "disabled"}
	}
	if r.config != "" {
		flags = append(flags, "-c", r.config)
	} else {
		for _, table := range r.scenario.tables {
			flags = append(flags, "--table", table)
		}
	}
	return append(flags, r.scenario.daemon...)
}

func (r *run) prepare() {
	r.t.Helper()
	if r.daemon == nil {
		if r.scenario.mode == "reading" || r.scenario.mode == "copying" {
			r.gate = servers.NewGate(r.t, r.server)
		}
		r.daemon = servers.NewDaemon(r.t, r.flags()...)
		r.daemon.Env = r.scenario.env
	}
}

func (r *run) sql(st step) bool {
	r.t.Helper()
	words, fails := st.words, false
	if at := slices.Index(words, "fails"); at >= 0 {
		words, fails = slices.Delete(slices.Clone(words), at, at+1), true
	}
	if len(words) > 1 {
		r.t.Errorf("sql %v: more than one session", words)
		return false
	}
	ctx := r.t.Context()
	var conn *sql.Conn
	if len(words) == 1 {
		conn = r.sessions[words[0]]
	}
	if conn == nil {
		conn = r.server.Session(r.t)
		if _, err := conn.ExecContext(ctx, "USE db"); err != nil {
			r.t.Error(err)
			return false
		}
		if len(words) == 1 {
			r.sessions[words[0]] = conn
		} else {
			defer conn.Close() // not pooled: closing it ends the session
		}
	}
	_, err := conn.ExecContext(ctx, strings.TrimRight(st.body, " \t\n;"))
	if (err != nil) != fails {
		r.t.Errorf("sql: error %v, expected one: %v; in:\n%s", err, fails, st.body)
		return false
	}
	return true
}

func (r *run) stopped() bool {
	r.t.Helper()
	if code := r.daemon.Stop(); code != 0 {
		r.t.Errorf("exit code %d after SIGTERM", code)
		return false
	}
	return true
}

// forget removes the stored state of the daemon.
func (r *run) forget() bool {
	r.t.Helper()
	entries, err := os.ReadDir(r.daemon.StateDir)
	if err != nil {
		r.t.Error(err)
		return false
	}
	for _, entry := range entries {
		if err := os.RemoveAll(filepath.Join(r.daemon.StateDir, entry.Name())); err != nil {
			r.t.Error(err)
			return false
		}
	}
	return true
}

func (r *run) noLag() bool {
	r.t.Helper()
	deadline := time.Now().Add(expectLimit)
	for {
		err := r.daemon.Ready()
		lag := r.daemon.Metric("rowcached_replication_lag_seconds")
		if err == nil && lag == "0" {
			return true
		}
		if time.Now().After(deadline) {
			r.t.Errorf("lag %q, ready: %v, after %v", lag, err, expectLimit)
			return false
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// expect asks for the keys until all have the expected values. why tells the circumstances of a failure.
func (r *run) expect(lines []line, why string) bool {
	r.t.Helper()
	keys := make([]string, len(lines))
	for i, l := range lines {
		keys[i] = l.key
		r.expected[l.key] = l
	}
	deadline := time.Now().Add(expectLimit)
	for {
		values, err := r.daemon.Fetch(keys...)
		diff := difference(lines, values, err)
		if diff == "" {
			return true
		}
		if time.Now().After(deadline) {
			r.t.Errorf("%safter %v:\n%s", why, expectLimit, diff)
			return false
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// difference tells each line that does not hold: what was expected, then what was got.
func difference(lines []line, values map[string][]byte, err error) string {
	var diff strings.Builder
	for _, l := range lines {
		value, hit := values[l.key]
		if hit != l.miss && (l.miss || string(value) == l.value) && err == nil {
			continue
		}
		fmt.Fprintf(&diff, "%s\n  want %s\n  got  %s\n", l.key, show(l.value, !l.miss), show(string(value), hit))
	}
	if err != nil {
		fmt.Fprintf(&diff, "error: %v\n", err)
	}
	return diff.String()
}

func show(value string, hit bool) string {
	if !hit {
		return "MISS"
	}
	for _, c := range []byte(value) {
		if c < ' ' || c == 0x7f || c == '"' && value[0] == '"' {
			return strconv.Quote(value)
		}
	}
	if value == "" || strconv.Quote(value) != `"`+strings.ReplaceAll(strings.ReplaceAll(value, `\`, `\\`), `"`, `\"`)+`"` {
		return strconv.Quote(value)
	}
	return value
}

func (r *run) twoPath(lines []line) bool {
	r.t.Helper()
	var diff string
	for deadline := time.Now().Add(expectLimit); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		diff = ""
		for _, l := range lines {
			values, err := r.daemon.Fetch(l.key, l.value)
			a, hitA := values[l.key]
			b, hitB := values[l.value]
			if err != nil || !hitA || !hitB || string(a) != string(b) {
				diff += fmt.Sprintf("%s and %s\n  %s\n  %s\nerror: %v\n", l.key, l.value, show(string(a), hitA), show(string(b), hitB), err)
			}
		}
		if diff == "" {
			return true
		}
	}
	r.t.Errorf("after %v:\n%s", expectLimit, diff)
	return false
}

func (r *run) commands(lines []line) bool {
	r.t.Helper()
	client := r.daemon.Client(r.t)
	for _, l := range lines {
		if reply := client.Cmd(l.key); reply != l.value {
			r.t.Errorf("> %s\n  want %q\n  got  %q", l.key, l.value, reply)
			return false
		}
	}
	return true
}

// ended checks a process's exit code (want -1: any but 0) and that its output holds each line.
func (r *run) ended(exit, want int, output, body string) bool {
	r.t.Helper()
	ok := exit == want || want == -1 && exit > 0
	if !ok {
		r.t.Errorf("exit code %d, want %d (-1: any but 0); output:\n%s", exit, want, output)
	}
	for row := range nonEmpty(body) {
		if !strings.Contains(output, row) {
			r.t.Errorf("the output does not contain %q:\n%s", row, output)
			ok = false
		}
	}
	return ok
}

// recheck restarts the daemon on its state and without it; what was expected must hold both times.
func (r *run) recheck() {
	r.t.Helper()
	var lines []line
	for _, key := range slices.Sorted(maps.Keys(r.expected)) {
		lines = append(lines, r.expected[key])
	}
	for _, fresh := range []bool{false, true} {
		why := "restarted on its state, "
		if !r.stopped() {
			return
		}
		if fresh {
			why = "restarted without its state, "
			if !r.forget() {
				return
			}
		}
		r.daemon.Start()
		r.daemon.WaitReady()
		if !r.expect(lines, why) {
			return
		}
	}
}

// expectRows compares the expectations with the rows on the server.
func (r *run) expectRows(lines []line) bool {
	r.t.Helper()
	items, err := r.oracle.items(r.t.Context(), r.server.DB())
	if err != nil {
		r.t.Error(err)
		return false
	}
	if diff := difference(lines, items, nil); diff != "" {
		r.t.Errorf("by the rows on the server:\n%s", diff)
		return false
	}
	return true
}
