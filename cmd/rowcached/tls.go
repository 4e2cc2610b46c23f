package main

import (
	"crypto/tls"
	"fmt"
	"strconv"
	"strings"

	"github.com/rowcached/rowcached/cmd/rowcached/config"
	"github.com/rowcached/rowcached/server"
)

// secureOptions are memcached's -o ssl_... words that no key of the configuration stands for.
type secureOptions struct {
	resume  bool
	ciphers []uint16
	buffer  uint64 // KiB, as given
}

// set takes one word; known: it is one of these.
func (o *secureOptions) set(c *config.Config, name, value string) (known bool, err error) {
	t := &c.Server.TLS
	switch name {
	case "ssl_chain_cert":
		t.Cert = value
	case "ssl_key":
		t.Key = value
	case "ssl_ca_cert":
		t.ClientCA = value
	case "ssl_verify_mode":
		words := map[string]string{"0": "none", "1": "optional", "2": "required", "3": "required"}
		if t.VerifyClients = words[value]; t.VerifyClients == "" {
			return true, fmt.Errorf("-o ssl_verify_mode=%s: 0 (none), 1 (optional), 2 or 3 (required)", value)
		}
	case "ssl_min_version":
		words := map[string]string{"0": "1.0", "1": "1.1", "2": "1.2", "3": "1.3"}
		if t.MinVersion = words[value]; t.MinVersion == "" {
			return true, fmt.Errorf("-o ssl_min_version=%s: 0 (TLS 1.0), 1 (1.1), 2 (1.2) or 3 (1.3)", value)
		}
	case "ssl_keyformat":
		if value != "1" {
			return true, fmt.Errorf("-o ssl_keyformat=%s: keys are read in PEM form (1) alone", value)
		}
	case "ssl_session_cache":
		o.resume = true
	case "ssl_wbuf_size":
		if o.buffer, err = strconv.ParseUint(value, 10, 20); err != nil {
			return true, fmt.Errorf("-o ssl_wbuf_size=%s: a number of KiB is needed", value)
		}
	case "ssl_ciphers":
		o.ciphers, err = cipherSuites(value)
		return true, err
	default:
		return false, nil
	}
	return true, nil
}

// cipherSuites reads a list of suites by their standard names or by OpenSSL's, separated by colons. They count for TLS
// 1.2 and below: those of TLS 1.3 cannot be chosen.
func cipherSuites(list string) ([]uint16, error) {
	openSSL := strings.NewReplacer("TLS_", "", "_WITH_", "-", "AES_128", "AES128", "AES_256", "AES256",
		"CHACHA20_POLY1305_SHA256", "CHACHA20-POLY1305", "_", "-")
	var ids []uint16
	var known []string
	for name := range strings.SplitSeq(list, ":") {
		found := false
		for _, s := range tls.CipherSuites() {
			if s.Name == name || openSSL.Replace(s.Name) == name {
				ids, found = append(ids, s.ID), true
			}
			known = append(known, openSSL.Replace(s.Name))
		}
		if !found {
			return nil, fmt.Errorf("-o ssl_ciphers: %s is not a suite that is offered; they are %s", name, strings.Join(known[:len(tls.CipherSuites())], ", "))
		}
	}
	return ids, nil
}

// serverTLS reads the certificates of server.tls.
func serverTLS(c *config.Config, m *memcached) (*server.TLS, error) {
	t := c.Server.TLS
	o := server.TLSOptions{Cert: t.Cert, Key: t.Key, ClientCA: t.ClientCA, Ciphers: m.secure.ciphers, NoResume: m.tls && !m.secure.resume}
	switch {
	case t.VerifyClients == "required" || t.VerifyClients == "" && t.ClientCA != "" && !m.tls:
		o.Clients = tls.RequireAndVerifyClientCert
	case t.VerifyClients == "optional":
		o.Clients = tls.VerifyClientCertIfGiven
	}
	o.MinVersion = map[string]uint16{"1.0": tls.VersionTLS10, "1.1": tls.VersionTLS11, "1.2": tls.VersionTLS12, "1.3": tls.VersionTLS13}[t.MinVersion]
	return server.LoadTLS(o)
}

// settings are the lines of stats settings that tell of -o ssl_... words which only memcached acts on.
func (o *secureOptions) settings() []server.Stat {
	size := o.buffer << 10
	if size == 0 {
		size = 16 << 10
	}
	return []server.Stat{{Name: "ssl_wbuf_size", Value: strconv.FormatUint(size, 10)}}
}
