package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"
	"github.com/spf13/cobra"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/rowcached/rowcached/mapping"
)

func initCommand() *cobra.Command {
	var f configFlags
	var schemas []string
	cmd := &cobra.Command{
		Use:   "init",
		Short: "Write a configuration for the tables that the source has",
		Long: `Write a configuration to standard output that maps every table of the source (or of the schemas named) with its defaults.
A table that cannot be mapped is left as a comment with the reason. The password is not written.`,
		Example: `  rowcached init --source 'root@tcp(127.0.0.1:3306)/' --schema shop > rowcached.yaml
  rowcached check -c rowcached.yaml`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.load()
			if err != nil {
				return err
			}
			return writeConfig(cmd.Context(), c, schemas, cmd.OutOrStdout())
		},
	}
	f.configFlagsFor(cmd)
	cmd.Flags().StringArrayVar(&schemas, "schema", nil, "only tables of this schema (may be repeated)")
	return cmd
}

// writeConfig reads the source's tables and writes a configuration.
func writeConfig(ctx context.Context, c *config.Config, schemas []string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	if c.Source.DSN == "" {
		return fmt.Errorf("%w: there is no source to read; pass --source", errUsage)
	}
	source, err := newSource(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer source.Close()
	names, err := tableNames(ctx, source, schemas)
	if err != nil {
		return fmt.Errorf("read the source's tables: %w", err)
	}
	dsn, err := mysql.ParseDSN(c.Source.DSN)
	if err != nil {
		return fmt.Errorf("%w: source.dsn: %w", errUsage, err)
	}
	hint := ""
	if dsn.Passwd != "" || c.Source.Password != "" {
		hint = "\n  password_file: /path/to/a/file/with/the/password   # or the environment variable ROWCACHED_SOURCE_PASSWORD"
	}
	dsn.Passwd = ""
	_, err = fmt.Fprintf(w, "# Written by rowcached init; `rowcached check -c FILE` tries it, `rowcached run -c FILE` serves it.\nsource:\n  dsn: %s%s\ntables:\n",
		quoteYAML(dsn.FormatDSN()), hint)
	if err != nil {
		return err
	}
	var mapped []*mapping.Mapping
	for _, n := range names {
		spec := mapping.Spec{Table: plainName(n.Schema) + "." + plainName(n.Name)}
		m, why, err := proposal(ctx, source, spec, n, mapped)
		if err != nil {
			return fmt.Errorf("read the table %s: %w", n, err)
		}
		if m == nil {
			_, err = fmt.Fprintf(w, "  # - table: %s\n  #   not mapped: %s\n", quoteYAML(spec.Table), strings.ReplaceAll(why, "\n", " "))
		} else {
			mapped = append(mapped, m)
			_, err = fmt.Fprintf(w, "  - table: %s\n    name: %s\n    key: %s\n", quoteYAML(spec.Table), quoteYAML(m.Name()), quoteYAML(m.Spec().Key))
		}
		if err != nil {
			return err
		}
	}
	if len(mapped) == 0 {
		return errors.New("the source has no table that can be mapped (the account sees those that it may read)")
	}
	return nil
}

// tableNames lists the base tables that the account sees, in the server's order of names.
func tableNames(ctx context.Context, source *binlog.Source, schemas []string) ([]binlog.TableName, error) {
	query := `SELECT TABLE_SCHEMA, TABLE_NAME FROM information_schema.TABLES WHERE TABLE_TYPE IN ('BASE TABLE', 'SYSTEM VERSIONED')
		AND TABLE_SCHEMA NOT IN ('mysql', 'sys', 'information_schema', 'performance_schema', 'innodb_memcache')`
	var args []any
	if len(schemas) > 0 {
		query += " AND TABLE_SCHEMA IN (?" + strings.Repeat(", ?", len(schemas)-1) + ")"
		for _, s := range schemas {
			args = append(args, s)
		}
	}
	rows, err := source.DB().QueryContext(ctx, query+" ORDER BY TABLE_SCHEMA, TABLE_NAME", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	var names []binlog.TableName
	for rows.Next() {
		var n binlog.TableName
		if err := rows.Scan(&n.Schema, &n.Name); err != nil {
			return nil, err
		}
		names = append(names, n)
	}
	return names, rows.Err()
}

// proposal maps a table beside those that are mapped already: under its own name, else under schema_table. A nil
// mapping comes with the reason.
func proposal(ctx context.Context, source *binlog.Source, spec mapping.Spec, n binlog.TableName, mapped []*mapping.Mapping) (*mapping.Mapping, string, error) {
	def, err := binlog.LoadTable(ctx, source.DB(), n)
	var unsupported *binlog.UnsupportedError
	switch {
	case errors.As(err, &unsupported):
		return nil, unsupported.Error(), nil
	case errors.Is(err, binlog.ErrNoTable): // dropped meanwhile
		return nil, err.Error(), nil
	case err != nil:
		return nil, "", err
	}
	fit := func(r rune) rune {
		if r == '.' || r <= ' ' || r == 0x7f {
			return '_'
		}
		return r
	}
	why := ""
	for _, name := range []string{strings.Map(fit, n.Name), strings.Map(fit, n.Schema+"_"+n.Name)} {
		spec.Name = name
		if def.PrimaryKey() == nil && len(def.Keys) > 0 {
			spec.Key = mapping.DefaultKey(name, def)
		}
		m, err := mapping.Compile(spec, def)
		if err == nil {
			_, err = mapping.NewSet(append(mapped[:len(mapped):len(mapped)], m))
		}
		if err == nil {
			return m, "", nil
		}
		why = err.Error()
	}
	return nil, why, nil
}

// plainName writes a name as mapping.Spec.Table takes it.
func plainName(s string) string {
	if strings.ContainsAny(s, ".`") {
		return "`" + strings.ReplaceAll(s, "`", "``") + "`"
	}
	return s
}

// quoteYAML writes a text as a YAML scalar in double quotes, whose escapes JSON shares.
func quoteYAML(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err) // a string always has a JSON form
	}
	return string(b)
}
