package servers

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// readyLimit bounds the wait for a daemon to have copied its tables.
const readyLimit = 60 * time.Second

// A Daemon is a rowcached process. Its arguments may be changed between two starts.
type Daemon struct {
	// Args are the arguments after "rowcached run". Start adds listeners on free ports of loopback and a
	// state folder in a temporary folder, unless Args name their own.
	Args []string
	// Env is added to the test's environment ("TZ=America/New_York").
	Env []string
	// StateDir is the state folder that Start names.
	StateDir string

	t       testing.TB
	process *process
	log     *logBuffer // of the running process
	past    string     // the logs of the processes before it
	addr    string
	admin   string
	client  *Client
}

// NewDaemon prepares a daemon with the arguments, without starting it.
func NewDaemon(t testing.TB, args ...string) *Daemon {
	t.Helper()
	return &Daemon{Args: args, StateDir: t.TempDir(), t: t}
}

// StartDaemon starts "rowcached run" with the arguments and waits until it listens. It ends with the test.
func StartDaemon(t testing.TB, args ...string) *Daemon {
	t.Helper()
	d := NewDaemon(t, args...)
	d.Start()
	return d
}

// Start starts the daemon (again) and waits until it listens. Its addresses are new ones at each start.
func (d *Daemon) Start() {
	d.t.Helper()
	if err := d.Launch(); err != nil {
		d.t.Fatal(err)
	}
	var err error
	if d.addr, err = d.listening("memcached"); err == nil {
		d.admin, err = d.listening("http")
	}
	if err != nil {
		d.t.Fatal(err)
	}
}

// Launch starts the daemon without waiting for anything: for a start that is to fail.
func (d *Daemon) Launch() error {
	d.t.Helper()
	if d.process != nil && !d.process.exited() {
		return errors.New("the daemon runs already")
	}
	path, err := binary()
	if err != nil {
		d.t.Fatal(err)
	}
	args := append([]string{"run"}, d.Args...)
	for _, f := range []struct {
		value string
		names []string
	}{
		{"127.0.0.1:0", []string{"--server.listen", "-p", "-l", "-s"}},
		{"127.0.0.1:0", []string{"--admin.listen"}},
		{d.StateDir, []string{"--state.dir"}},
	} {
		if !slices.ContainsFunc(d.Args, func(arg string) bool {
			name, _, _ := strings.Cut(arg, "=")
			return slices.Contains(f.names, name)
		}) {
			args = append(args, f.names[0], f.value)
		}
	}
	if d.log != nil {
		d.past += d.log.String()
	} else {
		d.t.Cleanup(d.remove)
	}
	d.log = newLogBuffer()
	cmd := exec.Command(path, args...)
	cmd.Env = append(os.Environ(), d.Env...)
	cmd.Stdout, cmd.Stderr = d.log, d.log
	d.process, err = launch(cmd)
	return err
}

// RunDaemon runs the rowcached binary with the arguments to its end and returns its exit code and output.
// A run that does not end within a minute fails the test.
func RunDaemon(t testing.TB, args ...string) (exit int, output string) {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	log := newLogBuffer()
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = log, log
	p, err := launch(cmd)
	if err != nil {
		t.Fatal(err)
	}
	if !p.wait(readyLimit) {
		if err := p.kill(); err != nil {
			t.Error(err)
		}
		t.Fatalf("rowcached %s did not end within %v:\n%s", strings.Join(args, " "), readyLimit, tail(log.String(), 40))
	}
	return p.exitCode(), log.String()
}

// listening waits for the log line that tells the address of a listener.
func (d *Daemon) listening(protocol string) (string, error) {
	line := regexp.MustCompile(`msg="?listening"?[^\n]* protocol=` + protocol + `[^\n]* addr="?([^"\s]+)`)
	timeout := time.NewTimer(startLimit)
	defer timeout.Stop()
	for {
		text, grew := d.log.snapshot()
		if found := line.FindStringSubmatch(text); found != nil {
			return found[1], nil
		}
		select {
		case <-grew:
		case <-d.process.done:
			return "", fmt.Errorf("rowcached ended with exit code %d before it listened:\n%s", d.process.exitCode(), tail(d.log.String(), 40))
		case <-timeout.C:
			return "", fmt.Errorf("rowcached logged no listener for %s within %v:\n%s", protocol, startLimit, tail(text, 40))
		}
	}
}

// Addr returns the memcached address of the running daemon.
func (d *Daemon) Addr() string { return d.addr }

// Admin returns the address of the running daemon's admin HTTP listener.
func (d *Daemon) Admin() string { return d.admin }

// Log returns all that the daemon has written, over all its starts.
func (d *Daemon) Log() string {
	if d.log == nil {
		return d.past
	}
	return d.past + d.log.String()
}

// WaitLog waits until the log of the running process contains the text.
func (d *Daemon) WaitLog(text string) {
	d.t.Helper()
	timeout := time.NewTimer(readyLimit)
	defer timeout.Stop()
	for {
		log, grew := d.log.snapshot()
		if strings.Contains(log, text) {
			return
		}
		select {
		case <-grew:
		case <-timeout.C:
			d.t.Fatalf("%q is not in the daemon's log within %v:\n%s", text, readyLimit, tail(log, 40))
		}
	}
}

// Ready asks the daemon whether it is ready, and why not.
func (d *Daemon) Ready() error {
	_, err := d.HTTP("/-/ready")
	return err
}

// WaitReady waits until every table is copied and the daemon has caught up.
func (d *Daemon) WaitReady() {
	d.t.Helper()
	deadline := time.Now().Add(readyLimit)
	for {
		err := d.Ready()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("not ready within %v: %v", readyLimit, err)
		}
		if d.process.wait(10 * time.Millisecond) {
			d.t.Fatalf("rowcached ended with exit code %d before it was ready:\n%s", d.process.exitCode(), tail(d.log.String(), 40))
		}
	}
}

// HTTP gets a path of the admin address ("/metrics"); a status other than 200 is an error.
func (d *Daemon) HTTP(path string) (string, error) {
	client := http.Client{Timeout: replyLimit}
	defer client.CloseIdleConnections()
	reply, err := client.Get("http://" + d.admin + path)
	if err != nil {
		return "", err
	}
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	if err == nil && reply.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, reply.Status, strings.TrimSpace(string(body)))
	}
	return string(body), err
}

// Metric returns the text value of a metric's sample ("rowcached_items{table=\"t\"}"), "" if there is none.
func (d *Daemon) Metric(sample string) string {
	d.t.Helper()
	body, err := d.HTTP("/metrics")
	if err != nil {
		d.t.Fatal(err)
	}
	for line := range strings.Lines(body) {
		if value, ok := strings.CutPrefix(line, sample+" "); ok {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// Client opens a connection to the daemon; it is closed with the test.
func (d *Daemon) Client(t testing.TB) *Client {
	t.Helper()
	return Dial(t, d.addr)
}

// Get gets one key over a standing connection: its value, and whether it is a hit.
func (d *Daemon) Get(key string) (value []byte, hit bool) {
	d.t.Helper()
	values, err := d.Fetch(key)
	if err != nil {
		d.t.Fatal(err)
	}
	value, hit = values[key]
	return value, hit
}

// Fetch gets several keys at once over a standing connection. An error is the daemon's answer, or the
// connection's; the next Fetch then opens a new one.
func (d *Daemon) Fetch(keys ...string) (map[string][]byte, error) {
	if d.client == nil {
		client, err := dial(d.addr)
		if err != nil {
			return nil, err
		}
		d.client = client
	}
	values, err := d.client.get(keys...)
	if err != nil {
		d.hangUp()
	}
	return values, err
}

// Cmd sends one raw command over a standing connection and returns the whole reply.
func (d *Daemon) Cmd(raw string) string {
	d.t.Helper()
	if d.client == nil {
		client, err := dial(d.addr)
		if err != nil {
			d.t.Fatal(err)
		}
		d.client = client
	}
	reply, err := d.client.command(raw)
	if err != nil {
		d.hangUp()
		d.t.Fatal(err)
	}
	return reply
}

func (d *Daemon) hangUp() {
	if d.client != nil {
		d.client.Close() // of a connection that is given up
		d.client = nil
	}
}

// Pid returns the daemon's process id.
func (d *Daemon) Pid() int { return d.process.pid() }

// Signal sends a signal to the daemon.
func (d *Daemon) Signal(sig os.Signal) {
	d.t.Helper()
	if err := d.process.signal(sig); err != nil {
		d.t.Fatal(err)
	}
}

// Pause stops the daemon as it stands (SIGSTOP); Resume lets it go on (SIGCONT).
func (d *Daemon) Pause()  { d.t.Helper(); d.Signal(syscall.SIGSTOP) }
func (d *Daemon) Resume() { d.t.Helper(); d.Signal(syscall.SIGCONT) }

// Wait waits for the daemon's end and returns its exit code (-1: ended by a signal).
func (d *Daemon) Wait(limit time.Duration) int {
	d.t.Helper()
	if !d.process.wait(limit) {
		d.t.Fatalf("the daemon did not end within %v:\n%s", limit, tail(d.log.String(), 40))
	}
	d.hangUp()
	return d.process.exitCode()
}

// Stop ends the daemon in order (SIGTERM) and returns its exit code.
func (d *Daemon) Stop() int {
	d.t.Helper()
	d.Signal(syscall.SIGTERM)
	return d.Wait(stopLimit)
}

// Kill ends the daemon at once (SIGKILL).
func (d *Daemon) Kill() {
	d.t.Helper()
	if err := d.process.kill(); err != nil {
		d.t.Fatal(err)
	}
	d.hangUp()
}

// Restart stops the daemon in order if it runs, and starts it again on the same state.
func (d *Daemon) Restart() {
	d.t.Helper()
	if !d.process.exited() {
		if code := d.Stop(); code != 0 {
			d.t.Fatalf("exit code %d after SIGTERM:\n%s", code, tail(d.log.String(), 40))
		}
	}
	d.Start()
}

// remove ends the daemon. A data race or a panic in its log fails the test, and a failed test shows the log.
func (d *Daemon) remove() {
	d.hangUp()
	if d.process != nil {
		if err := d.process.kill(); err != nil {
			d.t.Error(err)
		}
	}
	log := d.Log()
	for _, word := range []string{"WARNING: DATA RACE", "panic: ", "fatal error: "} {
		if at := strings.Index(log, word); at >= 0 {
			d.t.Errorf("the daemon's log holds %q:\n%.4000s", word, log[at:])
		}
	}
	if d.t.Failed() {
		d.t.Logf("the daemon's log:\n%s", tail(log, 60))
	}
}

// Binary gives the path of the rowcached binary that StartDaemon runs.
func Binary(t testing.TB) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// binary returns the path of the rowcached binary: ROWCACHED_BIN, else one that is built once per process.
func binary() (string, error) {
	if path := os.Getenv("ROWCACHED_BIN"); path != "" {
		return path, nil
	}
	return built()
}

// built builds the binary, at the first call in this process.
var built = sync.OnceValues(func() (string, error) {
	dir, err := folder()
	if err != nil {
		return "", err
	}
	// Nothing runs at the end of a test process: builds of processes that are gone are removed here.
	builds := filepath.Join(filepath.Dir(dir), "builds")
	old, err := filepath.Glob(filepath.Join(builds, "*"))
	if err != nil {
		return "", err
	}
	for _, path := range old {
		if _, err := os.Stat("/proc/" + filepath.Base(path)); errors.Is(err, os.ErrNotExist) {
			if err := os.RemoveAll(path); err != nil {
				return "", err
			}
		}
	}
	path := filepath.Join(builds, fmt.Sprint(os.Getpid()), "rowcached")
	out, err := exec.Command("go", "build", "-o", path, "github.com/rowcached/rowcached/cmd/rowcached").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build rowcached: %w\n%s", err, out)
	}
	return path, nil
})
