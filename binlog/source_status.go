package binlog

import (
	"sync/atomic"
	"time"
)

// State is where the connection to the source stands.
type State uint8

// The states.
const (
	StateClosed     State = iota // not opened, or closed
	StateConnecting              // trying, or waiting to try again
	StateConnected               // the log flows
	StateLost                    // ErrPositionLost: Open has to be called anew
)

// String gives the state as a word.
func (s State) String() string {
	switch s {
	case StateConnecting:
		return "connecting"
	case StateConnected:
		return "connected"
	case StateLost:
		return "position_lost"
	default:
		return "closed"
	}
}

// Status tells how a source does.
type Status struct {
	State       State
	Connected   bool
	LastError   error     // what ended the last connection or attempt; nil once that is over
	LastErrorAt time.Time // when
	ConnectedAt time.Time
	Reconnects  uint64 // connections made after the first
	Version     string // the server's
	MariaDB     bool
	ServerID    uint32 // ours
	HeartbeatAt time.Time
	PacketAt    time.Time // when anything was last read
	BytesTotal  uint64
	Events      map[string]uint64 // by event type's name
}

// Status gives a copy of the present state.
func (s *Source) Status() Status {
	s.mu.Lock()
	st := s.status
	s.mu.Unlock()
	st.Connected = st.State == StateConnected
	st.ServerID = s.serverID.Load()
	st.BytesTotal = s.counts.bytes.Load()
	st.HeartbeatAt = nanoTime(s.counts.heartbeat.Load())
	st.PacketAt = nanoTime(s.counts.packet.Load())
	st.Events = make(map[string]uint64)
	for i := range s.counts.published {
		if n := s.counts.published[i].Load(); n > 0 {
			st.Events[eventTypeName(byte(i))] += n
		}
	}
	return st
}

func nanoTime(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// eventCounts counts by event type. The reader counts in plain memory and publishes whenever it goes to the network, so
// that an event costs no atomic operation.
type eventCounts struct {
	local     [256]uint64
	dirty     bool
	published [256]atomic.Uint64
	bytes     atomic.Uint64
	heartbeat atomic.Int64
	packet    atomic.Int64
}

func (c *eventCounts) add(typ byte) {
	c.local[typ]++
	c.dirty = true
}

// publish makes the counts visible to Status.
func (c *eventCounts) publish() {
	if !c.dirty {
		return
	}
	c.dirty = false
	for i, n := range c.local {
		if n != 0 {
			c.published[i].Add(n)
			c.local[i] = 0
		}
	}
}

// setState records and, when it changed, logs the state. err is what led to it.
func (s *Source) setState(state State, err error) {
	s.mu.Lock()
	before := s.status.State
	beforeErr := s.status.LastError
	s.status.State = state
	if state != StateConnected || faultClass(beforeErr) != faultDuplicate { // that one is not over yet
		s.status.LastError = err
	}
	if err != nil {
		s.status.LastErrorAt = time.Now()
	}
	if state == StateConnected {
		if !s.status.ConnectedAt.IsZero() {
			s.status.Reconnects++
		}
		s.status.ConnectedAt = time.Now()
		s.status.Version, s.status.MariaDB = s.server.version, s.server.mariadb
	}
	s.mu.Unlock()
	switch {
	case state == StateConnected:
		s.log.Info("following the source", "version", s.server.version, "position", s.Position().String())
	case state == StateLost:
		s.log.Error("the source cannot go on from this position", "error", err)
	case state == StateConnecting && err != nil && (before != StateConnecting || faultClass(beforeErr) != faultClass(err)):
		s.log.Warn("not connected to the source; trying again", "error", err)
	}
}
