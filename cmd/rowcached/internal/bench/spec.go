package bench

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// Workloads.
const (
	Get      = "get"
	Set      = "set"
	Mixed    = "mixed"
	Multiget = "multiget"
)

// Protocols.
const (
	Text   = "text"
	Meta   = "meta"
	Binary = "binary"
)

// Distributions of the keys asked for.
const (
	Uniform = "uniform"
	Zipf    = "zipf"
)

// Engines of the load side.
const (
	Auto  = "auto"
	Epoll = "epoll"
	Ring  = "io_uring"
	Net   = "net" // a goroutine for each connection, on every system
)

// A Spec says what load to put on a server. Every target of a run gets the same.
type Spec struct {
	Workload     string        `json:"workload"`
	Protocol     string        `json:"protocol"`
	Key          string        `json:"key"` // template: {n} is the key's number from 1 on, {n:18} the same with leading zeros
	Keys         int           `json:"keys"`
	Distribution string        `json:"distribution"`
	Exponent     float64       `json:"zipf_exponent"`
	ValueMin     int           `json:"value_bytes_min"`
	ValueMax     int           `json:"value_bytes_max"`
	GetShare     float64       `json:"get_share"`    // of Mixed
	KeysPerGet   int           `json:"keys_per_get"` // of Multiget
	Connections  int           `json:"connections"`
	Depth        int           `json:"depth"` // requests sent together on a connection
	Threads      int           `json:"threads"`
	Pin          []int         `json:"pin,omitempty"` // cores of the threads, in turn
	Rate         float64       `json:"rate"`          // requests a second over all connections; 0: each as soon as its connection is free
	Operations   int           `json:"operations"`    // requests in a round; 0: Duration counts
	Duration     time.Duration `json:"duration_ns"`   // of a round
	Warmup       time.Duration `json:"warmup_ns"`     // before a round, not counted
	Rounds       int           `json:"rounds"`
	NoFill       bool          `json:"no_fill"`   // the keys are there already
	AnyValue     bool          `json:"any_value"` // values are the server's own: only the form of replies is checked
	Engine       string        `json:"engine"`
	Seed         uint64        `json:"seed"`
}

// DefaultSpec is a get of 100-byte values over 50 connections.
func DefaultSpec() Spec {
	return Spec{
		Workload: Get, Protocol: Text, Key: "bench:{n:18}", Keys: 10_000, Distribution: Uniform, Exponent: 0.99,
		ValueMin: 100, ValueMax: 100, GetShare: 0.9, KeysPerGet: 100, Connections: 50, Depth: 1, Threads: 1,
		Duration: time.Second, Warmup: 300 * time.Millisecond, Rounds: 5, Engine: Auto, Seed: 1,
	}
}

// Validate tells what is wrong with the Spec, in the words of rowcached bench's flags.
func (s *Spec) Validate() error {
	oneOf := func(flag, got string, known ...string) error {
		for _, k := range known {
			if got == k {
				return nil
			}
		}
		return fmt.Errorf("--%s %s: it is one of %s", flag, got, strings.Join(known, ", "))
	}
	atLeast := func(flag string, got, least, most int) error {
		if got < least || got > most {
			return fmt.Errorf("--%s %d: it is between %d and %d", flag, got, least, most)
		}
		return nil
	}
	err := errors.Join(
		oneOf("workload", s.Workload, Get, Set, Mixed, Multiget),
		oneOf("protocol", s.Protocol, Text, Meta, Binary),
		oneOf("distribution", s.Distribution, Uniform, Zipf),
		oneOf("engine", s.Engine, Auto, Epoll, Ring, Net),
		atLeast("keys", s.Keys, 1, 1<<31),
		atLeast("size", s.ValueMin, 0, 1<<30),
		atLeast("size", s.ValueMax, s.ValueMin, 1<<30),
		atLeast("keys-per-get", s.KeysPerGet, 1, 10_000),
		atLeast("connections", s.Connections, 1, 100_000),
		atLeast("depth", s.Depth, 1, 10_000),
		atLeast("threads", s.Threads, 1, s.Connections),
		atLeast("operations", s.Operations, 0, 1<<40),
		atLeast("rounds", s.Rounds, 1, 1000),
	)
	switch {
	case s.Operations == 0 && s.Duration <= 0:
		err = errors.Join(err, errors.New("--duration must be positive, or --operations given"))
	case s.Warmup < 0:
		err = errors.Join(err, errors.New("--warmup must not be negative"))
	case s.Rate < 0 || s.Rate > 1e9:
		err = errors.Join(err, errors.New("--rate must not be negative"))
	case s.GetShare < 0 || s.GetShare > 1:
		err = errors.Join(err, fmt.Errorf("--gets %v: it is a share between 0 and 1", s.GetShare))
	case s.Exponent <= 0 || s.Exponent > 10:
		err = errors.Join(err, fmt.Errorf("--zipf %v: the exponent is positive, and at most 10", s.Exponent))
	case s.AnyValue && (!s.NoFill || s.Workload == Set || s.Workload == Mixed):
		err = errors.Join(err, errors.New("--any-value is for keys that are there already: give --no-fill too, and --workload get or multiget"))
	}
	if _, keyErr := newKeyspace(s); keyErr != nil {
		err = errors.Join(err, keyErr)
	}
	return err
}

// perGet is how many keys a get asks for.
func (s *Spec) perGet() int {
	if s.Workload == Multiget {
		return s.KeysPerGet
	}
	return 1
}

// Title says in a few words what the load is: "get, 100 B, 50 connections".
func (s *Spec) Title() string {
	var parts []string
	switch s.Workload {
	case Multiget:
		parts = append(parts, fmt.Sprintf("multiget of %d", s.KeysPerGet))
	case Mixed:
		parts = append(parts, fmt.Sprintf("mixed, %s%% gets", strconv.FormatFloat(s.GetShare*100, 'f', -1, 64)))
	default:
		parts = append(parts, s.Workload)
	}
	switch {
	case s.AnyValue:
	case s.ValueMin != s.ValueMax:
		parts = append(parts, fmt.Sprintf("%s-%s", bytesText(s.ValueMin), bytesText(s.ValueMax)))
	default:
		parts = append(parts, bytesText(s.ValueMin))
	}
	parts = append(parts, plural(s.Connections, "connection"))
	if s.Depth > 1 {
		parts = append(parts, fmt.Sprintf("%d in flight", s.Depth))
	}
	parts = append(parts, s.Protocol)
	if s.Distribution == Zipf {
		parts = append(parts, fmt.Sprintf("zipf %v", s.Exponent))
	}
	if s.Rate > 0 {
		parts = append(parts, fmt.Sprintf("%.0f requests/s", s.Rate))
	}
	return strings.Join(parts, ", ")
}

func plural(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

func bytesText(n int) string {
	switch {
	case n >= 1<<20 && n%(1<<20) == 0:
		return fmt.Sprintf("%d MiB", n>>20)
	case n >= 1<<10 && n%(1<<10) == 0:
		return fmt.Sprintf("%d KiB", n>>10)
	}
	return fmt.Sprintf("%d B", n)
}
