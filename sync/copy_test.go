package sync

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWithin(t *testing.T) {
	for _, tc := range []struct {
		name  string
		names []string
		s     span
		where string
		args  []any
	}{
		{"whole", []string{"`a`"}, span{}, "", nil},
		{"below", []string{"`a`"}, span{upper: []any{7}}, " WHERE `a` <= ?", []any{7}},
		{"between", []string{"`a`"}, span{lower: []any{3}, upper: []any{7}}, " WHERE `a` > ? AND `a` <= ?", []any{3, 7}},
		{"composite", []string{"`a`", "`b`"}, span{lower: []any{1, "x"}, upper: []any{2, "y"}},
			" WHERE (`a` >= ? AND (`a` > ? OR `a` = ? AND `b` > ?)) AND (`a` <= ? AND (`a` < ? OR `a` = ? AND `b` <= ?))",
			[]any{1, 1, 1, "x", 2, 2, 2, "y"}},
		{"three", []string{"`a`", "`b`", "`c`"}, span{lower: []any{1, 2, 3}},
			" WHERE (`a` >= ? AND (`a` > ? OR `a` = ? AND `b` > ? OR `a` = ? AND `b` = ? AND `c` > ?))",
			[]any{1, 1, 1, 2, 1, 2, 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			where, args := within(tc.names, tc.s)
			if where != tc.where {
				t.Errorf("where\n got %s\nwant %s", where, tc.where)
			}
			if d := cmp.Diff(tc.args, args); d != "" {
				t.Errorf("args (-want +got):\n%s", d)
			}
		})
	}
}
