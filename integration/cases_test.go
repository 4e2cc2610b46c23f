package integration

import (
	"flag"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/rowcached/rowcached/integration/scenario"
	"github.com/rowcached/rowcached/integration/servers"
)

var updateCases = flag.Bool("update", false, "write docs/replication-cases.md anew")

const casesDocument = "../docs/replication-cases.md"

// A kindOfCase is a kind of failure with the numbers of the public reports that stand for it.
type kindOfCase struct {
	name  string
	cases []int
}

// kindsOfCases are all cases that there are. Each must be tested or have a reason why it cannot be.
func kindsOfCases() []kindOfCase {
	return []kindOfCase{
		{"types and their text", []int{1, 2, 4, 5, 7, 8, 10, 11, 13, 14, 16, 17, 19, 20, 22, 23, 25, 26, 28, 29}},
		{"character sets", []int{31, 32, 34, 35, 37, 38}},
		{"changes of definitions", []int{40, 41, 43, 44, 46, 47, 49, 50, 52, 53, 55, 56, 58, 59, 61, 62, 64}},
		{"where copy meets log", []int{65, 67, 68, 70, 71, 73, 74, 76, 77}},
		{"GTIDs and failover", []int{79, 80, 82, 83, 85, 86, 88, 89}},
		{"what MariaDB alone does", []int{91, 92, 94, 95, 97, 98, 100, 101, 103, 104, 106, 107}},
		{"what MySQL 8 and 9 alone do", []int{109, 110, 112, 113, 115, 116, 118, 119, 121, 122}},
		{"partial row images", []int{124, 125, 127, 128}},
		{"big transactions and memory", []int{130, 131, 133, 134}},
		{"staying connected", []int{136, 137, 139, 140, 142, 143, 145}},
		{"stored position and crashes", []int{146, 148, 149, 151}},
		{"foreign keys that the log does not tell of", []int{152, 154}},
		{"keys", []int{155, 157, 158, 160, 161, 163, 164, 166}},
		{"time zones and zero dates", []int{167, 169, 170, 172, 173}},
		{"lag", []int{175, 176}},
		{"settings and privileges", []int{178, 179, 181, 182, 184, 185}},
		{"TLS and secrets", []int{187, 188, 190}},
		{"transactions", []int{191, 193, 194, 196}},
	}
}

// notRun gives the reason of what cannot be run with the servers at hand.
func notRun() map[int]string {
	return map[int]string{
		82:  "no test has its number yet",
		86:  "no test has its number yet",
		151: "no test has its number yet",
		106: "needs MariaDB 12.3; a row-carrying event that is not known makes every table be copied again",
	}
}

// A proof is one test of a case.
type proof struct {
	where   string // path from the repository's root, and the test's name
	servers []servers.Kind
	refused bool
}

// TestReplicationCases: every case is tested, and the table of them says how. After a change: go test ./integration -run
// TestReplicationCases -update
func TestReplicationCases(t *testing.T) {
	proofs := map[int][]proof{}
	scenarioProofs(t, proofs)
	goProofs(t, proofs)
	var b strings.Builder
	b.WriteString(`# Replication cases

Each case is a public report of a tool that followed a binary log and served wrong data or ended. The numbers are used in
the names and comments of tests; a test writes this table from them and fails when it is out of date. "Right" means that
every key was served as SELECT has it, or missed where the row is gone; "refused" that the daemon does not start, or closes
the table, and says why and what to do.

A scenario is a file of integration/testdata/scenarios that runs on each server it names; the word behind @ is when its
change comes: while the daemon lags, while it is away, while it copies.

`)
	known := map[int]bool{}
	reasons := notRun()
	total, right := 0, 0
	for _, kind := range kindsOfCases() {
		fmt.Fprintf(&b, "## %s%s\n\n| case | servers | tested by | result |\n|---|---|---|---|\n", strings.ToUpper(kind.name[:1]), kind.name[1:])
		for _, number := range kind.cases {
			known[number] = true
			total++
			list := proofs[number]
			result := "right"
			on := map[servers.Kind]bool{}
			var where []string
			refused := 0
			for _, p := range list {
				for _, k := range p.servers {
					on[k] = true
				}
				if p.refused {
					refused++
				}
				where = append(where, p.where)
			}
			switch {
			case len(list) == 0 && reasons[number] != "":
				result = "does not run: " + reasons[number]
			case len(list) == 0:
				t.Errorf("case %d is not tested, and no reason is given", number)
			case refused == len(list):
				result = "refused"
			case refused > 0:
				result = "right, or refused"
			}
			if len(list) > 0 {
				right++
			}
			names := "-"
			if len(on) > 0 {
				names = strings.Join(kindNames(slices.Collect(maps.Keys(on))), ", ")
			}
			slices.Sort(where)
			fmt.Fprintf(&b, "| %d | %s | %s | %s |\n", number, names, strings.Join(slices.Compact(where), ", "), result)
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%d cases, of which %d run.\n", total, right)
	for number := range proofs {
		if !known[number] {
			t.Errorf("case %d is named by %s, and there is none", number, proofs[number][0].where)
		}
	}
	if *updateCases {
		if err := os.WriteFile(casesDocument, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(casesDocument)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != b.String() {
		t.Errorf("%s is out of date; run go test ./integration -run TestReplicationCases -update", casesDocument)
	}
}

// kindNames orders kinds as Kinds does.
func kindNames(list []servers.Kind) []string {
	var names []string
	for _, k := range servers.Kinds() {
		if slices.Contains(list, k) {
			names = append(names, string(k))
		}
	}
	return names
}

func scenarioProofs(t *testing.T, proofs map[int][]proof) {
	t.Helper()
	all, err := scenario.Load("testdata/scenarios")
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if len(s.Cases) == 0 {
			t.Errorf("scenario %s names no case", s.Name)
		}
		name := s.Name
		for _, v := range s.Variants() {
			if _, mode, ok := strings.Cut(v.Name, "@"); ok {
				name += " @" + mode
			}
		}
		for _, number := range s.Cases {
			proofs[number] = append(proofs[number], proof{where: name, servers: s.Servers, refused: s.Refuses()})
		}
	}
}

var caseWords = regexp.MustCompile(`\bCases? (\d+(?:(?:, | and )\d+)*)`)

// goProofs finds the tests whose comment has "Case N" or "Cases N, M and O".
func goProofs(t *testing.T, proofs map[int][]proof) {
	t.Helper()
	for _, pattern := range []string{"*_test.go", "*/*_test.go", "../binlog/*_test.go", "../sync/*_test.go", "../mapping/*_test.go", "../cmd/rowcached/*_test.go"} {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			set := token.NewFileSet()
			file, err := parser.ParseFile(set, path, text, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			for _, decl := range file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || !strings.HasPrefix(f.Name.Name, "Test") || f.Doc == nil {
					continue
				}
				doc := strings.Join(strings.Fields(f.Doc.Text()), " ")
				body := string(text[set.Position(f.Pos()).Offset:set.Position(f.End()).Offset])
				p := proof{where: filepath.ToSlash(filepath.Join("integration", filepath.Dir(path))) + " " + f.Name.Name, servers: kindsIn(body)}
				for _, found := range caseWords.FindAllStringSubmatch(doc, -1) {
					for _, word := range regexp.MustCompile(`\d+`).FindAllString(found[1], -1) {
						number, err := strconv.Atoi(word)
						if err != nil {
							t.Fatal(err)
						}
						proofs[number] = append(proofs[number], p)
					}
				}
			}
		}
	}
}

// kindsIn tells from a test's text on which servers it runs.
func kindsIn(body string) []servers.Kind {
	for _, word := range []string{"forEachKind(", "eachServer(", "servers.Kinds()"} {
		if strings.Contains(body, word) {
			return servers.Kinds()
		}
	}
	var list []servers.Kind
	for word, kind := range map[string]servers.Kind{
		"servers.MySQL97": servers.MySQL97, "servers.MariaDB1011": servers.MariaDB1011, "servers.MariaDB118": servers.MariaDB118,
	} {
		if strings.Contains(body, word) {
			list = append(list, kind)
		}
	}
	return list
}
