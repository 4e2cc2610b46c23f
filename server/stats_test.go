package server

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
	"github.com/rowcached/rowcached/server/protocol"
)

// group reads `stats NAME`.
func group(t testing.TB, addr, name string) map[string]string {
	t.Helper()
	c := dial(t, "tcp", addr)
	defer c.Close()
	c.send(strings.TrimSpace("stats "+name) + "\r\n")
	m := map[string]string{}
	for {
		line, err := c.in.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		if line == protocol.End {
			return m
		}
		f := strings.SplitN(strings.TrimSuffix(line, "\r\n"), " ", 3)
		if len(f) != 3 || f[0] != "STAT" {
			t.Fatalf("stats %s: line %q", name, line)
		}
		if _, ok := m[f[1]]; ok {
			t.Errorf("stats %s: %s comes twice", name, f[1])
		}
		m[f[1]] = f[2]
	}
}

// generalNames are the names of `stats` that memcached 1.6.45 has with its crawler
// and maintainer off, which its own test counts.
const generalNames = `pid uptime time version libevent pointer_size rusage_user rusage_system max_connections curr_connections
total_connections rejected_connections connection_structures response_obj_oom response_obj_count response_obj_bytes
read_buf_count read_buf_bytes read_buf_bytes_free read_buf_oom reserved_fds cmd_get cmd_set cmd_flush cmd_touch cmd_meta
get_hits get_misses get_expired get_flushed delete_misses delete_hits incr_misses incr_hits decr_misses decr_hits cas_misses
cas_hits cas_badval touch_hits touch_misses store_too_large store_no_memory auth_cmds auth_errors bytes_read bytes_written
limit_maxbytes accepting_conns listen_disabled_num time_in_listen_disabled_us threads conn_yields hash_power_level hash_bytes
hash_is_expanding slab_reassign_rescues slab_reassign_chunk_rescues slab_reassign_inline_reclaim slab_reassign_busy_items
slab_reassign_busy_deletes slab_reassign_busy_nomem slab_reassign_last_busy_status slab_reassign_running slabs_moved
malloc_fails log_worker_dropped log_worker_written log_watcher_skipped log_watcher_sent log_watchers unexpected_napi_ids
round_robin_fallback bytes curr_items total_items slab_global_page_pool expired_unfetched evicted_unfetched evictions
reclaimed crawler_reclaimed crawler_items_checked lrutail_reflocked`

func TestStatsNames(t *testing.T) {
	s := startServer(t, nil)
	want := strings.Fields(generalNames)
	if len(want) != 84 {
		t.Fatalf("%d names", len(want))
	}
	slices.Sort(want)
	got := slices.Sorted(maps.Keys(group(t, s.addr, "")))
	if !slices.Equal(got, want) {
		t.Errorf("got %d names %v\nwant %v", len(got), got, want)
	}
	number := regexp.MustCompile(`^[0-9]+(\.[0-9]+)?$`)
	for name, v := range group(t, s.addr, "") {
		if !number.MatchString(v) && name != "version" && name != "libevent" && name != "slab_reassign_last_busy_status" {
			t.Errorf("%s is %q", name, v)
		}
	}
}

// TestStatsOfReference: whatever name a tool looks up in memcached's groups is
// there, in a form like memcached's.
func TestStatsOfReference(t *testing.T) {
	s := startServer(t, nil)
	m := servers.StartMemcached(t, servers.Memcached1645)
	for _, addr := range []string{s.addr, m.Addr} {
		c := dial(t, "tcp", addr)
		c.send("set k 0 0 100\r\n" + strings.Repeat("v", 100) + "\r\n")
		c.expect(protocol.Stored)
	}
	word := regexp.MustCompile(`^[a-z]`)
	form := func(name string) string { return regexp.MustCompile(`\d+`).ReplaceAllString(name, "#") }
	for _, g := range []string{"", "settings", "items", "slabs", "sizes", "conns"} {
		ours := map[string]string{}
		for name, v := range group(t, s.addr, g) {
			ours[form(name)] = v
		}
		// The crawler and the maintainer have no equivalent, and these switches none.
		without := map[string]bool{}
		for n := range strings.FieldsSeq(`lru_crawler_running lru_crawler_starts lru_maintainer_juggles evicted_active moves_to_cold
			moves_to_warm moves_within_lru direct_reclaims lru_bumps_dropped`) {
			without[n] = g == ""
		}
		for name, v := range group(t, m.Addr, g) {
			v2, ok := ours[form(name)]
			built, _, _ := strings.Cut(name, "_") // what only some builds of memcached have
			switch {
			case without[name], built == "ext", built == "proxy", built == "ssl", name == "slab_automove_freeratio":
			case !ok:
				t.Errorf("stats %s: %s (%s) is missing", g, name, v)
			case word.MatchString(v) != word.MatchString(v2) && v != "" && v2 != "" && g != "conns" && name != "libevent":
				t.Errorf("stats %s: %s is %q, in memcached %q", g, name, v2, v)
			}
		}
	}
}

// statsRequests is one of everything that is counted, ended by mn; statsWant is
// what the counters are then.
var (
	statsRequests = "set k 0 0 1\r\n5\r\nget k nothing k\r\ngets k\r\nincr k 1\r\nincr nothing 1\r\ndecr k 1\r\ndecr nothing 1\r\ntouch k 100\r\n" +
		"touch nothing 100\r\ngat 100 k nothing\r\ndelete k\r\ndelete k\r\ncas nothing 0 0 1 1\r\nx\r\nset c 0 0 1\r\nx\r\ncas c 0 0 1 1\r\ny\r\n" +
		"add c 0 0 1\r\nz\r\nmg c v\r\nmg nothing v\r\nms m 1\r\nx\r\nmd m\r\nmd m\r\nma nothing\r\n" +
		fmt.Sprintf("set big 0 0 %d\r\n%s\r\nflush_all\r\nget c\r\nmn\r\n", 2<<20, strings.Repeat("x", 2<<20))
	statsWant = map[string]string{
		"cmd_get": "7", "get_hits": "4", "get_misses": "3", "cmd_set": "6", "incr_hits": "1", "incr_misses": "2",
		"decr_hits": "1", "decr_misses": "1", "cmd_touch": "4", "touch_hits": "2", "touch_misses": "2", "delete_hits": "2",
		"delete_misses": "2", "cas_misses": "1", "cas_badval": "1", "cas_hits": "0", "cmd_flush": "1", "store_too_large": "1",
	}
)

// sendStatsRequests sends them and gives the counters that differ from want.
func sendStatsRequests(t testing.TB, addr string, want map[string]string) (c *client, differ []string) {
	c = dial(t, "tcp", addr)
	c.send(statsRequests)
	for line := ""; line != protocol.MetaNoop; {
		var err error
		if line, err = c.in.ReadString('\n'); err != nil {
			t.Fatal(err)
		}
	}
	got := group(t, addr, "")
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got[name] != want[name] {
			differ = append(differ, fmt.Sprintf("%s is %s, want %s", name, got[name], want[name]))
		}
	}
	return c, differ
}

// TestStatsCount: whoever has seen a reply finds it counted, on a server with
// several loops, as memcached counts it.
func TestStatsCount(t *testing.T) {
	t.Run("memcached", func(t *testing.T) {
		_, differ := sendStatsRequests(t, servers.StartMemcached(t, servers.Memcached1645).Addr, statsWant)
		for _, d := range differ {
			t.Error(d)
		}
	})
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine, c.Threads = engine, 3 })
		c, differ := sendStatsRequests(t, s.addr, statsWant)
		for _, d := range differ {
			t.Error(d)
		}
		before := s.Metrics()
		c.send("stats reset\r\n")
		c.expect(protocol.Reset)
		for name, v := range group(t, s.addr, "") {
			if statsWant[name] != "" && v != "0" {
				t.Errorf("%s is %s after the reset", name, v)
			}
		}
		for i, k := range s.Metrics().Commands {
			if k.Count < before.Commands[i].Count {
				t.Errorf("the metric %s %s went from %d to %d", k.Command, k.Result, before.Commands[i].Count, k.Count)
			}
		}
		c.send("get k\r\n")
		c.expect(protocol.End)
		if m := group(t, s.addr, ""); m["cmd_get"] != "1" || m["get_misses"] != "1" || m["threads"] != "3" {
			t.Errorf("%v", m)
		}
	})
}

func TestStatsConns(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		s := startServer(t, func(c *Config) { c.Engine = engine })
		body, idle := s.dial(t), s.dial(t)
		idle.send("mn\r\n")
		idle.expect(protocol.MetaNoop)
		body.send("mn\r\nset k 0 0 100\r\nabc")
		body.expect(protocol.MetaNoop)
		states := func() map[string]int {
			n := map[string]int{}
			for name, v := range group(t, s.addr, "conns") {
				if strings.HasSuffix(name, ":state") {
					n[v]++
				}
			}
			return n
		}
		// Two that wait for a command: idle, and the one that asks.
		want := map[string]int{"conn_listening": 1, "conn_nread": 1, "conn_parse_cmd": 2}
		eventually(t, fmt.Sprintf("states %v, want %v", states(), want), func() bool { return maps.Equal(states(), want) })
		found := false
		for name, v := range group(t, s.addr, "conns") {
			if strings.HasSuffix(name, ":addr") && v == "tcp:"+idle.LocalAddr().String() {
				found = true
			}
		}
		if !found {
			t.Errorf("%s is not listed", idle.LocalAddr())
		}
	})
}

func TestExtraStats(t *testing.T) {
	s := startServer(t, func(c *Config) {
		c.ExtraStats = func(group string) []Stat {
			if group != "tables" {
				return nil
			}
			return []Stat{{"users:rows", "5"}}
		}
		c.Settings = []Stat{{"config_file", "a.yaml"}}
	})
	if m := group(t, s.addr, "tables"); len(m) != 1 || m["users:rows"] != "5" {
		t.Errorf("%v", m)
	}
	if m := group(t, s.addr, "settings"); m["config_file"] != "a.yaml" || m["engine"] == "" {
		t.Errorf("%v", m)
	}
	c := s.dial(t)
	c.send("stats other\r\n")
	c.expect(protocol.ErrorLine)
}
