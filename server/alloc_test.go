package server

import (
	"strings"
	"testing"
)

// TestHotPathAllocations: once warm, no ordinary request takes memory of the Go heap.
func TestHotPathAllocations(t *testing.T) {
	value := strings.Repeat("v", 100)
	large := strings.Repeat("v", 4096)
	for _, c := range []struct{ name, setup, request string }{
		{"get hit", "set k 0 0 100\r\n" + value + "\r\n", "get k\r\n"},
		{"get miss", "", "get k\r\n"},
		{"get 4 KiB", "set k 0 0 4096\r\n" + large + "\r\n", "get k\r\n"},
		{"get of 100 keys", "set k 0 0 100\r\n" + value + "\r\n", "get" + strings.Repeat(" k", 100) + "\r\n"},
		{"gets", "set k 0 0 100\r\n" + value + "\r\n", "gets k\r\n"},
		{"16 gets", "set k 0 0 100\r\n" + value + "\r\n", strings.Repeat("get k\r\n", 16)},
		{"set", "", "set k 0 0 100\r\n" + value + "\r\n"},
		{"set 4 KiB", "", "set k 0 0 4096\r\n" + large + "\r\n"},
		{"add", "", "add k 0 0 1\r\nx\r\n"},
		{"append", "set k 0 0 1\r\n1\r\n", "append k 0 0 1\r\nx\r\nset k 0 0 1\r\n1\r\n"},
		{"incr", "set k 0 0 1\r\n1\r\n", "incr k 1\r\n"},
		{"delete", "", "delete k\r\n"},
		{"touch", "set k 0 1000 1\r\n1\r\n", "touch k 1000\r\n"},
		{"gat", "set k 0 1000 1\r\n1\r\n", "gat 1000 k\r\n"},
		{"mg", "set k 0 0 100\r\n" + value + "\r\n", "mg k v t f s c k O123\r\n"},
		{"mg in base64", "set key 0 0 100\r\n" + value + "\r\n", "mg a2V5 b v k\r\n"},
		{"ms", "", "ms k 100 T0 F5 c k O1\r\n" + value + "\r\n"},
		{"md", "", "md k q\r\nmn\r\n"},
		{"ma", "", "ma k N0 J1 v t c\r\n"},
		{"binary get", "\x80\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x0a" + strings.Repeat("\x00", 20) + "kv", "\x80\x0c\x00\x01\x00\x00\x00\x00\x00\x00\x00\x01" + strings.Repeat("\x00", 12) + "k"},
		{"binary set", "", "\x80\x01\x00\x01\x08\x00\x00\x00\x00\x00\x00\x0a" + strings.Repeat("\x00", 20) + "kv"},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := newDriver(t, 0, 1)
			defer d.finish()
			if strings.HasPrefix(c.request, "\x80") != strings.HasPrefix(c.setup, "\x80") && c.setup != "" {
				t.Fatal("a connection speaks one protocol")
			}
			d.run([]byte(c.setup), manner{})
			request := []byte(c.request)
			once := func() {
				used, _ := d.w.serve(d.c, request)
				if used != len(request) {
					t.Fatalf("%d of %d bytes were used", used, len(request))
				}
				o := d.w.out
				n := 0
				for _, v := range o.pending() {
					n += int(v.Len)
				}
				if n == 0 {
					t.Fatal("no reply")
				}
				o.advance(n)
				o.recycle()
				d.w.sess.Release()
			}
			// Warm: retired slots are given back in batches, whose queue grows first.
			for range 2000 {
				once()
			}
			if n := testing.AllocsPerRun(200, once); n != 0 {
				t.Errorf("%v allocations a request", n)
			}
		})
	}
}
