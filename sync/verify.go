package sync

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"hash/maphash"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
	"github.com/rowcached/rowcached/server/memory"
)

// Verification compares memory with the database while both change. A first pass reads the table in chunks and compares
// each row with its item as it is now; what differs may only be on its way. So every difference is settled: the keys are
// watched from the tail's position P0 on, read from the database by a SELECT that sees P0, and looked at in memory when the
// tail has reached a position P1 that the SELECT cannot be ahead of. If the tail has not touched the key since P0, row
// and item are of one moment, and a difference is real.

// VerifyOptions says how a table is verified.
type VerifyOptions struct {
	Repair   bool             // make the items that differ equal to their rows
	Sample   float64          // share of the table that is looked at; 0 and 1: all of it
	Gentle   bool             // take half of the time off, for a verification that nobody waits for
	Progress func(rows int64) // called now and then with the rows read so far, if set
}

// Verified is what a verification found. Its counts are of keys.
type Verified struct {
	Name      string       `json:"name"`
	Table     string       `json:"table"`
	Rows      int64        `json:"rows"`      // read from the database and compared
	Missing   int64        `json:"missing"`   // rows without an item
	Extra     int64        `json:"extra"`     // items without a row
	Wrong     int64        `json:"wrong"`     // items that are not what the mapping makes of their row
	Lagging   int64        `json:"lagging"`   // differences that were changes on their way
	Unsettled int64        `json:"unsettled"` // keys that changed each time they were looked at
	Repaired  int64        `json:"repaired"`
	Examples  []Difference `json:"examples,omitempty"` // the first few
	Seconds   float64      `json:"seconds"`
}

// Differences is how many keys really differ.
func (v *Verified) Differences() int64 { return v.Missing + v.Extra + v.Wrong }

// Difference is one key whose item is not what its row says.
type Difference struct {
	Key    string `json:"key"`
	Kind   string `json:"kind"`   // missing, extra or wrong
	Row    string `json:"row"`    // the item that the row makes, cut short; empty: no row
	Memory string `json:"memory"` // the item in memory, cut short; empty: none
}

const (
	settleKeys   = 200 // keys settled at once
	settleTries  = 8
	exampleCount = 10
	exampleBytes = 200
)

// VerifyCounts are the results of all verifications of a table so far, for metrics.
type VerifyCounts struct {
	OK        int64 `json:"ok"`
	Missing   int64 `json:"missing"`
	Extra     int64 `json:"extra"`
	Wrong     int64 `json:"wrong"`
	Unsettled int64 `json:"unsettled"`
	Repaired  int64 `json:"repaired"`
}

// verifyCounters are a table's VerifyCounts as they are counted.
type verifyCounters struct{ ok, missing, extra, wrong, unsettled, repaired atomic.Int64 }

func (c *verifyCounters) load() VerifyCounts {
	return VerifyCounts{c.ok.Load(), c.missing.Load(), c.extra.Load(), c.wrong.Load(), c.unsettled.Load(), c.repaired.Load()}
}

// verifier compares one table.
type verifier struct {
	e          *Engine
	t          *table
	generation int
	mapping    *mapping.Mapping
	def        *binlog.Table
	space      memory.Space
	opts       VerifyOptions
	session    *memory.Session

	cols   []int
	list   string
	row    binlog.Row
	keyBuf []byte
	valBuf []byte

	seed maphash.Seed
	seen []uint64 // hashes of the keys that were read
	out  Verified
}

// Verify compares a mapped table, by its container name or schema.table, with the database. It fails when there is no such
// table, when it is not ready or is closed meanwhile, and when the database cannot be read; then Verified holds what was
// found until then.
func (e *Engine) Verify(ctx context.Context, name string, opts VerifyOptions) (Verified, error) {
	if opts.Sample <= 0 || opts.Sample > 1 {
		opts.Sample = 1
	}
	v := &verifier{e: e, opts: opts, seed: maphash.MakeSeed()}
	if err := v.enter(name); err != nil {
		return v.out, err
	}
	v.session = e.cfg.Memory.NewSession()
	defer v.session.Close()
	began := time.Now()
	err := v.run(ctx)
	if err != nil {
		err = fmt.Errorf("verify %s: %w", v.t.name, err)
	}
	v.out.Seconds = time.Since(began).Seconds()
	n := &v.t.verified
	n.ok.Add(max(0, v.out.Rows-v.out.Missing-v.out.Wrong-v.out.Unsettled))
	n.missing.Add(v.out.Missing)
	n.extra.Add(v.out.Extra)
	n.wrong.Add(v.out.Wrong)
	n.unsettled.Add(v.out.Unsettled)
	n.repaired.Add(v.out.Repaired)
	return v.out, err
}

// enter finds the table and notes which copy of it is verified.
func (v *verifier) enter(name string) error {
	e := v.e
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, t := range e.tables {
		if t.spec.ContainerName() != name && t.name.String() != name {
			continue
		}
		v.out.Name, v.out.Table = t.spec.ContainerName(), t.name.String()
		if t.state != StateReady {
			return fmt.Errorf("verify %s: the table is %s; wait until it is ready", t.name, t.state)
		}
		v.t, v.generation, v.mapping, v.def, v.space = t, t.generation, t.mapping, t.mapping.Table(), t.space
		v.cols, v.list = v.mapping.Columns(), selectList(v.def, v.mapping.Columns())
		return nil
	}
	return fmt.Errorf("no mapped table is called %s", name)
}

// run is both directions: every row has its item, every item has its row.
func (v *verifier) run(ctx context.Context) error {
	if err := v.rows(ctx); err != nil {
		return err
	}
	return v.items(ctx)
}

// rows compares every row of the table with its item.
func (v *verifier) rows(ctx context.Context) error {
	db := v.e.cfg.Source.DB()
	c := &copier{db: db, source: v.e.cfg.Source, table: v.def, mapping: v.mapping, workers: 1}
	var estimate sql.NullInt64
	err := db.QueryRowContext(ctx, `SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?`,
		v.def.Schema, v.def.Name).Scan(&estimate)
	if err != nil {
		return err
	}
	spans := make(chan span, 1)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(spans)
		return c.split(gctx, estimate.Int64, spans)
	})
	g.Go(func() error {
		for s := range spans {
			if v.opts.Sample < 1 && rand.Float64() >= v.opts.Sample {
				continue
			}
			began := time.Now()
			where, args := within(c.keyNames(c.chunkKey()), s)
			if err := v.span(gctx, where, args); err != nil {
				return err
			}
			if v.opts.Progress != nil {
				v.opts.Progress(v.out.Rows)
			}
			if v.opts.Gentle && !sleep(gctx, time.Since(began)) {
				return gctx.Err()
			}
		}
		return nil
	})
	return g.Wait()
}

// span compares the rows of one chunk, and settles what differs.
func (v *verifier) span(ctx context.Context, where string, args []any) error {
	var suspects []string
	err := v.query(ctx, where, args, func(key []byte, want wanted) {
		v.out.Rows++
		v.seen = append(v.seen, maphash.Bytes(v.seed, key))
		v.session.Begin()
		it := v.session.Peek(key)
		ok := want.equals(v.own(it))
		v.session.Release()
		if !ok {
			suspects = append(suspects, string(key))
		}
	})
	if err != nil {
		return err
	}
	return v.settle(ctx, suspects)
}

// items looks for items whose row was not among those read.
func (v *verifier) items(ctx context.Context) error {
	slices.Sort(v.seen)
	var suspects []string
	var least uint64 // of a hash in the sample
	if v.opts.Sample < 1 {
		least = ^uint64(0) - uint64(v.opts.Sample*float64(^uint64(0)))
	}
	for at, more := memory.Cursor(0), true; more; {
		began := time.Now()
		at, more = v.e.cfg.Memory.WalkFrom(at, func(it memory.Item) bool {
			if it.Space() != v.space {
				return true
			}
			h := maphash.Bytes(v.seed, it.Key())
			if _, ok := slices.BinarySearch(v.seen, h); !ok && h >= least {
				suspects = append(suspects, string(it.Key()))
			}
			return true
		})
		if len(suspects) >= settleKeys || !more {
			if err := v.settle(ctx, suspects); err != nil {
				return err
			}
			suspects = suspects[:0]
			if v.opts.Gentle && !sleep(ctx, time.Since(began)) {
				return ctx.Err()
			}
		}
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}

// own gives the item if it belongs to the table's copy that is verified, else a miss.
func (v *verifier) own(it memory.Item) memory.Item {
	if it.OK() && it.Space() != v.space {
		return memory.Item{}
	}
	return it
}

// query reads rows and calls fn with each one's key and the item that it should make. A row that cannot become an item is
// left out, as the copy leaves it out. The arguments are valid during the call.
func (v *verifier) query(ctx context.Context, where string, args []any, fn func(key []byte, want wanted)) (err error) {
	rows, err := v.e.cfg.Source.DB().QueryContext(ctx, "SELECT "+v.list+" FROM "+v.def.Quoted()+where, args...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	vals := make([]sql.RawBytes, len(v.cols))
	dest := make([]any, len(v.cols))
	for i := range vals {
		dest[i] = &vals[i]
	}
	m := v.mapping
	for rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return err
		}
		v.row.SetQuery(v.def, v.cols, vals)
		v.keyBuf, err = m.AppendKey(v.keyBuf[:0], &v.row)
		if unkeyed(err) {
			continue
		}
		if v.valBuf, err = m.AppendValue(v.valBuf[:0], &v.row); err != nil {
			return fmt.Errorf("render a row: %w", err)
		}
		now := v.e.cfg.Memory.Now()
		w := wanted{value: v.valBuf, flags: m.Flags(&v.row)}
		w.cas, w.hasCAS = m.CAS(&v.row)
		if w.expire = m.Expire(&v.row, now); w.expire != 0 {
			w.mayMiss = w.expire <= now || m.Expire(&v.row, 0) != w.expire // gone already, or counted from when it was stored
		}
		fn(v.keyBuf, w)
	}
	return rows.Err()
}

// wanted is the item that a row makes.
type wanted struct {
	value   []byte
	flags   uint32
	expire  int64
	cas     uint64
	hasCAS  bool
	mayMiss bool // expired, or it may be
}

func (w *wanted) equals(it memory.Item) bool {
	if !it.OK() {
		return w.mayMiss
	}
	return string(it.Value()) == string(w.value) && it.Flags() == w.flags && (!w.hasCAS || it.CAS() == w.cas)
}

func (w *wanted) String() string { return short(w.value, w.flags) }

func short(value []byte, flags uint32) string {
	s := fmt.Sprintf("%q", value[:min(len(value), exampleBytes)])
	if flags != 0 {
		s += fmt.Sprintf(" flags %d", flags)
	}
	return s
}

// VerifyAlways verifies every table that is ready, gently, again and again: interval is the time between two rounds, and
// sample the share of each table that a round looks at. It logs what differs and ends with ctx.
func (e *Engine) VerifyAlways(ctx context.Context, interval time.Duration, sample float64) {
	for sleep(ctx, interval) {
		for _, t := range e.Status().Tables {
			if t.State != StateReady {
				continue
			}
			out, err := e.Verify(ctx, t.Table, VerifyOptions{Sample: sample, Gentle: true})
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				e.log.Warn("a table could not be verified; it will be tried again", "table", t.Table, "err", err, "in", interval)
			case out.Differences() > 0:
				e.log.Error("memory differs from the database, as after SQL that is kept out of the binlog (sql_log_bin=0); "+
					"run: rowcached verify --repair", "table", t.Table, "wrong", out.Wrong, "missing", out.Missing, "extra", out.Extra,
					"first", out.Examples[0].Key)
			default:
				e.log.Debug("verified", "table", t.Table, "rows", out.Rows)
			}
		}
	}
}
