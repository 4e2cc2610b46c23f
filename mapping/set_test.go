package mapping

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/binlog"
	"pgregory.net/rapid"
)

// named gives a mapping of a table of that name with an integer id and a text name, both unique.
func named(t testing.TB, name, key string) *Mapping {
	return compiled(t, Spec{Key: key}, &binlog.Table{
		TableName: binlog.TableName{Schema: "db", Name: name},
		Columns: []binlog.Column{
			{Name: "id", Kind: binlog.KindInt, Type: "int", Bytes: 4},
			{Name: "name", Kind: binlog.KindText, Type: "varchar(9)"},
		},
		Keys: []binlog.Key{{Name: "PRIMARY", Columns: []int{0}}, {Name: "n", Columns: []int{1}}},
	})
}

func TestOwnerHasTheLongestPrefix(t *testing.T) {
	set, err := NewSet([]*Mapping{named(t, "a", "u:{id}"), named(t, "b", "u:v:{name}"), named(t, "c", "{id}"), named(t, "d", "")})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{"u:1": "a", "u:v:x": "b", "u:v": "a", "7": "c", "d:7": "d", "dd": "c", "": "c"} {
		if m := set.Owner([]byte(key)); m == nil || m.Name() != want {
			t.Errorf("the owner of %q is %v, want %s", key, m, want)
		}
	}
	some, err := NewSet([]*Mapping{named(t, "a", "u:{id}")})
	if err != nil {
		t.Fatal(err)
	}
	if m := some.Owner([]byte("v:1")); m != nil {
		t.Errorf("v:1 belongs to %s", m.Name())
	}
}

// Case 166: two mappings that could write one key are refused; those that cannot are not.
func TestMappingsThatCouldMeetAreRefused(t *testing.T) {
	for _, c := range []struct {
		a, b string
		meet string // a key that both could write; "" when they cannot meet
	}{
		{"u:{id}", "u:{id}", "u:1"},
		{"u:{name}", "u:v:{id}", "u:v:1"},
		{"u{name}", "user:{id}", "user:1"},
		{"{name}", "anything:{id}", "anything:1"},
		{"u:{id}", "u:v:{id}", ""},
		{"u:{id}", "u:1{id}", "u:11"},
		{"k{id}", "k:{id}", ""},
		{"k{id}", "k1:{id}", ""},
		{"{id}", "{name}x", ""},
		{"{id}", "{name}", "1"},
		{"a:{name}:{id}", "a:{id}", ""},
		{"a:{name}:{id}", "a:{name}", "a::1"},
		{"a:{name}:{id}", "a:{id}:{name}", "a:1:1"},
		{"a:{id}:x", "a:{id}:y", ""},
		{"a:{name}:x", "a:{name}:y", ""},
	} {
		_, err := NewSet([]*Mapping{named(t, "t", c.a), named(t, "u", c.b)})
		switch {
		case c.meet == "" && err != nil:
			t.Errorf("%s and %s: %v", c.a, c.b, err)
		case c.meet != "" && (err == nil || !strings.Contains(err.Error(), `the key "`+c.meet+`"`)):
			t.Errorf("%s and %s: %v; want them to meet in %s", c.a, c.b, err, c.meet)
		}
	}
	if _, err := NewSet([]*Mapping{named(t, "t", "a:{id}"), named(t, "t", "b:{id}")}); err == nil || !strings.Contains(err.Error(), "another `name:`") {
		t.Errorf("two containers of one name: %v", err)
	}
}

func TestResolve(t *testing.T) {
	set, err := NewSet([]*Mapping{named(t, "users", "user:{id}"), named(t, "n", "n:{name}")})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		key, item, owner string
		ok               bool
	}{
		{"@@users.7", "user:7", "users", true},
		{"@@users.x", "", "users", false},
		{"@@n.a.b", "n:a.b", "n", true},
		{"@@none.7", "", "", false},
		{"@@users", "", "", false},
		{"user:7", "", "", false},
		{"@@", "", "", false},
	} {
		item, m, ok := set.Resolve(nil, []byte(c.key))
		owner := ""
		if m != nil {
			owner = m.Name()
		}
		if string(item) != c.item || owner != c.owner || ok != c.ok {
			t.Errorf("%s: %q of %q, %v", c.key, item, owner, ok)
		}
	}
	key, buf := []byte("@@users.7"), make([]byte, 0, 64)
	if n := testing.AllocsPerRun(100, func() { _ = set.Owner(key); buf, _, _ = set.Resolve(buf[:0], key) }); n != 0 {
		t.Errorf("%v allocations to resolve a key, want none", n)
	}
}

// Mappings that a Set takes never write one key.
func TestPropertySetsDoNotMeet(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ta, ka := drawnTable(t)
		tb, kb := drawnTable(t)
		tb.TableName.Name = "u"
		a, err := Compile(Spec{Key: ka}, ta)
		if err != nil {
			t.Fatal(err)
		}
		b, err := Compile(Spec{Key: kb}, tb)
		if err != nil {
			t.Fatal(err)
		}
		_, refused := NewSet([]*Mapping{a, b})
		for range 20 {
			key := keyOf(t, a, drawnRow(t, ta))
			if _, ok := b.ParseKey(key); ok && refused == nil {
				t.Fatalf("%s and %s both write %q", ka, kb, key)
			}
			if other := keyOf(t, b, drawnRow(t, tb)); bytes.Equal(key, other) && refused == nil {
				t.Fatalf("%s and %s both write %q", ka, kb, key)
			}
		}
	})
}
