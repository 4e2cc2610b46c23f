package integration

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/bradfitz/gomemcache/memcache"

	"github.com/rowcached/rowcached/integration/servers"
)

// A client library that knows nothing of rowcached reads a row, is refused a write to it, and uses the keys of no table as
// those of any memcached.
func TestClientGomemcache(t *testing.T) {
	forEachKind(t, clientGomemcache)
}

func clientGomemcache(t *testing.T, kind servers.Kind) {
	s := servers.Start(t, kind)
	s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL); INSERT INTO db.t VALUES(1,10)")
	d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t")
	d.WaitReady()
	c := memcache.New(d.Addr())
	item, err := c.Get("t:1")
	if err != nil || string(item.Value) != `{"id":1,"v":10}` {
		t.Fatalf("get t:1: %v, %v", item, err)
	}
	if err := c.Set(&memcache.Item{Key: "t:1", Value: []byte("x")}); err == nil || !strings.Contains(err.Error(), "SERVER_ERROR key belongs to table t") {
		t.Errorf("set t:1: %v", err)
	}
	if err := c.Delete("t:1"); err == nil {
		t.Error("delete t:1 was not refused")
	}
	if err := c.FlushAll(); err != nil {
		t.Error(err)
	}
	if _, err := c.Get("t:1"); err != nil {
		t.Errorf("get t:1 after flush_all: %v", err)
	}
	if err := c.Set(&memcache.Item{Key: "n", Value: []byte("41"), Flags: 7}); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Increment("n", 1); err != nil || n != 42 {
		t.Errorf("incr: %d, %v", n, err)
	}
	first, err := c.Get("n")
	if err != nil || first.Flags != 7 {
		t.Fatalf("get n: %v, %v", first, err)
	}
	if err := c.Set(&memcache.Item{Key: "n", Value: []byte("1")}); err != nil {
		t.Fatal(err)
	}
	if err := c.CompareAndSwap(first); !errors.Is(err, memcache.ErrCASConflict) {
		t.Errorf("cas of an older value: %v", err)
	}
	if _, err := c.Get("t:2"); !errors.Is(err, memcache.ErrCacheMiss) {
		t.Errorf("get of a row that is not there: %v", err)
	}
}

// memccapable asks for what a memcached must be able to do: 27 checks in text, 27 in binary.
func TestMemccapable(t *testing.T) {
	program, err := exec.LookPath("memccapable")
	if err != nil {
		t.Skip("memccapable is not installed (scripts/servers.sh brings it)")
	}
	d := servers.StartDaemon(t)
	host, port, err := net.SplitHostPort(d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	for _, protocol := range []string{"-a", "-b"} {
		out, err := exec.Command(program, "-h", host, "-p", port, "-t", "10", protocol).CombinedOutput()
		passed := strings.Count(string(out), "[pass]")
		if err != nil || passed != 27 || strings.Contains(string(out), "FAIL") {
			t.Errorf("memccapable %s: %d of 27 passed, %v\n%s", protocol, passed, err, out)
		}
		t.Logf("memccapable %s: %d of 27 passed", protocol, passed)
	}
}

// TestGomemcacheSuite runs gomemcache's own tests against the built binary: they talk to localhost:11211 and start
// "memcached" with its own options, TLS included, from PATH.
func TestGomemcacheSuite(t *testing.T) {
	const address = "127.0.0.1:11211"
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Skipf("gomemcache's tests need %s: %v", address, err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	// One loop: the suite sends flush_all on one connection and, without waiting for the answer, sets on another.
	servers.StartDaemon(t, "--server.listen", address, "--server.threads", "1")
	dir := t.TempDir()
	shim := fmt.Sprintf(`#!/bin/sh
[ "$1 $2" = "--enable-ssl --version" ] && exec echo "memcached 1.6.45"
exec %q run --admin.listen= "$@"
`, servers.Binary(t))
	if err := os.WriteFile(filepath.Join(dir, "memcached"), []byte(shim), 0o755); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "test", "-v", "-count=1", "github.com/bradfitz/gomemcache/memcache")
	cmd.Env = append(os.Environ(), "PATH="+dir+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	count := func(word string) int {
		return len(regexp.MustCompile(`(?m)^\s*--- `+word).FindAll(out, -1))
	}
	if err != nil || count("PASS") == 0 || count("FAIL") > 0 || count("SKIP") > 0 {
		t.Errorf("gomemcache's tests: %v\n%s", err, out)
	}
	t.Logf("gomemcache's tests: %d passed, %d failed, %d skipped", count("PASS"), count("FAIL"), count("SKIP"))
}
