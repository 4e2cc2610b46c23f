package mapping

import (
	"bytes"
	"errors"
	"strconv"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/binlog"
	"pgregory.net/rapid"
)

func TestKeyIsWrittenAndRead(t *testing.T) {
	row := map[string][]byte{"id": []byte("0000000042"), "Name": []byte("x:y%"), "shard": []byte("-7"), "bits": {0x0a, 0xbc}}
	for _, c := range []struct {
		template, want string
		texts          []string
	}{
		{"user:{id}", "user:42", []string{"42"}},
		{"user:{ID}:v1", "user:42:v1", []string{"42"}},
		{"", "users:42", []string{"42"}},
		{"u/{pk}", "u/42", []string{"42"}},
		{"{id}", "42", []string{"42"}},
		{"{name}{{{id}", "x:y%25{42", []string{"x:y%", "42"}},
		{"{shard}:{name}", "-7:x:y%", []string{"-7", "x:y%"}},
		{"{name}:{shard}", "x%3Ay%25:-7", []string{"x:y%", "-7"}},
		{"{shard}-{id}", "%2D7-42", []string{"-7", "42"}},
		{"n{name}::{id}::", "nx%3Ay%25::42::", []string{"x:y%", "42"}},
		{"b{bits}.{id}", "b2748.42", []string{"2748", "42"}},
	} {
		table := users()
		table.Columns[6].Nullable = false
		m := compiled(t, Spec{Key: c.template}, table)
		key, err := m.AppendKey([]byte("+"), query(t, table, row))
		if err != nil || string(key) != "+"+c.want {
			t.Errorf("%q: key %q, %v; want %q", c.template, key, err, c.want)
			continue
		}
		vals, ok := m.ParseKey(key[1:])
		if !ok || len(vals) != len(c.texts) {
			t.Errorf("%q: %q is parsed as %q, %v", c.template, key[1:], vals, ok)
			continue
		}
		for i := range vals {
			if string(vals[i]) != c.texts[i] {
				t.Errorf("%q: column %d is %q, want %q", c.template, i, vals[i], c.texts[i])
			}
		}
	}
}

// Case 163: ('x:y','z') and ('x','y:z') are two entries.
func TestCompositeKeysDoNotCollide(t *testing.T) {
	table := pair()
	m := compiled(t, Spec{}, table)
	a, _ := m.AppendKey(nil, query(t, table, map[string][]byte{"a": []byte("x:y"), "b": []byte("z")}))
	b, _ := m.AppendKey(nil, query(t, table, map[string][]byte{"a": []byte("x"), "b": []byte("y:z")}))
	if string(a) != "t:x%3Ay:z" || string(b) != "t:x:y:z" {
		t.Fatalf("keys %q and %q", a, b)
	}
}

// pair is a table whose primary key is two text columns.
func pair() *binlog.Table {
	return &binlog.Table{
		TableName: binlog.TableName{Schema: "db", Name: "t"},
		Columns: []binlog.Column{
			{Name: "a", Kind: binlog.KindText, Type: "varchar(9)"},
			{Name: "b", Kind: binlog.KindText, Type: "varchar(9)"},
		},
		Keys: []binlog.Key{{Name: "PRIMARY", Columns: []int{0, 1}}},
	}
}

func TestForeignKeysAreNotParsed(t *testing.T) {
	m := compiled(t, Spec{Key: "u:{name}:{shard}"}, users())
	for _, key := range []string{
		"", "u", "u:", "u:a", "u:a:", "u:a:x", "u:a:07", "u:a:-0", "u:a:+1", "u:a:32768", "u:a:-32769", "u:a:1:2", "u:a:1 ",
		"u:%:1", "u:%3:1", "u:%3a:1", "u:%41:1", "v:a:1", "u:a:99999999999999999999", "u:a:184467440737095516160",
	} {
		if vals, ok := m.ParseKey([]byte(key)); ok {
			t.Errorf("%q is parsed as %q", key, vals)
		}
	}
	for _, key := range []string{"u::0", "u:a:-32768", "u:a:32767", "u:%3A%25:1", "u:a b:1"} {
		if _, ok := m.ParseKey([]byte(key)); !ok {
			t.Errorf("%q is not parsed", key)
		}
	}
	unsigned := compiled(t, Spec{Key: "{id}"}, users())
	for key, want := range map[string]bool{"4294967295": true, "4294967296": false, "-1": false, "0": true, "00": false} {
		if _, ok := unsigned.ParseKey([]byte(key)); ok != want {
			t.Errorf("unsigned %s: parsed %v", key, ok)
		}
	}
}

// Case 164: what memcached cannot carry is named, never cut.
func TestUnfitKeysAreClassified(t *testing.T) {
	table := users()
	table.Keys = append(table.Keys, binlog.Key{Name: "n", Columns: []int{1}})
	for _, c := range []struct {
		template, name string
		want           error
	}{
		{"u:{name}", "a b", ErrKeyBytes},
		{"u:{name}", "a\tb", ErrKeyBytes},
		{"u:{name}", "a\r\nset z 0 0 1", ErrKeyBytes},
		{"u:{name}", "a\x7f", ErrKeyBytes},
		{"u:{name}", "", nil},
		{"{name}", "", ErrKeyEmpty},
		{"u:{name}", strings.Repeat("k", 248), nil},
		{"u:{name}", strings.Repeat("k", 249), ErrKeyTooLong},
		{"u:{name}", "Zoë", nil},
	} {
		m := compiled(t, Spec{Key: c.template}, table)
		key, err := m.AppendKey(nil, query(t, table, map[string][]byte{"name": []byte(c.name)}))
		if !errors.Is(err, c.want) || err != nil && c.want == nil {
			t.Errorf("%q of %q: %v, want %v", c.template, c.name, err, c.want)
		}
		if want := strings.Replace(c.template, "{name}", c.name, 1); string(key) != want {
			t.Errorf("%q of %q: key %q, want %q", c.template, c.name, key, want)
		}
	}
	m := compiled(t, Spec{Key: "u:{name}"}, table)
	if key, err := m.AppendKey(nil, query(t, table, map[string][]byte{"id": []byte("1")})); !errors.Is(err, ErrAbsent) || len(key) != 0 {
		t.Errorf("an image without the key column: %q, %v", key, err)
	}
}

func TestBadTemplatesAreRefusedWithTheFix(t *testing.T) {
	for template, want := range map[string]string{
		"users":                           `use "users:{pk}"`,
		"u:{id}{name}":                    "put a literal between them, such as {id}:{name}",
		"u:{nmae}":                        "did you mean Name?",
		"u:{qqqqqqqq}":                    "the columns are id, Name",
		"u:{id}%{name}":                   "begin it with another",
		"u:{id}A{name}":                   "begin it with another",
		"u:{id":                           "write {{",
		"u:id}":                           "write }}",
		"u {id}":                          "a blank or a control byte",
		"@@u{id}":                         "begin the template with something else",
		"u:{id}:{id}":                     "stands in it twice",
		"u:{shard}":                       "use the columns of the primary key, {id} or the unique key by_name, {Name}:{shard}",
		"u:{id}:{region}":                 "may be NULL",
		"u:{doc}":                         "cannot be part of a unique key",
		strings.Repeat("u", 251) + "{id}": "does not fit",
	} {
		_, err := Compile(Spec{Key: template}, users())
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "shop.users") {
			t.Errorf("%q: %v; want it to say %q", template, err, want)
		}
	}
}

func TestRequestTextBecomesAKey(t *testing.T) {
	for _, c := range []struct {
		template, rest, want string
		ok                   bool
	}{
		{"user:{id}", "7", "user:7", true},
		{"user:{id}:v1", "7", "user:7:v1", true},
		{"user:{id}", "x", "", false},
		{"user:{id}", "", "", false},
		{"u:{name}:{shard}", "ann:3", "u:ann:3", true},
		{"u:{name}:{shard}", "ann", "", false},
	} {
		m := compiled(t, Spec{Key: c.template}, users())
		key, ok := m.KeyFromText([]byte("+"), []byte(c.rest))
		if string(key) != "+"+c.want || ok != c.ok {
			t.Errorf("%q with %q: %q, %v", c.template, c.rest, key, ok)
		}
	}
}

// drawnTable is a table of one to four key columns and a template over them.
func drawnTable(t *rapid.T) (*binlog.Table, string) {
	table := &binlog.Table{TableName: binlog.TableName{Schema: "s", Name: "t"}}
	literals := rapid.SampledFrom([]string{":", "::", "-", ".", "/x", "é", ":1"})
	template := rapid.SampledFrom([]string{"", "p", "p:", "%"}).Draw(t, "prefix")
	n := rapid.IntRange(1, 4).Draw(t, "columns")
	key := binlog.Key{Name: "PRIMARY"}
	for i := range n {
		c := binlog.Column{Name: "c" + strconv.Itoa(i)}
		if rapid.Bool().Draw(t, "integer") {
			c.Kind, c.Bytes = binlog.KindInt, rapid.SampledFrom([]int{1, 2, 3, 4, 8}).Draw(t, "bytes")
			c.Unsigned = rapid.Bool().Draw(t, "unsigned")
		} else {
			c.Kind = rapid.SampledFrom([]binlog.Kind{binlog.KindText, binlog.KindBinary}).Draw(t, "kind")
		}
		if i > 0 {
			template += literals.Draw(t, "literal")
		}
		template += "{" + c.Name + "}"
		table.Columns = append(table.Columns, c)
		key.Columns = append(key.Columns, i)
	}
	table.Keys = []binlog.Key{key}
	return table, template + rapid.SampledFrom([]string{"", ":", ":end"}).Draw(t, "suffix")
}

// drawnRow draws the texts of the table's columns. Few different bytes, so that values collide with literals.
func drawnRow(t *rapid.T, table *binlog.Table) [][]byte {
	texts := make([][]byte, len(table.Columns))
	for i, c := range table.Columns {
		if c.Kind != binlog.KindInt {
			texts[i] = []byte(rapid.StringOfN(rapid.SampledFrom([]rune("ab:%-./x1235ACD3é")), 0, 12, -1).Draw(t, "text"))
			continue
		}
		bits := c.Bytes * 8
		if c.Unsigned {
			texts[i] = strconv.AppendUint(nil, rapid.Uint64Range(0, 1<<bits-1).Draw(t, "unsigned"), 10)
		} else {
			texts[i] = strconv.AppendInt(nil, rapid.Int64Range(-1<<(bits-1), 1<<(bits-1)-1).Draw(t, "signed"), 10)
		}
	}
	return texts
}

func keyOf(t *rapid.T, m *Mapping, texts [][]byte) []byte {
	r := new(binlog.Row)
	cols, vals := rawBytes(texts)
	r.SetQuery(m.Table(), cols, vals)
	key, err := m.AppendKey(nil, r)
	if err != nil && !errors.Is(err, ErrKeyBytes) && !errors.Is(err, ErrKeyEmpty) && !errors.Is(err, ErrKeyTooLong) {
		t.Fatal(err)
	}
	return key
}

// ParseKey inverts AppendKey, so distinct rows have distinct keys; the test looks at both all the same.
func TestPropertyKeys(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		table, template := drawnTable(t)
		m, err := Compile(Spec{Key: template}, table)
		if err != nil {
			t.Fatal(err)
		}
		a, b := drawnRow(t, table), drawnRow(t, table)
		ka, kb := keyOf(t, m, a), keyOf(t, m, b)
		same := true
		for i := range a {
			same = same && bytes.Equal(a[i], b[i])
		}
		if same != bytes.Equal(ka, kb) {
			t.Fatalf("%q: rows %q and %q have keys %q and %q", template, a, b, ka, kb)
		}
		vals, ok := m.ParseKey(ka)
		if !ok {
			t.Fatalf("%q: key %q of %q is not parsed", template, ka, a)
		}
		for i := range a {
			if !bytes.Equal(vals[i], a[i]) {
				t.Fatalf("%q: key %q of %q is parsed as %q", template, ka, a, vals)
			}
		}
	})
}

// Whatever ParseKey accepts is what AppendKey writes for the texts it gave.
func FuzzParseKey(f *testing.F) {
	for _, s := range []string{"t:x%3Ay:z", "t:x:y:z", "t::", "t:%25:1", "t:%2:1"} {
		f.Add([]byte(s))
	}
	table := pair()
	m, err := Compile(Spec{}, table)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, key []byte) {
		vals, ok := m.ParseKey(key)
		if !ok {
			return
		}
		r := new(binlog.Row)
		cols, raw := rawBytes(vals)
		r.SetQuery(table, cols, raw)
		back, err := m.AppendKey(nil, r)
		if !bytes.Equal(back, key) {
			t.Fatalf("%q is parsed as %q, whose key is %q, %v", key, vals, back, err)
		}
	})
}
