package memory

import (
	"context"
	"sync"
	"time"
)

// keeper is the goroutine that reads the clock, frees what was retired, sweeps
// expired items and dropped spaces, and keeps room when memory is tight.
type keeper struct {
	stop context.CancelFunc
	done chan struct{}
	wake chan struct{}

	mu        sync.Mutex   // held during a round
	part      *participant // mu
	flushSeen uint64       // the flush whose items were swept; mu
}

const keeperPeriod = 100 * time.Millisecond

func (s *Store) startKeeper() {
	ctx, stop := context.WithCancel(context.Background())
	k := &s.keeper
	k.stop, k.done, k.wake = stop, make(chan struct{}), make(chan struct{}, 1)
	k.part = s.join()
	go func() {
		defer close(k.done)
		s.keep(ctx)
	}()
}

func (s *Store) stopKeeper() {
	s.keeper.stop()
	<-s.keeper.done
}

func (s *Store) wakeKeeper() {
	select {
	case s.keeper.wake <- struct{}{}:
	default:
	}
}

func (s *Store) keep(ctx context.Context) {
	t := time.NewTicker(keeperPeriod)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-t.C:
		case <-s.keeper.wake:
		}
		s.round(ctx)
	}
}

// round is one turn of the keeper's work.
func (s *Store) round(ctx context.Context) {
	s.keeper.mu.Lock()
	defer s.keeper.mu.Unlock()
	if !s.clock.injected {
		s.tick()
	}
	s.reclaim()
	s.sweep(ctx)
	s.tidyIndex()
	s.releaseLasts()
	s.region.trim()
	for s.region.tight.Load() && ctx.Err() == nil && s.evictor.mu.TryLock() {
		looked := s.evictStepLocked(stepSlots)
		s.evictor.mu.Unlock()
		if !looked {
			break
		}
	}
}
