package binlog

import (
	"context"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// charsetServer asks a server for the text of any bytes in any character set, sound or not. No statement stores unsound
// bytes; so they are stored as VARBINARY in a MyISAM table, whose files then take the place of those of a table that has
// the same columns in the character set.
type charsetServer struct {
	srv     *servers.Server
	mariadb bool
	data    string
	raw     string // the table of the bytes
	rows    int
	made    int
}

// charsetOctets is the length in bytes of the columns: a multiple of every character set's longest character.
const charsetOctets = 48

func newCharsetServer(t *testing.T, kind servers.Kind) *charsetServer {
	t.Helper()
	s := &charsetServer{srv: servers.Start(t, kind, "--character-set-server=utf8mb4", "--skip-log-bin"), mariadb: kind.Flavor() == "mariadb"}
	s.srv.Exec(t, "CREATE DATABASE cs")
	if err := s.srv.DB().QueryRow("SELECT @@datadir").Scan(&s.data); err != nil {
		t.Fatal(err)
	}
	return s
}

// store makes the table of the bytes that text gives from now on.
func (s *charsetServer) store(t *testing.T, sequences [][]byte) {
	t.Helper()
	s.made++
	s.raw, s.rows = fmt.Sprintf("raw%d", s.made), len(sequences)
	s.srv.Exec(t, fmt.Sprintf("CREATE TABLE cs.%s (id INT NOT NULL, v VARBINARY(%d) NOT NULL) ENGINE=MyISAM", s.raw, charsetOctets))
	var q strings.Builder
	for i, b := range sequences {
		if q.Len() == 0 {
			fmt.Fprintf(&q, "INSERT INTO cs.%s VALUES ", s.raw)
		} else {
			q.WriteByte(',')
		}
		fmt.Fprintf(&q, "(%d,x'%s')", i, hex.EncodeToString(b))
		if i+1 == len(sequences) || q.Len() > 1<<20 {
			s.srv.Exec(t, q.String())
			q.Reset()
		}
	}
}

// text calls f with what SELECT gives for each of the stored bytes in a character set.
func (s *charsetServer) text(t *testing.T, charset string, longest int, f func(i int, text []byte)) {
	t.Helper()
	s.made++
	table := fmt.Sprintf("txt%d", s.made)
	s.srv.Exec(t, fmt.Sprintf("CREATE TABLE cs.%s (id INT NOT NULL, v VARCHAR(%d) CHARACTER SET %s NOT NULL) ENGINE=MyISAM; FLUSH TABLES",
		table, charsetOctets/longest, charset))
	for _, ext := range []string{".MYD", ".MYI"} {
		b, err := os.ReadFile(filepath.Join(s.data, "cs", s.raw+ext))
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(s.data, "cs", table+ext), b, 0o660); err != nil {
			t.Fatal(err)
		}
	}
	s.srv.Exec(t, "FLUSH TABLES")
	conn := querySession(t, s.srv.DB(), s.mariadb)
	defer conn.Close()
	rows, err := conn.QueryContext(context.Background(), "SELECT id, v FROM cs."+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var id int
		var v []byte
		if err := rows.Scan(&id, &v); err != nil {
			t.Fatal(err)
		}
		f(id, v)
		n++
	}
	if err := rows.Err(); err != nil || n != s.rows {
		t.Fatalf("%d of %d rows: %v", n, s.rows, err)
	}
	s.srv.Exec(t, "DROP TABLE cs."+table)
}
