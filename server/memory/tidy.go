package memory

// Segments grow each in its own time, so those that grow last keep whole spans of
// lines in use that all others have left. The keeper grows them a little early, and gives
// lines back that were needed for items long gone.

// tidySteps is how many segments one round of the keeper resizes, some ten microseconds each.
const tidySteps = 256

// tidyIndex resizes segments whose lines waste memory.
func (s *Store) tidyIndex() {
	var largest int
	var sparse [totalClasses]bool
	found := false
	for class := range s.layout.sizes {
		p := &s.pools[kindIndex][class]
		p.mu.Lock()
		used, slots, spans := p.used, p.slots, p.spans
		p.mu.Unlock()
		if used != 0 {
			largest = class
		}
		sparse[class] = spans > 1 && used*4 < slots*3
		found = found || sparse[class]
	}
	steps := tidySteps
	for i := range s.segments {
		if steps == 0 {
			return
		}
		g := &s.segments[i]
		desc := g.desc.Load()
		lines, count := desc&tagMask, uint64(g.count.load())
		switch class := s.layout.classOf(int(lines) * lineBytes); {
		case lines > 64 && count < lines*lineWords*3/10:
			s.resize(g, s.keeper.part, desc, count/(lineWords-3)+16, false)
			steps--
		case found && class < largest && sparse[class] && !s.region.tight.Load():
			s.resize(g, s.keeper.part, desc, lines+lines/6, false)
			steps--
		}
	}
}
