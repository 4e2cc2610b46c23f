package binlog

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-sql-driver/mysql"
)

// Config says how to reach a source.
type Config struct {
	Driver *mysql.Config // net, address, user, password, time-outs; not changed
	TLS    *tls.Config   // nil: as Driver says. Applied to the dump and to the pool alike.

	// Failover are further servers of the same history, tried in order when one cannot be reached; the log goes on by GTID.
	Failover []*mysql.Config
	// FailoverPatience is how long none of several servers may be able to go on before the position is taken for lost: a replica
	// that lags catches up, and the former source may come back. Default 15 s.
	FailoverPatience time.Duration
	// Password gives the password at each connection, for it may change; nil: Driver's and Failover's own.
	Password func() (string, error)

	ServerID  uint32        // the id this replica registers with; 0: a random one that no other replica has
	Heartbeat time.Duration // how often an idle source says that it lives; default 5 s

	// ReadTimeout is how long the source may be silent before the connection is given up. It must exceed Heartbeat;
	// default three heartbeats.
	ReadTimeout time.Duration

	Logger *slog.Logger // nil: no log
}

// Source is one MySQL or MariaDB server as an ordered sequence of committed transactions.
//
// Open, Watch, WatchName, their opposites, Next, Buffered, Position, Reached and Close are for one goroutine.
// DB, Check, Visible, Written and Status may be called from any.
type Source struct {
	cfg  Config
	log  *slog.Logger
	uuid string // this process's replica UUID: a newer dump of ours replaces a forgotten older one
	pool pool

	targets targets

	server  serverFacts // of the connected server; written by Open and Next
	watches watchSet
	tables  tableCache

	conn        *dumpConn // nil: not connected
	opened      bool      // Open was called, so that Next may connect
	resume      cursor    // after the last whole transaction given out
	at          cursor    // after the last event read
	skipTo      cursor    // what ends here or before was given out by an earlier connection
	starting    bool      // no transaction has come since the dump began
	firstFormat bool      // the next FORMAT_DESCRIPTION belongs to the start of the dump, not to a restart of the server
	formatIn    string    // the file of the last FORMAT_DESCRIPTION
	done        *gtids    // every transaction up to resume; nil: GTIDs are off
	cover       coverCache
	far         uint64 // offsets from here on do not fit the dump command: 4 GiB
	unread      unreadable
	idleEnd     Position // where the log ended at the last heartbeat; zero: events came since the dump began

	tx      transaction
	ev      Event
	queue   []Event // to be given out before anything else is read
	queued  int     // how many of queue were
	payload payloadReader
	xa      xaStore
	replay  xaReplay
	rows    rowsEvent
	stmt    statementParser
	clock   commitClock
	rowBuf  []byte // an uncompressed row event's rows
	retry   backoff
	counts  eventCounts

	serverID atomic.Uint32
	checksum bool  // the log's events end with one
	lostErr  error // why the position was lost; Open clears it

	byFile atomic.Int32 // dumpUndecided, dumpByFile, dumpByGTIDs

	mu     sync.Mutex
	status Status // guarded by mu, except what Status reads from counts
}

// cursor is a place in the log.
type cursor struct {
	file    string
	pos     uint64
	created uint32
	anchor  uint64 // the last transaction's end in file that the dump command can name
}

// NewSource makes a source. It does nothing yet.
func NewSource(cfg Config) *Source {
	if cfg.Heartbeat <= 0 {
		cfg.Heartbeat = 5 * time.Second
	}
	if cfg.FailoverPatience <= 0 {
		cfg.FailoverPatience = 15 * time.Second
	}
	if cfg.ReadTimeout <= cfg.Heartbeat {
		cfg.ReadTimeout = 3 * cfg.Heartbeat
	}
	s := &Source{cfg: cfg, log: cfg.Logger, uuid: randomUUID(), far: 1 << 32}
	if s.log == nil {
		s.log = slog.New(slog.DiscardHandler)
	}
	s.targets.init(cfg)
	s.pool.init(cfg, &s.targets, s.idle)
	s.watches.init()
	s.tables.init()
	s.xa.init()
	s.serverID.Store(cfg.ServerID)
	s.status.State = StateClosed
	return s
}

// randomUUID gives a random UUID (version 4) as text.
func randomUUID() string {
	var u [16]byte
	for i := range u {
		u[i] = byte(rand.Uint32())
	}
	u[6] = u[6]&0x0f | 0x40
	u[8] = u[8]&0x3f | 0x80
	return string(appendUUIDText(nil, u))
}

// DB gives the pool of SQL sessions on the source. Every session has SessionSettings.
func (s *Source) DB() *sql.DB { return s.pool.db }

// Watch makes the rows of a table be given out from now on, decoded with this definition, and its name watched.
func (s *Source) Watch(t *Table) { s.watches.setTable(t) }

// Unwatch makes the rows of a table cost a header again. A name given to WatchName stays watched.
func (s *Source) Unwatch(n TableName) { s.watches.clearTable(n) }

// WatchName makes statements that concern the name be reported by EventInvalidate, though its rows may not be watched.
func (s *Source) WatchName(n TableName) { s.watches.setName(n) }

// UnwatchName takes WatchName back. A table given to Watch stays watched.
func (s *Source) UnwatchName(n TableName) { s.watches.clearName(n) }

// Open connects to the source and asks for its log from a position on; the zero Position is the present end. What was
// open before is closed. With ErrPositionLost the source stays closed. After any other error Next goes on trying.
func (s *Source) Open(ctx context.Context, from Position) error {
	s.disconnect()
	s.resetStream()
	s.opened = false
	if from.IsZero() {
		var err error
		if from, err = s.Visible(ctx, s.DB()); err != nil {
			return fmt.Errorf("open the log at its end: %w", err)
		}
	}
	done, err := parseGTIDs(from.GTIDs)
	if err != nil {
		return fmt.Errorf("open the log: %w", err)
	}
	s.resume = cursor{file: from.File, pos: from.Pos, created: from.Created, anchor: from.Pos}
	s.at = s.resume
	s.formatIn = from.File
	s.done = done
	s.server = serverFacts{identity: from.Server}
	s.opened = true
	s.byFile.Store(dumpUndecided)
	s.setState(StateConnecting, nil)
	if err = s.connect(ctx); err != nil {
		if errors.Is(err, ErrPositionLost) {
			s.opened, s.lostErr = false, err
		}
		s.retry.failed(err)
	}
	return err
}

// Buffered reports whether Next will give something out without waiting for the network: inside a transaction whether its
// next event is at hand whole, between two whether all of the next transaction is. So who groups transactions until Buffered
// is false never holds back what is done for the sake of what has yet to come.
func (s *Source) Buffered() bool {
	switch {
	case s.queued < len(s.queue) || s.replay.active() || s.payload.active():
		return true
	case s.conn == nil:
		return false
	case s.tx.open:
		return s.conn.reader.whole()
	}
	return s.conn.reader.ends()
}

// Position gives the place after the last whole transaction given out.
func (s *Source) Position() Position {
	return Position{
		Server:  s.server.identity,
		File:    s.resume.file,
		Pos:     s.resume.pos,
		Created: s.resume.created,
		GTIDs:   s.done.String(),
	}
}

// Reached reports whether the whole transactions given out cover p: by file and offset on one server, else by GTIDs.
func (s *Source) Reached(p Position) bool {
	if p.IsZero() {
		return true
	}
	here := Position{Server: s.server.identity, File: s.resume.file, Pos: s.resume.pos}
	if here.sameLog(p) {
		return !fileBefore(here.File, here.Pos, p.File, p.Pos)
	}
	want, err := s.cover.parse(p.GTIDs)
	return err == nil && want != nil && s.done.contains(want)
}

// coverCache keeps the last GTID text that Reached was asked for.
type coverCache struct {
	text string
	set  *gtids
}

func (c *coverCache) parse(text string) (*gtids, error) {
	if c.set != nil && c.text == text {
		return c.set, nil
	}
	set, err := parseGTIDs(text)
	if err != nil {
		return nil, err
	}
	c.text, c.set = text, set
	return set, nil
}

// Close ends the dump and the pool. It does not wait for the network.
func (s *Source) Close() error {
	s.disconnect()
	s.opened = false
	s.setState(StateClosed, nil)
	return s.pool.close()
}

// resetStream forgets what belongs to the log read so far, but not what is watched.
func (s *Source) resetStream() {
	s.tx = transaction{}
	s.queue, s.queued = s.queue[:0], 0
	s.payload.reset()
	s.replay.reset()
	s.xa.init()
	s.tables.init()
	s.retry = backoff{}
	s.unread = unreadable{}
	s.lostErr = nil
}
