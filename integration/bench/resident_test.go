package bench

import (
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

var items = flag.Int("items", 5_000_000, "items that the benchmarks Resident and Tail keep in memory")

// BenchmarkResident stores the same items (24-byte keys, 100-byte values) in rowcached and in memcached 1.6.45 and compares
// what both processes have resident. It needs one run:
//
//	go test ./integration/bench -run '^$' -bench Resident -benchtime 1x
func BenchmarkResident(b *testing.B) {
	limit := strconv.Itoa(*items/2500 + 256) // MiB, with room to spare: nothing is evicted
	for range b.N {
		ours := servers.StartDaemon(b, "-m", limit, "-t", "1")
		theirs := servers.StartMemcached(b, servers.Memcached1645, "-m", limit, "-t", "1")
		emptyOurs, emptyTheirs := resident(b, ours.Pid()), resident(b, theirs.Pid())
		// One reading round after the filling checks values; it is the filling that counts here.
		exit, output, f := measure(b, "--address", ours.Addr(), "--against", theirs.Addr, "--keys", fmt.Sprint(*items), "--size", "100",
			"--rounds", "1", "--operations", "100000", "--depth", "16")
		if exit != 0 {
			b.Fatalf("exit %d\n%s", exit, output)
		}
		for _, target := range f.Results[0].Targets {
			if target.Rounds[0].Misses != 0 {
				b.Fatalf("%s has lost items: %+v", target.Address, target.Rounds[0])
			}
		}
		for _, addr := range []string{ours.Addr(), theirs.Addr} {
			if stats := servers.Dial(b, addr).Cmd("stats"); !strings.Contains(stats, fmt.Sprintf("STAT curr_items %d\r\n", *items)) {
				b.Fatalf("%s does not hold %d items:\n%s", addr, *items, stats)
			}
		}
		a, m := resident(b, ours.Pid()), resident(b, theirs.Pid())
		b.ReportMetric(float64(a>>20), "rowcached-MiB")
		b.ReportMetric(float64(m>>20), "memcached-MiB")
		b.ReportMetric(float64(a)/float64(m), "ratio")
		b.ReportMetric(float64(a-emptyOurs)/float64(*items), "rowcached-B/item")
		b.ReportMetric(float64(m-emptyTheirs)/float64(*items), "memcached-B/item")
	}
	b.ReportMetric(0, "ns/op")
}

// resident is a process's resident memory in bytes (proc(5), VmRSS).
func resident(b *testing.B, pid int) int64 {
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, err := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(rest), "kB")), 10, 64)
			if err != nil {
				b.Fatal(err)
			}
			return kib << 10
		}
	}
	b.Fatalf("no VmRSS for process %d", pid)
	return 0
}
