package binlog

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Fault is something about the server or the account that keeps a table from being followed rightly.
type Fault struct {
	What string // one line: what is so, and why it matters
	Fix  string // the statement or setting that mends it
}

// Report is what Check found.
type Report struct {
	Version string // of the server
	Account string // that we are, as 'user'@'host'
	Faults  []Fault
}

// Check asks the server whether its settings and our account's privileges allow its log to be followed. An error means
// that it could not be asked.
func (s *Source) Check(ctx context.Context) (Report, error) {
	var r Report
	db := s.DB()
	if err := queryRow(ctx, db, "SELECT CONCAT(VERSION(), ' ', @@global.version_comment), CURRENT_USER()", &r.Version, &r.Account); err != nil {
		return r, err
	}
	r.Account = quoteAccount(r.Account)
	mariadb := isMariaDB(r.Version, "")
	vars, err := variables(ctx, db)
	if err != nil {
		return r, err
	}
	r.Faults = settingFaults(vars)
	for _, check := range []func(context.Context, Querier, Report, map[string]string, bool) ([]Fault, error){privilegeFaults, filterFaults, relayFaults} {
		faults, err := check(ctx, db, r, vars, mariadb)
		if err != nil {
			return r, err
		}
		r.Faults = append(r.Faults, faults...)
	}
	return r, nil
}

// quoteAccount makes 'user'@'host' of user@host.
func quoteAccount(account string) string {
	at := strings.LastIndexByte(account, '@')
	if at < 0 {
		return "'" + account + "'"
	}
	quote := func(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
	return quote(account[:at]) + "@" + quote(account[at+1:])
}

// variables reads the global variables that matter; one that the server does not have is absent.
func variables(ctx context.Context, q Querier) (map[string]string, error) {
	rows, err := q.QueryContext(ctx, `SHOW GLOBAL VARIABLES WHERE Variable_name IN ('log_bin', 'binlog_format', 'binlog_row_image',
		'binlog_row_value_options', 'gtid_mode', 'log_replica_updates', 'log_slave_updates', 'innodb_native_foreign_keys')`)
	if err != nil {
		return nil, fmt.Errorf("read the server's settings: %w", err)
	}
	defer rows.Close()
	vars := make(map[string]string)
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return nil, fmt.Errorf("read the server's settings: %w", err)
		}
		vars[strings.ToLower(name)] = strings.ToUpper(value)
	}
	return vars, rows.Err()
}

func settingFaults(vars map[string]string) []Fault {
	if vars["log_bin"] != "ON" {
		return []Fault{{"the server writes no binary log (log_bin is OFF), so no change can be followed",
			"in the server's option file, section [mysqld]: log_bin=binlog, server_id=1, binlog_format=ROW; then restart the server"}}
	}
	var faults []Fault
	if f := vars["binlog_format"]; f != "" && f != "ROW" {
		faults = append(faults, Fault{fmt.Sprintf("binlog_format is %s: changes reach the log as statements, which do not tell the rows", f),
			"SET GLOBAL binlog_format = 'ROW'; -- and binlog_format=ROW in the option file; sessions that are open keep the old format"})
	}
	if f := vars["binlog_row_image"]; f != "" && f != "FULL" {
		faults = append(faults, Fault{fmt.Sprintf("binlog_row_image is %s: row images leave columns out", f),
			"SET GLOBAL binlog_row_image = 'FULL'; -- and binlog_row_image=FULL in the option file"})
	}
	if strings.Contains(vars["binlog_row_value_options"], "PARTIAL_JSON") {
		faults = append(faults, Fault{"binlog_row_value_options is PARTIAL_JSON: JSON columns reach the log as differences",
			"SET GLOBAL binlog_row_value_options = ''; -- and the same in the option file"})
	}
	return faults
}

// privilegeFaults looks for what the account may do to the whole server, in the grants that are in force, roles included.
func privilegeFaults(ctx context.Context, q Querier, r Report, _ map[string]string, mariadb bool) ([]Fault, error) {
	rows, err := q.QueryContext(ctx, "SHOW GRANTS")
	if err != nil {
		return nil, fmt.Errorf("read our privileges: %w", err)
	}
	defer rows.Close()
	have := make(map[string]bool)
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			return nil, fmt.Errorf("read our privileges: %w", err)
		}
		list, ok := strings.CutPrefix(line, "GRANT ")
		end := strings.Index(list, " ON *.* TO ")
		if !ok || end < 0 {
			continue
		}
		for p := range strings.SplitSeq(list[:end], ",") {
			have[strings.ToUpper(strings.TrimSpace(p))] = true
		}
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read our privileges: %w", err)
	}
	monitor := []string{"REPLICATION CLIENT", "SUPER"}
	grant := "REPLICATION CLIENT"
	if mariadb {
		monitor = append(monitor, "BINLOG MONITOR")
		grant = "BINLOG MONITOR"
	}
	any := func(names ...string) bool {
		for _, n := range append(names, "ALL PRIVILEGES", "ALL") {
			if have[n] {
				return true
			}
		}
		return false
	}
	var faults []Fault
	if !any("REPLICATION SLAVE") {
		faults = append(faults, Fault{"the account " + r.Account + " lacks the privilege REPLICATION SLAVE, without which the log is not sent",
			"GRANT REPLICATION SLAVE ON *.* TO " + r.Account + ";"})
	}
	if !any(monitor...) {
		faults = append(faults, Fault{"the account " + r.Account + " lacks the privilege " + grant + ", without which the log's end cannot be asked for",
			"GRANT " + grant + " ON *.* TO " + r.Account + ";"})
	}
	return faults, nil
}

// filterFaults finds databases that are kept out of the log.
func filterFaults(ctx context.Context, q Querier, _ Report, vars map[string]string, _ bool) ([]Fault, error) {
	if vars["log_bin"] != "ON" {
		return nil, nil
	}
	status, err := queryNamed(ctx, q, "SHOW BINARY LOG STATUS")
	if err != nil {
		status, err = queryNamed(ctx, q, "SHOW MASTER STATUS")
	}
	if err != nil {
		if _, _, ok := serverFault(err); ok {
			return nil, nil // privilegeFaults says which privilege is missing
		}
		return nil, err
	}
	var faults []Fault
	for name, value := range status {
		switch option := strings.ToLower(name); option {
		case "binlog_do_db", "binlog_ignore_db":
			if value != "" {
				faults = append(faults, Fault{fmt.Sprintf("%s is set (%s): changes of some databases do not reach the log", option, value),
					"take " + strings.ReplaceAll(option, "_", "-") + " out of the server's option file and restart the server"})
			}
		}
	}
	return faults, nil
}

// relayFaults finds a replica that keeps what it replicates out of its own log.
func relayFaults(ctx context.Context, q Querier, _ Report, vars map[string]string, _ bool) ([]Fault, error) {
	name := "log_replica_updates"
	if _, ok := vars[name]; !ok {
		name = "log_slave_updates"
	}
	if vars[name] != "OFF" || vars["log_bin"] != "ON" {
		return nil, nil
	}
	var isReplica bool
	for _, query := range []string{"SHOW REPLICA STATUS", "SHOW SLAVE STATUS"} {
		rows, err := q.QueryContext(ctx, query)
		if err != nil {
			if _, _, ok := serverFault(err); ok {
				continue // another server's wording, or not allowed
			}
			return nil, err
		}
		isReplica = rows.Next()
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return nil, err
		}
		break
	}
	if !isReplica {
		return nil, nil
	}
	return []Fault{{"the server is itself a replica and " + name + " is OFF: what it replicates does not reach its own log",
		name + "=ON in the server's option file, then restart the server; or follow its source instead"}}, nil
}
