package binlog

import (
	"context"
	"database/sql"
	"fmt"
	"strings"
)

// markJSON finds MariaDB's JSON columns: LONGTEXT with the check json_valid(`name`), which is what its type JSON stands for.
func (t *Table) markJSON(ctx context.Context, q Querier) error {
	return each(ctx, q, func(rows *sql.Rows) error {
		var clause string
		if err := rows.Scan(&clause); err != nil {
			return err
		}
		for i := range t.Columns {
			c := &t.Columns[i]
			if c.Kind == KindText && strings.EqualFold(clause, "json_valid("+QuoteName(c.Name)+")") {
				c.JSON = true
			}
		}
		return nil
	}, "SELECT CHECK_CLAUSE FROM information_schema.CHECK_CONSTRAINTS WHERE CONSTRAINT_SCHEMA=? AND TABLE_NAME=?", t.Schema, t.Name)
}

// CheckCascades gives an *UnsupportedError when a foreign key of the table lets the server change its rows without telling
// the log: CASCADE and SET NULL, on MariaDB always, on MySQL unless it handles foreign keys above the storage engine
// (MySQL manual, innodb_native_foreign_keys, since 9.6).
func CheckCascades(ctx context.Context, q Querier, name TableName) error {
	var key, parent string
	err := each(ctx, q, func(rows *sql.Rows) error { return rows.Scan(&key, &parent) },
		`SELECT CONSTRAINT_NAME, REFERENCED_TABLE_NAME FROM information_schema.REFERENTIAL_CONSTRAINTS
		WHERE CONSTRAINT_SCHEMA=? AND TABLE_NAME=? AND (DELETE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT') OR UPDATE_RULE IN ('CASCADE', 'SET NULL', 'SET DEFAULT'))`,
		name.Schema, name.Name)
	if err != nil {
		return fmt.Errorf("read the foreign keys of %s: %w", name, err)
	}
	if key == "" {
		return nil
	}
	native := "ON"
	err = each(ctx, q, func(rows *sql.Rows) error {
		var variable string
		return rows.Scan(&variable, &native)
	}, "SHOW GLOBAL VARIABLES LIKE 'innodb_native_foreign_keys'")
	if err != nil {
		return fmt.Errorf("read innodb_native_foreign_keys: %w", err)
	}
	if strings.EqualFold(native, "OFF") {
		return nil
	}
	return &UnsupportedError{name,
		fmt.Sprintf("its foreign key %s lets the server change its rows when %s changes, and this server does not log such changes", key, parent),
		"map a table without such a foreign key, make its actions RESTRICT or NO ACTION, or (MySQL 9.6 and later) start the server with innodb_native_foreign_keys=OFF"}
}
