package protocol

import (
	"strings"
	"testing"
)

func TestMetaParse(t *testing.T) {
	for _, c := range []struct {
		line  string
		fault Fault
		key   string
	}{
		{"mg k", FaultNone, "k"},
		{"mg k v t f s c k q O1", FaultNone, "k"},
		{"mg a2V5 b v", FaultNone, "key"},
		{"mg AAEC b", FaultNone, "\x00\x01\x02"},
		{"mg a2V b", FaultKeyEncoding, ""},
		{"mg a2V5a2V5! b", FaultKeyEncoding, ""},
		{"mg k v v", FaultFlagDuplicate, ""},
		{"mg k !", FaultFormat, ""},
		{"mg k \xff", FaultFormat, ""},
		{"mg k 5", FaultFlag, ""},
		{"mg k o", FaultFlag, ""},
		{"mg k O" + strings.Repeat("x", 31), FaultNone, "k"},
		{"mg k O" + strings.Repeat("x", 32), FaultOpaque, ""},
		{"mg k Tx", FaultFlagToken, ""},
		{"mg k T", FaultFlagToken, ""},
		{"mg k T-1", FaultNone, "k"},
		{"mg k C-1", FaultFlagToken, ""},
		{"ms k 1 F4294967296", FaultFormat, ""},
		{"ms k 1 F4294967295", FaultNone, "k"},
		{"ms k 1 M", FaultFormat, ""},
		{"mg " + longKey, FaultFormat, ""},
		{"mg " + longKey[1:], FaultNone, longKey[1:]},
		{"mg k k s t c f v h l u q x I P b O1 T1 N1", FaultKeyEncoding, ""}, // 20 words: the limit
		{"mg k k s t c f v h l u q x I P L O1 T1 N1 R1", FaultNone, "k"},
		{"mg k k s t c f v h l u q x I P L O1 T1 N1 R1 E1", FaultFlagCount, ""},
	} {
		var x Text
		var m Meta
		var buf [MaxKey]byte
		f := x.Parse([]byte(c.line))
		if f == FaultNone {
			f = m.Parse(&x, buf[:])
		}
		if f != c.fault || f == FaultNone && string(m.Key) != c.key {
			t.Errorf("%q: %d (%q) key %q, want %d key %q", c.line, f, f.Line(), m.Key, c.fault, c.key)
		}
	}
	var x Text
	var m Meta
	x.Parse([]byte("ma k N30 J13 D2 T-1 MD C5 E18446744073709551615 R7"))
	if f := m.Parse(&x, nil); f != FaultNone || m.Vivify != 30 || m.Initial != 13 || m.Delta != 2 || m.TTL != -1 || m.Mode != 'D' || m.CAS != 5 || m.NewCAS != 1<<64-1 || m.Recache != 7 {
		t.Errorf("%d %+v", f, m)
	}
	x.Parse([]byte("ma k"))
	if f := m.Parse(&x, nil); f != FaultNone || m.Delta != 1 || m.Given != 0 {
		t.Errorf("without flags: %d %+v", f, m)
	}
}

func TestMetaWords(t *testing.T) {
	info := MetaInfo{Size: 3, Flags: 5, CAS: 7, TTL: -1, NewTTL: 30, Access: 2, Fetched: true}
	for _, c := range []struct {
		words string
		which MetaFlags
		want  string
	}{
		{"", MetaReturnGet, ""},
		{" v q s f c t l h", MetaReturnGet, " s3 f5 c7 t-1 l2 h1"},
		{" h  l t", MetaReturnGet, " h1 l2 t-1"},
		{" k O12 s", MetaReturnGet, " kkey O12 s3"},
		{" O12 k b s", MetaReturnGet, " O12 kkey b s3"},
		{" b k", MetaReturnGet, " kkey b"},
		{" t T30", MetaReturnGet, " t-1"},
		{" T30 t", MetaReturnGet, " t30"},
		{" s f k O1", MetaReturnMiss, " kkey O1"},
		{" c s k t", MetaReturnSet, " c7 s3 kkey"},
		{" N0 t c", MetaReturnArith, " t30 c7"},
	} {
		if got := string(AppendMetaWords(nil, []byte(c.words), []byte("key"), c.which, &info)); got != c.want {
			t.Errorf("%q: %q, want %q", c.words, got, c.want)
		}
	}
}
