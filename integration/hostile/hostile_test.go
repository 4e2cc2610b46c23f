// Package hostile attacks a running daemon with everything that no client should do, and holds it
// against guarantee G8: others are served as before, and afterwards nothing is left of it.
package hostile

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"flag"
	"fmt"
	"io"
	"math/big"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

var (
	attackTime  = flag.Duration("hostile", 4*time.Second, "how long each engine is under attack")
	attackRatio = flag.Float64("hostile.ratio", 0, "largest ratio of the 99th percentile of a daemon under attack to that of one whose neighbour is; 0: it is told, not judged")
	attackSeed  = flag.Uint64("hostile.seed", 0, "seed; 0: chosen and printed")
)

// What the daemon is set up with, and what the well-behaved ask for.
const (
	maxConnections = 8000 // fewer than the attackers open at once
	memoryLimit    = 256 << 20
	goodClients    = 8
	goodKeys       = 100
	bigKey         = "big"
	bigSize        = 100_000
)

// TestHostileHour: a daemon is attacked in turns by all kinds of attackers at once, 10,000
// connections among them. Well-behaved clients lose no value, see no error and are as fast as
// before; and in the end the daemon holds the memory, goroutines, connections and descriptors
// that it held at first. `make hostile` runs it for ten minutes.
//
// The attackers are on the same machine, whose kernel works for them in any case. So there is a
// second daemon, which in turn is attacked instead: what the well-behaved clients of the first
// see then is what the machine costs them, and what they see more when their own daemon
// is attacked is the daemon's doing.
func TestHostileHour(t *testing.T) {
	if runtime.GOOS != "linux" {
		t.Skip("it reads /proc and needs many addresses of loopback")
	}
	seed := *attackSeed
	if seed == 0 {
		seed = mathrand.Uint64() >> 20
	}
	t.Logf("-hostile.seed=%d -hostile=%v", seed, *attackTime)
	for _, engine := range []string{"epoll", "io_uring"} {
		t.Run(engine, func(t *testing.T) { hostileHour(t, engine, seed) })
	}
}

func hostileHour(t *testing.T, engine string, seed uint64) {
	cert, key := certificate(t)
	start := func() *servers.Daemon {
		d := servers.StartDaemon(t, "--server.engine", engine, "--server.listen", "127.0.0.1:0,tls:127.0.0.1:0",
			"--server.max_connections", strconv.Itoa(maxConnections), "--memory.limit", strconv.Itoa(memoryLimit),
			"--server.tls.cert", cert, "--server.tls.key", key)
		fill(t, d)
		return d
	}
	d, neighbour := start(), start()
	good := newGood(t, d)
	good.run(500 * time.Millisecond) // memory that serving needs is there from now on
	before := look(t, d)

	a := startAttackers(t, seed, d, neighbour)
	round := min(max(*attackTime/4, time.Second), 10*time.Second)
	var quiet, beside, under []time.Duration
	var peak state
	for end := time.Now().Add(*attackTime); time.Now().Before(end); {
		quiet = append(quiet, good.run(round/4)...)
		a.say(t, sayAttack+" 1")
		beside = append(beside, good.run(round/2)...)
		a.say(t, sayAttack+" 0")
		under = append(under, good.run(round)...)
		peak = peak.max(look(t, d))
		a.say(t, sayRest)
		time.Sleep(200 * time.Millisecond)
	}
	opened, refused := a.end(t)
	q, b, u := percentile(quiet, 99), percentile(beside, 99), percentile(under, 99)
	t.Logf("%s: %d hostile connections, %d of a sample refused; %d requests in quiet, p50 %v p99 %v; %d beside an attack, p50 %v p99 %v; %d under attack, p50 %v p99 %v; "+
		"p99 under attack is %.2f times that beside it, %.2f times that in quiet", engine, opened, refused, len(quiet), percentile(quiet, 50), q,
		len(beside), percentile(beside, 50), b, len(under), percentile(under, 50), u, float64(u)/float64(b), float64(u)/float64(q))
	if *attackRatio > 0 && float64(u) > *attackRatio*float64(b) {
		t.Errorf("%s: the 99th percentile under attack is %v, beside an attack %v: more than %.1f times", engine, u, b, *attackRatio)
	}
	good.close()
	ended := time.Now()

	// What is left of it. The daemon may take a while to give memory back to the system.
	var after state
	left := ""
	for deadline := time.Now().Add(60 * time.Second); ; time.Sleep(500 * time.Millisecond) {
		if _, err := d.HTTP("/debug/pprof/heap?gc=1"); err != nil {
			t.Fatal(err)
		}
		after = look(t, d)
		if left = before.exceededBy(after); left == "" || time.Now().After(deadline) {
			break
		}
	}
	t.Logf("%s: before %v; at the height %v; after %v, %v later", engine, before, peak, after, time.Since(ended).Round(time.Millisecond))
	if left != "" {
		t.Errorf("%s: left of the attack: %s", engine, left)
		for _, name := range []string{"go_memstats_heap_inuse_bytes", "go_memstats_heap_idle_bytes", "go_memstats_heap_released_bytes", "go_memstats_stack_inuse_bytes",
			`rowcached_memory_bytes{kind="unmapped"}`, `rowcached_memory_bytes{kind="index"}`, `rowcached_memory_bytes{kind="fixed"}`} {
			t.Logf("%s %.1f MiB", name, float64(number(t, d.Metric(name)))/(1<<20))
		}
	}
	if code := d.Stop(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}

// state is what the daemon holds.
type state struct {
	rss         int64 // bytes
	goroutines  int64
	connections int64
	descriptors int64
}

func (s state) String() string {
	return fmt.Sprintf("%.1f MiB, %d goroutines, %d connections, %d descriptors", float64(s.rss)/(1<<20), s.goroutines, s.connections, s.descriptors)
}

func (s state) max(o state) state {
	return state{max(s.rss, o.rss), max(s.goroutines, o.goroutines), max(s.connections, o.connections), max(s.descriptors, o.descriptors)}
}

// exceededBy tells what of after is more than before. Goroutines of the page that is being asked
// come and go; memory may have grown by a sixteenth, for allocators have grain.
func (s state) exceededBy(after state) string {
	var more []string
	if after.rss > s.rss+s.rss/16 {
		more = append(more, "memory")
	}
	if after.goroutines > s.goroutines+2 {
		more = append(more, "goroutines")
	}
	if after.connections > 0 {
		more = append(more, "connections")
	}
	if after.descriptors > s.descriptors {
		more = append(more, "descriptors")
	}
	return strings.Join(more, ", ")
}

func look(t *testing.T, d *servers.Daemon) (s state) {
	t.Helper()
	dir := fmt.Sprintf("/proc/%d/", d.Pid())
	status, err := os.ReadFile(dir + "status")
	if err != nil {
		t.Fatal(err)
	}
	m := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if m == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	s.rss = number(t, string(m[1])) << 10
	s.goroutines = number(t, d.Metric("go_goroutines"))
	s.connections = number(t, d.Metric("rowcached_connections"))
	fds, err := os.ReadDir(dir + "fd")
	if err != nil {
		t.Fatal(err)
	}
	s.descriptors = int64(len(fds))
	return s
}

func number(t *testing.T, text string) int64 {
	t.Helper()
	v, err := strconv.ParseFloat(text, 64)
	if err != nil {
		t.Fatal(err)
	}
	return int64(v)
}

func percentile(list []time.Duration, p int) time.Duration {
	if len(list) == 0 {
		return 0
	}
	list = slices.Clone(list)
	slices.Sort(list)
	return list[len(list)*p/100]
}

// fill stores what will be asked for, and fills memory to its limit: what the daemon is resident
// with from then on is all that it may be.
func fill(t *testing.T, d *servers.Daemon) {
	t.Helper()
	c, err := net.Dial("tcp", d.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	out := bufio.NewWriterSize(c, 64<<10)
	filler := bytes.Repeat([]byte("f"), 5000)
	for n := range memoryLimit / len(filler) * 11 / 10 {
		fmt.Fprintf(out, "set fill%d 0 0 %d noreply\r\n%s\r\n", n, len(filler), filler)
	}
	fmt.Fprintf(out, "set %s 0 0 %d noreply\r\n%s\r\n", bigKey, bigSize, bytes.Repeat([]byte("B"), bigSize))
	for k := range goodKeys {
		fmt.Fprintf(out, "set %s 0 0 %d noreply\r\n%s\r\n", goodKey(k), goodSize(k), goodValue(k))
	}
	// What was read twice stays when memory is tight.
	for range 3 {
		for k := range goodKeys {
			fmt.Fprintf(out, "touch %s 0 noreply\r\nmg %s q\r\n", goodKey(k), goodKey(k))
		}
	}
	fmt.Fprint(out, "mn\r\n")
	if err := out.Flush(); err != nil {
		t.Fatal(err)
	}
	in := bufio.NewReader(c)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == "MN\r\n" {
			return
		}
	}
}

func goodKey(k int) string { return "good" + strconv.Itoa(k) }
func goodSize(k int) int   { return []int{100, 1000, 4000, 10000}[k%4] }
func goodValue(k int) []byte {
	return bytes.Repeat([]byte{byte('a' + k%26)}, goodSize(k))
}

// good are well-behaved clients on standing connections.
type good struct {
	t    *testing.T
	list []*servers.Client
}

func newGood(t *testing.T, d *servers.Daemon) *good {
	g := &good{t: t}
	for range goodClients {
		g.list = append(g.list, servers.Dial(t, d.Addr()))
	}
	return g
}

func (g *good) close() {
	for _, c := range g.list {
		c.Close()
	}
}

// run lets them ask and store for a while, each with a pause between two requests, and gives how
// long each request took.
func (g *good) run(d time.Duration) []time.Duration {
	var wg sync.WaitGroup
	took := make([][]time.Duration, len(g.list))
	end := time.Now().Add(d)
	for i, c := range g.list {
		wg.Go(func() {
			var err error
			if took[i], err = behave(c.Conn(), end, i); err != nil {
				g.t.Errorf("a well-behaved client: %v", err)
			}
		})
	}
	wg.Wait()
	if g.t.Failed() {
		g.t.FailNow()
	}
	return slices.Concat(took...)
}

func behave(c net.Conn, end time.Time, seed int) (took []time.Duration, err error) {
	r := mathrand.New(mathrand.NewPCG(uint64(seed), 5))
	buf := make([]byte, 20000)
	for begin := time.Now(); begin.Before(end); begin = time.Now() {
		k := r.IntN(goodKeys)
		ask, want := fmt.Sprintf("get %s\r\n", goodKey(k)), fmt.Sprintf("VALUE %s 0 %d\r\n%s\r\nEND\r\n", goodKey(k), goodSize(k), goodValue(k))
		if r.IntN(10) == 0 {
			ask, want = fmt.Sprintf("set %s 0 0 %d\r\n%s\r\n", goodKey(k), goodSize(k), goodValue(k)), "STORED\r\n"
		}
		begin = time.Now()
		if err := c.SetDeadline(begin.Add(20 * time.Second)); err != nil {
			return nil, err
		}
		if _, err := io.WriteString(c, ask); err != nil {
			return nil, err
		}
		got := 0
		for got < len(want) {
			n, err := c.Read(buf[got:])
			if got += n; err != nil || string(buf[:min(got, len(want))]) != want[:min(got, len(want))] {
				return nil, fmt.Errorf("%.40q is answered %.60q (%w)", ask, buf[:got], err)
			}
		}
		took = append(took, time.Since(begin))
		time.Sleep(time.Millisecond + time.Duration(r.IntN(2000))*time.Microsecond)
	}
	return took, nil
}

// besiegers is the attackers' process.
type besiegers struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startAttackers(t *testing.T, seed uint64, daemons ...*servers.Daemon) *besiegers {
	t.Helper()
	var targets []string
	for _, d := range daemons {
		told := regexp.MustCompile(`protocol=memcached[^\n]* addr="?([^"\s]+)`).FindAllStringSubmatch(d.Log(), -1)
		if len(told) != 2 {
			t.Fatalf("the daemon told %d addresses", len(told))
		}
		targets = append(targets, told[0][1], told[1][1])
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self)
	cmd.Env = append(os.Environ(), envTargets+"="+strings.Join(targets, " "), fmt.Sprintf("%s=%d", envSeed, seed))
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &besiegers{cmd: cmd, in: in, out: bufio.NewReader(out)}
	t.Cleanup(func() { // a second end does nothing
		a.in.Close()
		_ = a.cmd.Wait()
	})
	return a
}

// say tells them what to do and waits until they do it.
func (a *besiegers) say(t *testing.T, what string) (opened, refused int64) {
	t.Helper()
	if _, err := io.WriteString(a.in, what+"\n"); err != nil {
		t.Fatal(err)
	}
	line, err := a.out.ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Sscan(line, &opened, &refused); err != nil {
		t.Fatal(err)
	}
	return opened, refused
}

func (a *besiegers) end(t *testing.T) (opened, refused int64) {
	t.Helper()
	opened, refused = a.say(t, sayRest)
	a.in.Close()
	if err := a.cmd.Wait(); err != nil {
		t.Errorf("the attackers: %v", err)
	}
	return opened, refused
}

// certificate writes one that signs itself.
func certificate(t *testing.T) (cert, key string) {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &k.PublicKey, k)
	if err != nil {
		t.Fatal(err)
	}
	pkcs, err := x509.MarshalPKCS8PrivateKey(k)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	cert, key = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem")
	for path, block := range map[string]*pem.Block{cert: {Type: "CERTIFICATE", Bytes: der}, key: {Type: "PRIVATE KEY", Bytes: pkcs}} {
		if err := os.WriteFile(path, pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return cert, key
}
