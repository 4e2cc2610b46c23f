package binlog

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Several servers may hold one history: a source and its replicas. The one that answers is the target; when a connection to it
// cannot be made the next one is tried, and the log goes on there by GTID. The SQL sessions follow the dump: those of the
// former target are not used again.

var (
	errBehind = errors.New("the server cannot go on from here yet")
	errFlavor = errors.New("the servers of source.dsn and source.failover are not of one kind")
)

// targets are the servers to try, in order.
type targets struct {
	list     []*mysql.Config
	now      atomic.Int32
	password func() (string, error) // nil: as the configs say
	behind   time.Time              // since when every server that answered was behind; belongs to who calls Next
}

func (t *targets) init(cfg Config) {
	if cfg.Driver != nil {
		t.list = append([]*mysql.Config{cfg.Driver}, cfg.Failover...)
	}
	t.password = cfg.Password
}

func (t *targets) several() bool { return len(t.list) > 1 }

// current gives the target's config with the password of the moment. It is not to be changed.
func (t *targets) current() (*mysql.Config, error) {
	d := t.list[t.now.Load()]
	if t.password == nil {
		return d, nil
	}
	word, err := t.password()
	if err != nil {
		return nil, err
	}
	d = d.Clone()
	d.Passwd = word
	return d, nil
}

// next makes the following server the target, if from still is.
func (t *targets) next(from int32) {
	if t.several() {
		t.now.CompareAndSwap(from, (from+1)%int32(len(t.list)))
	}
}

// hopeless says what it means that a server cannot go on from the position: another one may, or this one when it has caught up.
// Only when none could for a while is the position lost.
func (s *Source) hopeless(lost error) error {
	t := &s.targets
	if !t.several() {
		return lost
	}
	if t.behind.IsZero() {
		t.behind = time.Now()
	}
	if time.Since(t.behind) < s.cfg.FailoverPatience {
		return fmt.Errorf("%w; trying the others, and this one again: %s", errBehind, lost)
	}
	t.behind = time.Time{}
	return lost
}

// Server tells servers, and so their logs, apart: which one the log comes from. "" before the first connection.
func (s *Source) Server() string { return s.server.identity }

// session is a SQL session of one target. It is bad once another server is the target.
type session struct {
	sessionConn
	pool   *pool
	target int32
}

// sessionConn is what the driver's connections can do.
type sessionConn interface {
	driver.Conn
	driver.Pinger
	driver.ExecerContext
	driver.QueryerContext
	driver.ConnPrepareContext
	driver.ConnBeginTx
	driver.SessionResetter
	driver.Validator
	driver.NamedValueChecker
}

// ResetSession implements driver.SessionResetter.
func (c session) ResetSession(ctx context.Context) error {
	if c.target != c.pool.targets.now.Load() {
		return driver.ErrBadConn
	}
	return c.sessionConn.ResetSession(ctx)
}

// IsValid implements driver.Validator.
func (c session) IsValid() bool {
	return c.target == c.pool.targets.now.Load() && c.sessionConn.IsValid()
}
