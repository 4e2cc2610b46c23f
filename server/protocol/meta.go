package protocol

import "encoding/base64"

// MaxOpaque is the longest opaque value, without its letter O.
const MaxOpaque = 31

// maxMetaWords is how many words a meta command may have, the command included.
const maxMetaWords = 20

// MetaFlags is a set of meta flags, by letter.
type MetaFlags uint64

// Has says whether the flag of that letter was given.
func (f MetaFlags) Has(letter byte) bool { return f&metaBit(letter) != 0 }

func metaBit(letter byte) MetaFlags { return 1 << (letter - 'A') }

// Meta is a meta command's flags, taken apart. It aliases the line, and the
// buffer given to Parse when the key was in base64.
type Meta struct {
	Given   MetaFlags
	Key     []byte // the item's key, decoded
	KeySent []byte // as it was sent, and as flag k returns it
	Words   []byte // the flags in the order of the request
	Mode    byte   // M; 0 when absent
	TTL     int64  // T
	Vivify  int64  // N
	Recache int64  // R
	Flags   uint32 // F
	CAS     uint64 // C
	NewCAS  uint64 // E
	Initial uint64 // J
	Delta   uint64 // D; 1 when absent
}

// Parse takes the flags of t apart. A base64 key is decoded into buf, which
// needs MaxKey bytes.
func (m *Meta) Parse(t *Text, buf []byte) Fault {
	*m = Meta{Key: t.Key, KeySent: t.Key, Words: t.Rest, Delta: 1}
	if len(t.Key) > MaxKey {
		return FaultFormat
	}
	words := 2
	if t.Op == OpMetaSet {
		words = 3
	}
	for rest := t.Rest; ; {
		var w []byte
		if w, rest = NextWord(rest); len(w) == 0 {
			return FaultNone
		}
		if words++; words > maxMetaWords {
			return FaultFlagCount
		}
		letter := w[0]
		switch {
		case letter < 'A' || letter > 'z':
			if letter >= '0' && letter <= '9' {
				return FaultFlag
			}
			return FaultFormat
		case m.Given.Has(letter):
			return FaultFlagDuplicate
		}
		m.Given |= metaBit(letter)
		if f := m.flag(letter, w[1:], buf); f != FaultNone {
			return f
		}
	}
}

func (m *Meta) flag(letter byte, arg, buf []byte) Fault {
	ok := true
	switch letter {
	case 'k', 's', 't', 'c', 'f', 'v', 'h', 'l', 'u', 'q', 'x', 'I', 'P', 'L':
	case 'b':
		n, err := base64.StdEncoding.Decode(buf[:MaxKey], m.KeySent)
		if err != nil || n == 0 {
			return FaultKeyEncoding
		}
		m.Key = buf[:n]
	case 'O':
		if len(arg) > MaxOpaque {
			return FaultOpaque
		}
	case 'M':
		if len(arg) == 0 {
			return FaultFormat
		}
		m.Mode = arg[0]
	case 'T':
		m.TTL, ok = Int(arg)
	case 'N':
		m.Vivify, ok = Int(arg)
	case 'R':
		m.Recache, ok = Int(arg)
	case 'F':
		var v uint64
		if v, ok = Uint(arg); !ok || v > 1<<32-1 {
			return FaultFormat
		}
		m.Flags = uint32(v)
	case 'C':
		m.CAS, ok = Uint(arg)
	case 'E':
		m.NewCAS, ok = Uint(arg)
	case 'J':
		m.Initial, ok = Uint(arg)
	case 'D':
		m.Delta, ok = Uint(arg)
	default:
		return FaultFlag
	}
	if !ok {
		return FaultFlagToken
	}
	return FaultNone
}

// MetaInfo is what a reply's flags may tell about an item.
type MetaInfo struct {
	Size    int
	Flags   uint32
	CAS     uint64
	TTL     int64 // seconds left; -1: never expires
	NewTTL  int64 // the same, for a t that stands behind a T (or N, for a made item)
	Access  int64 // seconds since the last access
	Fetched bool
}

// AppendMetaWords appends the return flags asked for by words, in their order,
// each with a blank before it. Letters not in which are left out. key is the key
// as it was sent.
func AppendMetaWords(dst, words, key []byte, which MetaFlags, info *MetaInfo) []byte {
	binary := false
	for rest := words; ; {
		var w []byte
		if w, rest = NextWord(rest); len(w) == 0 {
			break
		}
		if w[0] == 'b' {
			binary = true
			break
		}
	}
	ttl := info.TTL
	for {
		var w []byte
		if w, words = NextWord(words); len(w) == 0 {
			return dst
		}
		letter := w[0]
		if letter == 'T' || letter == 'N' {
			ttl = info.NewTTL
		}
		if !which.Has(letter) {
			continue
		}
		if letter == 'O' {
			dst = append(append(dst, ' '), w...)
			continue
		}
		dst = append(dst, ' ', letter)
		switch letter {
		case 'k':
			dst = append(dst, key...)
			if binary {
				dst = append(dst, " b"...)
			}
		case 's':
			dst = AppendUint(dst, uint64(info.Size))
		case 'f':
			dst = AppendUint(dst, uint64(info.Flags))
		case 'c':
			dst = AppendUint(dst, info.CAS)
		case 't':
			dst = AppendInt(dst, ttl)
		case 'l':
			dst = AppendInt(dst, info.Access)
		case 'h':
			if info.Fetched {
				dst = append(dst, '1')
			} else {
				dst = append(dst, '0')
			}
		}
	}
}

// Return flags by command: what a reply may carry.
const (
	MetaReturnMiss   MetaFlags = 1<<('O'-'A') | 1<<('k'-'A')
	MetaReturnDelete           = MetaReturnMiss
	MetaReturnSet              = MetaReturnMiss | 1<<('c'-'A') | 1<<('s'-'A')
	MetaReturnArith            = MetaReturnMiss | 1<<('c'-'A') | 1<<('t'-'A')
	MetaReturnGet              = MetaReturnSet | 1<<('f'-'A') | 1<<('t'-'A') | 1<<('l'-'A') | 1<<('h'-'A')
)
