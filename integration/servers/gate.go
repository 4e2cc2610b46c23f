package servers

import (
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"
)

// What a Gate holds back once it is armed.
const (
	HoldRequests = "requests" // the SELECT of a table of the database db, before the server gets it
	HoldReplies  = "replies"  // the answer to it, before the client gets it
)

// A Gate lies between clients and a server and can hold the reading of a table back, so that a test knows that something
// happens while a copy is under way. It ends with the test.
type Gate struct {
	listener net.Listener
	target   string
	work     sync.WaitGroup

	mu    sync.Mutex
	conns map[net.Conn]bool // guarded by mu
	shut  bool              // guarded by mu
	hold  string            // guarded by mu; empty: nothing
	held  chan struct{}     // guarded by mu; closed at the first SELECT since Arm
	open  chan struct{}     // guarded by mu; closed by Open
}

// NewGate starts a gate before the server, open.
func NewGate(t testing.TB, s *Server) *Gate {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &Gate{listener: listener, target: s.Addr, conns: map[net.Conn]bool{}}
	g.work.Go(g.accept)
	t.Cleanup(g.close)
	return g
}

// DSN is Server's through the gate. The gate reads what is said, so TLS must be off.
func (g *Gate) DSN(user string) string { return fmt.Sprintf("%s@tcp(%s)/", user, g.listener.Addr()) }

// Arm has the gate hold the next SELECT of a table of db, and those after it, until Open.
func (g *Gate) Arm(hold string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hold, g.held, g.open = hold, make(chan struct{}), make(chan struct{})
}

// Wait waits until something is held.
func (g *Gate) Wait(t testing.TB) {
	t.Helper()
	g.mu.Lock()
	held := g.held
	g.mu.Unlock()
	select {
	case <-held:
	case <-time.After(readyLimit):
		t.Fatalf("no table was read within %v", readyLimit)
	}
}

// Open lets everything pass.
func (g *Gate) Open() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.openLocked()
}

func (g *Gate) openLocked() {
	if g.hold != "" {
		g.hold = ""
		close(g.open)
	}
}

func (g *Gate) close() {
	g.mu.Lock()
	g.shut = true
	g.openLocked()
	g.listener.Close() // which ends accept
	for c := range g.conns {
		c.Close()
	}
	g.mu.Unlock()
	g.work.Wait()
}

// keep remembers a connection for close; false when that has been.
func (g *Gate) keep(c net.Conn) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.shut {
		c.Close()
		return false
	}
	g.conns[c] = true
	return true
}

func (g *Gate) accept() {
	for {
		client, err := g.listener.Accept()
		if err != nil {
			return
		}
		if !g.keep(client) {
			return
		}
		server, err := net.Dial("tcp", g.target)
		if err != nil {
			client.Close()
			continue
		}
		if !g.keep(server) {
			return
		}
		var replies sync.Mutex // held while replies are
		g.work.Go(func() { g.pass(server, client, &replies, true) })
		g.work.Go(func() { g.pass(client, server, &replies, false) })
	}
}

// pass moves bytes until one side ends.
func (g *Gate) pass(to, from net.Conn, replies *sync.Mutex, requests bool) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			var open chan struct{}
			var hold string
			if requests && bytes.Contains(buf[:n], []byte("SELECT ")) && bytes.Contains(buf[:n], []byte(" FROM `db")) && !bytes.Contains(buf[:n], []byte(" LIMIT ")) {
				open, hold = g.meet()
			}
			if hold == HoldReplies {
				replies.Lock()
			}
			if hold == HoldRequests {
				<-open
			}
			if !requests {
				replies.Lock()
			}
			_, writeErr := to.Write(buf[:n])
			if !requests {
				replies.Unlock()
			}
			if hold == HoldReplies {
				<-open
				replies.Unlock()
			}
			if writeErr != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// meet tells how a SELECT is to be held, and until when.
func (g *Gate) meet() (open chan struct{}, hold string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.hold == "" {
		return nil, ""
	}
	select {
	case <-g.held:
	default:
		close(g.held)
	}
	return g.open, g.hold
}
