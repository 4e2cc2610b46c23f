// Package server speaks the memcached protocol to clients: connections, loops,
// TLS, login, the execution of commands against the memory tier, and stats. It
// knows nothing of SQL; what a command must know of the mapped tables it asks of
// Config.Tables.
//
// A loop (worker) owns a memory session, an output buffer and its counters, so
// that serving a request touches nothing that another core writes. An engine
// moves bytes: sockets in, worker.serve, sockets out. There are three: one OS
// thread per core over io_uring or over epoll, both of which serve what has arrived
// as a batch, and one goroutine per connection over package net, which also carries TLS.
package server

import (
	"context"
	"errors"
	"fmt"
	"net"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Server serves one memory store to any number of clients.
type Server struct {
	cfg     Config
	started time.Time

	listeners []*listener
	listening bool // Listen was called

	mu      sync.Mutex
	workers []*worker              // guarded by mu; only grows
	conns   map[*connInfo]struct{} // guarded by mu

	nextID     atomic.Uint64
	current    atomic.Int64
	accepted   atomic.Uint64
	rejected   atomic.Uint64
	verbosity  atomic.Uint32
	engineName atomic.Value // string
	base       baseline     // guarded by mu

	held     atomic.Int64 // bytes held for clients that do not go on: see stall.go
	pressing atomic.Bool  // more than is allowed: the engines look at their connections
	refusing atomic.Bool  // and something was refused for it
	stalled  atomic.Uint64
	wakers   []func() // of the engines' loops; not changed once they run

	prefixes   prefixes
	crawlerOff atomic.Bool // as shown: lru_crawler disable
	refusals   sync.Map    // Owner -> string
}

// engine moves bytes between sockets and a worker. run returns when ctx is done
// and every connection was closed.
type engine interface {
	run(ctx context.Context) error
}

// New prepares a server. Nothing is opened before Listen.
func New(cfg Config) (*Server, error) {
	c := cfg.withDefaults()
	switch {
	case c.Memory == nil:
		return nil, errors.New("server: no memory store")
	case c.MaxConnections < 0:
		return nil, fmt.Errorf("server: %d connections: the limit must be positive", c.MaxConnections)
	case c.Threads < 0:
		return nil, fmt.Errorf("server: %d threads: the number must be positive", c.Threads)
	case c.SASL && c.Auth == nil:
		return nil, errors.New("server: SASL needs a file of users (auth_file)")
	case c.Auth != nil && !c.SASL && c.Protocol == ProtocolBinary:
		return nil, errors.New("server: the binary protocol has no text login, so auth_file would protect nothing; add SASL (-S) or take -B binary out")
	}
	switch c.Engine {
	case "auto", "epoll", "io_uring", "net":
	default:
		return nil, fmt.Errorf("server: engine %q is none of auto, epoll, io_uring, net", c.Engine)
	}
	s := &Server{cfg: c, started: time.Now(), conns: make(map[*connInfo]struct{})}
	s.crawlerOff.Store(c.CrawlerOff)
	return s, nil
}

// Run serves until ctx ends: then it stops accepting, sends the replies of what
// was already received and closes every connection. It returns when all that it
// started has ended.
func (s *Server) Run(ctx context.Context) error {
	if !s.listening {
		return errors.New("server: Run before Listen")
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	engines, err := s.engines()
	if err != nil {
		return err
	}
	var wg sync.WaitGroup
	errs := make([]error, len(engines))
	for i, e := range engines {
		wg.Go(func() {
			errs[i] = e.run(ctx)
			cancel()
		})
	}
	if len(engines) == 0 {
		<-ctx.Done()
	}
	wg.Wait()
	s.closeListeners()
	return errors.Join(errs...)
}

func (s *Server) threads() int {
	if s.cfg.Threads > 0 {
		return s.cfg.Threads
	}
	return runtime.NumCPU()
}

// engines chooses what serves which listener.
func (s *Server) engines() ([]engine, error) {
	var plain, other []*listener
	for _, l := range s.listeners {
		if l.tls != listenPlain || s.cfg.Engine == "net" || !haveLoops {
			other = append(other, l)
		} else {
			plain = append(plain, l)
		}
	}
	var list []engine
	s.engineName.Store("net")
	if len(plain) > 0 {
		e, name, err := newLoops(s, plain)
		if err != nil {
			return nil, err
		}
		s.engineName.Store(name)
		list = append(list, e)
	}
	if len(other) > 0 {
		list = append(list, newNetEngine(s, other))
	}
	return list, nil
}

// worker makes a worker that the counters know of.
func (s *Server) worker() *worker {
	w := newWorker(s)
	s.mu.Lock()
	s.workers = append(s.workers, w)
	s.mu.Unlock()
	return w
}

// open notes a new connection. false: there are too many.
func (s *Server) open(fd int, local, remote net.Addr) (*conn, bool) {
	if s.current.Add(1) > int64(s.cfg.MaxConnections) {
		s.current.Add(-1)
		s.rejected.Add(1)
		return nil, false
	}
	s.accepted.Add(1)
	info := &connInfo{id: s.nextID.Add(1), fd: fd, local: addrText(local), remote: addrText(remote)}
	info.lastSeen.Store(s.cfg.Clock())
	s.mu.Lock()
	s.conns[info] = struct{}{}
	s.mu.Unlock()
	return &conn{info: info, authed: s.cfg.Auth == nil}, true
}

// closed notes the end of a connection.
func (s *Server) closed(c *conn) {
	c.close()
	s.hold(c, 0)
	s.mu.Lock()
	delete(s.conns, c.info)
	s.mu.Unlock()
	s.current.Add(-1)
}

func addrText(a net.Addr) string {
	switch a := a.(type) {
	case nil:
		return ""
	case *net.UnixAddr:
		return "unix:" + a.Name
	default:
		return "tcp:" + a.String()
	}
}

// refusal is the answer to a write to a mapped table's key.
func (s *Server) refusal(o Owner) string {
	if v, ok := s.refusals.Load(o); ok {
		return v.(string)
	}
	name := strconv.Itoa(int(o))
	if s.cfg.TableName != nil {
		name = s.cfg.TableName(o)
	}
	line := "SERVER_ERROR key belongs to table " + oneLine(name) + "; write it with SQL\r\n"
	s.refusals.Store(o, line)
	return line
}

// oneLine makes text fit for a reply line of bounded length.
func oneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' {
			return ' '
		}
		return r
	}, text)
	if len(text) > 200 {
		text = text[:200]
	}
	return text
}
