package sync

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/server/memory"
)

const stateRows = 12_000

// newMemory makes a store with one loading space.
func newMemory(t *testing.T) (*memory.Store, memory.Space) {
	t.Helper()
	m, err := memory.New(memory.Options{Limit: 64 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	sp, err := m.NewSpace("t")
	if err != nil {
		t.Fatal(err)
	}
	return m, sp
}

// writeState makes a folder with stored rows, and gives it.
func writeState(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	m, sp := newMemory(t)
	l := m.Load(sp)
	for i := range stateRows {
		if err := l.Put(fmt.Appendf(nil, "key:%d", i), bytes.Repeat([]byte{'v'}, i%200), 0, 0, 0); err != nil {
			t.Fatal(err)
		}
	}
	l.Close()
	st := openState(t, dir, nil)
	body := stored{WrittenAt: time.Now(), From: binlog.Position{Server: "s", File: "binlog.000001", Pos: 4}, CAS: m.CASCeiling(), Seeds: m.Seeds(),
		Tables: []storedTable{{Spec: "spec", Mapped: "db.t", Table: &binlog.Table{}}}}
	var err error
	if body.Rows, err = st.writeRows(t.Context(), m.NewImage(map[memory.Space]uint16{sp: 0})); err != nil {
		t.Fatal(err)
	}
	if body.Rows.Rows != stateRows {
		t.Fatalf("%d rows were written of %d", body.Rows.Rows, stateRows)
	}
	if err := st.write(&body); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

func openState(t *testing.T, dir string, log *slog.Logger) *StateDir {
	t.Helper()
	st, err := OpenState(dir, log)
	if err != nil {
		t.Fatal(err)
	}
	return st
}

// load opens the folder and loads its rows; false if it is found unusable, which is what a damaged one must be.
func load(t *testing.T, dir string) (rows int64, usable bool, log string) {
	t.Helper()
	var text bytes.Buffer
	st := openState(t, dir, slog.New(slog.NewTextHandler(&text, nil)))
	defer st.Close()
	if st.was == nil {
		return 0, false, text.String()
	}
	m, sp := newMemory(t)
	if err := st.loadRows(t.Context(), st.was.Rows, m, []memory.Space{sp}, runtime.GOMAXPROCS(0)); err != nil {
		return 0, false, err.Error()
	}
	return m.SpaceStats(sp).Items, true, text.String()
}

// TestStateDamaged: a state folder whose files were cut, changed or are of another version is never taken for a good one.
func TestStateDamaged(t *testing.T) {
	dir := writeState(t)
	if rows, usable, why := load(t, dir); !usable || rows != stateRows {
		t.Fatalf("the undamaged state: %d rows, usable %v, %s", rows, usable, why)
	}
	files, err := filepath.Glob(filepath.Join(dir, rowsPrefix+"*"))
	if err != nil || len(files) != 1 {
		t.Fatalf("rows files: %v, %v", files, err)
	}
	rowsFile := files[0]
	state := filepath.Join(dir, stateFile)
	read := func(path string) []byte {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	goodState, goodRows := read(state), read(rowsFile)
	flip := func(b []byte, at int) []byte {
		b = bytes.Clone(b)
		b[at] ^= 0x10
		return b
	}
	type damage struct {
		name        string
		state, rows []byte // rows nil: the file is gone
	}
	cases := []damage{
		{"empty state", nil, goodRows},
		{"not a state", []byte("hello\nworld\n"), goodRows},
		{"future version", bytes.Replace(goodState, []byte("state 1 "), []byte("state 2 "), 1), goodRows},
		{"no rows file", goodState, nil},
		{"empty rows file", goodState, []byte{}},
		{"longer rows file", goodState, append(bytes.Clone(goodRows), 0)},
		{"rows of another state", goodState, bytes.Repeat([]byte{0}, len(goodRows))},
	}
	for i := 0; i < len(goodState); i += len(goodState)/8 + 1 {
		cases = append(cases, damage{fmt.Sprintf("state cut at %d", i), goodState[:i], goodRows},
			damage{fmt.Sprintf("state changed at %d", i), flip(goodState, i), goodRows})
	}
	for i := 0; i < len(goodRows); i += len(goodRows)/8 + 1 {
		cases = append(cases, damage{fmt.Sprintf("rows cut at %d", i), goodState, goodRows[:i]},
			damage{fmt.Sprintf("rows changed at %d", i), goodState, flip(goodRows, i)})
	}
	cases = append(cases, damage{"rows end changed", goodState, flip(goodRows, len(goodRows)-5)})
	for _, c := range cases {
		if err := os.WriteFile(state, c.state, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Remove(rowsFile); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		if c.rows != nil {
			if err := os.WriteFile(rowsFile, c.rows, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		rows, usable, why := load(t, dir)
		if usable {
			t.Errorf("%s: %d rows were taken", c.name, rows)
		}
		if strings.HasPrefix(c.name, "state") && !strings.Contains(why, "set aside") {
			t.Errorf("%s: nothing says that the state was set aside: %q", c.name, why)
		}
	}
}

// TestStateLock: a folder is for one process, and free again once that has closed it.
func TestStateLock(t *testing.T) {
	dir := t.TempDir()
	st := openState(t, dir, nil)
	if _, err := OpenState(dir, nil); err == nil || !strings.Contains(err.Error(), "another rowcached uses") {
		t.Errorf("a folder in use: %v", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	if err := openState(t, dir, nil).Close(); err != nil {
		t.Error(err)
	}
}

// TestStateCAS: though the clock stands still, three processes in a row choose different cas numbers, the second ending before it
// has stored anything.
func TestStateCAS(t *testing.T) {
	dir := writeState(t)
	st := openState(t, dir, nil)
	first := st.last.CAS
	ahead := *st.last
	ahead.CAS = uint64(time.Now().Add(time.Hour).UnixNano()) // the clock was set back by an hour
	if err := st.write(&ahead); err != nil {
		t.Fatal(err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	floors := []uint64{first}
	for range 3 {
		st := openState(t, dir, nil)
		if f := st.CASFloor(); f < floors[len(floors)-1]+casReserve {
			t.Errorf("a process chooses from %d, and the one before it may have come to %d", f, floors[len(floors)-1]+casReserve)
		} else {
			floors = append(floors, f)
		}
		if err := st.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
