package server

import (
	"bytes"
	"fmt"
	"net"
	"strings"
	"testing"
)

// TestCrowd lets many clients ask while the only loop is busy, so that it finds their
// requests all at once: small replies, large ones, none, the end of a connection, and
// replies to clients that have not read for long, which must not hold up or spoil others'.
func TestCrowd(t *testing.T) {
	eachEngine(t, func(t *testing.T, engine string) {
		x := startServer(t, func(c *Config) { c.Engine, c.Threads = engine, 1 })
		sizes := []int{1, 100, 1000, 4096, 15 << 10, 40 << 10, 300 << 10}
		set := x.dial(t)
		for i, n := range sizes {
			set.send(fmt.Sprintf("set k%d 0 0 %d\r\n%s\r\n", i, n, pattern(i, n)))
			set.expect("STORED\r\n")
		}
		hit := func(i int) string {
			return fmt.Sprintf("VALUE k%d 0 %d\r\n%s\r\n", i, sizes[i], pattern(i, sizes[i]))
		}
		const each, rounds = 6, 6
		var keys strings.Builder
		for i := range 20000 {
			fmt.Fprintf(&keys, " missing%d", i)
		}
		busy := x.dial(t)
		kinds := []struct {
			ask, want string
			last      bool
		}{
			{ask: "get k0\r\n", want: hit(0) + "END\r\n"},
			{ask: "get k3\r\n", want: hit(3) + "END\r\n"},
			{ask: "get k5\r\n", want: hit(5) + "END\r\n"},
			{ask: "get k6 k0 k3\r\n", want: hit(6) + hit(0) + hit(3) + "END\r\n"},
			{ask: "set n%d 0 0 2 noreply\r\nab\r\n"},
			{ask: "set m%d 0 0 2\r\nab\r\nget m%[1]d\r\n", want: "STORED\r\nVALUE m%d 0 2\r\nab\r\nEND\r\n"},
			{ask: "get k1\r\nget k4\r\nget nothing\r\n", want: hit(1) + "END\r\n" + hit(4) + "END\r\nEND\r\n"},
			{ask: "nonsense\r\nget k2\r\n", want: "ERROR\r\n" + hit(2) + "END\r\n"},
			{ask: "get k2\r\nquit\r\n", want: hit(2) + "END\r\n", last: true},
			{ask: strings.Repeat("x", 5000), last: true}, // no command is that long: closed at once
		}
		// These ask now, and read at the very end.
		const late, lateAsks = 2, 400
		var lazy []*client
		for range late {
			c := x.dial(t)
			_ = c.Conn.(*net.TCPConn).SetReadBuffer(64 << 10)
			lazy = append(lazy, c)
		}
		for range lateAsks {
			for _, c := range lazy {
				c.send("get k4\r\n")
			}
			set.send("mn\r\n") // so that each comes alone
			set.expect("MN\r\n")
		}
		for round := range rounds {
			var clients []*client
			for range each * len(kinds) {
				clients = append(clients, x.dial(t))
			}
			busy.send("get" + keys.String() + "\r\n")
			fill := func(s string, i int) string {
				if strings.Contains(s, "%") {
					return fmt.Sprintf(s, i)
				}
				return s
			}
			for i, c := range clients {
				c.send(fill(kinds[i%len(kinds)].ask, i))
			}
			for i, c := range clients {
				k := kinds[i%len(kinds)]
				c.expect(fill(k.want, i))
				switch {
				case k.last:
					c.expectEnd()
				case round%2 == 0:
					c.send("mn\r\n")
					c.expect("MN\r\n")
				}
				c.Close()
			}
			busy.expect("END\r\n")
		}
		one := []byte(hit(4) + "END\r\n")
		for _, l := range lazy {
			l.expect(string(bytes.Repeat(one, lateAsks)))
			l.send("get n4\r\n")
			l.expect("VALUE n4 0 2\r\nab\r\nEND\r\n")
		}
	})
}
