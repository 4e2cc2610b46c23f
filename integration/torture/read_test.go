package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// fields are what a reader needs of a value.
type fields struct {
	ID   int   `json:"id"`
	Ver  int64 `json:"ver"`
	GVer int64 `json:"gver"`
}

// read reads groups and checks them, until ctx ends. Nobody answers while the daemon is down.
func (w *world) read(ctx context.Context, r *rand.Rand) error {
	var client *memcache.Client
	address := ""
	for ctx.Err() == nil {
		if now := *w.address.Load(); now != address {
			if client != nil {
				_ = client.Close()
			}
			address = now
			client = memcache.New(now)
			client.Timeout = 5 * time.Second
		}
		if err := w.readGroup(client, r); err != nil {
			if strings.HasPrefix(err.Error(), "violation") {
				return err
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	if client != nil {
		return client.Close()
	}
	return nil
}

// readGroup asks for the rows of one group of a pair of tables with one command.
func (w *world) readGroup(client *memcache.Client, r *rand.Rand) error {
	p, g := r.IntN(pairs), r.IntN(groups)
	pair := w.tables[2*p : 2*p+2]
	var keys []string
	var least [2][perGroup]int64
	var gleast [2]int64
	for i, tab := range pair {
		gleast[i] = tab.gnewest[g].Load()
		for j := range perGroup {
			least[i][j] = tab.newest[g*perGroup+j].Load()
			keys = append(keys, fmt.Sprintf("%s:%d", tab.name, g*perGroup+j))
		}
	}
	items, err := client.GetMulti(keys)
	if err != nil {
		return err
	}
	w.count.reads.Add(int64(len(keys)))
	w.count.hits.Add(int64(len(items)))
	w.count.groupsRead.Add(1)
	seen := map[int64]string{}
	for i, tab := range pair {
		for j := range perGroup {
			id := g*perGroup + j
			key := fmt.Sprintf("%s:%d", tab.name, id)
			item := items[key]
			if item == nil {
				continue
			}
			var f fields
			if err := json.Unmarshal(item.Value, &f); err != nil {
				return fmt.Errorf("violation: %s holds %q: %w", key, item.Value, err)
			}
			switch {
			case f.ID != id:
				return fmt.Errorf("violation: %s holds the row %d", key, f.ID)
			case f.Ver >= poison || f.GVer >= poison:
				return fmt.Errorf("violation: %s holds what was rolled back: %s", key, item.Value)
			case f.Ver < least[i][j] || f.GVer < gleast[i]:
				return fmt.Errorf("violation: %s went back (G2): version %d after %d, group version %d after %d", key, f.Ver, least[i][j], f.GVer, gleast[i])
			}
			raise(&tab.newest[id], f.Ver)
			raise(&tab.gnewest[g], f.GVer)
			seen[f.GVer] = key
		}
	}
	if len(seen) > 1 {
		return fmt.Errorf("violation: a transaction is torn (G3): one get gave the group versions %v", seen)
	}
	return nil
}

func raise(to interface {
	Load() int64
	CompareAndSwap(old, new int64) bool
}, v int64) {
	for old := to.Load(); v > old; old = to.Load() {
		if to.CompareAndSwap(old, v) {
			return
		}
	}
}
