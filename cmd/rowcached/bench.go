package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/rowcached/rowcached/cmd/rowcached/internal/bench"
)

func benchCommand() *cobra.Command {
	var f benchFlags
	cmd := &cobra.Command{
		Use:   "bench",
		Short: "Measure servers that speak memcached's protocol, this one or others, side by side",
		Long: `Put load on one or more servers that speak memcached's protocol, check every reply, and print throughput and latency.

Several servers are measured in short rounds that alternate among them, and compared round by round: on a machine that does
other things too, only such ratios mean something. Keys "bench:..." are stored on each server first (with --no-fill they are
not), and every value is compared with what was stored. A miss is counted, and is no error.

Latency is that of a request, from its sending to its last byte. Unless --rate is given every connection sends its next
requests when it has the replies to the last; with --rate latency counts from the time at which a request was to be sent.
With several requests in flight (--depth) they are sent together, and the next when all are answered.

The column "load busy" tells how much of the time the load side worked: near 100% it, not the server, is what was measured.
With --pin the load threads never sleep, and it is not known.

Exit status: 0 without errors, 1 with wrong replies or a server that cannot be measured, 2 for a bad command line.`,
		Example: `  rowcached bench
  rowcached bench --address 127.0.0.1:11211 --against 127.0.0.1:11212 --connections 900 --size 4KiB --threads 1 --pin 1
  rowcached bench --address unix:/run/a.sock --workload get,set,multiget --protocol binary --json out.json --svg out.svg
  rowcached bench --workload mixed --gets 0.95 --distribution zipf --keys 1000000 --rate 50000 --duration 10s --rounds 1
  rowcached bench --key 'users:{n}' --keys 1000 --no-fill --any-value      # rows that are there already`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			specs, err := f.specs()
			if err != nil {
				return fmt.Errorf("%w: %w", errUsage, err)
			}
			return f.run(cmd.Context(), specs, cmd.OutOrStdout(), cmd.ErrOrStderr())
		},
	}
	f.register(cmd.Flags())
	return cmd
}

// benchFlags is the verb's command line.
type benchFlags struct {
	spec      bench.Spec
	address   string
	against   []string
	workloads []string
	size      string
	json, svg string
}

func (f *benchFlags) register(fs *pflag.FlagSet) {
	f.spec = bench.DefaultSpec()
	s := &f.spec
	fs.SortFlags = false
	fs.StringVar(&f.address, "address", "127.0.0.1:11211", "the server: host:port, or a unix socket (unix:/path)")
	fs.StringArrayVar(&f.against, "against", nil, "a server to compare it with (may be repeated)")
	fs.StringSliceVar(&f.workloads, "workload", []string{s.Workload}, "get, set, mixed or multiget; several with commas")
	fs.StringVar(&s.Protocol, "protocol", s.Protocol, "text, meta or binary")
	fs.StringVar(&f.size, "size", "100", "bytes of a value, e.g. 4KiB, or a range, 64-1024")
	fs.IntVar(&s.Keys, "keys", s.Keys, "number of keys")
	fs.StringVar(&s.Distribution, "distribution", s.Distribution, "of the keys asked for: uniform or zipf")
	fs.Float64Var(&s.Exponent, "zipf", s.Exponent, "zipf's exponent")
	fs.Float64Var(&s.GetShare, "gets", s.GetShare, "share of gets in mixed")
	fs.IntVar(&s.KeysPerGet, "keys-per-get", s.KeysPerGet, "keys of one request of multiget")
	fs.IntVar(&s.Connections, "connections", s.Connections, "number of connections")
	fs.IntVar(&s.Depth, "depth", s.Depth, "requests in flight on a connection")
	fs.Float64Var(&s.Rate, "rate", 0, "requests a second in all (default as many as the server answers)")
	fs.IntVar(&s.Rounds, "rounds", s.Rounds, "rounds on each server")
	fs.DurationVar(&s.Duration, "duration", s.Duration, "of a round")
	fs.IntVar(&s.Operations, "operations", 0, "requests in a round, instead of --duration")
	fs.DurationVar(&s.Warmup, "warmup", s.Warmup, "before each round, not counted")
	fs.IntVar(&s.Threads, "threads", s.Threads, "threads of the load side")
	fs.IntSliceVar(&s.Pin, "pin", nil, "cores of those threads, which then do not sleep (Linux)")
	fs.StringVar(&s.Engine, "engine", s.Engine, "of the load side: auto, io_uring, epoll or net")
	fs.StringVar(&s.Key, "key", s.Key, "keys: {n} is a number from 1 to --keys, {n:18} has leading zeros")
	fs.BoolVar(&s.NoFill, "no-fill", false, "store nothing first")
	fs.BoolVar(&s.AnyValue, "any-value", false, "values are the server's own: only the form of replies is checked")
	fs.Uint64Var(&s.Seed, "seed", s.Seed, "of the choice of keys")
	fs.StringVar(&f.json, "json", "", "write all figures to this file (-: standard output, instead of the table)")
	fs.StringVar(&f.svg, "svg", "", "write a plot of the latencies to this file")
}

// specs gives one load for each workload. An error is the command line's.
func (f *benchFlags) specs() ([]bench.Spec, error) {
	var err error
	if f.spec.ValueMin, f.spec.ValueMax, err = sizes(f.size); err != nil {
		return nil, err
	}
	for _, a := range append([]string{f.address}, f.against...) {
		if _, err := bench.Resolve(a); err != nil {
			return nil, fmt.Errorf("%q is not an address (host:port or unix:/path): %w", a, err)
		}
	}
	var specs []bench.Spec
	for _, w := range f.workloads {
		s := f.spec
		s.Workload = w
		if err := s.Validate(); err != nil {
			return nil, err
		}
		specs = append(specs, s)
	}
	return specs, nil
}

// sizes reads a size or a range of sizes.
func sizes(text string) (least, most int, err error) {
	from, to, ranged := strings.Cut(text, "-")
	if !ranged {
		to = from
	}
	var a, b config.Size
	if err := errors.Join(a.UnmarshalText([]byte(from)), b.UnmarshalText([]byte(to))); err != nil {
		return 0, 0, fmt.Errorf("--size %s: write for example 100, 4KiB or 64-1024", text)
	}
	return int(a), int(b), nil
}

// run measures, and writes what was found.
func (f *benchFlags) run(ctx context.Context, specs []bench.Spec, stdout, stderr io.Writer) (err error) {
	var progress func(string)
	if isTerminal(stderr) {
		const clear = "\r\x1b[K"
		progress = func(line string) { fmt.Fprint(stderr, clear+line) }
		defer fmt.Fprint(stderr, clear)
	}
	report := bench.NewReport(version, time.Now())
	for i, spec := range specs {
		spec.NoFill = spec.NoFill || i > 0 // the same keys serve all workloads
		res, err := bench.Run(ctx, spec, append([]string{f.address}, f.against...), progress)
		if err != nil {
			return err
		}
		res.Spec.NoFill = specs[i].NoFill
		if progress != nil {
			progress("")
		}
		report.Results = append(report.Results, *res)
		if f.json != "-" {
			if err := res.WriteTable(stdout); err != nil {
				return err
			}
		}
	}
	if f.json == "-" {
		err = report.WriteJSON(stdout)
	} else if f.json != "" {
		err = writeFile(f.json, report.WriteJSON)
	}
	if err == nil && f.svg != "" {
		err = writeFile(f.svg, report.WriteSVG)
	}
	if err != nil {
		return err
	}
	if n, first := report.Errors(); n > 0 {
		fmt.Fprintf(stderr, "rowcached: %s wrong replies; the first: %s\n", strconv.FormatUint(n, 10), first)
		return errReported
	}
	return nil
}

// writeFile creates the file with what write gives.
func writeFile(path string, write func(io.Writer) error) (err error) {
	w, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, w.Close()) }()
	return write(w)
}
