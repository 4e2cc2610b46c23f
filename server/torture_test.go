package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestItemsReplacedWhileSent: values are replaced, extended, deleted and evicted
// while replies that consist of them are under way to fast and to slow readers.
// Every value tells its own length and content, so that one wrong byte is seen.
// Run under -race it is what the reclaiming of memory (I8) is held against.
func TestItemsReplacedWhileSent(t *testing.T) {
	duration := 3 * time.Second
	if testing.Short() {
		duration = 500 * time.Millisecond
	}
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		const keys = 20
		stop := make(chan struct{})
		time.AfterFunc(duration, func() { close(stop) })
		var wg sync.WaitGroup
		var gets, hits, sets atomic.Int64
		for n := range 3 {
			wg.Go(func() {
				if err := tortureWriter(s.addr, uint64(n), keys, stop, &sets); err != nil {
					t.Errorf("writer: %v", err)
				}
			})
		}
		for n := range 4 {
			wg.Go(func() {
				if err := tortureReader(s.addr, uint64(n), keys, n == 3, stop, &gets, &hits); err != nil {
					t.Errorf("reader: %v", err)
				}
			})
		}
		wg.Wait()
		t.Logf("%d sets, %d keys asked for, %d values checked", sets.Load(), gets.Load(), hits.Load())
		if sets.Load() == 0 || hits.Load() == 0 {
			t.Error("nothing was tested")
		}
		eventually(t, "no item is pinned", func() bool { return s.store.Stats().Pinned == 0 })
	})
}

// tortureValue is size bytes that all follow from size and mark.
func tortureValue(b []byte, size int, mark byte) []byte {
	b = fmt.Appendf(b[:0], "%d %d|", size, mark)
	for len(b) < size {
		b = append(b, byte('a'+(int(mark)+len(b))%26))
	}
	return b
}

func tortureWriter(addr string, seed uint64, keys int, stop <-chan struct{}, sets *atomic.Int64) error {
	c, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer c.Close()
	rng := rand.New(rand.NewPCG(seed, 11))
	var value, out []byte
	for {
		select {
		case <-stop:
			// What was sent without an answer is over when this is answered.
			if _, err := io.WriteString(c, "mn\r\n"); err != nil {
				return err
			}
			_, err := io.ReadFull(c, make([]byte, 4))
			return err
		default:
		}
		out = out[:0]
		for range 1 + rng.IntN(5) {
			k := rng.IntN(keys)
			switch rng.IntN(10) {
			case 0:
				out = fmt.Appendf(out, "delete key%d noreply\r\n", k)
			case 1: // makes the memory of others be used for something else
				out = fmt.Appendf(out, "set other%d 0 0 %d noreply\r\n", rng.IntN(50), 3000)
				out = append(append(out, bytes.Repeat([]byte("#"), 3000)...), "\r\n"...)
			case 2:
				out = fmt.Appendf(out, "touch key%d 100 noreply\r\n", k)
			default:
				size := 20 + rng.IntN(200)
				if rng.IntN(2) == 0 {
					size = 1000 + rng.IntN(100000)
				}
				value = tortureValue(value, size, byte(rng.IntN(250)))
				out = fmt.Appendf(out, "set key%d %d %d %d noreply\r\n", k, size, 1000*rng.IntN(2), size)
				out = append(append(out, value...), "\r\n"...)
				sets.Add(1)
			}
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
	}
}

func tortureReader(addr string, seed uint64, keys int, slow bool, stop <-chan struct{}, gets, hits *atomic.Int64) error {
	raw, err := net.Dial("tcp", addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	rng := rand.New(rand.NewPCG(seed, 22))
	c := &client{Conn: raw, in: newTortureReader(raw, slow)}
	var value, want []byte
	for {
		select {
		case <-stop:
			return nil
		default:
		}
		var out []byte
		n := 1 + rng.IntN(8)
		for range n {
			out = append(out, []string{"get", "gets"}[rng.IntN(2)]...)
			for range 1 + rng.IntN(30) {
				out = fmt.Appendf(out, " key%d", rng.IntN(keys))
				gets.Add(1)
			}
			out = append(out, "\r\n"...)
		}
		if _, err := c.Write(out); err != nil {
			return err
		}
		for n > 0 {
			line, err := c.in.ReadSlice('\n')
			if err != nil {
				return err
			}
			if string(line) == "END\r\n" {
				n--
				continue
			}
			f := bytes.Fields(line)
			if len(f) < 4 || string(f[0]) != "VALUE" {
				return fmt.Errorf("line %q", line)
			}
			size, err := strconv.Atoi(string(f[3]))
			if err != nil || string(f[2]) != string(f[3]) {
				return fmt.Errorf("line %q: flags and size differ (%v)", line, err)
			}
			if cap(value) < size+2 {
				value = make([]byte, size+2, 2*size+2)
			}
			value = value[:size+2]
			if _, err := io.ReadFull(c.in, value); err != nil {
				return err
			}
			var sizeIn, mark int
			if _, err := fmt.Sscanf(string(value[:min(20, size)]), "%d %d|", &sizeIn, &mark); err != nil {
				return fmt.Errorf("value of %d bytes: %.60q: %w", size, value, err)
			}
			if want = tortureValue(want, size, byte(mark)); !bytes.Equal(value[:size], want) || string(value[size:]) != "\r\n" {
				return fmt.Errorf("a value of %d bytes is not what was stored: %.100q", size, value)
			}
			hits.Add(1)
		}
	}
}

// TestHostile: clients that open and abandon, send halves, never read, declare
// gigabytes and send noise. A well-behaved one is answered all along, and
// afterwards nothing is left of them: no connection, goroutine or pinned item.
func TestHostile(t *testing.T) {
	duration := 2 * time.Second
	if testing.Short() {
		duration = 300 * time.Millisecond
	}
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.MaxConnections = engine, 500 })
		good := s.dial(t)
		good.send(fmt.Sprintf("set good 0 0 50000\r\n%s\r\n", pattern(3, 50000)))
		good.expect("STORED\r\n")
		before := runtime.NumGoroutine()
		stop := make(chan struct{})
		time.AfterFunc(duration, func() { close(stop) })
		var wg sync.WaitGroup
		var connections atomic.Int64
		for n := range 6 {
			wg.Go(func() {
				rng := rand.New(rand.NewPCG(uint64(n), 33))
				var open []net.Conn
				defer func() {
					for _, c := range open {
						c.Close()
					}
				}()
				for {
					select {
					case <-stop:
						return
					default:
					}
					c, err := net.Dial("tcp", s.addr)
					if err != nil {
						t.Error(err)
						return
					}
					connections.Add(1)
					_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond))
					_, _ = c.Write(hostileBytes(rng)) // it may be closed already, or full
					open = append(open, c)
					for len(open) > 30 || len(open) > 0 && rng.IntN(3) == 0 {
						i := rng.IntN(len(open))
						if tcp := open[i].(*net.TCPConn); rng.IntN(2) == 0 {
							_ = tcp.SetLinger(0) // a reset instead of an end
						}
						open[i].Close()
						open[i] = open[len(open)-1]
						open = open[:len(open)-1]
					}
				}
			})
		}
		asked, slowest := 0, time.Duration(0)
		for asking := true; asking; asked++ {
			select {
			case <-stop:
				asking = false
			default:
			}
			begin := time.Now()
			good.send(fmt.Sprintf("set good 0 0 50000 noreply\r\n%s\r\nget good\r\n", pattern(3, 50000)))
			good.expect(fmt.Sprintf("VALUE good 0 50000\r\n%s\r\nEND\r\n", pattern(3, 50000)))
			slowest = max(slowest, time.Since(begin))
		}
		wg.Wait()
		t.Logf("%d hostile connections; %d requests of a good one, the slowest %v", connections.Load(), asked, slowest)
		eventually(t, "all connections but one are gone", func() bool { return s.Metrics().Connections == 1 })
		eventually(t, "no item is pinned", func() bool { return s.store.Stats().Pinned == 0 })
		eventually(t, "goroutines are as before", func() bool { return runtime.NumGoroutine() <= before })
	})
}

// hostileBytes is something that no client should send. It never flushes: the good
// client wants its key back.
func hostileBytes(rng *rand.Rand) []byte {
	switch rng.IntN(9) {
	case 0:
		return nil
	case 1:
		b := make([]byte, rng.IntN(5000))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	case 2:
		return []byte("set half 0 0 100000\r\nabc")
	case 3:
		return []byte("set huge 0 0 1073741824\r\n" + string(make([]byte, 20000)))
	case 4: // asks for far more than it reads
		return bytes.Repeat([]byte("get good good good\r\n"), 500)
	case 5:
		return bytes.Repeat([]byte("x"), 3000)
	case 6: // a binary header of 4 GiB
		b := make([]byte, 24)
		b[0], b[1] = 0x80, 0x01
		b[3], b[4] = 1, 8
		binary.BigEndian.PutUint32(b[8:], 1<<32-1)
		return b
	case 7: // binary gets, the last one cut
		b := make([]byte, 0, 3000)
		for range 100 {
			b = append(b, 0x80, 0x0c, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
			b = append(b, "good"...)
		}
		return b[:len(b)-2]
	}
	return []byte("get " + string(bytes.Repeat([]byte("good "), 20000)))
}

func newTortureReader(c net.Conn, slow bool) *bufio.Reader {
	if !slow {
		return bufio.NewReaderSize(c, 64<<10)
	}
	return bufio.NewReaderSize(slowConn{c}, 16<<10)
}

// slowConn takes its time with every piece, so that the server's socket is full.
type slowConn struct{ net.Conn }

func (c slowConn) Read(b []byte) (int, error) {
	time.Sleep(200 * time.Microsecond)
	return c.Conn.Read(b)
}
