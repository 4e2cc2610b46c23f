package protocol

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"strconv"
	"strings"
	"testing"
)

// naiveStorage reads a storage line by splitting it into words, which is slow and
// plainly right. It stands for what the fast parser must agree with.
func naiveStorage(line string) (Text, Fault) {
	var w []string
	for x := range strings.SplitSeq(line, " ") {
		if x != "" {
			w = append(w, x)
		}
	}
	t := Text{Op: lookup([]byte(w[0])), Bytes: -1}
	need := 5
	if t.Op == OpCAS {
		need = 6
	}
	if len(w) < 5 {
		return t, FaultFormat
	}
	digits := func(s string, limit uint64) (uint64, bool) {
		v, err := strconv.ParseUint(s, 10, 64)
		return v, err == nil && len(s) <= 20 && v <= limit
	}
	n, ok := digits(w[4], 1<<31-3)
	if !ok {
		return t, FaultFormat
	}
	t.Bytes = int(n)
	t.NoReply = len(w) > 5 && w[len(w)-1] == "noreply"
	if t.Op == OpCAS && len(w) > 5 && w[5] == "noreply" {
		t.NoReply = true
	}
	if len(w) < need {
		return t, FaultFormat
	}
	if t.Op == OpCAS {
		if t.CAS, ok = digits(w[5], 1<<64-1); !ok {
			t.CAS = 0
			return t, FaultFormat
		}
	}
	if len(w[1]) > MaxKey {
		return t, FaultFormat
	}
	flags, ok := digits(w[2], 1<<64-1)
	if !ok {
		return t, FaultFormat
	}
	t.Flags = uint32(flags)
	e := strings.TrimPrefix(w[3], "-")
	v, ok := digits(e, 1<<63-1)
	if !ok {
		return t, FaultFormat
	}
	t.Exptime = int64(v)
	if e != w[3] {
		t.Exptime = -int64(v)
	}
	return t, FaultNone
}

// FuzzText: no line makes the parser fail, what it gives lies inside the line, a
// parser that was used before gives the same, and storage lines mean what the
// naive reader makes of them.
func FuzzText(f *testing.F) {
	for _, s := range []string{
		"get a", "get a b c", "gets a", "gat 10 a b", "set k 1 2 3", "cas k 1 2 3 4 noreply", "delete k 0 noreply", "incr k 5 noreply",
		"touch k -1", "flush_all 10 noreply", "verbosity 1", "mg k v t", "ms k 3 T0", "mn", "stats items", "", " ", "GET / HTTP/1.1",
		"set k 18446744073709551616 0 1", "cas k 0 0 1 noreply", "get \x00\xff", "lru tune 1 2 3 4", "set  a  0   0 1  noreply ",
	} {
		f.Add([]byte(s))
	}
	dirty := Text{Op: OpCAS, NoReply: true, Key: []byte("dirty"), Rest: []byte("dirty"), Flags: 9, Exptime: 9, Bytes: 9, CAS: 9, Delta: 9}
	f.Fuzz(func(t *testing.T, line []byte) {
		line = bytes.ReplaceAll(line, []byte("\n"), nil)
		kept := bytes.Clone(line)
		var x Text
		fault := x.Parse(line)
		if !bytes.Equal(line, kept) {
			t.Fatal("the line was changed")
		}
		if fault >= faultEnd || x.Op >= opEnd {
			t.Fatalf("fault %d, op %d", fault, x.Op)
		}
		if !inside(x.Key, line) || !inside(x.Rest, line) {
			t.Fatalf("%q: key or rest are not of the line", line)
		}
		y := dirty
		if g := y.Parse(line); g != fault || y.Op != x.Op || y.NoReply != x.NoReply || !bytes.Equal(y.Key, x.Key) || !bytes.Equal(y.Rest, x.Rest) {
			t.Fatalf("%q: after other lines %d %+v, at first %d %+v", line, g, y, fault, x)
		}
		if fault == FaultNone {
			switch x.Op {
			case OpGet, OpGets, OpGat, OpGats, OpSet, OpAdd, OpReplace, OpAppend, OpPrepend, OpCAS, OpDelete, OpIncr, OpDecr, OpTouch:
				if len(x.Key) == 0 || len(x.Key) > MaxKey {
					t.Fatalf("%q: key of %d bytes", line, len(x.Key))
				}
			}
			if bytes.IndexByte(x.Key, ' ') >= 0 {
				t.Fatalf("%q: key %q", line, x.Key)
			}
		}
		switch x.Op {
		case OpSet, OpAdd, OpReplace, OpAppend, OpPrepend, OpCAS:
			if y.Bytes != x.Bytes || y.Flags != x.Flags || y.CAS != x.CAS || y.Exptime != x.Exptime {
				t.Fatalf("%q: %+v, at first %+v", line, y, x)
			}
			want, wantFault := naiveStorage(string(line))
			if fault != wantFault || x.Bytes != want.Bytes || x.NoReply != want.NoReply ||
				fault == FaultNone && (x.Flags != want.Flags || x.Exptime != want.Exptime || x.CAS != want.CAS) {
				t.Fatalf("%q: %d %+v, want %d %+v", line, fault, x, wantFault, want)
			}
		}
		// The words that NextWord gives are those of a split at blanks.
		n := 0
		for rest := line; ; n++ {
			var w []byte
			if w, rest = NextWord(rest); len(w) == 0 {
				break
			}
		}
		words := 0
		for w := range bytes.SplitSeq(line, []byte(" ")) {
			if len(w) > 0 {
				words++
			}
		}
		if n != words {
			t.Fatalf("%q: %d words, want %d", line, n, words)
		}
	})
}

func inside(part, whole []byte) bool {
	return len(part) == 0 || bytes.Contains(whole, part)
}

// maxReplyLine is what package server reserves for one line of a reply.
const maxReplyLine = 640

// FuzzMeta: no flags make the parser fail, and no reply made of them is longer
// than what is reserved for a line.
func FuzzMeta(f *testing.F) {
	for _, s := range []string{
		"mg k v t f s c k O123 q", "mg a2V5 b k v", "mg k N30 R10 T5 E99", "ms k 3 T0 F5 C9 I MA N10", "md k q x C1 T0 I", "ma k N0 J13 D2 MD v t c",
		"mg k v v", "mg k !", "mg k 5", "mg k O" + strings.Repeat("o", 32), "me k b", "mg " + strings.Repeat("a", 250) + " k O" + strings.Repeat("x", 31),
		"mg ==== b", "mg k Tx", "mg k F99999999999", "mg k a s d f g h j k l z x c v b n m q w e r t",
	} {
		f.Add([]byte(s), uint64(12345), int64(-1))
	}
	f.Fuzz(func(t *testing.T, line []byte, n uint64, at int64) {
		line = bytes.ReplaceAll(line, []byte("\n"), nil)
		var x Text
		if x.Parse(line) != FaultNone {
			return
		}
		switch x.Op {
		case OpMetaGet, OpMetaSet, OpMetaDelete, OpMetaArith, OpMetaDebug:
		default:
			return
		}
		var buf [MaxKey + 6]byte
		var m Meta
		fault := m.Parse(&x, buf[:])
		if fault >= faultEnd {
			t.Fatalf("fault %d", fault)
		}
		m2 := Meta{Given: ^MetaFlags(0), Mode: 'x', TTL: 5, CAS: 5, NewCAS: 5, Delta: 5, Flags: 5}
		if g := m2.Parse(&x, buf[:]); g != fault || m2.Given != m.Given || m2.Mode != m.Mode || m2.TTL != m.TTL || m2.CAS != m.CAS || m2.Delta != m.Delta {
			t.Fatalf("%q: after others %d %+v, at first %d %+v", line, g, m2, fault, m)
		}
		if fault != FaultNone {
			return
		}
		if len(m.Key) == 0 || len(m.Key) > MaxKey || len(m.KeySent) > MaxKey {
			t.Fatalf("%q: key of %d bytes", line, len(m.Key))
		}
		if m.Given.Has('b') {
			if want, err := base64.StdEncoding.DecodeString(string(m.KeySent)); err != nil || !bytes.Equal(want, m.Key) {
				t.Fatalf("%q: key %q, want %q (%v)", line, m.Key, want, err)
			}
		} else if !bytes.Equal(m.Key, m.KeySent) {
			t.Fatalf("%q: key %q", line, m.Key)
		}
		info := MetaInfo{Size: int(n % (1 << 30)), Flags: uint32(n), CAS: n, TTL: at, NewTTL: -at, Access: at, Fetched: n%2 == 0}
		for _, which := range []MetaFlags{MetaReturnMiss, MetaReturnSet, MetaReturnArith, MetaReturnGet, MetaReturnDelete} {
			b := AppendMetaWords([]byte("VA 1073741824"), m.Words, m.KeySent, which, &info)
			if len(b)+len(" Z X W\r\n") > maxReplyLine {
				t.Fatalf("%q: a reply of %d bytes", line, len(b))
			}
			if bytes.ContainsAny(b, "\n") {
				t.Fatalf("%q: a reply of two lines: %q", line, b)
			}
		}
	})
}

// FuzzBinary: no header makes the parser fail, its parts lie where the lengths
// say, and nothing is decided before the key is there.
func FuzzBinary(f *testing.F) {
	packet := func(op byte, extras, key, value string) []byte {
		h := make([]byte, BinaryHeaderLen)
		h[0], h[1], h[4] = BinaryRequest, op, byte(len(extras))
		binary.BigEndian.PutUint16(h[2:], uint16(len(key)))
		binary.BigEndian.PutUint32(h[8:], uint32(len(extras)+len(key)+len(value)))
		return append(h, extras+key+value...)
	}
	for op := range byte(0x26) {
		f.Add(packet(op, "", "k", ""))
		f.Add(packet(op, "\x00\x00\x00\x01\x00\x00\x00\x00", "key", "value"))
		f.Add(packet(op, strings.Repeat("\x00", 20), "key", ""))
	}
	f.Add(packet(1, "", strings.Repeat("k", 251), ""))
	f.Add([]byte{BinaryRequest})
	f.Add([]byte("get a\r\n"))
	f.Fuzz(func(t *testing.T, in []byte) {
		var b Binary
		n, ok := b.Parse(in)
		if len(in) > 0 && in[0] != BinaryRequest {
			if ok || n != 0 {
				t.Fatalf("%x was taken for a request", in[:1])
			}
			return
		}
		if !ok {
			t.Fatal("a request was refused")
		}
		for cut := range min(n, len(in)) {
			var c Binary
			if m, ok := c.Parse(in[:cut]); m != 0 || !ok {
				t.Fatalf("%d of %d bytes were enough", cut, n)
			}
		}
		if n == 0 {
			return
		}
		if n != BinaryHeaderLen+len(b.Extras)+len(b.Key) || n > len(in) {
			t.Fatalf("took %d: %d of extras, %d of key", n, len(b.Extras), len(b.Key))
		}
		if !bytes.Equal(in[BinaryHeaderLen:n], append(bytes.Clone(b.Extras), b.Key...)) {
			t.Fatal("extras and key are not what was sent")
		}
		if loud, quiet := b.Sent.Loud(); loud != b.Op || quiet != b.Quiet {
			t.Fatalf("%x: %x %v", b.Sent, b.Op, b.Quiet)
		}
		if again, quiet := b.Op.Loud(); quiet || again != b.Op {
			t.Fatalf("the loud form %x of %x is quiet", b.Op, b.Sent)
		}
		if b.Fits() {
			switch b.Op {
			case BinSet, BinAdd, BinReplace:
				b.Uint32(0)
				b.Uint32(4)
			case BinIncr, BinDecr:
				b.Uint64(0)
				b.Uint64(8)
				b.Uint32(16)
			case BinTouch, BinGat, BinGatK:
				b.Uint32(0)
			}
		}
	})
}

// FuzzToken: a login body is taken apart at its first separator, or not at all.
func FuzzToken(f *testing.F) {
	f.Add([]byte("user password"))
	f.Add([]byte("\x00user\x00password"))
	f.Add([]byte("authz\x00user\x00pass word\x00"))
	f.Fuzz(func(t *testing.T, body []byte) {
		if u, p, ok := SplitToken(body); ok != bytes.Contains(body, []byte(" ")) || ok && string(u)+" "+string(p) != string(body) {
			t.Fatalf("%q: %q %q %v", body, u, p, ok)
		}
		u, p, ok := SplitPlain(body)
		if ok != (bytes.Count(body, []byte{0}) >= 2) || ok && (!bytes.HasSuffix(body, []byte(string(u)+"\x00"+string(p))) || bytes.IndexByte(u, 0) >= 0) {
			t.Fatalf("%q: %q %q %v", body, u, p, ok)
		}
	})
}
