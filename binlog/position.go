package binlog

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrPositionLost says that the source cannot go on from the position asked for: its log was purged or reset, it lacks
// transactions that were already given out, or it is another server. Every table must be copied again. It comes wrapped
// with the server's words and the way to avoid it next time.
var ErrPositionLost = errors.New("position lost")

// Position is a place between two transactions of a source's history. The zero Position is nowhere: Source.Open takes
// it as "from now on".
type Position struct {
	Server  string // which server File and Pos belong to
	File    string // binary log file; "" when only GTIDs are known
	Pos     uint64 // offset in File, not limited to 32 bits
	Created uint32 // File's creation (unix seconds, from its first event); 0: unknown
	GTIDs   string // the flavor's own text without blanks; "" when unknown or off
}

// IsZero reports whether p is the zero Position.
func (p Position) IsZero() bool { return p == Position{} }

// String gives the position for messages: the file and offset, then the GTIDs.
func (p Position) String() string {
	if p.File == "" {
		if p.GTIDs == "" {
			return "nowhere"
		}
		return p.GTIDs
	}
	s := p.File + ":" + strconv.FormatUint(p.Pos, 10)
	if p.GTIDs != "" {
		s += " " + p.GTIDs
	}
	return s
}

// MarshalText gives a form that UnmarshalText reads back whole.
func (p Position) MarshalText() ([]byte, error) {
	if p.IsZero() {
		return []byte{}, nil
	}
	return fmt.Appendf(nil, "server=%s file=%s pos=%d created=%d gtids=%s",
		escapeWord(p.Server), escapeWord(p.File), p.Pos, p.Created, stripBlanks(p.GTIDs)), nil
}

// UnmarshalText reads what MarshalText wrote.
func (p *Position) UnmarshalText(text []byte) error {
	var q Position
	for _, word := range strings.Fields(string(text)) {
		name, value, ok := strings.Cut(word, "=")
		if !ok {
			return fmt.Errorf("read position: %q has no value", word)
		}
		var err error
		switch name {
		case "server":
			q.Server, err = unescapeWord(value)
		case "file":
			q.File, err = unescapeWord(value)
		case "pos":
			q.Pos, err = strconv.ParseUint(value, 10, 64)
		case "created":
			var n uint64
			n, err = strconv.ParseUint(value, 10, 32)
			q.Created = uint32(n)
		case "gtids":
			q.GTIDs = value
			_, err = parseGTIDs(value)
		default:
			err = fmt.Errorf("unknown word %q", name)
		}
		if err != nil {
			return fmt.Errorf("read position: %w", err)
		}
	}
	*p = q
	return nil
}

// Covers reports whether every transaction at or before q is also at or before p. On one server files and offsets decide
// when both have them, else GTID containment. Positions that cannot be compared do not cover each other.
func (p Position) Covers(q Position) bool {
	if p.sameLog(q) {
		return !fileBefore(p.File, p.Pos, q.File, q.Pos)
	}
	if p.GTIDs == "" || q.GTIDs == "" {
		return false
	}
	if p.GTIDs == q.GTIDs {
		return true
	}
	have, err := parseGTIDs(p.GTIDs)
	if err != nil {
		return false
	}
	want, err := parseGTIDs(q.GTIDs)
	if err != nil {
		return false
	}
	return have.contains(want)
}

// sameLog reports whether the files of both positions belong to one log.
func (p Position) sameLog(q Position) bool {
	return p.File != "" && q.File != "" && p.Server == q.Server && logBase(p.File) == logBase(q.File)
}

// fileBefore reports whether (file, pos) lies before (otherFile, otherPos) in one log.
func fileBefore(file string, pos uint64, otherFile string, otherPos uint64) bool {
	if file == otherFile {
		return pos < otherPos
	}
	return logNumber(file) < logNumber(otherFile)
}

// logBase gives a binary log file's name without its number.
func logBase(file string) string {
	if i := strings.LastIndexByte(file, '.'); i >= 0 {
		return file[:i]
	}
	return file
}

// logNumber gives the number at the end of a binary log file's name; it may have more than six digits.
func logNumber(file string) uint64 {
	i := strings.LastIndexByte(file, '.')
	n, err := strconv.ParseUint(file[i+1:], 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// stripBlanks removes the newlines and blanks that a server prints inside a GTID set.
func stripBlanks(s string) string {
	if !strings.ContainsAny(s, " \t\r\n") {
		return s
	}
	return strings.Map(func(r rune) rune {
		switch r {
		case ' ', '\t', '\r', '\n':
			return -1
		}
		return r
	}, s)
}

// escapeWord keeps a value one word without '='; a file name may hold anything.
func escapeWord(s string) string {
	if !strings.ContainsAny(s, " \t\r\n%=") {
		return s
	}
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; c {
		case ' ', '\t', '\r', '\n', '%', '=':
			fmt.Fprintf(&b, "%%%02x", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

func unescapeWord(s string) (string, error) {
	if !strings.Contains(s, "%") {
		return s, nil
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] != '%' {
			b.WriteByte(s[i])
			continue
		}
		if i+2 >= len(s) {
			return "", fmt.Errorf("cut escape in %q", s)
		}
		n, err := strconv.ParseUint(s[i+1:i+3], 16, 8)
		if err != nil {
			return "", fmt.Errorf("bad escape in %q", s)
		}
		b.WriteByte(byte(n))
		i += 2
	}
	return b.String(), nil
}
