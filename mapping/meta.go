package mapping

import (
	"fmt"
	"math"
	"strconv"
	"time"

	"github.com/rowcached/rowcached/binlog"
)

// number is a constant, or an integer column (col >= 0).
type number struct {
	col   int
	value uint32
}

// expiry is a constant number of seconds from the moment a row is stored (0: never), or an integer column of
// absolute unix seconds (col >= 0).
type expiry struct {
	col     int
	seconds int64
}

func compileFlags(s string, t *binlog.Table) (number, error) {
	if s == "" {
		return number{col: -1}, nil
	}
	if t.Column(s) < 0 {
		if v, err := strconv.ParseUint(s, 10, 32); err == nil {
			return number{col: -1, value: uint32(v)}, nil
		} else if _, err := strconv.ParseInt(s, 10, 64); err == nil {
			return number{}, fmt.Errorf("flags: %s does not fit memcached's flags; write a number from 0 to %d or a column", s, uint32(math.MaxUint32))
		}
	}
	o, err := integerColumn("flags", s, t)
	return number{col: o}, err
}

func compileCAS(s string, t *binlog.Table) (int, error) {
	if s == "" {
		return -1, nil
	}
	return integerColumn("cas", s, t)
}

func compileExpire(s string, t *binlog.Table) (expiry, error) {
	if s == "" || s == "0" && t.Column(s) < 0 {
		return expiry{col: -1}, nil
	}
	if t.Column(s) < 0 {
		if d, err := time.ParseDuration(s); err == nil {
			if d < time.Second || d%time.Second != 0 {
				return expiry{}, fmt.Errorf("expire: %s is not a whole number of seconds above zero; write 1s or more, or a column of unix seconds", s)
			}
			return expiry{col: -1, seconds: int64(d / time.Second)}, nil
		}
		if _, err := strconv.ParseInt(s, 10, 64); err == nil {
			return expiry{}, fmt.Errorf("expire: %s has no unit; write %ss, or a column of unix seconds", s, s)
		}
	}
	o, err := integerColumn("expire", s, t)
	return expiry{col: o}, err
}

func integerColumn(setting, name string, t *binlog.Table) (int, error) {
	o, err := column(t, name)
	if err != nil {
		return -1, fmt.Errorf("%s: %w", setting, err)
	}
	if c := &t.Columns[o]; c.Kind != binlog.KindInt {
		return -1, fmt.Errorf("%s: column %s is %s; it must be an integer", setting, c.Name, c.Type)
	}
	return o, nil
}

// Flags gives an item's flags: the constant, or the low 32 bits of the column, 0 for NULL.
func (m *Mapping) Flags(r *binlog.Row) uint32 {
	if m.flags.col < 0 {
		return m.flags.value
	}
	v, _, _ := m.integer(r, m.flags.col)
	return uint32(v)
}

// CAS gives the cas value that the row itself holds. false: there is no such column, or it is NULL or 0 (no
// item has the cas 0); the memory tier then chooses one.
func (m *Mapping) CAS(r *binlog.Row) (uint64, bool) {
	if m.cas < 0 {
		return 0, false
	}
	v, _, ok := m.integer(r, m.cas)
	return uint64(v), ok && v != 0
}

// Expire gives the unix second at which an item stored at now expires, 0 for never. A column's 0 and NULL
// mean never; a negative number is the past.
func (m *Mapping) Expire(r *binlog.Row, now int64) int64 {
	if m.expire.col < 0 {
		if m.expire.seconds == 0 {
			return 0
		}
		return now + m.expire.seconds
	}
	v, unsigned, ok := m.integer(r, m.expire.col)
	switch {
	case !ok || v == 0:
		return 0
	case v < 0 && unsigned:
		return math.MaxInt64
	case v < 0:
		return 1
	default:
		return v
	}
}

func (m *Mapping) integer(r *binlog.Row, col int) (int64, bool, bool) {
	if !r.Has(col) || r.IsNull(col) {
		return 0, false, false
	}
	return r.Int(col)
}
