package servers

import (
	"strings"
	"sync"
)

// A logBuffer keeps what a child writes and wakes those who wait for a line of it.
type logBuffer struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
	grew chan struct{}   // guarded by mu; closed and replaced at each write
}

func newLogBuffer() *logBuffer { return &logBuffer{grew: make(chan struct{})} }

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.Write(p)
	close(b.grew)
	b.grew = make(chan struct{})
	return len(p), nil
}

// String returns all that was written so far.
func (b *logBuffer) String() string {
	text, _ := b.snapshot()
	return text
}

// snapshot returns all that was written so far and a channel that is closed at the next write.
func (b *logBuffer) snapshot() (string, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String(), b.grew
}
