// Package config is what the operator says: a strict YAML file, flags and environment variables, over defaults.
package config

import (
	"errors"
	"fmt"
	"net"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/rowcached/rowcached/mapping"
)

// Config is the whole configuration. The yaml tags are the file's keys; a nested key's flag is its dotted path.
type Config struct {
	Source       Source         `yaml:"source"`
	Tables       []mapping.Spec `yaml:"tables"`
	Server       Server         `yaml:"server"`
	Memory       Memory         `yaml:"memory"`
	State        State          `yaml:"state"`
	Admin        Admin          `yaml:"admin"`
	Verify       Verify         `yaml:"verify"`
	MaxStaleness Duration       `yaml:"max_staleness" help:"how old rows that are served may be while the source is away or the daemon lags; 0: any age"`
	StaleReads   string         `yaml:"stale_reads" help:"what older rows are answered with: error or miss"`
}

// Source says how to reach the database.
type Source struct {
	DSN          string    `yaml:"dsn" help:"the source, in go-sql-driver's form: user:password@tcp(host:3306)/"`
	PasswordFile string    `yaml:"password_file" help:"file that holds the password"`
	Password     string    `yaml:"-" env:"ROWCACHED_SOURCE_PASSWORD"`
	TLS          SourceTLS `yaml:"tls"`
	ServerID     uint32    `yaml:"server_id" help:"replica id to register with; 0: chosen, checked to be free"`
	Failover     []string  `yaml:"failover" help:"DSNs of further servers of the same history, tried in order; the log goes on there by GTID"`

	FailoverPatience Duration `yaml:"failover_patience" help:"how long to wait for a server that has everything that was applied before the tables are copied from one that has not"`

	passwordRead bool // Password is the file's
}

// SourceTLS protects every connection to the source.
type SourceTLS struct {
	Mode string `yaml:"mode" help:"disabled, preferred, required, verify-ca or verify-identity"`
	CA   string `yaml:"ca" help:"file of the authorities that may sign the source's certificate"`
	Cert string `yaml:"cert" help:"file of our certificate"`
	Key  string `yaml:"key" help:"file of our private key"`
}

// Server is the memcached side.
type Server struct {
	Listen         []string  `yaml:"listen" help:"addresses to serve on: host:port, unix:/path, tls:host:port (mtls: and btls: with and without clients' certificates)"`
	Threads        int       `yaml:"threads" help:"loops; 0: one for each core"`
	Engine         string    `yaml:"engine" help:"auto, epoll, io_uring or net"`
	MaxConnections int       `yaml:"max_connections" help:"clients at once"`
	MaxItemSize    Size      `yaml:"max_item_size" help:"largest value"`
	IdleTimeout    Duration  `yaml:"idle_timeout" help:"close clients that are silent for so long; 0: never"`
	TLS            ServerTLS `yaml:"tls"`
	AuthFile       string    `yaml:"auth_file" help:"file of user:password lines"`
	AllowAnonymous bool      `yaml:"allow_anonymous" help:"serve other machines without an auth_file"`
	Unmapped       string    `yaml:"unmapped" help:"keys of no table: cache_only (as a plain memcached) or disabled"`
}

// ServerTLS is the certificate for "tls:" addresses.
type ServerTLS struct {
	Cert     string `yaml:"cert" help:"file of the certificate for tls: addresses"`
	Key      string `yaml:"key" help:"file of its private key"`
	ClientCA string `yaml:"client_ca" help:"file of the authorities that sign clients' certificates"`

	VerifyClients string `yaml:"verify_clients" help:"clients' certificates: none, optional or required; empty: required with client_ca, else none"`
	MinVersion    string `yaml:"min_version" help:"oldest TLS version: 1.0, 1.1, 1.2 or 1.3; empty: 1.2"`
}

// Memory bounds the memory tier.
type Memory struct {
	Limit Size `yaml:"limit" help:"index, keys, values and overhead together"`
}

// State is where the daemon keeps what outlives it.
type State struct {
	Dir                string   `yaml:"dir" help:"folder for what outlives the process"`
	CheckpointInterval Duration `yaml:"checkpoint_interval" help:"how often state is written"`
}

// Verify compares memory with the database in the background.
type Verify struct {
	Interval Duration `yaml:"interval" help:"time between two comparisons of all tables with the database; 0: none"`
	Sample   Share    `yaml:"sample" help:"share of each table that one comparison reads: 1%, 0.25, 100%"`
}

// Admin is the HTTP side.
type Admin struct {
	Listen string `yaml:"listen" help:"address of the metrics and health pages; empty: none"`
}

// ListenNone among server.listen stands for no address at all.
const ListenNone = "none"

// Default gives the configuration of an empty file.
func Default() *Config {
	return &Config{
		Source: Source{TLS: SourceTLS{Mode: "preferred"}, FailoverPatience: Duration(15e9)},
		Server: Server{Listen: []string{"127.0.0.1:11211"}, Engine: "auto", MaxConnections: 10000, MaxItemSize: 1 << 20, Unmapped: mapping.PolicyCacheOnly},
		Memory: Memory{Limit: 1 << 30},
		State:  State{CheckpointInterval: Duration(10e9)},
		Admin:  Admin{Listen: "127.0.0.1:9321"},

		StaleReads: StaleError,
		Verify:     Verify{Sample: 1},
	}
}

// ApplyEnvironment takes ROWCACHED_SOURCE_DSN and the like: every key's mirror is ROWCACHED_ and its path in
// capitals with underscores.
func (c *Config) ApplyEnvironment(lookup func(string) (string, bool)) error {
	for _, s := range c.Settings() {
		if text, ok := lookup(s.Env); ok {
			if err := s.Set(text); err != nil {
				return fmt.Errorf("environment variable %s: %w", s.Env, err)
			}
		}
	}
	return nil
}

// The values of Config.StaleReads.
const (
	StaleError = "error"
	StaleMiss  = "miss"
)

// Validate finds what contradicts itself before anything is opened.
func (c *Config) Validate() error {
	var errs []error
	fault := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	oneOf := func(key, value string, words ...string) {
		for _, w := range words {
			if w == value {
				return
			}
		}
		fault("%s: %q is none of %s", key, value, strings.Join(words, ", "))
	}
	oneOf("source.tls.mode", c.Source.TLS.Mode, "disabled", "preferred", "required", "verify-ca", "verify-identity")
	oneOf("server.tls.verify_clients", c.Server.TLS.VerifyClients, "", "none", "optional", "required")
	oneOf("server.tls.min_version", c.Server.TLS.MinVersion, "", "1.0", "1.1", "1.2", "1.3")
	oneOf("server.engine", c.Server.Engine, "auto", "epoll", "io_uring", "net")
	oneOf("stale_reads", c.StaleReads, StaleError, StaleMiss)
	if c.MaxStaleness != 0 && time.Duration(c.MaxStaleness) < time.Second {
		fault("max_staleness: %s is less than 1s, the time in which an idle source is heard of", c.MaxStaleness)
	}
	oneOf("server.unmapped", c.Server.Unmapped, mapping.PolicyCacheOnly, mapping.PolicyDisabled)
	if t := c.Source.TLS; t.Mode == "preferred" && (t.CA != "" || t.Cert != "") {
		fault("source.tls: mode preferred verifies nothing and shows no certificate; write mode: verify-identity, or take ca and cert out")
	}
	if t := c.Source.TLS; (t.Cert == "") != (t.Key == "") {
		fault("source.tls: cert and key belong together; write both or neither")
	}
	if t := c.Server.TLS; (t.Cert == "") != (t.Key == "") {
		fault("server.tls: cert and key belong together; write both or neither")
	}
	for _, a := range c.Server.Listen {
		if a == ListenNone && len(c.Server.Listen) > 1 {
			fault("server.listen: none and an address contradict each other")
		}
		if _, secure := schemeless(a); secure && c.Server.TLS.Cert == "" {
			fault("server.listen: %s needs a certificate; set server.tls.cert and server.tls.key", a)
		}
	}
	for _, t := range c.Tables {
		if _, err := t.TableName(); err != nil {
			errs = append(errs, err)
		}
	}
	errs = append(errs, c.unserved()...)
	if len(c.Tables) > 0 && c.Source.DSN == "" {
		fault("tables are mapped but source.dsn is empty; write dsn: \"user@tcp(host:3306)/\" or pass --source")
	}
	if len(c.Server.Listen) == 0 {
		fault("server.listen is empty; write listen: [\"127.0.0.1:11211\"]")
	}
	if c.Memory.Limit < 1<<20 {
		fault("memory.limit: %s is less than 1MiB", c.Memory.Limit)
	}
	if c.Server.MaxItemSize < 1024 || c.Server.MaxItemSize > 1<<30 {
		fault("server.max_item_size: %s is not between 1KiB and 1GiB", c.Server.MaxItemSize)
	}
	if c.Server.MaxConnections < 1 {
		fault("server.max_connections: %d is not positive", c.Server.MaxConnections)
	}
	if c.Server.Threads < 0 {
		fault("server.threads: %d is negative", c.Server.Threads)
	}
	if c.Server.AuthFile == "" && !c.Server.AllowAnonymous {
		for _, a := range c.Server.Listen {
			if !loopback(a) {
				fault("server.listen: %s can be reached from other machines and nobody has to log in there; set server.auth_file, or server.allow_anonymous: true if the network is trusted", a)
			}
		}
	}
	return errors.Join(errs...)
}

// schemeless takes "tls:", "mtls:" or "btls:" off an address.
func schemeless(address string) (rest string, secure bool) {
	for _, scheme := range [...]string{"tls:", "mtls:", "btls:"} {
		if rest, ok := strings.CutPrefix(address, scheme); ok {
			return rest, true
		}
	}
	return address, false
}

// loopback tells whether only this machine can reach the address.
func loopback(address string) bool {
	if strings.HasPrefix(address, "unix:") {
		return true
	}
	address, _ = schemeless(address)
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return true // listening reports what is wrong with it
	}
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// ReadPassword fills Source.Password from its file when there is one.
func (c *Config) ReadPassword() error {
	if c.Source.PasswordFile == "" || c.Source.Password != "" {
		return nil
	}
	b, err := os.ReadFile(c.Source.PasswordFile)
	if err != nil {
		return fmt.Errorf("source.password_file: %w; write the path of a file that holds the password alone", err)
	}
	c.Source.Password, c.Source.passwordRead = strings.TrimRight(string(b), "\r\n"), true
	return nil
}

// CurrentPassword gives a function that reads the password file anew, nil when there is none in use: a password that is
// rotated is taken at the next connection.
func (c *Config) CurrentPassword() func() (string, error) {
	path := c.Source.PasswordFile
	if !c.Source.passwordRead {
		return nil
	}
	return func() (string, error) {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", fmt.Errorf("source.password_file: %w", err)
		}
		return strings.TrimRight(string(b), "\r\n"), nil
	}
}

// Setting is one leaf of the configuration.
type Setting struct {
	Path string // server.max_item_size
	Env  string // ROWCACHED_SERVER_MAX_ITEM_SIZE
	Help string

	value reflect.Value
}

// Settings lists every leaf but the tables, in the file's order.
func (c *Config) Settings() []Setting {
	var list []Setting
	var walk func(v reflect.Value, path string)
	walk = func(v reflect.Value, path string) {
		for i := range v.NumField() {
			f, fv := v.Type().Field(i), v.Field(i)
			name := f.Tag.Get("yaml")
			full := strings.TrimPrefix(path+"."+name, ".")
			switch {
			case name == "tables", !v.Type().Field(i).IsExported():
			case name == "-":
				list = append(list, Setting{Env: f.Tag.Get("env"), value: fv})
			case fv.Kind() == reflect.Struct:
				walk(fv, full)
			default:
				env := "ROWCACHED_" + strings.ToUpper(strings.ReplaceAll(full, ".", "_"))
				list = append(list, Setting{Path: full, Env: env, Help: f.Tag.Get("help"), value: fv})
			}
		}
	}
	walk(reflect.ValueOf(c).Elem(), "")
	return list
}

// String gives the present value.
func (s Setting) String() string {
	switch v := s.value.Interface().(type) {
	case []string:
		return strings.Join(v, ",")
	default:
		return fmt.Sprint(v)
	}
}

// IsBool tells whether the setting is a switch.
func (s Setting) IsBool() bool { return s.value.Kind() == reflect.Bool }

// IsList tells whether the setting has several values, separated by commas.
func (s Setting) IsList() bool { return s.value.Kind() == reflect.Slice }
