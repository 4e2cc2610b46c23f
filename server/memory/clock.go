package memory

import "time"

// now is the cached time in unix seconds; the keeper refreshes it ten times a second.
func (s *Store) now() int64 { return s.clock.now.Load() }

// tick reads the clock, and lets a flush_all whose time has come take effect.
func (s *Store) tick() int64 {
	now := s.clock.read() + s.clock.shift.Load()
	s.clock.now.Store(now)
	if at := s.flush.at.Load(); at != 0 && now >= at && s.flush.at.CompareAndSwap(at, 0) {
		s.flush.seq.Store(s.seq.Load())
	}
	return now
}

// AdjustClock moves the store's time by delta seconds (the debugtime command).
func (s *Store) AdjustClock(delta int64) {
	s.clock.shift.Add(delta)
	s.tick()
}

// Now is the store's time in unix seconds.
func (s *Store) Now() int64 {
	if s.clock.injected {
		return s.tick()
	}
	return s.now()
}

func wallClock() int64 { return time.Now().Unix() }

func nanoClock() int64 { return time.Now().UnixNano() }

// expiry32 turns an absolute expiry into the stored form: 0 never, 1 (long past)
// for what is negative.
func expiry32(unix int64) uint32 {
	switch {
	case unix == 0:
		return 0
	case unix < 0:
		return 1
	case unix > 1<<32-1:
		return 1<<32 - 1
	}
	return uint32(unix)
}

// accessNow is the access word of an item stored or read at unix second now.
func (s *Store) accessNow(now int64) uint32 {
	return uint32(max(now-s.started, 0)) << accessShift
}
