package server

import "golang.org/x/sys/unix"

// moved is how much the client has sent and taken so far, in bytes that its kernel has
// acknowledged or ours received. Of a unix socket, which does not tell, it is when it last sent.
func (c *connInfo) moved() uint64 {
	if info, err := unix.GetsockoptTCPInfo(c.fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
		return info.Bytes_acked + info.Bytes_received
	}
	return uint64(c.lastSeen.Load())
}
