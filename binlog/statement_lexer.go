package binlog

import "bytes"

// tokenKind sorts the tokens of a statement.
type tokenKind uint8

const (
	tokenEnd    tokenKind = iota
	tokenWord             // an identifier or keyword without quotes
	tokenName             // an identifier in quotes
	tokenString           // a string literal
	tokenNumber           // digits only
	tokenPunct            // one byte
)

// token is one token. text is without quotes, doubled quotes made single for names; a string's text is not unescaped.
type token struct {
	kind tokenKind
	text []byte
}

// lexer splits a statement the way the server's own lexer does: comments are blanks, except that a version comment which
// the server executed (/*!50000 ... */, /*M! ... */) is text like any other. Stripping comments first, the naive way, loses
// the statements that stand inside them.
type lexer struct {
	text        []byte
	pos         int
	ansi        bool // ANSI_QUOTES: "..." is a name
	noBackslash bool // NO_BACKSLASH_ESCAPES
	brackets    bool // MariaDB's sql_mode MSSQL: [...] is a name
	double      bool // a character set whose second bytes may look like quotes or backslashes
	mariadb     bool
	version     int // the server's, 90704 for 9.7.4

	inside int  // depth of version comments being read as text
	bad    bool // an unterminated quote or comment
}

// next gives the next token.
func (l *lexer) next() token {
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		switch {
		case c <= ' ':
			l.pos++
		case c == '#':
			l.skipLine()
		case c == '-' && l.at(1) == '-' && (l.pos+2 >= len(l.text) || l.text[l.pos+2] <= ' '):
			l.skipLine()
		case c == '/' && l.at(1) == '*':
			l.comment()
		case c == '*' && l.at(1) == '/' && l.inside > 0:
			l.inside--
			l.pos += 2
		case c == '`' || c == '"' && l.ansi:
			return l.quotedName(c)
		case c == '[' && l.brackets:
			return l.quotedName(']')
		case c == '\'' || c == '"':
			return l.quotedString(c)
		case wordByte(c):
			return l.word()
		default:
			l.pos++
			return token{tokenPunct, l.text[l.pos-1 : l.pos]}
		}
	}
	if l.inside > 0 {
		l.bad = true
	}
	return token{}
}

// at gives the byte n after the present one, 0 past the end.
func (l *lexer) at(n int) byte {
	if l.pos+n < len(l.text) {
		return l.text[l.pos+n]
	}
	return 0
}

func wordByte(c byte) bool {
	return c >= 0x80 || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '$'
}

func (l *lexer) skipLine() {
	i := bytes.IndexByte(l.text[l.pos:], '\n')
	if i < 0 {
		l.pos = len(l.text)
		return
	}
	l.pos += i + 1
}

// comment skips a comment, or enters a version comment that the server executed.
func (l *lexer) comment() {
	start := l.pos + 2
	maria := l.at(2) == 'M' && l.at(3) == '!'
	if l.at(2) != '!' && !maria {
		i := bytes.Index(l.text[start:], []byte("*/"))
		if i < 0 {
			l.bad = true
			l.pos = len(l.text)
			return
		}
		l.pos = start + i + 2
		return
	}
	start++
	if maria {
		start++
	}
	digits, number := 0, 0
	for digits < 6 && start+digits < len(l.text) && l.text[start+digits] >= '0' && l.text[start+digits] <= '9' {
		number = number*10 + int(l.text[start+digits]-'0')
		digits++
	}
	if digits < 5 {
		digits, number = 0, 0
	}
	run := number <= l.version || number == 0
	if maria {
		run = run && l.mariadb
	} else if l.mariadb && number >= 50700 && number <= 99999 {
		run = false // MySQL's own, which MariaDB does not have
	}
	if run {
		l.inside++
		l.pos = start + digits
		return
	}
	depth := 1
	for i := start; i+1 < len(l.text); i++ {
		switch {
		case l.text[i] == '*' && l.text[i+1] == '/':
			if depth--; depth == 0 {
				l.pos = i + 2
				return
			}
			i++
		case l.text[i] == '/' && l.text[i+1] == '*':
			depth++
			i++
		}
	}
	l.bad = true
	l.pos = len(l.text)
}

// quotedName reads a name up to its closing quote; a doubled quote stands for one.
func (l *lexer) quotedName(quote byte) token {
	l.pos++
	start := l.pos
	var unquoted []byte
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		switch {
		case l.double && c >= 0x81 && l.pos+1 < len(l.text):
			l.pos += 2
		case c != quote:
			l.pos++
		case l.at(1) == quote:
			unquoted = append(append(unquoted, l.text[start:l.pos]...), quote)
			l.pos += 2
			start = l.pos
		default:
			text := l.text[start:l.pos]
			if unquoted != nil {
				text = append(unquoted, text...)
			}
			l.pos++
			return token{tokenName, text}
		}
	}
	l.bad = true
	return token{}
}

func (l *lexer) quotedString(quote byte) token {
	l.pos++
	start := l.pos
	for l.pos < len(l.text) {
		c := l.text[l.pos]
		switch {
		case l.double && c >= 0x81 && l.pos+1 < len(l.text):
			l.pos += 2
		case c == '\\' && !l.noBackslash:
			l.pos += 2
		case c != quote:
			l.pos++
		case l.at(1) == quote:
			l.pos += 2
		default:
			l.pos++
			return token{tokenString, l.text[start : l.pos-1]}
		}
	}
	l.pos = len(l.text)
	l.bad = true
	return token{}
}

func (l *lexer) word() token {
	start := l.pos
	digits := true
	for l.pos < len(l.text) && wordByte(l.text[l.pos]) {
		c := l.text[l.pos]
		if l.double && c >= 0x81 && l.pos+1 < len(l.text) {
			l.pos++
		}
		digits = digits && c >= '0' && c <= '9'
		l.pos++
	}
	if digits {
		return token{tokenNumber, l.text[start:l.pos]}
	}
	return token{tokenWord, l.text[start:l.pos]}
}
