package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/spf13/cobra"
)

// TestDocumentedMetrics compares docs/operating.md's list with the metrics that are made.
func TestDocumentedMetrics(t *testing.T) {
	source, err := os.ReadFile("metrics.go")
	if err != nil {
		t.Fatal(err)
	}
	doc, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	find := func(pattern string, in []byte) []string {
		var names []string
		for _, m := range regexp.MustCompile(pattern).FindAllSubmatch(in, -1) {
			names = append(names, string(m[1]))
		}
		slices.Sort(names)
		return slices.Compact(names)
	}
	made := append(find(`desc\("([a-z_]+)"`, source), find(`Name: +"rowcached_([a-z_]+)"`, source)...)
	slices.Sort(made)
	told := find("`rowcached_([a-z_]+)", doc)
	if !slices.Equal(made, told) {
		t.Errorf("made %v\ntold %v", made, told)
	}
}

// TestDocumentedFlags: every verb and flag that a document names exists.
func TestDocumentedFlags(t *testing.T) {
	verbs := []*cobra.Command{runCommand(), statusCommand(), verifyCommand(), benchCommand()}
	for _, path := range documents(t) {
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?:rowcached[^\n]*? |`+"`"+`)--([a-z][a-z_.-]*)`).FindAllSubmatch(doc, -1) {
			name := string(m[1])
			if !slices.ContainsFunc(verbs, func(c *cobra.Command) bool { return c.Flags().Lookup(name) != nil }) {
				t.Errorf("%s names the flag --%s, which does not exist", path, name)
			}
		}
	}
}

// TestLinks: every link of a document to a file leads somewhere.
func TestLinks(t *testing.T) {
	for _, path := range documents(t) {
		doc, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`\]\(([^)#:]+)\)`).FindAllSubmatch(doc, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(path), string(m[1]))); err != nil {
				t.Errorf("%s: %v", path, err)
			}
		}
	}
}

// documents are the project's documents.
func documents(t *testing.T) []string {
	t.Helper()
	var list []string
	for _, pattern := range []string{"../../*.md", "../../docs/*.md"} {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		list = append(list, found...)
	}
	if len(list) < 7 {
		t.Fatalf("only %v were found", list)
	}
	return list
}
