package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
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

func checkCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Check the configuration, the connection, privileges, server settings and every mapping",
		Long: `Check the configuration, the connection to the source, the account's privileges, the server's settings, and that every
mapping fits its table. Each fault is printed with what mends it. Exit status: 0 without faults, 1 with, 2 for a bad command
line or configuration.`,
		Example: `  rowcached check --source 'root@tcp(127.0.0.1:3306)/' --table shop.users`,
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			c, err := f.load()
			if err != nil {
				return err
			}
			return check(cmd.Context(), c, cmd.OutOrStdout())
		},
	}
	f.configFlagsFor(cmd)
	return cmd
}

// check prints what is in order and what is not. The error is errReported when there was a fault.
func check(ctx context.Context, c *config.Config, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	if c.Source.DSN == "" {
		return fmt.Errorf("%w: there is no source to check; pass --source or a configuration with source.dsn", errUsage)
	}
	source, err := newSource(c, slog.New(slog.DiscardHandler))
	if err != nil {
		return err
	}
	defer source.Close()
	faults := 0
	report := func(f binlog.Fault) {
		faults++
		fmt.Fprintf(w, "FAULT  %s\n  fix: %s\n", f.What, f.Fix)
	}
	err = inspect(ctx, source, c.Tables, func(format string, args ...any) { fmt.Fprintf(w, "ok     "+format+"\n", args...) }, report)
	if err != nil {
		report(connectionFault(err))
	}
	if faults > 0 {
		return errReported
	}
	return nil
}

// inspect asks the source whether its log can be followed and every mapping fits its table. What is in order goes to
// ok, what is not to fault. An error means that the source could not be asked.
func inspect(ctx context.Context, source *binlog.Source, specs []mapping.Spec, ok func(string, ...any), fault func(binlog.Fault)) error {
	r, err := source.Check(ctx)
	if err != nil {
		return err
	}
	ok("connected to %s as %s", r.Version, r.Account)
	for _, f := range r.Faults {
		fault(f)
	}
	if len(r.Faults) == 0 {
		ok("the server's settings and the account's privileges suffice")
	}
	var mappings []*mapping.Mapping
	for _, spec := range specs {
		m, f, err := checkTable(ctx, source, spec, r.Account)
		switch {
		case err != nil:
			return err
		case f != nil:
			fault(*f)
		default:
			mappings = append(mappings, m)
			ok("table %s, keys %s", spec.Table, m.Spec().Key)
		}
	}
	if _, err := mapping.NewSet(mappings); err != nil {
		fault(split(err.Error()))
	}
	return nil
}

// connectionFault tells why the server could not be asked.
func connectionFault(err error) binlog.Fault {
	f := binlog.Fault{What: "the source cannot be reached: " + oneLine(err), Fix: "start the server, or correct host and port in source.dsn"}
	var refusal *mysql.MySQLError
	var name x509.HostnameError
	var authority x509.UnknownAuthorityError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &refusal):
		f.What = "the source refuses: " + oneLine(err)
		switch refusal.Number {
		case 1045, 1698:
			f.Fix = "correct the user and password in source.dsn (or source.password_file); or create the account: CREATE USER rowcached IDENTIFIED BY '...';" +
				" or, if the account requires TLS, set source.tls.mode: required"
		case 3159:
			f.Fix = "set source.tls.mode: required (or verify-identity with source.tls.ca)"
		default:
			f.Fix = "mend what the server says"
		}
	case errors.As(err, &name):
		f.What = "the source's certificate is for another name: " + oneLine(err)
		f.Fix = "write the host in source.dsn as the certificate has it, or set source.tls.mode: verify-ca"
	case errors.As(err, &authority), errors.As(err, &certificate):
		f.What = "the source's certificate cannot be verified: " + oneLine(err)
		f.Fix = "set source.tls.ca to the file of the authority that signed it, or source.tls.mode: required to encrypt without verifying"
	case errors.Is(err, mysql.ErrNoTLS):
		f.What = "the source offers no TLS"
		f.Fix = "set ssl_cert and ssl_key in the server's option file, or source.tls.mode: preferred"
	}
	return f
}

// checkTable checks that a mapping fits its table and that the account may read it. An error means that the source
// could not be asked.
func checkTable(ctx context.Context, source *binlog.Source, spec mapping.Spec, account string) (*mapping.Mapping, *binlog.Fault, error) {
	name, err := spec.TableName()
	if err != nil {
		f := split(err.Error())
		return nil, &f, nil
	}
	grant := fmt.Sprintf("GRANT SELECT ON %s TO %s;", name.Quoted(), account)
	def, err := binlog.LoadTable(ctx, source.DB(), name)
	var unsupported *binlog.UnsupportedError
	switch {
	case errors.Is(err, binlog.ErrNoTable):
		return nil, &binlog.Fault{What: fmt.Sprintf("table %s does not exist, or %s has no privilege on it", name, account),
			Fix: "create the table, or correct its name, or: " + grant}, nil
	case errors.As(err, &unsupported):
		return nil, &binlog.Fault{What: fmt.Sprintf("table %s: %s", name, unsupported.Reason), Fix: unsupported.Fix}, nil
	case err != nil:
		return nil, nil, err
	}
	// The whole table first: of one whose columns are granted singly, the server describes only those that are.
	if f, err := tryQuery(ctx, source, "SELECT * FROM "+name.Quoted()+" LIMIT 0", fmt.Sprintf("table %s cannot be read whole", name), grant); f != nil || err != nil {
		return nil, f, err
	}
	m, err := mapping.Compile(spec, def)
	if err != nil {
		f := split(err.Error())
		return nil, &f, nil
	}
	if err := binlog.CheckCascades(ctx, source.DB(), def.TableName); errors.As(err, &unsupported) {
		return nil, &binlog.Fault{What: fmt.Sprintf("table %s: %s", name, unsupported.Reason), Fix: unsupported.Fix}, nil
	} else if err != nil {
		return nil, nil, err
	}
	exprs := make([]string, len(m.Columns()))
	for i, col := range m.Columns() {
		exprs[i] = def.SelectExpr(col)
	}
	f, err := tryQuery(ctx, source, "SELECT "+strings.Join(exprs, ", ")+" FROM "+name.Quoted()+" LIMIT 0",
		fmt.Sprintf("table %s: the mapped columns cannot be read", name), grant)
	return m, f, err
}

// tryQuery runs a query that gives no rows. What the server says against it makes a fault.
func tryQuery(ctx context.Context, source *binlog.Source, query, what, fix string) (*binlog.Fault, error) {
	rows, err := source.DB().QueryContext(ctx, query)
	if err == nil {
		err = errors.Join(rows.Err(), rows.Close())
	}
	var refusal *mysql.MySQLError
	if errors.As(err, &refusal) {
		return &binlog.Fault{What: what + ": " + oneLine(err), Fix: fix}, nil
	}
	return nil, err
}

// split takes a message of the form "what; fix" apart.
func split(text string) binlog.Fault {
	text = strings.ReplaceAll(text, "\n", " ")
	what, fix, ok := strings.Cut(text, "; ")
	if !ok {
		fix = "correct the table's entry in the configuration"
	}
	return binlog.Fault{What: what, Fix: fix}
}

func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", " ") }
