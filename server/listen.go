package server

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"
	"syscall"
)

// listener is one listening socket.
type listener struct {
	net.Listener
	tls listenTLS
	fd  int // for stats; 0: unknown
}

func newListener(l net.Listener, secure listenTLS) *listener {
	return &listener{Listener: l, tls: secure, fd: descriptor(l)}
}

// descriptor is the number of a socket's descriptor, for stats; 0 if unknown.
func descriptor(socket any) (n int) {
	if c, ok := socket.(syscall.Conn); ok {
		if raw, err := c.SyscallConn(); err == nil {
			_ = raw.Control(func(fd uintptr) { n = int(fd) })
		}
	}
	return n
}

// Listen opens every address of the configuration and gives them back as they
// were bound. It opens all or none.
func (s *Server) Listen() ([]net.Addr, error) {
	if s.listening {
		return nil, errors.New("server: Listen twice")
	}
	var addrs []net.Addr
	for _, a := range s.cfg.Listen {
		l, err := s.listen(a)
		if err != nil {
			s.closeListeners()
			s.listeners = nil
			return nil, err
		}
		s.listeners = append(s.listeners, l)
		addrs = append(addrs, l.Addr())
	}
	s.listening = true
	return addrs, nil
}

func (s *Server) listen(address string) (*listener, error) {
	if path, ok := strings.CutPrefix(address, "unix:"); ok {
		return s.listenUnix(path)
	}
	secure, rest := listenPlain, address
	for kind, scheme := range map[listenTLS]string{listenSecure: "tls:", listenMutual: "mtls:", listenOneSide: "btls:"} {
		if after, ok := strings.CutPrefix(address, scheme); ok {
			secure, rest = kind, after
		}
	}
	if secure != listenPlain && s.cfg.TLS == nil {
		return nil, fmt.Errorf("listen on %s: no certificate is configured (server.tls)", address)
	}
	network := "tcp"
	if host, _, err := net.SplitHostPort(rest); err == nil {
		// Go takes 0.0.0.0 for every address of both families; memcached and people do not.
		if ip, err := netip.ParseAddr(host); err == nil && ip.Is4() {
			network = "tcp4"
		}
	}
	l, err := net.Listen(network, rest)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	return newListener(l, secure), nil
}

// listenUnix removes a socket that nobody listens on any more, never anything
// else.
func (s *Server) listenUnix(path string) (*listener, error) {
	if st, err := os.Lstat(path); err == nil && st.Mode()&fs.ModeSocket != 0 {
		if c, err := net.Dial("unix", path); err == nil {
			c.Close()
			return nil, fmt.Errorf("listen on unix:%s: another program listens there", path)
		}
		if err := os.Remove(path); err != nil {
			return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
		}
	}
	l, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
	}
	if err := os.Chmod(path, fs.FileMode(s.cfg.UnixMode)); err != nil {
		l.Close()
		return nil, fmt.Errorf("listen on unix:%s: %w", path, err)
	}
	return newListener(l, listenPlain), nil
}

func (s *Server) closeListeners() {
	for _, l := range s.listeners {
		l.Close() // a second close does no harm, and nothing is to be done about an error
	}
}

// secure wraps an accepted connection of a TLS listener.
func (s *Server) secure(l *listener, c net.Conn) net.Conn {
	if l.tls != listenPlain {
		return tls.Server(c, s.cfg.TLS.config(l.tls))
	}
	return c
}
