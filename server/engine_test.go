package server

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// engineNames are what there is on this system.
func engineNames() []string {
	names := []string{"net"}
	if haveLoops {
		names = append(names, "epoll")
		if probeRing() == nil {
			names = append(names, "io_uring")
		}
	}
	return names
}

// eachEngine runs a test on every engine.
func eachEngine(t *testing.T, f func(t *testing.T, engine string)) {
	for _, e := range engineNames() {
		t.Run(e, func(t *testing.T) { f(t, e) })
	}
}

// client is a connection of a test; whatever fails ends the test.
type client struct {
	net.Conn
	t  testing.TB
	in *bufio.Reader
}

func dial(t testing.TB, network, addr string) *client {
	t.Helper()
	c, err := net.Dial(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return &client{c, t, bufio.NewReaderSize(c, 64<<10)}
}

func (x *tester) dial(t testing.TB) *client {
	c := dial(t, "tcp", x.addr)
	x.clients = append(x.clients, c)
	return c
}

func (c *client) send(s string) {
	c.t.Helper()
	if _, err := io.WriteString(c, s); err != nil {
		c.t.Fatal(err)
	}
}

func (c *client) expect(want string) {
	c.t.Helper()
	got := make([]byte, len(want))
	if n, err := io.ReadFull(c.in, got); err != nil || string(got) != want {
		c.t.Fatalf("got %.200q (%v), want %.200q", got[:n], err, want)
	}
}

// expectEnd wants the connection closed, nothing having been sent.
func (c *client) expectEnd() {
	c.t.Helper()
	if b, err := io.ReadAll(c.in); len(b) > 0 || err != nil && !isReset(err) {
		c.t.Fatalf("got %.200q and %v, want the end of the connection", b, err)
	}
}

func isReset(err error) bool {
	var e net.Error
	return !(errors.As(err, &e) && e.Timeout())
}

// eventually waits for a condition that other goroutines bring about.
func eventually(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within 20 s: %s", what)
		}
	}
}

// pattern is a value that tells which it is and where a byte of it belongs.
func pattern(n, size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte('a' + (n+i/7)%26)
	}
	return b
}

// stat reads one figure of stats over a connection of its own.
func (x *tester) stat(t testing.TB, name string) int64 {
	t.Helper()
	c := x.dial(t)
	defer c.Close()
	c.send("stats\r\n")
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == protocol.End {
			t.Fatalf("no stat %q", name)
		}
		if f := strings.Fields(line); f[1] == name {
			v, err := strconv.ParseInt(f[2], 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
}

// TestSlowReader: a client asks for 60 MB and does not read. Others are served
// meanwhile, the memory held for it is bounded, and then all of it comes, in
// order, as it was when it was asked for.
func TestSlowReader(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.Threads = engine, 1 })
		other := s.dial(t)
		const keys, size, rounds = 10, 100000, 60
		for i := range keys {
			other.send(fmt.Sprintf("set key%d 0 0 %d\r\n%s\r\n", i, size, pattern(i, size)))
			other.expect(protocol.Stored)
		}
		var ask strings.Builder
		for r := range rounds {
			for i := range keys {
				fmt.Fprintf(&ask, "get key%d\r\n", (i+r)%keys)
			}
		}
		slow := s.dial(t)
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		slow.send(ask.String())
		// It is stuck when others have been answered and its requests are not used up.
		// Items that its replies consist of are replaced, and their memory used again.
		for i := range 50 {
			other.send(fmt.Sprintf("set key%d 0 0 %d noreply\r\n%s\r\n", i%keys, size, pattern(i%keys, size)))
			for j := range 10 {
				other.send(fmt.Sprintf("set noise%d 0 0 %d noreply\r\n%s\r\n", j, size, strings.Repeat("!", size)))
			}
			other.send(fmt.Sprintf("get key%d\r\n", i%keys))
			other.expect(fmt.Sprintf("VALUE key%d 0 %d\r\n%s\r\nEND\r\n", i%keys, size, pattern(i%keys, size)))
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		if grown := int64(after.HeapAlloc) - int64(before.HeapAlloc); grown > 4<<20 {
			t.Errorf("the heap grew by %d bytes for a client that does not read", grown)
		}
		for r := range rounds {
			for i := range keys {
				n := (i + r) % keys
				slow.expect(fmt.Sprintf("VALUE key%d 0 %d\r\n%s\r\nEND\r\n", n, size, pattern(n, size)))
			}
		}
		slow.send("mn\r\n")
		slow.expect(protocol.MetaNoop)
	})
}

// TestWriterThatNeverReads: the server stops taking requests from it.
func TestWriterThatNeverReads(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.Threads = engine, 1 })
		other := s.dial(t)
		other.send("set k 0 0 10000\r\n" + strings.Repeat("x", 10000) + "\r\n")
		other.expect(protocol.Stored)
		c := s.dial(t)
		batch := []byte(strings.Repeat("get k\r\n", 1000))
		sent := 0
		for {
			_ = c.SetWriteDeadline(time.Now().Add(500 * time.Millisecond))
			n, err := c.Write(batch)
			sent += n
			if err != nil {
				break
			}
			if sent > 64<<20 {
				t.Fatalf("%d bytes of requests were taken of a client that reads nothing", sent)
			}
		}
		other.send("mn\r\n")
		other.expect(protocol.MetaNoop)
		c.Close()
		eventually(t, "the connection is gone", func() bool { return s.Metrics().Connections == 1 })
		eventually(t, "no item is pinned", func() bool { return s.store.Stats().Pinned == 0 })
	})
}

func TestConnectionLimit(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.MaxConnections = engine, 5 })
		var list []*client
		for range 5 {
			c := s.dial(t)
			c.send("mn\r\n")
			c.expect(protocol.MetaNoop)
			list = append(list, c)
		}
		for range 3 {
			c := s.dial(t)
			c.expect(protocol.TooManyConns)
			c.expectEnd()
		}
		if m := s.Metrics(); m.Rejected != 3 || m.Connections != 5 || m.Accepted != 5 {
			t.Errorf("%+v", m)
		}
		list[0].Close()
		eventually(t, "one is gone", func() bool { return s.Metrics().Connections == 4 })
		c := s.dial(t)
		c.send("mn\r\n")
		c.expect(protocol.MetaNoop)
	})
}

func TestIdleTimeout(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.IdleTimeout = engine, time.Second })
		idle, busy := s.dial(t), s.dial(t)
		half := s.dial(t)
		half.send("set k 0 0 100\r\nabc")
		begin := time.Now()
		stop := make(chan struct{})
		ended := make(chan error, 1)
		go func() {
			for {
				select {
				case <-stop:
					ended <- nil
					return
				case <-time.After(100 * time.Millisecond):
				}
				if _, err := io.WriteString(busy, "mn\r\n"); err != nil {
					ended <- err
					return
				}
				if line, err := busy.in.ReadString('\n'); err != nil || line != protocol.MetaNoop {
					ended <- fmt.Errorf("%q %w", line, err)
					return
				}
			}
		}()
		idle.expectEnd()
		half.expectEnd()
		if d := time.Since(begin); d < 900*time.Millisecond || d > 10*time.Second {
			t.Errorf("closed after %v", d)
		}
		close(stop)
		if err := <-ended; err != nil {
			t.Errorf("a busy connection: %v", err)
		}
		// A loop publishes its counts at the end of its turn, which may be after the client saw the end.
		n := s.stat(t, "idle_kicks")
		for deadline := time.Now().Add(5 * time.Second); n != 2 && time.Now().Before(deadline); n = s.stat(t, "idle_kicks") {
			time.Sleep(time.Millisecond)
		}
		if n != 2 {
			t.Errorf("idle_kicks %d, want 2", n)
		}
	})
}

// TestStop: when the server is told to stop, a client that is being answered gets
// its answer to the end, one that waits for nothing is closed, and nothing is left.
func TestStop(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		before := runtime.NumGoroutine()
		s := startServer(t, func(c *Config) { c.Engine = engine })
		const size = 1 << 20
		value := pattern(1, size-100)
		reader, idle := s.dial(t), s.dial(t)
		reader.send(fmt.Sprintf("set k 0 0 %d\r\n%s\r\n", len(value), value))
		reader.expect(protocol.Stored)
		idle.send("mn\r\n")
		idle.expect(protocol.MetaNoop)
		const times = 20
		reader.send("get" + strings.Repeat(" k", times) + "\r\n")
		// The first bytes show that the command was taken.
		reader.expect("VALUE k 0 ")
		done := make(chan struct{})
		go func() {
			s.stop()
			close(done)
		}()
		idle.expectEnd()
		rest := strconv.Itoa(len(value)) + "\r\n" + string(value) + "\r\n"
		reader.expect(rest)
		for range times - 1 {
			reader.expect("VALUE k 0 " + rest)
		}
		reader.expect(protocol.End)
		reader.expectEnd()
		<-done
		if c, err := net.Dial("tcp", s.addr); err == nil {
			c.Close()
			t.Error("it still listens")
		}
		eventually(t, fmt.Sprintf("%d goroutines, %d before", runtime.NumGoroutine(), before), func() bool { return runtime.NumGoroutine() <= before })
	})
}

// TestStopWithSlowReader: one that does not read at all is not waited for longer
// than drainTime.
func TestStopWithSlowReader(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 5 s")
	}
	eachEngine(t, func(t *testing.T, engine string) {
		t.Parallel()
		s := startServer(t, func(c *Config) { c.Engine = engine })
		c := s.dial(t)
		value := pattern(1, 1<<19)
		c.send(fmt.Sprintf("set k 0 0 %d\r\n%s\r\n", len(value), value))
		c.expect(protocol.Stored)
		c.send("get" + strings.Repeat(" k", 100) + "\r\n")
		c.expect("VALUE k 0 ")
		begin := time.Now()
		s.stop()
		if d := time.Since(begin); d > drainTime+3*time.Second {
			t.Errorf("stopping took %v", d)
		}
	})
}

func TestUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	s := startServer(t, func(c *Config) { c.Listen, c.UnixMode = []string{"unix:" + path}, 0o600 })
	st, err := os.Stat(path)
	if err != nil || st.Mode().Perm() != 0o600 {
		t.Errorf("%v %v", st.Mode(), err)
	}
	c := dial(t, "unix", path)
	c.send("set k 0 0 1\r\nx\r\nget k\r\n")
	c.expect("STORED\r\nVALUE k 0 1\r\nx\r\nEND\r\n")
	// Another server does not take the socket away from one that listens.
	second, err := New(Config{Listen: []string{"unix:" + path}, Memory: s.store})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := second.Listen(); err == nil || !strings.Contains(err.Error(), "another program listens") {
		t.Errorf("two servers on one socket: %v", err)
	}
	s.stop()
	// A file that is no socket stays where it is.
	if err := os.WriteFile(path, []byte("data"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Listen(); err == nil {
		t.Error("it listens on a file")
	}
	if b, err := os.ReadFile(path); string(b) != "data" {
		t.Errorf("the file holds %q %v", b, err)
	}
}

// A socket that a killed server left behind is taken over.
func TestStaleUnixSocket(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	l.SetUnlinkOnClose(false)
	l.Close()
	startServer(t, func(c *Config) { c.Listen = []string{"unix:" + path} })
	c := dial(t, "unix", path)
	c.send("mn\r\n")
	c.expect(protocol.MetaNoop)
}

func TestConfigErrors(t *testing.T) {
	store, err := memory.New(memory.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{}, "no memory store"},
		{Config{Memory: store, MaxConnections: -1}, "must be positive"},
		{Config{Memory: store, Threads: -1}, "must be positive"},
		{Config{Memory: store, SASL: true}, "auth_file"},
		{Config{Memory: store, Engine: "kqueue"}, "kqueue"},
	} {
		if _, err := New(c.cfg); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.cfg, err, c.want)
		}
	}
	for _, c := range []struct{ addr, want string }{
		{"127.0.0.1:x", "127.0.0.1:x"}, {"tls:127.0.0.1:0", "server.tls"}, {"unix:/nowhere/at/all", "/nowhere/at/all"}, {"256.0.0.1:0", "256.0.0.1"},
	} {
		s, err := New(Config{Memory: store, Listen: []string{"127.0.0.1:0", c.addr}})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Listen(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.addr, err, c.want)
		}
		if err := s.Run(context.Background()); err == nil {
			t.Errorf("%s: it ran all the same", c.addr)
		}
	}
}

// TestLongGet: a get line far above what is held at once is answered as it
// arrives; every key comes, in order, under one END.
func TestLongGet(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		c := s.dial(t)
		for i := range 10 {
			c.send(fmt.Sprintf("set key:%d 0 0 2 noreply\r\n%02d\r\n", i, i))
		}
		const n = 600000 // 3.6 MB of keys
		var line, want bytes.Buffer
		line.WriteString("get")
		for i := range n {
			fmt.Fprintf(&line, " key:%d", i%11) // one in eleven is missing
			if i%11 < 10 {
				fmt.Fprintf(&want, "VALUE key:%d 0 2\r\n%02d\r\n", i%11, i%11)
			}
		}
		line.WriteString("\r\nmn\r\n")
		go func() { _, _ = c.Write(line.Bytes()) }()
		c.expect(want.String() + protocol.End + protocol.MetaNoop)
	})
}

// TestLargeValues: values up to the limit and just above it, in both protocols,
// whole and in pieces.
func TestLargeValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		c, b := s.dial(t), s.dial(t)
		for i, size := range []int{0, 1, 1000, 16<<10 - 1, 16 << 10, 16<<10 + 1, 64 << 10, 65<<10 + 3, 300000, 1<<20 - 200} {
			value := string(pattern(i, size))
			request := fmt.Sprintf("set k 3 0 %d\r\n%s\r\n", size, value)
			for _, cut := range []int{len(request), len(request) - 2, len(request) - 1, len(request) / 2} {
				c.send(request[:cut])
				if cut < len(request) {
					time.Sleep(2 * time.Millisecond) // lets the server take the pieces apart
					c.send(request[cut:])
				}
				c.expect(protocol.Stored)
				c.send("get k\r\n")
				c.expect(fmt.Sprintf("VALUE k 3 %d\r\n%s\r\nEND\r\n", size, value))
			}
			head, err := binaryRequest(fmt.Sprintf("0x01 7 e=x:0000000300000000 k=k body=%d", 9+size))
			if err != nil {
				t.Fatal(err)
			}
			for _, pause := range []time.Duration{0, 2 * time.Millisecond} {
				b.send(string(head))
				time.Sleep(pause)
				b.send(value)
				reply := make([]byte, 24)
				if _, err := io.ReadFull(b.in, reply); err != nil || reply[7] != 0 || reply[15] != 7 {
					t.Fatalf("binary set of %d: %x %v", size, reply, err)
				}
			}
			c.send("get k\r\n")
			c.expect(fmt.Sprintf("VALUE k 3 %d\r\n%s\r\nEND\r\n", size, value))
		}
		c.send(fmt.Sprintf("set k 0 0 %d\r\n%s\r\nget k\r\n", 1<<20+1, strings.Repeat("x", 1<<20+1)))
		c.expect(protocol.TooLarge + protocol.End)
		c.send("set k 0 0 1000000000\r\n")
		c.expect(protocol.TooLarge)
	})
}

func binaryRequest(text string) ([]byte, error) {
	p, _, err := binaryPacket(text, true)
	return p, err
}
