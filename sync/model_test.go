package sync

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// The models of the join (I3) and of the fill (I4) hold for every history and every order of steps (G1, G2); with any one rule
// taken out there is a counterexample, so each is needed and the models can fail.
func TestModels(t *testing.T) {
	for _, name := range []string{"spin", "gcc"} {
		if _, err := exec.LookPath(name); err != nil {
			if os.Getenv("ROWCACHED_REQUIRE_SERVERS") == "1" {
				t.Fatalf("%v (run scripts/servers.sh)", err)
			}
			t.Skipf("skipped: %v", err)
		}
	}
	for model, rules := range map[string][]string{
		"join": {"NO_TOUCH", "NO_P1", "NO_RESTART", "NO_VISIBLE", "NO_DEFINITION"},
		"fill": {"NO_TOUCH", "NO_P", "NO_VISIBLE", "NO_NEWEST", "NO_SHARE"},
	} {
		for _, rule := range append([]string{""}, rules...) {
			t.Run(model+rule, func(t *testing.T) {
				output, failed := explore(t, model, rule)
				if failed == (rule == "") {
					t.Errorf("rule taken out: %q; counterexample found: %v\n%s", rule, failed, output)
				}
			})
		}
	}
}

// explore has spin look at every state of a model, a rule left out if one is named.
func explore(t *testing.T, model, rule string) (output string, failed bool) {
	t.Helper()
	path, err := filepath.Abs(filepath.Join("model", model+".pml"))
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	command := func(name string, args ...string) string {
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !(name == "./pan" && errors.As(err, &exit)) {
			t.Fatalf("%s: %v\n%s", name, err, out)
		}
		return string(out)
	}
	spin := []string{"-a"}
	if rule != "" {
		spin = append(spin, "-D"+rule)
	}
	command("spin", append(spin, path)...)
	command("gcc", "-O1", "-w", "-DSAFETY", "-DMEMLIM=1024", "-o", "pan", "pan.c")
	output = command("./pan", "-m100000")
	if strings.Contains(output, "max search depth too small") || strings.Contains(output, "not completed") && !strings.Contains(output, "errors: 1") {
		t.Fatalf("the search is not complete:\n%s", output)
	}
	switch {
	case strings.Contains(output, "errors: 0"):
		return output, false
	case strings.Contains(output, "errors: 1"):
		return output, true
	}
	t.Fatalf("spin's output is not understood:\n%s", output)
	return "", false
}
