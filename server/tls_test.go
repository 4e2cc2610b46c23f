package server

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/rowcached/rowcached/server/protocol"
)

// authority signs certificates of a test.
type authority struct {
	t    testing.TB
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority(t testing.TB) *authority {
	a := &authority{t: t, pool: x509.NewCertPool()}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "authority"}, IsCA: true, BasicConstraintsValid: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.key = key
	a.pool.AddCert(a.cert)
	return a
}

func (a *authority) certificate(name string) tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		a.t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &key.PublicKey, a.key)
	if err != nil {
		a.t.Fatal(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
}

// write puts a certificate and its key into PEM files.
func (a *authority) write(certFile, keyFile string, c tls.Certificate) {
	a.t.Helper()
	key, err := x509.MarshalPKCS8PrivateKey(c.PrivateKey)
	if err != nil {
		a.t.Fatal(err)
	}
	for name, block := range map[string]*pem.Block{certFile: {Type: "CERTIFICATE", Bytes: c.Certificate[0]}, keyFile: {Type: "PRIVATE KEY", Bytes: key}} {
		if err := os.WriteFile(name, pem.EncodeToMemory(block), 0o600); err != nil {
			a.t.Fatal(err)
		}
	}
}

// load makes a server's certificates, signed by the authority, which also is the one that clients' must be signed by.
func (a *authority) load(o TLSOptions) *TLS {
	a.t.Helper()
	dir := a.t.TempDir()
	o.Cert, o.Key, o.ClientCA = filepath.Join(dir, "cert.pem"), filepath.Join(dir, "key.pem"), filepath.Join(dir, "ca.pem")
	a.write(o.Cert, o.Key, a.certificate("server"))
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: a.cert.Raw})
	if err := os.WriteFile(o.ClientCA, ca, 0o600); err != nil {
		a.t.Fatal(err)
	}
	t, err := LoadTLS(o)
	if err != nil {
		a.t.Fatal(err)
	}
	return t
}

// startTLS runs a server with one plain and one TLS address.
func startTLS(t testing.TB, a *authority, change func(*Config)) (s *tester, secure string) {
	t.Helper()
	s = startServer(t, func(c *Config) {
		c.Listen = append(c.Listen, "tls:127.0.0.1:0")
		c.TLS = a.load(TLSOptions{})
		if change != nil {
			change(c)
		}
	})
	return s, s.listeners[1].Addr().String()
}

func dialTLS(t testing.TB, addr string, cfg *tls.Config) (*client, error) {
	t.Helper()
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 20 * time.Second}, Config: cfg}
	c, err := d.Dial("tcp", addr)
	if err != nil {
		return nil, err
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(60 * time.Second))
	return &client{c, t, bufio.NewReaderSize(c, 64<<10)}, nil
}

// TestTLS: both addresses serve the same items, at the same time, at every size of
// a reply; what is no TLS is cut off.
func TestTLS(t *testing.T) {
	a := newAuthority(t)
	s, addr := startTLS(t, a, nil)
	secure, err := dialTLS(t, addr, &tls.Config{RootCAs: a.pool})
	if err != nil {
		t.Fatal(err)
	}
	plain := s.dial(t)
	for i, size := range []int{0, 1, 1000, 5000, 16 << 10, 17000, 100000, 1<<20 - 200} {
		value := string(pattern(i, size))
		secure.send(fmt.Sprintf("set k 1 0 %d\r\n%s\r\n", size, value))
		secure.expect(protocol.Stored)
		want := fmt.Sprintf("VALUE k 1 %d\r\n%s\r\n", size, value)
		plain.send("get k\r\n")
		plain.expect(want + protocol.End)
		secure.send("get k k k\r\nmn\r\n")
		secure.expect(want + want + want + protocol.End + protocol.MetaNoop)
	}
	raw := dial(t, "tcp", addr)
	raw.send("get k\r\nget k\r\n")
	if b, err := io.ReadAll(raw.in); strings.Contains(string(b), "VALUE") || err != nil && !isReset(err) {
		t.Errorf("without TLS: %.50q %v", b, err)
	}
	eventually(t, "the failed handshake is counted", func() bool { return s.cfg.TLS.failed.Load() == 1 })
	secure.send("mn\r\n")
	secure.expect(protocol.MetaNoop)
}

// TestTLSClientCertificates: only a client with a certificate of the authority is served.
func TestTLSClientCertificates(t *testing.T) {
	a, stranger := newAuthority(t), newAuthority(t)
	_, addr := startTLS(t, a, func(c *Config) {
		c.TLS = a.load(TLSOptions{Clients: tls.RequireAndVerifyClientCert})
	})
	for name, certs := range map[string][]tls.Certificate{"none": nil, "of a stranger": {stranger.certificate("x")}} {
		c, err := dialTLS(t, addr, &tls.Config{RootCAs: a.pool, Certificates: certs})
		if err != nil {
			continue // refused within the handshake
		}
		_, _ = io.WriteString(c, "mn\r\n")
		if line, err := c.in.ReadString('\n'); err == nil {
			t.Errorf("certificate %s: answered %q", name, line)
		}
	}
	c, err := dialTLS(t, addr, &tls.Config{RootCAs: a.pool, Certificates: []tls.Certificate{a.certificate("client")}})
	if err != nil {
		t.Fatal(err)
	}
	c.send("mn\r\n")
	c.expect(protocol.MetaNoop)
}

// TestTLSSlowReader: one that does not read holds up nobody, and its memory is bounded.
func TestTLSSlowReader(t *testing.T) {
	a := newAuthority(t)
	s, addr := startTLS(t, a, func(c *Config) { c.Threads = 1 })
	slow, err := dialTLS(t, addr, &tls.Config{RootCAs: a.pool})
	if err != nil {
		t.Fatal(err)
	}
	other, err := dialTLS(t, addr, &tls.Config{RootCAs: a.pool})
	if err != nil {
		t.Fatal(err)
	}
	value := string(pattern(1, 500000))
	other.send(fmt.Sprintf("set k 0 0 %d\r\n%s\r\n", len(value), value))
	other.expect(protocol.Stored)
	const times = 40
	slow.send("get" + strings.Repeat(" k", times) + "\r\n")
	for range 20 {
		other.send("mn\r\n")
		other.expect(protocol.MetaNoop)
	}
	for range times {
		slow.expect(fmt.Sprintf("VALUE k 0 %d\r\n%s\r\n", len(value), value))
	}
	slow.expect(protocol.End)
	eventually(t, "no item is pinned", func() bool { return s.store.Stats().Pinned == 0 })
}

// TestTLSHandshakeLimit: a client that connects and says nothing, or half a
// handshake, does not keep the server from stopping.
func TestTLSHandshakeLimit(t *testing.T) {
	a := newAuthority(t)
	s, addr := startTLS(t, a, nil)
	silent, half := dial(t, "tcp", addr), dial(t, "tcp", addr)
	half.send("\x16\x03\x01\x02\x00\x01")
	eventually(t, "both are connected", func() bool { return s.Metrics().Connections == 2 })
	begin := time.Now()
	s.stop()
	if d := time.Since(begin); d > drainTime {
		t.Errorf("stopping took %v", d)
	}
	silent.expectEnd()
	half.expectEnd()
}

// TestTLSListeners: an address may ask for more or less of a client than the configuration does.
func TestTLSListeners(t *testing.T) {
	a := newAuthority(t)
	s := startServer(t, func(c *Config) {
		c.Listen = []string{"tls:127.0.0.1:0", "mtls:127.0.0.1:0", "btls:127.0.0.1:0"}
		c.TLS = a.load(TLSOptions{Clients: tls.VerifyClientCertIfGiven})
	})
	stranger := []tls.Certificate{newAuthority(t).certificate("x")}
	ours := []tls.Certificate{a.certificate("client")}
	for i, want := range []struct{ none, strange bool }{{true, false}, {false, false}, {true, true}} {
		addr := s.listeners[i].Addr().String()
		for _, tc := range []struct {
			name  string
			certs []tls.Certificate
			want  bool
		}{{"none", nil, want.none}, {"a stranger's", stranger, want.strange}, {"ours", ours, true}} {
			served := false
			conf := &tls.Config{RootCAs: a.pool, GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
				if len(tc.certs) == 0 {
					return &tls.Certificate{}, nil
				}
				return &tc.certs[0], nil // whatever authorities the server names
			}}
			if c, err := dialTLS(t, addr, conf); err == nil {
				_, _ = io.WriteString(c, "mn\r\n")
				line, _ := c.in.ReadString('\n')
				served = line == protocol.MetaNoop
			}
			if served != tc.want {
				t.Errorf("listener %d, certificate %s: served %v", i, tc.name, served)
			}
		}
	}
}

// TestTLSRefresh: refresh_certs takes a new certificate for new connections; what cannot be read changes nothing.
func TestTLSRefresh(t *testing.T) {
	a := newAuthority(t)
	s, addr := startTLS(t, a, nil)
	o := s.cfg.TLS.opts
	name := func() string {
		c, err := dialTLS(t, addr, &tls.Config{RootCAs: a.pool})
		if err != nil {
			t.Fatal(err)
		}
		return c.Conn.(*tls.Conn).ConnectionState().PeerCertificates[0].Subject.CommonName
	}
	plain := s.dial(t)
	a.write(o.Cert, o.Key, a.certificate("second"))
	if got := name(); got != "server" {
		t.Errorf("before: %s", got)
	}
	plain.send("refresh_certs\r\n")
	plain.expect(protocol.OK)
	if got := name(); got != "second" {
		t.Errorf("after: %s", got)
	}
	if err := os.WriteFile(o.Key, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	plain.send("refresh_certs\r\n")
	if line, err := plain.in.ReadString('\n'); !strings.HasPrefix(line, "ERROR server.tls: ") {
		t.Errorf("a key that is none: %q %v", line, err)
	}
	if got := name(); got != "second" {
		t.Errorf("after a failure: %s", got)
	}
}

// TestTLSResume: a session is resumed when that is allowed, and only whole handshakes are counted as new ones.
func TestTLSResume(t *testing.T) {
	a := newAuthority(t)
	for _, resume := range []bool{true, false} {
		s, addr := startTLS(t, a, func(c *Config) { c.TLS = a.load(TLSOptions{NoResume: !resume, MinVersion: tls.VersionTLS12}) })
		conf := &tls.Config{RootCAs: a.pool, ClientSessionCache: tls.NewLRUClientSessionCache(1), MaxVersion: tls.VersionTLS12}
		for i := range 3 {
			c, err := dialTLS(t, addr, conf)
			if err != nil {
				t.Fatal(err)
			}
			c.send("mn\r\n")
			c.expect(protocol.MetaNoop)
			if got := c.Conn.(*tls.Conn).ConnectionState().DidResume; got != (resume && i > 0) {
				t.Errorf("resume %v, connection %d: %v", resume, i, got)
			}
		}
		if want := map[bool]uint64{true: 1, false: 3}[resume]; s.cfg.TLS.begun.Load() != want {
			t.Errorf("resume %v: %d new sessions", resume, s.cfg.TLS.begun.Load())
		}
	}
}
