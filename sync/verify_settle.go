package sync

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/rowcached/rowcached/binlog"
	"github.com/rowcached/rowcached/server/memory"
)

// settle finds out which of the keys really differ, counts them, and repairs them if that is asked for.
func (v *verifier) settle(ctx context.Context, keys []string) error {
	for len(keys) > 0 {
		n := min(len(keys), settleKeys)
		some := keys[:n]
		keys = keys[n:]
		pause := time.Millisecond
		for try := 1; len(some) > 0; try++ {
			if try > settleTries {
				v.out.Unsettled += int64(len(some))
				break
			}
			var err error
			if some, err = v.settleOnce(ctx, some); err != nil {
				return err
			}
			if len(some) > 0 && !sleep(ctx, pause) {
				return ctx.Err()
			}
			pause *= 2
		}
	}
	return nil
}

// settleOnce decides about those keys that the tail leaves alone meanwhile, and gives back the others.
func (v *verifier) settleOnce(ctx context.Context, keys []string) (again []string, err error) {
	e, t := v.e, v.t
	var w *watch
	var p0 binlog.Position
	fresh := false
	if !e.onApplier(ctx, func() {
		if fresh = t.generation == v.generation; fresh {
			w, p0 = t.watchLocked(keys), e.cfg.Source.Position()
		}
	}) {
		return nil, ctx.Err()
	}
	if !fresh {
		return nil, errReplaced
	}
	defer func() {
		e.mu.Lock()
		t.unwatchLocked(w)
		e.mu.Unlock()
	}()

	if err := awaitVisible(ctx, e.cfg.Source, v.def.TableName, p0); err != nil {
		return nil, err
	}
	want := make(map[string]wanted, len(keys))
	asked := make(map[string]bool, len(keys)) // w belongs to the applier
	for _, key := range keys {
		asked[key] = true
	}
	where, args := v.whereKeys(keys)
	err = v.query(ctx, where, args, func(key []byte, is wanted) {
		if asked[string(key)] {
			is.value = bytes.Clone(is.value)
			want[string(key)] = is
		}
	})
	if err != nil {
		return nil, err
	}
	p1, err := e.cfg.Source.Written(ctx, e.cfg.Source.DB())
	if err != nil {
		return nil, err
	}
	if !e.awaitReached(ctx, p1) {
		return nil, ctx.Err()
	}
	if !e.onApplier(ctx, func() { again, err = v.decideLocked(w, keys, want) }) {
		return nil, ctx.Err()
	}
	return again, err
}

// decideLocked compares untouched keys with their rows. It runs between two transactions.
func (v *verifier) decideLocked(w *watch, keys []string, want map[string]wanted) (again []string, err error) {
	e := v.e
	if v.t.generation != v.generation {
		return nil, errReplaced
	}
	if e.batch.Len() > 0 {
		e.publishLocked()
	}
	for _, key := range keys {
		if w.touched[key] {
			again = append(again, key)
			continue
		}
		is, row := want[key]
		v.session.Begin()
		it := v.own(v.session.Peek([]byte(key)))
		d := Difference{Key: key}
		switch {
		case !row && it.OK():
			d.Kind = "extra"
			v.out.Extra++
		case row && !it.OK() && !is.mayMiss:
			d.Kind = "missing"
			v.out.Missing++
		case row && !is.equals(it):
			d.Kind = "wrong"
			v.out.Wrong++
		}
		if d.Kind != "" && len(v.out.Examples) < exampleCount {
			if row {
				d.Row = is.String()
			}
			if it.OK() {
				d.Memory = short(it.Value(), it.Flags())
			}
			v.out.Examples = append(v.out.Examples, d)
		}
		v.session.Release()
		if d.Kind == "" {
			v.out.Lagging++
			continue
		}
		if v.opts.Repair {
			if err := v.repairLocked(key, is, row); err != nil {
				return nil, err
			}
		}
	}
	if v.opts.Repair && e.batch.Len() > 0 {
		e.publishLocked()
	}
	return again, nil
}

// repairLocked prepares the change that makes an item equal to its row. The tail has passed the row's moment and has not
// touched the key since, so nothing newer can be undone (G2).
func (v *verifier) repairLocked(key string, is wanted, row bool) error {
	e := v.e
	v.t.mended++
	if !row {
		e.batch.Delete(v.space, []byte(key))
		v.out.Repaired++
		return nil
	}
	err := e.batch.Put(v.space, []byte(key), is.value, is.flags, is.expire, is.cas)
	switch {
	case errors.Is(err, memory.ErrTooLarge):
		e.skipLocked(v.t, err)
		e.batch.Delete(v.space, []byte(key))
	case err != nil:
		return err
	default:
		v.out.Repaired++
	}
	return nil
}

// whereKeys spells the condition that gives the rows of the keys, and maybe more of them: a collation may hold other texts
// equal. Where an equality may give less, it is empty and the whole table is read.
func (v *verifier) whereKeys(keys []string) (string, []any) {
	cols := v.mapping.KeyColumns()
	var args []any
	conds := make([]string, 0, len(keys))
	for _, key := range keys {
		texts, ok := v.mapping.ParseKey([]byte(key))
		if !ok {
			return "", nil
		}
		parts := make([]string, len(cols))
		for i, col := range cols {
			arg, ok := equalArg(&v.def.Columns[col], texts[i])
			if !ok {
				return "", nil
			}
			parts[i] = binlog.QuoteName(v.def.Columns[col].Name) + " = ?"
			args = append(args, arg)
		}
		conds = append(conds, "("+strings.Join(parts, " AND ")+")")
	}
	return " WHERE " + strings.Join(conds, " OR "), args
}

// equalArg makes the argument that a column which holds this text equals. false: there is none that is sure.
func equalArg(c *binlog.Column, text []byte) (any, bool) {
	switch c.Kind {
	case binlog.KindInt:
		if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
			return n, true
		}
		n, err := strconv.ParseUint(string(text), 10, 64)
		return n, err == nil
	case binlog.KindBinary:
		return bytes.Clone(text), true
	case binlog.KindText, binlog.KindDecimal, binlog.KindDate, binlog.KindDatetime, binlog.KindYear, binlog.KindTime:
		return string(text), true
	}
	return nil, false
}
