package bench

import (
	"context"
	"encoding/json"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// figures is what rowcached bench --json writes, as far as it is used here.
type figures struct {
	Results []struct {
		Load struct {
			Workload string
		}
		Engine  string
		Targets []struct {
			Address string
			Rounds  []round
			Median  round
		}
		Ratios []struct {
			Against    string
			Throughput float64
		}
	}
}

type round struct {
	Requests            uint64
	Operations          uint64
	OperationsPerSecond float64 `json:"operations_per_second"`
	Hits, Misses        uint64
	Errors              uint64
	Latency             struct {
		P50, P99 float64
		P999     float64 `json:"p99_9"`
		Max      float64
	} `json:"latency_us"`
	LoadBusy float64 `json:"load_busy"`
}

// measure runs rowcached bench and reads its JSON.
func measure(t testing.TB, args ...string) (exit int, output string, f figures) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "out.json")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, servers.Binary(t), append([]string{"bench", "--json", path}, args...)...)
	out, err := cmd.CombinedOutput()
	exit, output = cmd.ProcessState.ExitCode(), string(out)
	if exit < 0 {
		t.Fatalf("rowcached bench: %v\n%s", err, out)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		if exit == 0 {
			t.Fatal(err)
		}
		return exit, output, f
	}
	if err := json.Unmarshal(text, &f); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return exit, output, f
}

// TestBenchVerb drives a real rowcached (over TCP and its unix socket) and a real memcached with every protocol, workload
// and engine, and checks that every request is counted and every reply was right.
func TestBenchVerb(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	ours := servers.StartDaemon(t, "--server.listen", "127.0.0.1:0", "--server.listen", "unix:"+socket)
	theirs := servers.StartMemcached(t, servers.Memcached1645, "-m", "64")
	const requests = 600
	for _, engine := range []string{"io_uring", "epoll", "net"} {
		for _, protocol := range []string{"text", "meta", "binary"} {
			t.Run(engine+"/"+protocol, func(t *testing.T) {
				svg := filepath.Join(t.TempDir(), "out.svg")
				exit, output, f := measure(t, "--engine", engine, "--protocol", protocol, "--address", ours.Addr(), "--against", "unix:"+socket,
					"--against", theirs.Addr, "--workload", "get,set,mixed,multiget", "--size", "0-20000", "--keys", "300", "--keys-per-get", "7",
					"--connections", "9", "--depth", "3", "--threads", "2", "--operations", "600", "--warmup", "1ms", "--rounds", "2", "--svg", svg)
				if exit != 0 || len(f.Results) != 4 {
					t.Fatalf("exit %d, %d results\n%s", exit, len(f.Results), output)
				}
				for _, r := range f.Results {
					if len(r.Targets) != 3 || len(r.Ratios) != 2 || r.Ratios[1].Against != theirs.Addr || r.Ratios[1].Throughput <= 0 {
						t.Fatalf("%+v", r)
					}
					for _, target := range r.Targets {
						if len(target.Rounds) != 2 {
							t.Fatalf("%+v", target)
						}
						for _, m := range target.Rounds {
							keys := uint64(requests)
							if r.Load.Workload == "multiget" {
								keys *= 7
							}
							if m.Requests != requests || m.Operations != keys || m.Errors != 0 || m.Misses != 0 ||
								r.Load.Workload == "get" && m.Hits != requests || r.Load.Workload == "multiget" && m.Hits != keys ||
								m.OperationsPerSecond <= 0 || m.Latency.P50 <= 0 || m.Latency.Max < m.Latency.P99 {
								t.Errorf("%s %s: %+v", r.Load.Workload, target.Address, m)
							}
						}
					}
				}
				for _, word := range []string{"p99.9", ours.Addr() + " through " + theirs.Addr, "multiget of 7"} {
					if !strings.Contains(output, word) {
						t.Errorf("%q is not in\n%s", word, output)
					}
				}
				if strings.Contains(output, "\x1b") {
					t.Error("control characters for a terminal went into a pipe")
				}
				if lines := paths(t, svg); lines != 12 {
					t.Errorf("%d lines in the plot, there are 3 servers in 4 panels", lines)
				}
			})
		}
	}
}

// paths parses a plot and counts its lines.
func paths(t *testing.T, path string) (n int) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	dec := xml.NewDecoder(f)
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		if e, ok := tok.(xml.StartElement); ok && e.Name.Local == "path" {
			n++
		}
	}
}

// TestBenchVerbCounts: misses are counted and no error, values that are other ones are errors, so is a server that is not
// there; and a paced round sends as much as it was told to.
func TestBenchVerbCounts(t *testing.T) {
	theirs := servers.StartMemcached(t, servers.Memcached1645, "-m", "64")
	for _, engine := range []string{"io_uring", "epoll", "net"} {
		if exit, output, f := measure(t, "--engine", engine, "--address", theirs.Addr, "--no-fill", "--key", "absent:{n}", "--operations", "100",
			"--rounds", "1", "--warmup", "0s"); exit != 0 || f.Results[0].Targets[0].Rounds[0].Misses != 100 {
			t.Errorf("%s, misses: exit %d, %+v\n%s", engine, exit, f, output)
		}
		args := []string{"--engine", engine, "--address", theirs.Addr, "--keys", "50", "--operations", "100", "--rounds", "1"}
		if exit, output, _ := measure(t, append(args, "--size", "10")...); exit != 0 {
			t.Errorf("%s: exit %d\n%s", engine, exit, output)
		}
		exit, output, f := measure(t, append(args, "--size", "11", "--no-fill")...)
		if exit != 1 || f.Results[0].Targets[0].Rounds[0].Hits != 100 || !strings.Contains(output, "has 10 bytes instead of 11") {
			t.Errorf("%s, other values: exit %d\n%s", engine, exit, output)
		}
		if exit, output, _ := measure(t, append(args, "--no-fill", "--any-value", "--size", "11")...); exit != 0 {
			t.Errorf("%s, any value: exit %d\n%s", engine, exit, output)
		}
		if exit, output, f := measure(t, append(args, "--rate", "1000", "--depth", "2")...); exit != 0 || f.Results[0].Targets[0].Rounds[0].Requests != 100 ||
			f.Results[0].Targets[0].Rounds[0].OperationsPerSecond > 1100 {
			t.Errorf("%s, paced: exit %d, %+v\n%s", engine, exit, f, output)
		}
	}
	if exit, output, _ := measure(t, "--address", "127.0.0.1:1"); exit != 1 || !strings.Contains(output, "refused") {
		t.Errorf("nobody there: exit %d\n%s", exit, output)
	}
	if exit, output, _ := measure(t, "--address", "unix:/nowhere/s"); exit != 1 || !strings.Contains(output, "there is no socket") {
		t.Errorf("no socket: exit %d\n%s", exit, output)
	}
}
