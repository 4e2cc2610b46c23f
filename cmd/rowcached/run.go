package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/rowcached/rowcached/server"
	"github.com/rowcached/rowcached/server/memory"
	rowsync "github.com/rowcached/rowcached/sync"
)

// The engine's types under names that files of this package can use: exactly one file imports package sync, whose name
// the standard library has too.
type (
	syncEngine    = rowsync.Engine
	syncStatus    = rowsync.Status
	tableStatus   = rowsync.TableStatus
	tableResult   = rowsync.Verified
	verifyOptions = rowsync.VerifyOptions
)

const stateCopying = rowsync.StateCopying

// tableStates are the states that a table can be in, as words.
func tableStates() []string {
	var list []string
	for _, s := range rowsync.States() {
		list = append(list, string(s))
	}
	return list
}

func runCommand() *cobra.Command {
	var f configFlags
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the daemon",
		Long: `memcached ` + server.MemcachedVersion + ` is what clients see: its protocol, and its options where they mean the same.

Run the daemon: copy the mapped tables, follow the source's log, and serve memcached clients.

Without a source it is a plain memcached.`,
		Example: `  rowcached run --source 'root@tcp(127.0.0.1:3306)/' --table shop.users
  rowcached run -c /etc/rowcached/rowcached.yaml
  rowcached run -p 11211 -m 1024`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if f.version { // before anything else is looked at, as memcached does
				_, err := fmt.Fprintln(cmd.OutOrStdout(), "memcached", server.MemcachedVersion)
				return err
			}
			c, err := f.load()
			if err != nil {
				return err
			}
			if f.background && !startedInBackground() {
				return inBackground(cmd.Context(), cmd.ErrOrStderr())
			}
			return daemon(cmd.Context(), c, &f.memcached, cmd.ErrOrStderr())
		},
	}
	f.configFlagsFor(cmd)
	return cmd
}

// configFlagsFor declares the flags of a verb that reads the configuration.
func (f *configFlags) configFlagsFor(cmd *cobra.Command) {
	f.register(cmd.Flags())
	f.memcached.register(cmd.Flags(), &f.file)
}

// daemon is the composition root, top to bottom in the order in which things start:
//
//	source ──► engine ──► memory ◄── server ◄── clients
//	             │           │          │
//	             └───────► admin ◄──────┘
//
// The memory tier is first, for both halves stand on it. The memcached server listens before the tables are copied: their
// keys miss until then, and /-/ready says so. The first part that ends takes the others with it.
func daemon(ctx context.Context, c *config.Config, m *memcached, stderr io.Writer) (err error) {
	log := logger(stderr, m.verbose)
	options := memory.Options{Limit: int64(c.Memory.Limit), MaxItemSize: int(c.Server.MaxItemSize)}
	var state *rowsync.StateDir
	if c.Source.DSN != "" && c.State.Dir != "" {
		if state, err = rowsync.OpenState(c.State.Dir, log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, state.Close()) }()
		options.Seeds, options.CASFloor = state.Seeds(), state.CASFloor()
	}
	store, err := memory.New(options)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, store.Close()) }()

	meters := newMeters(version)
	var source *binlog.Source
	var engine *syncEngine
	var waiting atomic.Pointer[string]
	if c.Source.DSN != "" {
		if source, err = newSource(c, log); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, source.Close()) }()
		engine = rowsync.NewEngine(rowsync.Config{
			Source: source, Memory: store, Specs: c.Tables, Logger: log, OnVisible: meters.visible,
			MaxStaleness: time.Duration(c.MaxStaleness), StaleMiss: c.StaleReads == config.StaleMiss,
			State: state, CheckpointInterval: time.Duration(c.State.CheckpointInterval),
		})
	}

	ctx, stop := context.WithCancel(ctx)
	defer stop()
	sc, err := serverConfig(c, m, store, engine, log)
	if err != nil {
		return err
	}
	if m.shutdown {
		sc.Shutdown = func(bool) { stop() }
	}
	srv, err := server.New(sc)
	if err != nil {
		return err
	}
	addrs, err := srv.Listen()
	if err != nil {
		return err
	}
	if err := reportPorts(addrs, m.pidFile); err != nil {
		return err
	}
	for _, a := range addrs {
		log.Info("listening", "protocol", "memcached", "addr", addrText(a))
	}

	g, ctx := errgroup.WithContext(ctx)
	ending := func(f func() error) func() error {
		return func() error { defer stop(); return f() }
	}
	g.Go(ending(func() error { return srv.Run(ctx) }))
	if c.Admin.Listen != "" {
		l, err := net.Listen("tcp", c.Admin.Listen)
		if err != nil {
			stop()
			return errors.Join(fmt.Errorf("admin.listen: %w", err), g.Wait())
		}
		log.Info("listening", "protocol", "http", "addr", l.Addr().String())
		meters.collect(store, srv, source, engine)
		h := &admin{config: c, meters: meters, store: store, server: srv, source: source, engine: engine, waiting: &waiting, started: time.Now()}
		g.Go(ending(func() error { return serveHTTP(ctx, l, h.handler()) }))
	}
	if err := reportReady(m.verbose > 0); err != nil {
		stop()
		return errors.Join(err, g.Wait())
	}
	if engine != nil {
		g.Go(ending(func() error {
			if err := preflight(ctx, source, c.Tables, &waiting, log); err != nil || ctx.Err() != nil {
				return err
			}
			return engine.Run(ctx)
		}))
		g.Go(func() error { return showProgress(ctx, engine, stderr, log) })
		if c.Verify.Interval > 0 {
			g.Go(func() error {
				engine.VerifyAlways(ctx, time.Duration(c.Verify.Interval), float64(c.Verify.Sample))
				return nil
			})
		}
	}
	err = g.Wait()
	log.Info("stopped")
	return err
}

func logger(w io.Writer, verbose int) *slog.Logger {
	level := slog.LevelInfo
	if verbose > 1 {
		level = slog.LevelDebug
	}
	if isTerminal(w) {
		w = lineWriter{w}
	}
	return slog.New(slog.NewTextHandler(w, &slog.HandlerOptions{Level: level}))
}

// lineWriter writes a line over the progress bar that may stand on the terminal's last line; the bar comes back with
// its next step.
type lineWriter struct{ terminal io.Writer }

func (l lineWriter) Write(line []byte) (int, error) {
	if _, err := l.terminal.Write(append([]byte("\r\x1b[K"), line...)); err != nil {
		return 0, err
	}
	return len(line), nil
}

// serverConfig joins the configuration with memcached's options.
func serverConfig(c *config.Config, m *memcached, store *memory.Store, engine *syncEngine, log *slog.Logger) (server.Config, error) {
	sc := server.Config{
		Listen: c.Server.Listen, Threads: c.Server.Threads, Engine: c.Server.Engine, MaxConnections: c.Server.MaxConnections,
		MaxItemSize: int(c.Server.MaxItemSize), IdleTimeout: time.Duration(c.Server.IdleTimeout), Backlog: m.backlog,
		RequestsPerTurn: m.requests, Memory: store, Logger: log, Version: version, SASL: m.sasl,
		NoFlush: m.noFlush, NoDump: m.noDump, NoWatch: m.noWatch, NoCAS: m.noCAS, CrawlerOff: m.crawlerOff,
		Clock: store.Now,
	}
	if len(sc.Listen) == 1 && sc.Listen[0] == config.ListenNone {
		sc.Listen = nil
	}
	if m.debugTime {
		sc.DebugTime = store.AdjustClock
	}
	if engine != nil {
		sc.Tables = engine
		sc.TableName = engine.OwnerName
		sc.ExtraStats = func(group string) []server.Stat { return extraStats(group, engine) }
	}
	switch m.protocol {
	case "ascii":
		sc.Protocol = server.ProtocolText
	case "binary":
		sc.Protocol = server.ProtocolBinary
	}
	if m.mask != "" {
		n, err := strconv.ParseUint(m.mask, 8, 32)
		if err != nil {
			return sc, fmt.Errorf("%w: -a %s: an octal mask is needed", errUsage, m.mask)
		}
		sc.UnixMode = uint32(n)
	}
	if c.Server.AuthFile != "" {
		users, err := server.LoadUsers(c.Server.AuthFile)
		if err != nil {
			return sc, err
		}
		sc.Auth = users
	}
	if c.Server.TLS.Cert != "" {
		conf, err := serverTLS(c, m)
		if err != nil {
			return sc, err
		}
		sc.TLS, sc.Settings = conf, m.secure.settings()
	}
	return sc, nil
}

// extraStats answers stats replication and stats tables.
func extraStats(group string, engine *syncEngine) []server.Stat {
	st := engine.Status()
	var list []server.Stat
	add := func(name string, value any) { list = append(list, server.Stat{Name: name, Value: fmt.Sprint(value)}) }
	switch group {
	case "replication":
		add("ready", st.Ready)
		add("position", st.Position)
		add("lag_seconds", st.Lag.Seconds())
		add("transactions", st.Transactions)
		add("rows_seen", st.RowsSeen)
	case "tables":
		for _, t := range st.Tables {
			add(t.Name+":table", t.Table)
			add(t.Name+":state", t.State)
			add(t.Name+":items", t.Items)
			add(t.Name+":bytes", t.Bytes)
			add(t.Name+":keys_skipped", t.KeysSkipped)
		}
	}
	return list
}

// reportPorts writes the pid file, and the ports where memcached's own tests look for them.
func reportPorts(addrs []net.Addr, pidFile string) error {
	if pidFile != "" {
		if err := os.WriteFile(pidFile, []byte(strconv.Itoa(os.Getpid())+"\n"), 0o644); err != nil {
			return fmt.Errorf("write the pid file: %w", err)
		}
	}
	name := os.Getenv("MEMCACHED_PORT_FILENAME")
	if name == "" {
		return nil
	}
	var text []byte
	for _, a := range addrs {
		if tcp, ok := a.(*net.TCPAddr); ok {
			text = fmt.Appendf(text, "TCP INET: %d\n", tcp.Port)
		}
	}
	if err := os.WriteFile(name+".tmp", text, 0o644); err != nil {
		return fmt.Errorf("report the ports: %w", err)
	}
	return os.Rename(name+".tmp", name)
}

func addrText(a net.Addr) string {
	if u, ok := a.(*net.UnixAddr); ok {
		return "unix:" + u.Name
	}
	return a.String()
}

// serveHTTP serves until ctx ends.
func serveHTTP(ctx context.Context, l net.Listener, h http.Handler) error {
	s := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: time.Minute}
	done := make(chan struct{})
	go func() {
		defer close(done)
		<-ctx.Done()
		late, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if s.Shutdown(late) != nil {
			s.Close()
		}
	}()
	err := s.Serve(l)
	<-done
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return fmt.Errorf("admin server: %w", err)
}
