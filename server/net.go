package server

import "context"

type netEngine struct{}

func newNetEngine(s *Server, ls []*listener) engine { return &netEngine{} }
func (e *netEngine) run(ctx context.Context) error  { <-ctx.Done(); return nil }
