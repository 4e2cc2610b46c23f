package main

import (
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/rowcached/rowcached/server"
	"github.com/rowcached/rowcached/server/memory"
)

// admin is the HTTP side: metrics, health, readiness, status.
type admin struct {
	config  *config.Config
	meters  *meters
	store   *memory.Store
	server  *server.Server
	source  *binlog.Source          // nil: a plain memcached
	engine  *syncEngine             // nil with source
	waiting *atomic.Pointer[string] // what preflight waits for; nil inside: nothing
	started time.Time
}

// report is the body of /api/v1/status.
type report struct {
	Version     string      `json:"version"`
	StartedAt   time.Time   `json:"started_at"`
	Ready       bool        `json:"ready"`
	Source      *sourceInfo `json:"source,omitempty"`
	Replication *syncStatus `json:"replication,omitempty"`
	Connections int64       `json:"connections"`
	MemoryBytes int64       `json:"memory_bytes"`
	MemoryLimit int64       `json:"memory_limit_bytes"`
	Items       int64       `json:"items"`
}

type sourceInfo struct {
	Connected   bool      `json:"connected"`
	Version     string    `json:"version"`
	Reconnects  uint64    `json:"reconnects"`
	HeartbeatAt time.Time `json:"heartbeat_at,omitzero"`
	LastError   string    `json:"last_error,omitempty"`
}

func (a *admin) handler() http.Handler {
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(a.meters.registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("GET /-/healthy", func(w http.ResponseWriter, _ *http.Request) { reply(w, http.StatusOK, "healthy") })
	mux.HandleFunc("GET /-/ready", func(w http.ResponseWriter, _ *http.Request) {
		if why := a.unready(); why != "" {
			reply(w, http.StatusServiceUnavailable, why)
			return
		}
		reply(w, http.StatusOK, "ready")
	})
	mux.HandleFunc("GET /api/v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		enc := json.NewEncoder(w)
		enc.SetIndent("", "  ")
		if err := enc.Encode(a.report()); err != nil {
			return // the client went away
		}
	})
	mux.HandleFunc("POST /api/v1/verify", a.verify)
	for path, h := range map[string]http.HandlerFunc{"": pprof.Index, "cmdline": pprof.Cmdline, "profile": pprof.Profile, "symbol": pprof.Symbol, "trace": pprof.Trace} {
		mux.Handle("GET /debug/pprof/"+path, loopbackOnly(h))
	}
	return mux
}

func reply(w http.ResponseWriter, code int, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(code)
	fmt.Fprintln(w, text)
}

// loopbackOnly refuses clients from other machines.
func loopbackOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host, _, err := net.SplitHostPort(r.RemoteAddr)
		if err != nil || !net.ParseIP(host).IsLoopback() {
			reply(w, http.StatusForbidden, "profiles are for clients on this machine")
			return
		}
		h.ServeHTTP(w, r)
	})
}

// unready tells why the daemon should not be asked for rows now, or "".
func (a *admin) unready() string {
	if a.engine == nil {
		return ""
	}
	if what := a.waiting.Load(); what != nil {
		return *what
	}
	st := a.engine.Status()
	src := a.source.Status()
	var why string
	if !src.Connected {
		why = "not connected to the source"
		if src.LastError != nil {
			why += ": " + src.LastError.Error()
		}
		why += "\n"
	}
	for _, t := range st.Tables {
		if t.State != "ready" {
			why += fmt.Sprintf("table %s is %s", t.Table, t.State)
			if t.LastError != "" {
				why += ": " + t.LastError
			}
			why += "\n"
		}
	}
	if st.Withheld != "" {
		why += st.Withheld + "\n"
	}
	if why == "" && !st.Ready {
		why = "starting"
		if st.LastError != "" {
			why += ": " + st.LastError
		}
	}
	return why
}

func (a *admin) report() report {
	ms, sm := a.store.Stats(), a.server.Metrics()
	r := report{
		Version: version, StartedAt: a.started, Ready: a.unready() == "", Connections: sm.Connections,
		MemoryBytes: ms.Bytes, MemoryLimit: ms.Limit, Items: ms.Items,
	}
	if a.engine != nil {
		st, src := a.engine.Status(), a.source.Status()
		r.Replication = &st
		r.Source = &sourceInfo{Connected: src.Connected, Version: src.Version, Reconnects: src.Reconnects, HeartbeatAt: src.HeartbeatAt}
		if src.LastError != nil {
			r.Source.LastError = src.LastError.Error()
		}
		if what := a.waiting.Load(); what != nil {
			r.Source.LastError = *what
		}
	}
	return r
}
