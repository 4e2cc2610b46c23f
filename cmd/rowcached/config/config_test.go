package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

func TestRead(t *testing.T) {
	c := Default()
	err := c.Read("rowcached.yaml", []byte(`
source:
  dsn: "rowcached@tcp(127.0.0.1:3306)/"
  server_id: 4294967295
tables:
  - table: shop.users
    key: "user:{id}"
    value: {format: json, columns: [id, name]}
    flags: 7
    expire: 15m
server:
  listen: ["127.0.0.1:0", "unix:/tmp/x.sock"]
  max_item_size: 2MiB
  idle_timeout: 90
memory: {limit: 64MiB}
`))
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case c.Source.ServerID != 4294967295, c.Tables[0].Flags != "7", c.Tables[0].Expire != "15m",
		c.Tables[0].Value.Columns[1] != "name", c.Server.MaxItemSize != 2<<20, c.Memory.Limit != 64<<20,
		time.Duration(c.Server.IdleTimeout) != 90*time.Second, len(c.Server.Listen) != 2,
		c.Server.MaxConnections != 10000, c.Admin.Listen != "127.0.0.1:9321":
		t.Errorf("%+v", c)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

func TestReadRefuses(t *testing.T) {
	for _, tc := range []struct{ name, in, want string }{
		{"unknown", "server:\n  lisen: [x]\n", `f:2:3: unknown key "server.lisen"; did you mean "server.listen"?`},
		{"unknown in table", "tables:\n  - table: a.b\n    valeu: {}\n", `f:3:5: unknown key "tables.valeu"; did you mean "tables.value"?`},
		{"nothing near", "qqqqqqqqqqqq: 1\n", "known here: admin, max_staleness, memory"},
		{"size", "memory:\n  limit: much\n", `"much" is not a size`},
		{"number", "server:\n  threads: many\n", "f:2:12:"},
		{"broken", "server: [\n", "f:"},
		{"twice", "memory: {limit: 1MiB}\nmemory: {limit: 2MiB}\n", "f:2:1:"},
		{"list for section", "server: [1]\n", "f:1:"},
		{"section for word", "admin: {listen: {a: b}}\n", "f:1:"},
		{"word for list", "tables: users\n", "f:1:"},
		{"two documents", "memory: {limit: 1MiB}\n---\nmemory: {limit: 2MiB}\n", "more than one document"},
		{"time span", "server: {idle_timeout: soon}\n", "is not a time span"},
		{"negative", "source: {server_id: -1}\n", "f:1:"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := Default().Read("f", []byte(tc.in))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestValidateRefusesOpenPort(t *testing.T) {
	for address, want := range map[string]bool{"0.0.0.0:1": false, ":1": false, "10.0.0.1:1": false, "127.0.0.1:1": true, "[::1]:1": true, "unix:/x": true, "localhost:1": true} {
		c := Default()
		c.Server.Listen = []string{address}
		if err := c.Validate(); (err == nil) != want {
			t.Errorf("%s: %v", address, err)
		}
		c.Server.AllowAnonymous = true
		if err := c.Validate(); err != nil {
			t.Errorf("%s with allow_anonymous: %v", address, err)
		}
	}
}

func TestEnvironment(t *testing.T) {
	c := Default()
	env := map[string]string{"ROWCACHED_MEMORY_LIMIT": "10MiB", "ROWCACHED_SOURCE_PASSWORD": "s", "ROWCACHED_SERVER_LISTEN": "127.0.0.1:1,127.0.0.1:2"}
	if err := c.ApplyEnvironment(func(k string) (string, bool) { v, ok := env[k]; return v, ok }); err != nil {
		t.Fatal(err)
	}
	if c.Memory.Limit != 10<<20 || c.Source.Password != "s" || len(c.Server.Listen) != 2 {
		t.Errorf("%+v", c)
	}
}

func TestSizeText(t *testing.T) {
	for in, want := range map[string]string{"64": "64", "1k": "1KiB", "1048576": "1MiB", "3GiB": "3GiB", "1536": "1536", "512KiB": "512KiB"} {
		var s Size
		if err := s.UnmarshalText([]byte(in)); err != nil || s.String() != want {
			t.Errorf("%s: %v, %v", in, s, err)
		}
	}
}

// A setting that nothing carries out, or that contradicts another, is refused with what to write instead.
func TestValidateRefuses(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"max_staleness: 500ms\n", "less than 1s"},
		{"stale_reads: maybe\n", "is none of error, miss"},
		{"server: {unmapped: disabled}\n", "write cache_only"},
		{"server: {unmapped: off}\n", "none of cache_only, disabled"},
		{"source: {dsn: x/}\ntables: [{table: a.b, load: on_demand}]\n", "write load: all"},
		{"source: {dsn: x/}\ntables: [{table: a.b, name: n, policy: {get: disabled}}]\n", "table n: policy"},
		{"source: {dsn: x/}\ntables: [{table: users}]\n", "schema.table"},
		{"tables: [{table: a.b}]\n", "pass --source"},
		{"source: {tls: {ca: x.pem}}\n", "write mode: verify-identity"},
		{"source: {tls: {mode: required, cert: x.pem}}\n", "belong together"},
		{"source: {tls: {mode: always}}\n", "none of disabled, preferred"},
		{"server: {tls: {key: x.pem}}\n", "belong together"},
		{"server: {listen: [\"tls:127.0.0.1:1\"]}\n", "needs a certificate"},
		{"server: {listen: []}\n", "server.listen is empty"},
		{"server: {max_item_size: 10}\n", "between 1KiB and 1GiB"},
		{"server: {max_connections: 0}\n", "not positive"},
		{"server: {engine: fast}\n", "none of auto"},
		{"memory: {limit: 1k}\n", "less than 1MiB"},
	} {
		c := Default()
		err := c.Read("f", []byte(tc.in))
		if err == nil {
			err = c.Validate()
		}
		if err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: got %v, want %s", tc.in, err, tc.want)
		}
	}
}

// A key without a value leaves the defaults as they are.
func TestEmptyKeysKeepTheDefaults(t *testing.T) {
	c := Default()
	if err := c.Read("f", []byte("server:\nmemory:\n  limit:\nadmin:\n  # listen: x\nsource:\n  tls:\ntables:\n")); err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", *c), fmt.Sprintf("%+v", *Default()); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
}

// The environment has a mirror of every key, and takes what a flag takes.
func TestSettingsReadTheirOwnText(t *testing.T) {
	for _, s := range Default().Settings() {
		if err := s.Set(s.String()); err != nil {
			t.Errorf("%s: %v", s.Path, err)
		}
		if s.Path != "" && (s.Help == "" || !strings.HasPrefix(s.Env, "ROWCACHED_")) {
			t.Errorf("%s has no help or no environment variable", s.Path)
		}
	}
}
