package mapping

import (
	"math"
	"strings"
	"testing"
)

func TestFlagsCASExpire(t *testing.T) {
	table := users()
	at := func(shard, expires string) map[string][]byte {
		row := map[string][]byte{"shard": []byte(shard), "expires": []byte(expires)}
		if expires == "" {
			row["expires"] = nil
		}
		return row
	}
	for _, c := range []struct {
		spec   Spec
		row    map[string][]byte
		flags  uint32
		cas    uint64
		hasCAS bool
		expire int64
	}{
		{Spec{}, at("3", "9"), 0, 0, false, 0},
		{Spec{Flags: "17", Expire: "15m"}, at("3", "9"), 17, 0, false, 1900},
		{Spec{Flags: "Shard", CAS: "expires", Expire: "expires"}, at("3", "9"), 3, 9, true, 9},
		{Spec{Flags: "shard", CAS: "expires", Expire: "expires"}, at("-1", ""), math.MaxUint32, 0, false, 0},
		{Spec{CAS: "expires", Expire: "expires"}, at("0", "0"), 0, 0, false, 0},
		{Spec{Expire: "expires"}, at("0", "-5"), 0, 0, false, 1},
		{Spec{Flags: "0", Expire: "0"}, at("0", "-5"), 0, 0, false, 0},
	} {
		m := compiled(t, c.spec, table)
		r := query(t, table, c.row)
		cas, has := m.CAS(r)
		if f, e := m.Flags(r), m.Expire(r, 1000); f != c.flags || e != c.expire || has != c.hasCAS || cas != c.cas && has {
			t.Errorf("%+v: flags %d, cas %d %v, expire %d", c, f, cas, has, e)
		}
	}
}

func TestBadSettingsAreRefusedWithTheFix(t *testing.T) {
	for _, c := range []struct {
		spec Spec
		want string
	}{
		{Spec{Flags: "nmae"}, "flags: no column \"nmae\"; did you mean Name?"},
		{Spec{Flags: "4294967296"}, "0 to 4294967295"},
		{Spec{Flags: "-1"}, "0 to 4294967295"},
		{Spec{Flags: "name"}, "must be an integer"},
		{Spec{CAS: "doc"}, "must be an integer"},
		{Spec{Expire: "15"}, "write 15s"},
		{Spec{Expire: "1500ms"}, "whole number of seconds"},
		{Spec{Expire: "-5s"}, "above zero"},
		{Spec{Expire: "soon"}, "no column"},
		{Spec{Load: "on-demand"}, "did you mean on_demand?"},
		{Spec{Policy: PolicySpec{Set: "innodb"}}, "policy.set"},
		{Spec{Name: "a.b"}, "add a `name:` without one"},
		{Spec{Name: strings.Repeat("n", 51)}, "50 bytes or fewer"},
	} {
		_, err := Compile(c.spec, users())
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want it to say %q", c.spec, err, c.want)
		}
	}
}
