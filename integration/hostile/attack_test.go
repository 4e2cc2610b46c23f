package hostile

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The attackers are a process of their own, for in life they have machines of their own: this
// binary again, told by the environment what to attack and line by line on its input when. It runs
// only where nobody else wants to, so that what is measured is the daemon and not the want of a core.
const (
	envTargets = "ROWCACHED_HOSTILE_TARGETS" // host:port of each daemon, and host:port for TLS, with blanks between all
	envSeed    = "ROWCACHED_HOSTILE_SEED"
)

// Lines on the attackers' input; each is answered when it is carried out. The end of the input
// ends them.
const (
	sayAttack = "attack" // and the number of the daemon, from 0
	sayRest   = "rest"
)

func TestMain(m *testing.M) {
	if os.Getenv(envTargets) != "" {
		if err := attackers(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// giveWay makes every thread of this process, and those that they will start, run only on cores that
// are idle otherwise.
func giveWay() error {
	threads, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, t := range threads {
		id, err := strconv.Atoi(t.Name())
		if err != nil {
			return err
		}
		err = unix.SchedSetAttr(id, &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
		if err != nil && !errors.Is(err, unix.ESRCH) {
			return fmt.Errorf("the scheduling of thread %d: %w", id, err)
		}
	}
	return nil
}

// siege is one attack, with the figures of all.
type siege struct {
	target, secure string
	abandon        int // connections held open by abandon at once, at most
	opened         atomic.Int64
	refused        atomic.Int64
}

func attackers() error {
	if err := giveWay(); err != nil {
		return err
	}
	var seed uint64
	if _, err := fmt.Sscan(os.Getenv(envSeed), &seed); err != nil {
		return err
	}
	targets := strings.Fields(os.Getenv(envTargets))
	s := &siege{abandon: 10000}
	in := bufio.NewScanner(os.Stdin)
	stop := func() {}
	defer func() { stop() }()
	for n := uint64(0); in.Scan(); n++ {
		stop()
		stop = func() {}
		if whom, ok := strings.CutPrefix(in.Text(), sayAttack+" "); ok {
			i, err := strconv.Atoi(whom)
			if err != nil || 2*i+1 >= len(targets) {
				return fmt.Errorf("not understood: %q", in.Text())
			}
			s.target, s.secure = targets[2*i], targets[2*i+1]
			stop = s.start(seed + n)
		} else if in.Text() != sayRest {
			return fmt.Errorf("not understood: %q", in.Text())
		}
		fmt.Printf("%d %d\n", s.opened.Load(), s.refused.Load())
	}
	return in.Err()
}

// kinds are what is done to the daemon, each with the connections that do it at once and the pause
// of each between two goes.
var kinds = []struct {
	name  string
	many  int
	pause time.Duration
	run   func(ctx context.Context, s *siege, r *rand.Rand)
}{
	{"opened and abandoned", 4, 0, abandonMany},
	{"half-sent requests", 100, 200 * time.Millisecond, holding(halfRequest, 2*time.Second)},
	{"half-sent values", 100, 200 * time.Millisecond, holding(halfValue, 2*time.Second)},
	{"readers that never read", 40, 300 * time.Millisecond, holding(greedy, 2*time.Second)},
	{"readers that hardly read", 20, 300 * time.Millisecond, crawl},
	{"1 GiB declared", 10, 300 * time.Millisecond, flood},
	{"random bytes", 5, 30 * time.Millisecond, holding(noise, 20*time.Millisecond)},
	{"half-open TLS handshakes", 50, 300 * time.Millisecond, halfHandshake},
	{"TLS readers that never read", 5, 500 * time.Millisecond, greedyTLS},
}

// start attacks until the function that it gives is called, which waits for all to end.
func (s *siege) start(seed uint64) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	n := seed << 20
	for _, k := range kinds {
		for range k.many {
			n++
			r := rand.New(rand.NewPCG(n, 77))
			wg.Go(func() {
				rest(ctx, time.Duration(r.Int64N(int64(200*time.Millisecond)))) // they do not begin all at once
				for ctx.Err() == nil {
					k.run(ctx, s, r)
					rest(ctx, k.pause)
				}
			})
		}
	}
	return func() { cancel(); wg.Wait() }
}

func rest(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-timer.C:
	}
}

// dial connects from one of many addresses of loopback, with a small window so that what is not
// read fills the daemon's side.
func (s *siege) dial(ctx context.Context, r *rand.Rand, address string) *net.TCPConn {
	d := net.Dialer{
		LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+r.IntN(30)))},
		Timeout:   5 * time.Second,
		Control: func(_, _ string, c syscall.RawConn) error {
			return c.Control(func(fd uintptr) { _ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096) })
		},
	}
	c, err := d.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil // refused: that is what the daemon may do
	}
	s.opened.Add(1)
	return c.(*net.TCPConn)
}

// part closes a connection in one of the ways that there are.
func part(r *rand.Rand, c *net.TCPConn) {
	if r.IntN(2) == 0 {
		_ = c.SetLinger(0) // a reset
	}
	c.Close()
}

// abandonMany opens a quarter of the connections of a flood, more in all than the daemon takes at
// once, keeps them until there are that many, and lets all go.
func abandonMany(ctx context.Context, s *siege, r *rand.Rand) {
	var open []*net.TCPConn
	for len(open) < s.abandon/4 && ctx.Err() == nil {
		c := s.dial(ctx, r, s.target)
		if c == nil {
			rest(ctx, 10*time.Millisecond)
			continue
		}
		open = append(open, c)
		if len(open)%8 == 0 {
			rest(ctx, 4*time.Millisecond)
		}
	}
	for i, c := range open {
		if i%50 == 0 {
			var b [1]byte
			_ = c.SetReadDeadline(time.Now().Add(time.Millisecond))
			if n, _ := c.Read(b[:]); n > 0 {
				s.refused.Add(1)
			}
			rest(ctx, 4*time.Millisecond)
		}
		part(r, c)
	}
}

// holding sends something and keeps the connection for a while.
func holding(what func(r *rand.Rand) []byte, keep time.Duration) func(context.Context, *siege, *rand.Rand) {
	return func(ctx context.Context, s *siege, r *rand.Rand) {
		c := s.dial(ctx, r, s.target)
		if c == nil {
			return
		}
		defer part(r, c)
		_ = c.SetWriteDeadline(time.Now().Add(200 * time.Millisecond))
		_, _ = c.Write(what(r)) // closed already, or full: both are the daemon's right
		rest(ctx, keep)
	}
}

func halfRequest(r *rand.Rand) []byte {
	switch r.IntN(5) {
	case 0:
		return []byte("get goo")
	case 1: // a line that goes on and on
		return []byte("get " + strings.Repeat("good ", r.IntN(50000)))
	case 2:
		return []byte("set half 0 0 ")
	case 3:
		return []byte{0x80, 0x01, 0, 250, 8, 0, 0, 0, 0, 0}
	}
	b := make([]byte, 24, 40000) // a header whose key does not come
	b[0], b[2], b[3] = 0x80, 0xff, 0xff
	binary.BigEndian.PutUint32(b[8:], 1<<16)
	return b[:24+r.IntN(30000)]
}

func halfValue(r *rand.Rand) []byte {
	size := 1 << 20
	if r.IntN(2) == 0 {
		size = 1000 + r.IntN(500000)
	}
	have := r.IntN(min(size, 20000))
	if r.IntN(2) == 0 {
		b := make([]byte, 24, 64+have)
		b[0], b[1], b[3], b[4] = 0x80, 0x11, 4, 8
		binary.BigEndian.PutUint32(b[8:], uint32(12+size))
		b = append(b, "\x00\x00\x00\x00\x00\x00\x00\x00half"...)
		return append(b, make([]byte, have)...)
	}
	return append(fmt.Appendf(nil, "set half%d 0 0 %d\r\n", r.IntN(1000), size), make([]byte, have)...)
}

func greedy(r *rand.Rand) []byte {
	switch r.IntN(4) {
	case 0:
		return []byte("get" + strings.Repeat(" "+bigKey, 3000) + "\r\n")
	case 1:
		return []byte(strings.Repeat("mg "+bigKey+" v k t f c\r\n", 1000))
	case 2:
		return bytes.Repeat([]byte("stats conns\r\n"), 2)
	}
	return []byte(strings.Repeat("get "+bigKey+"\r\n", 1000))
}

func noise(r *rand.Rand) []byte {
	b := make([]byte, r.IntN(3000))
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	if len(b) > 0 && r.IntN(2) == 0 {
		b[0] = 0x80
	}
	return b
}

// crawl reads a byte now and then.
func crawl(ctx context.Context, s *siege, r *rand.Rand) {
	c := s.dial(ctx, r, s.target)
	if c == nil {
		return
	}
	defer part(r, c)
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := c.Write([]byte(strings.Repeat("get "+bigKey+"\r\n", 100))); err != nil {
		return
	}
	var b [1]byte
	for range 60 {
		if _, err := c.Read(b[:]); err != nil || ctx.Err() != nil {
			return
		}
		rest(ctx, 50*time.Millisecond)
	}
}

// flood declares a gigabyte and sends some of it, through three protocols.
func flood(ctx context.Context, s *siege, r *rand.Rand) {
	c := s.dial(ctx, r, s.target)
	if c == nil {
		return
	}
	defer part(r, c)
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	head := []byte("set huge 0 0 1073741824\r\n")
	switch r.IntN(3) {
	case 0:
		head = []byte("ms huge 1073741824 T0\r\n")
	case 1:
		head = make([]byte, 24)
		head[0], head[1], head[3], head[4] = 0x80, 0x01, 4, 8
		binary.BigEndian.PutUint32(head[8:], 1<<30)
		head = append(head, "\x00\x00\x00\x00\x00\x00\x00\x00huge"...)
	}
	_, err := c.Write(head)
	chunk := make([]byte, 16<<10)
	for range 50 {
		if err != nil || ctx.Err() != nil {
			return
		}
		_, err = c.Write(chunk)
		rest(ctx, 40*time.Millisecond)
	}
}

// halfHandshake says hello and no more, or half of it, or nothing, or something else.
func halfHandshake(ctx context.Context, s *siege, r *rand.Rand) {
	c := s.dial(ctx, r, s.secure)
	if c == nil {
		return
	}
	defer part(r, c)
	_ = c.SetDeadline(time.Now().Add(5 * time.Second))
	hello := []byte{22, 3, 1, 2, 0, 1, 0, 1, 252, 3, 3}
	switch r.IntN(4) {
	case 0:
		hello = nil
	case 1:
		hello = append(hello, make([]byte, 505)...)
	case 2:
		hello = noise(r)
	}
	_, _ = c.Write(hello)
	rest(ctx, time.Second+time.Duration(r.Int64N(int64(2*time.Second))))
}

func greedyTLS(ctx context.Context, s *siege, r *rand.Rand) {
	raw := s.dial(ctx, r, s.secure)
	if raw == nil {
		return
	}
	defer part(r, raw)
	_ = raw.SetDeadline(time.Now().Add(5 * time.Second))
	c := tls.Client(raw, &tls.Config{InsecureSkipVerify: true})
	if c.HandshakeContext(ctx) != nil {
		return
	}
	_, _ = io.WriteString(c, strings.Repeat("get "+bigKey+"\r\n", 300))
	rest(ctx, 2*time.Second)
}
