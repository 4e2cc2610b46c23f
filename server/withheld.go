package server

import "github.com/rowcached/rowcached/server/protocol"

// withheld gives the line that answers a read of a key while tables are not served, "" otherwise. Keys of no table are served
// whatever happens (G8).
func (w *worker) withheld(key []byte) string {
	t := w.srv.cfg.Tables
	if t == nil {
		return ""
	}
	why := t.Withheld()
	if why == nil {
		return ""
	}
	if _, owner, err := t.Resolve(w.itemBuf[:0], key); owner == 0 || err != nil {
		return ""
	}
	w.count.add(cWithheld, 1)
	return "SERVER_ERROR " + oneLine(why.Error()) + "\r\n"
}

// withholding says whether tables are not served at present.
func (w *worker) withholding() bool {
	return w.srv.cfg.Tables != nil && w.srv.cfg.Tables.Withheld() != nil
}

// withheldAny is withheld for the keys of a get.
func (w *worker) withheldAny(key, rest []byte) string {
	if !w.withholding() {
		return ""
	}
	for ; len(key) > 0; key, rest = protocol.NextWord(rest) {
		if line := w.withheld(key); line != "" {
			return line
		}
	}
	return ""
}
