package server

import (
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rowcached/rowcached/server/protocol"
)

// narrow is a connection whose window is small: what is not read stays on the server's side.
func (x *tester) narrow(t testing.TB) *client {
	t.Helper()
	c := x.dial(t)
	if tcp, ok := c.Conn.(*net.TCPConn); ok {
		if err := tcp.SetReadBuffer(4096); err != nil {
			t.Fatal(err)
		}
	}
	return c
}

// store stores values until the test ends, and wants each stored.
func (c *client) storeAll(n, size int) {
	c.t.Helper()
	for i := range n {
		c.send(fmt.Sprintf("set mine%d 0 0 %d\r\n%s\r\n", i, size, pattern(i, size)))
		c.expect(protocol.Stored)
	}
}

func (c *client) wantAll(n, size int) {
	c.t.Helper()
	for i := range n {
		c.send(fmt.Sprintf("get mine%d\r\n", i))
		c.expect(fmt.Sprintf("VALUE mine%d 0 %d\r\n%s\r\nEND\r\n", i, size, pattern(i, size)))
	}
}

// wantNoneHeld closes the test's clients: then nothing is held for anybody.
func (x *tester) wantNoneHeld(t testing.TB) {
	t.Helper()
	for _, c := range x.clients {
		c.Close()
	}
	eventually(t, "nothing is held", func() bool {
		x.store.Reclaim()
		return x.Metrics().Connections == 0 && x.heldBytes() == 0
	})
}

// TestHalfSentValues: many clients announce large values, through every protocol, and do
// not send them. Their number is what the memory limit cannot bear; another client's
// values are stored all the same, none of its earlier ones is lost, and those that send
// nothing are closed.
func TestHalfSentValues(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		good := s.dial(t)
		const many, size = 200, 50000 // 10 MB of 64
		good.storeAll(many, size)
		good.wantAll(many, size)
		good.wantAll(many, size)
		for i := range 240 {
			c := s.dial(t)
			switch i % 3 {
			case 0:
				c.send(fmt.Sprintf("set half%d 0 0 1000000\r\nabc", i))
			case 1:
				c.send(fmt.Sprintf("ms half%d 1000000\r\nabc", i))
			case 2:
				c.send("\x80\x01\x00\x04\x08\x00\x00\x00\x00\x0f\x42\x4c" + strings.Repeat("\x00", 20) + "halfabc")
			}
			if i%20 == 0 {
				good.send("set other 0 0 50000\r\n" + string(pattern(1, 50000)) + "\r\n")
				good.expect(protocol.Stored)
			}
		}
		good.wantAll(many, size)
		good.storeAll(many, size)
		eventually(t, "clients that send nothing are closed", func() bool { return s.heldBytes() <= s.heldLimit() })
		good.wantAll(many, size)
		if s.stalled.Load() == 0 {
			t.Error("none was closed")
		}
		s.wantNoneHeld(t)
	})
}

// TestNeverRead: many clients ask for large values, which are replaced at once, and
// read nothing. What they hold does not keep others from storing, and they are closed.
func TestNeverRead(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		good := s.dial(t)
		const many, size = 200, 50000
		good.storeAll(many, size)
		hog := s.dial(t)
		const ask = 40
		value := string(pattern(1, 100000))
		for i := range 60 {
			for k := range ask {
				hog.send(fmt.Sprintf("set hog%d 0 0 100000\r\n%s\r\n", k, value))
				if _, err := hog.in.ReadSlice('\n'); err != nil { // it may be refused
					t.Fatal(err)
				}
			}
			c := s.narrow(t)
			var line strings.Builder
			for k := range ask {
				fmt.Fprintf(&line, " hog%d", k)
			}
			c.send("get" + line.String() + "\r\n")
			if i%10 == 0 {
				good.storeAll(20, size)
			}
		}
		good.storeAll(many, size)
		good.wantAll(many, size)
		eventually(t, "clients that read nothing are closed", func() bool {
			return s.heldBytes() <= s.heldLimit()
		})
		s.wantNoneHeld(t)
	})
}

// TestSlowIsNotStalled: a client that reads slowly, but does read, gets all that it asked for
// while others that do not are closed.
func TestSlowIsNotStalled(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		good := s.dial(t)
		const keys, size = 50, 100000
		good.storeAll(keys, size)
		ask := func() string {
			var line strings.Builder
			for k := range keys {
				fmt.Fprintf(&line, " mine%d", k)
			}
			return "get" + line.String() + "\r\n"
		}()
		slow := s.dial(t)
		slow.send(ask)
		for range 5 { // five times five megabytes that nobody else needs, of the 16 that may be held
			for range 5 {
				s.narrow(t).send(ask)
			}
			good.wantAll(1, size)
			good.storeAll(keys, size)
		}
		got := 0
		b := make([]byte, 100000)
		for k := range keys {
			head := fmt.Sprintf("VALUE mine%d 0 %d\r\n", k, size)
			n, err := io.ReadFull(slow.in, b[:len(head)])
			if err != nil || string(b[:n]) != head {
				t.Fatalf("after %d bytes: %q (%v), want %q", got, b[:n], err, head)
			}
			n, err = io.ReadFull(slow.in, b[:size])
			if got += n; err != nil || string(b[:n]) != string(pattern(k, size)) {
				t.Fatalf("after %d bytes: %v", got, err)
			}
			slow.expect("\r\n")
			time.Sleep(40 * time.Millisecond)
		}
		slow.expect("END\r\n")
		eventually(t, "those that do not read are closed", func() bool { return s.heldBytes() <= s.heldLimit() })
		s.wantNoneHeld(t)
	})
}

// TestLineThatNeverEnds: get lines of nearly a megabyte that do not end are bounded
// in sum as well.
func TestLineThatNeverEnds(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		line := "get " + strings.Repeat("a ", 450000)
		for range 40 {
			s.dial(t).send(line)
		}
		eventually(t, "lines that do not end are given up", func() bool {
			return s.Metrics().Connections < 40 && s.heldBytes() <= s.heldLimit()
		})
		good := s.dial(t)
		good.storeAll(10, 1000)
		good.wantAll(10, 1000)
	})
}

// TestIdleWithoutReading: the idle time-out is also for those who have asked and do not
// read.
func TestIdleWithoutReading(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.IdleTimeout = engine, time.Second })
		c := s.narrow(t)
		c.storeAll(1, 500000)
		c.send(strings.Repeat("get mine0\r\n", 100))
		eventually(t, "it is closed", func() bool { return s.Metrics().Connections == 0 })
	})
}

// TestTurns: a client that reads as fast as it can and asks for more than a gigabyte in one go
// does not keep the others of its loop waiting until it has all.
func TestTurns(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.Threads = engine, 1 })
		other := s.dial(t)
		const size, rounds = 500000, 3000
		other.storeAll(1, size)
		other.send("get small\r\n")
		other.expect("END\r\n")
		for name, ask := range map[string]string{
			"pipelined": strings.Repeat("get mine0\r\n", rounds),
			"one line":  "get" + strings.Repeat(" mine0", rounds) + "\r\n",
		} {
			t.Run(name, func(t *testing.T) {
				hog := s.dial(t)
				var got atomic.Int64
				done := make(chan error, 1)
				go func() {
					b := make([]byte, 1<<20)
					for got.Load() < rounds*size {
						n, err := hog.Read(b)
						got.Add(int64(n))
						if err != nil {
							done <- err
							return
						}
					}
					done <- nil
				}()
				hog.send(ask)
				for got.Load() == 0 {
					time.Sleep(time.Millisecond)
				}
				for n := range 10 {
					other.send("get small\r\n")
					other.expect("END\r\n")
					if at := got.Load(); at > rounds*size/2 {
						t.Errorf("answer %d came after %d of %d bytes to another client", n, at, rounds*size)
						break
					}
				}
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
		}
	})
}

// TestTurnOfLongCommands: what little input can make the server copy or compute ends a turn as
// much as what it makes it send.
func TestTurnOfLongCommands(t *testing.T) {
	number := "set k 0 0 200000\r\n1" + strings.Repeat(" ", 199999) + "\r\n"
	for name, again := range map[string]string{
		"incr": "incr k 1\r\n", "append": "append k 0 0 1\r\n \r\n", "stale": "md k I\r\n", "meta": "ma k\r\n",
		"stats": "stats\r\n", "stats conns": "stats conns\r\n",
	} {
		t.Run(name, func(t *testing.T) {
			d := newDriver(t, 0, 1)
			if out, _ := d.run([]byte(number), manner{}); string(out) != protocol.Stored {
				t.Fatalf("%q", out)
			}
			in := []byte(strings.Repeat(again, 300))
			used, more := d.w.serve(d.c, in)
			if !more || used == 0 || used > 50*len(again) {
				t.Errorf("%d requests were served in one turn, more %v", used/len(again), more)
			}
			d.drain(false)
			for in = in[used:]; len(in) > 0; in = in[used:] { // the others are served all the same
				if used, _ = d.w.serve(d.c, in); used == 0 {
					t.Fatal("no progress")
				}
				d.drain(false)
				d.w.sess.Release()
			}
			d.finish()
		})
	}
}
