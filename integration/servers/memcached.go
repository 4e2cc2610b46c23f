package servers

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The memcached releases that scripts/servers.sh provides.
const (
	Memcached1618 = "1.6.18" // the machine's own package (whichever 1.6 that is)
	Memcached1645 = "1.6.45"
)

// A Memcached is a real memcached server.
type Memcached struct {
	Addr string // "127.0.0.1:PORT"

	t       testing.TB
	process *process
	log     *logBuffer
}

// StartMemcached starts a memcached of the release with further arguments ("-m", "64") and waits until it
// accepts connections. It ends with the test.
func StartMemcached(t testing.TB, version string, args ...string) *Memcached {
	t.Helper()
	path := system("memcached")
	if version == Memcached1645 {
		dir, err := folder()
		if err != nil {
			t.Fatal(err)
		}
		path = filepath.Join(dir, "memcached-1.6.45", "run", "memcached")
	} else if version != Memcached1618 {
		t.Fatalf("no memcached %q (known: %s, %s)", version, Memcached1618, Memcached1645)
	}
	if _, err := os.Stat(path); err != nil {
		missing(t, fmt.Errorf("%s is not there (run scripts/servers.sh)", path))
	}
	m := &Memcached{t: t, log: newLogBuffer()}
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		m.Addr = fmt.Sprintf("127.0.0.1:%d", port)
		cmd := exec.Command(path, append([]string{"-u", "root", "-l", "127.0.0.1", "-U", "0", "-p", fmt.Sprint(port)}, args...)...)
		cmd.Stdout, cmd.Stderr = m.log, m.log
		if m.process, err = launch(cmd); err != nil {
			t.Fatal(err)
		}
		if m.accepts() {
			break
		}
		if err := m.process.kill(); err != nil {
			t.Fatal(err)
		}
		if try == 3 || !strings.Contains(m.log.String(), "in use") {
			t.Fatalf("memcached %s did not start:\n%s", version, m.log)
		}
	}
	t.Cleanup(func() {
		if err := m.process.kill(); err != nil {
			t.Error(err)
		}
		if t.Failed() && m.log.String() != "" {
			t.Logf("the log of memcached %s:\n%s", m.Addr, tail(m.log.String(), 30))
		}
	})
	return m
}

// accepts waits until the server takes a connection; false if it ended or does not in time.
func (m *Memcached) accepts() bool {
	for deadline := time.Now().Add(startLimit); time.Now().Before(deadline); {
		conn, err := net.Dial("tcp", m.Addr)
		if err == nil {
			conn.Close()
			// Another process's listener would have answered too: ours must still be there.
			return !m.process.wait(10 * time.Millisecond)
		}
		if m.process.wait(10 * time.Millisecond) {
			return false
		}
	}
	return false
}

// Pid returns the server's process id.
func (m *Memcached) Pid() int { return m.process.pid() }

// Client opens a connection to the server; it is closed with the test.
func (m *Memcached) Client(t testing.TB) *Client {
	t.Helper()
	return Dial(t, m.Addr)
}
