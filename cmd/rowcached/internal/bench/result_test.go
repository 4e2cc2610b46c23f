package bench

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update", false, "write the golden files anew")

// sample is a report of two servers, as a run would make it.
func sample() *Report {
	r := NewReport("v1", time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))
	for _, workload := range []string{Get, Mixed} {
		s := DefaultSpec()
		s.Workload, s.Rounds, s.Pin = workload, 3, []int{1}
		res := Result{Spec: s, Engine: Epoll}
		for i, address := range []string{"127.0.0.1:11211", "unix:/run/a<b>&.sock"} {
			t := Target{Address: address, gets: &Histogram{}, sets: &Histogram{}, firstFault: "an example"}
			for n := range 3 {
				h := &Histogram{}
				for k := range 1000 {
					h.Record(time.Duration(k*(n+1)*(i+1)) * time.Microsecond)
				}
				t.gets.Merge(h)
				t.Rounds = append(t.Rounds, Round{Seconds: 1, Requests: 1000, Operations: 1000, OperationsPerSecond: float64(1000 * (n + 1) / (i + 1)),
					Latency: latencyOf(h), Hits: 1000, Errors: uint64(i)})
			}
			res.Targets = append(res.Targets, t)
		}
		res.sum()
		r.Results = append(r.Results, res)
	}
	return r
}

// TestJSON: the names and kinds of the report's fields, which other programs read, are those of the golden file.
func TestJSON(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	var tree any
	if err := json.Unmarshal(out.Bytes(), &tree); err != nil {
		t.Fatal(err)
	}
	paths := map[string]bool{}
	var walk func(path string, v any)
	walk = func(path string, v any) {
		switch v := v.(type) {
		case map[string]any:
			for k, e := range v {
				walk(path+"."+k, e)
			}
		case []any:
			for _, e := range v {
				walk(path+"[]", e)
			}
		case string:
			paths[path+" string"] = true
		case float64:
			paths[path+" number"] = true
		case bool:
			paths[path+" bool"] = true
		default:
			t.Errorf("%s is %v", path, v)
		}
	}
	walk("", tree)
	var list []string
	for p := range paths {
		list = append(list, p)
	}
	slices.Sort(list)
	got := strings.Join(list, "\n") + "\n"
	const golden = "testdata/json.txt"
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if got != string(want) {
		t.Errorf("the report's fields changed (write them anew with -update, and count up Format if a reader breaks):\n%s", got)
	}
}

// TestRatios: the median over the rounds, the first server's figure through the other's.
func TestRatios(t *testing.T) {
	r := sample().Results[0].Ratios
	if len(r) != 1 || r[0].Throughput != 2 || r[0].P50 < 0.49 || r[0].P50 > 0.51 || r[0].Against != "unix:/run/a<b>&.sock" {
		t.Errorf("%+v", r)
	}
	if n, first := sample().Errors(); n != 6 || first != "an example" {
		t.Errorf("%d errors, %q", n, first)
	}
}

// TestSVG: the plot is well-formed, with a line and a name for each server in each panel, inside the picture.
func TestSVG(t *testing.T) {
	var out bytes.Buffer
	if err := sample().WriteSVG(&out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	dec := xml.NewDecoder(strings.NewReader(text))
	dec.Strict = true
	var lines, names int
	for {
		tok, err := dec.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := tok.(type) {
		case xml.StartElement:
			for _, a := range e.Attr {
				if strings.Contains(a.Value, "NaN") || strings.Contains(a.Value, "Inf") {
					t.Errorf("%s has %s=%q", e.Name.Local, a.Name.Local, a.Value)
				}
				if e.Name.Local == "path" && a.Name.Local == "d" && strings.Count(a.Value, "L") > 100 {
					lines++
				}
			}
		case xml.CharData:
			if string(e) == "unix:/run/a<b>&.sock" {
				names++
			}
		}
	}
	if lines != 4 || names != 2 {
		t.Errorf("%d lines with points, %d titles of the second server", lines, names)
	}
	for _, word := range []string{"p99", "99%", "latency (logarithmic)", "prefers-color-scheme: dark", "get, 100 B, 50 connections"} {
		if !strings.Contains(text, word) {
			t.Errorf("%q is not in the plot", word)
		}
	}
}

// TestEmptySVG: a round without a reply still gives a picture.
func TestEmptySVG(t *testing.T) {
	r := NewReport("v1", time.Now())
	res := Result{Spec: DefaultSpec(), Targets: []Target{{Address: "a", Rounds: []Round{{}}, gets: &Histogram{}, sets: &Histogram{}}}}
	res.sum()
	r.Results = append(r.Results, res)
	var out bytes.Buffer
	if err := r.WriteSVG(&out); err != nil || strings.Contains(out.String(), "NaN") {
		t.Errorf("%v\n%s", err, out.String())
	}
}

// TestTable prints the figures that people look for.
func TestTable(t *testing.T) {
	var out bytes.Buffer
	res := sample().Results[0]
	res.Targets[0].Median.LoadBusy = 0.99
	if err := res.WriteTable(&out); err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"get, 100 B, 50 connections, text; medians of 3 rounds", "127.0.0.1:11211", "p99.9 us", "ops/s 2.00", "may be the limit"} {
		if !strings.Contains(out.String(), word) {
			t.Errorf("%q is not in\n%s", word, out.String())
		}
	}
}
