// Package integration tests rowcached as it is used: the built binary, real database servers, real clients.
package integration

import (
	"flag"
	"slices"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/scenario"
	"github.com/rowcached/rowcached/integration/servers"
)

var sqlOnly = flag.Bool("sqlonly", false, "check the scenarios themselves: run only their statements, and compare their expectations with the rows")

// Every case under testdata/scenarios holds on every server it names. To run one:
//
//	go test ./integration -run 'TestScenarios/mysql97/155'
func TestScenarios(t *testing.T) {
	all, err := scenario.Load("testdata/scenarios")
	if err != nil {
		t.Fatal(err)
	}
	lanes := make(chan struct{}, 2) // server kinds at work at once
	for _, kind := range servers.Kinds() {
		t.Run(string(kind), func(t *testing.T) {
			t.Parallel()
			lanes <- struct{}{}
			defer func() { <-lanes }()
			// Cases with the same options share a server, one after the other.
			groups := map[string][]*scenario.Scenario{}
			var order []string
			for _, s := range all {
				if !slices.Contains(s.Servers, kind) {
					continue
				}
				options := strings.Join(s.Options(kind), " ")
				if groups[options] == nil {
					order = append(order, options)
				}
				groups[options] = append(groups[options], s.Variants()...)
			}
			for _, options := range order {
				runGroup(t, kind, strings.Fields(options), groups[options])
			}
		})
	}
}

func runGroup(t *testing.T, kind servers.Kind, options []string, group []*scenario.Scenario) {
	t.Helper()
	var server *servers.Server // started by the first case that is asked for, for all of the group
	for _, s := range group {
		parent := t
		t.Run(s.Name, func(t *testing.T) {
			if server == nil || server.Ended() { // a database server that crashed fails its case, not those after it
				server = servers.Start(outliving{parent, t}, kind, options...)
			}
			if *sqlOnly {
				s.CheckSQL(t, server)
			} else {
				s.Run(t, server)
			}
		})
	}
	if server != nil {
		server.Kill() // its files stay until the end, for its log
	}
}

// outliving is a test whose resources belong to its parent, but which fails and skips itself: only the
// running test may do that.
type outliving struct {
	testing.TB
	inner *testing.T
}

func (o outliving) Helper()           { o.inner.Helper() }
func (o outliving) Fatal(args ...any) { o.inner.Helper(); o.inner.Fatal(args...) }
func (o outliving) Fatalf(format string, args ...any) {
	o.inner.Helper()
	o.inner.Fatalf(format, args...)
}
func (o outliving) Skipf(format string, args ...any) {
	o.inner.Helper()
	o.inner.Skipf(format, args...)
}
