package binlog

import (
	"fmt"
	"math/rand/v2"
	"testing"

	gomysql "github.com/go-mysql-org/go-mysql/mysql"
	"github.com/google/uuid"
)

const (
	uuidA = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
	uuidB = "4e11fa47-71ca-11e1-9e33-c80aa9429562"
)

func TestGTIDSetText(t *testing.T) {
	for in, want := range map[string]string{
		uuidA + ":1":                               uuidA + ":1",
		uuidA + ":1-5":                             uuidA + ":1-5",
		uuidA + ":1-5:6-7":                         uuidA + ":1-7",
		uuidA + ":7:1-5":                           uuidA + ":1-5:7",
		uuidB + ":3,\n" + uuidA + ":1-5:\n 7-9":    uuidA + ":1-5:7-9," + uuidB + ":3",
		uuidA + ":1-5," + uuidA + ":6":             uuidA + ":1-6",
		uuidA + ":1-5:app1:1-2:App2:4":             uuidA + ":1-5:app1:1-2:app2:4",
		uuidA + ":app1:1-2":                        uuidA + ":app1:1-2",
		"3E11FA47-71CA-11E1-9E33-C80AA9429562:1,,": uuidA + ":1",
		uuidA + ":9223372036854775806":             uuidA + ":9223372036854775806",
	} {
		g, err := parseGTIDs(in)
		if err != nil {
			t.Errorf("%q: %v", in, err)
			continue
		}
		if got := g.String(); got != want {
			t.Errorf("%q: got %s, want %s", in, got, want)
		}
	}
	for _, bad := range []string{uuidA + ":", uuidA + ":0", uuidA + ":5-3", "x:1", uuidA + ":1-", uuidA + ":-1", uuidA + ":a-b", "1-2", "1-2-x", "1-2-3-4", uuidA} {
		if g, err := parseGTIDs(bad); err == nil {
			t.Errorf("%q was read as %s", bad, g)
		}
	}
}

// TestGTIDSetModel adds numbers in any order and compares with the dump library's set: text, containment and the form that
// the dump command takes.
func TestGTIDSetModel(t *testing.T) {
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 1))
	for round := range 200 {
		ours := newGTIDSet()
		theirs := gomysql.NewMysqlGTIDSet()
		tags := round%2 == 1
		for range rnd.IntN(60) {
			var u uuid.UUID
			u[0] = byte(rnd.IntN(3))
			tag := ""
			if tags && rnd.IntN(2) == 0 {
				tag = fmt.Sprintf("t%d", rnd.IntN(2))
			}
			n := uint64(1 + rnd.IntN(40))
			source := gtidSource{uuid: u, tag: tag}
			before := ours.has(source, n)
			one := gomysql.NewMysqlGTIDSet()
			one.AddGTIDWithTag(u, gomysql.NewTag(tag), int64(n))
			if theirs.Contain(&one) != before {
				t.Fatalf("seed %d: has %v:%d is %v", seed, source, n, before)
			}
			ours.add(source, n)
			theirs.AddGTIDWithTag(u, gomysql.NewTag(tag), int64(n))
			if !ours.has(source, n) {
				t.Fatalf("seed %d: %v:%d was added and is not there", seed, source, n)
			}
		}
		if got, want := ours.String(), theirs.String(); got != want {
			t.Fatalf("seed %d: got %s, want %s", seed, got, want)
		}
		back, err := gomysql.DecodeMysqlGTIDSet(ours.appendBinary(nil))
		if err != nil || back.String() != theirs.String() {
			t.Fatalf("seed %d: the binary form of %s is read as %v, %v", seed, ours, back, err)
		}
		again, err := parseGTIDSet(ours.String())
		if err != nil || !again.contains(ours) || !ours.contains(again) {
			t.Fatalf("seed %d: %s does not contain itself", seed, ours)
		}
		extra := ours.clone()
		extra.add(gtidSource{}, 1000)
		if !extra.contains(ours) || ours.contains(extra) {
			t.Fatalf("seed %d: one more is not more", seed)
		}
	}
}

func TestGTIDSetAddAllocates(t *testing.T) {
	s := newGTIDSet()
	source := gtidSource{uuid: [16]byte{1}}
	n := uint64(0)
	if allocs := testing.AllocsPerRun(1000, func() { n++; s.add(source, n) }); allocs != 0 {
		t.Errorf("the next number costs %v allocations", allocs)
	}
	if got, want := s.String(), fmt.Sprintf("01000000-0000-0000-0000-000000000000:1-%d", n); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestGTIDPosition(t *testing.T) {
	p, err := parseGTIDs("5-1-7, 0-1-100,\n5-2-9")
	if err != nil {
		t.Fatal(err)
	}
	if got, want := p.String(), "0-1-100,5-2-9"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	p.maria.add(mariaGTID{domain: 3, server: 1, seq: 4})
	p.maria.add(mariaGTID{domain: 0, server: 2, seq: 101})
	if got, want := p.String(), "0-2-101,3-1-4,5-2-9"; got != want || p.maria.disorder {
		t.Errorf("got %s, want %s; disorder %v", got, want, p.maria.disorder)
	}
	older, _ := parseGTIDs("0-1-100,5-2-9")
	if !p.contains(older) || older.contains(p) {
		t.Error("containment by domain")
	}
	p.maria.add(mariaGTID{domain: 0, server: 2, seq: 50})
	if !p.maria.disorder {
		t.Error("a sequence that went backwards was not noticed")
	}
	set, _ := parseGTIDs(uuidA + ":1")
	if set.contains(p) || p.contains(set) {
		t.Error("the flavors contain each other")
	}
}

// FuzzGTIDs: whatever is read prints to something that reads back the same.
func FuzzGTIDs(f *testing.F) {
	f.Add(uuidA + ":1-5:7:tag:1-2," + uuidB + ":9")
	f.Add("0-1-100,5-2-9")
	f.Fuzz(func(t *testing.T, text string) {
		g, err := parseGTIDs(text)
		if err != nil || g == nil {
			return
		}
		again, err := parseGTIDs(g.String())
		if err != nil {
			t.Fatalf("%q prints as %q: %v", text, g.String(), err)
		}
		if !g.contains(again) || !again.contains(g) || again.String() != g.String() {
			t.Fatalf("%q prints as %q and reads back as %q", text, g, again)
		}
	})
}
