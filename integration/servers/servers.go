// Package servers starts what the integration tests talk to: real mysqld and mariadbd servers, real
// memcached servers and the built rowcached binary. Each is a child process of the test on loopback, with
// its files in a temporary folder.
//
// A process started here ends with its test, and also when the test binary panics or is killed: the kernel
// then kills it (see process.go). Nothing here ends a process by name.
//
// scripts/servers.sh provides the programs. A test skips when the server it asks for is absent, unless
// ROWCACHED_REQUIRE_SERVERS=1 is set: then it fails.
//
//	srv := servers.Start(t, servers.MySQL97)
//	srv.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT)")
//	d := servers.StartDaemon(t, "--source", srv.DSN("root"), "--table", "db.t")
//	d.WaitReady()
//	value, hit := d.Get("t:1")
package servers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// A Kind names a database server product and release.
type Kind string

// The kinds that scripts/servers.sh provides.
const (
	MySQL97     Kind = "mysql97"
	MariaDB1011 Kind = "mariadb1011"
	MariaDB118  Kind = "mariadb118"
)

// Kinds returns every kind, the newest MySQL first.
func Kinds() []Kind { return []Kind{MySQL97, MariaDB1011, MariaDB118} }

// Flavor returns "mysql" or "mariadb".
func (k Kind) Flavor() string {
	if k == MySQL97 {
		return "mysql"
	}
	return "mariadb"
}

// A program is a server program on this machine, and the arguments every start of it needs.
type program struct {
	path string
	args []string
	// scripts is the folder of MariaDB's bootstrap SQL; empty for MySQL, which bootstraps itself.
	scripts string
}

// folder returns the folder of the unpacked servers: ROWCACHED_SERVERS, else one in the user's cache.
func folder() (string, error) {
	if dir := os.Getenv("ROWCACHED_SERVERS"); dir != "" {
		return dir, nil
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("find the servers folder: %w", err)
	}
	return filepath.Join(cache, "rowcached", "servers"), nil
}

// program finds the server program of the kind.
func (k Kind) program() (program, error) {
	dir, err := folder()
	if err != nil {
		return program{}, err
	}
	switch k {
	case MySQL97:
		return found(program{path: filepath.Join(dir, "mysql-9.7", "run", "mysqld")})
	case MariaDB118:
		root := filepath.Join(dir, "mariadb-11.8")
		return found(program{
			path:    filepath.Join(root, "run", "mariadbd"),
			scripts: filepath.Join(root, "usr", "share", "mariadb"),
		})
	case MariaDB1011:
		return found(program{path: system("mariadbd"), args: []string{"--no-defaults"}, scripts: "/usr/share/mysql"})
	}
	return program{}, fmt.Errorf("no server kind %q (known: %v)", k, Kinds())
}

func found(p program) (program, error) {
	if _, err := os.Stat(p.path); err != nil {
		return program{}, fmt.Errorf("%s is not there (run scripts/servers.sh)", p.path)
	}
	return p, nil
}

// system returns the path of a program that the machine's own packages bring; some live outside a user's PATH.
func system(name string) string {
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	return "/usr/sbin/" + name
}

// version returns the first line of the program's --version.
func (p program) version() (string, error) {
	out, err := exec.Command(p.path, append(p.args[:len(p.args):len(p.args)], "--version")...).Output()
	if err != nil {
		return "", fmt.Errorf("%s --version: %w", p.path, err)
	}
	line, _, _ := strings.Cut(string(out), "\n")
	return line, nil
}

// missing ends the test because a server it needs is not provisioned: a skip, or a failure where
// ROWCACHED_REQUIRE_SERVERS=1 says that the machine was prepared.
func missing(t testing.TB, err error) {
	t.Helper()
	if os.Getenv("ROWCACHED_REQUIRE_SERVERS") == "1" {
		t.Fatalf("ROWCACHED_REQUIRE_SERVERS=1, but %v", err)
	}
	t.Skipf("skipped: %v", err)
}
