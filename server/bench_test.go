package server

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/rowcached/rowcached/server/memory"
)

// benchWorker is a worker over 10,000 items of size bytes.
func benchWorker(b *testing.B, size int) (*worker, *conn) {
	store, err := memory.New(memory.Options{Limit: 256 << 20})
	if err != nil {
		b.Fatal(err)
	}
	s, err := New(Config{Memory: store})
	if err != nil {
		b.Fatal(err)
	}
	w := s.worker()
	b.Cleanup(func() {
		w.sess.Close()
		if err := store.Close(); err != nil {
			b.Error(err)
		}
	})
	c, ok := s.open(0, nil, nil)
	if !ok {
		b.Fatal("too many connections")
	}
	for i := range benchKeys {
		serveAll(b, w, c, fmt.Appendf(nil, "set memtier-%016d 0 0 %d\r\n%0*d\r\n", i, size, size, i))
	}
	return w, c
}

const benchKeys = 10000

// serveAll serves in and throws the output away.
func serveAll(b *testing.B, w *worker, c *conn, in []byte) {
	for more := true; more || len(in) > 0; {
		var used int
		used, more = w.serve(c, in)
		in = in[used:]
		for !w.out.empty() {
			n := 0
			for _, v := range w.out.pending() {
				n += int(v.Len)
			}
			w.out.advance(n)
			w.out.recycle()
			w.out.fill()
		}
		w.sess.Release()
		w.count.publish()
		if used == 0 && !more && len(in) > 0 {
			b.Fatal("an incomplete request")
		}
	}
}

// BenchmarkServe is what a request costs without the kernel.
func BenchmarkServe(b *testing.B) {
	for _, bm := range []struct {
		name        string
		size, depth int
		multi       int
		set         bool
	}{
		{"get-100", 100, 1, 0, false}, {"get-4k", 4096, 1, 0, false}, {"get-100-d64", 100, 64, 0, false},
		{"mget100-100", 100, 1, 100, false}, {"mget100-4k", 4096, 1, 100, false},
		{"set-100", 100, 1, 0, true}, {"set-4k", 4096, 1, 0, true}, {"set-100-d16", 100, 16, 0, true},
	} {
		b.Run(bm.name, func(b *testing.B) {
			w, c := benchWorker(b, bm.size)
			var requests [][]byte
			for range 2000 {
				var r []byte
				for range bm.depth {
					key := func() []byte { return fmt.Appendf(nil, "memtier-%016d", rand.IntN(benchKeys)) }
					switch {
					case bm.set:
						r = fmt.Appendf(r, "set %s 0 0 %d\r\n%0*d\r\n", key(), bm.size, bm.size, 1)
					case bm.multi > 0:
						r = append(r, "get"...)
						for range bm.multi {
							r = append(append(r, ' '), key()...)
						}
						r = append(r, "\r\n"...)
					default:
						r = fmt.Appendf(r, "get %s\r\n", key())
					}
				}
				requests = append(requests, r)
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				serveAll(b, w, c, requests[i%len(requests)])
				i++
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(i)/float64(bm.depth*max(1, bm.multi)), "ns/key")
		})
	}
}
