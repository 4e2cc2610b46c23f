package check

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// The demonstration shows every kind of write arriving, and leaves nothing behind.
func TestDemo(t *testing.T) {
	servers.Start(t, servers.MariaDB1011) // skips where it is not installed
	before := leftovers(t)
	exit, output := servers.RunDaemon(t, "demo")
	if exit != 0 {
		t.Fatalf("exit %d\n%s", exit, output)
	}
	for _, want := range []string{
		`insert +INSERT .*\n +get users:3 -> \{"id":3,"name":"Edith".*\} +[0-9.]+ ms`,
		`update +UPDATE .*\n +get users:1 -> \{"id":1,"name":"Ada L\.".*\} +[0-9.]+ ms`,
		`delete +DELETE .*\n +get users:2 -> \(miss\) +[0-9.]+ ms`,
		`trigger +INSERT INTO shop.orders .*\n +get users:1 -> .*"orders":1.* +[0-9.]+ ms`,
		`event job +CREATE EVENT .*\n +get users:3 -> .*"seen":"2.* +[0-9.]+ ms`,
		`rowcached_replication_lag_seconds [0-9.e-]+\n`,
	} {
		if !regexp.MustCompile(want).MatchString(output) {
			t.Errorf("%s is not in\n%s", want, output)
		}
	}
	if after := leftovers(t); len(after) > len(before) {
		t.Errorf("left behind: %v; before: %v", after, before)
	}
}

func leftovers(t *testing.T) []string {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(os.TempDir(), "rowcached-demo-*"))
	if err != nil {
		t.Fatal(err)
	}
	return list
}
