package server

// Metrics are the server's figures for a scrape.
type Metrics struct {
	Commands     []CommandCount
	Connections  int64
	Accepted     uint64
	Rejected     uint64
	Stalled      uint64 // closed because of what was held for them
	BytesRead    uint64
	BytesWritten uint64
	Engine       string
}

// CommandCount is how often a command had a result.
type CommandCount struct {
	Command string
	Result  string
	Count   uint64
}

// Metrics adds up what the loops have counted. It may be called at any time.
func (s *Server) Metrics() Metrics {
	t := s.totals()
	m := Metrics{
		Connections: s.current.Load(), Accepted: s.accepted.Load(), Rejected: s.rejected.Load(), Stalled: s.stalled.Load(),
		BytesRead: t[cBytesRead], BytesWritten: t[cBytesWritten],
	}
	m.Engine, _ = s.engineName.Load().(string)
	for _, c := range [...]struct {
		command, result string
		k               counter
	}{
		{"get", "hit", cGetHit}, {"get", "miss", cGetMiss},
		{"set", "received", cSet}, {"set", "too_large", cTooLarge}, {"set", "no_memory", cNoMemory},
		{"cas", "hit", cCASHit}, {"cas", "mismatch", cCASBad}, {"cas", "miss", cCASMiss},
		{"delete", "hit", cDeleteHit}, {"delete", "miss", cDeleteMiss},
		{"incr", "hit", cIncrHit}, {"incr", "miss", cIncrMiss},
		{"decr", "hit", cDecrHit}, {"decr", "miss", cDecrMiss},
		{"touch", "hit", cTouchHit}, {"touch", "miss", cTouchMiss},
		{"flush_all", "received", cFlush},
		{"auth", "received", cAuth}, {"auth", "error", cAuthError},
		{"write", "refused", cRefused},
		{"get", "withheld", cWithheld},
	} {
		m.Commands = append(m.Commands, CommandCount{c.command, c.result, t[c.k]})
	}
	return m
}

// totals adds the workers' counters up, since the start.
func (s *Server) totals() (t totals) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.workers {
		t.add(&w.count)
	}
	return t
}
