package torture

import (
	"context"
	"fmt"
	"slices"
)

// alter changes a table's definition in one of many ways. A change that the server refuses changes nothing.
func (wr *writer) alter(ctx context.Context) error {
	tab := wr.w.tables[wr.r.IntN(len(wr.w.tables))]
	tab.shape.Lock()
	defer tab.shape.Unlock()
	statements, done := wr.alteration(tab)
	for _, s := range statements {
		if err := wr.exec(ctx, "%s", s); err != nil {
			wr.w.count.failed.Add(1)
			if wr.alive(ctx) {
				return nil
			}
			return err
		}
	}
	if done != nil {
		done()
	}
	wr.w.count.ddl.Add(1)
	return nil
}

// alteration gives the statements, and what to note when they are done.
func (wr *writer) alteration(tab *table) (statements []string, done func()) {
	r := wr.r
	some := -1
	if len(tab.extras) > 0 {
		some = r.IntN(len(tab.extras))
	}
	switch n := r.IntN(12); {
	case n < 3 || some < 0:
		x := tab.newExtra(r)
		place := []string{"", " FIRST", " AFTER grp"}[r.IntN(3)]
		return []string{fmt.Sprintf("ALTER TABLE %s ADD COLUMN %s %s%s", tab.name, x.name, x.typ.definition, place)},
			func() { tab.extras = append(tab.extras, x) }
	case n < 5 || len(tab.extras) > 12:
		return []string{fmt.Sprintf("ALTER TABLE %s DROP COLUMN %s", tab.name, tab.extras[some].name)},
			func() { tab.extras = slices.Delete(tab.extras, some, some+1) }
	case n < 7:
		typ := tab.newExtra(r).typ
		return []string{fmt.Sprintf("ALTER TABLE %s MODIFY COLUMN %s %s", tab.name, tab.extras[some].name, typ.definition)},
			func() { tab.extras[some].typ = typ }
	case n == 7:
		name := tab.newExtra(r).name
		return []string{fmt.Sprintf("ALTER TABLE %s CHANGE COLUMN %s %s %s", tab.name, tab.extras[some].name, name, tab.extras[some].typ.definition)},
			func() { tab.extras[some].name = name }
	case n == 8:
		return []string{fmt.Sprintf("ALTER TABLE %s CONVERT TO CHARACTER SET %s", tab.name, []string{"latin1", "utf8mb4", "utf8mb3"}[r.IntN(3)])}, nil
	case n == 9:
		return []string{fmt.Sprintf("RENAME TABLE %s TO away", tab.name), fmt.Sprintf("RENAME TABLE away TO %s", tab.name)}, nil
	case n == 10:
		return []string{"DROP TABLE IF EXISTS fresh, old", fmt.Sprintf("CREATE TABLE fresh LIKE %s", tab.name),
			fmt.Sprintf("INSERT INTO fresh SELECT * FROM %s", tab.name),
			fmt.Sprintf("RENAME TABLE %s TO old, fresh TO %s", tab.name, tab.name), "DROP TABLE old"}, nil
	default:
		return []string{fmt.Sprintf("ALTER TABLE %s ENGINE=InnoDB", tab.name)}, nil
	}
}
