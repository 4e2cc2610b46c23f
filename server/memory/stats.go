package memory

import "math/bits"

// Stats are the store's counters and sizes; names follow memcached's `stats` where it has one.
type Stats struct {
	Items      int64 // curr_items: all spaces, those that are hidden included
	TotalItems int64 // total_items: items ever stored
	ItemBytes  int64 // bytes: of items with their headers
	Bytes      int64 // everything, as the limit counts it
	Limit      int64 // limit_maxbytes

	Evictions        int64
	EvictedUnfetched int64
	EvictedActive    int64
	ExpiredUnfetched int64
	Reclaimed        int64 // expired or flushed items removed by whoever needed the room or the key
	CrawlerReclaimed int64 // removed in the background
	GetExpired       int64
	GetFlushed       int64
	NoMemory         int64 // store_no_memory
	TooLarge         int64 // store_too_large

	HashPowerLevel int64 // the power of two at or above the words of the index
	HashBytes      int64

	Moved     int64 // items moved by promotion and compaction
	Retired   int64 // slots that wait until no session can see them
	Pinned    int64 // of these, slots that a queued send holds
	Published int64 // batches
	Stepped   int64 // batches above MaxAtomicBatch, which became visible in steps (G3)

	ByKind  []KindBytes
	Classes []ClassStats
}

// KindBytes is how much of the limit one kind of memory takes.
type KindBytes struct {
	Kind  string // unmapped, mapped, index, fixed
	Bytes int64
}

// ClassStats describe the slots of one size for `stats slabs` and `stats items`.
type ClassStats struct {
	Class  int // from 1
	Size   int // bytes of a slot; the largest class holds single items of any size
	Pages  int // spans
	Slots  int64
	Used   int64
	Young  int64 // of Used: unmapped and not read again yet
	Old    int64 // of Used: unmapped and read again
	Mapped int64 // of Used: rows
	Bytes  int64 // of the limit
}

// PinnedBytes is how many bytes of replaced, deleted and evicted items cannot be used
// again yet because they are pinned. It may be called at any time.
func (s *Store) PinnedBytes() (n int64) {
	for _, p := range *s.members.all.Load() {
		n += p.limbo.stuck.Load()
	}
	return n
}

// Stats takes some microseconds; the parts are not of one instant.
func (s *Store) Stats() Stats {
	var c counters
	s.members.mu.Lock()
	c.merge(&s.members.past)
	s.members.mu.Unlock()
	st := Stats{Limit: s.limit.Load(), HashBytes: s.indexBytes.Load()}
	for _, p := range *s.members.all.Load() {
		c.merge(&p.count)
		st.Pinned += p.limbo.held.Load()
		st.Retired += p.limbo.n.Load() + p.limbo.held.Load()
	}
	st.TotalItems = int64(c.stored.load())
	st.Evictions = int64(c.evictions.load())
	st.EvictedUnfetched = int64(c.evictedUnfetched.load())
	st.EvictedActive = int64(c.evictedActive.load())
	st.ExpiredUnfetched = int64(c.expiredUnfetched.load() + c.sweptUnfetched.load())
	st.Reclaimed = int64(c.expired.load())
	st.CrawlerReclaimed = int64(c.swept.load())
	st.GetExpired = int64(c.missExpired.load())
	st.GetFlushed = int64(c.missFlushed.load())
	st.NoMemory = int64(c.noMemory.load())
	st.TooLarge = int64(c.tooLarge.load())
	st.Moved = int64(c.moved.load())
	st.Published = int64(c.published.load())
	st.Stepped = int64(c.stepped.load())
	st.HashPowerLevel = int64(bits.Len64(uint64(max(st.HashBytes/8, 1)) - 1))

	for i := range s.segments {
		st.Items += s.segments[i].items.load()
		st.ItemBytes += s.segments[i].bytes.load()
	}
	for sp := 1; sp < maxSpaces; sp++ {
		if s.spaces.states[sp].Load() <= spaceOpen {
			st.Items += s.spaces.counts[sp].items.Load()
			st.ItemBytes += s.spaces.counts[sp].bytes.Load()
		}
	}
	st.Bytes = s.region.usedN.Load()<<grainShift + s.fixed
	st.ByKind, st.Classes = s.poolStats()
	st.ByKind = append(st.ByKind, KindBytes{"fixed", s.fixed})
	return st
}

func (s *Store) poolStats() ([]KindBytes, []ClassStats) {
	var classes []ClassStats
	var bytes [kinds]int64
	for class := range totalClasses {
		c := ClassStats{Class: class + 1}
		if class < len(s.layout.sizes) {
			c.Size = s.layout.slotSize(class)
		}
		for k := range kinds {
			p := &s.pools[k][class]
			p.mu.Lock()
			spans, slots, used, grains := p.spans, p.slots, p.used, p.grains
			p.mu.Unlock()
			bytes[k] += grains << grainShift
			if k == kindIndex {
				continue
			}
			c.Pages += spans
			c.Slots += slots
			c.Used += used
			c.Bytes += grains << grainShift
			switch k {
			case kindYoung:
				c.Young = used
			case kindOld:
				c.Old = used
			case kindMapped:
				c.Mapped = used
			}
		}
		if c.Pages != 0 {
			classes = append(classes, c)
		}
	}
	return []KindBytes{
		{"unmapped", bytes[kindYoung] + bytes[kindOld]},
		{"mapped", bytes[kindMapped]},
		{"index", bytes[kindIndex]},
	}, classes
}
