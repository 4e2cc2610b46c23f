package scenario

import (
	"context"
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
)

// An oracle says what the rows on a server should be served as, from nothing but SELECT and the documented
// rules for values. It is written apart from the product's own rendering, and slowly on purpose, so that
// one checks the other.
type oracle struct {
	tables []mapping
}

// A mapping is one entry of a configuration's list of tables, as far as values and keys go.
type mapping struct {
	Table string `yaml:"table"`
	Name  string `yaml:"name"`
	Key   string `yaml:"key"`
	Value struct {
		Format    string   `yaml:"format"`
		Columns   []string `yaml:"columns"`
		Separator string   `yaml:"separator"`
	} `yaml:"value"`
}

func (o *oracle) byTables(names []string) error {
	o.tables = nil
	for _, name := range names {
		o.tables = append(o.tables, mapping{Table: name})
	}
	return nil
}

func (o *oracle) byConfig(text string) error {
	var config struct {
		Tables []mapping `yaml:"tables"`
	}
	if err := yaml.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("the config section: %w", err)
	}
	o.tables = config.Tables
	return nil
}

// Items returns every key and value of the table ("db.t") under the default mapping: keys "t:PK", JSON of
// every column.
func Items(ctx context.Context, db *sql.DB, table string) (map[string][]byte, error) {
	return (&oracle{tables: []mapping{{Table: table}}}).items(ctx, db)
}

func (o *oracle) items(ctx context.Context, db *sql.DB) (map[string][]byte, error) {
	items := map[string][]byte{}
	for _, m := range o.tables {
		if err := m.addTo(ctx, db, items); err != nil {
			return nil, fmt.Errorf("the rows of %s: %w", m.Table, err)
		}
	}
	return items, nil
}

// A column is what the oracle must know of a column.
type column struct {
	name   string
	kind   string // INFORMATION_SCHEMA's DATA_TYPE
	typ    string // its COLUMN_TYPE
	pk     bool
	binary bool
	json   bool
}

func (c column) number() bool {
	return slices.Contains([]string{"tinyint", "smallint", "mediumint", "int", "bigint", "float", "double", "decimal"}, c.kind)
}

func (m mapping) addTo(ctx context.Context, db *sql.DB, items map[string][]byte) (err error) {
	conn, err := db.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if _, err := conn.ExecContext(ctx, "SET NAMES utf8mb4, time_zone='+00:00', sql_mode=''"); err != nil {
		return err
	}
	schema, table := splitName(m.Table)
	columns, err := describe(ctx, conn, schema, table)
	if err != nil || len(columns) == 0 {
		return err // a table that is not there has no rows
	}
	if m.Name == "" {
		m.Name = table
	}
	if m.Key == "" {
		m.Key = m.Name
		for _, c := range columns {
			if c.pk {
				m.Key += ":{" + c.name + "}"
			}
		}
	}

	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = quoteName(c.name)
		switch {
		case c.kind == "float" && !strings.Contains(c.typ, ","):
			// The text of a FLOAT has six digits only; as a DOUBLE it has them all.
			list[i] = "CONCAT(CAST(" + list[i] + " AS DOUBLE))"
		case c.number() || c.kind == "year":
			// The driver would parse a number and print it in Go's way.
			list[i] = "CONCAT(" + list[i] + ")"
		}
	}
	rows, err := conn.QueryContext(ctx, "SELECT "+strings.Join(list, ", ")+" FROM "+quoteName(schema)+"."+quoteName(table))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		cells := make([]sql.RawBytes, len(columns))
		targets := make([]any, len(columns))
		for i := range cells {
			targets[i] = &cells[i]
		}
		if err := rows.Scan(targets...); err != nil {
			return err
		}
		row := map[string]cell{}
		for i, c := range columns {
			row[strings.ToLower(c.name)] = cell{c, text(c, cells[i]), cells[i] == nil}
		}
		value, err := m.value(columns, row)
		if err != nil {
			return err
		}
		items[m.key(row)] = value
	}
	return rows.Err()
}

func splitName(name string) (schema, table string) {
	schema, table, _ = strings.Cut(name, ".")
	unquote := func(s string) string {
		if strings.HasPrefix(s, "`") {
			return strings.ReplaceAll(strings.Trim(s, "`"), "``", "`")
		}
		return s
	}
	return unquote(schema), unquote(table)
}

func quoteName(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }

func describe(ctx context.Context, conn *sql.Conn, schema, table string) (columns []column, err error) {
	rows, err := conn.QueryContext(ctx, `
		SELECT c.COLUMN_NAME, c.DATA_TYPE, c.COLUMN_TYPE, c.COLUMN_KEY='PRI', COALESCE(c.CHARACTER_SET_NAME,'')
		FROM information_schema.COLUMNS c WHERE c.TABLE_SCHEMA=? AND c.TABLE_NAME=? ORDER BY c.ORDINAL_POSITION`, schema, table)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var c column
		var charset string
		if err := rows.Scan(&c.name, &c.kind, &c.typ, &c.pk, &charset); err != nil {
			return nil, err
		}
		c.kind = strings.ToLower(c.kind)
		c.binary = charset == "binary" || slices.Contains([]string{
			"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob", "vector",
			"geometry", "point", "linestring", "polygon", "multipoint", "multilinestring", "multipolygon",
			"geometrycollection", "geomcollection",
		}, c.kind)
		c.json = c.kind == "json"
		columns = append(columns, c)
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	// MariaDB's JSON is a LONGTEXT with a check that it is valid.
	for i, c := range columns {
		if c.kind == "longtext" {
			var n int
			err := conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.TABLES WHERE TABLE_SCHEMA='information_schema' AND TABLE_NAME='CHECK_CONSTRAINTS'").Scan(&n)
			if err != nil {
				return nil, err
			}
			if n > 0 {
				err = conn.QueryRowContext(ctx, "SELECT COUNT(*) FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA=? AND CHECK_CLAUSE=CONCAT('json_valid(`',?,'`)')", schema, c.name).Scan(&n)
				if err != nil {
					return nil, err
				}
			}
			columns[i].json = n > 0
		}
	}
	return columns, nil
}

// A cell is one column of one row.
type cell struct {
	column column
	text   string
	null   bool
}

// text returns the column's text as SELECT gives it, and FLOAT in the digits that float32 needs.
func text(c column, raw []byte) string {
	bits := 64
	switch {
	case raw == nil || strings.ContainsAny(c.typ, ",z"): // with decimals or zerofill
		return string(raw)
	case c.kind == "float":
		bits = 32
	case c.kind != "double":
		return string(raw)
	}
	v, err := strconv.ParseFloat(string(raw), 64)
	if err != nil {
		return string(raw)
	}
	// Shortest digits that give the same number, in the server's own style: no exponent between 1e-15 and 1e15. (CONCAT,
	// by which the text was asked for, has an exponent earlier on MySQL.)
	short := strconv.FormatFloat(v, 'e', -1, bits)
	if round, err := strconv.ParseFloat(short, 64); err == nil {
		v = round // what is written decides about the style: a FLOAT of 1e15 is kept as 999999986991104
	}
	// Above that, digits behind the point do without one as well.
	plain := strconv.FormatFloat(v, 'f', -1, bits)
	if v == 0 || (abs(v) >= 1e-15 && abs(v) < 1e15) || abs(v) >= 1e15 && strings.Contains(plain, ".") {
		return plain
	}
	mantissa, exponent, _ := strings.Cut(short, "e")
	n, _ := strconv.Atoi(exponent)
	return mantissa + "e" + strconv.Itoa(n)
}

func abs(v float64) float64 { return max(v, -v) }

// key renders the template. In a column that another follows, '%' and the first byte of the literal behind
// it are written as %XX.
func (m mapping) key(row map[string]cell) string {
	places := regexp.MustCompile(`\{[^}]*\}`).FindAllStringIndex(m.Key, -1)
	var key strings.Builder
	at := 0
	for i, place := range places {
		key.WriteString(m.Key[at:place[0]])
		at = place[1]
		c := row[strings.ToLower(m.Key[place[0]+1:place[1]-1])]
		if c.column.kind == "bit" {
			key.WriteString(new(big.Int).SetBytes([]byte(c.text)).String())
			continue
		}
		for _, b := range []byte(c.text) {
			if i < len(places)-1 && (b == '%' || b == m.Key[at]) {
				fmt.Fprintf(&key, "%%%02X", b)
			} else {
				key.WriteByte(b)
			}
		}
	}
	return key.String() + m.Key[at:]
}

func (m mapping) value(columns []column, row map[string]cell) ([]byte, error) {
	names := m.Value.Columns
	if len(names) == 0 {
		for _, c := range columns {
			names = append(names, c.name)
		}
	}
	if m.Value.Format == "text" {
		separator := m.Value.Separator
		if separator == "" {
			separator = "|"
		}
		texts := make([]string, len(names))
		for i, name := range names {
			texts[i] = row[strings.ToLower(name)].text
		}
		return []byte(strings.Join(texts, separator)), nil
	}
	out := []byte("{")
	for i, name := range names {
		if i > 0 {
			out = append(out, ',')
		}
		c, ok := row[strings.ToLower(name)]
		if !ok {
			return nil, fmt.Errorf("no column %s", name)
		}
		quoted, err := quote(name)
		if err != nil {
			return nil, err
		}
		value, err := c.json()
		if err != nil {
			return nil, err
		}
		out = append(append(append(out, quoted...), ':'), value...)
	}
	return append(out, '}'), nil
}

func (c cell) json() (string, error) {
	switch {
	case c.null:
		return "null", nil
	case c.column.kind == "bit":
		return new(big.Int).SetBytes([]byte(c.text)).String(), nil
	case c.column.json:
		return c.text, nil
	case c.column.binary:
		return `"` + base64.StdEncoding.EncodeToString([]byte(c.text)) + `"`, nil
	}
	if c.column.number() {
		digits := strings.TrimLeft(strings.TrimPrefix(c.text, "-"), "0")
		if digits == "" || digits[0] == '.' || digits[0] == 'e' {
			digits = "0" + digits
		}
		if strings.HasPrefix(c.text, "-") {
			digits = "-" + digits
		}
		return digits, nil
	}
	return quote(c.text)
}

// quote returns the JSON string of s, with nothing escaped that need not be.
func quote(s string) (string, error) {
	var out strings.Builder
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(s); err != nil {
		return "", err
	}
	return strings.TrimSuffix(out.String(), "\n"), nil
}
