package binlog

import "strings"

type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // a keyword or a bare name, or a number
	tokenName             // a quoted name
	tokenString           // a string
	tokenMark             // one byte of punctuation
)

type token struct {
	kind tokenKind
	text string
}

// is reports whether the token is a keyword, without regard to case.
func (t token) is(word string) bool { return t.kind == tokenWord && strings.EqualFold(t.text, word) }

// lexer cuts a statement into tokens. Comments are skipped; what stands inside a version comment, /*! */ or /*M! */, is
// text as any other: the server that logged it ran it.
type lexer struct {
	in      []byte
	at      int
	inside  bool // a version comment
	ansi    bool // "..." is a name
	mariadb bool // /*M! is a version comment
	noSlash bool // a backslash is a letter in strings
	ahead   token
	held    bool
}

func (l *lexer) reset(text []byte, mode uint64) {
	*l = lexer{in: text, ansi: mode&modeANSIQuotes != 0, noSlash: mode&modeNoBackslashEscapes != 0}
}

// take gives the next token.
func (l *lexer) take() token {
	if l.held {
		l.held = false
		return l.ahead
	}
	return l.scan()
}

// peek gives the next token and leaves it.
func (l *lexer) peek() token {
	if !l.held {
		l.ahead, l.held = l.scan(), true
	}
	return l.ahead
}

// word takes the next token if it is this keyword.
func (l *lexer) word(w string) bool {
	if l.peek().is(w) {
		l.held = false
		return true
	}
	return false
}

// mark takes the next token if it is this byte.
func (l *lexer) mark(c byte) bool {
	if t := l.peek(); t.kind == tokenMark && t.text[0] == c {
		l.held = false
		return true
	}
	return false
}

// name takes a name, "" when the next token is none.
func (l *lexer) name() string {
	t := l.peek()
	if t.kind != tokenWord && t.kind != tokenName {
		return ""
	}
	l.held = false
	return t.text
}

// bytes takes a string, X'hex' or 0xhex.
func (l *lexer) bytes() ([]byte, bool) {
	t := l.take()
	switch {
	case t.kind == tokenString:
		return []byte(t.text), true
	case t.is("X"):
		s := l.take()
		if s.kind != tokenString {
			return nil, false
		}
		return hexBytes(s.text)
	case t.kind == tokenWord && (strings.HasPrefix(t.text, "0x") || strings.HasPrefix(t.text, "0X")):
		return hexBytes(t.text[2:])
	}
	return nil, false
}

func (l *lexer) scan() token {
	for {
		l.blanks()
		if l.at >= len(l.in) {
			return token{}
		}
		rest := l.in[l.at:]
		switch c := rest[0]; {
		case c == '#', c == '-' && len(rest) > 1 && rest[1] == '-' && (len(rest) == 2 || rest[2] <= ' '):
			l.line()
		case c == '/' && len(rest) > 1 && rest[1] == '*':
			l.comment()
		case c == '*' && l.inside && len(rest) > 1 && rest[1] == '/':
			l.inside = false
			l.at += 2
		case c == '`':
			return l.quoted('`', tokenName, false)
		case c == '"' && l.ansi:
			return l.quoted('"', tokenName, false)
		case c == '\'' || c == '"':
			return l.quoted(c, tokenString, !l.noSlash)
		case isWordByte(c):
			start := l.at
			for l.at < len(l.in) && isWordByte(l.in[l.at]) {
				l.at++
			}
			return token{tokenWord, string(l.in[start:l.at])}
		default:
			l.at++
			return token{tokenMark, string(rest[:1])}
		}
	}
}

func isWordByte(c byte) bool {
	return c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c == '$' || c >= 0x80
}

func (l *lexer) blanks() {
	for l.at < len(l.in) && (l.in[l.at] == ' ' || l.in[l.at] >= '\t' && l.in[l.at] <= '\r' || l.in[l.at] == 0) {
		l.at++
	}
}

// line skips to the end of the line.
func (l *lexer) line() {
	for l.at < len(l.in) && l.in[l.at] != '\n' {
		l.at++
	}
}

// comment skips a comment, or only the opening of a version comment.
func (l *lexer) comment() {
	rest := l.in[l.at+2:]
	skip := 2
	if l.mariadb && len(rest) > 1 && rest[0] == 'M' && rest[1] == '!' {
		rest, skip = rest[2:], 4
	} else if len(rest) > 0 && rest[0] == '!' {
		rest, skip = rest[1:], 3
	} else {
		for i := 0; i+1 < len(rest); i++ {
			if rest[i] == '*' && rest[i+1] == '/' {
				l.at += 2 + i + 2
				return
			}
		}
		l.at = len(l.in)
		return
	}
	digits := 0
	for digits < len(rest) && digits < 6 && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if digits < 5 {
		digits = 0 // part of the text
	}
	l.at += skip + digits
	l.inside = true
}

// quoted reads up to the closing quote; a doubled one stands for itself.
func (l *lexer) quoted(q byte, kind tokenKind, escapes bool) token {
	var b strings.Builder
	for l.at++; l.at < len(l.in); l.at++ {
		c := l.in[l.at]
		switch {
		case c == '\\' && escapes && l.at+1 < len(l.in):
			l.at++
			b.WriteByte(l.in[l.at]) // what \n and the like stand for matters to nobody here
		case c != q:
			b.WriteByte(c)
		case l.at+1 < len(l.in) && l.in[l.at+1] == q:
			l.at++
			b.WriteByte(q)
		default:
			l.at++
			return token{kind, b.String()}
		}
	}
	return token{kind, b.String()}
}
