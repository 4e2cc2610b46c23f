package server

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// An exchange is bytes in and bytes out, written down in testdata/*.txt:
//
//	== name                  a case: a connection of its own, an empty cache
//	#  remark
//	!  with WORD...          the server is set up so: sasl, auth, noflush, ...
//	!  differs VERSION: why  memcached VERSION answers otherwise, and why we do not follow
//	>  text                  sent, with CR LF
//	>> text                  sent as it is
//	<  text                  expected, with CR LF
//	<< text                  expected as it is
//	<~ regexp                a line expected; its groups are \1, \2 ... in what follows
//	>b OPCODE OPAQUE ...     a binary request: e= extras and v= value and k= key (text with ^ for blanks, or x: and hex), cas=,
//	                         and lengths that lie: keylen=, extlen=, body=
//	<b OPCODE STATUS OPAQUE ...  a binary reply: e= k= v= cas= (absent: any)
//	wait 100ms               time passes
//	more                     whatever follows is not looked at
//	close                    the server closes the connection, having sent nothing more
//
// Text has Go's escapes; {250*a} repeats.
type exchange struct {
	file    string
	line    int
	name    string
	with    []string
	differs map[string]string
	steps   []step
}

type step struct {
	kind byte // > < ~ c w
	line int
	data []byte
	cas  bool // a binary reply whose cas is to be compared
	wait time.Duration
}

func loadExchanges(t testing.TB) []*exchange {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("testdata: %v, %d files", err, len(files))
	}
	var list []*exchange
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		var x *exchange
		for i, text := range strings.Split(string(data), "\n") {
			if text == "" || text[0] == '#' {
				continue
			}
			if name, ok := strings.CutPrefix(text, "== "); ok {
				x = &exchange{file: f, line: i + 1, name: name, differs: map[string]string{}}
				list = append(list, x)
				continue
			}
			if x == nil {
				t.Fatalf("%s:%d: before the first case", f, i+1)
			}
			if err := x.add(text, i+1); err != nil {
				t.Fatalf("%s:%d: %v", f, i+1, err)
			}
		}
	}
	return list
}

func (x *exchange) add(text string, line int) error {
	word, rest, _ := strings.Cut(text, " ")
	s := step{line: line}
	var err error
	switch word {
	case "!":
		what, rest, _ := strings.Cut(rest, " ")
		switch what {
		case "with":
			x.with = strings.Fields(rest)
		case "differs":
			version, why, ok := strings.Cut(rest, ": ")
			if !ok {
				return fmt.Errorf("differs VERSION: why")
			}
			for v := range strings.SplitSeq(version, ",") {
				x.differs[v] = why
			}
		default:
			return fmt.Errorf("unknown %q", what)
		}
		return nil
	case ">", ">>", "<", "<<":
		s.kind = word[0]
		if s.data, err = unescape(rest); err != nil {
			return err
		}
		if len(word) == 1 {
			s.data = append(s.data, "\r\n"...)
		}
	case "<~":
		s.kind, s.data = '~', []byte(rest)
	case ">b":
		s.kind = '>'
		s.data, _, err = binaryPacket(rest, true)
	case "<b":
		s.kind = '<'
		s.data, s.cas, err = binaryPacket(rest, false)
		if !s.cas {
			s.kind = 'b' // any cas
		}
	case "wait":
		s.kind = 'w'
		s.wait, err = time.ParseDuration(rest)
	case "close":
		s.kind = 'c'
	case "more":
		s.kind = 'm'
	default:
		return fmt.Errorf("unknown %q", word)
	}
	x.steps = append(x.steps, s)
	return err
}

var repeat = regexp.MustCompile(`\{(\d+)\*([^}]*)\}`)

func unescape(s string) ([]byte, error) {
	s = strings.ReplaceAll(s, `\1`, "\x00\x01\x02group1") // kept for later
	q, err := strconv.Unquote(`"` + strings.ReplaceAll(strings.ReplaceAll(s, `"`, `\"`), "\x00\x01\x02group1", `\\1`) + `"`)
	if err != nil {
		return nil, fmt.Errorf("%q: %w", s, err)
	}
	return repeat.ReplaceAllFunc([]byte(q), func(m []byte) []byte {
		g := repeat.FindSubmatch(m)
		n, _ := strconv.Atoi(string(g[1]))
		return bytes.Repeat(g[2], n)
	}), nil
}

func binaryPacket(text string, request bool) (packet []byte, cas bool, err error) {
	f := strings.Fields(text)
	number := func(s string) uint64 {
		v, e := strconv.ParseUint(s, 0, 64)
		if e != nil && err == nil {
			err = e
		}
		return v
	}
	head := make([]byte, 24)
	head[0] = 0x80
	head[1] = byte(number(f[0]))
	f = f[1:]
	if !request {
		head[0] = 0x81
		be(head[6:8], number(f[0]))
		f = f[1:]
	}
	be(head[12:16], number(f[0]))
	var e, k, v []byte
	var lies []func()
	for _, a := range f[1:] {
		name, value, _ := strings.Cut(a, "=")
		var b []byte
		if h, ok := strings.CutPrefix(value, "x:"); ok {
			var e error
			if b, e = hex.DecodeString(h); e != nil && err == nil {
				err = e
			}
		} else if b, err = unescape(value); err != nil {
			return nil, false, err
		}
		switch name {
		case "e":
			e = b
		case "k":
			k = b
		case "v":
			v = bytes.ReplaceAll(b, []byte("^"), []byte(" "))
		case "cas":
			cas = true
			be(head[16:24], number(value))
		case "keylen":
			lies = append(lies, func() { be(head[2:4], number(value)) })
		case "extlen":
			lies = append(lies, func() { head[4] = byte(number(value)) })
		case "body":
			lies = append(lies, func() { be(head[8:12], number(value)) })
		default:
			return nil, false, fmt.Errorf("unknown %q", name)
		}
	}
	be(head[2:4], uint64(len(k)))
	head[4] = byte(len(e))
	be(head[8:12], uint64(len(e)+len(k)+len(v)))
	for _, lie := range lies {
		lie()
	}
	return append(append(append(head, e...), k...), v...), cas, err
}

func be(b []byte, v uint64) {
	for i := len(b) - 1; i >= 0; i-- {
		b[i] = byte(v)
		v >>= 8
	}
}

// play runs the exchange against a server. chunk is how many bytes are sent at
// once, 0: all that is sent before the next answer is awaited. patience bounds
// the whole.
func (x *exchange) play(network, addr string, chunk int, patience time.Duration) error {
	c, err := net.Dial(network, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	in := bufio.NewReader(c)
	var groups [][]byte
	var out []byte
	flush := func() error {
		defer func() { out = out[:0] }()
		for b := out; len(b) > 0; {
			n := len(b)
			if chunk > 0 {
				n = min(n, chunk)
			}
			if _, err := c.Write(b[:n]); err != nil {
				return err
			}
			b = b[n:]
		}
		return nil
	}
	for i, s := range x.steps {
		at := func(err error) error { return fmt.Errorf("%s:%d: %w", x.file, s.line, err) }
		if s.kind != '>' {
			// A server that hangs up may do so before all is sent.
			if err := flush(); err != nil && x.steps[len(x.steps)-1].kind != 'c' {
				return at(err)
			}
		}
		data := s.data
		for n, g := range groups {
			if n > 0 && s.kind != '~' {
				data = bytes.ReplaceAll(data, fmt.Appendf(nil, `\%d`, n), g)
			}
		}
		switch s.kind {
		case '>':
			out = append(out, data...)
			// A pause in the middle is part of the case when two sends follow each other
			// with nothing read between them only if the case says so (wait).
		case 'w':
			time.Sleep(s.wait)
		case '<', 'b':
			got := make([]byte, len(data))
			n, err := readFull(in, got)
			if s.kind == 'b' && n == len(got) {
				copy(got[16:24], data[16:24])
			}
			if err != nil || !bytes.Equal(got, data) {
				// What more there is helps to see where it went wrong.
				_ = c.SetReadDeadline(time.Now().Add(100 * time.Millisecond))
				more := make([]byte, 200)
				m, _ := in.Read(more)
				return at(fmt.Errorf("step %d: got %q + %q, want %q (%v)", i, got[:n], more[:m], data, err))
			}
		case '~':
			line, err := in.ReadBytes('\n')
			if err != nil {
				return at(fmt.Errorf("got %q: %w", line, err))
			}
			re, err := regexp.Compile("^" + string(s.data) + "\r?\n$")
			if err != nil {
				return at(err)
			}
			g := re.FindSubmatch(line)
			if g == nil {
				return at(fmt.Errorf("got %q, want %s", line, re))
			}
			if len(g) > 1 {
				groups = g
			}
		case 'm':
			return nil
		case 'c':
			got := make([]byte, 200)
			n, err := in.Read(got)
			if n > 0 || err == nil {
				return at(fmt.Errorf("got %q, want the end of the connection", got[:n]))
			}
			if e, ok := err.(net.Error); ok && e.Timeout() {
				return at(fmt.Errorf("the connection stays open"))
			}
			return nil
		}
	}
	if err := flush(); err != nil {
		return err
	}
	// Nothing more may come: the answer to a last command must be the next thing.
	last := x.steps[len(x.steps)-1]
	if last.kind == 'c' {
		return nil
	}
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if b, err := in.Peek(1); err == nil {
		more := make([]byte, 200)
		n, _ := in.Read(more)
		return fmt.Errorf("%s:%d: after the last step came %q%q", x.file, last.line, b, more[:n])
	}
	return nil
}

func readFull(in *bufio.Reader, b []byte) (int, error) {
	n := 0
	for n < len(b) {
		m, err := in.Read(b[n:])
		n += m
		if err != nil {
			return n, err
		}
	}
	return n, nil
}
