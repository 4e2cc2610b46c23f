//go:build !linux

package server

// moved is when the client last sent something, in unix seconds.
func (c *connInfo) moved() uint64 { return uint64(c.lastSeen.Load()) }
