// Package torture is the long test: random tables of all types, random transactions, schema changes, cut networks, killed
// dump threads, killed daemons and failovers, while readers check that no key goes back (G2) and that no transaction is
// torn (G3). At quiet points every key must equal its row (G1).
//
// It runs for a few seconds with the other tests. make torture runs it for ten minutes on each server:
//
//	make torture TIME=30m KINDS=mysql97 SEED=42
package torture

import (
	"flag"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

var (
	length = flag.Duration("torture.time", 12*time.Second, "how long each server is tortured")
	seed   = flag.Uint64("torture.seed", 1, "seed of the random choices; 0: a random one")
	kinds  = flag.String("torture.kinds", "mysql97 mariadb1011", "the servers")
	calm   = flag.Duration("torture.quiet", 15*time.Second, "time between two quiet points")
	avoid  = flag.String("torture.avoid", "failover", "words of disturbances that are left out: kill term dump cut slow stall flush purge server failover ddl")
)

func TestTorture(t *testing.T) {
	for _, kind := range strings.Fields(*kinds) {
		t.Run(kind, func(t *testing.T) {
			s := *seed
			if s == 0 {
				s = rand.Uint64()
			}
			t.Logf("seed %d", s)
			w := newWorld(t, servers.Kind(kind), s)
			w.run(*length)
			t.Log(w.count.String())
		})
	}
}
