package binlog

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"time"
)

// packets writes payloads as a server does, in parts of the protocol's largest packet.
func packets(payloads [][]byte, seq byte) []byte {
	var out []byte
	for _, p := range payloads {
		for {
			n := min(len(p), packetMax)
			out = append(out, byte(n), byte(n>>8), byte(n>>16), seq)
			out = append(out, p[:n]...)
			seq++
			p = p[n:]
			if n < packetMax {
				break
			}
		}
	}
	return out
}

// eventBytes makes a payload whose event header tells its size.
func eventBytes(rnd *rand.Rand, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rnd.Uint32())
	}
	if n >= 20 {
		size := uint32(n - 1)
		b[0], b[10], b[11], b[12], b[13] = 0, byte(size), byte(size>>8), byte(size>>16), byte(size>>24)
	}
	return b
}

// TestPacketReader sends packets of many sizes, cut anywhere, and gets them back whole.
func TestPacketReader(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	var payloads [][]byte
	for range 300 {
		payloads = append(payloads, eventBytes(rnd, rnd.IntN(3000)))
	}
	for _, n := range []int{0, 1, readerSize - 5, readerSize - 4, readerSize - 3, readerSize, 2 * readerSize, packetMax - 1, packetMax, packetMax + 1, 2 * packetMax, 7, 2*packetMax + 100, 8} {
		payloads = append(payloads, eventBytes(rnd, n), eventBytes(rnd, 30))
	}
	wire := packets(payloads, 1)
	client, server := net.Pipe()
	defer client.Close()
	done := make(chan error, 1)
	go func() {
		for len(wire) > 0 {
			n := min(len(wire), 1+rnd.IntN(200000))
			if _, err := server.Write(wire[:n]); err != nil {
				done <- err
				return
			}
			wire = wire[n:]
		}
		done <- server.Close()
	}()
	r := newPacketReader(client, time.Minute, 1, func(int) {})
	for i, want := range payloads {
		got, err := r.next(t.Context())
		if err != nil {
			t.Fatalf("packet %d of %d bytes: %v", i, len(want), err)
		}
		if !bytes.Equal(got, want) {
			t.Fatalf("packet %d of %d bytes came as %d bytes", i, len(want), len(got))
		}
	}
	if _, err := r.next(t.Context()); !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("at the end: %v", err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// TestPacketReaderCancel: a read that is given up loses nothing, and silence beyond the time-out is an error.
func TestPacketReaderCancel(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	defer server.Close()
	r := newPacketReader(client, 300*time.Millisecond, 1, func(int) {})
	wire := packets([][]byte{[]byte("first"), []byte("second")}, 1)
	for i := range wire {
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() {
			_, err := server.Write(wire[i : i+1])
			cancel()
			done <- err
		}()
		b, err := r.next(ctx)
		for err == nil { // what came before the end of ctx
			if s := string(b); s != "first" && s != "second" {
				t.Fatalf("got %q", s)
			}
			b, err = r.next(ctx)
		}
		if !errors.Is(err, context.Canceled) {
			t.Fatalf("after %d bytes: %v", i, err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	start := time.Now()
	if _, err := r.next(t.Context()); err == nil || time.Since(start) < 250*time.Millisecond || time.Since(start) > 30*time.Second {
		t.Errorf("silence: %v after %v", err, time.Since(start))
	}
}

func TestPacketReaderSequence(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close()
	go func() {
		// The reader closes its end whatever comes of this.
		_, _ = server.Write(packets([][]byte{[]byte("a")}, 9))
		_ = server.Close()
	}()
	r := newPacketReader(client, time.Minute, 1, func(int) {})
	if _, err := r.next(t.Context()); !errors.Is(err, errProtocol) {
		t.Errorf("got %v", err)
	}
}
