package binlog

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// pool is the SQL side of a source.
type pool struct {
	db     *sql.DB
	flavor atomic.Int32 // 0: not known yet; 1: MySQL; 2: MariaDB
	// snapshot is how MySQL without GTIDs and Written ask where the log ends: 0: not known yet; 1: SHOW BINARY LOG
	// STATUS; 2: SHOW MASTER STATUS.
	status atomic.Int32

	targets *targets
	idle    func() bool // no log is being followed, so that nobody else looks for a server that answers
}

func (p *pool) init(cfg Config, t *targets, idle func() bool) {
	p.targets, p.idle = t, idle
	c := &sessionConnector{pool: p}
	if cfg.Driver == nil {
		c.err = errors.New("binlog: Config.Driver is nil")
	}
	for _, d := range t.list {
		d = d.Clone()
		d.DBName = ""
		d.ParseTime = false
		d.MultiStatements = false
		d.Logger = &mysql.NopLogger{} // what goes wrong is returned
		d.InterpolateParams = true    // one round trip for a query with arguments
		if cfg.TLS != nil {
			d.TLS = cfg.TLS
		}
		if d.Timeout == 0 {
			d.Timeout = dialTimeout
		}
		if t.password != nil {
			before := mysql.BeforeConnect(func(_ context.Context, d *mysql.Config) (err error) {
				d.Passwd, err = t.password()
				return err
			})
			if err := d.Apply(before); err != nil {
				c.err = err
				break
			}
		}
		inner, err := mysql.NewConnector(d)
		c.inner, c.err = append(c.inner, inner), errors.Join(c.err, err)
	}
	p.db = sql.OpenDB(c)
	p.db.SetMaxIdleConns(4)
	p.db.SetConnMaxIdleTime(time.Minute)
}

func (p *pool) close() error { return p.db.Close() }

// sessionConnector readies each new session.
type sessionConnector struct {
	pool  *pool
	inner []driver.Connector // of each target
	err   error              // of making inner
}

func (c *sessionConnector) Driver() driver.Driver { return mysql.MySQLDriver{} }

func (c *sessionConnector) Connect(ctx context.Context) (driver.Conn, error) {
	if c.err != nil {
		return nil, c.err
	}
	var failed []error
	for range c.inner {
		target := c.pool.targets.now.Load()
		conn, err := c.connect(ctx, target)
		if err == nil {
			return conn, nil
		}
		failed = append(failed, err)
		if ctx.Err() != nil || !c.pool.idle() {
			break
		}
		c.pool.targets.next(target)
	}
	return nil, errors.Join(failed...)
}

func (c *sessionConnector) connect(ctx context.Context, target int32) (driver.Conn, error) {
	conn, err := c.inner[target].Connect(ctx)
	if err != nil {
		return nil, err
	}
	if err := c.ready(ctx, conn); err != nil {
		return nil, errors.Join(fmt.Errorf("set up a session: %w", err), conn.Close())
	}
	full, ok := conn.(sessionConn)
	if !ok {
		return nil, errors.Join(errors.New("the driver lacks what is needed"), conn.Close())
	}
	return session{full, c.pool, target}, nil
}

func (c *sessionConnector) ready(ctx context.Context, conn driver.Conn) error {
	q, ok := conn.(driver.QueryerContext)
	if !ok {
		return errors.New("the driver cannot query")
	}
	x, ok := conn.(driver.ExecerContext)
	if !ok {
		return errors.New("the driver cannot execute")
	}
	rows, err := q.QueryContext(ctx, "SELECT VERSION(), @@version_comment", nil)
	if err != nil {
		return err
	}
	vals := make([]driver.Value, 2)
	err = rows.Next(vals)
	if err := errors.Join(err, rows.Close()); err != nil {
		return err
	}
	mariadb := isMariaDB(valueText(vals[0]), valueText(vals[1]))
	if mariadb {
		c.pool.flavor.Store(2)
	} else {
		c.pool.flavor.Store(1)
	}
	for _, set := range SessionSettings(mariadb) {
		if _, err := x.ExecContext(ctx, set, nil); err != nil {
			return fmt.Errorf("%s: %w", set, err)
		}
	}
	return nil
}

func valueText(v driver.Value) string {
	switch v := v.(type) {
	case []byte:
		return string(v)
	case string:
		return v
	default:
		return ""
	}
}

// Visible gives a lower bound: every transaction at or before it is visible to any SELECT that begins after the call. q
// must not be inside a transaction.
//
// MySQL with GTIDs answers with gtid_executed, which grows after the engine's commit. MariaDB answers with the file and
// offset of the last engine commit (no GTIDs: Open and Covers need none on one server). MySQL without GTIDs tells only
// what is written to the log, which runs ahead of the engine: the call then takes a second longer, and a commit that the
// engine takes longer than that for is not covered by the promise.
func (s *Source) Visible(ctx context.Context, q Querier) (Position, error) {
	mariadb, err := s.isMariaDB(ctx, q)
	if err != nil {
		return Position{}, fmt.Errorf("ask for the visible position: %w", err)
	}
	if mariadb {
		p, err := visibleMariaDB(ctx, q)
		if err != nil {
			return Position{}, fmt.Errorf("ask for the visible position: %w", err)
		}
		return p, nil
	}
	var uuid, mode, executed string
	if err := queryRow(ctx, q, "SELECT @@global.server_uuid, @@global.gtid_mode, @@global.gtid_executed", &uuid, &mode, &executed); err != nil {
		return Position{}, fmt.Errorf("ask for the visible position: %w", err)
	}
	if s.useGTID(mode) {
		return Position{Server: uuid, GTIDs: stripBlanks(executed)}, nil
	}
	p, err := s.Written(ctx, q)
	if err != nil {
		return Position{}, err
	}
	return p, sleep(ctx, time.Second)
}

// useGTID says whether positions of a MySQL source are GTIDs: as the open dump does, else as the server's gtid_mode says.
func (s *Source) useGTID(mode string) bool {
	switch s.byFile.Load() {
	case dumpByFile:
		return false
	case dumpByGTIDs:
		return true
	}
	return strings.EqualFold(mode, "ON")
}

// How the open dump names positions; Source.byFile.
const (
	dumpUndecided = iota
	dumpByFile
	dumpByGTIDs
)

func (s *Source) isMariaDB(ctx context.Context, q Querier) (bool, error) {
	switch s.pool.flavor.Load() {
	case 1:
		return false, nil
	case 2:
		return true, nil
	}
	var version, comment string
	if err := queryRow(ctx, q, "SELECT VERSION(), @@global.version_comment", &version, &comment); err != nil {
		return false, err
	}
	return isMariaDB(version, comment), nil
}

// visibleMariaDB asks for the end of the last transaction whose commit the engines have ordered. The server takes both
// values under the lock that orders engine commits, and a snapshot opened afterwards sees all of them.
func visibleMariaDB(ctx context.Context, q Querier) (Position, error) {
	rows, err := q.QueryContext(ctx, "SHOW STATUS LIKE 'binlog_snapshot_%'")
	if err != nil {
		return Position{}, err
	}
	var p Position
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			return Position{}, errors.Join(err, rows.Close())
		}
		switch strings.ToLower(name) {
		case "binlog_snapshot_file":
			p.File = value
		case "binlog_snapshot_position":
			if _, err := fmt.Sscan(value, &p.Pos); err != nil {
				return Position{}, errors.Join(fmt.Errorf("read %s: %w", name, err), rows.Close())
			}
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return Position{}, err
	}
	if p.File == "" {
		return Position{}, errors.New("the source writes no binary log: start it with log_bin and binlog_format=ROW")
	}
	p.Server, err = mariaServer(ctx, q)
	return p, err
}

// mariaServer gives the same identity as dumpConn.facts.
func mariaServer(ctx context.Context, q Querier) (string, error) {
	var id, uid string
	err := queryRow(ctx, q, "SELECT @@global.server_id, @@global.server_uid", &id, &uid)
	if isUnknownVariable(err) {
		err = queryRow(ctx, q, "SELECT @@global.server_id, CONCAT(@@global.hostname, ':', @@global.port, ':', @@global.datadir)", &id, &uid)
	}
	if err != nil {
		return "", err
	}
	return mariaIdentity(id, uid), nil
}

// Written gives an upper bound: every transaction that was visible to a SELECT that has ended is at or before it.
func (s *Source) Written(ctx context.Context, q Querier) (Position, error) {
	p, err := s.written(ctx, q)
	if err != nil {
		return Position{}, fmt.Errorf("ask for the end of the log: %w", err)
	}
	return p, nil
}

func (s *Source) written(ctx context.Context, q Querier) (Position, error) {
	mariadb, err := s.isMariaDB(ctx, q)
	if err != nil {
		return Position{}, err
	}
	var row map[string]string
	switch s.pool.status.Load() {
	case 1:
		row, err = queryNamed(ctx, q, "SHOW BINARY LOG STATUS")
	case 2:
		row, err = queryNamed(ctx, q, "SHOW MASTER STATUS")
	default:
		row, err = queryNamed(ctx, q, "SHOW BINARY LOG STATUS")
		if err == nil {
			s.pool.status.Store(1)
		} else if isSyntaxError(err) {
			if row, err = queryNamed(ctx, q, "SHOW MASTER STATUS"); err == nil {
				s.pool.status.Store(2)
			}
		}
	}
	if err != nil {
		return Position{}, err
	}
	if row["file"] == "" {
		return Position{}, errors.New("the source writes no binary log: start it with log_bin and binlog_format=ROW")
	}
	p := Position{File: row["file"]}
	if _, err := fmt.Sscan(row["position"], &p.Pos); err != nil {
		return Position{}, fmt.Errorf("read the position: %w", err)
	}
	if mariadb {
		if p.Server, err = mariaServer(ctx, q); err != nil {
			return Position{}, err
		}
		// Asked for later than the file's end, so no less: an upper bound too.
		return p, queryRow(ctx, q, "SELECT @@global.gtid_binlog_pos", &p.GTIDs)
	}
	var mode string
	if err := queryRow(ctx, q, "SELECT @@global.server_uuid, @@global.gtid_mode", &p.Server, &mode); err != nil {
		return Position{}, err
	}
	if s.useGTID(mode) {
		p.GTIDs = stripBlanks(row["executed_gtid_set"])
	}
	return p, nil
}

// queryRow runs a query that gives one row of texts. NULL becomes "".
func queryRow(ctx context.Context, q Querier, query string, dst ...*string) error {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return err
	}
	if !rows.Next() {
		return errors.Join(errNoRow, rows.Err(), rows.Close())
	}
	vals := make([]sql.NullString, len(dst))
	ptrs := make([]any, len(dst))
	for i := range vals {
		ptrs[i] = &vals[i]
	}
	if err := rows.Scan(ptrs...); err != nil {
		return errors.Join(err, rows.Close())
	}
	for i := range vals {
		*dst[i] = vals[i].String
	}
	return errors.Join(rows.Err(), rows.Close())
}

// queryNamed runs a query and gives its first row by lower-case column name; no row gives an empty map.
func queryNamed(ctx context.Context, q Querier, query string) (map[string]string, error) {
	rows, err := q.QueryContext(ctx, query)
	if err != nil {
		return nil, err
	}
	names, err := rows.Columns()
	if err != nil {
		return nil, errors.Join(err, rows.Close())
	}
	out := make(map[string]string, len(names))
	if rows.Next() {
		vals := make([]sql.NullString, len(names))
		ptrs := make([]any, len(names))
		for i := range vals {
			ptrs[i] = &vals[i]
		}
		if err := rows.Scan(ptrs...); err != nil {
			return nil, errors.Join(err, rows.Close())
		}
		for i, n := range names {
			out[strings.ToLower(n)] = vals[i].String
		}
	}
	return out, errors.Join(rows.Err(), rows.Close())
}

// joinClose closes rows and gives both errors.
func joinClose(err error, rows *sql.Rows) error { return errors.Join(err, rows.Close()) }
