package bench

import (
	"cmp"
	"encoding/json"
	"io"
	"math"
	"runtime"
	"slices"
	"time"
)

// A Report is what a run of the verb gives: one Result for each workload. Its JSON is for other programs; Format changes
// when a field changes its meaning or goes away.
type Report struct {
	Format  int      `json:"format"`
	Version string   `json:"rowcached"`
	Began   string   `json:"began"` // RFC 3339
	System  string   `json:"system"`
	CPUs    int      `json:"cpus"`
	Results []Result `json:"results"`
}

// A Result is one load on each of the targets.
type Result struct {
	Spec    Spec     `json:"load"`
	Engine  string   `json:"engine"`
	Targets []Target `json:"targets"`
	Ratios  []Ratio  `json:"ratios"` // of the first target to each other
}

// A Target is one server's part of a Result.
type Target struct {
	Address string  `json:"address"`
	Rounds  []Round `json:"rounds"`
	Median  Round   `json:"median"` // of every figure over the rounds
	// Distribution is over all rounds together.
	Distribution []Point `json:"distribution"`
	GetLatency   Latency `json:"get_latency_us"` // over all rounds together
	SetLatency   Latency `json:"set_latency_us"`
	FirstError   string  `json:"first_error,omitempty"`

	gets, sets *Histogram
	firstFault string
}

// A Round is one measurement.
type Round struct {
	Seconds             float64 `json:"seconds"`
	Requests            uint64  `json:"requests"`
	Operations          uint64  `json:"operations"` // keys: a get of many counts for each
	RequestsPerSecond   float64 `json:"requests_per_second"`
	OperationsPerSecond float64 `json:"operations_per_second"`
	Latency             Latency `json:"latency_us"` // of requests
	Hits                uint64  `json:"hits"`
	Misses              uint64  `json:"misses"`
	Errors              uint64  `json:"errors"`
	LoadBusy            float64 `json:"load_busy"` // share of the time that the load threads worked: near 1, they are the limit; -1: unknown
}

// Latency holds quantiles in microseconds.
type Latency struct {
	P50  float64 `json:"p50"`
	P90  float64 `json:"p90"`
	P99  float64 `json:"p99"`
	P999 float64 `json:"p99_9"`
	Max  float64 `json:"max"`
}

// A Point of a distribution: the share of the requests that took at most so long.
type Point struct {
	Microseconds float64 `json:"us"`
	Share        float64 `json:"share"`
}

// A Ratio compares the first target with another: the median over the rounds of one's figure through the other's in the
// same round. A round in which the other got no reply counts as 0.
type Ratio struct {
	Address    string  `json:"address"`
	Against    string  `json:"against"`
	Throughput float64 `json:"throughput"` // above 1: the first does more
	P50        float64 `json:"p50"`        // below 1: the first is faster
	P99        float64 `json:"p99"`
	P999       float64 `json:"p99_9"`
}

// NewReport begins a report.
func NewReport(version string, now time.Time) *Report {
	return &Report{Format: 1, Version: version, Began: now.UTC().Format(time.RFC3339), System: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.NumCPU(), Results: []Result{}}
}

// WriteJSON writes the report.
func (r *Report) WriteJSON(w io.Writer) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	return enc.Encode(r)
}

// Errors counts the wrong replies of all rounds, and gives the first.
func (r *Report) Errors() (n uint64, first string) {
	for _, res := range r.Results {
		for _, t := range res.Targets {
			for _, round := range t.Rounds {
				n += round.Errors
			}
			first = cmp.Or(first, t.FirstError)
		}
	}
	return n, first
}

// sum makes everything that follows from the rounds.
func (r *Result) sum() {
	for i := range r.Targets {
		t := &r.Targets[i]
		t.FirstError = t.firstFault
		t.GetLatency, t.SetLatency = latencyOf(t.gets), latencyOf(t.sets)
		all := &Histogram{}
		all.Merge(t.gets)
		all.Merge(t.sets)
		t.Distribution = []Point{}
		for _, s := range all.Steps() {
			t.Distribution = append(t.Distribution, Point{micro(s.Value), s.Share})
		}
		over := func(f func(Round) float64) float64 { return median(t.Rounds, f) }
		count := func(f func(Round) uint64) uint64 {
			return uint64(over(func(r Round) float64 { return float64(f(r)) }))
		}
		t.Median = Round{
			Seconds:             over(func(r Round) float64 { return r.Seconds }),
			Requests:            count(func(r Round) uint64 { return r.Requests }),
			Operations:          count(func(r Round) uint64 { return r.Operations }),
			RequestsPerSecond:   over(func(r Round) float64 { return r.RequestsPerSecond }),
			OperationsPerSecond: over(func(r Round) float64 { return r.OperationsPerSecond }),
			Hits:                count(func(r Round) uint64 { return r.Hits }),
			Misses:              count(func(r Round) uint64 { return r.Misses }),
			Errors:              count(func(r Round) uint64 { return r.Errors }),
			LoadBusy:            over(func(r Round) float64 { return r.LoadBusy }),
			Latency: Latency{
				P50:  over(func(r Round) float64 { return r.Latency.P50 }),
				P90:  over(func(r Round) float64 { return r.Latency.P90 }),
				P99:  over(func(r Round) float64 { return r.Latency.P99 }),
				P999: over(func(r Round) float64 { return r.Latency.P999 }),
				Max:  over(func(r Round) float64 { return r.Latency.Max }),
			},
		}
	}
	r.Ratios = []Ratio{}
	for i := 1; i < len(r.Targets); i++ {
		a, b := &r.Targets[0], &r.Targets[i]
		pairs := make([][2]Round, len(a.Rounds))
		for n := range pairs {
			pairs[n] = [2]Round{a.Rounds[n], b.Rounds[n]}
		}
		through := func(f func(Round) float64) float64 {
			return median(pairs, func(p [2]Round) float64 {
				if f(p[1]) == 0 {
					return 0
				}
				return f(p[0]) / f(p[1])
			})
		}
		r.Ratios = append(r.Ratios, Ratio{
			Address: a.Address, Against: b.Address,
			Throughput: through(func(r Round) float64 { return r.OperationsPerSecond }),
			P50:        through(func(r Round) float64 { return r.Latency.P50 }),
			P99:        through(func(r Round) float64 { return r.Latency.P99 }),
			P999:       through(func(r Round) float64 { return r.Latency.P999 }),
		})
	}
}

func latencyOf(h *Histogram) Latency {
	return Latency{micro(h.Quantile(0.5)), micro(h.Quantile(0.9)), micro(h.Quantile(0.99)), micro(h.Quantile(0.999)), micro(h.Max())}
}

func micro(d time.Duration) float64 { return math.Round(float64(d)/10) / 100 }

// median is the middle figure of a list that is not empty, or the mean of the two in the middle.
func median[T any](list []T, f func(T) float64) float64 {
	figures := make([]float64, len(list))
	for i, v := range list {
		figures[i] = f(v)
	}
	slices.Sort(figures)
	n := len(figures)
	return (figures[(n-1)/2] + figures[n/2]) / 2
}
