package mapping

import (
	"os"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/binlog"
)

// TestDocumentedKeys executes the examples of docs/mapping.md.
func TestDocumentedKeys(t *testing.T) {
	doc, err := os.ReadFile("../docs/mapping.md")
	if err != nil {
		t.Fatal(err)
	}
	_, examples, _ := strings.Cut(string(doc), "```\n")
	examples, _, _ = strings.Cut(examples, "```")
	table := &binlog.Table{
		TableName: binlog.TableName{Schema: "db", Name: "t"},
		Columns: []binlog.Column{
			{Name: "a", Kind: binlog.KindText},
			{Name: "b", Kind: binlog.KindText},
			{Name: "id", Kind: binlog.KindInt, Bytes: 4},
			{Name: "zf", Kind: binlog.KindInt, Bytes: 4, Unsigned: true, Zerofill: true, Width: 5},
		},
		Keys: []binlog.Key{{Name: "PRIMARY", Columns: []int{0, 1}}, {Name: "i", Columns: []int{2}}, {Name: "z", Columns: []int{3}}},
	}
	n := 0
	for line := range strings.Lines(examples) {
		words := strings.Fields(line)
		if len(words) < 3 {
			t.Fatalf("not an example: %q", line)
		}
		n++
		texts := map[string][]byte{}
		for _, w := range words[1 : len(words)-1] {
			name, text, _ := strings.Cut(w, "=")
			texts[name] = []byte(text)
		}
		m := compiled(t, Spec{Key: words[0]}, table)
		key, err := m.AppendKey(nil, query(t, table, texts))
		if want := words[len(words)-1]; err != nil || string(key) != want {
			t.Errorf("%s: %q, %v", strings.TrimSpace(line), key, err)
		}
		if _, ok := m.ParseKey(key); !ok {
			t.Errorf("%s: the key is not read back", strings.TrimSpace(line))
		}
	}
	if n < 5 {
		t.Errorf("only %d examples were found", n)
	}
}
