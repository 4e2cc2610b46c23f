package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/spf13/pflag"
)

// logBuffer collects a daemon's log for a test that reads it meanwhile.
type logBuffer struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// startProgram runs the whole program on free ports until the test ends, and gives its two addresses.
func startProgram(t *testing.T, args ...string) (memcached, admin string) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var out, log logBuffer
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, append([]string{"run", "-m", "8", "-p", "-1", "--admin.listen", "127.0.0.1:0"}, args...), &out, &log)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the daemon ended with %v\n%s", err, log.String())
		}
	})
	address := func(protocol string) string {
		line := regexp.MustCompile(`msg=listening protocol=` + protocol + ` addr=(\S+)`)
		for {
			if m := line.FindStringSubmatch(log.String()); m != nil {
				return m[1]
			}
			select {
			case err := <-done:
				done <- err
				t.Fatalf("ended: %v\n%s", err, log.String())
			case <-time.After(5 * time.Millisecond):
			}
		}
	}
	return address("memcached"), address("http")
}

// TestDaemonWithoutSource runs the whole program as a plain memcached and ends it as SIGTERM does.
func TestDaemonWithoutSource(t *testing.T) {
	address, _ := startProgram(t)
	exchange(t, address, "> set k 0 0 1\n> x\n< STORED\n")
}

// TestUsage checks that the command line's faults end with exit code 2 and say what is wrong.
func TestUsage(t *testing.T) {
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"run", "--nonsense"}, "unknown flag"},
		{[]string{"run", "-t", "0"}, "must be positive"},
		{[]string{"run", "-c", "0"}, "must be positive"},
		{[]string{"run", "-o", "ext_path=x"}, "-o ext_path"},
		{[]string{"run", "--table", "db.t"}, "source.dsn is empty"},
		{[]string{"run", "--memory.limit", "lots"}, "is not a size"},
		{[]string{"run", "--server.listen", "0.0.0.0:0"}, "auth_file"},
		{[]string{"run", "-l", "0.0.0.0"}, "auth_file"},
		{[]string{"run", "-l", "127.0.0.1,10.1.2.3:5"}, "10.1.2.3:5 can be reached"},
		{[]string{"run", "-p", "70000"}, "not a port"},
		{[]string{"run", "-B", "http"}, "auto, ascii and binary"},
		{[]string{"run", "-S", "-B", "ascii"}, "needs the binary protocol"},
		{[]string{"run", "-S", "-B", "auto"}, "needs the binary protocol"},
		{[]string{"run", "-I", "10"}, "between 1KiB and 1GiB"},
		{[]string{"run", "-m", "64", "-I", "256m"}, "half of the memory limit"},
		{[]string{"run", "-I", "256m"}, "pass -m"},
		{[]string{"run", "-l", "mtls:127.0.0.1"}, "with -Z alone"},
		{[]string{"run", "-o", "ssl_verify_mode=4"}, "2 or 3 (required)"},
		{[]string{"run", "-o", "ssl_min_version=9"}, "3 (1.3)"},
		{[]string{"run", "-o", "ssl_keyformat=2"}, "PEM"},
		{[]string{"run", "-o", "ssl_ciphers=NULL-MD5"}, "ECDHE-RSA-AES128-GCM-SHA256"},
		{[]string{"run", "-Z"}, "server.tls.cert"},
		{[]string{"run", "-d", "-p", "-1", "-m", "none"}, "-m none"},
		{[]string{"run", "-u", "nobody-of-that-name"}, "unknown user"},
		{[]string{"run", "-c", "no-such-file.yaml"}, "no-such-file.yaml"},
		{[]string{"run", "-m", "8", "--source", "nonsense", "--table", "a.b"}, "source.dsn"},
		{[]string{"run", "extra"}, "takes no argument"},
		{[]string{"check"}, "no source to check"},
		{[]string{"bench", "--workload", "nonsense"}, "it is one of get, set, mixed, multiget"},
		{[]string{"bench", "--workload", "get,"}, "it is one of"},
		{[]string{"bench", "--duration", "0s"}, "--duration must be positive"},
		{[]string{"bench", "--size", "9-1"}, "--size 1: it is between 9 and"},
		{[]string{"bench", "--size", "much"}, "64-1024"},
		{[]string{"bench", "--key", "k"}, "bench:{n}"},
		{[]string{"bench", "--any-value"}, "--no-fill"},
		{[]string{"bench", "--threads", "51"}, "between 1 and 50"},
		{[]string{"bench", "--address", "a:b:c"}, "not an address"},
		{[]string{"bench", "here"}, "takes no argument"},
		{[]string{"chek"}, "did you mean check?"},
	} {
		var stderr bytes.Buffer
		err := run(context.Background(), tc.args, &stderr, &stderr)
		if code := exitCode(err, &stderr); code != exitUsage || !strings.Contains(stderr.String(), tc.want) {
			t.Errorf("%v: exit %d, %s", tc.args, code, stderr.String())
		}
	}
}

// TestHelp: "run -h" is what memcached's clients and tests read as memcached's own.
func TestHelp(t *testing.T) {
	var out bytes.Buffer
	if err := run(context.Background(), []string{"run", "-h"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	if first, _, _ := strings.Cut(out.String(), "\n"); !strings.HasPrefix(first, "memcached 1.6.") {
		t.Errorf("the first line is %q", first)
	}
	var ask bytes.Buffer
	if err := run(context.Background(), []string{"run", "--enable-ssl", "--version"}, &ask, &ask); err != nil || ask.String() != "memcached 1.6.45\n" {
		t.Errorf("--version: %q %v", ask.String(), err)
	}
	for _, word := range []string{"enable-ssl", "unix-socket", "enable-sasl", "--server.max_item_size"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("the help does not speak of %s", word)
		}
	}
}

// loaded gives the configuration that a command line makes.
func loaded(t *testing.T, args ...string) *config.Config {
	t.Helper()
	var f configFlags
	fs := pflag.NewFlagSet("run", pflag.ContinueOnError)
	f.register(fs)
	f.memcached.register(fs, &f.file)
	if err := fs.Parse(args); err != nil {
		t.Fatal(err)
	}
	c, err := f.load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// TestOrder: a flag wins over the environment, that over the file, that over the default.
func TestOrder(t *testing.T) {
	dir := t.TempDir()
	file, secret := filepath.Join(dir, "r.yaml"), filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("pass word\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte("memory: {limit: 2MiB}\nserver: {threads: 2, max_connections: 2}\nadmin: {listen: \"127.0.0.1:2\"}\n"+
		"source: {dsn: \"u@tcp(h:1)/\", password_file: "+secret+"}\ntables: [{table: a.b}]\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ROWCACHED_SERVER_THREADS", "3")
	t.Setenv("ROWCACHED_SERVER_MAX_CONNECTIONS", "3")
	c := loaded(t, "-c", file, "--server.threads=4", "--table", "c.d", "--server.listen", "127.0.0.1:1", "--server.listen", "unix:/x")
	switch {
	case c.Memory.Limit != 2<<20, c.Server.Threads != 4, c.Server.MaxConnections != 3, c.Admin.Listen != "127.0.0.1:2",
		c.Source.Password != "pass word", c.Server.MaxItemSize != 1<<20, len(c.Tables) != 2 || c.Tables[1].Table != "c.d",
		!slices.Equal(c.Server.Listen, []string{"127.0.0.1:1", "unix:/x"}):
		t.Errorf("%+v", c)
	}
}

// TestMemcachedOptions: memcached's own options mean what they mean there.
func TestMemcachedOptions(t *testing.T) {
	for _, tc := range []struct {
		args   []string
		listen string
	}{
		{nil, "127.0.0.1:11211"},
		{[]string{"-p", "5"}, "127.0.0.1:5"},
		{[]string{"-p", "-1"}, "127.0.0.1:0"},
		{[]string{"-p", "0"}, "none"},
		{[]string{"-p", "0", "-U", "5"}, "none"},
		{[]string{"-U", "5"}, "127.0.0.1:5"},
		{[]string{"-U", "0"}, "127.0.0.1:11211"},
		{[]string{"-Z", "-o", "ssl_chain_cert=c,ssl_key=k", "-l", "notls:127.0.0.1:1,127.0.0.1:2;mtls:127.0.0.1"}, "127.0.0.1:1,tls:127.0.0.1:2,mtls:127.0.0.1:11211"},
		{[]string{"-l", "127.0.0.2,127.0.0.1:9", "-p", "5", "-U", "5"}, "127.0.0.2:5,127.0.0.1:9"},
		{[]string{"-l", "::1"}, "[::1]:11211"},
		{[]string{"-s", "/tmp/s", "-a", "700"}, "unix:/tmp/s"},
		{[]string{"-l", "0.0.0.0", "--server.allow_anonymous"}, "0.0.0.0:11211"},
	} {
		if got := strings.Join(loaded(t, tc.args...).Server.Listen, ","); got != tc.listen {
			t.Errorf("%v: listens on %s, want %s", tc.args, got, tc.listen)
		}
	}
	c := loaded(t, "-m", "128", "-c", "77", "-t", "3", "-I", "2m", "-o", "idle_timeout=9,no_modern", "-vv", "-B", "auto", "-C", "-R", "5", "-b", "9")
	if c.Memory.Limit != 128<<20 || c.Server.MaxConnections != 77 || c.Server.Threads != 3 || c.Server.MaxItemSize != 2<<20 ||
		time.Duration(c.Server.IdleTimeout) != 9*time.Second {
		t.Errorf("%+v", c)
	}
}

// TestBackground: -d returns when the daemon listens, which goes on in another process and writes that one's id; a
// daemon that cannot listen is reported by the process that was started.
func TestBackground(t *testing.T) {
	if startedInBackground() { // this is the process that the program of the test started
		err := run(t.Context(), strings.Split(os.Getenv("ROWCACHED_TEST_ARGS"), " "), os.Stdout, os.Stderr)
		os.Exit(exitCode(err, os.Stderr))
	}
	dir := t.TempDir()
	socket, pidFile := filepath.Join(dir, "s"), filepath.Join(dir, "pid")
	args := []string{"run", "-d", "-m", "8", "-A", "-s", socket, "-P", pidFile, "--admin.listen="}
	t.Setenv("ROWCACHED_TEST_ARGS", strings.Join(args, " "))
	before := os.Args
	os.Args = []string{before[0], "-test.run=^TestBackground$"}
	defer func() { os.Args = before }()
	stderr, err := os.Create(filepath.Join(dir, "stderr")) // a file, as a program's is: the daemon writes to it by itself
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	said := func() string {
		text, err := os.ReadFile(stderr.Name())
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if err := run(t.Context(), args, stderr, stderr); err != nil {
		t.Fatalf("%v\n%s", err, said())
	}
	conn, err := net.Dial("unix", socket)
	if err != nil {
		t.Fatalf("-d returned, and nobody listens: %v", err)
	}
	defer conn.Close()
	pid, err := os.ReadFile(pidFile)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.WriteString(conn, "stats\r\n"); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(conn)
	if line, err := in.ReadString('\n'); strings.TrimSpace(line) != "STAT pid "+strings.TrimSpace(string(pid)) {
		t.Errorf("%q %v, and %q in the pid file", line, err, pid)
	}
	if err := run(t.Context(), args, stderr, stderr); !errors.Is(err, errReported) || !strings.Contains(said(), "another program listens there") {
		t.Errorf("the second daemon on one socket: %v\n%s", err, said())
	}
	if _, err := io.WriteString(conn, "shutdown\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, in); err != nil {
		t.Error(err)
	}
}
