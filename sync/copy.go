package sync

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/mapping"
	"github.com/rowcached/rowcached/server/memory"
)

const (
	chunkRows    = 20_000 // rows between two chunk bounds
	chunkRetries = 5      // of one chunk, whatever the error
)

// copier reads one table into a hidden space, in chunks, without locks (I3).
type copier struct {
	db      *sql.DB
	source  *binlog.Source
	table   *binlog.Table
	mapping *mapping.Mapping
	loader  func() *memory.Loader
	workers int

	rows      func(n int64) // called with rows read since the last call
	estimated func(n int64)
	skipped   func(err error)
}

// span is a half-open range of the chunk key: after lower (exclusive), up to upper (inclusive); nil is open.
type span struct {
	lower, upper []any
}

// run copies the table. from is the tail's position since which touched keys are remembered. It gives the
// position which the tail must reach before the copy may be read.
func (c *copier) run(ctx context.Context, from binlog.Position) (binlog.Position, error) {
	if err := awaitVisible(ctx, c.source, c.table.TableName, from); err != nil {
		return binlog.Position{}, err
	}
	var n sql.NullInt64
	err := c.db.QueryRowContext(ctx, `SELECT TABLE_ROWS FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?`,
		c.table.Schema, c.table.Name).Scan(&n)
	if err != nil {
		return binlog.Position{}, fmt.Errorf("estimate rows of %s: %w", c.table.TableName, err)
	}
	c.estimated(n.Int64)

	spans := make(chan span, c.workers)
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(spans)
		return c.split(gctx, n.Int64, spans)
	})
	for range c.workers {
		g.Go(func() error {
			w := newCopyWorker(c)
			defer w.close()
			for s := range spans {
				if err := w.copyWithRetry(gctx, s); err != nil {
					return err
				}
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return binlog.Position{}, err
	}
	p1, err := c.source.Written(ctx, c.db)
	if err != nil {
		return binlog.Position{}, fmt.Errorf("note the end of the log after the copy of %s: %w", c.table.TableName, err)
	}
	return p1, nil
}

// awaitVisible waits until a SELECT that begins afterwards sees every transaction up to from.
func awaitVisible(ctx context.Context, source *binlog.Source, name binlog.TableName, from binlog.Position) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		p, err := source.Visible(ctx, source.DB())
		if err != nil {
			return fmt.Errorf("note the visible position before the copy of %s: %w", name, err)
		}
		if p.Covers(from) {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
	}
}

// chunkKey gives the ordinals by which the table is cut, or nil when its key's order and its literals'
// order differ (ENUM, SET, FLOAT, BIT ...), so that it is read in one statement.
func (c *copier) chunkKey() []int {
	for _, k := range c.table.Keys {
		ok := true
		for _, i := range k.Columns {
			switch c.table.Columns[i].Kind {
			case binlog.KindInt, binlog.KindText, binlog.KindBinary, binlog.KindDecimal,
				binlog.KindDate, binlog.KindDatetime, binlog.KindTimestamp, binlog.KindYear, binlog.KindTime:
			default:
				ok = false
			}
			if c.table.Columns[i].Virtual {
				ok = false
			}
		}
		if ok {
			return k.Columns
		}
	}
	return nil
}

// split sends the spans that together cover the table once.
func (c *copier) split(ctx context.Context, estimate int64, out chan<- span) error {
	send := func(s span) error {
		select {
		case out <- s:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	key := c.chunkKey()
	if key == nil || estimate < chunkRows/2 {
		return send(span{})
	}
	if len(key) == 1 && c.table.Columns[key[0]].Kind == binlog.KindInt && !c.table.Columns[key[0]].Unsigned {
		done, err := c.splitDense(ctx, key[0], estimate, send)
		if done || err != nil {
			return err
		}
	}
	return c.splitByScan(ctx, key, send)
}

// splitDense cuts the range between the smallest and the largest value evenly when the values lie densely enough.
func (c *copier) splitDense(ctx context.Context, col int, estimate int64, send func(span) error) (bool, error) {
	name := binlog.QuoteName(c.table.Columns[col].Name)
	var lo, hi sql.NullInt64
	err := c.db.QueryRowContext(ctx, "SELECT MIN("+name+"), MAX("+name+") FROM "+c.table.Quoted()).Scan(&lo, &hi)
	if err != nil {
		return false, fmt.Errorf("find the key range of %s: %w", c.table.TableName, err)
	}
	width := hi.Int64 - lo.Int64
	if !lo.Valid || width <= 0 || width/4 > estimate {
		return false, nil
	}
	step := max(width/max(estimate/chunkRows, 1), 1)
	var lower []any
	for at := lo.Int64 + step; at < hi.Int64 && at > lo.Int64; at += step {
		if err := send(span{lower: lower, upper: []any{at}}); err != nil {
			return true, err
		}
		lower = []any{at}
	}
	return true, send(span{lower: lower})
}

// splitByScan walks the key's index and takes every chunkRows-th entry as a bound.
func (c *copier) splitByScan(ctx context.Context, key []int, send func(span) error) error {
	names := c.keyNames(key)
	list := strings.Join(names, ", ")
	var lower []any
	for {
		where, args := after(names, lower)
		query := "SELECT " + list + " FROM " + c.table.Quoted() + where + " ORDER BY " + list + fmt.Sprintf(" LIMIT 1 OFFSET %d", chunkRows-1)
		vals := make([]sql.RawBytes, len(key))
		dest := make([]any, len(key))
		for i := range vals {
			dest[i] = &vals[i]
		}
		bound, err := queryBound(ctx, c.db, query, args, dest, func() []any {
			out := make([]any, len(key))
			for i, k := range key {
				out[i] = keyArg(c.table.Columns[k].Kind, vals[i])
			}
			return out
		})
		if err != nil {
			return fmt.Errorf("find chunk bounds of %s: %w", c.table.TableName, err)
		}
		if err := send(span{lower: lower, upper: bound}); err != nil || bound == nil {
			return err
		}
		lower = bound
	}
}

// queryBound runs a query of at most one row; nil without one.
func queryBound(ctx context.Context, db *sql.DB, query string, args, dest []any, take func() []any) (bound []any, err error) {
	rows, err := db.QueryContext(ctx, query, args...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if rows.Next() {
		if err := rows.Scan(dest...); err != nil {
			return nil, err
		}
		bound = take()
	}
	return bound, rows.Err()
}

func (c *copier) keyNames(key []int) []string {
	names := make([]string, len(key))
	for i, k := range key {
		names[i] = binlog.QuoteName(c.table.Columns[k].Name)
	}
	return names
}

// keyArg makes a query argument of a key column's bytes: text stays text, so that the column's own collation compares.
func keyArg(k binlog.Kind, b []byte) any {
	if k == binlog.KindBinary {
		return append([]byte(nil), b...)
	}
	return string(b)
}

// after gives " WHERE key > bound" for a key of one or more columns, spelled so that the index is used.
func after(names []string, bound []any) (string, []any) {
	if bound == nil {
		return "", nil
	}
	cond, args := compare(names, bound, ">", false)
	return " WHERE " + cond, args
}

// within gives the WHERE clause of a span.
func within(names []string, s span) (string, []any) {
	var conds []string
	var args []any
	if s.lower != nil {
		cond, a := compare(names, s.lower, ">", false)
		conds, args = append(conds, cond), append(args, a...)
	}
	if s.upper != nil {
		cond, a := compare(names, s.upper, "<", true)
		conds, args = append(conds, cond), append(args, a...)
	}
	if conds == nil {
		return "", nil
	}
	return " WHERE " + strings.Join(conds, " AND "), args
}

// compare spells (a, b) op (x, y) as a op= x AND (a op x OR a = x AND b op y); with orEqual the last op admits equality.
func compare(names []string, bound []any, op string, orEqual bool) (string, []any) {
	last := op
	if orEqual {
		last += "="
	}
	if len(names) == 1 {
		return names[0] + " " + last + " ?", []any{bound[0]}
	}
	var b strings.Builder
	args := []any{bound[0]}
	b.WriteString("(" + names[0] + " " + op + "= ? AND (")
	for i := range names {
		if i > 0 {
			b.WriteString(" OR ")
		}
		for j := range i {
			b.WriteString(names[j] + " = ? AND ")
			args = append(args, bound[j])
		}
		o := op
		if i == len(names)-1 {
			o = last
		}
		b.WriteString(names[i] + " " + o + " ?")
		args = append(args, bound[i])
	}
	b.WriteString("))")
	return b.String(), args
}

// copyWorker reads spans, one after the other.
type copyWorker struct {
	c      *copier
	cols   []int
	list   string
	key    []string
	loader *memory.Loader
	row    binlog.Row
	vals   []sql.RawBytes
	dest   []any
	keyBuf []byte
	valBuf []byte
}

func newCopyWorker(c *copier) *copyWorker {
	w := &copyWorker{c: c, cols: c.mapping.Columns(), loader: c.loader()}
	w.list = selectList(c.table, w.cols)
	w.key = c.keyNames(c.chunkKey())
	w.vals = make([]sql.RawBytes, len(w.cols))
	w.dest = make([]any, len(w.cols))
	for i := range w.vals {
		w.dest[i] = &w.vals[i]
	}
	return w
}

// selectList spells the columns whose texts a row is made of.
func selectList(t *binlog.Table, cols []int) string {
	exprs := make([]string, len(cols))
	for i, col := range cols {
		exprs[i] = t.SelectExpr(col)
	}
	return strings.Join(exprs, ", ")
}

func (w *copyWorker) close() { w.loader.Close() }

// errGiveUp marks an error that reading again does not mend.
var errGiveUp = errors.New("copying again would not help")

// copyWithRetry copies a span; a chunk that was cut short is read again whole, which is harmless: a row that
// is there already, or was touched, is not stored again.
func (w *copyWorker) copyWithRetry(ctx context.Context, s span) error {
	pause := 50 * time.Millisecond
	for try := 1; ; try++ {
		err := w.copySpan(ctx, s)
		if err == nil || ctx.Err() != nil || try == chunkRetries || errors.Is(err, errGiveUp) {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause):
		}
		pause *= 2
	}
}

func (w *copyWorker) copySpan(ctx context.Context, s span) (err error) {
	c := w.c
	where, args := within(w.key, s)
	rows, err := c.db.QueryContext(ctx, "SELECT "+w.list+" FROM "+c.table.Quoted()+where, args...)
	if err != nil {
		return fmt.Errorf("read a chunk of %s: %w", c.table.TableName, err)
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	var n int64
	defer func() { c.rows(n) }()
	for rows.Next() {
		if err := rows.Scan(w.dest...); err != nil {
			return fmt.Errorf("read a row of %s: %w", c.table.TableName, err)
		}
		if err := w.store(); err != nil {
			return err
		}
		if n++; n == 1000 {
			c.rows(n)
			n = 0
		}
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read a chunk of %s: %w", c.table.TableName, err)
	}
	return nil
}

// store puts the scanned row into the hidden space unless the tail has touched its key.
func (w *copyWorker) store() (err error) {
	m := w.c.mapping
	w.row.SetQuery(w.c.table, w.cols, w.vals)
	w.keyBuf, err = m.AppendKey(w.keyBuf[:0], &w.row)
	if err != nil {
		w.c.skipped(err)
	}
	if unkeyed(err) {
		return nil
	}
	w.valBuf, err = m.AppendValue(w.valBuf[:0], &w.row)
	if err != nil {
		return fmt.Errorf("render a row of %s: %w", w.c.table.TableName, errors.Join(err, errGiveUp))
	}
	cas, _ := m.CAS(&w.row)
	err = w.loader.Put(w.keyBuf, w.valBuf, m.Flags(&w.row), m.Expire(&w.row, time.Now().Unix()), cas)
	switch {
	case errors.Is(err, memory.ErrTooLarge):
		w.c.skipped(err)
		return nil
	case err != nil:
		return fmt.Errorf("store a row of %s: %w", w.c.table.TableName, errors.Join(err, errGiveUp))
	}
	return nil
}
