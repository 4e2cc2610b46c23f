package check

import (
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// Case 190: an account that requires TLS is followed in every mode that encrypts, the dump as well as the queries; what
// cannot be verified is refused with the setting to change.
func TestTLS(t *testing.T) {
	srv := servers.Start(t, servers.MySQL97)
	srv.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t (id INT PRIMARY KEY, v INT); INSERT INTO db.t VALUES (1, 1);"+
		"CREATE USER r IDENTIFIED BY 'secret' REQUIRE SSL; GRANT SELECT, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO r")
	var data string
	if err := srv.DB().QueryRow("SELECT @@datadir").Scan(&data); err != nil {
		t.Fatal(err)
	}
	ca := data + "ca.pem" // which the server made at its first start
	for _, tc := range []struct {
		name string
		args []string
		want string // of the fault; "" for none
	}{
		{"default", nil, ""},
		{"required", []string{"--source.tls.mode", "required"}, ""},
		{"verify-ca", []string{"--source.tls.mode", "verify-ca", "--source.tls.ca", ca}, ""},
		{"client certificate", []string{"--source.tls.mode", "verify-ca", "--source.tls.ca", ca, "--source.tls.cert", data + "client-cert.pem",
			"--source.tls.key", data + "client-key.pem"}, ""},
		{"disabled", []string{"--source.tls.mode", "disabled"}, "source.tls.mode: required"},
		{"unknown authority", []string{"--source.tls.mode", "verify-ca"}, "source.tls.ca"},
		{"another name", []string{"--source.tls.mode", "verify-identity", "--source.tls.ca", ca}, "verify-ca"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			args := append([]string{"--source", srv.DSN("r:secret"), "--table", "db.t"}, tc.args...)
			exit, output := servers.RunDaemon(t, append([]string{"check"}, args...)...)
			if tc.want != "" {
				if _, fixes := faults(t, output); exit != 1 || len(fixes) != 1 || !strings.Contains(fixes[0], tc.want) {
					t.Errorf("exit %d; want one fault whose fix says %q\n%s", exit, tc.want, output)
				}
				return
			}
			if exit != 0 {
				t.Fatalf("exit %d\n%s", exit, output)
			}
			d := servers.StartDaemon(t, args...)
			d.WaitReady()
			if v, _ := d.Get("t:1"); string(v) != `{"id":1,"v":1}` {
				t.Errorf("get t:1: %q", v)
			}
			var plain int
			if err := srv.DB().QueryRow("SELECT COUNT(*) FROM performance_schema.threads WHERE processlist_user = 'r' AND connection_type <> 'SSL/TLS'").Scan(&plain); err != nil || plain != 0 {
				t.Errorf("%d connections in the clear, %v", plain, err)
			}
			if code := d.Stop(); code != 0 || strings.Contains(d.Log(), "secret") {
				t.Errorf("exit %d; the log:\n%s", code, d.Log())
			}
		})
	}
}
