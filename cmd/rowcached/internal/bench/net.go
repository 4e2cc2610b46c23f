package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

// replyLimit bounds the wait for a reply.
const replyLimit = 10 * time.Second

var errClosed = errors.New("the server closed the connection")

// driveNet drives each connection with a goroutine of its own, on every system. They share the worker, so one of them at a
// time works on replies and requests; it is the sending and receiving that goes on at once.
func driveNet(ctx context.Context, w *worker, conns []net.Conn) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var mu sync.Mutex // guards the worker
	errs := make([]error, len(conns))
	var wg sync.WaitGroup
	for i, conn := range conns {
		wg.Go(func() {
			stop := context.AfterFunc(ctx, func() { conn.Close() })
			defer stop()
			errs[i] = converse(ctx, w, &mu, conn)
			if errs[i] != nil {
				cancel()
			}
			if err := conn.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				errs[i] = errors.Join(errs[i], err)
			}
		})
	}
	wg.Wait()
	w.end(w.clock())
	w.idle = -1 // nobody knows when the goroutines waited
	for _, err := range errs {
		if err != nil && !errors.Is(err, net.ErrClosed) {
			return err
		}
	}
	return ctx.Err()
}

// converse is one connection's life.
func converse(ctx context.Context, w *worker, mu *sync.Mutex, conn net.Conn) error {
	c := &client{w: w}
	buf := make([]byte, headroom+64<<10)
	sent := make(chan error, 1)
	for {
		if err := waitTurn(ctx, w, mu); err != nil {
			return err
		}
		mu.Lock()
		now := w.clock()
		w.tick(now)
		if w.each > 0 {
			now = min(w.due, now)
			w.due += w.each
		}
		more := c.begin(now)
		mu.Unlock()
		if !more {
			return nil
		}
		if err := conn.SetDeadline(time.Now().Add(replyLimit)); err != nil {
			return err
		}
		// A batch may be more than both ends' buffers hold: it is sent while replies are read.
		go func() {
			_, err := conn.Write(c.out)
			sent <- err
		}()
		err := receive(w, mu, c, conn, buf)
		if err != nil {
			conn.Close() // ends the sending too
		}
		if sendErr := <-sent; err == nil {
			err = sendErr
		}
		if err != nil {
			return err
		}
	}
}

// receive reads until the batch's replies are complete.
func receive(w *worker, mu *sync.Mutex, c *client, conn net.Conn, buf []byte) error {
	for {
		n, err := conn.Read(buf[headroom:])
		if n == 0 && errors.Is(err, io.EOF) {
			return errClosed
		}
		if n == 0 && err != nil {
			return fmt.Errorf("receive: %w", err)
		}
		mu.Lock()
		now := w.clock()
		done, err := c.read(buf, headroom, headroom+n, now)
		w.tick(now)
		mu.Unlock()
		if err != nil || done {
			return err
		}
	}
}

// waitTurn waits until a paced batch is due; others need not wait.
func waitTurn(ctx context.Context, w *worker, mu *sync.Mutex) error {
	mu.Lock()
	var pause time.Duration
	if w.each > 0 {
		pause = w.due - w.clock()
	}
	mu.Unlock()
	if pause <= 0 {
		return ctx.Err()
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(pause):
		return nil
	}
}
