package torture

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

var mutants = flag.Duration("torture.mutants", 0, "how long each deliberate fault of testdata/mutants.txt is given to be found; 0: no such test")

// mutant is a fault put into the product.
type mutant struct{ name, file, from, to string }

func readMutants(t *testing.T) []mutant {
	t.Helper()
	text, err := os.ReadFile("testdata/mutants.txt")
	if err != nil {
		t.Fatal(err)
	}
	var all []mutant
	for line := range strings.Lines(string(text)) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch word {
		case "", "#":
		case "mutant":
			all = append(all, mutant{name: rest})
		case "in":
			all[len(all)-1].file = rest
		case "-":
			all[len(all)-1].from = rest
		case "+":
			all[len(all)-1].to = rest
		default:
			t.Fatalf("testdata/mutants.txt: %q", line)
		}
	}
	return all
}

// TestMutantsApply: every fault of the list still finds its line.
func TestMutantsApply(t *testing.T) {
	for _, m := range readMutants(t) {
		text, err := os.ReadFile(filepath.Join("../..", m.file))
		if err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(string(text), m.from); n != 1 {
			t.Errorf("mutant %q: %s has its line %d times", m.name, m.file, n)
		}
	}
}

// TestMutants: the torture finds each fault.
func TestMutants(t *testing.T) {
	if *mutants == 0 {
		t.Skip("only with -torture.mutants")
	}
	for _, m := range readMutants(t) {
		t.Run(m.name, func(t *testing.T) {
			tree := t.TempDir()
			files, err := exec.Command("git", "-C", "../..", "ls-files", "-z", "--", "*.go", "go.mod", "go.sum", "*.txt", "*.html", "*.css", "*.js", "*.md").Output()
			if err != nil {
				t.Fatal(err)
			}
			for name := range strings.SplitSeq(strings.TrimRight(string(files), "\x00"), "\x00") {
				text, err := os.ReadFile(filepath.Join("../..", name))
				if err != nil {
					t.Fatal(err)
				}
				if name == m.file {
					text = bytes.Replace(text, []byte(m.from), []byte(m.to), 1)
				}
				if err := os.MkdirAll(filepath.Dir(filepath.Join(tree, name)), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(tree, name), text, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			bin := filepath.Join(tree, "rowcached")
			build := exec.Command("go", "build", "-o", bin, "./cmd/rowcached")
			build.Dir = tree
			if out, err := build.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			for _, kind := range strings.Fields(*kinds) {
				run := exec.Command(self, "-test.run", "TestTorture$", "-test.v", "-torture.time", mutants.String(), "-torture.kinds", kind,
					"-torture.quiet", "8s", "-torture.avoid", *avoid, "-torture.seed", fmt.Sprint(*seed))
				run.Env = append(os.Environ(), "ROWCACHED_BIN="+bin)
				began := time.Now()
				out, err := run.CombinedOutput()
				took := time.Since(began).Round(time.Second)
				if err == nil {
					t.Errorf("%s: not found within %v:\n%.2000s", kind, mutants, out)
					continue
				}
				found := "another failure"
				for line := range strings.Lines(string(out)) {
					if strings.Contains(line, "violation") || strings.Contains(line, "rowcached verify:") {
						found = strings.TrimSpace(line)
						break
					}
				}
				t.Logf("%s: found after %v: %.300s", kind, took, found)
			}
		})
	}
}
