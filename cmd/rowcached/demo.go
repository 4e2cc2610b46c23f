package main

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/rowcached/rowcached/mapping"
)

func demoCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "demo",
		Short: "Show SQL writes arriving over memcached, on a private database that is removed afterwards",
		Long: `Start a private MariaDB in a temporary folder (mariadbd must be installed), map one table, and show each SQL write
beside the memcached get that sees it: plain statements, a trigger of another table, and an event-scheduler job.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return demo(cmd.Context(), cmd.OutOrStdout())
		},
	}
}

const demoSchema = `CREATE DATABASE shop;
CREATE TABLE shop.users (id INT PRIMARY KEY, name VARCHAR(40) NOT NULL, orders INT NOT NULL DEFAULT 0, seen DATETIME(3) NULL);
CREATE TABLE shop.orders (id INT AUTO_INCREMENT PRIMARY KEY, user_id INT NOT NULL, amount DECIMAL(10,2) NOT NULL);
CREATE TRIGGER shop.count_orders AFTER INSERT ON shop.orders FOR EACH ROW
  UPDATE shop.users SET orders = orders + 1 WHERE id = NEW.user_id;
INSERT INTO shop.users (id, name) VALUES (1, 'Ada'), (2, 'Grace')`

// demo runs the demonstration and cleans up whatever happens.
func demo(ctx context.Context, out io.Writer) (err error) {
	ctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
	defer cancel()
	dir, err := os.MkdirTemp("", "rowcached-demo-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()

	fmt.Fprintln(out, "Starting a private MariaDB ...")
	db, err := startDemoDatabase(ctx, dir)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.stop()) }()
	for stmt := range strings.SplitSeq(demoSchema, ";\n") {
		if _, err := db.sql.ExecContext(ctx, stmt); err != nil {
			return fmt.Errorf("prepare the demo's tables: %w", err)
		}
	}

	d := &demonstration{out: out, db: db.sql, logs: &bytes.Buffer{}}
	stop, err := d.startDaemon(ctx, db.socket)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stop()) }()
	return d.show(ctx)
}

// demoDatabase is a private MariaDB.
type demoDatabase struct {
	cmd    *exec.Cmd
	done   chan error
	socket string
	sql    *sql.DB
}

func startDemoDatabase(ctx context.Context, dir string) (*demoDatabase, error) {
	server, err := findProgram("mariadbd")
	if err != nil {
		return nil, errors.New("mariadbd is not installed; install MariaDB's server package (Debian: apt-get install mariadb-server) and try again")
	}
	install, err := findProgram("mariadb-install-db")
	if err != nil {
		return nil, errors.New("mariadb-install-db is not installed; it belongs to MariaDB's server package")
	}
	data, log := filepath.Join(dir, "data"), filepath.Join(dir, "mariadb.log")
	args := []string{"--no-defaults", "--datadir=" + data}
	if os.Geteuid() == 0 {
		args = append(args, "--user=root")
	}
	// Temporary files of its own: a MariaDB that starts clears its folder of them, in a shared one also those of other servers.
	temp := filepath.Join(dir, "temp")
	if err := os.Mkdir(temp, 0o700); err != nil {
		return nil, err
	}
	env := append(os.Environ(), "TMPDIR="+temp)
	prepare := exec.CommandContext(ctx, install, append(args, "--auth-root-authentication-method=normal", "--skip-test-db")...)
	prepare.Env = env
	text, err := prepare.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("create the private database: %w\n%s", err, text)
	}
	f, err := os.Create(log)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	d := &demoDatabase{socket: filepath.Join(dir, "s"), done: make(chan error, 1)}
	d.cmd = exec.Command(server, append(args, "--socket="+d.socket, "--skip-networking", "--pid-file="+filepath.Join(dir, "pid"),
		"--server-id=1", "--log-bin=binlog", "--binlog-format=ROW", "--event-scheduler=ON", "--innodb-flush-log-at-trx-commit=2")...)
	d.cmd.Env = env
	d.cmd.Stdout, d.cmd.Stderr = f, f
	d.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a terminal's Ctrl-C is ours alone: we end the database
	if err := d.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the private database: %w", err)
	}
	go func() { d.done <- d.cmd.Wait() }()
	if d.sql, err = sql.Open("mysql", "root@unix("+d.socket+")/"); err != nil {
		return nil, errors.Join(err, d.stop())
	}
	for d.sql.PingContext(ctx) != nil {
		select {
		case err := <-d.done:
			d.done <- err
			text, _ := os.ReadFile(log)
			return nil, errors.Join(fmt.Errorf("the private database ended while starting\n%s", text), d.stop())
		case <-ctx.Done():
			return nil, errors.Join(ctx.Err(), d.stop())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return d, nil
}

// stop ends the database by its pid and waits for it.
func (d *demoDatabase) stop() error {
	if d.sql != nil {
		d.sql.Close()
	}
	if err := d.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-d.done:
	case <-time.After(20 * time.Second):
		if err := d.cmd.Process.Kill(); err != nil {
			return err
		}
		<-d.done
	}
	return nil
}

func findProgram(name string) (string, error) {
	if path, err := exec.LookPath(name); err == nil {
		return path, nil
	}
	for _, dir := range []string{"/usr/sbin/", "/usr/local/sbin/", "/usr/local/bin/"} {
		if _, err := os.Stat(dir + name); err == nil {
			return dir + name, nil
		}
	}
	return "", exec.ErrNotFound
}

// demonstration shows writes and what memcached says of them.
type demonstration struct {
	out    io.Writer
	db     *sql.DB
	logs   *bytes.Buffer
	conn   net.Conn
	reader *bufio.Reader
	admin  string
}

// startDaemon runs the daemon inside this process, on free ports, and waits until it is ready.
func (d *demonstration) startDaemon(ctx context.Context, socket string) (stop func() error, err error) {
	addr, err := freeAddress()
	if err != nil {
		return nil, err
	}
	if d.admin, err = freeAddress(); err != nil {
		return nil, err
	}
	c := config.Default()
	c.Source.DSN = "root@unix(" + socket + ")/"
	c.Tables = []mapping.Spec{{Table: "shop.users"}}
	c.Server.Listen = []string{addr}
	c.Admin.Listen = d.admin
	c.Memory.Limit = 64 << 20
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan error, 1)
	go func() { done <- daemon(ctx, c, &memcached{protocol: "auto"}, d.logs) }()
	stop = func() error {
		cancel()
		return <-done
	}
	fmt.Fprintf(d.out, "rowcached run --source '%s' --table shop.users\n", c.Source.DSN)
	for {
		select {
		case err := <-done:
			return nil, errors.Join(fmt.Errorf("the daemon ended: %w", err), errors.New(d.logs.String()))
		case <-time.After(5 * time.Millisecond):
		}
		if page, err := d.page(ctx, "/-/ready"); err == nil && strings.HasPrefix(page, "ready") {
			break
		}
	}
	if d.conn, err = net.Dial("tcp", addr); err != nil {
		return nil, errors.Join(err, stop())
	}
	d.reader = bufio.NewReader(d.conn)
	fmt.Fprintf(d.out, "ready; memcached clients connect to %s\n\n", addr)
	return stop, nil
}

func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}

// page gets one page of the daemon's admin address.
func (d *demonstration) page(ctx context.Context, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+d.admin+path, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		err = errors.Join(err, errors.New(resp.Status))
	}
	return string(b), err
}

// get asks for one key as any memcached client does; "" is a miss.
func (d *demonstration) get(key string) (string, error) {
	if _, err := fmt.Fprintf(d.conn, "get %s\r\n", key); err != nil {
		return "", err
	}
	var value string
	for {
		line, err := d.reader.ReadString('\n')
		if err != nil {
			return "", err
		}
		if line == "END\r\n" {
			return value, nil
		}
		if strings.HasPrefix(line, "VALUE ") {
			if value, err = d.reader.ReadString('\n'); err != nil {
				return "", err
			}
			value = strings.TrimRight(value, "\r\n")
		}
	}
}

func (d *demonstration) show(ctx context.Context) error {
	defer d.conn.Close()
	value, err := d.get("users:1")
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, "copied      get users:1 -> %s\n\n", value)
	steps := []struct {
		what, sql, key string
		want           string // part of the value; "" for a miss
		since          string // where the time starts when the write is not the statement itself
	}{
		{"insert", "INSERT INTO shop.users (id, name) VALUES (3, 'Edith')", "users:3", `"name":"Edith"`, ""},
		{"update", "UPDATE shop.users SET name = 'Ada L.' WHERE id = 1", "users:1", `"name":"Ada L."`, ""},
		{"delete", "DELETE FROM shop.users WHERE id = 2", "users:2", "", ""},
		{"trigger", "INSERT INTO shop.orders (user_id, amount) VALUES (1, 9.99)", "users:1", `"orders":1`, ""},
		{"event job", "CREATE EVENT shop.see ON SCHEDULE AT CURRENT_TIMESTAMP DO UPDATE shop.users SET seen = NOW(3) WHERE id = 3", "users:3", `"seen":"`, "scheduled"},
	}
	for _, s := range steps {
		fmt.Fprintf(d.out, "%-11s %s\n", s.what, s.sql)
		if _, err := d.db.ExecContext(ctx, s.sql); err != nil {
			return fmt.Errorf("%s: %w", s.what, err)
		}
		committed := time.Now()
		for {
			value, err := d.get(s.key)
			if err != nil {
				return err
			}
			if s.want == "" && value == "" || s.want != "" && strings.Contains(value, s.want) {
				if value == "" {
					value = "(miss)"
				}
				unit := "after the statement returned"
				if s.since != "" {
					unit = "after it was " + s.since
				}
				fmt.Fprintf(d.out, "            get %s -> %s   %.3f ms %s\n\n", s.key, value, float64(time.Since(committed).Microseconds())/1000, unit)
				break
			}
			if time.Since(committed) > 20*time.Second {
				return fmt.Errorf("%s: get %s is still %q after 20 s", s.what, s.key, value)
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
		}
	}
	metrics, err := d.page(ctx, "/metrics")
	if err != nil {
		return fmt.Errorf("read the metrics: %w", err)
	}
	for line := range strings.Lines(metrics) {
		if strings.HasPrefix(line, "rowcached_replication_lag_seconds ") || strings.HasPrefix(line, "rowcached_replication_commit_to_visible_seconds_count") {
			fmt.Fprint(d.out, line)
		}
	}
	fmt.Fprintln(d.out, "\nDone; the private database is removed.")
	return nil
}
