package binlog

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"io"
	"runtime"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// logEvent makes an event with its header.
func logEvent(typ byte, body []byte) []byte {
	b := make([]byte, headerSize, headerSize+len(body))
	b[4] = typ
	binary.LittleEndian.PutUint32(b[9:], uint32(headerSize+len(body)))
	return append(b, body...)
}

// payloadEvent wraps events as TRANSACTION_PAYLOAD does.
func payloadEvent(t testing.TB, compress bool, events ...[]byte) *rawEvent {
	t.Helper()
	plain := bytes.Join(events, nil)
	data, kind := plain, byte(255)
	if compress {
		w, err := zstd.NewWriter(nil)
		if err != nil {
			t.Fatal(err)
		}
		data, kind = w.EncodeAll(plain, nil), 0
	}
	lenenc := func(b []byte, n uint64) []byte {
		if n < 0xfb {
			return append(b, byte(n))
		}
		return binary.LittleEndian.AppendUint64(append(b, 0xfe), n)
	}
	var b []byte
	for _, f := range []struct {
		kind byte
		n    uint64
	}{{2, uint64(kind)}, {3, uint64(len(plain))}, {1, uint64(len(data))}} {
		v := lenenc(nil, f.n)
		b = append(append(b, f.kind, byte(len(v))), v...)
	}
	b = append(b, 0)
	return &rawEvent{typ: evPayload, body: append(b, data...)}
}

func TestPayload(t *testing.T) {
	big := logEvent(evRowsQuery, bytes.Repeat([]byte("x"), 3<<20))
	for _, compress := range []bool{true, false} {
		var p payloadReader
		for range 3 { // reused
			e := payloadEvent(t, compress, logEvent(evQuery, []byte("one")), big, logEvent(evXID, []byte("two")))
			if err := p.open(e); err != nil {
				t.Fatal(err)
			}
			for _, want := range []struct {
				typ byte
				n   int
			}{{evQuery, 3}, {evRowsQuery, 3 << 20}, {evXID, 3}} {
				got, err := p.next()
				if err != nil || got.typ != want.typ || len(got.body) != want.n {
					t.Fatalf("compressed %v: got type %d with %d bytes, %v; want %v", compress, got.typ, len(got.body), err, want)
				}
			}
			if _, err := p.next(); err != io.EOF {
				t.Fatalf("at the end: %v", err)
			}
			p.reset()
		}
		e := payloadEvent(t, compress, big)
		e.body = e.body[:len(e.body)-10]
		if err := p.open(e); err == nil {
			if _, err = p.next(); err == nil {
				t.Error("a payload that is cut short was read")
			}
		}
	}
}

// TestPayloadMemory: Case 131: a transaction that grows a thousandfold passes in the memory of one event.
func TestPayloadMemory(t *testing.T) {
	var events [][]byte
	for range 300 {
		events = append(events, logEvent(evRowsQuery, bytes.Repeat([]byte("a"), 1<<20)))
	}
	e := payloadEvent(t, true, events...)
	events = nil
	if len(e.body) > 1<<20 {
		t.Fatalf("the payload has %d bytes", len(e.body))
	}
	var p payloadReader
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	if err := p.open(e); err != nil {
		t.Fatal(err)
	}
	n := 0
	for {
		if _, err := p.next(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		n++
	}
	runtime.ReadMemStats(&after)
	if n != 300 {
		t.Errorf("%d events", n)
	}
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 40<<20 {
		t.Errorf("300 MB took %d MB", grown>>20)
	}
}

func TestInflateMariaDB(t *testing.T) {
	for _, n := range []int{0, 1, 255, 256, 70000, 3 << 20} {
		want := bytes.Repeat([]byte("r"), n)
		var z bytes.Buffer
		w := zlib.NewWriter(&z)
		if _, err := w.Write(want); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		b := append([]byte{0x84, byte(n >> 24), byte(n >> 16), byte(n >> 8), byte(n)}, z.Bytes()...)
		got, err := inflateMariaDB([]byte("before"), b)
		if err != nil || string(got) != "before"+string(want) {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
		if n > 0 {
			for _, cut := range []int{0, 1, 3, 5, len(b) - 6} {
				if _, err := inflateMariaDB(nil, b[:cut]); err == nil {
					t.Errorf("%d bytes cut to %d were read", n, cut)
				}
			}
		}
	}
	if _, err := inflateMariaDB(nil, []byte{0x84, 0xff, 0xff, 0xff, 0xff, 0x78}); err == nil {
		t.Error("4 GiB were believed")
	}
}
