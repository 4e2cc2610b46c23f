package memory

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math/bits"
	"sync"
	"sync/atomic"
)

// Options say how large a store may get.
type Options struct {
	// Limit is in bytes and counts everything: items, index, free and retired slots.
	// 0: 64 MiB. The smallest is 1 MiB.
	Limit int64
	// MaxItemSize is in bytes as memcached counts an item (its header of 56 bytes,
	// key, data). 0: 1 MiB.
	MaxItemSize int
	// Clock gives unix seconds; nil: the system's, read ten times a second. An
	// injected clock is read at every Begin.
	Clock func() int64
	// NoEvict makes client writes fail with ErrNoMemory instead of evicting (memcached -M).
	NoEvict bool
	// Seeds of the hash, as Store.Seeds of an earlier process gave them; zero: random ones.
	Seeds [2]uint64
	// CASFloor is below every cas that the store chooses, whatever the clock says: Store.CASCeiling of an earlier process.
	CASFloor uint64
}

const (
	minLimit       = 1 << 20
	defaultLimit   = 64 << 20
	defaultMaxItem = 1 << 20
	segmentPer     = 256 << 10 // bytes of the limit for each segment of the index
)

// Store is the memory tier.
type Store struct {
	region  region
	table   spanTable
	layout  *layout
	pools   [kinds][totalClasses]pool
	queues  queues
	evictor evictor
	pins    pinTable

	segments     []segment
	segmentShift uint
	seeds        seeds
	indexBytes   atomic.Int64

	spaces  spaceTable
	publish publisher
	members members
	epoch   atomic.Uint64 // 1 at first

	seq     atomic.Uint64 // of the last change
	casBase uint64        // wall clock in nanoseconds at start, or Options.CASFloor
	flush   struct {
		seq atomic.Uint64 // unmapped items up to this change are gone
		at  atomic.Int64  // unix seconds at which seq will be set; 0 none
	}

	clock struct {
		read     func() int64
		injected bool
		now      atomic.Int64
		shift    atomic.Int64
	}
	started int64 // unix seconds, a little before the start

	maxItem   int
	noEvict   bool
	limit     atomic.Int64
	fixed     int64 // bytes of the limit for what is not in the region
	keeper    keeper
	closeOnce sync.Once
}

// New makes an empty store and starts its keeper, the one goroutine that reads the
// clock, sweeps and compacts; Close waits for it.
func New(o Options) (*Store, error) {
	if o.Limit == 0 {
		o.Limit = defaultLimit
	}
	if o.Limit < minLimit {
		return nil, fmt.Errorf("memory limit of %d bytes is below the smallest of %d", o.Limit, minLimit)
	}
	if o.MaxItemSize == 0 {
		o.MaxItemSize = defaultMaxItem
	}
	if o.MaxItemSize > 1<<30 {
		return nil, fmt.Errorf("item size of %d bytes is above the largest of %d", o.MaxItemSize, 1<<30)
	}
	s := &Store{maxItem: o.MaxItemSize, noEvict: o.NoEvict}
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return nil, fmt.Errorf("seed the hash: %w", err)
	}
	s.seeds = seeds{binary.LittleEndian.Uint64(random[:]), binary.LittleEndian.Uint64(random[8:]) | 1}
	if o.Seeds != [2]uint64{} {
		s.seeds = seeds{o.Seeds[0], o.Seeds[1] | 1}
	}

	s.clock.read = o.Clock
	s.clock.injected = o.Clock != nil
	if o.Clock == nil {
		s.clock.read = wallClock
	}
	s.started = s.clock.read() - 2
	s.casBase = max(uint64(nanoClock()), o.CASFloor)
	s.tick()
	s.epoch.Store(1)
	s.members.all.Store(&[]*participant{})
	s.publish.sessions.Store(&[]*Session{})

	n := uint64(min(max(o.Limit/segmentPer, 16), 1<<16))
	n = 1 << (bits.Len64(n - 1))
	s.segments = make([]segment, n)
	s.segmentShift = uint(64 - bits.Len64(n-1))
	for sp := 1; sp < maxSpaces; sp++ {
		s.spaces.states[sp].Store(spaceUnused)
	}
	s.spaces.states[0].Store(spaceOpen)

	s.layout = newLayout(o.Limit)
	if err := s.region.open(o.Limit, s.layout.span); err != nil {
		return nil, err
	}
	s.fixed = int64(n) * 64
	if err := s.SetLimit(o.Limit); err != nil {
		return nil, err
	}
	s.evictor.part = s.join()
	s.startKeeper()
	return s, nil
}

// Limit is the memory limit in bytes.
func (s *Store) Limit() int64 { return s.limit.Load() }

// SetLimit changes the memory limit while the store is in use (cache_memlimit). A
// lower one takes effect as items are evicted. It may grow as far as
// address space was reserved: to 7 GiB or, above 4 GiB, 1.7 times what New was given.
func (s *Store) SetLimit(bytes int64) error {
	if bytes < minLimit {
		return fmt.Errorf("memory limit of %d bytes is below the smallest of %d", bytes, minLimit)
	}
	if room := s.region.roomFor(); bytes > room {
		return fmt.Errorf("memory limit of %d bytes is above the %d that address space was reserved for; start with a higher limit", bytes, room)
	}
	s.limit.Store(bytes)
	s.region.setLimit((bytes - s.fixed) >> grainShift)
	s.wakeKeeper()
	return nil
}

// Close stops the keeper and gives the memory back. No session, loader or batch may be
// in use, and no item may be read afterwards.
func (s *Store) Close() error {
	var err error
	s.closeOnce.Do(func() {
		s.stopKeeper()
		err = s.region.close()
	})
	return err
}
