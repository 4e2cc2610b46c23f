package bench

import (
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"
)

// WriteTable writes a result as people read it.
func (r *Result) WriteTable(w io.Writer) error {
	fmt.Fprintf(w, "%s; medians of %s\n", r.Spec.Title(), plural(r.Spec.Rounds, "round"))
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(tw, "server\tops/s\tp50 us\tp90 us\tp99 us\tp99.9 us\tmax us\tmisses\terrors\tload busy\t")
	busy := 0.0
	for i := range r.Targets {
		t := &r.Targets[i]
		m := &t.Median
		fmt.Fprintf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%d\t%s\t\n", t.Address, thousands(m.OperationsPerSecond), short(m.Latency.P50),
			short(m.Latency.P90), short(m.Latency.P99), short(m.Latency.P999), short(m.Latency.Max), t.misses(), t.errors(), share(m.LoadBusy))
		busy = max(busy, m.LoadBusy)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, x := range r.Ratios {
		fmt.Fprintf(w, "%s through %s: ops/s %.2f, p50 %.2f, p99 %.2f, p99.9 %.2f\n", x.Address, x.Against, x.Throughput, x.P50, x.P99, x.P999)
	}
	if busy > 0.95 && r.Spec.Rate == 0 {
		fmt.Fprintf(w, "The load side was busy for %.0f%% of the time: it may be the limit. Give it more cores (--threads, --pin).\n", busy*100)
	}
	_, err := fmt.Fprintln(w)
	return err
}

// share writes a share in percent, or a dash for one that is not known.
func share(s float64) string {
	if s < 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", s*100)
}

func (t *Target) misses() (n uint64) {
	for _, r := range t.Rounds {
		n += r.Misses
	}
	return n
}

func (t *Target) errors() (n uint64) {
	for _, r := range t.Rounds {
		n += r.Errors
	}
	return n
}

// thousands writes a number without a fraction, with commas.
func thousands(f float64) string {
	digits := strconv.FormatFloat(max(f, 0), 'f', 0, 64)
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// short writes microseconds with as many digits as mean something.
func short(us float64) string {
	if us < 100 {
		return strconv.FormatFloat(us, 'f', 1, 64)
	}
	return thousands(us)
}
