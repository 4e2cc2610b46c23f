package config

import (
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
