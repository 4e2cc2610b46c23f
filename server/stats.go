package server

import "github.com/rowcached/rowcached/server/protocol"

func (w *worker) stats(t *protocol.Text) { w.out.str(protocol.End) }
