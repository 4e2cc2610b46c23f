package protocol

import "bytes"

// Text is one command line, taken apart. It aliases the line.
type Text struct {
	Op      Op
	NoReply bool   // nothing may be answered, whatever happens
	Key     []byte // the key, or the first of a get's keys
	Rest    []byte // get, gat: what follows Key, for NextWord; meta: the flags; administrative commands: the words
	Flags   uint32
	Exptime int64 // as sent: relative, a date, negative or 0
	Bytes   int   // storage commands: length of the data block; -1 when the line does not tell
	CAS     uint64
	Delta   uint64
}

// NextWord splits off the first word of b. Only blanks separate words (a tab is
// part of one). word is empty at the end.
func NextWord(b []byte) (word, rest []byte) {
	i := 0
	for i < len(b) && b[i] == ' ' {
		i++
	}
	b = b[i:]
	if n := bytes.IndexByte(b, ' '); n >= 0 {
		return b[:n], b[n:]
	}
	return b, nil
}

// LineEnd finds the end of the first line of b: n is the line's length without
// its end (LF or CR LF), next is where what follows begins. next is 0 when the
// line is not complete.
func LineEnd(b []byte) (n, next int) {
	i := bytes.IndexByte(b, '\n')
	if i < 0 {
		return 0, 0
	}
	if i > 0 && b[i-1] == '\r' {
		return i - 1, i + 1
	}
	return i, i + 1
}

// LineMayGrow says whether an unfinished line of more than MaxLine bytes is to
// be waited for: only a get may name so many keys.
func LineMayGrow(b []byte) bool {
	i := 0
	for i < len(b) && i < 100 && b[i] == ' ' {
		i++
	}
	b = b[i:]
	for _, w := range [...]string{"get ", "gets ", "gat ", "gats "} {
		if len(b) >= len(w) && string(b[:len(w)]) == w {
			return true
		}
	}
	return false
}

// Parse takes a line (without its end) apart. With a fault, t.Bytes still gives
// the length of a storage command's data block when the line tells it, so that
// the block can be swallowed, and t.NoReply whether the fault may be answered.
//
// Choices where memcached's versions differ: leading blanks are skipped (as up
// to 1.6.39), too few words are a format fault and a block is swallowed after a
// bad key or number (as 1.6.45), surplus words after a delete are a fault (as
// 1.6.18: nothing is deleted by a command that was misunderstood).
func (t *Text) Parse(line []byte) Fault {
	// The two commands that everything is measured by come first.
	if len(line) > 4 && string(line[:4]) == "get " && line[4] != ' ' {
		t.Op, t.NoReply = OpGet, false
		rest := line[4:]
		if i := bytes.IndexByte(rest, ' '); i >= 0 {
			t.Key, t.Rest = rest[:i], rest[i:]
		} else {
			t.Key, t.Rest = rest, nil
		}
		if len(t.Key) > MaxKey {
			return FaultFormat
		}
		return FaultNone
	}
	word, rest := NextWord(line)
	*t = Text{Op: lookup(word), Bytes: -1}
	switch t.Op {
	case OpSet, OpAdd, OpReplace, OpAppend, OpPrepend, OpCAS:
		return t.storage(rest)
	case OpGet, OpGets:
		return t.keys(rest)
	case OpGat, OpGats:
		return t.touchKeys(rest)
	case OpDelete:
		return t.delete(rest)
	case OpIncr, OpDecr:
		return t.arith(rest)
	case OpTouch:
		return t.touch(rest)
	case OpMetaGet, OpMetaDelete, OpMetaArith, OpMetaDebug:
		return t.meta(rest)
	case OpMetaSet:
		return t.metaSet(rest)
	case OpNone:
		// "x" and the blank line are too short to be any command.
		if len(word) < 2 {
			return FaultFormat
		}
		t.NoReply = lastWord(rest, "noreply")
		if w := finalWord(rest); len(w) >= 5 && string(w[:5]) == "HTTP/" {
			return FaultHangup
		}
		return FaultUnknown
	case OpFlushAll:
		return t.flush(rest)
	case OpVerbosity:
		t.NoReply = lastWord(rest, "noreply")
		w, _ := NextWord(rest)
		v, ok := Uint(w)
		if !ok || v > 1<<32-1 {
			return FaultFormat
		}
		t.Delta = v
		return FaultNone
	case OpMetaNoop, OpVersion, OpQuit, OpStats, OpWatch:
		t.Rest = rest
		return FaultNone
	default:
		t.Rest = rest
		t.NoReply = lastWord(rest, "noreply")
		return FaultNone
	}
}

// finalWord is the last word of b, empty if there is none.
func finalWord(b []byte) []byte {
	for len(b) > 0 && b[len(b)-1] == ' ' {
		b = b[:len(b)-1]
	}
	return b[bytes.LastIndexByte(b, ' ')+1:]
}

func lastWord(b []byte, word string) bool { return string(finalWord(b)) == word }

func (t *Text) keys(rest []byte) Fault {
	t.Key, t.Rest = NextWord(rest)
	if len(t.Key) == 0 || len(t.Key) > MaxKey {
		return FaultFormat
	}
	return FaultNone
}

func (t *Text) touchKeys(rest []byte) Fault {
	w, rest := NextWord(rest)
	t.Key, t.Rest = NextWord(rest)
	if len(t.Key) == 0 {
		return FaultFormat
	}
	var ok bool
	if t.Exptime, ok = Int(w); !ok {
		return FaultExptime
	}
	if len(t.Key) > MaxKey {
		return FaultFormat
	}
	return FaultNone
}

// storage: <key> <flags> <exptime> <bytes> [<cas>] [noreply]
func (t *Text) storage(rest []byte) Fault {
	var flags, exptime, size, cas []byte
	t.Key, rest = NextWord(rest)
	flags, rest = NextWord(rest)
	exptime, rest = NextWord(rest)
	size, rest = NextWord(rest)
	n, ok := Uint(size)
	if !ok || n > 1<<31-3 {
		return FaultFormat
	}
	t.Bytes = int(n)
	if t.Op == OpCAS {
		cas, rest = NextWord(rest)
		t.NoReply = lastWord(rest, "noreply") || string(cas) == "noreply"
		if t.CAS, ok = Uint(cas); !ok {
			return FaultFormat
		}
	} else if len(rest) > 0 {
		t.NoReply = lastWord(rest, "noreply")
	}
	if len(t.Key) > MaxKey {
		return FaultFormat
	}
	// Flags are 32 bits; a larger number is cut, as memcached does.
	f, ok := Uint(flags)
	if !ok {
		return FaultFormat
	}
	t.Flags = uint32(f)
	if t.Exptime, ok = Int(exptime); !ok {
		return FaultFormat
	}
	return FaultNone
}

// delete: <key> [0] [noreply]; the 0 was a delay that old clients still send.
func (t *Text) delete(rest []byte) Fault {
	t.Key, rest = NextWord(rest)
	if len(t.Key) == 0 {
		return FaultFormat
	}
	a, rest := NextWord(rest)
	if len(a) > 0 {
		b, rest := NextWord(rest)
		c, _ := NextWord(rest)
		t.NoReply = lastWord(rest, "noreply") || string(b) == "noreply" || string(a) == "noreply"
		switch {
		case len(c) > 0:
			return FaultUnknown
		case len(b) > 0 && (string(a) != "0" || string(b) != "noreply"),
			len(b) == 0 && string(a) != "0" && string(a) != "noreply":
			return FaultDeleteUsage
		}
	}
	if len(t.Key) > MaxKey {
		return FaultFormat
	}
	return FaultNone
}

func (t *Text) arith(rest []byte) Fault {
	t.Key, rest = NextWord(rest)
	w, rest := NextWord(rest)
	if len(w) == 0 {
		return FaultFormat
	}
	t.NoReply = lastWord(rest, "noreply") || string(w) == "noreply"
	if len(t.Key) > MaxKey {
		return FaultFormat
	}
	var ok bool
	if t.Delta, ok = Uint(w); !ok {
		return FaultDelta
	}
	return FaultNone
}

func (t *Text) touch(rest []byte) Fault {
	t.Key, rest = NextWord(rest)
	w, rest := NextWord(rest)
	if len(w) == 0 {
		return FaultFormat
	}
	t.NoReply = lastWord(rest, "noreply") || string(w) == "noreply"
	if len(t.Key) > MaxKey {
		return FaultFormat
	}
	var ok bool
	if t.Exptime, ok = Int(w); !ok {
		return FaultExptime
	}
	return FaultNone
}

// flush_all [delay] [noreply]; further words are ignored.
func (t *Text) flush(rest []byte) Fault {
	t.NoReply = lastWord(rest, "noreply")
	w, _ := NextWord(rest)
	if len(w) == 0 || t.NoReply && string(w) == "noreply" {
		return FaultNone
	}
	var ok bool
	if t.Exptime, ok = Int(w); !ok {
		return FaultExptime
	}
	return FaultNone
}

func (t *Text) meta(rest []byte) Fault {
	t.Key, t.Rest = NextWord(rest)
	if len(t.Key) == 0 {
		return FaultFormat
	}
	return FaultNone
}

// metaSet: <key> <datalen> <flags>*
func (t *Text) metaSet(rest []byte) Fault {
	t.Key, rest = NextWord(rest)
	w, rest := NextWord(rest)
	n, ok := Uint(w)
	if !ok || n > 1<<31-3 {
		return FaultFormat
	}
	t.Bytes, t.Rest = int(n), rest
	return FaultNone
}
