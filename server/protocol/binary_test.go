package protocol

import (
	"bytes"
	"testing"
)

// TestLoud lists the quiet commands, each with the command it is the quiet form of.
func TestLoud(t *testing.T) {
	quiet := map[Opcode]Opcode{
		BinGetQ: BinGet, BinGetKQ: BinGetK, BinSetQ: BinSet, BinAddQ: BinAdd, BinReplaceQ: BinReplace, BinDeleteQ: BinDelete,
		BinIncrQ: BinIncr, BinDecrQ: BinDecr, BinQuitQ: BinQuit, BinFlushQ: BinFlush, BinAppendQ: BinAppend, BinPrependQ: BinPrepend,
		BinGatQ: BinGat, BinGatKQ: BinGatK,
	}
	for op := range 256 {
		want, isQuiet := quiet[Opcode(op)]
		if !isQuiet {
			want = Opcode(op)
		}
		if got, q := Opcode(op).Loud(); got != want || q != isQuiet {
			t.Errorf("%#02x: %#02x %v, want %#02x %v", op, got, q, want, isQuiet)
		}
	}
}

func TestBinaryFits(t *testing.T) {
	bytesOf := func(n int) []byte { return make([]byte, n) }
	for _, c := range []struct {
		op                 Opcode
		extras, key, value int
		want               bool
	}{
		{BinGet, 0, 1, 0, true}, {BinGet, 1, 1, 0, false}, {BinGet, 0, 0, 0, false}, {BinGet, 0, 1, 1, false},
		{BinSet, 8, 1, 0, true}, {BinSet, 8, 1, 100, true}, {BinSet, 0, 1, 1, false}, {BinSet, 8, 0, 1, false},
		{BinAppend, 0, 1, 1, true}, {BinAppend, 8, 1, 1, false},
		{BinIncr, 20, 1, 0, true}, {BinIncr, 16, 1, 0, false}, {BinIncr, 20, 1, 1, false},
		{BinFlush, 0, 0, 0, true}, {BinFlush, 4, 0, 0, true}, {BinFlush, 3, 0, 0, false}, {BinFlush, 0, 1, 0, false},
		{BinNoop, 0, 0, 0, true}, {BinNoop, 0, 0, 1, false},
		{BinTouch, 4, 1, 0, true}, {BinTouch, 0, 1, 0, false}, {BinGatK, 4, 1, 0, true},
		{BinStat, 0, 0, 0, true}, {BinStat, 0, 5, 0, true}, {BinStat, 1, 5, 0, false},
		{0x7f, 1, 2, 3, true}, // no command: nothing is known of its lengths
	} {
		b := Binary{Op: c.op, Extras: bytesOf(c.extras), Key: bytesOf(c.key), Body: c.extras + c.key + c.value}
		if got := b.Fits(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestBinaryReply writes a header and reads its fields back where the protocol has them.
func TestBinaryReply(t *testing.T) {
	r := BinaryReply{Op: BinGetK, Status: StatusNotFound, Opaque: 0xdeadbeef, CAS: 0x0102030405060708}
	want := []byte{0x81, 0x0c, 0, 5, 4, 0, 0, 1, 0, 0, 0, 20, 0xde, 0xad, 0xbe, 0xef, 1, 2, 3, 4, 5, 6, 7, 8}
	if got := r.AppendHeader(nil, 4, 5, 20); !bytes.Equal(got, want) {
		t.Errorf("%x, want %x", got, want)
	}
	for s := range Status(0x100) {
		known := false
		switch s {
		case StatusNotFound, StatusExists, StatusTooLarge, StatusInvalid, StatusNotStored, StatusNonNumeric, StatusAuthError, StatusUnknown, StatusNoMemory:
			known = true
		}
		if (s.Text() != "") != known {
			t.Errorf("status %#x: %q", uint16(s), s.Text())
		}
	}
}
