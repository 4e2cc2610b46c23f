package bench

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// worker is what one thread of the load side shares among its clients: the choice of requests, and the counts. Only that
// thread uses it until the round is over.
type worker struct {
	spec   *Spec
	space  *keyspace
	proto  dialect
	clock  func() time.Duration // since the round began
	picker *chooser
	rng    *rand.PCG // of mixed's kinds
	sets   uint64    // a draw below it is a set, of mixed

	// The round's times, since its beginning.
	from, until time.Duration
	counting    bool
	ended       bool // no new requests
	quota       int  // requests still to be sent that count; -1: any number
	each        time.Duration
	due         time.Duration // when the next batch is to be sent, of a paced round
	sequence    uint32        // the next key, of a fill
	fills       bool

	requests, hits, misses, errors uint64
	reported                       func(requests uint64) // adds to what progress shows
	unreported                     uint64
	firstFault                     string
	gets, stores                   *Histogram
	idle                           time.Duration // spent waiting while counting; -1: unknown
	counted                        time.Duration // the time over which was counted
}

// dialect is one of the protocols.
type dialect interface {
	// request appends a request to the client's output.
	request(c *client, kind uint8)
	// reply reads on in the current reply: the bytes used, and whether it is complete. An error ends the connection.
	reply(c *client, b []byte) (n int, done bool, err error)
}

func dialectOf(name string, space *keyspace) dialect {
	switch name {
	case Binary:
		return binaryDialect{}
	case Meta:
		return newMetaDialect(space)
	default:
		return newTextDialect(space)
	}
}

// keysOf is how many keys a request of the kind names.
func (w *worker) keysOf(kind uint8) int {
	if kind == getRequest {
		return w.spec.perGet()
	}
	return 1
}

// next chooses the next request's kind; false: there is none.
func (w *worker) next() (uint8, bool) {
	if w.ended || w.quota == 0 {
		return 0, false
	}
	if w.quota > 0 && w.counting {
		w.quota--
	}
	switch {
	case w.fills || w.spec.Workload == Set:
		return setRequest, true
	case w.spec.Workload == Mixed && w.rng.Uint64()>>1 < w.sets:
		return setRequest, true
	}
	return getRequest, true
}

func (w *worker) choose() uint32 {
	if w.fills {
		w.sequence++
		return w.sequence - 1
	}
	return w.picker.next()
}

// count counts a reply that is complete.
func (w *worker) count(c *client, now time.Duration) {
	w.unreported++
	if w.unreported == 1024 {
		w.reported(w.unreported)
		w.unreported = 0
	}
	if !w.counting || w.quota >= 0 && !c.counted {
		return
	}
	w.requests++
	w.hits += c.hits
	w.misses += c.misses
	h := w.gets
	if c.kinds[c.at] == setRequest {
		h = w.stores
	}
	h.Record(now - c.began)
}

// fault counts a wrong reply. The first one is kept as text.
func (w *worker) fault(format string, args ...any) {
	w.errors++
	if w.firstFault == "" {
		w.firstFault = fmt.Sprintf(format, args...)
	}
}

// tick keeps the round's times.
func (w *worker) tick(now time.Duration) {
	switch {
	case !w.counting && !w.ended && now >= w.from:
		w.until += now - w.from // a thread that was kept waiting does not count for less time
		w.due = max(w.due, now) // what the warm-up could not send in time is dropped
		w.counting, w.from = true, now
	case w.counting && w.quota < 0 && now >= w.until:
		w.end(now)
	}
}

// end stops asking and counting.
func (w *worker) end(now time.Duration) {
	if w.counting {
		w.counted = now - w.from
	}
	w.counting, w.ended = false, true
}

// overdue tells whether a paced batch is to be sent, and the time that it was due at.
func (w *worker) overdue(now time.Duration) (time.Duration, bool) {
	due := w.due
	if due > now {
		return 0, false
	}
	w.due += w.each
	return due, true
}

// waited notes that the thread had nothing to do.
func (w *worker) waited(d time.Duration) {
	if w.counting {
		w.idle += d
	}
}

// longestPause is how long a thread sleeps before it looks at the time again.
const longestPause = 5 * time.Millisecond

// pause is how long the thread may wait for replies: until the round's next time, or that of the next paced batch.
func (w *worker) pause(now time.Duration, free bool) time.Duration {
	p := longestPause
	if !w.counting && !w.ended {
		p = min(p, w.from-now)
	} else if w.counting && w.quota < 0 {
		p = min(p, w.until-now)
	}
	if w.each > 0 && free {
		p = min(p, w.due-now)
	}
	return p
}
