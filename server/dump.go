package server

import (
	"encoding/base64"
	"net/url"
	"strconv"
	"strings"

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
		switch {
		case w.srv.crawlerOff.Load():
			w.reply(silent, "CLIENT_ERROR lru crawler disabled\r\n")
		case string(arg) == "hash":
			w.reply(silent, "ERROR an unknown error happened\r\n") // memcached's words
		case !w.classes(string(arg)):
			w.reply(silent, "BADCLASS invalid class id\r\n")
		default:
			w.reply(silent, protocol.OK) // expired items are swept all the time
		}
	case string(sub) == "metadump" && has:
		w.dump(string(arg), "metadump", appendMeta, protocol.End)
	case string(sub) == "mgdump" && has:
		w.dump(string(arg), "mgdump", appendKey, protocol.MetaMiss)
	case string(sub) == "tocrawl" && has:
		if n, ok := protocol.Uint(arg); !ok || n > 1<<32-1 {
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
		// What is shown and what crawl answers; expired items are swept in any case.
		w.srv.crawlerOff.Store(string(sub) == "disable")
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
		if !ok || n < 1 || n > maxClass {
			return false
		}
		if i == len(arg) {
			return true
		}
		arg = arg[i+1:]
	}
	return false
}

// dump lists the keys of all items, a line each, between OK and end.
func (w *worker) dump(arg, name string, line func([]byte, memory.Item, int64) []byte, end string) {
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
	w.out.str(protocol.OK)
	w.out.walk = &walk{store: w.srv.cfg.Memory, line: line, end: end, now: w.srv.cfg.Clock()}
}

// walk is a listing of all items that is sent bit by bit.
type walk struct {
	store *memory.Store
	at    memory.Cursor
	now   int64
	end   string
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
			return append(piece, k.end...), true
		}
	}
	return piece, false
}

// escape writes a key with per cent signs, as memcached does: a blank is %20, and what stays are letters, digits and -_.~
func escape(key []byte) string {
	return strings.ReplaceAll(url.QueryEscape(string(key)), "+", "%20")
}

func appendMeta(b []byte, it memory.Item, now int64) []byte {
	b = append(append(b, "key="...), escape(it.Key())...)
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
	return append(b, " \n"...) // as memcached ends these lines
}

func appendKey(b []byte, it memory.Item, _ int64) []byte {
	key := it.Key()
	b = append(b, "mg "...)
	for _, c := range key {
		if c <= ' ' || c == 0x7f {
			return append(base64.StdEncoding.AppendEncode(b, key), " b\r\n"...)
		}
	}
	return append(append(b, key...), "\r\n"...)
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
