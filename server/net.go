package server

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"os"
	"sync"
	"time"

	"github.com/rowcached/rowcached/server/protocol"
)

const (
	handshakeTime = 10 * time.Second
	netRead       = 16 << 10
)

// netEngine serves connections with a goroutine each, over package net. It is
// what there is where loops are not, and what carries TLS. The goroutines share
// as many workers as there are loops; a worker is held only while requests are
// executed, never while bytes are waited for.
type netEngine struct {
	srv       *Server
	listeners []*listener
	workers   []*sharedWorker
	outputs   sync.Pool
	pressed   chan struct{} // more is held for clients than is allowed
	presser   presser       // of relieve

	mu      sync.Mutex
	clients map[*netClient]struct{} // guarded by mu
	closing bool                    // guarded by mu
}

// sharedWorker is a worker that several connections use in turn.
type sharedWorker struct {
	mu sync.Mutex
	w  *worker // guarded by mu
}

// netClient is a connection of this engine; its fields but net belong to its goroutine.
type netClient struct {
	conn
	net    net.Conn
	shared *sharedWorker
	read   int // bytes not yet counted
	wrote  int // bytes not yet counted
	flat   []byte
	pinned int64 // bytes of items in what is being sent; guarded by the engine's mu
}

func newNetEngine(s *Server, ls []*listener) engine {
	e := &netEngine{srv: s, listeners: ls, clients: make(map[*netClient]struct{}), pressed: make(chan struct{}, 1)}
	s.wakers = append(s.wakers, func() {
		select {
		case e.pressed <- struct{}{}:
		default:
		}
	})
	e.outputs.New = func() any { return newOutput(s.cfg.NoCAS) }
	for range s.threads() {
		e.workers = append(e.workers, &sharedWorker{w: s.worker()})
	}
	return e
}

func (e *netEngine) run(ctx context.Context) error {
	var accepting, serving, relieving sync.WaitGroup
	relieved := make(chan struct{})
	relieving.Go(func() { e.relieve(relieved) })
	errs := make([]error, len(e.listeners))
	failed := make(chan struct{}, len(e.listeners))
	for i, l := range e.listeners {
		accepting.Go(func() {
			errs[i] = e.accept(ctx, l, &serving)
			failed <- struct{}{}
		})
	}
	select {
	case <-ctx.Done():
	case <-failed:
	}
	for _, l := range e.listeners {
		l.Close()
	}
	accepting.Wait()
	e.closeClients()
	serving.Wait()
	close(relieved)
	relieving.Wait()
	for _, s := range e.workers {
		s.w.sess.Close()
	}
	return errors.Join(errs...)
}

// relieve closes clients that do not go on while too much is held for them.
func (e *netEngine) relieve(done <-chan struct{}) {
	for {
		select {
		case <-done:
			return
		case <-e.pressed:
		}
		for e.srv.pressing.Load() {
			e.mu.Lock()
			press(&e.presser, e.srv, e.waiting, (*netClient).cut)
			e.mu.Unlock()
			select {
			case <-done:
				return
			case <-time.After(pressFast):
			}
		}
	}
}

// waiting gives the clients that are waited for; with mu.
func (e *netEngine) waiting(yield func(victim[*netClient]) bool) {
	for c := range e.clients {
		if c.stall.cost > 0 && !yield(victim[*netClient]{c, &c.conn, c.stall.cost + c.pinned}) {
			return
		}
	}
}

// cut ends a client whose goroutine may be waiting for it.
func (c *netClient) cut() {
	raw := c.net
	if t, ok := raw.(*tls.Conn); ok {
		raw = t.NetConn() // says no goodbye, for which it might have to wait
	}
	raw.Close()
}

// hold notes what is held for a client, and how much it has pinned.
func (e *netEngine) hold(c *netClient, bytes, pinned int64) {
	if bytes < stallLeast && c.stall.cost == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	c.pinned = pinned
	e.srv.hold(&c.conn, bytes)
}

// kicked counts a client that was silent for too long.
func (e *netEngine) kicked(c *netClient, err error) {
	if e.srv.cfg.IdleTimeout > 0 && errors.Is(err, os.ErrDeadlineExceeded) {
		c.shared.mu.Lock()
		defer c.shared.mu.Unlock()
		c.shared.w.count.add(cIdleKick, 1)
		c.shared.w.count.publish()
	}
}

// closeClients wakes every goroutine that waits for a request, and bounds the
// time of those that are sending.
func (e *netEngine) closeClients() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closing = true
	now := time.Now()
	for c := range e.clients {
		_ = c.net.SetReadDeadline(now)
		_ = c.net.SetWriteDeadline(now.Add(drainTime))
	}
}

func (e *netEngine) accept(ctx context.Context, l *listener, serving *sync.WaitGroup) error {
	for {
		raw, err := l.Accept()
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			// Out of descriptors, or a client that was gone already: neither ends the service.
			e.srv.cfg.Logger.Warn("accept failed", "addr", l.Addr().String(), "err", err)
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(50 * time.Millisecond):
			}
			continue
		}
		c, ok := e.srv.open(descriptor(raw), raw.LocalAddr(), raw.RemoteAddr())
		if !ok {
			_, _ = raw.Write([]byte(protocol.TooManyConns))
			raw.Close()
			continue
		}
		n := &netClient{conn: *c, net: e.srv.secure(l, raw), shared: e.workers[int(c.info.id)%len(e.workers)]}
		serving.Go(func() { e.serve(n) })
	}
}

// enter notes a client; false: the engine is closing.
func (e *netEngine) enter(c *netClient) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closing {
		e.clients[c] = struct{}{}
	}
	return !e.closing
}

func (e *netEngine) serve(c *netClient) {
	defer e.leave(c)
	if !e.enter(c) {
		return
	}
	if t, ok := c.net.(*tls.Conn); ok {
		_ = t.SetDeadline(time.Now().Add(handshakeTime))
		err := t.Handshake()
		e.srv.cfg.TLS.done(t, err)
		if err != nil {
			return
		}
		_ = t.SetDeadline(time.Time{})
		if !e.enter(c) { // the engine may have begun to close meanwhile
			return
		}
	}
	var held []byte
	buf := make([]byte, netRead)
	for c.phase != phaseClosed {
		if d := e.srv.cfg.IdleTimeout; d > 0 {
			_ = c.net.SetDeadline(time.Now().Add(d))
			if !e.enter(c) {
				return
			}
		}
		data, err := c.receive(&held, &buf)
		if err != nil {
			e.kicked(c, err)
			return
		}
		c.info.lastSeen.Store(e.srv.cfg.Clock())
		for more := true; more; {
			var used int
			var o *output
			used, more, o = e.execute(c, data)
			data = data[used:]
			if o == nil {
				continue
			}
			e.hold(c, c.waiting(data)+o.cost(), int64(o.size))
			if err := e.send(c, o); err != nil {
				o.drop()
				e.kicked(c, err)
				return
			}
			e.outputs.Put(o)
		}
		if len(data) > 0 {
			held = append(held[:0], data...)
		} else {
			held = held[:0]
		}
		e.hold(c, c.waiting(held), 0)
		c.note(false)
	}
}

// receive waits for bytes. data is all the input that is not used up.
func (c *netClient) receive(held, buf *[]byte) (data []byte, err error) {
	if rest := c.store.rest(); len(rest) >= netRead && len(*held) == 0 {
		n, err := c.net.Read(rest)
		c.store.have += n
		c.read += n
		return nil, err
	}
	n := len(*held)
	if len(*buf)-n < netRead/2 {
		*buf = make([]byte, 2*len(*buf)+netRead)
	} else if len(*buf) > 4*netRead && n == 0 {
		*buf = make([]byte, netRead)
	}
	copy(*buf, *held)
	got, err := c.net.Read((*buf)[n:])
	c.read += got
	if got > 0 {
		err = nil
	}
	return (*buf)[:n+got], err
}

// execute serves data on the shared worker. The output is the connection's from
// then on, its items pinned; nil if there is none.
func (e *netEngine) execute(c *netClient, data []byte) (used int, more bool, o *output) {
	c.shared.mu.Lock()
	defer c.shared.mu.Unlock()
	w := c.shared.w
	w.count.add(cBytesRead, uint64(c.read))
	w.count.add(cBytesWritten, uint64(c.wrote))
	c.read, c.wrote = 0, 0
	used, more = w.serve(&c.conn, data)
	if c.abandon {
		w.out.drop()
		more = false
	}
	if !w.out.empty() {
		w.out.pin()
		o = w.out
		w.out = e.outputs.Get().(*output)
	}
	w.sess.Release()
	w.count.publish()
	return used, more, o
}

// send sends all of o. A client that does not read holds up its own goroutine
// and nothing else; what it holds of memory is bounded by the output's size.
func (e *netEngine) send(c *netClient, o *output) error {
	_, secure := c.net.(*tls.Conn)
	for {
		vec := o.pending()
		n := 0
		var list net.Buffers
		if secure && o.size <= outBytes {
			// One record instead of many small ones.
			c.flat = c.flat[:0]
			for i := range vec {
				c.flat = append(c.flat, bytesOf(vec[i])...)
			}
			list = append(list, c.flat)
		} else {
			for i := range vec {
				list = append(list, bytesOf(vec[i]))
			}
		}
		for i := range vec {
			n += int(vec[i].Len)
		}
		if n > 0 {
			if d := e.srv.cfg.IdleTimeout; d > 0 {
				_ = c.net.SetWriteDeadline(time.Now().Add(d))
				if !e.enter(c) { // closing: what is left of the time is less
					_ = c.net.SetWriteDeadline(time.Now().Add(min(d, drainTime)))
				}
			}
			if _, err := list.WriteTo(c.net); err != nil {
				return err
			}
			c.wrote += n
			o.advance(n)
		}
		o.recycle()
		if !o.waiting() {
			return nil
		}
		o.fill()
	}
}

// leave ends a connection.
func (e *netEngine) leave(c *netClient) {
	c.net.Close()
	c.shared.mu.Lock()
	w := c.shared.w
	w.count.add(cBytesRead, uint64(c.read))
	w.count.add(cBytesWritten, uint64(c.wrote))
	w.count.publish()
	e.mu.Lock()
	delete(e.clients, c)
	e.mu.Unlock()
	e.srv.closed(&c.conn)
	c.shared.mu.Unlock()
}
