package torture

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowcached/rowcached/integration/servers"
)

const (
	pairs    = 2   // of tables; the transactions on groups touch both of a pair
	groups   = 60  // of rows that are changed together
	perGroup = 10  // rows
	writers  = 2   // each owns the groups whose number is its own modulo writers
	readers  = 3   // connections
	bulkFrom = 1e6 // ids from here on are written by many-row transactions

	// poison is written by what is rolled back: nobody may ever read it.
	poison = int64(1) << 50

	readyLimit = 40 * time.Second
)

// counts is what happened, for the closing line.
type counts struct {
	transactions, rolledBack, failed, rows, ddl, truncates               atomic.Int64
	kills, stops, dumps, cuts, slowed, stalls, purges, restarts, switchs atomic.Int64
	reads, hits, groupsRead, compared, quiets                            atomic.Int64
	differences                                                          atomic.Int64
}

func (c *counts) String() string {
	return fmt.Sprintf("kills %d, orderly stops %d, failovers %d, server restarts %d, dump threads killed %d, cuts %d, slowed %d, stalls %d, purges %d; "+
		"transactions %d (rolled back %d, refused by the server %d), rows about %d, schema changes %d, TRUNCATEs %d; "+
		"keys read %d (hits %d), groups checked %d; quiet points %d, keys compared %d, differences %d",
		c.kills.Load(), c.stops.Load(), c.switchs.Load(), c.restarts.Load(), c.dumps.Load(), c.cuts.Load(), c.slowed.Load(), c.stalls.Load(), c.purges.Load(),
		c.transactions.Load(), c.rolledBack.Load(), c.failed.Load(), c.rows.Load(), c.ddl.Load(), c.truncates.Load(),
		c.reads.Load(), c.hits.Load(), c.groupsRead.Load(), c.quiets.Load(), c.compared.Load(), c.differences.Load())
}

// world is everything that takes part.
type world struct {
	t      *testing.T
	kind   servers.Kind
	rand   *rand.Rand // of the main goroutine
	types  []columnType
	tables []*table
	count  counts

	// quiet is held shared by each writer during a transaction and by each disturbance, and whole at a quiet point.
	quiet sync.RWMutex

	mu      sync.Mutex // of what a failover changes
	sites   []*site    // guarded by mu: the first is the source
	daemon  *servers.Daemon
	address atomic.Pointer[string] // of the running daemon

	version atomic.Int64 // given to each change; grows
}

// site is a database server and the way that the daemon takes to it.
type site struct {
	server *servers.Server
	link   *link
}

func newWorld(t *testing.T, kind servers.Kind, seed uint64) *world {
	t.Helper()
	w := &world{t: t, kind: kind, rand: rand.New(rand.NewPCG(seed, 0)), types: readTypes(t, kind)}
	n := 2
	if w.avoids("failover") {
		n = 1
	}
	for range n {
		s := servers.Start(t, kind, serverOptions(kind)...)
		w.sites = append(w.sites, &site{s, newLink(t, s.Addr)})
	}
	if n > 1 {
		w.follow(w.sites[1], w.sites[0])
	}
	w.sites[0].server.Exec(t, "CREATE DATABASE db; SET GLOBAL max_connections=200")
	w.sites[0].server.Exec(t, "CREATE TABLE db.seq(n INT PRIMARY KEY); INSERT INTO db.seq VALUES(0)"+numbers(1, 1024))
	for i := range 2 * pairs {
		tab := newTable(i, w)
		w.tables = append(w.tables, tab)
		w.sites[0].server.Exec(t, tab.create(w.rand))
	}

	file := filepath.Join(t.TempDir(), "rowcached.yaml")
	var text strings.Builder
	fmt.Fprintf(&text, "source:\n  dsn: %q\n", w.sites[0].link.dsn())
	if n > 1 {
		fmt.Fprintf(&text, "  failover: [%q]\n", w.sites[1].link.dsn())
	}
	text.WriteString("state: {checkpoint_interval: 1s}\ntables:\n")
	for _, tab := range w.tables {
		fmt.Fprintf(&text, "  - table: db.%s\n", tab.name)
	}
	if err := os.WriteFile(file, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	w.daemon = servers.StartDaemon(t, "-c", file)
	w.publishAddress()
	return w
}

func numbers(from, to int) string {
	var b strings.Builder
	for n := from; n < to; n++ {
		fmt.Fprintf(&b, ",(%d)", n)
	}
	return b.String()
}

func serverOptions(kind servers.Kind) []string {
	if kind.Flavor() == "mariadb" {
		return []string{"--log-slave-updates=1", "--gtid-strict-mode=1"}
	}
	return []string{"--log-replica-updates=1"}
}

func (w *world) avoids(word string) bool { return slices.Contains(strings.Fields(*avoid), word) }

func (w *world) publishAddress() {
	a := w.daemon.Addr()
	w.address.Store(&a)
}

// source is the server that is written to.
func (w *world) source() *servers.Server {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.sites[0].server
}

// run tortures for so long.
func (w *world) run(length time.Duration) {
	w.t.Helper()
	ctx, stop := context.WithTimeout(context.Background(), length)
	defer stop()
	g, gctx := errgroup.WithContext(ctx)
	for i := range writers {
		r := rand.New(rand.NewPCG(w.rand.Uint64(), 0))
		g.Go(func() error { return w.write(gctx, i, r) })
	}
	for range readers {
		r := rand.New(rand.NewPCG(w.rand.Uint64(), 0))
		g.Go(func() error { return w.read(gctx, r) })
	}
	r := rand.New(rand.NewPCG(w.rand.Uint64(), 0))
	g.Go(func() error { return w.disturb(gctx, r) })
	g.Go(func() error {
		for {
			select {
			case <-gctx.Done():
				return w.settle()
			case <-time.After(*calm):
				if err := w.settle(); err != nil {
					return err
				}
			}
		}
	})
	if err := g.Wait(); err != nil && !errors.Is(err, context.DeadlineExceeded) {
		w.count.differences.Add(1)
		w.t.Errorf("%v", err)
	}
}
