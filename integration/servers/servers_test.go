package servers

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// Each kind starts with the settings that tests rely on, keeps its data and address over a crash, and
// takes a test's own options.
func TestStart(t *testing.T) {
	for _, kind := range Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			s := Start(t, kind, "--binlog-row-image=MINIMAL")
			addr := s.Addr
			s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY); INSERT INTO db.t VALUES(1);")
			s.Kill()
			s.Restart()
			s.Exec(t, "INSERT INTO db.t VALUES(2)")
			s.Restart("--binlog-row-image=NOBLOB")
			s.Exec(t, "INSERT INTO db.t VALUES(3)")
			var format, image, version string
			var rows int
			err := s.DB().QueryRow("SELECT @@global.binlog_format, @@global.binlog_row_image, VERSION(), (SELECT COUNT(*) FROM db.t)").
				Scan(&format, &image, &version, &rows)
			if err != nil {
				t.Fatal(err)
			}
			if format != "ROW" || image != "NOBLOB" || version != s.Version || rows != 3 || s.Addr != addr {
				t.Errorf("format %s, image %s, version %s (%s), %d rows, address %s (%s)", format, image, version, s.Version, rows, s.Addr, addr)
			}
			if s.Flavor == "mariadb" != strings.Contains(version, "MariaDB") {
				t.Errorf("flavor %s for version %s", s.Flavor, version)
			}
			conn := s.Session(t)
			if _, err := conn.ExecContext(t.Context(), "SET time_zone='+05:00'"); err != nil {
				t.Fatal(err)
			}
			var zone string
			if err := conn.QueryRowContext(t.Context(), "SELECT @@time_zone").Scan(&zone); err != nil || zone != "+05:00" {
				t.Errorf("zone %q, error %v", zone, err)
			}
		})
	}
}

func TestMemcached(t *testing.T) {
	for _, version := range []string{Memcached1618, Memcached1645} {
		t.Run(version, func(t *testing.T) {
			m := StartMemcached(t, version, "-m", "64")
			c := m.Client(t)
			if reply := c.Cmd("set k 5 0 4\r\na\r\nb"); reply != "STORED\r\n" {
				t.Errorf("set: %q", reply)
			}
			if reply := c.Cmd("mg k v f"); reply != "VA 4 f5\r\na\r\nb\r\n" {
				t.Errorf("mg: %q", reply)
			}
			if reply := c.Cmd("gets k none k"); strings.Count(reply, "VALUE k 5 4 ") != 2 || !strings.HasSuffix(reply, "END\r\n") {
				t.Errorf("gets: %q", reply)
			}
			if values := c.Get("k", "none"); len(values) != 1 || string(values["k"]) != "a\r\nb" {
				t.Errorf("get: %q", values)
			}
			if reply := c.Cmd("stats"); !strings.HasPrefix(reply, "STAT ") || !strings.HasSuffix(reply, "END\r\n") {
				t.Errorf("stats: %q", reply)
			}
		})
	}
}

// A child ends with its parent even when the parent is killed while the child is stopped.
func TestChildEndsWithParent(t *testing.T) {
	if os.Getenv("SERVERS_TEST_PARENT") == "1" {
		p, err := launch(exec.Command("sleep", "600"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stdout.WriteString("child " + strconv.Itoa(p.pid()) + "\n"); err != nil {
			t.Fatal(err)
		}
		p.wait(time.Minute)
		return
	}
	log := newLogBuffer()
	cmd := exec.Command(os.Args[0], "-test.run=^TestChildEndsWithParent$")
	cmd.Env = append(os.Environ(), "SERVERS_TEST_PARENT=1")
	cmd.Stdout = log
	parent, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	var child int
	for child == 0 {
		text, grew := log.snapshot()
		if _, after, ok := strings.Cut(text, "child "); ok && strings.Contains(after, "\n") {
			line, _, _ := strings.Cut(after, "\n")
			if child, err = strconv.Atoi(line); err != nil {
				t.Fatal(err)
			}
			break
		}
		select {
		case <-grew:
		case <-parent.done:
			t.Fatalf("the parent ended: %v: %s", parent.err, log)
		}
	}
	if err := syscall.Kill(child, syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	if err := parent.kill(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; {
		state, err := os.ReadFile("/proc/" + strconv.Itoa(child) + "/stat")
		if err != nil || strings.Contains(string(state), ") Z ") {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("the child %d outlives its parent: %s", child, state)
		}
		time.Sleep(time.Millisecond)
	}
}
