package torture

import (
	"bufio"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/servers"
)

// columnType is a type with values that a column of it may be given.
type columnType struct {
	definition string
	values     []string // SQL expressions
}

func (c *columnType) value(r *rand.Rand) string {
	if r.IntN(8) == 0 {
		return "NULL"
	}
	return c.values[r.IntN(len(c.values))]
}

// special definitions may not simply be added to a table that is written to.
var special = regexp.MustCompile(`(?i)NOT NULL|AUTO_INCREMENT|GENERATED| AS *\(|UNIQUE|KEY|INVISIBLE|DEFAULT|ON UPDATE|WITHOUT SYSTEM|REF_SYSTEM`)

// large values exceed max_item_size, and rows with them are left out.
var large = regexp.MustCompile(`(?i)REPEAT\(.*\d{5}|\d{6} *\)`)

// readTypes takes the types and values that the two-path test of package binlog compares.
func readTypes(t *testing.T, kind servers.Kind) []columnType {
	t.Helper()
	f, err := os.Open("../../binlog/testdata/types.txt")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var all []columnType
	var types, values []string
	here, with := false, false
	flush := func() {
		for _, typ := range types {
			if here && !with && !special.MatchString(typ) && len(values) > 0 {
				all = append(all, columnType{typ, values})
			}
		}
		types, values = nil, nil
	}
	scan := bufio.NewScanner(f)
	for scan.Scan() {
		line := strings.TrimSpace(scan.Text())
		word, rest, _ := strings.Cut(line, " ")
		switch word {
		case "", "#":
		case "on":
			flush()
			here = slices.Contains(strings.Fields(rest), string(kind))
		case "with":
			flush()
			with = rest != ""
		case "type":
			if values != nil {
				flush()
			}
			types = append(types, rest)
		default:
			if len(line) < 2000 && !large.MatchString(line) {
				values = append(values, line)
			}
		}
	}
	if err := scan.Err(); err != nil {
		t.Fatal(err)
	}
	flush()
	if len(all) < 100 {
		t.Fatalf("only %d types were read", len(all))
	}
	return all
}
