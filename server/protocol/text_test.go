package protocol

import (
	"reflect"
	"strings"
	"testing"
)

var longKey = strings.Repeat("k", MaxKey+1)

// TestTextParse gives what each form of a line is taken for. Bytes is -1 where
// the line tells no length.
func TestTextParse(t *testing.T) {
	none := func(f Fault, x Text) (Fault, Text) { x.Bytes = -1; return f, x }
	b := func(s string) []byte { return []byte(s) }
	for _, c := range []struct {
		line string
		f    Fault
		want Text
	}{
		{"set k 5 60 3", FaultNone, Text{Op: OpSet, Key: b("k"), Flags: 5, Exptime: 60, Bytes: 3}},
		{"add  k   5 -1 0 noreply", FaultNone, Text{Op: OpAdd, Key: b("k"), Flags: 5, Exptime: -1, NoReply: true}},
		{" replace k 0 0 3 surplus words", FaultNone, Text{Op: OpReplace, Key: b("k"), Bytes: 3}},
		{"append k 4294967297 0 1", FaultNone, Text{Op: OpAppend, Key: b("k"), Flags: 1, Bytes: 1}},
		{"cas k 0 0 2 18446744073709551615 noreply", FaultNone, Text{Op: OpCAS, Key: b("k"), Bytes: 2, CAS: 1<<64 - 1, NoReply: true}},
		// A length that can be read is kept, so that the block can be swallowed.
		{"set k -1 0 3", FaultFormat, Text{Op: OpSet, Key: b("k"), Bytes: 3}},
		{"set k 0 x 3 noreply", FaultFormat, Text{Op: OpSet, Key: b("k"), Bytes: 3, NoReply: true}},
		{"set " + longKey + " 0 0 3", FaultFormat, Text{Op: OpSet, Key: b(longKey), Bytes: 3}},
		{"cas k 0 0 2", FaultFormat, Text{Op: OpCAS, Key: b("k"), Bytes: 2}},
		{"cas k 0 0 2 x", FaultFormat, Text{Op: OpCAS, Key: b("k"), Bytes: 2}},
		{"set k 0 0 -1", FaultFormat, Text{Op: OpSet, Key: b("k"), Bytes: -1}},
		{"set k 0 0 2147483646", FaultFormat, Text{Op: OpSet, Key: b("k"), Bytes: -1}},
		{"set k 0 0 99999999999999999999", FaultFormat, Text{Op: OpSet, Key: b("k"), Bytes: -1}},
		{"set k 0 0", FaultFormat, Text{Op: OpSet, Key: b("k"), Bytes: -1}},
		{"set", FaultFormat, Text{Op: OpSet, Key: b(""), Bytes: -1}},
	} {
		var x Text
		f := x.Parse([]byte(c.line))
		x.Rest = nil
		if f != c.f || !sameText(x, c.want) {
			t.Errorf("%q: %d %+v, want %d %+v", c.line, f, x, c.f, c.want)
		}
	}
	for _, c := range []struct {
		line string
		f    Fault
		want Text
	}{
		{"get a", FaultNone, Text{Op: OpGet, Key: b("a")}},
		{"get a b  c", FaultNone, Text{Op: OpGet, Key: b("a"), Rest: b(" b  c")}},
		{"get  a", FaultNone, Text{Op: OpGet, Key: b("a")}},
		{"get a\tb", FaultNone, Text{Op: OpGet, Key: b("a\tb")}},
		{"get", FaultFormat, Text{Op: OpGet}},
		{"get ", FaultFormat, Text{Op: OpGet}},
		{"get " + longKey, FaultFormat, Text{Op: OpGet, Key: b(longKey)}},
		{"gets a b", FaultNone, Text{Op: OpGets, Key: b("a"), Rest: b(" b")}},
		{"gat 10 a b", FaultNone, Text{Op: OpGat, Key: b("a"), Rest: b(" b"), Exptime: 10}},
		{"gats -1 a", FaultNone, Text{Op: OpGats, Key: b("a"), Exptime: -1}},
		{"gat 10", FaultFormat, Text{Op: OpGat}},
		{"gat x a", FaultExptime, Text{Op: OpGat, Key: b("a")}},
		{"delete k", FaultNone, Text{Op: OpDelete, Key: b("k")}},
		{"delete k 0", FaultNone, Text{Op: OpDelete, Key: b("k")}},
		{"delete k noreply", FaultNone, Text{Op: OpDelete, Key: b("k"), NoReply: true}},
		{"delete k 0 noreply", FaultNone, Text{Op: OpDelete, Key: b("k"), NoReply: true}},
		{"delete k 1", FaultDeleteUsage, Text{Op: OpDelete, Key: b("k")}},
		{"delete k 10 noreply", FaultDeleteUsage, Text{Op: OpDelete, Key: b("k"), NoReply: true}},
		{"delete a b c d e", FaultUnknown, Text{Op: OpDelete, Key: b("a")}},
		{"delete", FaultFormat, Text{Op: OpDelete}},
		{"delete " + longKey, FaultFormat, Text{Op: OpDelete, Key: b(longKey)}},
		{"incr k 18446744073709551615", FaultNone, Text{Op: OpIncr, Key: b("k"), Delta: 1<<64 - 1}},
		{"decr k 1 noreply", FaultNone, Text{Op: OpDecr, Key: b("k"), Delta: 1, NoReply: true}},
		{"incr k 18446744073709551616", FaultDelta, Text{Op: OpIncr, Key: b("k")}},
		{"incr k -1", FaultDelta, Text{Op: OpIncr, Key: b("k")}},
		{"incr k noreply", FaultDelta, Text{Op: OpIncr, Key: b("k"), NoReply: true}},
		{"incr k", FaultFormat, Text{Op: OpIncr, Key: b("k")}},
		{"touch k 0", FaultNone, Text{Op: OpTouch, Key: b("k")}},
		{"touch k -5 noreply", FaultNone, Text{Op: OpTouch, Key: b("k"), Exptime: -5, NoReply: true}},
		{"touch k x", FaultExptime, Text{Op: OpTouch, Key: b("k")}},
		{"touch k", FaultFormat, Text{Op: OpTouch, Key: b("k")}},
		{"flush_all", FaultNone, Text{Op: OpFlushAll}},
		{"flush_all noreply", FaultNone, Text{Op: OpFlushAll, NoReply: true}},
		{"flush_all 10 noreply", FaultNone, Text{Op: OpFlushAll, Exptime: 10, NoReply: true}},
		{"flush_all x", FaultExptime, Text{Op: OpFlushAll}},
		{"verbosity 1 2", FaultNone, Text{Op: OpVerbosity, Delta: 1}},
		{"verbosity", FaultFormat, Text{Op: OpVerbosity}},
		{"verbosity invalid", FaultFormat, Text{Op: OpVerbosity}},
		{"mg k v t", FaultNone, Text{Op: OpMetaGet, Key: b("k"), Rest: b(" v t")}},
		{"mg", FaultFormat, Text{Op: OpMetaGet}},
		{"mn x", FaultNone, Text{Op: OpMetaNoop, Rest: b(" x")}},
		{"ms k S1", FaultFormat, Text{Op: OpMetaSet, Key: b("k")}},
		{"stats ", FaultNone, Text{Op: OpStats, Rest: b(" ")}},
		{"", FaultFormat, Text{}},
		{" ", FaultFormat, Text{}},
		{"x", FaultFormat, Text{}},
		{"GET k", FaultUnknown, Text{}},
		{"bogus noreply", FaultUnknown, Text{NoReply: true}},
		{"GET / HTTP/1.1", FaultHangup, Text{}},
	} {
		var x Text
		wantF, want := none(c.f, c.want)
		f := x.Parse([]byte(c.line))
		if x.Op == OpGet {
			x.Bytes = -1 // means nothing for a get, and its short path leaves it
		}
		if f != wantF || !sameText(x, want) {
			t.Errorf("%q: %d %+v, want %d %+v", c.line, f, x, wantF, want)
		}
	}
	var x Text
	if f := x.Parse([]byte("ms k 4 T0 F1")); f != FaultNone || x.Bytes != 4 || string(x.Rest) != " T0 F1" {
		t.Errorf("ms: %d %+v", f, x)
	}
}

// sameText compares without telling nil from empty.
func sameText(a, b Text) bool {
	if string(a.Key) != string(b.Key) || string(a.Rest) != string(b.Rest) {
		return false
	}
	a.Key, a.Rest, b.Key, b.Rest = nil, nil, nil, nil
	return reflect.DeepEqual(a, b)
}

func TestLineEnd(t *testing.T) {
	for _, c := range []struct {
		in      string
		n, next int
	}{
		{"", 0, 0}, {"abc", 0, 0}, {"abc\r", 0, 0},
		{"\n", 0, 1}, {"\r\n", 0, 2}, {"abc\n", 3, 4}, {"abc\r\n", 3, 5},
		{"a\r\r\nb\n", 2, 4}, {"a\rb\n", 3, 4}, {"a\nb\r\n", 1, 2},
	} {
		if n, next := LineEnd([]byte(c.in)); n != c.n || next != c.next {
			t.Errorf("%q: %d, %d, want %d, %d", c.in, n, next, c.n, c.next)
		}
	}
}

func TestLineMayGrow(t *testing.T) {
	for in, want := range map[string]bool{
		"get a": true, "gets a": true, "gat 1 a": true, "gats 1 a": true, "   get a": true,
		"get": false, "getx a": false, "set a": false, "mg a": false, "": false,
		strings.Repeat(" ", 101) + "get a": false,
	} {
		if got := LineMayGrow([]byte(in)); got != want {
			t.Errorf("%q: %v, want %v", in, got, want)
		}
	}
}

// Every fault but the silent ones has a line, and every line ends as lines do.
func TestFaultLines(t *testing.T) {
	seen := map[string]Fault{}
	for f := range faultEnd {
		line := f.Line()
		if f == FaultNone || f == FaultHangup {
			if line != "" {
				t.Errorf("fault %d has a line", f)
			}
			continue
		}
		if !strings.HasSuffix(line, "\r\n") || strings.Count(line, "\n") != 1 {
			t.Errorf("fault %d: %q", f, line)
		}
		if g, ok := seen[line]; ok {
			t.Errorf("faults %d and %d share %q", f, g, line)
		}
		seen[line] = f
	}
}

// Every command's name is found under itself.
func TestLookup(t *testing.T) {
	for op := OpNone + 1; op < opEnd; op++ {
		if got := lookup([]byte(op.String())); got != op {
			t.Errorf("%q is %d, want %d", op.String(), got, op)
		}
		if got := lookup([]byte(strings.ToUpper(op.String()))); got != OpNone {
			t.Errorf("%q in capitals is %v", op.String(), got)
		}
	}
}

func TestTextAllocations(t *testing.T) {
	lines := [][]byte{
		[]byte("get key1"), []byte("get key1 key2 key3"), []byte("set key 0 0 100"), []byte("cas k 1 2 3 4 noreply"),
		[]byte("incr k 10"), []byte("delete k"), []byte("touch k 100"), []byte("bogus"), []byte("mg k v t f c k O123"),
	}
	var x Text
	var m Meta
	var buf [MaxKey]byte
	if n := testing.AllocsPerRun(100, func() {
		for _, l := range lines {
			x.Parse(l)
		}
		m.Parse(&x, buf[:])
	}); n != 0 {
		t.Errorf("%v allocations a run", n)
	}
}

func BenchmarkParseGet(b *testing.B) {
	line := []byte("get key:000000000012345678")
	var x Text
	b.ReportAllocs()
	for b.Loop() {
		x.Parse(line)
	}
}

func BenchmarkParseSet(b *testing.B) {
	line := []byte("set key:000000000012345678 0 0 4096")
	var x Text
	b.ReportAllocs()
	for b.Loop() {
		x.Parse(line)
	}
}

// BenchmarkParseSetNaive is what splitting into words and strconv cost.
func BenchmarkParseSetNaive(b *testing.B) {
	line := []byte("set key:000000000012345678 0 0 4096")
	b.ReportAllocs()
	for b.Loop() {
		if _, f := naiveStorage(string(line)); f != FaultNone {
			b.Fatal(f)
		}
	}
}
