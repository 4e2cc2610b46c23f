package sync

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
	"github.com/rowcached/rowcached/server/memory"
)

const (
	// groupBytes and groupItems bound what is prepared before it is published while more is at hand (I7).
	groupBytes = 1 << 20
	groupItems = 4096

	// wholeBytes is the size up to which a transaction becomes visible at once (G3). A larger one becomes
	// visible in steps of about this size, so that any transaction passes in constant memory (I9).
	wholeBytes = 64 << 20

	retryFirst = time.Second
	retryLast  = time.Minute
)

// Config says what an Engine keeps equal to what.
type Config struct {
	Source      *binlog.Source
	Memory      *memory.Store
	Specs       []mapping.Spec
	CopyWorkers int // connections that read one table; 0: one for each core, 2 at least
	Logger      *slog.Logger

	State              *StateDir     // where what outlives the process is kept; nil: nowhere. Memory must be made with its Seeds and CASFloor.
	CheckpointInterval time.Duration // how often it is written; 0: 10 s

	// MaxStaleness bounds how old rows that are served may be: while memory has not followed the source for longer, they are
	// withheld, with an error, or as misses when StaleMiss is set. 0: served whatever their age.
	MaxStaleness time.Duration
	StaleMiss    bool

	// OnVisible is called with the time between a transaction's commit and its visibility, if it is set. It must not block.
	OnVisible func(time.Duration)
}

// Engine keeps memory equal to the source. Make it with NewEngine, then call Run once.
type Engine struct {
	cfg Config
	log *slog.Logger

	// set is what Resolve reads: the newest mapping of every table that has one.
	set atomic.Pointer[owners]

	// mu is held by the applier while it works on an event, and by whoever else changes a table's state.
	mu      sync.Mutex
	tables  []*table                    // guarded by mu, but the slice itself is fixed
	byName  map[binlog.TableName]*table // guarded by mu; fixed
	batch   *memory.Batch               // guarded by mu
	running context.Context             // guarded by mu; nil outside of Run
	opened  bool                        // guarded by mu: the tail is attached

	copies sync.WaitGroup
	slots  chan struct{} // one for each table that may be copied at once

	applier
	cp checkpointer
	stats
}

// stats is what Status gives besides the tables.
type stats struct {
	transactions  atomic.Uint64
	stepped       atomic.Uint64
	rowsSeen      atomic.Uint64
	positionsLost atomic.Uint64
	checkpointAt  atomic.Int64 // unix nanoseconds; 0: never
	lag           atomic.Int64
	lastError     atomic.Pointer[string]
	stale         atomic.Pointer[staleError] // nil: rows are young enough
}

// owners joins the mappings with their tables' indexes.
type owners struct {
	set     *mapping.Set
	byName  map[string]*mapping.Mapping
	indexOf map[*mapping.Mapping]int
}

// NewEngine prepares an engine. It does no work and cannot fail; Run reports what is wrong.
func NewEngine(cfg Config) *Engine {
	if cfg.CopyWorkers <= 0 {
		cfg.CopyWorkers = max(2, runtime.GOMAXPROCS(0))
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	e := &Engine{cfg: cfg, log: cfg.Logger, byName: map[binlog.TableName]*table{}, slots: make(chan struct{}, 2)}
	e.set.Store(&owners{})
	return e
}

// ErrConfig marks an error of Run that no waiting mends: a mapping that does not fit its table, a missing table.
var ErrConfig = errors.New("the configuration does not fit the source")

// Run copies the tables and follows the log until ctx ends (then it gives nil) or until something is wrong that
// needs a person (ErrConfig when it is the mapping). Everything that it started has ended when it returns.
func (e *Engine) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer e.copies.Wait()
	defer cancel()

	var bound sync.WaitGroup
	bound.Go(func() { e.boundStaleness(ctx) })
	defer bound.Wait()
	defer cancel()

	var list map[string]*restored
	var loading sync.WaitGroup
	loading.Go(func() { list = e.restore(ctx) })
	err := e.load(ctx)
	loading.Wait()
	if err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	e.mu.Lock()
	e.running = ctx
	e.batch = e.cfg.Memory.NewBatch()
	for _, t := range e.tables {
		e.cfg.Source.WatchName(t.name)
	}
	e.mu.Unlock()

	for {
		err := e.follow(ctx, list)
		list = nil
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, binlog.ErrPositionLost) {
			return err
		}
		e.noteError(err)
		e.positionsLost.Add(1)
		if e.cfg.State != nil {
			e.cfg.State.forget()
		}
		e.log.Error("the source's log cannot be followed any further from here; copying everything again", "err", err)
		if !sleep(ctx, time.Second) {
			return nil
		}
	}
}

// load reads every table's definition and compiles its mapping. While the source cannot be reached it waits.
func (e *Engine) load(ctx context.Context) error {
	for pause := retryFirst; ; pause = min(2*pause, 15*time.Second) {
		err := e.tryLoad(ctx)
		if err == nil || ctx.Err() != nil || errors.Is(err, ErrConfig) {
			return err
		}
		e.noteError(err)
		e.log.Error("the source cannot be read; trying again", "err", err, "in", pause)
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

func (e *Engine) tryLoad(ctx context.Context) error {
	var tables []*table
	byName := map[binlog.TableName]*table{}
	for i, spec := range e.cfg.Specs {
		name, err := spec.TableName()
		if err != nil {
			return fmt.Errorf("%w: %w", ErrConfig, err)
		}
		m, def, err := e.compile(ctx, spec, name)
		if err != nil {
			return err
		}
		if byName[def.TableName] != nil {
			return fmt.Errorf("%w: table %s is mapped twice; map it once and list all columns there", ErrConfig, name)
		}
		t := &table{index: i, spec: spec, name: def.TableName, mapping: m, def: def, resyncs: map[string]uint64{}}
		t.enterLocked(StateWaiting, nil)
		tables, byName[t.name] = append(tables, t), t
	}
	o, err := ownersOf(tables)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrConfig, err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tables, e.byName = tables, byName
	e.set.Store(o)
	return nil
}

// compile reads a table's present definition and joins it with the mapping. ErrConfig when they do not fit.
func (e *Engine) compile(ctx context.Context, spec mapping.Spec, name binlog.TableName) (*mapping.Mapping, *binlog.Table, error) {
	def, err := binlog.LoadTable(ctx, e.cfg.Source.DB(), name)
	if err != nil {
		var unsupported *binlog.UnsupportedError
		if errors.Is(err, binlog.ErrNoTable) || errors.As(err, &unsupported) {
			err = fmt.Errorf("%w: %w", ErrConfig, err)
		}
		return nil, nil, err
	}
	m, err := mapping.Compile(spec, def)
	if err != nil {
		return nil, nil, fmt.Errorf("%w: %w", ErrConfig, err)
	}
	if err := binlog.CheckCascades(ctx, e.cfg.Source.DB(), def.TableName); err != nil {
		var unsupported *binlog.UnsupportedError
		if errors.As(err, &unsupported) {
			err = fmt.Errorf("%w: %w", ErrConfig, err)
		}
		return nil, nil, err
	}
	return m, def, nil
}

func ownersOf(tables []*table) (*owners, error) {
	o := &owners{byName: map[string]*mapping.Mapping{}, indexOf: map[*mapping.Mapping]int{}}
	var ms []*mapping.Mapping
	for _, t := range tables {
		if t.mapping == nil {
			continue
		}
		ms = append(ms, t.mapping)
		o.byName[t.mapping.Name()] = t.mapping
		o.indexOf[t.mapping] = t.index
	}
	set, err := mapping.NewSet(ms)
	if err != nil {
		return nil, err
	}
	o.set = set
	return o, nil
}

// follow attaches the tail, where the restored tables' log goes on or else at the present end of the log, starts the copy of
// every table that was not restored, and applies until the source ends for good.
func (e *Engine) follow(ctx context.Context, list map[string]*restored) error {
	e.dropAll()
	resumed, err := e.resume(ctx, list)
	if err == nil && !resumed {
		err = e.attach(ctx)
	}
	if err != nil {
		return err
	}
	defer func() {
		e.mu.Lock()
		e.opened = false
		e.mu.Unlock()
	}()
	e.mu.Lock()
	e.opened, e.lost, e.lastWord, e.actions = true, nil, time.Now(), nil
	e.server = e.cfg.Source.Server()
	e.position = e.cfg.Source.Position()
	for _, t := range e.tables {
		if t.state != StateCatching {
			e.beginLocked(t)
		}
	}
	e.betweenLocked()
	e.mu.Unlock()
	return e.tail(ctx)
}

// tail applies, guarded and with checkpoints, until the source ends for good or ctx does; then the state is stored.
func (e *Engine) tail(ctx context.Context) error {
	guarded, cancel := context.WithCancel(ctx)
	var guard sync.WaitGroup
	guard.Go(func() { e.watchdog(guarded) })
	guard.Go(func() { e.nudge(guarded) })
	if e.cfg.State != nil {
		guard.Go(func() { e.checkpoints(guarded) })
	}
	err := e.apply(ctx)
	cancel()
	guard.Wait()
	if ctx.Err() != nil && e.cfg.State != nil {
		e.lastCheckpoint()
	}
	return err
}

// nudge has the applier look at the tables while one waits for the tail: not all that moves the tail on is an event.
func (e *Engine) nudge(ctx context.Context) {
	for sleep(ctx, 20*time.Millisecond) {
		e.mu.Lock()
		if len(e.waiters) > 0 {
			e.wakeLocked()
		}
		for _, t := range e.tables {
			if !t.goal.IsZero() && (t.state == StateWaiting || t.state == StateCatching) {
				e.wakeLocked()
				break
			}
		}
		e.mu.Unlock()
	}
}

// attach opens the tail; while the source cannot be reached it waits.
func (e *Engine) attach(ctx context.Context) error {
	src := e.cfg.Source
	for pause := retryFirst; ; pause = min(2*pause, 15*time.Second) {
		from, err := src.Visible(ctx, src.DB())
		if err == nil {
			err = src.Open(ctx, from)
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		e.noteError(err)
		e.log.Error("the source's log cannot be opened; trying again", "err", err, "in", pause)
		if !sleep(ctx, pause) {
			return ctx.Err()
		}
	}
}

// dropAll hides every table, ends the copies, and forgets what was prepared.
func (e *Engine) dropAll() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.batch.Discard()
	e.resetTransactionLocked()
	for _, t := range e.tables {
		e.closeLocked(t)
		e.cfg.Source.Unwatch(t.name)
		t.enterLocked(StateWaiting, nil)
	}
}

// closeLocked ends a table's copy and hides its rows at once.
func (e *Engine) closeLocked(t *table) {
	t.generation++
	if t.cancelCopy != nil {
		t.cancelCopy()
		t.cancelCopy = nil
	}
	if t.live {
		e.cfg.Memory.DropSpace(t.space)
		t.live = false
	}
}

func (e *Engine) noteError(err error) {
	s := err.Error()
	e.lastError.Store(&s)
}

func sleep(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}
