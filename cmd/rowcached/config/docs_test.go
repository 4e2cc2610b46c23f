package config

import (
	"fmt"
	"os"
	"reflect"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rowcached/rowcached/mapping"
)

// blocks gives the YAML of a document of the project.
func blocks(t *testing.T, path string) []string {
	t.Helper()
	doc, err := os.ReadFile("../../../" + path)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, part := range strings.Split(string(doc), "```yaml\n")[1:] {
		text, _, _ := strings.Cut(part, "```")
		list = append(list, text)
	}
	if len(list) == 0 {
		t.Fatalf("%s has no YAML", path)
	}
	return list
}

// TestDocumentedDefaults compares docs/configuration.md with the defaults, key by key.
func TestDocumentedDefaults(t *testing.T) {
	text := blocks(t, "docs/configuration.md")[0]
	c := Default()
	if err := c.Read("docs/configuration.md", []byte(text)); err != nil {
		t.Fatal(err)
	}
	c.Tables = nil
	if got, want := fmt.Sprintf("%+v", *c), fmt.Sprintf("%+v", *Default()); got != want {
		t.Errorf("documented %s\ndefaults   %s", got, want)
	}
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(text), &tree); err != nil {
		t.Fatal(err)
	}
	for _, s := range Default().Settings() {
		if s.Path == "" {
			continue
		}
		var at any = tree
		for name := range strings.SplitSeq(s.Path, ".") {
			section, ok := at.(map[string]any)
			if _, has := section[name]; !ok || !has {
				t.Errorf("docs/configuration.md does not speak of %s", s.Path)
				break
			}
			at = section[name]
		}
	}
}

// TestDocumentedTables reads the documented table, which shows every key that is served.
func TestDocumentedTables(t *testing.T) {
	text := blocks(t, "docs/configuration.md")[1]
	c := Default()
	if err := c.Read("docs/configuration.md", []byte("source: {dsn: x/}\n"+text)); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
	for _, spec := range []any{mapping.Spec{}, mapping.ValueSpec{}} {
		for f := range reflect.TypeOf(spec).Fields() {
			if name := f.Tag.Get("yaml"); !strings.Contains(text, name+":") && name != "policy" {
				t.Errorf("docs/configuration.md does not speak of a table's %s", name)
			}
		}
	}
}

// TestReadme reads the README's configuration.
func TestReadme(t *testing.T) {
	for _, text := range blocks(t, "README.md") {
		c := Default()
		if err := c.Read("README.md", []byte(text)); err != nil {
			t.Error(err)
		}
		if err := c.Validate(); err != nil {
			t.Error(err)
		}
	}
}
