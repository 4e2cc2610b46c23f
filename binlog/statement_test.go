package binlog

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"os"
	"strconv"
	"strings"
	"testing"
)

// statementCase is one of testdata/statements.txt.
type statementCase struct {
	line      int
	text      []byte
	want      string
	schema    string
	mode      uint64
	collation uint16
	mariadb   bool
}

func statementCases(t testing.TB) []statementCase {
	t.Helper()
	f, err := os.Open("testdata/statements.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var cases []statementCase
	c := statementCase{schema: "db"}
	isHex := false
	sc := bufio.NewScanner(f)
	for n := 1; sc.Scan(); n++ {
		line := sc.Text()
		switch {
		case line == "" && len(c.text) == 0:
		case strings.HasPrefix(line, "# ") && len(c.text) == 0 && !isStatementComment(line):
		case strings.HasPrefix(line, "@ ") && len(c.text) == 0:
			for w := range strings.FieldsSeq(line[2:]) {
				name, value, _ := strings.Cut(w, "=")
				switch name {
				case "server":
					c.mariadb = value == "mariadb"
				case "schema":
					c.schema = value
				case "mode":
					c.mode = map[string]uint64{"ansi": modeANSIQuotes, "noslash": modeNoBackslashEscapes, "mssql": modeMSSQL}[value]
				case "collation":
					id, err := strconv.ParseUint(value, 10, 16)
					if err != nil {
						t.Fatalf("line %d: %v", n, err)
					}
					c.collation = uint16(id)
				case "hex":
					isHex = true
				default:
					t.Fatalf("line %d: unknown setting %q", n, name)
				}
			}
		case strings.HasPrefix(line, "=> "):
			c.want, c.line = line[3:], n
			c.text = bytes.TrimSuffix(c.text, []byte("\n"))
			if isHex {
				if c.text, err = hex.DecodeString(string(c.text)); err != nil {
					t.Fatalf("line %d: %v", n, err)
				}
			}
			cases = append(cases, c)
			c, isHex = statementCase{schema: "db"}, false
		default:
			c.text = append(append(c.text, line...), '\n')
		}
	}
	if err := sc.Err(); err != nil {
		t.Fatal(err)
	}
	return cases
}

// isStatementComment tells the cases that begin with a comment of their own from the file's comments.
func isStatementComment(line string) bool {
	return strings.HasPrefix(line, "# Dum") || line == "# one"
}

func (c statementCase) parser() *statementParser {
	p := &statementParser{mariadb: c.mariadb, version: 90704}
	if c.mariadb {
		p.version = 101119
	}
	return p
}

// describeStatement prints a statement as the file does.
func describeStatement(st *statement) string {
	s := st.class.String()
	switch st.class {
	case stmtTables:
		s += " " + st.reason
		for _, n := range st.tables {
			s += " " + printName(n.Schema) + "." + printName(n.Name)
		}
	case stmtSchema:
		s += " " + st.reason + " " + printName(st.schema)
	case stmtSavepoint, stmtRollbackTo, stmtXAStart, stmtXAEnd, stmtXAPrepare, stmtXACommit, stmtXARollback:
		s += " " + strconv.Quote(st.name)
	}
	if st.onePhase {
		s += " one phase"
	}
	if st.ifAbsent {
		s += " if absent"
	}
	return s
}

func printName(n string) string {
	if strings.ContainsAny(n, ". `") {
		return strconv.Quote(n)
	}
	return n
}

func TestStatements(t *testing.T) {
	cases := statementCases(t)
	if len(cases) < 100 {
		t.Fatalf("read only %d cases", len(cases))
	}
	for _, c := range cases {
		if got := describeStatement(c.parser().classify(c.text, c.schema, c.mode, c.collation)); got != c.want {
			t.Errorf("line %d: %s\n got %s\nwant %s", c.line, c.text, got, c.want)
		}
	}
}

// queryEvent makes a QUERY event as a server would.
func queryEvent(schema, text string, mode uint64, collation uint16) *rawEvent {
	var vars []byte
	vars = binary.LittleEndian.AppendUint32(append(vars, 0), 0)
	vars = binary.LittleEndian.AppendUint64(append(vars, 1), mode)
	vars = append(vars, 6, 3, 's', 't', 'd')
	vars = binary.LittleEndian.AppendUint16(append(vars, 4), collation)
	vars = append(vars, 0, 0, 0, 0)
	b := make([]byte, queryHeaderSize)
	b[8] = byte(len(schema))
	binary.LittleEndian.PutUint16(b[11:], uint16(len(vars)))
	b = append(b, vars...)
	b = append(append(b, schema...), 0)
	return &rawEvent{typ: evQuery, body: append(b, text...)}
}

func TestQueryEvent(t *testing.T) {
	p := &statementParser{version: 90704}
	st, err := p.read(queryEvent("shop", `TRUNCATE TABLE "t"`, modeANSIQuotes, 255))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := describeStatement(st), "tables truncate shop.t"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	e := queryEvent("shop", "BEGIN", 0, 255)
	if n := testing.AllocsPerRun(100, func() {
		if st, err := p.read(e); err != nil || st.class != stmtBegin {
			t.Fatal(st, err)
		}
	}); n != 0 {
		t.Errorf("BEGIN costs %v allocations", n)
	}
	for cut := range len(e.body) - len("BEGIN") {
		if _, err := p.read(&rawEvent{typ: evQuery, body: e.body[:cut]}); err == nil {
			t.Errorf("an event cut to %d bytes was read", cut)
		}
	}
}

// FuzzStatement: whatever the text, classifying ends, and a name that is told was in the text.
func FuzzStatement(f *testing.F) {
	for _, c := range statementCases(f) {
		f.Add(c.text, c.mode, c.collation, c.mariadb)
	}
	f.Fuzz(func(t *testing.T, text []byte, mode uint64, collation uint16, mariadb bool) {
		p := statementParser{mariadb: mariadb, version: 90704}
		st := p.classify(text, "db", mode, collation)
		switch st.class {
		case stmtTables:
			if len(st.tables) == 0 {
				t.Errorf("%q: no tables", text)
			}
			for _, n := range st.tables {
				if n.Name == "" || n.Schema == "" {
					t.Errorf("%q: an empty name in %q", text, n)
				}
				if !strings.ContainsAny(n.Name, "`\"]") && !bytes.Contains(text, []byte(n.Name)) {
					t.Errorf("%q: the name %q is not in it", text, n.Name)
				}
			}
		case stmtSchema:
			if st.schema == "" {
				t.Errorf("%q: an empty schema", text)
			}
		}
		if st.class == stmtUnknown && st.reason == "" {
			t.Errorf("%q: no reason", text)
		}
	})
}
