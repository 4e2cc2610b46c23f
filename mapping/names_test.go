package mapping

import (
	"testing"

	"github.com/rowcached/rowcached/binlog"
)

func TestSpecTableName(t *testing.T) {
	for in, want := range map[string]binlog.TableName{
		"shop.users":     {Schema: "shop", Name: "users"},
		"`sh.op`.users":  {Schema: "sh.op", Name: "users"},
		"db.`a``b.c`":    {Schema: "db", Name: "a`b.c"},
		"`db`.`t`":       {Schema: "db", Name: "t"},
		"users":          {},
		"a.b.c":          {},
		"a.":             {},
		".b":             {},
		"`a.b":           {},
		"``.b":           {},
		"":               {},
		"`db`.`t` extra": {},
	} {
		got, err := Spec{Table: in}.TableName()
		if got != want || (err == nil) != (want != binlog.TableName{}) {
			t.Errorf("%q: %v, %v", in, got, err)
		}
	}
	if got := (Spec{Table: "db.`a``b`"}).ContainerName(); got != "a`b" {
		t.Error(got)
	}
	if got := (Spec{Table: "db.t", Name: "n"}).ContainerName(); got != "n" {
		t.Error(got)
	}
}
