package main

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/cmd/rowcached/config"
)

// newSource makes the source of the configuration's DSNs, password and TLS mode.
func newSource(c *config.Config, log *slog.Logger) (*binlog.Source, error) {
	bc := binlog.Config{ServerID: c.Source.ServerID, Logger: log, FailoverPatience: time.Duration(c.Source.FailoverPatience), Password: c.CurrentPassword()}
	for i, dsn := range append([]string{c.Source.DSN}, c.Source.Failover...) {
		d, err := mysql.ParseDSN(dsn)
		if err != nil {
			return nil, fmt.Errorf("%w: %s: %w; its form is user:password@tcp(host:3306)/", errUsage, [2]string{"source.dsn", "source.failover"}[min(i, 1)], err)
		}
		if c.Source.Password != "" {
			d.Passwd = c.Source.Password
		}
		secure, err := sourceTLS(c, d)
		if err != nil {
			return nil, err
		}
		if secure != nil {
			d.TLS = secure
		}
		if i == 0 {
			bc.Driver = d
		} else {
			bc.Failover = append(bc.Failover, d)
		}
	}
	if c.MaxStaleness > 0 { // an idle source must say often enough that there is nothing new
		bc.Heartbeat = min(5*time.Second, time.Duration(c.MaxStaleness)/4)
	}
	return binlog.NewSource(bc), nil
}

// sourceTLS makes the TLS configuration of source.tls. "preferred" takes TLS when the server offers
// it, unless the DSN says otherwise (tls=...).
func sourceTLS(c *config.Config, d *mysql.Config) (*tls.Config, error) {
	t := c.Source.TLS
	if t.Mode == "disabled" || d.Net == "unix" {
		return nil, nil
	}
	if t.Mode == "preferred" && t.CA == "" && t.Cert == "" {
		if d.TLSConfig == "" {
			d.TLS, d.AllowFallbackToPlaintext = &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}, true
		}
		return nil, nil
	}
	host, _, err := net.SplitHostPort(d.Addr)
	if err != nil {
		host = d.Addr
	}
	conf := &tls.Config{ServerName: host, MinVersion: tls.VersionTLS12}
	if t.CA != "" {
		pem, err := os.ReadFile(t.CA)
		if err != nil {
			return nil, fmt.Errorf("source.tls.ca: %w", err)
		}
		conf.RootCAs = x509.NewCertPool()
		if !conf.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("source.tls.ca: %s holds no certificate in PEM form", t.CA)
		}
	}
	if t.Cert != "" {
		pair, err := tls.LoadX509KeyPair(t.Cert, t.Key)
		if err != nil {
			return nil, fmt.Errorf("source.tls.cert: %w", err)
		}
		conf.Certificates = []tls.Certificate{pair}
	}
	switch t.Mode {
	case "verify-identity":
	case "verify-ca":
		roots := conf.RootCAs
		conf.InsecureSkipVerify = true // the host's name is what is not verified; the chain is, below
		conf.VerifyConnection = func(s tls.ConnectionState) error {
			opts := x509.VerifyOptions{Roots: roots, Intermediates: x509.NewCertPool()}
			for _, cert := range s.PeerCertificates[1:] {
				opts.Intermediates.AddCert(cert)
			}
			_, err := s.PeerCertificates[0].Verify(opts)
			return err
		}
	default:
		conf.InsecureSkipVerify = true // "required": encrypted, whoever the server is
	}
	return conf, nil
}
