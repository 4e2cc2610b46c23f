package mapping

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rowcached/rowcached/binlog"
)

// Compile joins what the operator wrote with what the server has. Every error names the table, the setting
// and what to write instead.
func Compile(s Spec, t *binlog.Table) (*Mapping, error) {
	m, err := compile(s, t)
	if err != nil {
		return nil, fmt.Errorf("table %s: %w", t.TableName, err)
	}
	return m, nil
}

func compile(s Spec, t *binlog.Table) (*Mapping, error) {
	m := &Mapping{spec: s, table: t, name: s.Name}
	if m.name == "" {
		m.name = t.Name
		if s.Table != "" {
			m.name = s.ContainerName() // as the operator wrote it, where the server ignores the case of names
		}
	}
	if err := checkName(m.name); err != nil {
		return nil, err
	}
	m.spec.Name = m.name
	if s.Key == "" {
		if len(t.Keys) == 0 {
			return nil, errNoKey(t)
		}
		m.spec.Key = DefaultKey(m.name, t)
		if t.PrimaryKey() == nil {
			return nil, fmt.Errorf("key: there is no primary key to make a default of; write key: %q over the unique key %s",
				m.spec.Key, t.Keys[0].Name)
		}
	}
	var err error
	if m.key, err = parseTemplate(m.spec.Key, t); err != nil {
		return nil, fmt.Errorf("key %q: %w", m.spec.Key, err)
	}
	if err := checkUnique(&m.key, t); err != nil {
		return nil, fmt.Errorf("key %q: %w", m.spec.Key, err)
	}
	if m.value, err = compileValue(&m.spec.Value, t); err != nil {
		return nil, err
	}
	if m.flags, err = compileFlags(s.Flags, t); err != nil {
		return nil, err
	}
	if m.cas, err = compileCAS(s.CAS, t); err != nil {
		return nil, err
	}
	if m.expire, err = compileExpire(s.Expire, t); err != nil {
		return nil, err
	}
	if m.spec.Load == "" {
		m.spec.Load = LoadAll
	}
	if err := oneOf("load", m.spec.Load, LoadAll, LoadOnDemand); err != nil {
		return nil, err
	}
	if err := m.spec.Policy.complete(); err != nil {
		return nil, err
	}
	m.collect()
	return m, nil
}

// DefaultKey gives the template of a container's keys over the primary key, or over the first unique key when there is no
// primary key: "NAME:{a}:{b}". The table has at least one Key.
func DefaultKey(name string, t *binlog.Table) string {
	return literal(name) + ":" + pkTemplate(t, &t.Keys[0])
}

// complete fills the defaults in and checks the words.
func (p *PolicySpec) complete() error {
	for _, f := range []struct {
		name  string
		value *string
		def   string
	}{
		{"policy.get", &p.Get, PolicyCaching},
		{"policy.set", &p.Set, PolicyInnoDBOnly},
		{"policy.delete", &p.Delete, PolicyInnoDBOnly},
		{"policy.flush", &p.Flush, PolicyCacheOnly},
	} {
		if *f.value == "" {
			*f.value = f.def
		}
		if err := oneOf(f.name, *f.value, PolicyInnoDBOnly, PolicyCacheOnly, PolicyCaching, PolicyDisabled); err != nil {
			return err
		}
	}
	return nil
}

// checkName refuses container names that a request key "@@name.key" could not carry.
func checkName(name string) error {
	for i := 0; i < len(name); i++ {
		if name[i] == '.' || name[i] <= ' ' || name[i] == 0x7f {
			return fmt.Errorf("name %q: a dot, a blank or a control byte cannot be part of @@name.key; add a `name:` without one", name)
		}
	}
	if len(name) > 50 {
		return fmt.Errorf("name %q: %d bytes leave too few of a key's %d for the key itself; add a `name:` of 50 bytes or fewer", name, len(name), MaxKey)
	}
	return nil
}

// checkUnique sees to it that one key is one row: the template holds all columns of a unique key.
func checkUnique(k *template, t *binlog.Table) error {
	if len(t.Keys) == 0 {
		return errNoKey(t)
	}
	for _, o := range k.ordinals {
		if c := &t.Columns[o]; c.Nullable {
			return fmt.Errorf("column %s may be NULL; use %s, or ALTER TABLE %s MODIFY %s ... NOT NULL",
				c.Name, uniqueKeys(t), quoted(t), c.Name)
		}
	}
	for i := range t.Keys {
		if containsAll(k.ordinals, t.Keys[i].Columns) {
			return nil
		}
	}
	names := make([]string, len(k.ordinals))
	for i, o := range k.ordinals {
		names[i] = t.Columns[o].Name
	}
	return fmt.Errorf("more than one row may have the same %s; use the columns of %s, or ALTER TABLE %s ADD UNIQUE (%s)",
		strings.Join(names, ", "), uniqueKeys(t), quoted(t), strings.Join(names, ", "))
}

func errNoKey(t *binlog.Table) error {
	return fmt.Errorf("there is no primary key and no unique key whose columns are all NOT NULL, so a key could stand for several rows; ALTER TABLE %s ADD PRIMARY KEY (...)", quoted(t))
}

// uniqueKeys lists what a key template may be made of, as templates.
func uniqueKeys(t *binlog.Table) string {
	var b strings.Builder
	for i := range t.Keys {
		if i > 0 {
			b.WriteString(" or ")
		}
		if t.Keys[i].Name == "PRIMARY" {
			b.WriteString("the primary key, ")
		} else {
			b.WriteString("the unique key " + t.Keys[i].Name + ", ")
		}
		b.WriteString(pkTemplate(t, &t.Keys[i]))
	}
	return b.String()
}

// pkTemplate writes the columns of a key as a template: "{a}:{b}".
func pkTemplate(t *binlog.Table, k *binlog.Key) string {
	names := make([]string, len(k.Columns))
	for i, o := range k.Columns {
		names[i] = "{" + t.Columns[o].Name + "}"
	}
	return strings.Join(names, ":")
}

func containsAll(set, of []int) bool {
	for _, o := range of {
		if !slices.Contains(set, o) {
			return false
		}
	}
	return true
}

// column finds a column that a setting names.
func column(t *binlog.Table, name string) (int, error) {
	if o := t.Column(name); o >= 0 {
		return o, nil
	}
	names := make([]string, len(t.Columns))
	for i := range t.Columns {
		names[i] = t.Columns[i].Name
	}
	if n := Nearest(name, names); n != "" {
		return -1, fmt.Errorf("no column %q; did you mean %s?", name, n)
	}
	return -1, fmt.Errorf("no column %q; the columns are %s", name, strings.Join(names, ", "))
}

func oneOf(setting, got string, words ...string) error {
	if slices.Contains(words, got) {
		return nil
	}
	if n := Nearest(got, words); n != "" {
		return fmt.Errorf("%s: %q is not one of %s; did you mean %s?", setting, got, strings.Join(words, ", "), n)
	}
	return fmt.Errorf("%s: %q is not one of %s", setting, got, strings.Join(words, ", "))
}

// quoted writes the table's name as SQL does, for the statements in messages.
func quoted(t *binlog.Table) string {
	q := func(s string) string { return "`" + strings.ReplaceAll(s, "`", "``") + "`" }
	return q(t.Schema) + "." + q(t.TableName.Name)
}
