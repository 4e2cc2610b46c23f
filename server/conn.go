package server

import (
	"sync/atomic"

	"github.com/rowcached/rowcached/server/memory"
	"github.com/rowcached/rowcached/server/protocol"
)

// phase is what the next bytes of a connection are.
type phase uint8

const (
	phaseCommand phase = iota // a command line or a binary header
	phaseBody                 // a data block, read into a draft
	phaseKeys                 // further keys of a get whose line is too long to be held
	phaseLine                 // the rest of a line that means nothing any more
	phaseClosed               // nothing: close once the output is sent
)

// conn is a connection as the protocol sees it, whatever moves its bytes. It is
// used by one goroutine at a time.
type conn struct {
	phase   phase
	binary  bool // speaks the binary protocol
	known   bool // binary is decided
	authed  bool
	abandon bool // close at once: unsent replies are lost
	scanned int  // bytes of the held input known to hold no line end
	swallow int  // bytes to be thrown away before the next command
	info    *connInfo
	stall   stall

	store storage
	keys  getCommand // of phaseKeys
	login loginState
}

// connInfo is what other goroutines may ask of a connection.
type connInfo struct {
	id       uint64
	fd       int
	remote   string
	local    string
	lastSeen atomic.Int64 // unix seconds of the last bytes
	state    atomic.Uint32
}

// connState is what stats conns says of a connection.
type connState uint32

const (
	stateCommand connState = iota // it waits for a command, or is executing one
	stateBody                     // it waits for a data block
	stateWrite                    // it waits for the client to read
	stateSwallow                  // it throws a data block away
)

func (s connState) String() string {
	return [...]string{"conn_parse_cmd", "conn_nread", "conn_mwrite", "conn_swallow"}[s]
}

// note makes the connection's state visible to other goroutines.
func (c *conn) note(blocked bool) {
	s := stateCommand
	switch {
	case blocked:
		s = stateWrite
	case c.phase == phaseBody:
		s = stateBody
	case c.swallow > 0:
		s = stateSwallow
	}
	if connState(c.info.state.Load()) != s {
		c.info.state.Store(uint32(s))
	}
}

// storage is a storage command whose data block is being received.
type storage struct {
	draft   memory.Draft
	active  bool
	size    int // of the block, without its line end
	have    int // bytes received, line end included
	tail    [2]byte
	mode    memory.Mode
	cas     uint64
	noReply bool
	op      protocol.Op

	meta *metaStore   // ms
	bin  *binaryStore // binary
}

// rest is the part of the block that is still to be received; nil when nothing
// is to be stored.
func (s *storage) rest() []byte {
	if !s.active || s.have >= s.size {
		return nil
	}
	return s.draft.Data()[s.have:]
}

// getCommand is what of a get command matters for each of its keys.
type getCommand struct {
	op      protocol.Op
	exptime int64
}

func (g getCommand) withCAS() bool { return g.op == protocol.OpGets || g.op == protocol.OpGats }
func (g getCommand) touches() bool { return g.op == protocol.OpGat || g.op == protocol.OpGats }

// close gives back what the connection holds of memory.
func (c *conn) close() {
	if c.store.active {
		c.store.draft.Abort()
		c.store.active = false
	}
	c.phase = phaseClosed
}
