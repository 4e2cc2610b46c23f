package config

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"sort"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/rowcached/rowcached/mapping"
)

// ReadFile lays a file over c. Every error names the file, the line and the column; an unknown key is one, with the
// nearest known name.
func (c *Config) ReadFile(path string) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("read the configuration: %w", err)
	}
	return c.Read(path, data)
}

// Read is ReadFile for bytes; name is used in messages.
func (c *Config) Read(name string, data []byte) error {
	file, err := parser.ParseBytes(data, 0)
	if err != nil {
		return located(name, err)
	}
	var errs []error
	for _, doc := range file.Docs {
		if doc.Body != nil {
			errs = append(errs, checkKeys(name, doc.Body, reflect.TypeOf(*c), "")...)
		}
	}
	if len(file.Docs) > 1 {
		errs = append(errs, fmt.Errorf("%s: more than one document; the configuration is a single one", name))
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		if err := yaml.NodeToValue(doc.Body, c); err != nil {
			return located(name, err)
		}
	}
	return nil
}

// located puts the file's name before what the YAML library says with its line and column.
func located(name string, err error) error {
	var y yaml.Error
	if errors.As(err, &y) && y.GetToken() != nil && y.GetToken().Position != nil {
		p := y.GetToken().Position
		return fmt.Errorf("%s:%d:%d: %s", name, p.Line, p.Column, y.GetMessage())
	}
	return fmt.Errorf("%s: %w", name, err)
}

// checkKeys compares the keys of a mapping with the fields of the type that it becomes.
func checkKeys(name string, node ast.Node, t reflect.Type, path string) []error {
	switch t.Kind() {
	case reflect.Slice:
		seq, ok := node.(*ast.SequenceNode)
		if !ok || t.Elem().Kind() != reflect.Struct {
			return nil
		}
		var errs []error
		for _, v := range seq.Values {
			errs = append(errs, checkKeys(name, v, t.Elem(), path)...)
		}
		return errs
	case reflect.Struct:
	default:
		return nil
	}
	var values []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		values = n.Values
	case *ast.MappingValueNode:
		values = []*ast.MappingValueNode{n}
	default:
		return nil
	}
	fields := map[string]reflect.Type{}
	for i := range t.NumField() {
		if tag := t.Field(i).Tag.Get("yaml"); tag != "" && tag != "-" {
			fields[tag] = t.Field(i).Type
		}
	}
	var errs []error
	for _, v := range values {
		key := strings.Trim(v.Key.String(), `"'`)
		ft, ok := fields[key]
		if !ok {
			p := v.Key.GetToken().Position
			errs = append(errs, fmt.Errorf("%s:%d:%d: unknown key %q%s", name, p.Line, p.Column, path+key, suggestion(key, path, fields)))
			continue
		}
		errs = append(errs, checkKeys(name, v.Value, ft, path+key+".")...)
	}
	return errs
}

// suggestion names the key that was probably meant, or all that there are.
func suggestion(key, path string, fields map[string]reflect.Type) string {
	var names []string
	for f := range fields {
		names = append(names, f)
	}
	sort.Strings(names)
	if best := mapping.Nearest(key, names); best != "" {
		return fmt.Sprintf("; did you mean %q?", path+best)
	}
	return "; known here: " + strings.Join(names, ", ")
}
