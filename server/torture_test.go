package server

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"flag"
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

var (
	tortureGets = flag.Int64("torture.gets", 0, "values that the torture test checks on each engine; 0: as many as a few seconds allow")
	tortureSeed = flag.Uint64("torture.seed", 0, "seed of the torture test; 0: chosen and printed")
)

// TestItemsReplacedWhileSent: values of 20 bytes to 300 KB are replaced, extended, deleted, flushed,
// evicted and run out of time while replies that consist of them are under way to fast and to slow
// readers. Every value tells its own length and content, so that one wrong byte is seen.
// Run under -race it is what the reclaiming of memory (I8) is held against.
func TestItemsReplacedWhileSent(t *testing.T) {
	duration := 3 * time.Second
	if testing.Short() {
		duration = 500 * time.Millisecond
	}
	seed := *tortureSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("-torture.seed=%d", seed)
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		if err := s.store.SetLimit(16 << 20); err != nil {
			t.Fatal(err)
		}
		x := &torture{addr: s.addr, keys: 30000, hot: 20, most: *tortureGets, stop: make(chan struct{})}
		for i := range x.pattern {
			x.pattern[i] = byte('a' + i*i/26%26)
		}
		if x.most == 0 {
			timer := time.AfterFunc(duration, x.end)
			defer timer.Stop()
		}
		var wg sync.WaitGroup
		for n := range uint64(3) {
			wg.Go(func() {
				defer x.end()
				if err := x.write(rand.New(rand.NewPCG(seed, n))); err != nil {
					t.Errorf("writer: %v", err)
				}
			})
		}
		for n := range uint64(5) {
			wg.Go(func() {
				defer x.end()
				if err := x.read(rand.New(rand.NewPCG(seed, 100+n)), n == 4); err != nil {
					t.Errorf("reader: %v", err)
				}
			})
		}
		wg.Wait()
		st := s.store.Stats()
		t.Logf("%s: %d sets, %d keys asked for, %d values checked, %d bytes; %d evicted, %d expired", engine,
			x.sets.Load(), x.gets.Load(), x.hits.Load(), x.bytes.Load(), st.Evictions, st.Reclaimed+st.CrawlerReclaimed)
		if x.sets.Load() == 0 || x.hits.Load() == 0 {
			t.Error("nothing was tested")
		}
		if x.most >= 1e6 && (st.Evictions == 0 || st.Reclaimed+st.CrawlerReclaimed == 0) {
			t.Error("nothing was evicted, or nothing ran out of time")
		}
		eventually(t, "no item is pinned", func() bool { s.store.Reclaim(); return s.store.Stats().Pinned == 0 })
	})
}

// torture is what the goroutines of the test share.
type torture struct {
	addr                    string
	keys, hot               int   // hot keys are asked for and changed far more often
	most                    int64 // values to be checked; 0: until it is stopped
	pattern                 [400 << 10]byte
	once                    sync.Once
	stop                    chan struct{}
	sets, gets, hits, bytes atomic.Int64
}

func (x *torture) end() { x.once.Do(func() { close(x.stop) }) }

func (x *torture) key(r *rand.Rand) int {
	if r.IntN(2) == 0 {
		return r.IntN(x.hot)
	}
	return r.IntN(x.keys)
}

// value appends size bytes that all follow from size and mark.
func (x *torture) value(b []byte, size int, mark byte) []byte {
	at := len(b)
	b = fmt.Appendf(b, "%d %d|", size, mark)
	return append(b, x.pattern[int(mark)*100:][:size-(len(b)-at)]...)
}

// check tells whether a value is what was stored under its size.
func (x *torture) check(v []byte) error {
	bar := bytes.IndexByte(v[:min(20, len(v))], '|')
	var size, mark int
	if bar >= 0 {
		if _, err := fmt.Sscanf(string(v[:bar]), "%d %d", &size, &mark); err != nil {
			bar = -1
		}
	}
	if bar < 0 || size != len(v) || mark > 255 || !bytes.Equal(v[bar+1:], x.pattern[mark*100:][:size-bar-1]) {
		return fmt.Errorf("a value of %d bytes is not what was stored: %.100q", len(v), v)
	}
	return nil
}

// size is mostly small, and now and then up to 300 KB.
func tortureSize(r *rand.Rand) int {
	switch n := r.IntN(1000); {
	case n == 0:
		return 50000 + r.IntN(250000)
	case n < 6:
		return 5000 + r.IntN(45000)
	case n < 100:
		return 900 + r.IntN(4000)
	}
	return 20 + r.IntN(300)
}

func (x *torture) write(r *rand.Rand) error {
	c, err := net.Dial("tcp", x.addr)
	if err != nil {
		return err
	}
	defer c.Close()
	var out []byte
	for {
		select {
		case <-x.stop:
			return nil
		default:
		}
		out = out[:0]
		for range 1 + r.IntN(20) {
			k := x.key(r)
			switch r.IntN(20) {
			case 0, 1:
				out = fmt.Appendf(out, "delete key%d noreply\r\n", k)
			case 2: // makes the memory of others be used for something else
				out = fmt.Appendf(out, "set other%d 0 0 %d noreply\r\n", r.IntN(50), 3000)
				out = append(append(out, bytes.Repeat([]byte("#"), 3000)...), "\r\n"...)
			case 3:
				out = fmt.Appendf(out, "touch key%d %d noreply\r\n", k, []int{100, 1, -1}[r.IntN(3)])
			case 4: // of these every byte is the same
				out = fmt.Appendf(out, "%s same%d 0 0 7 noreply\r\n#######\r\n", []string{"append", "prepend"}[r.IntN(2)], r.IntN(50))
			case 5:
				size := 1 + r.IntN(20000)
				out = fmt.Appendf(out, "set same%d 0 0 %d noreply\r\n", r.IntN(50), size)
				out = append(append(out, bytes.Repeat([]byte("#"), size)...), "\r\n"...)
			default:
				size := tortureSize(r)
				out = fmt.Appendf(out, "set key%d %d %d %d noreply\r\n", k, size, r.IntN(3)*r.IntN(3), size)
				out = append(x.value(out, size, byte(r.Uint32())), "\r\n"...)
				x.sets.Add(1)
			}
		}
		if r.IntN(20000) == 0 {
			out = append(out, "flush_all noreply\r\n"...)
		}
		// Nobody gets so far ahead that the readers' turn does not come.
		if _, err := c.Write(append(out, "mn\r\n"...)); err != nil {
			return err
		}
		if _, err := io.ReadFull(c, make([]byte, 4)); err != nil {
			return err
		}
	}
}

func (x *torture) read(r *rand.Rand, slow bool) error {
	raw, err := net.Dial("tcp", x.addr)
	if err != nil {
		return err
	}
	defer raw.Close()
	in := newTortureReader(raw, slow)
	var value, out []byte
	for {
		select {
		case <-x.stop:
			return nil
		default:
		}
		out = out[:0]
		n := 1 + r.IntN(8)
		for range n {
			out = append(out, []string{"get", "gets"}[r.IntN(2)]...)
			for range 1 + r.IntN(100) {
				if r.IntN(20) == 0 {
					out = fmt.Appendf(out, " same%d", r.IntN(50))
				} else {
					out = fmt.Appendf(out, " key%d", x.key(r))
				}
				x.gets.Add(1)
			}
			out = append(out, "\r\n"...)
		}
		if _, err := raw.Write(out); err != nil {
			return err
		}
		for n > 0 {
			line, err := in.ReadSlice('\n')
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
			if err != nil {
				return fmt.Errorf("line %q: %w", line, err)
			}
			same := bytes.HasPrefix(f[1], []byte("same"))
			if !same && string(f[2]) != string(f[3]) {
				return fmt.Errorf("line %q: flags and size differ", line)
			}
			if cap(value) < size+2 {
				value = make([]byte, size+2, 2*size+2)
			}
			value = value[:size+2]
			if _, err := io.ReadFull(in, value); err != nil {
				return err
			}
			switch v := value[:size]; {
			case string(value[size:]) != "\r\n":
				return fmt.Errorf("a value of %d bytes ends with %q", size, value[size:])
			case same:
				if bytes.Count(v, []byte("#")) != size {
					return fmt.Errorf("a value of one byte again and again: %.100q", v)
				}
			default:
				if err := x.check(v); err != nil {
					return err
				}
			}
			x.bytes.Add(int64(size))
			if x.hits.Add(1) == x.most {
				x.end()
			}
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
