package memory

import "sync/atomic"

// counter has one writer, its participant, and any number of readers. An addition
// so costs a plain store instead of a locked instruction.
type counter struct{ v uint64 }

func (c *counter) add(n uint64) { storeRelaxed64(&c.v, c.v+n) }
func (c *counter) load() uint64 { return atomic.LoadUint64(&c.v) }

// gauge is changed with a lock held, and read without.
type gauge struct{ v uint64 }

func (g *gauge) add(n int64) { storeRelaxed64(&g.v, g.v+uint64(n)) }
func (g *gauge) load() int64 { return int64(atomic.LoadUint64(&g.v)) }

// counters is what a participant counts. Stats sums them.
type counters struct {
	stored           counter // items ever linked
	drafts           counter // slots taken for an item
	settled          counter // of these: linked or given back
	evictions        counter
	evictedUnfetched counter
	evictedActive    counter // had been read in the last minute
	expired          counter // found expired or flushed, and removed, by whoever needed room
	expiredUnfetched counter
	swept            counter // expired or flushed, removed in the background
	sweptUnfetched   counter
	missExpired      counter
	missFlushed      counter
	moved            counter // by compaction and promotion
	noMemory         counter
	tooLarge         counter
	stepped          counter // publications of more than MaxAtomicBatch changes
	published        counter // publications
	ghosts           counter // stored again soon after their eviction
}

func (c *counters) all() [18]*counter {
	return [...]*counter{&c.stored, &c.drafts, &c.settled, &c.evictions, &c.evictedUnfetched, &c.evictedActive, &c.expired,
		&c.expiredUnfetched, &c.swept, &c.sweptUnfetched, &c.missExpired, &c.missFlushed, &c.moved, &c.noMemory,
		&c.tooLarge, &c.stepped, &c.published, &c.ghosts}
}

// merge adds the counts of another.
func (c *counters) merge(from *counters) {
	to := c.all()
	for i, f := range from.all() {
		to[i].add(f.load())
	}
}
