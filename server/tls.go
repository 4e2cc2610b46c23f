package server

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// TLSOptions says what "tls:" addresses show and ask for.
type TLSOptions struct {
	Cert, Key  string // files in PEM form
	ClientCA   string // file of the authorities that sign clients' certificates; "": the system's
	Clients    tls.ClientAuthType
	MinVersion uint16   // 0: TLS 1.2
	Ciphers    []uint16 // of TLS 1.2 and below; nil: Go's choice
	NoResume   bool     // every handshake is a whole one
}

// TLS is the certificates of a server. They may be read again while in use: a connection keeps what it began with.
type TLS struct {
	opts   TLSOptions
	inUse  atomic.Pointer[certificates]
	begun  atomic.Uint64 // handshakes that made a new session
	failed atomic.Uint64 // handshakes
}

// certificates is what was read at one time: a configuration for each kind of listener. Each lives as long as the
// certificates do, for it also holds the keys of the sessions that clients resume.
type certificates struct {
	config [3]*tls.Config // by listenTLS - 1
	read   time.Time
}

// listenTLS is what a listener speaks beneath memcached's protocol.
type listenTLS uint8

const (
	listenPlain   listenTLS = iota
	listenSecure            // "tls:", clients' certificates as configured
	listenMutual            // "mtls:", a client's certificate is required
	listenOneSide           // "btls:", none is asked for
)

// LoadTLS reads the certificates.
func LoadTLS(o TLSOptions) (*TLS, error) {
	if o.MinVersion == 0 {
		o.MinVersion = tls.VersionTLS12
	}
	t := &TLS{opts: o}
	return t, t.Reload()
}

// Reload reads the files again. On an error what was read before stays in use.
func (t *TLS) Reload() error {
	o := &t.opts
	pair, err := tls.LoadX509KeyPair(o.Cert, o.Key)
	if err != nil {
		return fmt.Errorf("server.tls: %w", err)
	}
	var pool *x509.CertPool
	if o.ClientCA != "" {
		pem, err := os.ReadFile(o.ClientCA)
		if err != nil {
			return fmt.Errorf("server.tls.client_ca: %w", err)
		}
		pool = x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			return fmt.Errorf("server.tls.client_ca: %s holds no certificate in PEM form", o.ClientCA)
		}
	}
	now := &certificates{read: time.Now()}
	for i, clients := range [...]tls.ClientAuthType{o.Clients, tls.RequireAndVerifyClientCert, tls.NoClientCert} {
		now.config[i] = &tls.Config{
			Certificates: []tls.Certificate{pair}, MinVersion: o.MinVersion, CipherSuites: o.Ciphers,
			ClientCAs: pool, ClientAuth: clients, SessionTicketsDisabled: o.NoResume,
		}
	}
	t.inUse.Store(now)
	return nil
}

// config is for a new connection of a listener that is not plain.
func (t *TLS) config(kind listenTLS) *tls.Config { return t.inUse.Load().config[kind-1] }

// done notes the end of a handshake.
func (t *TLS) done(c *tls.Conn, err error) {
	switch {
	case err != nil:
		t.failed.Add(1)
	case !c.ConnectionState().DidResume:
		t.begun.Add(1)
	}
}

// general gives the lines of plain stats.
func (t *TLS) general(l *statList) {
	if !t.opts.NoResume {
		l.count("ssl_new_sessions", t.begun.Load())
	}
	l.count("ssl_handshake_errors", t.failed.Load())
	l.zero("ssl_proto_errors")
	l.num("time_since_server_cert_refresh", int64(time.Since(t.inUse.Load().read)/time.Second))
}

// settings gives the lines of stats settings, in memcached's words.
func (t *TLS) settings(l *statList) {
	o := &t.opts
	mode := 0
	switch o.Clients {
	case tls.RequestClientCert, tls.VerifyClientCertIfGiven:
		mode = 1
	case tls.RequireAnyClientCert, tls.RequireAndVerifyClientCert:
		mode = 2
	}
	ciphers, ca := "", o.ClientCA
	for i, c := range o.Ciphers {
		if i > 0 {
			ciphers += ":"
		}
		ciphers += tls.CipherSuiteName(c)
	}
	for _, p := range []*string{&ciphers, &ca} {
		if *p == "" {
			*p = "NULL"
		}
	}
	l.str("ssl_chain_cert", o.Cert)
	l.str("ssl_key", o.Key)
	l.num("ssl_verify_mode", int64(mode))
	l.str("ssl_keyformat", "1") // PEM
	l.str("ssl_ciphers", ciphers)
	l.str("ssl_ca_cert", ca)
	l.flag("ssl_session_cache", !o.NoResume, "yes", "no")
	l.str("ssl_kernel_tls", "no")
	l.str("ssl_min_version", "tlsv1."+strconv.Itoa(int(o.MinVersion-tls.VersionTLS10)))
}
