package torture

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os/exec"
	"slices"
	"strconv"
	"time"

	"github.com/rowcached/rowcached/integration/scenario"
	"github.com/rowcached/rowcached/integration/servers"
)

// settle stops everybody who changes anything, waits for the daemon, and compares every key with its row.
func (w *world) settle() error {
	w.quiet.Lock()
	defer w.quiet.Unlock()
	ready := func() error { return w.daemon.Ready() }
	if err := eventually(ready); err != nil {
		return fmt.Errorf("not ready though everybody is quiet: %w", err)
	}
	for _, tab := range w.tables {
		if err := eventually(func() error { return w.compare(tab) }); err != nil {
			return fmt.Errorf("violation (G1): %w", err)
		}
	}
	if err := w.verify(); err != nil {
		return err
	}
	w.count.quiets.Add(1)
	return nil
}

func eventually(f func() error) error {
	for deadline := time.Now().Add(readyLimit); ; {
		err := f()
		if err == nil || time.Now().After(deadline) {
			return err
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// compare holds the keys of a table against its rows.
func (w *world) compare(tab *table) error {
	want, err := scenario.Items(context.Background(), w.source().DB(), "db."+tab.name)
	if err != nil {
		return err
	}
	keys := slices.Collect(maps.Keys(want))
	for id := range groups * perGroup {
		if key := fmt.Sprintf("%s:%d", tab.name, id); want[key] == nil {
			keys = append(keys, key)
		}
	}
	n := 0
	for part := range slices.Chunk(keys, 100) {
		got, err := w.daemon.Fetch(part...)
		if err != nil {
			return err
		}
		for _, key := range part {
			value, hit := got[key]
			row, is := want[key]
			if hit != is || string(value) != string(row) {
				return fmt.Errorf("%s: served %q (hit: %v), the row makes %q (row: %v)", key, value, hit, row, is)
			}
			n++
		}
	}
	body, err := w.items(tab)
	if err != nil {
		return err
	}
	if body != len(want) {
		return fmt.Errorf("%s: %d items in memory, %d rows", tab.name, body, len(want))
	}
	w.count.compared.Add(int64(n))
	return nil
}

// items is the daemon's own count of a table's items.
func (w *world) items(tab *table) (int, error) {
	v, err := strconv.ParseFloat(w.daemon.Metric(`rowcached_items{table="`+tab.name+`"}`), 64)
	return int(v), err
}

// verify has the product compare for itself.
func (w *world) verify() error {
	out, err := exec.Command(servers.Binary(w.t), "verify", "--admin.listen", w.daemon.Admin()).CombinedOutput()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("rowcached verify: exit code %d: %s", exit.ExitCode(), out)
	}
	return err
}
