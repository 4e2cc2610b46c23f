package binlog

import (
	"bytes"
	"context"
	"database/sql"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// logTable is a TABLE_MAP as the log has it.
type logTable struct {
	name  TableName
	types []byte
	meta  []uint16
}

// logRow is one row image of a row event.
type logRow struct {
	table   logTable
	event   byte
	after   bool // the second image of an update
	present []byte
	data    []byte // from the image to the end of its event
}

// readLog reads every row image of a server's binary logs from its files, and calls image for each, which gives the
// number of bytes that the image takes. It knows just enough of the format to be independent of the stream's code.
func readLog(t *testing.T, db *sql.DB, image func(logRow) int) {
	t.Helper()
	var base string
	if err := db.QueryRow("SELECT @@log_bin_basename").Scan(&base); err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("FLUSH BINARY LOGS"); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(base + ".[0-9]*")
	if err != nil || len(names) == 0 {
		t.Fatalf("no log at %s: %v", base, err)
	}
	for _, name := range names {
		b, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(b, []byte("\xfebin")) {
			continue
		}
		readLogFile(t, b[4:], image)
	}
}

func readLogFile(t *testing.T, b []byte, image func(logRow) int) {
	t.Helper()
	tables := map[uint64]logTable{}
	checksum := 0
	for len(b) >= 19 {
		typ, size := b[4], int(binary.LittleEndian.Uint32(b[9:]))
		event := b[19:size]
		b = b[size:]
		if typ == 15 { // FORMAT_DESCRIPTION
			if event[len(event)-5] == 1 {
				checksum = 4
			}
			continue
		}
		event = event[:len(event)-checksum]
		switch typ {
		case 19: // TABLE_MAP
			id, m := readTableMap(t, event)
			tables[id] = m
		case 23, 24, 25, 30, 31, 32, 39: // WRITE, UPDATE, DELETE of versions 1 and 2, PARTIAL_UPDATE
			m := tables[littleUint(event[:6])]
			event = event[8:]
			if typ >= 30 {
				event = event[binary.LittleEndian.Uint16(event):]
			}
			columns, n := packedInt(event)
			event = event[n:]
			width := (columns + 7) / 8
			before := event[:width]
			after := before
			event = event[width:]
			update := typ == 24 || typ == 31 || typ == 39
			if update {
				after = event[:width]
				event = event[width:]
			}
			for len(event) > 0 {
				event = event[image(logRow{m, typ, false, before, event}):]
				if update {
					event = event[image(logRow{m, typ, true, after, event}):]
				}
			}
		}
	}
}

func readTableMap(t *testing.T, b []byte) (uint64, logTable) {
	t.Helper()
	id := littleUint(b[:6])
	b = b[8:]
	name := func() string {
		s := string(b[1 : 1+b[0]])
		b = b[2+len(s):]
		return s
	}
	m := logTable{name: TableName{Schema: name(), Name: name()}}
	columns, n := packedInt(b)
	b = b[n:]
	m.types = b[:columns]
	b = b[columns:]
	size, n := packedInt(b)
	var err error
	if m.meta, err = columnMeta(m.types, b[n:n+size]); err != nil {
		t.Fatal(err)
	}
	return id, m
}

// packedInt reads a length-encoded integer and gives its size.
func packedInt(b []byte) (int, int) {
	switch b[0] {
	case 0xfc:
		return int(littleUint(b[1:3])), 3
	case 0xfd:
		return int(littleUint(b[1:4])), 4
	case 0xfe:
		return int(littleUint(b[1:9])), 9
	}
	return int(b[0]), 1
}

// decoders makes and keeps the ImageDecoder of each TABLE_MAP.
type decoders struct {
	mariadb bool
	made    map[string]*ImageDecoder
}

// get gives nil when there is none to be made; the test has failed then.
func (d *decoders) get(t *testing.T, table *Table, m logTable) *ImageDecoder {
	t.Helper()
	if d.made == nil {
		d.made = map[string]*ImageDecoder{}
	}
	key := fmt.Sprint(m)
	made, ok := d.made[key]
	if !ok {
		var err error
		if made, err = NewImageDecoder(table, m.types, m.meta, d.mariadb); err != nil {
			t.Error(err)
			made = nil
		}
		d.made[key] = made
	}
	return made
}

// querySession opens a session with SessionSettings.
func querySession(t *testing.T, db *sql.DB, mariadb bool) *sql.Conn {
	t.Helper()
	conn, err := db.Conn(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() }) // an error would only say that the server is gone
	for _, s := range SessionSettings(mariadb) {
		if _, err := conn.ExecContext(context.Background(), s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	return conn
}
