package server

import (
	"github.com/rowcached/rowcached/server/protocol"
)

// loginState is a text login whose body is awaited.
type loginState struct {
	waiting bool
	size    int // of the body, with its line end

	challenge string // of CRAM-MD5, which the next step has to answer; "": none
}

// admit decides at a connection's first byte whether its protocol is spoken here.
func (w *worker) admit(c *conn) bool {
	s := &w.srv.cfg
	refuse := false
	switch {
	case s.SASL || s.Protocol == ProtocolBinary:
		refuse = !c.binary
	case s.Protocol == ProtocolText:
		if c.binary {
			w.out.str(protocol.FaultFormat.Line())
			refuse = true
		}
	case s.Auth != nil: // the text login; binary has no way to use it
		refuse = c.binary
	}
	if refuse {
		c.phase = phaseClosed
	}
	return !refuse
}

// textLogin waits for "set <any key> <flags> <time> <length>" whose body is "user
// password". Nothing else is looked at before.
func (w *worker) textLogin(c *conn, in []byte) int {
	l := &c.login
	if !l.waiting {
		n, next := protocol.LineEnd(in)
		if next == 0 {
			if len(in) > protocol.MaxLine {
				c.phase = phaseClosed
			}
			return 0
		}
		if next <= 6 { // shorter than any login: not a client of ours
			c.phase = phaseClosed
			return next
		}
		command, rest := protocol.NextWord(in[:n])
		var size []byte
		for range 4 {
			size, rest = protocol.NextWord(rest)
		}
		v, ok := protocol.Uint(size)
		switch {
		case string(command) != "set" || !ok || v > 1<<32-1:
			w.out.str("CLIENT_ERROR unauthenticated\r\n")
		case v > protocol.MaxToken:
			w.out.str("CLIENT_ERROR auth token too long\r\n")
		default:
			l.waiting, l.size = true, int(v)+2
		}
		return next
	}
	if len(in) < l.size {
		return 0
	}
	body := in[:l.size]
	l.waiting = false
	if string(body[l.size-2:]) != "\r\n" {
		c.phase = phaseClosed
		return l.size
	}
	user, password, ok := protocol.SplitToken(body[:l.size-2])
	if !ok {
		w.out.str("CLIENT_ERROR bad authentication token format\r\n")
		return l.size
	}
	w.count.add(cAuth, 1)
	if !w.srv.cfg.Auth.Check(user, password) {
		w.count.add(cAuthError, 1)
		w.out.str("CLIENT_ERROR authentication failure\r\n")
		return l.size
	}
	c.authed = true
	w.out.str(protocol.Stored)
	return l.size
}
