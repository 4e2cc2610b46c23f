package binlog

import (
	"bytes"
	"encoding/hex"
	"strconv"
	"strings"
)

// take gives the next token and reads on.
func (p *statementParser) take() token {
	t := p.ahead
	p.ahead = p.lexer.next()
	return t
}

func (t token) is(word string) bool {
	return t.kind == tokenWord && len(t.text) == len(word) && strings.EqualFold(string(t.text), word)
}

func (t token) punct(c byte) bool { return t.kind == tokenPunct && t.text[0] == c }

// word takes the next token when it is this keyword.
func (p *statementParser) word(w string) bool {
	if p.ahead.is(w) {
		p.take()
		return true
	}
	return false
}

// words takes all of them, or the first ones until one is missing.
func (p *statementParser) words(ws ...string) bool {
	for _, w := range ws {
		if !p.word(w) {
			return false
		}
	}
	return true
}

func (p *statementParser) punct(c byte) bool {
	if p.ahead.punct(c) {
		p.take()
		return true
	}
	return false
}

// ident takes an identifier. After a dot even digits are one.
func (p *statementParser) ident(dotted bool) (string, bool) {
	t := p.ahead
	if t.kind != tokenWord && t.kind != tokenName && (!dotted || t.kind != tokenNumber) || len(t.text) == 0 {
		return "", false
	}
	if p.foreign {
		for _, c := range t.text {
			if c >= 0x80 {
				return "", false // its characters are not known here
			}
		}
	}
	p.take()
	return string(t.text), true
}

// table takes [schema.]name.
func (p *statementParser) table() (TableName, bool) {
	if p.punct('.') { // .name is a table of the default schema
		n, ok := p.ident(true)
		return TableName{p.schema, n}, ok
	}
	a, ok := p.ident(false)
	if !ok {
		return TableName{}, false
	}
	if !p.punct('.') {
		return TableName{p.schema, a}, true
	}
	b, ok := p.ident(true)
	return TableName{a, b}, ok
}

func (p *statementParser) add(n TableName) { p.st.tables = append(p.st.tables, n) }

// ifExists takes IF [NOT] EXISTS. It is false when IF is followed by something else.
func (p *statementParser) ifExists() (given, ok bool) {
	if !p.word("IF") {
		return false, true
	}
	p.word("NOT")
	return true, p.word("EXISTS")
}

// oneTable classifies a statement that concerns the one table named next.
func (p *statementParser) oneTable(reason string) {
	if n, ok := p.table(); ok {
		p.add(n)
		p.st.class, p.st.reason = stmtTables, reason
	}
}

func (p *statementParser) statement() {
	for p.punct(';') || p.punct('(') {
	}
	t := p.take()
	if t.kind == tokenEnd {
		p.st.class = stmtIgnore // a comment alone: MariaDB's placeholders
		return
	}
	if t.kind != tokenWord {
		return
	}
	switch strings.ToUpper(string(t.text)) {
	case "BEGIN":
		p.st.class = stmtBegin
	case "START":
		if p.word("TRANSACTION") {
			p.st.class = stmtBegin
		}
	case "COMMIT":
		p.st.class = stmtCommit
	case "ROLLBACK":
		p.rollback()
	case "SAVEPOINT":
		if n, ok := p.ident(false); ok {
			p.st.class, p.st.name = stmtSavepoint, strings.ToLower(n)
		}
	case "RELEASE":
		p.st.class = stmtIgnore
	case "XA":
		p.xa()
	case "TRUNCATE":
		p.word("TABLE")
		p.oneTable(ReasonTruncate)
	case "DROP":
		p.drop()
	case "RENAME":
		p.rename()
	case "ALTER":
		p.alter()
	case "CREATE":
		p.create()
	case "DELETE":
		p.delete()
	case "REPAIR":
		p.word("NO_WRITE_TO_BINLOG")
		p.word("LOCAL")
		if p.word("TABLE") || p.word("TABLES") {
			p.tableList(ReasonDDL)
		}
	case "ANALYZE", "OPTIMIZE", "CHECK", "CHECKSUM", "FLUSH", "GRANT", "REVOKE", "SET", "USE", "LOCK", "UNLOCK", "RESET",
		"PURGE", "INSTALL", "UNINSTALL", "CHANGE", "STOP", "KILL", "SHUTDOWN", "CACHE", "BINLOG", "CLONE", "RESTART", "HELP", "SHOW",
		"DESC", "DESCRIBE", "EXPLAIN", "SIGNAL", "RESIGNAL", "BACKUP":
		p.st.class = stmtIgnore
	}
	// INSERT, UPDATE, REPLACE, LOAD and WITH fire triggers and write through views; CALL, DO, SELECT and what is not known
	// run routines. All of them may change tables that their text does not name.
}

func (p *statementParser) rollback() {
	p.word("WORK")
	if !p.word("TO") {
		p.st.class = stmtRollback
		return
	}
	p.word("SAVEPOINT")
	if n, ok := p.ident(false); ok {
		p.st.class, p.st.name = stmtRollbackTo, strings.ToLower(n)
	}
}

func (p *statementParser) xa() {
	var class stmtClass
	t := p.take()
	if t.kind != tokenWord {
		return
	}
	switch strings.ToUpper(string(t.text)) {
	case "START", "BEGIN":
		class = stmtXAStart
	case "END":
		class = stmtXAEnd
	case "PREPARE":
		class = stmtXAPrepare
	case "COMMIT":
		class = stmtXACommit
	case "ROLLBACK":
		class = stmtXARollback
	default:
		return
	}
	gtrid, ok := p.xidPart()
	if !ok {
		return
	}
	var bqual []byte
	format := int64(1)
	if p.punct(',') {
		if bqual, ok = p.xidPart(); !ok {
			return
		}
		if p.punct(',') {
			n := p.take()
			var err error
			if format, err = strconv.ParseInt(string(n.text), 10, 64); n.kind != tokenNumber || err != nil {
				return
			}
		}
	}
	p.st.onePhase = p.words("ONE", "PHASE")
	p.st.class, p.st.name = class, xidKey(int32(format), gtrid, bqual)
}

// xidPart takes X'6162', 0x6162 or 'ab'.
func (p *statementParser) xidPart() ([]byte, bool) {
	t := p.take()
	switch {
	case t.kind == tokenString:
		if bytes.IndexByte(t.text, '\\') >= 0 || bytes.IndexByte(t.text, '\'') >= 0 {
			return nil, false
		}
		return t.text, true
	case t.is("X"):
		s := p.take()
		b, err := hex.DecodeString(string(s.text))
		return b, s.kind == tokenString && err == nil
	case t.kind == tokenWord && len(t.text) > 2 && (string(t.text[:2]) == "0x" || string(t.text[:2]) == "0X"):
		b, err := hex.DecodeString(string(t.text[2:]))
		return b, err == nil
	}
	return nil, false
}

// tableList takes name [, name]...
func (p *statementParser) tableList(reason string) {
	for {
		n, ok := p.table()
		if !ok {
			return
		}
		p.add(n)
		if !p.punct(',') {
			break
		}
	}
	p.st.class, p.st.reason = stmtTables, reason
}

func (p *statementParser) drop() {
	if p.word("TEMPORARY") {
		p.st.class = stmtIgnore
		return
	}
	t := p.take()
	if t.kind != tokenWord {
		return
	}
	switch strings.ToUpper(string(t.text)) {
	case "TABLE", "TABLES":
		if _, ok := p.ifExists(); ok {
			p.tableList(ReasonDrop)
		}
	case "DATABASE", "SCHEMA":
		if _, ok := p.ifExists(); !ok {
			return
		}
		if n, ok := p.ident(false); ok {
			p.st.class, p.st.schema, p.st.reason = stmtSchema, n, ReasonDrop
		}
	case "INDEX":
		p.index()
	case "VIEW", "PROCEDURE", "FUNCTION", "TRIGGER", "EVENT", "USER", "ROLE", "SERVER", "TABLESPACE", "UNDO", "LOGFILE",
		"SEQUENCE", "PACKAGE", "RESOURCE", "SPATIAL", "PREPARE", "LIBRARY", "CATALOG", "MASKING":
		p.st.class = stmtIgnore
	}
}

// index takes [IF [NOT] EXISTS] name ... ON table.
func (p *statementParser) index() {
	if _, ok := p.ifExists(); !ok {
		return
	}
	if _, ok := p.ident(false); !ok {
		return
	}
	for p.ahead.kind != tokenEnd {
		if p.word("ON") {
			p.oneTable(ReasonDDL)
			return
		}
		p.take()
	}
}

func (p *statementParser) rename() {
	if p.word("USER") {
		p.st.class = stmtIgnore
		return
	}
	if !p.word("TABLE") && !p.word("TABLES") {
		return
	}
	if _, ok := p.ifExists(); !ok {
		return
	}
	for {
		from, ok := p.table()
		if !ok {
			return
		}
		p.wait()
		if !p.word("TO") {
			return
		}
		to, ok := p.table()
		if !ok {
			return
		}
		p.add(from)
		p.add(to)
		if !p.punct(',') {
			break
		}
	}
	p.st.class, p.st.reason = stmtTables, ReasonRename
}

// wait takes MariaDB's WAIT n and NOWAIT.
func (p *statementParser) wait() {
	if p.word("WAIT") {
		p.take()
	} else {
		p.word("NOWAIT")
	}
}

func (p *statementParser) alter() {
	for p.word("ONLINE") || p.word("OFFLINE") || p.word("IGNORE") {
	}
	switch {
	case p.word("TABLE"):
		p.alterTable()
	case p.word("DATABASE"), p.word("SCHEMA"):
		for t := p.take(); t.kind != tokenEnd; t = p.take() {
			if t.is("UPGRADE") {
				return // the schema gets another name
			}
		}
		p.st.class = stmtIgnore // defaults of tables to come
	default:
		for _, w := range []string{"USER", "ROLE", "EVENT", "FUNCTION", "PROCEDURE", "SERVER", "TABLESPACE", "UNDO", "LOGFILE",
			"INSTANCE", "RESOURCE", "SEQUENCE", "VIEW", "ALGORITHM", "DEFINER", "SQL", "PACKAGE", "LIBRARY", "JSON"} {
			if p.word(w) {
				p.st.class = stmtIgnore
				return
			}
		}
	}
}

func (p *statementParser) alterTable() {
	if _, ok := p.ifExists(); !ok {
		return
	}
	n, ok := p.table()
	if !ok {
		return
	}
	p.add(n)
	for p.ahead.kind != tokenEnd {
		t := p.take()
		switch {
		case t.is("RENAME"):
			if p.word("COLUMN") || p.word("INDEX") || p.word("KEY") || p.word("CONSTRAINT") {
				continue
			}
			if !p.word("TO") && !p.word("AS") {
				p.punct('=')
			}
		case t.is("WITH"), t.is("TO"), t.is("CONVERT"):
			if !p.word("TABLE") { // EXCHANGE PARTITION p WITH TABLE x, CONVERT PARTITION p TO TABLE x, CONVERT TABLE x TO PARTITION p
				continue
			}
		default:
			continue
		}
		if n, ok = p.table(); !ok {
			return
		}
		p.add(n)
	}
	p.st.class, p.st.reason = stmtTables, ReasonDDL
}

func (p *statementParser) create() {
	replace := p.words("OR", "REPLACE")
	for {
		switch {
		case p.word("TEMPORARY"):
			p.st.class = stmtIgnore // a table, or a sequence
			return
		case p.word("TABLE"):
			given, ok := p.ifExists()
			if !ok {
				return
			}
			p.oneTable(ReasonDDL)
			p.st.ifAbsent = given
			return
		case p.word("DATABASE"), p.word("SCHEMA"):
			if !replace {
				p.st.class = stmtIgnore
				return
			}
			if n, ok := p.ident(false); ok {
				p.st.class, p.st.schema, p.st.reason = stmtSchema, n, ReasonDrop
			}
			return
		case p.word("INDEX"):
			p.index()
			return
		case p.word("ONLINE"), p.word("OFFLINE"), p.word("UNIQUE"), p.word("FULLTEXT"), p.word("VECTOR"), p.word("SPATIAL"):
			if p.ahead.is("REFERENCE") { // SPATIAL REFERENCE SYSTEM
				p.st.class = stmtIgnore
				return
			}
			continue
		}
		break
	}
	for _, w := range []string{"VIEW", "ALGORITHM", "DEFINER", "SQL", "PROCEDURE", "FUNCTION", "AGGREGATE", "TRIGGER", "EVENT", "USER",
		"ROLE", "SERVER", "TABLESPACE", "UNDO", "LOGFILE", "SEQUENCE", "PACKAGE", "RESOURCE", "LIBRARY", "JSON"} {
		if p.word(w) {
			p.st.class = stmtIgnore
			return
		}
	}
}

// delete reads a DELETE. The server itself writes a plain one when it finds a MEMORY table empty after a restart; any other
// may fire triggers that change other tables unseen.
func (p *statementParser) delete() {
	if !p.word("FROM") {
		return
	}
	n, ok := p.table()
	p.punct(';')
	if ok && p.ahead.kind == tokenEnd {
		p.add(n)
		p.st.class, p.st.reason = stmtTables, ReasonStatement
	}
}
