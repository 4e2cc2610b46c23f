package integration

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// verified is what one line of rowcached verify --json says.
type verified struct {
	Rows, Missing, Extra, Wrong, Unsettled, Repaired int64
	Examples                                         []struct{ Key, Kind string }
}

// verify runs "rowcached verify --json" and gives its line and its exit code.
func verify(t *testing.T, d *servers.Daemon, args ...string) (verified, int) {
	t.Helper()
	args = append([]string{"verify", "--json", "--admin.listen", strings.TrimPrefix(d.Admin(), "http://")}, args...)
	cmd := exec.CommandContext(t.Context(), servers.Binary(t), args...)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var v verified
	if err := json.Unmarshal(out, &v); err != nil {
		t.Fatalf("%q (stderr %q): %v", out, stderr.String(), err)
	}
	return v, cmd.ProcessState.ExitCode()
}

// Verify finds exactly the rows that were changed where no replica sees it, while writers change others at full speed, and
// repairs them.
func TestVerify(t *testing.T) {
	const rows = 50_000
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, "CREATE DATABASE db; CREATE TABLE db.t(id INT PRIMARY KEY, v INT NOT NULL, pad CHAR(20) NOT NULL DEFAULT 'x')")
		fill(t, s, rows)
		d := servers.StartDaemon(t, "--source", s.DSN("root"), "--table", "db.t")
		d.WaitReady()

		if v, code := verify(t, d); code != 0 || v.Rows != rows {
			t.Fatalf("of a quiet table: %+v, exit code %d", v, code)
		}

		// The writers keep away from the ids 1 to 10, whose hidden changes are to be found.
		l := startLoad(t, s, 2, func(ctx context.Context, conn *sql.Conn, r *rand.Rand, i int) error {
			id := 11 + r.IntN(rows)
			switch i % 4 {
			case 0:
				return execute(ctx, conn, "DELETE FROM t WHERE id=%d", id)
			case 1:
				return execute(ctx, conn, "REPLACE INTO t(id,v) VALUES(%d,%d)", id, i)
			default:
				return execute(ctx, conn, "UPDATE t SET v=v+1 WHERE id BETWEEN %d AND %d", id, id+50)
			}
		})
		for range 2 {
			if v, code := verify(t, d); code != 0 {
				t.Fatalf("under load: %+v, exit code %d", v, code)
			}
		}
		s.Exec(t, "SET sql_log_bin=0; UPDATE db.t SET v=-1 WHERE id=1; DELETE FROM db.t WHERE id IN (2,3); "+
			"INSERT INTO db.t(id,v) VALUES(-7,1); SET sql_log_bin=1")
		v, code := verify(t, d, "db.t")
		if code != 1 || v.Wrong != 1 || v.Extra != 2 || v.Missing != 1 || v.Repaired != 0 {
			t.Fatalf("after hidden changes: %+v, exit code %d", v, code)
		}
		if v, code = verify(t, d, "t", "--repair"); code != 1 || v.Repaired != 4 {
			t.Fatalf("repairing: %+v, exit code %d", v, code)
		}
		if v, code = verify(t, d); code != 0 {
			t.Fatalf("after the repair: %+v, exit code %d", v, code)
		}
		l.end(t)
		sameAsRows(t, d, s, rows+60)
		if value, hit := d.Get("t:-7"); !hit {
			t.Errorf("a repaired row is a miss: %q", value)
		}
		for result, want := range map[string]string{"wrong": "2", "extra": "4", "missing": "2", "repaired": "4"} {
			if got := d.Metric(`rowcached_verify_rows_total{result="` + result + `",table="t"}`); got != want {
				t.Errorf("rowcached_verify_rows_total of %s is %s, should be %s", result, got, want)
			}
		}
	})
}

// Keys that an equality of SQL finds only roughly, or not for sure, are verified all the same; the background verifier
// finds a hidden change by itself.
func TestVerifyKeys(t *testing.T) {
	forEachKind(t, func(t *testing.T, kind servers.Kind) {
		s := servers.Start(t, kind)
		s.Exec(t, `CREATE DATABASE db; CREATE TABLE db.t(a VARCHAR(20) NOT NULL, b BIGINT UNSIGNED NOT NULL, c ENUM('x','y') NOT NULL, v INT,
			PRIMARY KEY(a,b), UNIQUE(c,b));
			INSERT INTO db.t VALUES('Ä',18446744073709551615,'x',1),('a ',9007199254740993,'x',2),('',0,'y',3)`)
		for _, key := range []string{"t:{a}:{b}", "t:{c}:{b}"} {
			file := filepath.Join(t.TempDir(), "rowcached.yaml")
			text := fmt.Sprintf("tables: [{table: db.t, key: %q}]\nverify: {interval: 100ms}\n", key)
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			d := servers.StartDaemon(t, "-c", file, "--source", s.DSN("root"))
			d.WaitReady()
			if v, code := verify(t, d); code != 0 || v.Rows != 3 {
				t.Errorf("%s: %+v, exit code %d", key, v, code)
			}
			s.Exec(t, "SET sql_log_bin=0; UPDATE db.t SET v=v+10; SET sql_log_bin=1")
			d.WaitLog("memory differs from the database")
			if v, _ := verify(t, d, "--repair"); v.Wrong != 3 || v.Repaired != 3 {
				t.Errorf("%s: %+v", key, v)
			}
			if v, code := verify(t, d); code != 0 || v.Rows != 3 {
				t.Errorf("%s, after the repair: %+v, exit code %d", key, v, code)
			}
			d.Stop()
		}
	})
}
