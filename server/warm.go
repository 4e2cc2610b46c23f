package server

import (
	"bytes"

	"github.com/rowcached/rowcached/server/protocol"
)

// warmLeast is how many connections must be served one after the other for their
// look-ups to be worth preparing.
const warmLeast = 4

// warm notes the key of the first text command of in, which will soon be executed.
func (w *worker) warm(in []byte) {
	if key := firstKey(in); len(key) > 0 && len(w.cold) < cap(w.cold) {
		w.cold = append(w.cold, key)
	}
}

// warmed asks for the memory of the noted keys.
func (w *worker) warmed() {
	if len(w.cold) >= warmLeast {
		w.enter()
		w.sess.Warm(w.cold)
		w.leave()
	}
	w.cold = w.cold[:0]
}

// firstKey is the second word of a text command, if it can be a key.
func firstKey(in []byte) []byte {
	if len(in) == 0 || in[0] == protocol.BinaryRequest {
		return nil
	}
	i := bytes.IndexByte(in[:min(len(in), len("prepend "))], ' ')
	if i < 0 {
		return nil
	}
	key := in[i+1:]
	key = key[:min(len(key), protocol.MaxKey)]
	for j, c := range key {
		if c <= ' ' {
			return key[:j]
		}
	}
	return nil
}
