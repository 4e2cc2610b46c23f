package main

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// page gets a page of the admin address.
func page(t *testing.T, address, path string) (code int, body string) {
	t.Helper()
	resp, err := http.Get("http://" + address + path)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// TestAdminOfPlainMemcached reads every page of a daemon without a source.
func TestAdminOfPlainMemcached(t *testing.T) {
	address, admin := startProgram(t, "-m", "64")
	exchange(t, address, "> set k 0 0 1\n> x\n< STORED\n> get k\n< VALUE k 0 1\n< x\n< END\n> get none\n< END\n")
	for path, want := range map[string]string{
		"/-/healthy": "healthy\n", "/-/ready": "ready\n", "/debug/pprof/cmdline": "rowcached",
	} {
		if code, body := page(t, admin, path); code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("%s: %d %q, want %q", path, code, body, want)
		}
	}
	code, body := page(t, admin, "/metrics")
	for _, want := range []string{
		"rowcached_build_info{", "rowcached_items{table=\"\"} 1\n", "rowcached_memory_limit_bytes 6.7108864e+07\n", "rowcached_evictions_total 0\n",
		`rowcached_commands_total{command="get",result="hit"} 1` + "\n", `rowcached_commands_total{command="get",result="miss"} 1` + "\n",
		"rowcached_connections ", "rowcached_connections_rejected_total 0\n", `rowcached_memory_bytes{kind="`,
	} {
		if code != http.StatusOK || !strings.Contains(body, want) {
			t.Errorf("/metrics: %d, without %q", code, want)
		}
	}
	if strings.Contains(body, "rowcached_replication_lag_seconds") {
		t.Error("/metrics shows a lag without a source")
	}
	if code, body := page(t, admin, "/nothing"); code != http.StatusNotFound {
		t.Errorf("/nothing: %d %q", code, body)
	}
}

// TestStatus asks a daemon as a person does, and as a program.
func TestStatus(t *testing.T) {
	_, admin := startProgram(t)
	var out bytes.Buffer
	if err := run(context.Background(), []string{"status", "--admin.listen", admin, "--json"}, &out, &out); err != nil {
		t.Fatal(err)
	}
	var r report
	if err := json.Unmarshal(out.Bytes(), &r); err != nil || !r.Ready || r.Version != version || r.Source != nil {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := run(context.Background(), []string{"status", "--admin.listen", admin}, &out, &out); err != nil || !strings.Contains(out.String(), "ready: true") {
		t.Errorf("%v\n%s", err, out.String())
	}
	out.Reset()
	if err := run(context.Background(), []string{"status", "--admin.listen", "127.0.0.1:1"}, &out, &out); err == nil || !strings.Contains(err.Error(), "is it running") {
		t.Errorf("without a daemon: %v", err)
	}
}

// TestProfilesAreForThisMachine: a client from elsewhere gets none.
func TestProfilesAreForThisMachine(t *testing.T) {
	h := loopbackOnly(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "profile") }))
	for from, want := range map[string]int{"127.0.0.1:5": http.StatusOK, "[::1]:5": http.StatusOK, "10.0.0.9:5": http.StatusForbidden, "nonsense": http.StatusForbidden} {
		r := httptest.NewRequest(http.MethodGet, "/debug/pprof/", nil)
		r.RemoteAddr = from
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != want {
			t.Errorf("from %s: %d, want %d", from, w.Code, want)
		}
	}
}
