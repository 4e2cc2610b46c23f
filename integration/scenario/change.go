package scenario

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// change runs the statements of a section as the scenario's mode says, and waits for the daemon to have followed.
func (r *run) change(st step) bool {
	r.t.Helper()
	if r.sqlOnly {
		return r.sql(st)
	}
	if r.daemon == nil {
		r.t.Error("change: the daemon was not started")
		return false
	}
	if !r.remember() {
		return false
	}
	ok := true
	switch r.scenario.mode {
	case "lagging":
		r.daemon.Pause()
		ok = r.sql(st)
		r.daemon.Resume()
	case "restart":
		ok = r.stopped() && r.sql(st)
		if ok {
			r.daemon.Start()
		}
	case "reading", "copying":
		if !r.stopped() || !r.forget() {
			return false
		}
		hold := servers.HoldRequests
		if r.scenario.mode == "copying" {
			hold = servers.HoldReplies
		}
		r.gate.Arm(hold)
		r.daemon.Start()
		r.gate.Wait(r.t) // a table's SELECT stands
		ok = r.sql(st) && r.followed(time.Second)
		r.gate.Open()
	default:
		ok = r.sql(st)
	}
	return ok && r.settle()
}

// remember notes the keys that rows have now, so that verify can tell whether they are gone.
func (r *run) remember() bool {
	r.t.Helper()
	items, err := r.oracle.items(r.t.Context(), r.server.DB())
	if err != nil {
		r.t.Error(err)
		return false
	}
	for key := range items {
		r.known[key] = true
	}
	return true
}

// verify compares every row with what is served for it, and looks for rows that are served but gone. The rows must not
// change meanwhile.
func (r *run) verify() bool {
	r.t.Helper()
	if !r.settle() {
		return false
	}
	items, err := r.oracle.items(r.t.Context(), r.server.DB())
	if err != nil {
		r.t.Error(err)
		return false
	}
	keys := maps.Clone(r.known)
	for key := range items {
		keys[key] = true
	}
	var lines []line
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		if len(key) > 250 || strings.ContainsFunc(key, func(c rune) bool { return c <= ' ' || c == 0x7f }) {
			continue
		}
		value, row := items[key]
		lines = append(lines, line{key: key, value: string(value), miss: !row})
	}
	for part := range slices.Chunk(lines, 100) {
		if !r.expect(part, "by the rows on the server, ") {
			return false
		}
	}
	r.known = keys
	return true
}

// settle waits until the daemon has read all of the source's log and is ready, or says that a table cannot be mirrored:
// then that is what there is to see.
func (r *run) settle() bool {
	r.t.Helper()
	if r.followed(expectLimit) {
		deadline := time.Now().Add(expectLimit)
		for time.Now().Before(deadline) {
			if err := r.daemon.Ready(); err == nil || strings.Contains(err.Error(), "failed") {
				return true
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	r.t.Errorf("the daemon has not settled within %v: position %q, ready: %v", expectLimit, r.position(), r.daemon.Ready())
	return false
}

// followed waits until the daemon has read the source's log up to its present end; false when that takes too long.
func (r *run) followed(limit time.Duration) bool {
	r.t.Helper()
	file, pos, err := r.server.LogEnd()
	if err != nil {
		r.t.Fatal(err)
	}
	for deadline := time.Now().Add(limit); ; time.Sleep(3 * time.Millisecond) {
		name, rest, _ := strings.Cut(r.position(), ":")
		offset, _, _ := strings.Cut(rest, " ")
		at, err := strconv.ParseInt(offset, 10, 64)
		if err == nil && (name > file || name == file && at >= pos) {
			return true
		}
		if time.Now().After(deadline) {
			return false
		}
	}
}

// position is the daemon's place in the source's log, "FILE:OFFSET ..."; empty when it has none.
func (r *run) position() string {
	body, err := r.daemon.HTTP("/api/v1/status")
	if err != nil {
		return ""
	}
	var status struct {
		Replication struct {
			Position string `json:"position"`
		} `json:"replication"`
	}
	if err := json.NewDecoder(bytes.NewReader([]byte(body))).Decode(&status); err != nil {
		return ""
	}
	return status.Replication.Position
}
