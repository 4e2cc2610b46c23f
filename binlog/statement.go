package binlog

import (
	"encoding/binary"
	"encoding/hex"
	"slices"
	"strconv"
	"strings"
)

// stmtClass says what a logged statement means for those who follow the log.
type stmtClass uint8

const (
	stmtIgnored  stmtClass = iota // changes no row and no table definition
	stmtBegin                     // BEGIN, START TRANSACTION
	stmtCommit                    // COMMIT
	stmtRollback                  // ROLLBACK of the whole transaction
	stmtSavepoint
	stmtRollbackTo
	stmtXAStart
	stmtXACommit
	stmtXARollback
	stmtChange  // changes the tables that are named, or all of a schema
	stmtUnknown // may change anything
)

var stmtClassNames = [...]string{"ignored", "begin", "commit", "rollback", "savepoint", "rollback_to", "xa_start", "xa_commit", "xa_rollback", "change", "unknown"}

// String gives the class as a word, for tests.
func (c stmtClass) String() string { return stmtClassNames[c] }

// statement is what was understood of one. It is valid until the parser reads the next.
type statement struct {
	class  stmtClass
	name   string      // of a savepoint, in lower case
	xid    string      // xidKey
	tables []TableName // stmtChange
	schema string      // stmtChange: every table of it
	reason string      // stmtChange, stmtUnknown
}

// The bits of sql_mode that change how text is read (MySQL manual, page "Server SQL Modes").
const (
	modeANSIQuotes         = 1 << 2
	modeNoBackslashEscapes = 1 << 20
)

// statementParser classifies statements. It keeps its buffers.
type statementParser struct {
	lex     lexer
	text    []byte // an uncompressed statement
	mariadb bool   // the server runs what /*M! */ holds
}

// server tells whose statements come.
func (p *statementParser) server(f serverFacts) { p.mariadb = f.mariadb }

// read classifies the statement of a QUERY_EVENT, its compressed form, or an EXECUTE_LOAD_QUERY_EVENT (MySQL source
// documentation, page "Query_event").
func (p *statementParser) read(e *rawEvent) (statement, error) {
	fixed := queryHeaderSize
	if e.typ == evExecuteLoad {
		fixed += 13 // file_id, where the file's name stands, what to do with duplicates
	}
	if len(e.body) < fixed {
		return statement{}, e.corrupt("short")
	}
	schemaLen := int(e.body[8])
	statusLen := int(binary.LittleEndian.Uint16(e.body[11:]))
	rest := e.body[fixed:]
	if len(rest) < statusLen+schemaLen+1 {
		return statement{}, e.corrupt("cut short")
	}
	mode := sqlMode(rest[:statusLen])
	schema := string(rest[statusLen : statusLen+schemaLen])
	text := rest[statusLen+schemaLen+1:]
	if e.typ == evQueryCompressed {
		var err error
		if p.text, err = inflateMariaDB(p.text[:0], text); err != nil {
			return statement{}, e.corrupt("its compressed text cannot be read")
		}
		text = p.text
	}
	return p.parse(text, schema, mode), nil
}

// sqlMode finds sql_mode among the status variables. The server writes it behind the flags, before anything of
// variable length but the catalog.
func sqlMode(vars []byte) uint64 {
	for len(vars) > 0 {
		code, value := vars[0], vars[1:]
		size := 0
		switch code {
		case 0: // flags
			size = 4
		case 1:
			if len(value) < 8 {
				return 0
			}
			return binary.LittleEndian.Uint64(value)
		case 2: // catalog with its end
			if len(value) > 0 {
				size = int(value[0]) + 2
			}
		case 3, 6: // auto_increment; 6: catalog
			size = 4
			if code == 6 && len(value) > 0 {
				size = int(value[0]) + 1
			}
		default:
			return 0
		}
		if len(value) < size {
			return 0
		}
		vars = value[size:]
	}
	return 0
}

// parse classifies a statement's text. schema is the session's default one.
func (p *statementParser) parse(text []byte, schema string, mode uint64) statement {
	l := &p.lex
	l.reset(text, mode)
	l.mariadb = p.mariadb
	r := reader{l: l, schema: schema}
	first := l.take()
	if first.kind == tokenEnd {
		return statement{} // a placeholder
	}
	if first.kind != tokenWord {
		return unknown()
	}
	switch strings.ToUpper(first.text) {
	case "BEGIN":
		return statement{class: stmtBegin}
	case "START":
		if l.word("TRANSACTION") {
			return statement{class: stmtBegin}
		}
		return statement{} // replication's own
	case "COMMIT":
		return statement{class: stmtCommit}
	case "ROLLBACK":
		return r.rollback()
	case "SAVEPOINT":
		return statement{class: stmtSavepoint, name: strings.ToLower(l.take().text)}
	case "XA":
		return r.xa()
	case "TRUNCATE":
		l.word("TABLE")
		return r.change(ReasonTruncate, r.table())
	case "DROP":
		return r.drop()
	case "RENAME":
		return r.rename()
	case "ALTER":
		return r.alter()
	case "CREATE":
		return r.create()
	case "REPAIR":
		for l.word("NO_WRITE_TO_BINLOG") || l.word("LOCAL") {
		}
		if l.word("TABLE") || l.word("TABLES") {
			return r.change(ReasonDDL, r.list()...)
		}
		return statement{} // a view
	case "DELETE":
		return r.delete()
	case "RELEASE", "SET", "FLUSH", "GRANT", "REVOKE", "ANALYZE", "OPTIMIZE", "CHECK", "CHECKSUM", "KILL", "USE", "SHOW", "INSTALL",
		"UNINSTALL", "LOCK", "UNLOCK", "RESET", "PURGE", "CHANGE", "STOP", "CLONE", "DESCRIBE", "EXPLAIN", "HELP", "BACKUP":
		return statement{}
	}
	return unknown()
}

func unknown() statement { return statement{class: stmtUnknown, reason: ReasonStatement} }

// reader reads names off a lexer.
type reader struct {
	l      *lexer
	schema string
}

// change is a stmtChange, or unknown when a name could not be read.
func (r *reader) change(reason string, tables ...TableName) statement {
	if len(tables) == 0 || slices.ContainsFunc(tables, func(n TableName) bool { return n.Name == "" }) {
		s := unknown()
		s.reason = reason
		return s
	}
	return statement{class: stmtChange, reason: reason, tables: tables}
}

// table reads a table's name; an empty one when there is none.
func (r *reader) table() TableName {
	first := r.l.name()
	if first == "" {
		return TableName{}
	}
	if !r.l.mark('.') {
		return TableName{Schema: r.schema, Name: first}
	}
	return TableName{Schema: first, Name: r.l.name()}
}

// list reads names separated by commas.
func (r *reader) list() []TableName {
	list := []TableName{r.table()}
	for r.l.mark(',') {
		list = append(list, r.table())
	}
	return list
}

func (r *reader) ifExists() {
	if r.l.word("IF") {
		r.l.word("NOT")
		r.l.word("EXISTS")
	}
}

func (r *reader) rollback() statement {
	r.l.word("WORK")
	if !r.l.word("TO") {
		return statement{class: stmtRollback}
	}
	r.l.word("SAVEPOINT")
	return statement{class: stmtRollbackTo, name: strings.ToLower(r.l.take().text)}
}

// xa reads XA statements. XA PREPARE is an event of its own; XA END says nothing that it does not.
func (r *reader) xa() statement {
	class := stmtIgnored
	switch {
	case r.l.word("START"), r.l.word("BEGIN"):
		class = stmtXAStart
	case r.l.word("COMMIT"):
		class = stmtXACommit
	case r.l.word("ROLLBACK"):
		class = stmtXARollback
	default:
		return statement{}
	}
	format := uint64(1)
	gtrid, ok := r.l.bytes()
	if !ok {
		return unknown()
	}
	var bqual []byte
	if r.l.mark(',') {
		if bqual, ok = r.l.bytes(); !ok {
			return unknown()
		}
		if r.l.mark(',') {
			n, err := strconv.ParseUint(r.l.take().text, 0, 32)
			if err != nil {
				return unknown()
			}
			format = n
		}
	}
	return statement{class: class, xid: xidKey(int32(format), gtrid, bqual)}
}

func (r *reader) drop() statement {
	switch {
	case r.l.word("TEMPORARY"):
		return statement{}
	case r.l.word("TABLE"), r.l.word("TABLES"):
		r.ifExists()
		return r.change(ReasonDrop, r.list()...)
	case r.l.word("DATABASE"), r.l.word("SCHEMA"):
		r.ifExists()
		return r.dropSchema()
	}
	r.l.word("ONLINE")
	r.l.word("OFFLINE")
	if r.l.word("INDEX") {
		r.ifExists()
		r.l.name()
		if !r.l.word("ON") {
			return unknown()
		}
		return r.change(ReasonDDL, r.table())
	}
	return statement{} // views, routines, users ...
}

func (r *reader) dropSchema() statement {
	name := r.l.name()
	if name == "" {
		return unknown()
	}
	return statement{class: stmtChange, schema: name, reason: ReasonDrop}
}

func (r *reader) rename() statement {
	if !r.l.word("TABLE") && !r.l.word("TABLES") {
		return statement{} // RENAME USER
	}
	var tables []TableName
	for {
		r.ifExists()
		tables = append(tables, r.table())
		if r.l.word("WAIT") {
			r.l.take()
		}
		r.l.word("NOWAIT")
		if !r.l.word("TO") {
			return unknown()
		}
		tables = append(tables, r.table())
		if !r.l.mark(',') {
			return r.change(ReasonRename, tables...)
		}
	}
}

// alter reads ALTER TABLE: the table, what it is renamed to, and what a partition is exchanged with.
func (r *reader) alter() statement {
	r.l.word("ONLINE")
	r.l.word("OFFLINE")
	r.l.word("IGNORE")
	if !r.l.word("TABLE") {
		return statement{} // a database's defaults, views, routines, users ...
	}
	r.ifExists()
	tables := []TableName{r.table()}
	reason := ReasonDDL
	for {
		t := r.l.take()
		switch {
		case t.kind == tokenEnd:
			return r.change(reason, tables...)
		case t.is("RENAME"):
			switch {
			case r.l.word("COLUMN"), r.l.word("INDEX"), r.l.word("KEY"), r.l.word("CONSTRAINT"):
				continue
			}
			_ = r.l.word("TO") || r.l.word("AS") || r.l.mark('=')
			tables = append(tables, r.table())
			reason = ReasonRename
		case t.is("EXCHANGE"), t.is("CONVERT"): // EXCHANGE PARTITION p WITH TABLE t; MariaDB: CONVERT PARTITION p TO TABLE t, CONVERT TABLE t TO ...
			tables = append(tables, r.otherTables()...)
		}
	}
}

// otherTables reads the names behind the words TABLE up to the next comma.
func (r *reader) otherTables() []TableName {
	var list []TableName
	for {
		if r.l.word("TABLE") {
			list = append(list, r.table())
			continue
		}
		t := r.l.peek()
		if t.kind == tokenEnd || t.kind == tokenMark && t.text == "," || t.is("CHARACTER") || t.is("CHARSET") {
			return list
		}
		r.l.take()
	}
}

func (r *reader) create() statement {
	replace := false
	if r.l.word("OR") {
		replace = r.l.word("REPLACE")
	}
	for {
		t := r.l.take()
		switch {
		case t.kind == tokenEnd:
			return unknown()
		case t.is("TEMPORARY"):
			return statement{}
		case t.is("TABLE"):
			r.ifExists()
			return r.change(ReasonDDL, r.table())
		case t.is("DATABASE"), t.is("SCHEMA"):
			if !replace {
				return statement{}
			}
			return r.dropSchema()
		case t.is("INDEX"):
			r.ifExists()
			for !r.l.word("ON") {
				if r.l.take().kind == tokenEnd {
					return unknown()
				}
			}
			return r.change(ReasonDDL, r.table())
		case t.is("VIEW"), t.is("PROCEDURE"), t.is("FUNCTION"), t.is("TRIGGER"), t.is("EVENT"), t.is("USER"), t.is("ROLE"),
			t.is("SERVER"), t.is("SEQUENCE"), t.is("TABLESPACE"), t.is("UNDO"), t.is("LOGFILE"), t.is("SPATIAL") && r.l.word("REFERENCE"),
			t.is("RESOURCE"), t.is("PACKAGE"), t.is("LIBRARY"), t.is("JSON"):
			return statement{}
		}
	}
}

// delete reads a DELETE. The server itself writes one, plain, when it finds a MEMORY table empty after a restart; any other
// may fire triggers that change other tables, unseen.
func (r *reader) delete() statement {
	if r.l.word("FROM") {
		n := r.table()
		if n.Name != "" && r.l.peek().kind == tokenEnd {
			return statement{class: stmtChange, reason: ReasonStatement, tables: []TableName{n}}
		}
	}
	return unknown()
}

// hexBytes reads the inside of X'...' or 0x....
func hexBytes(text string) ([]byte, bool) {
	b, err := hex.DecodeString(text)
	return b, err == nil
}
