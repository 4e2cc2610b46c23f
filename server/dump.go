package server

import (
	"net/url"
	"strconv"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// crawler: lru_crawler crawl|metadump|mgdump|tocrawl|sleep|enable|disable.
func (w *worker) crawler(c *conn, sub, rest []byte, silent bool) {
	arg, rest := protocol.NextWord(rest)
	more, _ := protocol.NextWord(rest)
	has := len(arg) > 0 && (len(more) == 0 || silent)
	switch {
	case string(sub) == "crawl" && has:
		if !w.classes(string(arg)) {
			w.reply(silent, "BADCLASS invalid class id\r\n")
			return
		}
		w.reply(silent, protocol.OK) // expired items are swept all the time
	case string(sub) == "metadump" && has:
		w.dump(c, string(arg), "metadump", appendMeta)
	case string(sub) == "mgdump" && has:
		w.dump(c, string(arg), "mgdump", appendKey)
	case string(sub) == "tocrawl" && has:
		if _, ok := protocol.Uint(arg); !ok {
			w.reply(silent, protocol.FaultFormat.Line())
			return
		}
		w.reply(silent, protocol.OK)
	case string(sub) == "sleep" && has:
		n, ok := protocol.Uint(arg)
		switch {
		case !ok:
			w.reply(silent, protocol.FaultFormat.Line())
		case n > 1000000:
			w.reply(silent, "CLIENT_ERROR sleep must be one second or less\r\n")
		default:
			w.reply(silent, protocol.OK)
		}
	case (string(sub) == "enable" || string(sub) == "disable") && (len(arg) == 0 || silent):
		w.reply(silent, protocol.OK)
	default:
		w.reply(silent, protocol.ErrorLine)
	}
}

// classes says whether the argument names classes: "all", "hash" or ids by commas.
func (w *worker) classes(arg string) bool {
	if arg == "all" || arg == "hash" {
		return true
	}
	for len(arg) > 0 {
		i := 0
		for i < len(arg) && arg[i] != ',' {
			i++
		}
		n, ok := protocol.Uint([]byte(arg[:i]))
		if !ok || n < 1 || n > 63 {
			return false
		}
		if i == len(arg) {
			return true
		}
		arg = arg[i+1:]
	}
	return false
}

// dump lists the keys of all items. It is written in one piece, so it takes the
// memory of its text for as long as the client needs to read it.
func (w *worker) dump(c *conn, arg, name string, line func([]byte, memory.Item, int64) []byte) {
	switch {
	case w.srv.cfg.NoDump && name == "metadump":
		w.out.str("ERROR metadump not allowed\r\n")
		return
	case w.srv.cfg.NoDump:
		w.out.str("ERROR key dump not allowed\r\n")
		return
	case !w.out.empty():
		w.out.str("ERROR cannot pipeline other commands before " + name + "\r\n")
		return
	case !w.classes(arg):
		w.out.str("BADCLASS invalid class id\r\n")
		return
	}
	w.out.walk = &walk{store: w.srv.cfg.Memory, line: line, now: w.srv.cfg.Clock()}
}

// walk is a listing of all items that is sent bit by bit.
type walk struct {
	store *memory.Store
	at    memory.Cursor
	now   int64
	line  func(dst []byte, it memory.Item, now int64) []byte
}

// step gives the next piece; done: it was the last.
func (k *walk) step() (piece []byte, done bool) {
	for len(piece) < 32<<10 {
		next, more := k.store.WalkFrom(k.at, func(it memory.Item) bool {
			piece = k.line(piece, it, k.now)
			return true
		})
		k.at = next
		if !more {
			return append(piece, protocol.End...), true
		}
	}
	return piece, false
}

func appendMeta(b []byte, it memory.Item, now int64) []byte {
	b = append(append(b, "key="...), url.QueryEscape(string(it.Key()))...)
	exp := it.Expire()
	if exp == 0 {
		exp = -1
	}
	b = protocol.AppendInt(append(b, " exp="...), exp)
	b = protocol.AppendInt(append(b, " la="...), it.LastAccess())
	b = protocol.AppendUint(append(b, " cas="...), it.CAS())
	if it.Fetched() {
		b = append(b, " fetch=yes"...)
	} else {
		b = append(b, " fetch=no"...)
	}
	b = protocol.AppendUint(append(b, " cls="...), uint64(it.Class()))
	b = protocol.AppendUint(append(b, " size="...), uint64(it.Size()))
	b = protocol.AppendUint(append(b, " flags="...), uint64(it.Flags()))
	return append(b, "\r\n"...)
}

func appendKey(b []byte, it memory.Item, _ int64) []byte {
	b = append(append(b, "mg "...), url.QueryEscape(string(it.Key()))...)
	return append(b, "\r\n"...)
}

// cachedump lists up to limit items of a class (0: as many as fit in 2 MiB).
func (w *worker) cachedump(class, limit uint64) {
	const most = 2 << 20
	var b []byte
	n := uint64(0)
	// Clients ask for class 1 to see the smallest items, which have another number here.
	for _, k := range w.srv.cfg.Memory.Stats().Classes {
		if k.Used > 0 {
			class = max(class, uint64(k.Class))
			break
		}
	}
	w.srv.cfg.Memory.Walk(func(it memory.Item) bool {
		if uint64(it.Class()) != class {
			return true
		}
		if limit > 0 && n == limit || len(b) > most {
			return false
		}
		n++
		b = append(append(b, "ITEM "...), it.Key()...)
		b = strconv.AppendInt(append(b, " ["...), int64(len(it.Value())), 10)
		b = strconv.AppendInt(append(b, " b; "...), it.Expire(), 10)
		b = append(b, " s]\r\n"...)
		return true
	})
	w.out.own(append(b, protocol.End...))
}
