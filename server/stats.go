package server

import (
	"fmt"
	"net"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// stats answers the text protocol's stats command.
func (w *worker) stats(t *protocol.Text) {
	w.work += statWork
	group, rest := protocol.NextWord(t.Rest)
	switch string(group) {
	case "reset":
		w.srv.resetStats(w)
		w.out.str(protocol.Reset)
		return
	case "detail":
		sub, _ := protocol.NextWord(rest)
		w.statsDetail(string(sub))
		return
	case "cachedump":
		w.statsDump(rest)
		return
	}
	list, ok := w.srv.statGroup(w, string(group))
	if !ok {
		w.out.str(protocol.ErrorLine)
		return
	}
	var b []byte
	for _, s := range list {
		b = protocol.AppendStat(b, s.Name, s.Value)
	}
	w.out.own(append(b, protocol.End...))
}

func (w *worker) statsDetail(sub string) {
	switch {
	case w.srv.cfg.NoDump:
		w.out.str("CLIENT_ERROR stats detail not allowed\r\n")
	case sub == "on" || sub == "off":
		w.srv.prefixes.on.Store(sub == "on")
		w.out.str(protocol.OK)
	case sub == "dump":
		w.out.own(w.srv.prefixes.dump())
	default:
		w.out.str("CLIENT_ERROR usage: stats detail on|off|dump\r\n")
	}
}

func (w *worker) statsDump(rest []byte) {
	if w.srv.cfg.NoDump {
		w.out.str("CLIENT_ERROR stats cachedump not allowed\r\n")
		return
	}
	a, rest := protocol.NextWord(rest)
	b, _ := protocol.NextWord(rest)
	if len(b) == 0 {
		w.out.str("CLIENT_ERROR bad command line\r\n")
		return
	}
	class, ok1 := protocol.Uint(a)
	limit, ok2 := protocol.Uint(b)
	switch {
	case !ok1 || !ok2:
		w.out.str(protocol.FaultFormat.Line())
	case class >= 64:
		w.out.str("CLIENT_ERROR Illegal slab id\r\n")
	default:
		w.cachedump(class, limit)
	}
}

// statGroup gives a group's lines; false: there is no such group.
func (s *Server) statGroup(w *worker, group string) ([]Stat, bool) {
	w.count.publish()
	switch group {
	case "":
		return s.statsGeneral(), true
	case "settings":
		return s.statsSettings(), true
	case "items":
		return s.statsItems(), true
	case "slabs":
		return s.statsSlabs(), true
	case "sizes":
		return []Stat{{"sizes_status", "disabled"}}, true
	case "conns":
		return s.statsConns(), true
	}
	if s.cfg.ExtraStats != nil {
		if list := s.cfg.ExtraStats(group); list != nil {
			return list, true
		}
	}
	return nil, false
}

// resetStats makes the counters of stats begin anew. Metrics go on.
func (s *Server) resetStats(w *worker) {
	w.count.publish()
	t, m := s.totals(), s.cfg.Memory.Stats()
	s.mu.Lock()
	s.base = baseline{totals: t, memory: m, accepted: s.accepted.Load(), rejected: s.rejected.Load()}
	s.mu.Unlock()
	s.prefixes.reset()
}

// baseline is what stats reset subtracts.
type baseline struct {
	totals             totals
	memory             memory.Stats
	accepted, rejected uint64
}

// statList builds a group.
type statList []Stat

func (l *statList) str(name, value string) { *l = append(*l, Stat{name, value}) }
func (l *statList) num(name string, v int64) {
	*l = append(*l, Stat{name, strconv.FormatInt(v, 10)})
}
func (l *statList) count(name string, v uint64) {
	*l = append(*l, Stat{name, strconv.FormatUint(v, 10)})
}
func (l *statList) zero(names ...string) {
	for _, n := range names {
		l.str(n, "0")
	}
}
func (l *statList) flag(name string, on bool, yes, no string) {
	if on {
		l.str(name, yes)
	} else {
		l.str(name, no)
	}
}

func seconds(t unix.Timeval) string { return fmt.Sprintf("%d.%06d", t.Sec, t.Usec) }

// statsGeneral gives the names of memcached 1.6.45, in its order. What has no
// equivalent here (slab moves, watchers, UDP) is 0.
func (s *Server) statsGeneral() []Stat {
	now := s.totals()
	m := s.cfg.Memory.Stats()
	s.mu.Lock()
	base, loops := s.base, len(s.workers)
	s.mu.Unlock()
	c := func(k counter) uint64 { return now[k] - base.totals[k] }
	d := func(f func(*memory.Stats) int64) int64 { return f(&m) - f(&base.memory) }
	var usage unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &usage) // zeros then
	conns := s.current.Load()

	l := make(statList, 0, 96)
	l.num("pid", int64(os.Getpid()))
	l.num("uptime", s.uptime())
	l.num("time", s.cfg.Clock())
	l.str("version", MemcachedVersion)
	l.str("libevent", "rowcached-"+s.engineText())
	l.num("pointer_size", strconv.IntSize)
	l.str("rusage_user", seconds(usage.Utime))
	l.str("rusage_system", seconds(usage.Stime))
	l.num("max_connections", int64(s.cfg.MaxConnections))
	l.num("curr_connections", conns)
	l.count("total_connections", s.accepted.Load()-base.accepted)
	l.count("rejected_connections", s.rejected.Load()-base.rejected)
	l.num("connection_structures", conns)
	l.zero("response_obj_oom")
	l.num("response_obj_count", int64(loops))
	l.num("response_obj_bytes", int64(loops)*outBytes)
	l.num("read_buf_count", int64(loops))
	l.num("read_buf_bytes", int64(loops)*readBytes)
	l.num("read_buf_bytes_free", int64(loops)*readBytes)
	l.zero("read_buf_oom")
	l.num("reserved_fds", int64(4*loops))
	l.count("cmd_get", c(cGet))
	l.count("cmd_set", c(cSet))
	l.count("cmd_flush", c(cFlush))
	l.count("cmd_touch", c(cTouch))
	l.count("cmd_meta", c(cMeta))
	l.count("get_hits", c(cGetHit))
	l.count("get_misses", c(cGetMiss))
	l.num("get_expired", d(func(m *memory.Stats) int64 { return m.GetExpired }))
	l.num("get_flushed", d(func(m *memory.Stats) int64 { return m.GetFlushed }))
	l.count("delete_misses", c(cDeleteMiss))
	l.count("delete_hits", c(cDeleteHit))
	l.count("incr_misses", c(cIncrMiss))
	l.count("incr_hits", c(cIncrHit))
	l.count("decr_misses", c(cDecrMiss))
	l.count("decr_hits", c(cDecrHit))
	l.count("cas_misses", c(cCASMiss))
	l.count("cas_hits", c(cCASHit))
	l.count("cas_badval", c(cCASBad))
	l.count("touch_hits", c(cTouchHit))
	l.count("touch_misses", c(cTouchMiss))
	l.count("store_too_large", c(cTooLarge))
	l.count("store_no_memory", c(cNoMemory))
	l.count("auth_cmds", c(cAuth))
	l.count("auth_errors", c(cAuthError))
	if s.cfg.IdleTimeout > 0 {
		l.count("idle_kicks", c(cIdleKick))
	}
	l.count("bytes_read", c(cBytesRead))
	l.count("bytes_written", c(cBytesWritten))
	l.num("limit_maxbytes", m.Limit)
	l.str("accepting_conns", "1")
	l.zero("listen_disabled_num", "time_in_listen_disabled_us")
	l.num("threads", int64(s.threads()))
	l.count("conn_yields", c(cYield))
	l.num("hash_power_level", m.HashPowerLevel)
	l.num("hash_bytes", m.HashBytes)
	l.zero("hash_is_expanding", "slab_reassign_rescues", "slab_reassign_chunk_rescues", "slab_reassign_inline_reclaim",
		"slab_reassign_busy_items", "slab_reassign_busy_deletes", "slab_reassign_busy_nomem")
	l.str("slab_reassign_last_busy_status", "none")
	l.zero("slab_reassign_running", "slabs_moved", "malloc_fails", "log_worker_dropped", "log_worker_written",
		"log_watcher_skipped", "log_watcher_sent", "log_watchers")
	if s.cfg.TLS != nil {
		s.cfg.TLS.general(&l)
	}
	l.zero("unexpected_napi_ids", "round_robin_fallback")
	l.num("bytes", m.ItemBytes)
	l.num("curr_items", m.Items)
	l.num("total_items", d(func(m *memory.Stats) int64 { return m.TotalItems }))
	l.zero("slab_global_page_pool")
	l.num("expired_unfetched", d(func(m *memory.Stats) int64 { return m.ExpiredUnfetched }))
	l.num("evicted_unfetched", d(func(m *memory.Stats) int64 { return m.EvictedUnfetched }))
	l.num("evictions", d(func(m *memory.Stats) int64 { return m.Evictions }))
	l.num("reclaimed", d(func(m *memory.Stats) int64 { return m.Reclaimed }))
	l.num("crawler_reclaimed", d(func(m *memory.Stats) int64 { return m.CrawlerReclaimed }))
	l.zero("crawler_items_checked", "lrutail_reflocked")
	return l
}

func (s *Server) uptime() int64 { return int64(time.Since(s.started)/time.Second) + 1 }

func (s *Server) engineText() string {
	name, _ := s.engineName.Load().(string)
	return name
}

// statsSettings gives memcached's names with our values, and engine.
func (s *Server) statsSettings() []Stat {
	c := &s.cfg
	var l statList
	l.num("maxbytes", c.Memory.Limit())
	l.num("maxconns", int64(c.MaxConnections))
	port, inter, socket := int64(0), "NULL", "NULL"
	for _, ln := range s.listeners {
		switch a := ln.Addr().(type) {
		case *net.TCPAddr:
			if port == 0 {
				port, inter = int64(a.Port), a.IP.String()
			}
		case *net.UnixAddr:
			socket = a.Name
		}
	}
	l.num("tcpport", port)
	l.str("udpport", "0")
	l.str("inter", inter)
	l.num("verbosity", int64(s.verbosity.Load()))
	l.str("oldest", "0")
	l.str("evictions", "on")
	l.str("domain_socket", socket)
	l.str("umask", strconv.FormatUint(uint64(c.UnixMode), 8))
	l.flag("shutdown_command", c.Shutdown != nil, "yes", "no")
	l.str("growth_factor", "1.25")
	l.str("chunk_size", "48")
	l.num("num_threads", int64(s.threads()))
	l.num("num_threads_per_udp", 0)
	l.str("stat_key_prefix", ":")
	l.flag("detail_enabled", s.prefixes.on.Load(), "yes", "no")
	l.num("reqs_per_event", int64(c.RequestsPerTurn))
	l.flag("cas_enabled", !c.NoCAS, "yes", "no")
	l.num("tcp_backlog", int64(c.Backlog))
	l.str("binding_protocol", [...]string{"auto-negotiate", "ascii", "binary"}[c.Protocol])
	l.flag("auth_enabled_sasl", c.SASL, "yes", "no")
	l.flag("auth_enabled_ascii", c.Auth != nil && !c.SASL, "yes", "no")
	l.num("item_size_max", int64(c.MaxItemSize))
	l.str("maxconns_fast", "yes")
	l.str("hashpower_init", "0")
	l.str("slab_reassign", "yes")
	l.str("slab_automove", "1")
	l.str("slab_automove_ratio", "0.80")
	l.str("slab_automove_window", "10")
	l.num("slab_chunk_max", int64(c.MaxItemSize))
	l.flag("lru_crawler", !s.crawlerOff.Load(), "yes", "no")
	l.str("lru_crawler_sleep", "100")
	l.str("lru_crawler_tocrawl", "0")
	l.str("tail_repair_time", "0")
	l.flag("flush_enabled", !c.NoFlush, "yes", "no")
	l.flag("dump_enabled", !c.NoDump, "yes", "no")
	l.str("hash_algorithm", "own")
	l.str("lru_maintainer_thread", "yes")
	l.str("lru_segmented", "yes")
	l.str("hot_lru_pct", "20")
	l.str("warm_lru_pct", "40")
	l.str("hot_max_factor", "0.20")
	l.str("warm_max_factor", "2.00")
	l.str("temp_lru", "no")
	l.str("temporary_ttl", "61")
	l.num("idle_timeout", int64(c.IdleTimeout/time.Second))
	l.str("watcher_logbuf_size", "0")
	l.str("worker_logbuf_size", "0")
	l.str("read_buf_mem_limit", "0")
	l.str("track_sizes", "no")
	l.str("inline_ascii_response", "yes")
	l.flag("ssl_enabled", c.TLS != nil, "yes", "no")
	if c.TLS != nil {
		c.TLS.settings(&l)
	}
	l.str("num_napi_ids", "0")
	l.str("memory_file", "(null)")
	l.str("client_flags_size", "4")
	l.str("engine", s.engineText())
	l.str("rowcached_version", c.Version)
	l.str("go_version", runtime.Version())
	return append(l, c.Settings...)
}

func (s *Server) statsItems() []Stat {
	var l statList
	for _, c := range s.cfg.Memory.Stats().Classes {
		if c.Used == 0 {
			continue
		}
		p := "items:" + strconv.Itoa(c.Class) + ":"
		l.num(p+"number", c.Used)
		l.num(p+"number_hot", c.Young)
		l.num(p+"number_warm", c.Old)
		l.num(p+"number_cold", c.Mapped)
		for _, n := range [...]string{"age_hot", "age_warm", "age"} {
			l.str(p+n, "0")
		}
		l.num(p+"mem_requested", c.Used*int64(c.Size))
		for _, n := range [...]string{"evicted", "evicted_nonzero", "evicted_time", "outofmemory", "tailrepairs", "reclaimed",
			"expired_unfetched", "evicted_unfetched", "evicted_active", "crawler_reclaimed", "crawler_items_checked",
			"lrutail_reflocked", "moves_to_cold", "moves_to_warm", "moves_within_lru", "direct_reclaims", "hits_to_hot",
			"hits_to_warm", "hits_to_cold", "hits_to_temp"} {
			l.str(p+n, "0")
		}
	}
	return l
}

// statsSlabs gives the memory tier's size classes. Commands are not counted by
// class: the first class carries all of them, so that a sum over classes, which
// is what exporters show, is right.
func (s *Server) statsSlabs() []Stat {
	now := s.totals()
	s.mu.Lock()
	base := s.base.totals
	s.mu.Unlock()
	m := s.cfg.Memory.Stats()
	var l statList
	total := int64(0)
	for i, c := range m.Classes {
		p := strconv.Itoa(c.Class) + ":"
		l.num(p+"chunk_size", int64(c.Size))
		l.num(p+"chunks_per_page", c.Slots/max(int64(c.Pages), 1))
		l.num(p+"total_pages", int64(c.Pages))
		l.num(p+"total_chunks", c.Slots)
		l.num(p+"used_chunks", c.Used)
		l.num(p+"free_chunks", c.Slots-c.Used)
		l.str(p+"free_chunks_end", "0")
		for _, f := range [...]struct {
			name string
			k    counter
		}{{"get_hits", cGetHit}, {"cmd_set", cSet}, {"delete_hits", cDeleteHit}, {"incr_hits", cIncrHit},
			{"decr_hits", cDecrHit}, {"cas_hits", cCASHit}, {"cas_badval", cCASBad}, {"touch_hits", cTouchHit}} {
			if i == 0 {
				l.count(p+f.name, now[f.k]-base[f.k])
			} else {
				l.str(p+f.name, "0")
			}
		}
		total += c.Bytes
	}
	l.num("active_slabs", int64(len(m.Classes)))
	l.num("total_malloced", total)
	return l
}

// statsConns gives the listening sockets, then the connections by descriptor.
func (s *Server) statsConns() []Stat {
	var l statList
	for _, ln := range s.listeners {
		p := strconv.Itoa(ln.fd) + ":"
		l.str(p+"addr", addrText(ln.Addr()))
		l.str(p+"state", "conn_listening")
		l.str(p+"secs_since_last_cmd", "0")
	}
	s.mu.Lock()
	list := make([]*connInfo, 0, len(s.conns))
	for c := range s.conns {
		list = append(list, c)
	}
	s.mu.Unlock()
	slices.SortFunc(list, func(a, b *connInfo) int { return a.fd - b.fd })
	now := s.cfg.Clock()
	for _, c := range list {
		p := strconv.Itoa(c.fd) + ":"
		addr := c.remote
		if strings.HasPrefix(c.local, "unix:") {
			addr = c.local
		}
		l.str(p+"addr", addr)
		l.str(p+"listen_addr", c.local)
		l.str(p+"state", connState(c.state.Load()).String())
		l.num(p+"secs_since_last_cmd", max(0, now-c.lastSeen.Load()))
	}
	return l
}
