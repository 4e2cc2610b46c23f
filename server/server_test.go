package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
	"github.com/rowcached/rowcached/server/memory"
)

// tester is a running server of a test.
type tester struct {
	*Server
	addr    string
	store   *memory.Store
	stop    func()
	clients []*client // that dial made
}

// startServer runs a server until the test ends, and checks the memory tier then.
func startServer(t testing.TB, change func(*Config)) *tester {
	t.Helper()
	store, err := memory.New(memory.Options{Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Listen: []string{"127.0.0.1:0"}, Threads: 2, Memory: store, DebugTime: store.AdjustClock}
	if change != nil {
		change(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	addrs, err := s.Listen()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	x := &tester{Server: s, store: store, addr: addrs[0].String()}
	stopped := false
	x.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
		if n := s.current.Load(); n != 0 {
			t.Errorf("%d connections after the end", n)
		}
		if p := store.Stats().Pinned; p != 0 {
			t.Errorf("%d items are pinned after the end", p)
		}
		if err := store.Check(); err != nil {
			t.Errorf("memory: %v", err)
		}
		if err := store.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(x.stop)
	return x
}

// testTables maps every key that begins with "row:", and @@rows.
type testTables struct{}

func (testTables) Resolve(dst, key []byte) ([]byte, Owner, error) {
	if rest, ok := strings.CutPrefix(string(key), "@@rows."); ok {
		return append(append(dst, "row:"...), rest...), 1, nil
	}
	if strings.HasPrefix(string(key), "@@") {
		return nil, 0, errors.New("no table is mapped under this name")
	}
	if strings.HasPrefix(string(key), "row:") {
		return key, 1, nil
	}
	return key, 0, nil
}

// Withheld gives an error while a test withholds the rows.
func (testTables) Withheld() error { return nil }

// configFor sets a server up as a case asks, and says what memcached needs for the same.
func configFor(t testing.TB, with []string, c *Config) (args []string, possible bool) {
	possible = true
	for _, w := range with {
		switch w {
		case "auth":
			path := filepath.Join(t.TempDir(), "users")
			if err := os.WriteFile(path, []byte("ann:secret\nbob:other"), 0o600); err != nil {
				t.Fatal(err)
			}
			users, err := LoadUsers(path)
			if err != nil {
				t.Fatal(err)
			}
			c.Auth = users
			args = append(args, "-Y", path)
		case "sasl":
			c.SASL = true
			possible = false // memcached wants a Cyrus database
		case "noflush":
			c.NoFlush = true
			args = append(args, "-F")
		case "nodump":
			c.NoDump = true
			args = append(args, "-X")
		case "nowatch":
			c.NoWatch = true
			args = append(args, "-W")
		case "ascii":
			c.Protocol = ProtocolText
			args = append(args, "-B", "ascii")
		case "binary":
			c.Protocol = ProtocolBinary
			args = append(args, "-B", "binary")
		case "nocas":
			c.NoCAS = true
			args = append(args, "-C")
		case "shutdown":
			c.Shutdown = func(bool) {}
			args = append(args, "-A")
		case "tables":
			c.Tables = testTables{}
			c.TableName = func(o Owner) string { return "rows" }
			possible = false
		case "debugtime":
			possible = false
		default:
			t.Fatalf("unknown set-up %q", w)
		}
	}
	return args, possible
}

// rows puts what testTables maps into the store.
func (x *tester) rows(t testing.TB) {
	sp, err := x.store.NewSpace("db.rows")
	if err != nil {
		t.Fatal(err)
	}
	b := x.store.NewBatch()
	for i := range 3 {
		if err := b.Put(sp, fmt.Appendf(nil, "row:%d", i), fmt.Appendf(nil, "value %d", i), uint32(i), 0, uint64(100+i)); err != nil {
			t.Fatal(err)
		}
	}
	b.Open(sp)
	b.Publish()
}

// TestExchanges plays every case whole, byte by byte and in pieces, on each engine, over TCP and over a unix
// socket. Cases without a set-up of their own share a server, which is flushed in between.
func TestExchanges(t *testing.T) {
	list := loadExchanges(t)
	for _, engine := range engineNames() {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			sock := filepath.Join(t.TempDir(), "plain")
			plain := startServer(t, func(c *Config) { c.Engine, c.Listen = engine, append(c.Listen, "unix:"+sock) })
			for _, x := range list {
				t.Run(x.title(), func(t *testing.T) {
					for _, chunk := range []int{0, 1, 7} {
						s, sock := plain, sock
						if len(x.with) > 0 {
							sock = filepath.Join(t.TempDir(), "s")
							s = startServer(t, func(c *Config) {
								c.Engine, c.Listen = engine, append(c.Listen, "unix:"+sock)
								configFor(t, x.with, c)
							})
							if s.cfg.Tables != nil {
								s.rows(t)
							}
						} else {
							flush(t, plain.addr)
						}
						network, addr := "tcp", s.addr
						if chunk == 7 {
							network, addr = "unix", sock
						}
						size := chunk
						if x.bytes() > 20000 {
							size *= 1000
						}
						if err := x.play(network, addr, size, 20*time.Second); err != nil {
							t.Errorf("%d bytes at once: %v", size, err)
						}
					}
				})
			}
		})
	}
}

// title names the case's test.
func (x *exchange) title() string {
	return strings.TrimSuffix(filepath.Base(x.file), ".txt") + "/" + strings.ReplaceAll(x.name, " ", "_")
}

func (x *exchange) bytes() (n int) {
	for _, s := range x.steps {
		if s.kind == '>' {
			n += len(s.data)
		}
	}
	return n
}

// TestReference plays the same cases against memcached: where it answers otherwise, the case says why, and a
// case that says so without need fails.
func TestReference(t *testing.T) {
	list := loadExchanges(t)
	for _, version := range []string{servers.Memcached1645, servers.Memcached1618} {
		t.Run(version, func(t *testing.T) {
			plain := servers.StartMemcached(t, version)
			for _, x := range list {
				t.Run(x.title(), func(t *testing.T) {
					var c Config
					args, possible := configFor(t, x.with, &c)
					if !possible {
						t.Skip("a set-up that memcached does not have")
					}
					m := plain
					if len(args) > 0 {
						m = servers.StartMemcached(t, version, args...)
					} else {
						flush(t, m.Addr)
					}
					why, differs := x.differs[version]
					patience := 20 * time.Second
					if differs {
						patience = time.Second // it may be silence by which it differs
					}
					err := x.play("tcp", m.Addr, 0, patience)
					switch {
					case err != nil && !differs:
						t.Errorf("memcached %s answers otherwise: %v", version, err)
					case err == nil && differs:
						t.Errorf("memcached %s answers the same, though the case says %q", version, why)
					}
				})
			}
		})
	}
}

func flush(t testing.TB, addr string) {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "flush_all\r\n")
	if _, err := c.Read(make([]byte, 10)); err != nil {
		t.Fatal(err)
	}
}
