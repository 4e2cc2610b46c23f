package binlog

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// ErrNoTable says that the server has no such table, or that the account may not see it.
var ErrNoTable = errors.New("no such table, or no privilege on it")

// UnsupportedError says why a table cannot be followed, and what to do about it.
type UnsupportedError struct {
	Table  TableName
	Reason string
	Fix    string
}

func (e *UnsupportedError) Error() string {
	return fmt.Sprintf("table %s: %s; %s", e.Table, e.Reason, e.Fix)
}

// Querier is what LoadTable asks: *sql.DB, *sql.Conn and *sql.Tx are.
type Querier interface {
	QueryContext(ctx context.Context, q string, args ...any) (*sql.Rows, error)
}

// SessionSettings are the statements that every SQL session runs first whose results Row.SetQuery or LoadTable take.
func SessionSettings(mariadb bool) []string {
	common := []string{
		"SET NAMES utf8mb4",
		"SET SESSION time_zone='+00:00'",
		"SET SESSION sql_mode=''",
		"SET SESSION sql_select_limit=18446744073709551615",
	}
	if mariadb {
		return append(common, "SET SESSION max_statement_time=0")
	}
	// The second shows the generated invisible primary key, which the row images have, whatever the server's default.
	return append(common, "SET SESSION max_execution_time=0 /*!80030 , SESSION show_gipk_in_create_table_and_information_schema=ON */")
}

// QuoteName quotes an identifier: `a“b`.
func QuoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

// Quoted gives the name as SQL takes it: `schema`.`name`.
func (n TableName) Quoted() string { return QuoteName(n.Schema) + "." + QuoteName(n.Name) }

// SelectExpr gives the SQL expression for column i whose text Row.SetQuery takes. It is the quoted name, save for a
// floating-point column whose own text does not tell its value or that a driver cannot read: a FLOAT, of which the server
// shows six digits, and what has decimals or zeros before it. Times one, it is a DOUBLE with all of its digits.
func (t *Table) SelectExpr(i int) string {
	c := &t.Columns[i]
	name := QuoteName(c.Name)
	if c.Kind == KindFloat || c.Kind == KindDouble && (c.Decimals >= 0 || c.Zerofill) {
		return "(" + name + "*1e0)"
	}
	return name
}

// LoadTable reads the definition that a table has now. It fails with ErrNoTable, or with an *UnsupportedError for a view
// and for a column nobody can render.
func LoadTable(ctx context.Context, q Querier, name TableName) (*Table, error) {
	t, err := loadTable(ctx, q, name)
	if err != nil {
		if u := (*UnsupportedError)(nil); errors.As(err, &u) {
			return nil, err
		}
		return nil, fmt.Errorf("load definition of %s: %w", name, err)
	}
	return t, nil
}

func loadTable(ctx context.Context, q Querier, name TableName) (*Table, error) {
	t := &Table{Versioned: -1}
	var kind, version, engine string
	found := false
	err := each(ctx, q, func(rows *sql.Rows) error {
		var n TableName
		var k, v, e string
		if err := rows.Scan(&n.Schema, &n.Name, &k, &v, &e); err != nil {
			return err
		}
		if !found || n == name { // an exact name before one of another case
			t.TableName, kind, version, engine, found = n, k, v, e, true
		}
		return nil
	}, "SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, VERSION(), COALESCE(ENGINE,'') FROM information_schema.TABLES WHERE TABLE_SCHEMA=? AND TABLE_NAME=?", name.Schema, name.Name)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, ErrNoTable
	}
	t.Volatile = strings.EqualFold(engine, "MEMORY")
	mariadb := strings.Contains(version, "MariaDB")
	switch kind {
	case "BASE TABLE", "SYSTEM VERSIONED", "TEMPORARY":
	default:
		return nil, &UnsupportedError{name, "it is a " + strings.ToLower(kind) + ", whose rows the binary log does not carry", "map the table behind it"}
	}
	if err := t.loadColumns(ctx, q); err != nil {
		return nil, err
	}
	if mariadb {
		if err := t.markJSON(ctx, q); err != nil {
			return nil, err
		}
	}
	if mariadb && !strings.HasPrefix(version, "10.") {
		for i := range t.Columns {
			c := &t.Columns[i]
			c.Unlogged = c.Generated && !c.period
		}
	}
	if t.Versioned >= 0 && t.Columns[t.Versioned].Kind != KindTimestamp {
		return nil, &UnsupportedError{name, "it is system-versioned by transaction, and the server logs its changes as statements whatever binlog_format says",
			"make row_start and row_end TIMESTAMP(6)"}
	}
	if kind == "SYSTEM VERSIONED" && t.Versioned < 0 {
		// The columns are implicit, and the information schema leaves them out.
		for _, n := range []string{"row_start", "row_end"} {
			t.Columns = append(t.Columns, Column{Name: n, Kind: KindTimestamp, Type: "timestamp(6)", Decimals: 6, Invisible: true, Generated: true, period: true})
		}
		t.Versioned = len(t.Columns) - 1
	}
	if err := t.loadKeys(ctx, q, mariadb); err != nil {
		return nil, err
	}
	for i := range t.Columns {
		if err := t.findLabels(ctx, q, &t.Columns[i]); err != nil {
			return nil, err
		}
	}
	return t, nil
}

// each runs a query and calls f for each row.
func each(ctx context.Context, q Querier, f func(*sql.Rows) error, query string, args ...any) (err error) {
	rows, err := q.QueryContext(ctx, query, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		if err := f(rows); err != nil {
			return err
		}
	}
	return rows.Err()
}

func (t *Table) loadColumns(ctx context.Context, q Querier) error {
	return each(ctx, q, func(rows *sql.Rows) error {
		var c Column
		var table, dataType, nullable, extra string
		var position int
		var set, generation sql.NullString
		var octets, precision, scale, fsp sql.NullInt64
		if err := rows.Scan(&table, &c.Name, &position, &dataType, &c.Type, &set, &octets, &precision, &scale, &fsp, &nullable, &extra, &generation); err != nil {
			return err
		}
		if table != t.Name {
			return nil
		}
		if position != len(t.Columns)+1 {
			return &UnsupportedError{t.TableName, "the account may not see all of its columns", "grant SELECT on " + t.Quoted() + " as a whole"}
		}
		c.Nullable = nullable == "YES"
		c.Invisible = strings.Contains(extra, "INVISIBLE")
		c.Virtual = strings.Contains(extra, "VIRTUAL GENERATED")
		c.Generated = c.Virtual || strings.Contains(extra, "STORED GENERATED") || strings.Contains(extra, "PERSISTENT")
		c.Compressed = strings.Contains(c.Type, "COMPRESSED")
		if err := c.describe(strings.ToLower(dataType), columnNumbers{octets, precision, scale, fsp}, set.String); err != nil {
			return &UnsupportedError{t.TableName, fmt.Sprintf("column %s is %s: %v", c.Name, c.Type, err), "map a table without it"}
		}
		c.period = generation.String == "ROW START" || generation.String == "ROW END"
		if generation.String == "ROW END" {
			t.Versioned = len(t.Columns)
		}
		t.Columns = append(t.Columns, c)
		return nil
	}, `SELECT TABLE_NAME, COLUMN_NAME, ORDINAL_POSITION, DATA_TYPE, COLUMN_TYPE, CHARACTER_SET_NAME, CHARACTER_OCTET_LENGTH,
		NUMERIC_PRECISION, NUMERIC_SCALE, DATETIME_PRECISION, IS_NULLABLE, EXTRA, GENERATION_EXPRESSION
		FROM information_schema.COLUMNS WHERE TABLE_SCHEMA=? AND TABLE_NAME=? ORDER BY ORDINAL_POSITION`, t.Schema, t.Name)
}

// columnNumbers are the numbers of information_schema.COLUMNS.
type columnNumbers struct{ octets, precision, scale, fsp sql.NullInt64 }

// describe fills in what the type says. c.Type is set.
func (c *Column) describe(dataType string, n columnNumbers, set string) error {
	c.Unsigned = strings.Contains(c.Type, " unsigned")
	c.Zerofill = strings.Contains(c.Type, " zerofill")
	switch dataType {
	case "tinyint", "smallint", "mediumint", "int", "bigint":
		c.Kind = KindInt
		c.Bytes = map[string]int{"tinyint": 1, "smallint": 2, "mediumint": 3, "int": 4, "bigint": 8}[dataType]
		c.Width = argument(c.Type)
	case "bit":
		c.Kind, c.Width = KindBit, int(n.precision.Int64)
	case "decimal":
		c.Kind, c.Precision, c.Decimals = KindDecimal, int(n.precision.Int64), int(n.scale.Int64)
		c.Width = c.Precision + min(c.Decimals, 1)
	case "float", "double":
		c.Kind = KindFloat
		if dataType == "double" {
			c.Kind = KindDouble
		}
		c.Width, c.Decimals = int(n.precision.Int64), -1
		if n.scale.Valid {
			c.Decimals = int(n.scale.Int64)
		}
	case "year":
		c.Kind, c.Width = KindYear, 4
		if argument(c.Type) == 2 {
			c.Width = 2
		}
	case "date":
		c.Kind = KindDate
	case "time", "datetime", "timestamp":
		c.Kind = map[string]Kind{"time": KindTime, "datetime": KindDatetime, "timestamp": KindTimestamp}[dataType]
		c.Decimals = int(n.fsp.Int64)
		if c.Decimals < 0 || c.Decimals > 6 {
			return errors.New("the number of fractional digits is impossible")
		}
	case "char", "varchar", "tinytext", "text", "mediumtext", "longtext":
		c.Kind, c.Charset, c.MaxBytes = KindText, set, int(n.octets.Int64)
		if set == "" || set == "binary" {
			c.Kind, c.Charset = KindBinary, ""
		}
	case "binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob":
		c.Kind, c.Width, c.MaxBytes = KindBinary, int(n.octets.Int64), int(n.octets.Int64)
	case "enum", "set":
		c.Kind = KindEnum
		if dataType == "set" {
			c.Kind = KindSet
		}
		c.Charset = set
		labels, err := parseLabels(c.Type)
		if err != nil {
			return err
		}
		c.Labels = labels
		c.markLabels()
	case "json":
		c.Kind = KindJSON
	case "geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon", "geometrycollection", "geomcollection":
		c.Kind = KindGeometry
	case "vector":
		c.Kind, c.Width = KindVector, argument(c.Type)
	case "uuid":
		c.Kind, c.Width = KindUUID, 16
	case "inet4":
		c.Kind, c.Width = KindInet4, 4
	case "inet6":
		c.Kind, c.Width = KindInet6, 16
	default:
		return errors.New("nothing is known of this type")
	}
	if c.Kind == KindText {
		// Both flavours are tried: the definition does not say which server it came from.
		if _, err := findCharset(c.Charset, false); err != nil {
			if _, err := findCharset(c.Charset, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// argument reads the first number in a type's parentheses, 0 without.
func argument(typ string) int {
	_, rest, _ := strings.Cut(typ, "(")
	end := 0
	for end < len(rest) && rest[end] >= '0' && rest[end] <= '9' {
		end++
	}
	n, err := strconv.Atoi(rest[:end])
	if err != nil {
		return 0
	}
	return n
}

func (t *Table) loadKeys(ctx context.Context, q Querier, mariadb bool) error {
	type part struct {
		key, column string
		whole       bool
	}
	var parts []part
	err := each(ctx, q, func(rows *sql.Rows) error {
		var table, key, method string
		var column, sub sql.NullString
		var nonUnique int
		if err := rows.Scan(&table, &key, &nonUnique, &column, &sub, &method); err != nil {
			return err
		}
		if table != t.Name {
			return nil
		}
		if !column.Valid || mariadb && method == "HASH" {
			t.hidden++
		}
		if nonUnique == 0 {
			parts = append(parts, part{key, column.String, column.Valid && !sub.Valid})
		}
		return nil
	}, `SELECT TABLE_NAME, INDEX_NAME, NON_UNIQUE, COLUMN_NAME, SUB_PART, INDEX_TYPE
		FROM information_schema.STATISTICS WHERE TABLE_SCHEMA=? AND TABLE_NAME=?
		ORDER BY INDEX_NAME='PRIMARY' DESC, INDEX_NAME, SEQ_IN_INDEX`, t.Schema, t.Name)
	if err != nil {
		return err
	}
	for len(parts) > 0 {
		key := Key{Name: parts[0].key}
		good := true
		for len(parts) > 0 && parts[0].key == key.Name {
			p := parts[0]
			parts = parts[1:]
			i := t.Column(p.column)
			switch {
			case !p.whole || i < 0 || t.Columns[i].Nullable || t.Columns[i].Unlogged:
				good = false
			case i == t.Versioned: // the same in every live row
			default:
				key.Columns = append(key.Columns, i)
			}
		}
		if good && len(key.Columns) > 0 {
			t.Keys = append(t.Keys, key)
		}
	}
	return nil
}
