package binlog

import "encoding/binary"

// stmtClass says what a statement in the log means for the rows of tables.
type stmtClass uint8

const (
	stmtUnknown    stmtClass = iota // not understood: any table may have changed
	stmtIgnore                      // no table's rows or definition can change
	stmtBegin                       // BEGIN, START TRANSACTION
	stmtCommit                      // COMMIT
	stmtRollback                    // ROLLBACK
	stmtSavepoint                   // SAVEPOINT name
	stmtRollbackTo                  // ROLLBACK TO name
	stmtXAStart                     // XA START, XA BEGIN
	stmtXAEnd                       // XA END
	stmtXAPrepare                   // XA PREPARE
	stmtXACommit                    // XA COMMIT
	stmtXARollback                  // XA ROLLBACK
	stmtTables                      // tables change their definition or rows
	stmtSchema                      // every table of a schema does
)

// String gives the class as a word, for tests.
func (c stmtClass) String() string {
	switch c {
	case stmtIgnore:
		return "ignore"
	case stmtBegin:
		return "begin"
	case stmtCommit:
		return "commit"
	case stmtRollback:
		return "rollback"
	case stmtSavepoint:
		return "savepoint"
	case stmtRollbackTo:
		return "rollback_to"
	case stmtXAStart:
		return "xa_start"
	case stmtXAEnd:
		return "xa_end"
	case stmtXAPrepare:
		return "xa_prepare"
	case stmtXACommit:
		return "xa_commit"
	case stmtXARollback:
		return "xa_rollback"
	case stmtTables:
		return "tables"
	case stmtSchema:
		return "schema"
	default:
		return "unknown"
	}
}

// statement is what is known of one.
type statement struct {
	class    stmtClass
	reason   string
	tables   []TableName // stmtTables
	schema   string      // stmtSchema
	name     string      // of a savepoint; the key of an xid
	onePhase bool        // XA COMMIT ... ONE PHASE
	ifAbsent bool        // CREATE TABLE IF NOT EXISTS: no change when the table exists
}

// The sql_mode bits that change how a statement is read.
const (
	modeANSIQuotes         = 1 << 2
	modeMSSQL              = 1 << 10 // MariaDB
	modeNoBackslashEscapes = 1 << 20
)

// statementParser classifies statements. It is not a parser of SQL: it reads as much as is needed to name the tables, and
// says stmtUnknown of everything else.
type statementParser struct {
	lexer   lexer
	text    []byte // an uncompressed statement
	ahead   token
	st      statement
	schema  string // the default schema
	mariadb bool
	version int
	foreign bool // the text is not UTF-8
}

func (p *statementParser) server(f serverFacts) { p.mariadb, p.version = f.mariadb, f.number }

// read classifies a QUERY event, valid until the next call (MySQL source documentation, page "Query_event").
func (p *statementParser) read(e *rawEvent) (*statement, error) {
	b := e.body
	fixed := queryHeaderSize
	if e.typ == evExecuteLoad {
		fixed += 13
	}
	if len(b) < fixed {
		return nil, e.corrupt("short")
	}
	vars, schema := int(binary.LittleEndian.Uint16(b[11:])), int(b[8])
	if len(b) < fixed+vars+schema+1 {
		return nil, e.corrupt("cut short")
	}
	status := b[fixed : fixed+vars]
	name := b[fixed+vars : fixed+vars+schema]
	text := b[fixed+vars+schema+1:]
	if e.typ == evQueryCompressed {
		var err error
		if p.text, err = inflateMariaDB(p.text[:0], text); err != nil {
			return nil, e.corrupt("its compressed text cannot be read")
		}
		text = p.text
	}
	if s := p.plain(text); s != nil {
		return s, nil
	}
	mode, collation := statusVars(status)
	return p.classify(text, string(name), mode, collation), nil
}

// plain knows the two statements that make up half of a log.
func (p *statementParser) plain(text []byte) *statement {
	switch string(text) {
	case "BEGIN":
		p.st = statement{class: stmtBegin}
	case "COMMIT":
		p.st = statement{class: stmtCommit}
	default:
		return nil
	}
	return &p.st
}

// statusVars finds sql_mode and the client's collation among a QUERY event's variables. Both come before any variable
// whose length is not known here.
func statusVars(b []byte) (mode uint64, collation uint16) {
	r := byteReader{b: b}
	for len(r.b) > 0 {
		switch r.byte() {
		case 0: // flags
			r.take(4)
		case 1:
			mode = r.uint(8)
		case 2: // catalog, old form
			r.take(int(r.byte()) + 1)
		case 3: // auto_increment_increment, auto_increment_offset
			r.take(4)
		case 4:
			collation = uint16(r.uint(2))
			return mode, collation
		case 5, 6: // time zone, catalog
			r.take(int(r.byte()))
		case 7, 8: // lc_time_names, collation of the schema
			r.take(2)
		case 13: // microseconds
			r.take(3)
		default:
			return mode, collation
		}
	}
	return mode, collation
}

// classify tells what a statement means.
func (p *statementParser) classify(text []byte, schema string, mode uint64, collation uint16) *statement {
	p.lexer = lexer{
		text:        text,
		ansi:        mode&modeANSIQuotes != 0,
		noBackslash: mode&modeNoBackslashEscapes != 0,
		brackets:    p.mariadb && mode&modeMSSQL != 0,
		mariadb:     p.mariadb,
		version:     p.version,
	}
	p.foreign = false
	switch {
	case collation == 0, collation == 33, collation == 83, collation == 45, collation == 46,
		collation >= 192 && collation <= 247, collation >= 255: // utf8mb3, utf8mb4
	case collation == 1, collation == 84, collation == 13, collation == 88, collation == 28, collation == 87,
		collation == 95, collation == 96, collation >= 248 && collation <= 250: // big5, sjis, gbk, cp932, gb18030
		p.lexer.double, p.foreign = true, true
	default:
		p.foreign = true
	}
	p.schema = schema
	p.st = statement{tables: p.st.tables[:0]}
	p.ahead = p.lexer.next()
	p.statement()
	if p.lexer.bad {
		p.st.class = stmtUnknown
	}
	if p.st.class == stmtUnknown {
		p.st.reason = ReasonStatement
	}
	return &p.st
}
