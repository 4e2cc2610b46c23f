package binlog

import "strings"

// Kind says how a column's stored bytes become text.
type Kind uint8

// The kinds of column, by the text that SELECT gives for them.
const (
	KindInvalid   Kind = iota
	KindInt            // TINYINT to BIGINT, signed or not, ZEROFILL or not
	KindBit            // BIT(n)
	KindDecimal        // DECIMAL(p,s)
	KindFloat          // FLOAT, FLOAT(m,d)
	KindDouble         // DOUBLE, DOUBLE(m,d)
	KindYear           // YEAR
	KindDate           // DATE
	KindTime           // TIME(fsp)
	KindDatetime       // DATETIME(fsp)
	KindTimestamp      // TIMESTAMP(fsp), rendered in UTC
	KindText           // CHAR, VARCHAR, TEXT in a character set
	KindBinary         // BINARY, VARBINARY, BLOB
	KindEnum           // ENUM
	KindSet            // SET
	KindJSON           // MySQL's JSON type (MariaDB's is KindText with a check)
	KindGeometry       // GEOMETRY and its subtypes: SRID and WKB
	KindVector         // VECTOR(n): little-endian float32s
	KindUUID           // MariaDB UUID
	KindInet4          // MariaDB INET4
	KindInet6          // MariaDB INET6
)

// Column is one column of a table as the server's schema describes it.
type Column struct {
	Name       string
	Kind       Kind
	Type       string   // information_schema.COLUMNS.COLUMN_TYPE, e.g. "int(10) unsigned"
	Charset    string   // the server's name of the character set of KindText, KindEnum, KindSet; else ""
	Labels     []string // of KindEnum and KindSet, in definition order, UTF-8
	Width      int      // ZEROFILL display width; BINARY(n) and INET bytes; BIT(n) bits; VECTOR(n) dimensions
	Precision  int      // DECIMAL(p,s): p
	Decimals   int      // DECIMAL scale, fractional second digits, FLOAT(m,d)'s d; -1 for a FLOAT or DOUBLE without
	Bytes      int      // width of KindInt in the row image: 1, 2, 3, 4, 8
	Unsigned   bool
	Zerofill   bool
	Nullable   bool
	Invisible  bool
	Generated  bool // VIRTUAL or STORED
	Virtual    bool // VIRTUAL
	Compressed bool // MariaDB COMPRESSED
	JSON       bool // MariaDB's JSON: text with a json_valid check
	Unlogged   bool // a generated column that MariaDB 11 leaves out of the row images of UPDATE and DELETE, even full ones

	// MaxBytes is the greatest length in bytes of KindText and KindBinary, 0 when unknown. It is the surest sign that a
	// row image was written under another definition: another character set has another number of bytes.
	MaxBytes int

	period bool // row_start or row_end of a system-versioned table

	// unknown marks the Labels that the server's schema does not tell: it writes ? for what its own utf8mb3 lacks.
	unknown []bool
}

// unknownLabel says whether Labels[i] is not known.
func (c *Column) unknownLabel(i int) bool {
	return i < len(c.unknown) && c.unknown[i]
}

// Key is a unique key whose columns are all NOT NULL and used whole.
type Key struct {
	Name    string // PRIMARY for the primary key
	Columns []int  // ordinals in Table.Columns, from 0
}

// TableName names a table. Names are kept as the server wrote them.
type TableName struct {
	Schema string
	Name   string
}

// String gives schema.name, for messages.
func (n TableName) String() string { return n.Schema + "." + n.Name }

// Table is the definition of a table that was valid at some position of the log (I5).
type Table struct {
	TableName
	Columns []Column // every column of the row image, in its order, invisible ones included
	Keys    []Key    // the primary key first when there is one

	// Versioned is the ordinal of MariaDB's row_end column when the table is system-versioned, else -1.
	Versioned int

	// Volatile says that the rows are gone when the server starts anew (ENGINE=MEMORY). The log tells so only once somebody
	// opens the table.
	Volatile bool

	// hidden is how many columns beyond Columns a row image may have: those of functional key parts and of MariaDB's
	// hashed unique keys, which some versions of the servers write.
	hidden int
}

// Column finds a column by name, as the server does: without regard to case. It gives -1 when there is none.
func (t *Table) Column(name string) int {
	for i := range t.Columns {
		if strings.EqualFold(t.Columns[i].Name, name) {
			return i
		}
	}
	return -1
}

// PrimaryKey gives the primary key, or nil.
func (t *Table) PrimaryKey() *Key {
	if len(t.Keys) > 0 && t.Keys[0].Name == "PRIMARY" {
		return &t.Keys[0]
	}
	return nil
}
