package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Run puts the Spec's load on every address, in short rounds that alternate among them, and reports. The first address is
// the one that the others are compared with. Unless the Spec says otherwise, every server is filled first.
//
// progress is called a few times a second with a line of text, by one goroutine at a time; it may be nil. An error means
// that a server could not be measured: not reached, no reply, or replies that cannot be read. Wrong replies are counted.
func Run(ctx context.Context, spec Spec, addresses []string, progress func(string)) (*Result, error) {
	r := &runner{spec: spec, progress: progress}
	var err error
	if r.space, err = newKeyspace(&spec); err != nil {
		return nil, err
	}
	r.space.fill()
	if r.engine, err = chooseEngine(spec.Engine); err != nil {
		return nil, err
	}
	if len(spec.Pin) > 0 && !canPin {
		return nil, errors.New("--pin is for Linux; leave it out")
	}
	// The threads are in the kernel for most of the time; other goroutines do not queue behind them.
	procs := runtime.GOMAXPROCS(0)
	runtime.GOMAXPROCS(max(procs, spec.Threads+2))
	defer runtime.GOMAXPROCS(procs)

	res := &Result{Spec: spec, Engine: r.engine}
	var targets []net.Addr
	for _, text := range addresses {
		addr, err := Resolve(text)
		if err != nil {
			return nil, err
		}
		targets = append(targets, addr)
		res.Targets = append(res.Targets, Target{Address: text, gets: &Histogram{}, sets: &Histogram{}})
	}
	for i, addr := range targets {
		if spec.NoFill {
			break
		}
		if err := r.fill(ctx, addr, addresses[i]); err != nil {
			return nil, fmt.Errorf("fill %s: %w", addresses[i], err)
		}
	}
	for n := range spec.Rounds {
		for i := range targets {
			if n%2 == 1 { // whoever went first goes last
				i = len(targets) - 1 - i
			}
			t := &res.Targets[i]
			what := fmt.Sprintf("round %d of %d, %s, %s", n+1, spec.Rounds, spec.Workload, addresses[i])
			round, err := r.round(ctx, &spec, targets[i], what, t, uint64(n))
			if err != nil {
				return nil, fmt.Errorf("%s: %w", addresses[i], err)
			}
			t.Rounds = append(t.Rounds, round)
		}
	}
	res.sum()
	return res, nil
}

// Resolve reads an address: "host:port", or a unix socket as "unix:/path" or "/path".
func Resolve(text string) (net.Addr, error) {
	path, unix := strings.CutPrefix(text, "unix:")
	if unix || strings.HasPrefix(text, "/") {
		return net.ResolveUnixAddr("unix", path)
	}
	if !strings.Contains(text, ":") {
		text += ":11211"
	}
	return net.ResolveTCPAddr("tcp", text)
}

// runner is what the rounds of a run share.
type runner struct {
	spec     Spec
	space    *keyspace
	engine   string
	progress func(string)
}

// fill stores every key once.
func (r *runner) fill(ctx context.Context, addr net.Addr, name string) error {
	s := r.spec
	s.Workload, s.Operations, s.Rate, s.Warmup, s.Threads = Set, s.Keys, 0, 0, 1
	s.Depth = min(max(64<<10/(s.ValueMax+64), 1), 64)
	s.Connections = min(4, s.Keys)
	t := Target{gets: &Histogram{}, sets: &Histogram{}}
	round, err := r.round(ctx, &s, addr, "filling "+name, &t, fillStream)
	switch {
	case err != nil:
		return err
	case t.firstFault != "":
		return errors.New(t.firstFault)
	case round.Requests != uint64(s.Keys):
		return fmt.Errorf("%d of %d keys were stored", round.Requests, s.Keys)
	}
	return nil
}

// fillStream marks the round that stores the keys in turn.
const fillStream = ^uint64(0)

// round is one round on one server. What it measures is added to the target.
func (r *runner) round(ctx context.Context, s *Spec, addr net.Addr, what string, t *Target, stream uint64) (Round, error) {
	conns, err := connect(ctx, addr, s.Connections)
	if err != nil {
		return Round{}, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var sofar atomic.Uint64
	workers := make([]*worker, s.Threads)
	errs := make([]error, s.Threads)
	begin := time.Now()
	for i := range workers {
		workers[i] = r.worker(s, i, stream, begin, func(n uint64) { sofar.Add(n) })
	}
	var wg sync.WaitGroup
	for i, w := range workers {
		core := -1
		if len(s.Pin) > 0 {
			core = s.Pin[i%len(s.Pin)]
		}
		own := conns[i*len(conns)/s.Threads : (i+1)*len(conns)/s.Threads]
		wg.Go(func() {
			if errs[i] = drive(ctx, r.engine, w, own, core); errs[i] != nil {
				cancel()
			}
		})
	}
	r.watch(what, &sofar, &wg)
	var round Round
	for i, w := range workers {
		if err := errs[i]; err != nil && !errors.Is(err, context.Canceled) {
			return round, err
		}
		round.Requests += w.requests
		round.Hits += w.hits
		round.Misses += w.misses
		round.Errors += w.errors
		round.OperationsPerSecond += rate(w.requests, w.counted) // each thread over its own time
		round.Seconds = max(round.Seconds, w.counted.Seconds())
		round.LoadBusy += (1 - w.idle.Seconds()/max(w.counted.Seconds(), 1e-9)) / float64(s.Threads)
		if w.idle < 0 {
			round.LoadBusy = -1
		}
		if t.firstFault == "" {
			t.firstFault = w.firstFault
		}
	}
	if err := ctx.Err(); err != nil {
		return round, errors.Join(append(errs, err)...)
	}
	per := uint64(1)
	if s.Workload == Multiget {
		per = uint64(s.KeysPerGet)
	}
	round.RequestsPerSecond = round.OperationsPerSecond
	round.OperationsPerSecond *= float64(per)
	round.Operations = round.Requests * per
	gets, sets, all := &Histogram{}, &Histogram{}, &Histogram{}
	for _, w := range workers {
		gets.Merge(w.gets)
		sets.Merge(w.stores)
	}
	all.Merge(gets)
	all.Merge(sets)
	round.Latency = latencyOf(all)
	t.gets.Merge(gets)
	t.sets.Merge(sets)
	return round, nil
}

// worker prepares one thread's part of a round.
func (r *runner) worker(s *Spec, i int, stream uint64, begin time.Time, report func(uint64)) *worker {
	w := &worker{
		spec: s, space: r.space, proto: dialectOf(s.Protocol, r.space), clock: func() time.Duration { return time.Since(begin) },
		picker: newChooser(s, stream<<16|uint64(i)), rng: rand.NewPCG(s.Seed, ^(stream<<16 | uint64(i))),
		sets: uint64((1 - s.GetShare) * (1 << 63)), from: s.Warmup, until: s.Warmup + s.Duration,
		quota: -1, fills: stream == fillStream, gets: &Histogram{}, stores: &Histogram{}, reported: report,
	}
	if s.Operations > 0 {
		w.quota = (i+1)*s.Operations/s.Threads - i*s.Operations/s.Threads
	}
	if s.Rate > 0 {
		w.each = max(time.Duration(float64(time.Second)*float64(s.Threads*s.Depth)/s.Rate), 1)
		w.due = time.Duration(i) * w.each / time.Duration(s.Threads)
	}
	return w
}

// watch shows progress until the group is done.
func (r *runner) watch(what string, sofar *atomic.Uint64, wg *sync.WaitGroup) {
	done := make(chan struct{})
	go func() {
		wg.Wait()
		close(done)
	}()
	if r.progress == nil {
		<-done
		return
	}
	const interval = 200 * time.Millisecond
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for last := uint64(0); ; {
		select {
		case <-done:
			return
		case <-tick.C:
		}
		n := sofar.Load()
		r.progress(fmt.Sprintf("%s: %s requests/s", what, thousands(float64(n-last)/interval.Seconds())))
		last = n
	}
}

func connect(ctx context.Context, addr net.Addr, n int) (conns []net.Conn, err error) {
	defer func() {
		if err != nil {
			for _, c := range conns {
				c.Close()
			}
		}
	}()
	d := net.Dialer{Timeout: replyLimit}
	for len(conns) < n {
		c, err := d.DialContext(ctx, addr.Network(), addr.String())
		if errors.Is(err, os.ErrNotExist) {
			return conns, fmt.Errorf("connect: there is no socket %s", addr)
		}
		if err != nil {
			return conns, fmt.Errorf("connection %d of %d: %w", len(conns)+1, n, err)
		}
		conns = append(conns, c)
	}
	return conns, nil
}

func rate(n uint64, d time.Duration) float64 { return float64(n) / max(d.Seconds(), 1e-9) }
