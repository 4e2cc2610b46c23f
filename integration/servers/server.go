package servers

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/go-sql-driver/mysql"
)

// startLimit bounds the start of a server, stopLimit its orderly end. Generous: test machines are busy.
const (
	startLimit = time.Minute
	stopLimit  = time.Minute
)

// A Server is a database server of its own: data folder, port and socket belong to one test.
type Server struct {
	Kind Kind
	// Addr is the TCP address, "127.0.0.1:PORT"; Socket is the path of the unix socket. Both survive a Restart.
	Addr   string
	Socket string
	// Version is what SELECT VERSION() answers; Flavor is "mysql" or "mariadb".
	Version string
	Flavor  string

	t       testing.TB
	program program
	dir     string // of this server: socket, log
	data    string // its data folder
	args    []string
	process *process
	db      *sql.DB // every use is a new connection: see Exec
}

// Start starts a server of the kind with a fresh data folder and waits until it answers. It ends with the
// test. Options are server options ("--binlog-row-image=MINIMAL") and come after the defaults, which are:
// row binlog with full images, GTIDs on (MySQL), a server id of its own, and no fsync: what was committed
// survives a Kill of the process but not a crash of the machine.
func Start(t testing.TB, kind Kind, options ...string) *Server {
	t.Helper()
	s, err := create(kind, options)
	if err != nil {
		missing(t, err)
	}
	s.t = t
	t.Cleanup(s.remove)
	template, err := kind.template(s.program)
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("cp", "-a", "--reflink=auto", template, s.data).CombinedOutput(); err != nil {
		t.Fatalf("copy the template: %v: %s", err, out)
	}
	// The port was free a moment ago; on a busy machine somebody else may be quicker.
	for try := 1; ; try++ {
		port, err := freePort()
		if err != nil {
			t.Fatal(err)
		}
		s.Addr = fmt.Sprintf("127.0.0.1:%d", port)
		err = s.start(fmt.Sprintf("--port=%d", port))
		if err == nil {
			break
		}
		if try == 3 || !strings.Contains(s.Log(), "Address already in use") {
			t.Fatal(err)
		}
	}
	if err := s.db.QueryRow("SELECT VERSION()").Scan(&s.Version); err != nil {
		t.Fatalf("ask %s for its version: %v", kind, err)
	}
	return s
}

func create(kind Kind, options []string) (*Server, error) {
	p, err := kind.program()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "rowcached-") // not t.TempDir: a socket's path must stay below 108 bytes
	if err != nil {
		return nil, err
	}
	return &Server{
		Kind: kind, Flavor: kind.Flavor(), Socket: filepath.Join(dir, "sock"),
		program: p, dir: dir, data: filepath.Join(dir, "data"), args: options,
	}, nil
}

// start starts the process with the standing arguments between the defaults and the test's own, and waits
// until it answers on its socket.
func (s *Server) start(standing ...string) error {
	if s.Socket == "" {
		s.Socket = filepath.Join(s.dir, "sock")
	}
	args := append([]string{}, s.program.args...)
	args = append(args,
		"--user=root", "--datadir="+s.data, "--socket="+s.Socket, "--pid-file="+filepath.Join(s.dir, "pid"),
		"--bind-address=127.0.0.1", "--skip-name-resolve",
		fmt.Sprintf("--server-id=%d", 1+rand.Uint32N(1<<30)),
		"--sync-binlog=0", "--innodb-flush-log-at-trx-commit=2", "--innodb-buffer-pool-size=32M",
		"--log-bin=binlog", "--binlog-row-image=FULL", "--max-allowed-packet=64M",
		"--performance-schema=OFF", // for the quicker start; the daemon does not read it
	)
	if s.Kind.Flavor() == "mysql" {
		args = append(args, "--gtid-mode=ON", "--enforce-gtid-consistency=ON", "--innodb-redo-log-capacity=16M")
	} else {
		args = append(args, "--binlog-format=ROW", "--innodb-log-file-size=16M")
	}
	args = append(args, standing...)
	args = append(args, s.args...)

	log, err := os.OpenFile(s.logPath(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("open the log of %s: %w", s.Kind, err)
	}
	defer log.Close()
	cmd := exec.Command(s.program.path, args...)
	if cmd.Env, err = privateTemp(s.dir); err != nil {
		return err
	}
	cmd.Stdout, cmd.Stderr = log, log
	if s.process, err = launch(cmd); err != nil {
		return err
	}
	if s.db == nil {
		if s.db, err = s.open(); err != nil {
			return err
		}
	}
	deadline := time.Now().Add(startLimit)
	for {
		err := s.db.Ping()
		if err == nil {
			return nil
		}
		if s.process.wait(20 * time.Millisecond) {
			return fmt.Errorf("%s ended while starting: %v\n%s", s.Kind, s.process.err, tail(s.Log(), 40))
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s does not answer within %v: %w\n%s", s.Kind, startLimit, err, tail(s.Log(), 40))
		}
	}
}

// open prepares root's connections over the socket.
func (s *Server) open() (*sql.DB, error) {
	config := mysql.NewConfig()
	config.User, config.Net, config.Addr = "root", "unix", s.Socket
	config.MultiStatements, config.InterpolateParams = true, true
	config.Logger = &mysql.NopLogger{}
	connector, err := mysql.NewConnector(config)
	if err != nil {
		return nil, err
	}
	db := sql.OpenDB(connector)
	db.SetMaxIdleConns(-1) // a session's settings must not reach the next statement
	return db, nil
}

// DSN returns go-sql-driver's form of a TCP connection as user ("name" or "name:password"), with a default
// database if one is given.
func (s *Server) DSN(user string, db ...string) string {
	return fmt.Sprintf("%s@tcp(%s)/%s", user, s.Addr, strings.Join(db, ""))
}

// DB returns root's connections to the server. Every statement runs on a new connection; multi-statement
// strings are allowed. It is closed with the test.
func (s *Server) DB() *sql.DB { return s.db }

// Session returns one connection of root that stays open, so that settings and transactions last. The test
// may close it; else it is closed with the test.
func (s *Server) Session(t testing.TB) *sql.Conn {
	t.Helper()
	conn, err := s.db.Conn(context.Background())
	if err != nil {
		t.Fatalf("open a session: %v", err)
	}
	t.Cleanup(func() {
		if err := conn.Close(); err != nil && !errors.Is(err, sql.ErrConnDone) && !errors.Is(err, driver.ErrBadConn) {
			t.Errorf("close a session: %v", err)
		}
	})
	return conn
}

// Exec runs a script of one or more statements as root on a connection of its own.
func (s *Server) Exec(t testing.TB, script string) {
	t.Helper()
	if _, err := s.db.Exec(script); err != nil {
		t.Fatalf("%s: %v\nin: %s", s.Kind, err, tail(script, 30))
	}
}

// LogEnd gives the end of the server's binary log.
func (s *Server) LogEnd() (file string, offset int64, err error) {
	query := "SHOW BINARY LOG STATUS"
	if s.Flavor == "mariadb" {
		query = "SHOW MASTER STATUS"
	}
	rows, err := s.db.Query(query)
	if err != nil {
		return "", 0, fmt.Errorf("ask %s for its log's end: %w", s.Kind, err)
	}
	defer rows.Close()
	columns, err := rows.Columns()
	if err != nil {
		return "", 0, err
	}
	targets := make([]any, len(columns))
	for i := range targets {
		targets[i] = new(sql.RawBytes)
	}
	targets[0], targets[1] = &file, &offset
	if !rows.Next() {
		return "", 0, errors.Join(fmt.Errorf("%s writes no log", s.Kind), rows.Err())
	}
	return file, offset, rows.Scan(targets...)
}

// Pid returns the process id of the running server.
func (s *Server) Pid() int { return s.process.pid() }

// Ended tells whether the server's process has ended, by itself or not.
func (s *Server) Ended() bool { return s.process.exited() }

// Stop ends the server in order (SIGTERM).
func (s *Server) Stop() {
	s.t.Helper()
	if err := s.stop(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *Server) stop() error {
	if err := s.process.signal(syscall.SIGTERM); err != nil {
		return err
	}
	if !s.process.wait(stopLimit) {
		return errors.Join(fmt.Errorf("%s did not stop within %v", s.Kind, stopLimit), s.process.kill())
	}
	return nil
}

// Kill ends the server at once (SIGKILL), as a crash would.
func (s *Server) Kill() {
	s.t.Helper()
	if err := s.process.kill(); err != nil {
		s.t.Fatal(err)
	}
}

// Restart starts the server again on the same address and data, after a Stop or Kill or else after a Stop
// of its own. Options replace those given to Start if there are any.
func (s *Server) Restart(options ...string) {
	s.t.Helper()
	if !s.process.exited() {
		s.Stop()
	}
	if len(options) > 0 {
		s.args = options
	}
	_, port, err := net.SplitHostPort(s.Addr)
	if err != nil {
		s.t.Fatal(err)
	}
	if err := s.start("--port=" + port); err != nil {
		s.t.Fatal(err)
	}
}

// Pause stops the server's process as it stands (SIGSTOP): connections stay open and get no answer.
func (s *Server) Pause() { s.send(syscall.SIGSTOP) }

// Resume lets a paused server go on (SIGCONT).
func (s *Server) Resume() { s.send(syscall.SIGCONT) }

func (s *Server) send(sig os.Signal) {
	s.t.Helper()
	if err := s.process.signal(sig); err != nil {
		s.t.Fatal(err)
	}
}

// Log returns the server's error log.
func (s *Server) Log() string {
	text, err := os.ReadFile(s.logPath())
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func (s *Server) logPath() string { return filepath.Join(s.dir, "log") }

// remove ends the server and deletes its files; the log of a failed test is shown.
func (s *Server) remove() {
	if s.db != nil {
		if err := s.db.Close(); err != nil {
			s.t.Errorf("close the connections to %s: %v", s.Kind, err)
		}
	}
	if s.process != nil {
		if err := s.process.kill(); err != nil {
			s.t.Error(err)
		}
	}
	if s.t.Failed() {
		s.t.Logf("the log of %s %s:\n%s", s.Kind, s.Addr, tail(s.Log(), 30))
	}
	if err := os.RemoveAll(s.dir); err != nil {
		s.t.Errorf("remove the files of %s: %v", s.Kind, err)
	}
}

// freePort returns a TCP port of loopback that nothing listens on. It lies below the range from which the
// kernel takes the local ports of outgoing connections, so that it is still free after a Restart.
func freePort() (int, error) {
	for range 100 {
		port := 20000 + rand.IntN(12000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			continue
		}
		return port, l.Close()
	}
	return 0, errors.New("no free port between 20000 and 32000 in 100 tries")
}
