package server

import (
	"crypto/rand"
	"os"
	"time"

	"github.com/rowcached/rowcached/server/protocol"
)

// saslMechanisms are the mechanisms of a SASL login, as a client is told them.
const saslMechanisms = "CRAM-MD5 PLAIN"

// longestMechanism is the longest name of a mechanism that is looked at.
const longestMechanism = 32

// sasl executes a step of a SASL login over the binary protocol.
func (w *worker) sasl(c *conn, in []byte, n int) int {
	b := &w.bin
	size := b.Value()
	switch {
	case !w.srv.cfg.SASL:
		w.binaryError(protocol.StatusUnknown)
		c.swallow = size
		return n
	case size > protocol.MaxToken || len(b.Key) > longestMechanism:
		w.binaryError(protocol.StatusInvalid)
		c.swallow = size
		return n
	case len(in) < n+size:
		return 0
	}
	body := in[n : n+size]
	challenge := c.login.challenge
	c.login.challenge = ""
	ok := false
	switch mechanism := string(b.Key); {
	case b.Op == protocol.BinSASLAuth && mechanism == "PLAIN":
		user, password, whole := protocol.SplitPlain(body)
		ok = whole && w.srv.cfg.Auth.Check(user, password)
	case b.Op == protocol.BinSASLAuth && mechanism == "CRAM-MD5":
		c.authed = false
		c.login.challenge = newChallenge()
		w.binaryHead(protocol.StatusAuthContinue, 0, 0, 0, len(c.login.challenge))
		w.out.str(c.login.challenge)
		return n + size
	case b.Op == protocol.BinSASLStep && mechanism == "CRAM-MD5" && challenge != "":
		user, digest, whole := protocol.SplitCRAM(body)
		ok = whole && w.srv.cfg.Auth.CheckCRAM(user, challenge, digest)
	}
	w.count.add(cAuth, 1)
	c.authed = ok
	if !ok {
		w.count.add(cAuthError, 1)
		w.binaryError(protocol.StatusAuthError)
		return n + size
	}
	w.binaryReply(0, "Authenticated")
	return n + size
}

// newChallenge is what a client of CRAM-MD5 proves itself by: random, a time, and the host's name (RFC 2195).
func newChallenge() string {
	host, err := os.Hostname()
	if err != nil {
		host = "localhost"
	}
	b := append([]byte{'<'}, rand.Text()...)
	b = protocol.AppendInt(append(b, '.'), time.Now().Unix())
	return string(append(b, '@')) + host + ">"
}
