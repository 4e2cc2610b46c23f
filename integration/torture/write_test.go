package torture

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/rowcached/rowcached/integration/servers"
)

// writer changes rows through SQL, one transaction after the other.
type writer struct {
	w      *world
	number int
	r      *rand.Rand
	conn   *sql.Conn
	server *servers.Server          // that conn is to
	groups [2 * pairs][groups]int64 // the version that a group has, as far as this writer, its owner, knows; -1: not known
	bulk   int                      // turn of the many-row ids
}

func (w *world) write(ctx context.Context, number int, r *rand.Rand) error {
	wr := &writer{w: w, number: number, r: r}
	defer wr.hangUp()
	for ctx.Err() == nil {
		w.quiet.RLock()
		err := wr.transaction(ctx)
		w.quiet.RUnlock()
		if err != nil && ctx.Err() == nil {
			w.count.failed.Add(1)
			wr.hangUp() // whatever was open is rolled back
			wr.forget()
			time.Sleep(10 * time.Millisecond)
		}
		if r.IntN(4) == 0 {
			time.Sleep(time.Duration(r.IntN(10)) * time.Millisecond)
		}
	}
	return nil
}

func (wr *writer) hangUp() {
	if wr.conn != nil {
		_ = wr.conn.Raw(func(any) error { return errors.New("closed by the test") }) // an error of the driver's ends the connection
		_ = wr.conn.Close()
		wr.conn = nil
	}
}

func (wr *writer) connect(ctx context.Context) error {
	server := wr.w.source()
	conn, err := server.DB().Conn(ctx)
	if err != nil {
		return err
	}
	wr.conn, wr.server = conn, server
	for _, text := range []string{"SET NAMES utf8mb4, sql_mode='', innodb_lock_wait_timeout=5", "USE db"} {
		if err := wr.exec(ctx, "%s", text); err != nil {
			return err
		}
	}
	return wr.recover(ctx)
}

// recover rolls back what an earlier connection had prepared and not ended.
func (wr *writer) recover(ctx context.Context) error {
	rows, err := wr.conn.QueryContext(ctx, "XA RECOVER")
	if err != nil {
		return err
	}
	var ids []string
	for rows.Next() {
		var format, global, branch int
		var data string
		if err := rows.Scan(&format, &global, &branch, &data); err != nil {
			return errors.Join(err, rows.Close())
		}
		if strings.HasPrefix(data, fmt.Sprintf("x%d.", wr.number)) {
			ids = append(ids, data)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	for _, id := range ids {
		// It cannot be rolled back from here while the server still holds it for the connection that is gone.
		if err := wr.exec(ctx, "XA ROLLBACK '%s'", id); err != nil {
			return err
		}
	}
	return nil
}

// forget marks the versions of the own groups as unknown: a commit's answer may have been lost.
func (wr *writer) forget() {
	for i := range wr.groups {
		for g := range wr.groups[i] {
			wr.groups[i][g] = -1
		}
	}
}

func (wr *writer) exec(ctx context.Context, format string, args ...any) error {
	text := fmt.Sprintf(format, args...)
	_, err := wr.conn.ExecContext(ctx, text)
	if err != nil {
		return fmt.Errorf("%.200s: %w", text, err)
	}
	return nil
}

func (wr *writer) transaction(ctx context.Context) error {
	w, r := wr.w, wr.r
	if wr.server != w.source() {
		wr.hangUp()
	}
	if wr.conn == nil {
		if err := wr.connect(ctx); err != nil {
			return err
		}
	}
	switch n := r.IntN(100); {
	case n < 45:
		return wr.group(ctx)
	case n < 85:
		return wr.single(ctx)
	case n < 88:
		return wr.xa(ctx)
	case n < 94:
		return wr.many(ctx)
	case w.avoids("ddl"):
		return nil
	case n < 96:
		return wr.truncate(ctx)
	default:
		return wr.alter(ctx)
	}
}

// pair picks two tables and a group of the writer's own.
func (wr *writer) pair() (a, b *table, g int) {
	p := wr.r.IntN(pairs)
	return wr.w.tables[2*p], wr.w.tables[2*p+1], wr.r.IntN(groups/writers)*writers + wr.number
}

// group gives all rows of a group, in both tables, one new version, in one of several ways.
func (wr *writer) group(ctx context.Context) error {
	a, b, g := wr.pair()
	defer share(a, b)()
	if err := wr.exec(ctx, "BEGIN"); err != nil {
		return err
	}
	version := wr.w.version.Add(1)
	poisoned := false
	if wr.r.IntN(5) == 0 {
		if err := wr.exec(ctx, "SAVEPOINT s"); err != nil {
			return err
		}
		if err := wr.change(ctx, a, b, g, poison); err != nil {
			return err
		}
		if err := wr.exec(ctx, "ROLLBACK TO SAVEPOINT s"); err != nil {
			return err
		}
	}
	if wr.r.IntN(12) == 0 {
		version, poisoned = poison, true
	}
	if err := wr.change(ctx, a, b, g, version); err != nil {
		return err
	}
	if poisoned {
		wr.w.count.rolledBack.Add(1)
		return wr.exec(ctx, "ROLLBACK")
	}
	if err := wr.exec(ctx, "COMMIT"); err != nil {
		return err
	}
	wr.w.count.transactions.Add(1)
	wr.w.count.rows.Add(2 * perGroup)
	wr.groups[a.number][g], wr.groups[b.number][g] = version, version
	return nil
}

func share(tables ...*table) (release func()) {
	for _, tab := range tables {
		tab.shape.RLock()
	}
	return func() {
		for _, tab := range tables {
			tab.shape.RUnlock()
		}
	}
}

// change writes a version to every row of a group in two tables.
func (wr *writer) change(ctx context.Context, a, b *table, g int, version int64) error {
	for _, tab := range []*table{a, b} {
		var err error
		switch wr.r.IntN(4) {
		case 0:
			if err = wr.exec(ctx, "DELETE FROM %s WHERE grp=%d", tab.name, g); err == nil {
				err = wr.insert(ctx, "INSERT", tab, g, version)
			}
		case 1:
			err = wr.insert(ctx, "REPLACE", tab, g, version)
		default:
			// Rows that single deletes took away stay away.
			err = wr.exec(ctx, "UPDATE %s SET ver=%d, gver=%d%s WHERE grp=%d", tab.name, version, version, tab.sets(wr.r), g)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (wr *writer) insert(ctx context.Context, verb string, tab *table, g int, version int64) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s INTO %s(id,grp,ver,gver%s) VALUES", verb, tab.name, tab.names())
	for i := range perGroup {
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(&b, "(%d,%d,%d,%d%s)", g*perGroup+i, g, version, version, tab.values(wr.r))
	}
	return wr.exec(ctx, "%s", b.String())
}

// single changes one row of a group, in one statement.
func (wr *writer) single(ctx context.Context) error {
	a, b, g := wr.pair()
	tab := a
	if wr.r.IntN(2) == 0 {
		tab = b
	}
	defer share(tab)()
	id, version, known := g*perGroup+wr.r.IntN(perGroup), wr.w.version.Add(1), wr.groups[tab.number][g]
	var err error
	switch n := wr.r.IntN(10); {
	case n < 2:
		err = wr.exec(ctx, "DELETE FROM %s WHERE id=%d", tab.name, id)
	case n < 4 && known >= 0:
		err = wr.exec(ctx, "REPLACE INTO %s(id,grp,ver,gver%s) VALUES(%d,%d,%d,%d%s)", tab.name, tab.names(), id, g, version, known, tab.values(wr.r))
	case n < 6 && known >= 0:
		err = wr.exec(ctx, "INSERT INTO %s(id,grp,ver,gver%s) VALUES(%d,%d,%d,%d%s) ON DUPLICATE KEY UPDATE ver=%d%s",
			tab.name, tab.names(), id, g, version, known, tab.values(wr.r), version, tab.sets(wr.r))
	default:
		err = wr.exec(ctx, "UPDATE %s SET ver=%d, pad=REPEAT('%c',%d)%s WHERE id=%d", tab.name, version, 'a'+rune(wr.r.IntN(26)), wr.r.IntN(200), tab.sets(wr.r), id)
	}
	if err != nil {
		// A value that the type refuses ends the statement alone.
		wr.w.count.failed.Add(1)
		if wr.alive(ctx) {
			return nil
		}
		return err
	}
	wr.w.count.transactions.Add(1)
	wr.w.count.rows.Add(1)
	return nil
}

func (wr *writer) alive(ctx context.Context) bool { return wr.conn.PingContext(ctx) == nil }

// xa writes a version by a two-phase transaction.
func (wr *writer) xa(ctx context.Context) error {
	a, b, g := wr.pair()
	defer share(a, b)()
	id := fmt.Sprintf("'x%d.%d'", wr.number, wr.w.version.Add(1))
	version := wr.w.version.Add(1)
	end := "XA COMMIT " + id
	if wr.r.IntN(3) == 0 {
		version, end = poison, "XA ROLLBACK "+id
	}
	if err := wr.exec(ctx, "XA START %s", id); err != nil {
		return err
	}
	changed := wr.change(ctx, a, b, g, version)
	if err := wr.exec(ctx, "XA END %s", id); err != nil {
		return err
	}
	if changed != nil {
		return errors.Join(changed, wr.exec(ctx, "XA ROLLBACK %s", id))
	}
	if err := wr.exec(ctx, "XA PREPARE %s", id); err != nil {
		return err
	}
	if err := wr.exec(ctx, "%s", end); err != nil {
		return err
	}
	if version != poison {
		wr.groups[a.number][g], wr.groups[b.number][g] = version, version
		wr.w.count.transactions.Add(1)
	}
	return nil
}

// many inserts, moves or deletes up to 50,000 rows at once.
func (wr *writer) many(ctx context.Context) error {
	tab := wr.w.tables[wr.r.IntN(len(wr.w.tables))]
	defer share(tab)()
	base := int(bulkFrom) * (1 + wr.number)
	version := wr.w.version.Add(1)
	wr.bulk++
	var err error
	switch wr.bulk % 4 {
	case 0:
		err = wr.exec(ctx, "DELETE FROM %s WHERE id BETWEEN %d AND %d", tab.name, base, base+999_999)
	case 1, 2:
		n := 1 << wr.r.IntN(16)
		err = wr.exec(ctx, "REPLACE INTO %s(id,grp,ver,gver) SELECT %d+a.n*64+b.n, -1, %d, %d FROM seq a, seq b WHERE b.n<64 AND a.n*64+b.n<%d",
			tab.name, base+wr.r.IntN(5)*50_000, version, version, min(n, 50_000))
		wr.w.count.rows.Add(int64(n))
	default:
		err = wr.exec(ctx, "UPDATE %s SET id=id+%d, ver=%d WHERE id BETWEEN %d AND %d ORDER BY id DESC LIMIT 5000", tab.name, 1+wr.r.IntN(7), version, base, base+900_000)
	}
	if err != nil {
		if wr.alive(ctx) {
			wr.w.count.failed.Add(1)
			return nil // duplicates, mostly
		}
		return err
	}
	wr.w.count.transactions.Add(1)
	return nil
}

func (wr *writer) truncate(ctx context.Context) error {
	if wr.r.IntN(4) != 0 {
		return nil
	}
	a, b, _ := wr.pair()
	// Nobody writes between the two, so that the groups of both tables are gone together.
	a.shape.Lock()
	defer a.shape.Unlock()
	b.shape.Lock()
	defer b.shape.Unlock()
	for _, tab := range []*table{a, b} {
		verb := []string{"TRUNCATE %s", "DELETE FROM %s"}[wr.r.IntN(2)]
		if err := wr.exec(ctx, verb, tab.name); err != nil {
			return err
		}
		wr.w.count.truncates.Add(1)
	}
	return nil
}
