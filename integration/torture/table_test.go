package torture

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
)

// extra is a column besides the fixed ones.
type extra struct {
	name string
	typ  columnType
}

// table is a mapped table: id, grp, ver, gver, pad, and columns of random types.
type table struct {
	number int
	name   string
	w      *world

	// shape is held shared by transactions that name columns, and whole by changes of the definition.
	shape  sync.RWMutex
	extras []extra // guarded by shape
	next   int     // guarded by shape; for names of columns

	// newest are, by id, the greatest versions that anybody has read.
	newest [groups * perGroup]atomic.Int64
	// gnewest is the same for the versions of groups.
	gnewest [groups]atomic.Int64
}

func newTable(number int, w *world) *table {
	return &table{number: number, name: fmt.Sprintf("t%d", number), w: w}
}

// create makes the table with every row of its groups.
func (tab *table) create(r *rand.Rand) string {
	for range 3 + r.IntN(6) {
		tab.extras = append(tab.extras, tab.newExtra(r))
	}
	var b strings.Builder
	fmt.Fprintf(&b, "SET SESSION sql_mode=''; CREATE TABLE db.%s(id INT PRIMARY KEY, grp INT NOT NULL, ver BIGINT NOT NULL, gver BIGINT NOT NULL, pad VARCHAR(200) NOT NULL DEFAULT ''", tab.name)
	for _, x := range tab.extras {
		fmt.Fprintf(&b, ", %s %s", x.name, x.typ.definition)
	}
	b.WriteString(", KEY(grp)) CHARSET utf8mb4; ")
	fmt.Fprintf(&b, "INSERT INTO db.%s(id,grp,ver,gver) SELECT n, n DIV %d, 0, 0 FROM db.seq WHERE n < %d", tab.name, perGroup, groups*perGroup)
	return b.String()
}

func (tab *table) newExtra(r *rand.Rand) extra {
	tab.next++
	return extra{fmt.Sprintf("c%d", tab.next), tab.w.types[r.IntN(len(tab.w.types))]}
}

// names gives the columns that an INSERT names after the fixed ones, and values a row's values for them.
func (tab *table) names() string {
	var b strings.Builder
	for _, x := range tab.extras {
		b.WriteString("," + x.name)
	}
	return b.String()
}

func (tab *table) values(r *rand.Rand) string {
	var b strings.Builder
	for _, x := range tab.extras {
		b.WriteString("," + x.typ.value(r))
	}
	return b.String()
}

// sets gives assignments for some of the columns of random types.
func (tab *table) sets(r *rand.Rand) string {
	var b strings.Builder
	for _, x := range tab.extras {
		if r.IntN(3) == 0 {
			b.WriteString("," + x.name + "=" + x.typ.value(r))
		}
	}
	return b.String()
}
