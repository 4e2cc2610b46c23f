package server

import (
	"time"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// longLine is how much of a get line is held so that its keys are looked up
// together (G3: all or none of a transaction's rows). The keys of a longer line
// are answered as they arrive.
const longLine = 1 << 20

// readBytes is how much one read takes in at most, which also is a connection's turn.
const readBytes = 64 << 10

// turnBytes is how many bytes are sent to a connection that has more to come, or copied in memory
// for it, before others get their turn. Statistics count as statWork.
const (
	turnBytes = 1 << 20
	statWork  = 64 << 10
)

// groupKeys is how many keys are looked up at once.
const groupKeys = memory.GroupKeys

// drainTime is how long replies may take that are being sent when the server stops.
const drainTime = 5 * time.Second

// worker executes requests. It belongs to one loop and is used by one goroutine
// at a time.
type worker struct {
	srv    *Server
	sess   *memory.Session
	inside bool // between the session's Begin and End
	out    *output
	count  counters

	keys  [groupKeys][]byte // of look-ups in groups
	items [groupKeys]memory.Item
	cold  [][]byte // keys of commands that are about to be executed (warm)
	runs  bool     // gets that came together may be looked up together

	text    protocol.Text
	meta    protocol.Meta
	bin     protocol.Binary
	binNow  binaryStore
	metaNow metaStore // of an ms whose block is at hand
	again   bool      // the command at hand waits for the output to be sent

	reserved uint  // values that memory was asked for
	work     int64 // of commands that take long, in bytes that might have been copied meanwhile
	over     bool  // serve stopped because of that: others have their turn

	keyBuf  [protocol.MaxKey + 6]byte // of a base64 key
	itemBuf []byte                    // of a rewritten key
}

func newWorker(s *Server) *worker {
	return &worker{srv: s, sess: s.cfg.Memory.NewSession(), out: newOutput(s.cfg.NoCAS), itemBuf: make([]byte, 0, 1024), cold: make([][]byte, 0, groupKeys), runs: s.cfg.RequestsPerTurn == 0}
}

// enter begins a group of lookups that sees whole transactions; leave ends it.
// No system call is made in between.
func (w *worker) enter() {
	if !w.inside {
		w.sess.Begin()
		w.inside = true
	}
}

func (w *worker) leave() {
	if w.inside {
		w.sess.End()
		w.inside = false
	}
}

// serve executes what in holds, as far as it is complete and there is room for
// replies, and says how many bytes it used up. more: it stopped for want of
// room, and is to be called again once the output was sent. Views of items stay
// valid until the session's Release, which is the caller's to do after sending.
func (w *worker) serve(c *conn, in []byte) (used int, more bool) {
	total := len(in)
	turn := w.srv.cfg.RequestsPerTurn
	w.work, w.over = -w.sess.Copied(), false
	for c.phase != phaseClosed {
		if w.out.full() {
			w.leave()
			return total - len(in), true
		}
		if c.swallow > 0 {
			n := min(c.swallow, len(in))
			c.swallow -= n
			in = in[n:]
			if c.swallow > 0 {
				break
			}
		}
		n := 0
		switch c.phase {
		case phaseBody:
			n = w.body(c, in)
		case phaseKeys:
			n = w.moreKeys(c, in)
		case phaseLine:
			n = w.skipLine(c, in)
		default:
			if len(in) == 0 {
				w.leave()
				return total, false
			}
			n = w.command(c, in)
			if w.work+w.sess.Copied() > turnBytes && n > 0 && n < len(in) && c.phase != phaseClosed {
				w.over = true
				w.leave()
				return total - len(in) + n, true
			}
			if n > 0 && turn > 0 {
				if turn--; turn == 0 && n < len(in) && c.phase != phaseClosed {
					w.count.add(cYield, 1)
					w.leave()
					return total - len(in) + n, true
				}
			}
		}
		if n == 0 {
			break
		}
		in = in[n:]
	}
	w.leave()
	more, w.again = w.again, false
	return total - len(in), more
}

// command executes the first request of in; 0: it is not complete.
func (w *worker) command(c *conn, in []byte) int {
	if !c.known {
		c.known = true
		c.binary = in[0] == protocol.BinaryRequest
		if !w.admit(c) {
			return 0
		}
	}
	if c.binary {
		return w.binaryCommand(c, in)
	}
	if !c.authed {
		return w.textLogin(c, in)
	}
	n, next := protocol.LineEnd(in[c.scanned:])
	if w.runs && !w.srv.prefixes.on.Load() && len(in)-next >= 8 && string(in[next:next+4]) == "get " && next > 0 && c.scanned == 0 {
		if used := w.getRun(in); used > 0 {
			return used
		}
	}
	if next == 0 {
		c.scanned = len(in)
		return w.unfinishedLine(c, in)
	}
	n, next, c.scanned = n+c.scanned, next+c.scanned, 0
	if n > 0 && in[n-1] == '\r' && next == n+1 { // CR and LF came apart
		n--
	}
	if n = w.line(c, in[:n], in[next:]); n == tryAgain {
		w.again = true
		return 0
	}
	return next + n
}

// unfinishedLine decides what to do with a line whose end is not there.
func (w *worker) unfinishedLine(c *conn, in []byte) int {
	if len(in) <= protocol.MaxLine {
		return 0
	}
	if !protocol.LineMayGrow(in) {
		c.phase, c.abandon = phaseClosed, true
		return 0
	}
	if len(in) < longLine {
		return 0
	}
	return w.longGet(c, in)
}

// skipLine throws away the rest of a line.
func (w *worker) skipLine(c *conn, in []byte) int {
	_, next := protocol.LineEnd(in)
	if next == 0 {
		return len(in)
	}
	c.phase = phaseCommand
	return next
}

// fault answers a request that means nothing.
func (w *worker) fault(c *conn, f protocol.Fault, silent bool) {
	if f == protocol.FaultHangup {
		c.phase, c.abandon = phaseClosed, true
		return
	}
	if !silent {
		w.out.str(f.Line())
	}
}

// reply answers s unless the client wants none.
func (w *worker) reply(silent bool, s string) {
	if !silent {
		w.out.str(s)
	}
}
