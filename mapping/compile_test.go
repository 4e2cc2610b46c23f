package mapping

import (
	"strings"
	"testing"
)

// Case 161: without a unique key a mapping is refused.
func TestATableWithoutAKeyIsRefused(t *testing.T) {
	table := users()
	table.Keys = nil
	for _, key := range []string{"", "u:{id}", "u:{pk}"} {
		if _, err := Compile(Spec{Key: key}, table); err == nil || !strings.Contains(err.Error(), "primary key") {
			t.Errorf("key %q: %v", key, err)
		}
	}
	table.Keys = users().Keys[1:]
	if _, err := Compile(Spec{}, table); err == nil || !strings.Contains(err.Error(), `write key: "users:{Name}:{shard}"`) {
		t.Errorf("no primary key: %v", err)
	}
}

func TestDefaultsAreFilledIn(t *testing.T) {
	s := compiled(t, Spec{Table: "shop.users"}, users()).Spec()
	if s.Name != "users" || s.Key != "users:{id}" || s.Value.Format != FormatJSON || s.Load != LoadAll ||
		s.Policy != (PolicySpec{PolicyCaching, PolicyInnoDBOnly, PolicyInnoDBOnly, PolicyCacheOnly}) {
		t.Fatalf("%+v", s)
	}
}
