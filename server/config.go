package server

import (
	"log/slog"
	"time"

	"github.com/rowcached/rowcached/server/memory"
)

// Owner names the mapped table that a key belongs to: its index plus one. 0: no
// table, an ordinary cache key.
type Owner int32

// Tables is what a command must know of the mapped tables.
type Tables interface {
	// Resolve turns a request's key into an item's key and tells whose it is.
	// "@@name.rest" is rewritten (appended to dst); any other key is given back
	// as it is. It is called from every loop at once.
	Resolve(dst, key []byte) (item []byte, owner Owner, err error)

	// Withheld says why the keys of tables are not served at present; nil: they are. It is asked before every read.
	Withheld() error
}

// Stat is one line of a stats reply.
type Stat struct{ Name, Value string }

// Config says what a Server serves and how. The zero value of a field is its
// default.
type Config struct {
	// Listen holds addresses: "host:port", "unix:/path", "tls:host:port", "mtls:host:port"
	// (clients show a certificate) and "btls:host:port" (they need none).
	Listen          []string
	UnixMode        uint32        // permission bits of unix sockets; 0: 0700
	Threads         int           // loops; 0: one per usable core
	MaxConnections  int           // 0: 10,000
	MaxItemSize     int           // bytes of a value; 0: 1 MiB (memory's own limit counts too)
	IdleTimeout     time.Duration // 0: never
	Engine          string        // auto, epoll, io_uring, net; "": auto
	Backlog         int           // accepted for memcached's sake: the system's limit (net.core.somaxconn) is used
	RequestsPerTurn int           // requests served of one connection before others get their turn; 0: as many as were received

	Memory    *memory.Store
	Tables    Tables             // nil: a plain memcached
	TableName func(Owner) string // for messages; nil: the owner's number
	Logger    *slog.Logger
	Version   string // of rowcached; the protocol's version is MemcachedVersion

	Auth *Users // users of the text login or SASL; nil: no login
	SASL bool   // the login is SASL over the binary protocol, and nothing else is spoken
	TLS  *TLS   // for "tls:" addresses; nil: none

	Protocol Protocol // which of the protocols are spoken

	NoFlush    bool                      // flush_all answers an error
	NoDump     bool                      // cachedump, stats detail and metadump answer an error
	NoWatch    bool                      // watch answers an error
	CrawlerOff bool                      // lru_crawler begins disabled, as far as it shows
	NoCAS      bool                      // cas numbers are not kept: gets shows 0
	Shutdown   func(graceful bool)       // the shutdown command; nil: not enabled
	Clock      func() int64              // unix seconds; nil: Memory's
	DebugTime  func(delta int64)         // moves Clock; nil: no such command
	ExtraStats func(group string) []Stat // `stats GROUP` of groups that are not memcached's; nil result: unknown group
	Settings   []Stat                    // further lines of `stats settings`
}

// Protocol restricts what a port speaks.
type Protocol uint8

const (
	ProtocolAuto Protocol = iota // the first byte decides
	ProtocolText                 // text and meta
	ProtocolBinary
)

// MemcachedVersion is what the version command answers: clients and tools
// decide by it what a server can do.
const MemcachedVersion = "1.6.45"

func (c *Config) withDefaults() Config {
	d := *c
	if d.MaxConnections == 0 {
		d.MaxConnections = 10000
	}
	if d.MaxItemSize == 0 {
		d.MaxItemSize = 1 << 20
	}
	if d.Backlog == 0 {
		d.Backlog = 1024
	}
	if d.UnixMode == 0 {
		d.UnixMode = 0o700
	}
	if d.Engine == "" {
		d.Engine = "auto"
	}
	if d.Logger == nil {
		d.Logger = slog.New(slog.DiscardHandler)
	}
	if d.Clock == nil {
		d.Clock = d.Memory.Now
	}
	return d
}
