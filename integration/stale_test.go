package integration

import (
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// Case 143: with max_staleness rows are served for so long after the source has gone, then answered with an error, or missed
// by option, on every command and protocol; keys of no table are served on; what holds is told; and it ends by itself.
func TestStale143(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT); INSERT INTO db.t VALUES(1,1)")
		flags := []string{"--source", s.DSN("root"), "--table", "db.t", "--max_staleness", "1s"}
		d := servers.StartDaemon(t, flags...)
		missing := servers.StartDaemon(t, append(flags, "--stale_reads", "miss")...)
		for _, d := range []*servers.Daemon{d, missing} {
			d.WaitReady()
			if got := d.Cmd("set u 0 0 1\r\nx"); got != "STORED\r\n" {
				t.Fatalf("set: %q", got)
			}
		}
		// An idle source is not a stale one.
		for end := time.Now().Add(1500 * time.Millisecond); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			for _, d := range []*servers.Daemon{d, missing} {
				if values, err := d.Fetch("t:1"); err != nil || string(values["t:1"]) != `{"id":1,"v":1}` {
					t.Fatalf("while the source is idle: %q, %v", values, err)
				}
			}
		}
		s.Kill()
		const row = "VALUE t:1 0 14\r\n{\"id\":1,\"v\":1}\r\nEND\r\n"
		within(t, "the error", func() bool { return strings.HasPrefix(d.Cmd("get t:1"), "SERVER_ERROR stale") })
		within(t, "the miss", func() bool { return missing.Cmd("get t:1") == "END\r\n" })
		for _, command := range []string{"get u t:1", "gets t:1", "get @@t.1", "mg t:1 v", "me t:1"} {
			if got := d.Cmd(command); !strings.HasPrefix(got, "SERVER_ERROR stale") || strings.Count(got, "\n") != 1 {
				t.Errorf("%s: %q", command, got)
			}
		}
		for command, want := range map[string]string{
			"get u": "VALUE u 0 1\r\nx\r\nEND\r\n", "mg u v": "VA 1\r\nx\r\n", "get other": "END\r\n",
		} {
			for _, d := range []*servers.Daemon{d, missing} {
				if got := d.Cmd(command); got != want {
					t.Errorf("%s: %q, want %q", command, got, want)
				}
			}
		}
		for _, d := range []*servers.Daemon{d, missing} {
			if err := d.Ready(); err == nil || !strings.Contains(err.Error(), "max_staleness") {
				t.Errorf("/-/ready: %v", err)
			}
		}
		if n := d.Metric(`rowcached_commands_total{command="get",result="withheld"}`); n == "0" || n == "" {
			t.Errorf("withheld reads counted: %q", n)
		}
		s.Restart()
		within(t, "the row again", func() bool { return d.Cmd("get t:1") == row })
		within(t, "the row again", func() bool { return missing.Cmd("get t:1") == row })
	})
}

// within waits for a condition.
func within(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not come", what)
		}
	}
}
