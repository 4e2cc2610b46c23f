package server

import (
	"strconv"

	"github.com/rowcached/rowcached/server/protocol"
)

// maxVerbosity is the highest level that is kept.
const maxVerbosity = 4

// maxClass is the highest slab class that memcached has.
const maxClass = 63

// admin executes what operators and tools send.
func (w *worker) admin(c *conn, t *protocol.Text) {
	first, rest := protocol.NextWord(t.Rest)
	if t.NoReply && string(first) == "noreply" {
		first = nil
	}
	silent := t.NoReply
	switch t.Op {
	case protocol.OpStats:
		w.stats(t)
	case protocol.OpVerbosity:
		w.srv.verbosity.Store(uint32(min(t.Delta, maxVerbosity)))
		w.reply(silent, protocol.OK)
	case protocol.OpShutdown:
		w.shutdown(c, first, rest)
	case protocol.OpCacheMemlimit:
		w.reply(silent, w.memoryLimit(first))
	case protocol.OpSlabs:
		w.reply(silent, slabs(first, rest))
	case protocol.OpLRU:
		w.reply(silent, lru(first, rest))
	case protocol.OpLRUCrawler:
		w.crawler(c, first, rest, silent)
	case protocol.OpWatch:
		if w.srv.cfg.NoWatch {
			w.out.str("CLIENT_ERROR watch commands not allowed\r\n")
			return
		}
		// Nothing is logged for watchers here; no watcher is told otherwise.
		w.out.str("WATCHER_FAILED failed to add log watcher\r\n")
	case protocol.OpRefreshCerts:
		w.refreshCerts()
	case protocol.OpDebugTime:
		w.debugTime(first, silent)
	default:
		panic("server: command " + t.Op.String() + " is parsed but not executed")
	}
}

func (w *worker) shutdown(c *conn, how, rest []byte) {
	f := w.srv.cfg.Shutdown
	more, _ := protocol.NextWord(rest)
	switch {
	case f == nil:
		w.out.str("SERVER_ERROR: shutdown not enabled\r\n")
	case len(more) > 0 || len(how) > 0 && string(how) != "graceful":
		w.out.str("CLIENT_ERROR invalid shutdown mode\r\n")
	default:
		c.phase = phaseClosed
		f(len(how) > 0)
	}
}

// memoryLimit: cache_memlimit <MiB>.
func (w *worker) memoryLimit(arg []byte) string {
	n, ok := protocol.Uint(arg)
	switch {
	case !ok || n > 1<<32-1:
		return protocol.ErrorLine
	case n < 8:
		return "MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"
	case n > 1000000000:
		return "MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
	}
	if err := w.srv.cfg.Memory.SetLimit(int64(n) << 20); err != nil {
		return "MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"
	}
	return protocol.OK
}

// slabs: pages are moved between sizes by the memory tier itself, so the words
// are understood and nothing is to be done.
func slabs(sub, rest []byte) string {
	a, rest := protocol.NextWord(rest)
	b, _ := protocol.NextWord(rest)
	switch string(sub) {
	case "reassign":
		if len(b) == 0 {
			return protocol.ErrorLine
		}
		from, ok1 := protocol.Int(a)
		to, ok2 := protocol.Int(b)
		switch {
		case !ok1 || !ok2:
			return protocol.FaultFormat.Line()
		case from == to:
			return "SAME src and dst class are identical\r\n"
		case from < 0 || from > maxClass || to < 0 || to > maxClass:
			return "BADCLASS invalid src or dst class id\r\n"
		}
		return "NOSPARE source class has no spare pages\r\n"
	case "automove":
		switch string(a) {
		case "":
			return protocol.ErrorLine
		case "ratio", "freeratio":
			if _, err := strconv.ParseFloat(string(b), 64); err != nil {
				return protocol.ErrorLine
			}
			return protocol.OK
		case "window":
			n, ok := protocol.Uint(b)
			if !ok {
				return protocol.FaultFormat.Line()
			}
			if n < 3 || n > 1800 {
				return "CLIENT_ERROR automove window too low or too high\r\n"
			}
			return protocol.OK
		}
		n, ok := protocol.Uint(a)
		if !ok {
			return protocol.FaultFormat.Line()
		}
		if n > 2 {
			return protocol.ErrorLine
		}
		return protocol.OK
	}
	return protocol.ErrorLine
}

// lru: eviction tunes itself; well-formed words are taken and change nothing.
func lru(sub, rest []byte) string {
	var a [4][]byte
	n := 0
	for ; n < len(a); n++ {
		if a[n], rest = protocol.NextWord(rest); len(a[n]) == 0 {
			break
		}
	}
	switch {
	case string(sub) == "tune" && n == 4:
		hot, ok1 := protocol.Uint(a[0])
		warm, ok2 := protocol.Uint(a[1])
		hotAge, err1 := strconv.ParseFloat(string(a[2]), 64)
		warmAge, err2 := strconv.ParseFloat(string(a[3]), 64)
		switch {
		case !ok1 || !ok2 || err1 != nil || err2 != nil:
			return protocol.ErrorLine
		case hot > 80 || warm > 80 || hot+warm > 80:
			return "ERROR hot and warm pcts must not exceed 80\r\n"
		case hotAge <= 0 || warmAge <= 0:
			return "ERROR hot/warm age factors must be greater than 0\r\n"
		}
		return protocol.OK
	case string(sub) == "mode" && n >= 1 && (string(a[0]) == "flat" || string(a[0]) == "segmented"):
		return protocol.OK
	case string(sub) == "temp_ttl" && n >= 1:
		if _, ok := protocol.Int(a[0]); ok {
			return protocol.OK
		}
	}
	return protocol.ErrorLine
}

func (w *worker) refreshCerts() {
	t := w.srv.cfg.TLS
	if t == nil {
		w.out.str("Error TLS not enabled\r\n")
		return
	}
	if err := t.Reload(); err != nil {
		w.out.str("ERROR " + oneLine(err.Error()) + "\r\n")
		return
	}
	w.out.str(protocol.OK)
}

func (w *worker) debugTime(arg []byte, silent bool) {
	if w.srv.cfg.DebugTime == nil {
		w.reply(silent, protocol.ErrorLine)
		return
	}
	switch string(arg) {
	case "p", "r": // pause and resume: time passes here in any case
		w.reply(silent, protocol.OK)
		return
	}
	n, ok := protocol.Int(arg)
	if !ok {
		w.reply(silent, protocol.ErrorLine)
		return
	}
	w.leave() // lookups go by the time at which their group began
	w.srv.cfg.DebugTime(n)
	w.reply(silent, protocol.OK)
}
