package server

type binaryStore struct{}

func (w *worker) binaryCommand(c *conn, in []byte) int { c.phase = phaseClosed; return 0 }
func (w *worker) binaryFinish(s *storage)              {}
