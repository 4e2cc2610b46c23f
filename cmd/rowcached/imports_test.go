package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/rowcached/rowcached/"

// allowed is ARCHITECTURE.md's table: what each package may import of ours. A trailing /... stands for sub-packages too.
var allowed = map[string][]string{
	"binlog":                       {"binlog/..."},
	"mapping":                      {"binlog"},
	"server/memory":                nil,
	"server/protocol":              nil,
	"server":                       {"server/protocol", "server/memory"},
	"sync":                         {"binlog", "mapping", "server/memory", "server"},
	"cmd/rowcached":                {"binlog", "mapping", "server", "server/memory", "server/protocol", "sync", "cmd/rowcached/..."},
	"cmd/rowcached/internal/bench": nil,
	"integration":                  {"integration/..."},
}

func TestImports(t *testing.T) {
	type pkg struct {
		ImportPath   string
		Imports      []string
		TestImports  []string
		XTestImports []string
	}
	cmd := exec.Command("go", "list", "-json=ImportPath,Imports,TestImports,XTestImports", module+"...")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	dec := json.NewDecoder(bytes.NewReader(out))
	seen := 0
	for {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		seen++
		path := strings.TrimPrefix(p.ImportPath, module)
		rule, ok := ruleFor(path)
		if !ok {
			t.Errorf("%s: no rule for this package; add it to ARCHITECTURE.md's table and here", path)
		}
		for _, i := range p.Imports {
			if ours, found := strings.CutPrefix(i, module); found && !matches(ours, allowed[rule]) {
				t.Errorf("%s may not import %s", path, ours)
			}
		}
		for _, i := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if i == module+"sync" && rule != "cmd/rowcached" && rule != "integration" && rule != "sync" {
				t.Errorf("%s may not import sync", path)
			}
		}
	}
	if seen < len(allowed) {
		t.Errorf("go list found %d packages; there are at least %d", seen, len(allowed))
	}
}

// ruleFor finds the longest rule that covers a package.
func ruleFor(path string) (string, bool) {
	best, ok := "", false
	for r := range allowed {
		if (path == r || strings.HasPrefix(path, r+"/")) && len(r) >= len(best) {
			best, ok = r, true
		}
	}
	return best, ok
}

func matches(path string, patterns []string) bool {
	for _, p := range patterns {
		if tree, ok := strings.CutSuffix(p, "/..."); ok && (path == tree || strings.HasPrefix(path, tree+"/")) || path == p {
			return true
		}
	}
	return false
}

// TestOneFileImportsSync keeps package sync, which is called as the standard one is, out of all files but run.go.
func TestOneFileImportsSync(t *testing.T) {
	out, err := exec.Command("grep", "-rl", "--include=*.go", `"`+module+`sync"`, ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(string(out)); !slices.Equal(got, []string{"./run.go"}) {
		t.Errorf("files that import sync: %v", got)
	}
}
