package binlog

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-mysql-org/go-mysql/client"
	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/go-sql-driver/mysql"
)

const dialTimeout = 10 * time.Second // also of the handshake and of each query before the dump

// dumpConn is a connection that sends the log, or is about to.
type dumpConn struct {
	client *client.Conn
	reader packetReader
	limit  time.Duration // of one query
}

// serverFacts is what must be known of the connected server.
type serverFacts struct {
	version  string
	number   int // 90704 for 9.7.4
	mariadb  bool
	gtid     bool   // positions are GTIDs
	identity string // tells servers, and so their logs, apart
	id       uint32 // server_id
	fold     bool   // lower_case_table_names is not 0
	logBin   bool
}

// connect makes one attempt to connect and to ask for the log from s.resume on.
func (s *Source) connect(ctx context.Context) error {
	s.setState(StateConnecting, s.lastError())
	target := s.targets.now.Load()
	conn, err := s.dial(ctx)
	if err == nil {
		if err = s.startDump(ctx, conn); err != nil {
			conn.close()
		}
	}
	if err != nil {
		err = s.judge(err)
		if errors.Is(err, ErrPositionLost) {
			err = s.hopeless(err)
		}
		if errors.Is(err, ErrPositionLost) {
			s.setState(StateLost, err)
		} else {
			s.setState(StateConnecting, err)
		}
		if ctx.Err() == nil {
			s.targets.next(target)
		}
		return err
	}
	s.targets.behind = time.Time{}
	s.conn = conn
	s.setState(StateConnected, nil)
	return nil
}

// idle reports whether no log is being followed, nor about to be.
func (s *Source) idle() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.State != StateConnected && s.status.State != StateConnecting
}

func (s *Source) lastError() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status.LastError
}

// disconnect closes the dump. The server notices by itself; nothing is killed.
func (s *Source) disconnect() {
	if s.conn != nil {
		s.conn.close()
		s.conn = nil
	}
	s.payload.reset()
	s.counts.publish()
}

func (c *dumpConn) close() {
	c.reader.unwatch()
	// An error of closing says nothing that matters: nobody uses the connection any more.
	_ = c.client.Close()
}

// dial connects and authenticates.
func (s *Source) dial(ctx context.Context) (*dumpConn, error) {
	d, err := s.targets.current()
	if err != nil {
		return nil, err
	}
	limit := dialTimeout
	if d.Timeout > 0 {
		limit = d.Timeout
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	tlsConfig := s.cfg.TLS
	if tlsConfig == nil {
		tlsConfig = d.TLS
	}
	if d.Net == "unix" {
		tlsConfig = nil // as the driver does
	}
	c, err := s.dialOnce(ctx, d, tlsConfig)
	if err != nil && tlsConfig != nil && d.AllowFallbackToPlaintext && strings.Contains(err.Error(), "does not support TLS") {
		c, err = s.dialOnce(ctx, d, nil)
	}
	if err != nil {
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", context.Cause(ctx), err)
		}
		return nil, fmt.Errorf("connect to %s: %w", d.Addr, err)
	}
	return &dumpConn{client: c, limit: limit}, nil
}

func (s *Source) dialOnce(ctx context.Context, d *mysql.Config, tlsConfig *tls.Config) (*client.Conn, error) {
	var stop func() bool
	dialer := func(ctx context.Context, network, addr string) (net.Conn, error) {
		var conn net.Conn
		var err error
		if d.DialFunc != nil {
			conn, err = d.DialFunc(ctx, network, addr)
		} else {
			conn, err = (&net.Dialer{}).DialContext(ctx, network, addr)
		}
		if err != nil {
			return nil, err
		}
		if deadline, ok := ctx.Deadline(); ok {
			if err := conn.SetDeadline(deadline); err != nil {
				return nil, errors.Join(err, conn.Close())
			}
		}
		// The library's handshake knows no context: its end fails the reads and writes under it.
		stop = context.AfterFunc(ctx, func() {
			_ = conn.SetDeadline(time.Now().Add(-longAgo)) // closed already: then nothing waits
		})
		return conn, nil
	}
	defer func() {
		if stop != nil {
			stop()
		}
	}()
	c, err := client.ConnectWithDialer(ctx, d.Net, d.Addr, d.User, d.Passwd, "", dialer, func(c *client.Conn) error {
		c.SetAttributes(map[string]string{"program_name": "rowcached"})
		if tlsConfig != nil {
			cfg := tlsConfig.Clone()
			if cfg.ServerName == "" && !cfg.InsecureSkipVerify {
				host, _, err := net.SplitHostPort(d.Addr)
				if err != nil {
					host = d.Addr
				}
				cfg.ServerName = host
			}
			c.SetTLSConfig(cfg)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return c, nil
}

// query runs a statement before the dump begins.
func (c *dumpConn) query(ctx context.Context, q string) (*gomysql.Result, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	conn := c.client.Conn.Conn
	if err := conn.SetDeadline(time.Now().Add(c.limit)); err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() {
		_ = conn.SetDeadline(time.Now().Add(-longAgo)) // closed already: then nothing waits
	})
	r, err := c.client.Execute(q)
	if !stop() && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return r, err
}

// row runs a query that gives one row, and gives its columns as text.
func (c *dumpConn) row(ctx context.Context, q string) ([]string, error) {
	r, err := c.query(ctx, q)
	if err != nil {
		return nil, err
	}
	if r.Resultset == nil || r.RowNumber() == 0 {
		return nil, errNoRow
	}
	out := make([]string, r.ColumnNumber())
	for i := range out {
		if out[i], err = r.GetString(0, i); err != nil {
			return nil, err
		}
	}
	return out, nil
}

var errNoRow = errors.New("the server gave no row")

// facts asks the server who it is.
func (c *dumpConn) facts(ctx context.Context) (serverFacts, error) {
	var f serverFacts
	v, err := c.row(ctx, "SELECT VERSION(), @@global.version_comment, @@global.server_id, @@global.lower_case_table_names, @@global.log_bin")
	if err != nil {
		return f, fmt.Errorf("ask for the version: %w", err)
	}
	f.version = v[0]
	f.number = versionNumber(v[0])
	f.mariadb = isMariaDB(v[0], v[1])
	id, err := strconv.ParseUint(v[2], 10, 32)
	if err != nil {
		return f, fmt.Errorf("ask for server_id: %w", err)
	}
	f.id = uint32(id)
	f.fold = v[3] != "0"
	f.logBin = v[4] == "1"
	if f.mariadb {
		f.gtid = true
		uid, err := c.row(ctx, "SELECT @@global.server_uid")
		if isUnknownVariable(err) { // before 10.5.26, 10.6.19, 10.11.9
			uid, err = c.row(ctx, "SELECT CONCAT(@@global.hostname, ':', @@global.port, ':', @@global.datadir)")
		}
		if err != nil {
			return f, fmt.Errorf("ask who the server is: %w", err)
		}
		f.identity = mariaIdentity(v[2], uid[0])
		return f, nil
	}
	v, err = c.row(ctx, "SELECT @@global.server_uuid, @@global.gtid_mode")
	if err != nil {
		return f, fmt.Errorf("ask who the server is: %w", err)
	}
	f.identity = v[0]
	f.gtid = strings.EqualFold(v[1], "ON")
	return f, nil
}

func mariaIdentity(serverID, uid string) string {
	return serverID + "@" + strings.Map(func(r rune) rune {
		if r <= ' ' || r == '%' {
			return '_'
		}
		return r
	}, uid)
}

// versionNumber gives 101119 for "10.11.19-MariaDB-log"; 0 when the text is no version.
func versionNumber(v string) int {
	v = strings.TrimPrefix(v, "5.5.5-") // MariaDB before 11 in its handshake
	var n [3]int
	for i := range n {
		digits := 0
		for digits < len(v) && v[digits] >= '0' && v[digits] <= '9' {
			digits++
		}
		n[i], _ = strconv.Atoi(v[:digits]) // no digits: 0
		if digits == len(v) || v[digits] != '.' {
			break
		}
		v = v[digits+1:]
	}
	return n[0]*10000 + n[1]*100 + n[2]
}

func isMariaDB(version, comment string) bool {
	return strings.Contains(strings.ToLower(version+" "+comment), "mariadb")
}

// chooseServerID gives the id to register with.
func (s *Source) chooseServerID(ctx context.Context, c *dumpConn) (uint32, error) {
	if s.cfg.ServerID != 0 {
		if s.cfg.ServerID == s.server.id {
			return 0, fmt.Errorf("%w: server_id %d is the source's own; set server_id to another number", errDuplicateID, s.cfg.ServerID)
		}
		return s.cfg.ServerID, nil
	}
	if id := s.serverID.Load(); id != 0 {
		return id, nil
	}
	taken := map[uint32]bool{s.server.id: true}
	r, err := c.query(ctx, "SHOW REPLICAS")
	if isSyntaxError(err) {
		r, err = c.query(ctx, "SHOW SLAVE HOSTS")
	}
	if err != nil && !isDenied(err) {
		return 0, fmt.Errorf("list the replicas: %w", err)
	}
	if err == nil && r.Resultset != nil {
		for i := range r.RowNumber() {
			if id, err := r.GetUint(i, 0); err == nil {
				taken[uint32(id)] = true
			}
		}
	}
	for {
		// The upper half: people count from 1.
		if id := 1<<31 + rand.Uint32N(1<<31-1); !taken[id] {
			s.serverID.Store(id)
			return id, nil
		}
	}
}
