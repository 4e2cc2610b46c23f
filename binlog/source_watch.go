package binlog

import "strings"

// watch is what is wanted of one table name.
type watch struct {
	name  TableName
	table *Table // nil: rows are not wanted
	named bool   // WatchName
	gone  bool   // a statement since Watch may have dropped it
}

// watchSet holds the watched names. Its generation changes with every change, so that what was resolved against an older
// one is resolved again.
type watchSet struct {
	names map[string]*watch
	fold  bool // lower_case_table_names is not 0: case does not matter
	gen   uint64
	key   []byte
}

func (w *watchSet) init() {
	w.names = make(map[string]*watch)
	w.gen = 1
}

// setFold says whether the server ignores the case of table names.
func (w *watchSet) setFold(fold bool) {
	if fold == w.fold {
		return
	}
	w.fold = fold
	old := w.names
	w.names = make(map[string]*watch, len(old))
	for _, x := range old {
		w.names[string(w.keyOf(x.name.Schema, x.name.Name))] = x
	}
	w.gen++
}

// keyOf gives the map's key, valid until the next call.
func (w *watchSet) keyOf(schema, name string) []byte {
	if w.fold {
		schema, name = strings.ToLower(schema), strings.ToLower(name)
	}
	w.key = append(w.key[:0], schema...)
	w.key = append(w.key, 0)
	w.key = append(w.key, name...)
	return w.key
}

// find gives what is wanted of a name, nil when nothing is.
func (w *watchSet) find(schema, name string) *watch { return w.names[string(w.keyOf(schema, name))] }

// findBytes is find without allocation when case matters.
func (w *watchSet) findBytes(schema, name []byte) *watch {
	if w.fold {
		return w.find(string(schema), string(name))
	}
	w.key = append(w.key[:0], schema...)
	w.key = append(w.key, 0)
	w.key = append(w.key, name...)
	return w.names[string(w.key)]
}

func (w *watchSet) get(n TableName) *watch {
	key := w.keyOf(n.Schema, n.Name)
	x := w.names[string(key)]
	if x == nil {
		x = &watch{name: n}
		w.names[string(key)] = x
	}
	return x
}

func (w *watchSet) setTable(t *Table) {
	x := w.get(t.TableName)
	x.table, x.gone = t, false
	w.gen++
}

func (w *watchSet) clearTable(n TableName) {
	if x := w.find(n.Schema, n.Name); x != nil {
		x.table = nil
		w.tidy(x)
	}
}

func (w *watchSet) setName(n TableName) {
	w.get(n).named = true
	w.gen++
}

func (w *watchSet) clearName(n TableName) {
	if x := w.find(n.Schema, n.Name); x != nil {
		x.named = false
		w.tidy(x)
	}
}

func (w *watchSet) tidy(x *watch) {
	if x.table == nil && !x.named {
		delete(w.names, string(w.keyOf(x.name.Schema, x.name.Name)))
	}
	w.gen++
}

// same reports whether two schema names are one.
func (w *watchSet) same(a, b string) bool {
	if w.fold {
		return strings.EqualFold(a, b)
	}
	return a == b
}
