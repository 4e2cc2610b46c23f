package binlog

import "testing"

func TestPositionCovers(t *testing.T) {
	at := func(file string, pos uint64, gtids string) Position {
		return Position{Server: "s", File: file, Pos: pos, GTIDs: gtids}
	}
	other := func(p Position) Position { p.Server = "other"; return p }
	for _, c := range []struct {
		name string
		p, q Position
		want bool
	}{
		{"the same", at("b.000001", 100, ""), at("b.000001", 100, ""), true},
		{"earlier in the file", at("b.000001", 99, ""), at("b.000001", 100, ""), false},
		{"a later file", at("b.000002", 4, ""), at("b.000001", 100, ""), true},
		{"seven digits", at("b.1000000", 4, ""), at("b.999999", 100, ""), true},
		{"seven digits the other way", at("b.999999", 100, ""), at("b.1000000", 4, ""), false},
		{"another base name", at("c.000002", 4, ""), at("b.000001", 4, ""), false},
		{"another server without GTIDs", other(at("b.000002", 4, "")), at("b.000001", 4, ""), false},
		{"another server with GTIDs", other(at("b.000001", 4, uuidA+":1-5")), at("b.000009", 4, uuidA+":1-3"), true},
		{"another server that lacks some", other(at("b.000009", 4, uuidA+":1-3")), at("b.000001", 4, uuidA+":1-5"), false},
		{"GTIDs on one side only by file", at("b.000001", 100, uuidA+":1"), at("b.000001", 50, ""), true},
		{"no file on one side", Position{Server: "s", GTIDs: uuidA + ":1-5"}, at("b.000001", 50, uuidA+":5"), true},
		{"nothing to compare", Position{Server: "s", GTIDs: uuidA + ":1-5"}, at("b.000001", 50, ""), false},
		{"domains", Position{GTIDs: "0-1-5,1-1-5"}, Position{GTIDs: "1-9-4"}, true},
		{"a domain missing", Position{GTIDs: "0-1-5"}, Position{GTIDs: "1-9-4"}, false},
		{"broken GTIDs", Position{GTIDs: "0-1-5"}, Position{GTIDs: "x"}, false},
	} {
		if got := c.p.Covers(c.q); got != c.want {
			t.Errorf("%s: %s covers %s is %v", c.name, c.p, c.q, got)
		}
	}
}

func TestPositionText(t *testing.T) {
	for _, p := range []Position{
		{},
		{Server: "s", File: "binlog.000001", Pos: 1 << 40, Created: 7, GTIDs: uuidA + ":1-5:tag:3," + uuidB + ":1"},
		{Server: "1@a=b c%d", File: "odd name=%.000001", Pos: 4},
		{GTIDs: "0-1-5,7-8-9"},
	} {
		text, err := p.MarshalText()
		if err != nil {
			t.Fatal(err)
		}
		var q Position
		if err := q.UnmarshalText(text); err != nil || q != p {
			t.Errorf("%+v is written as %q and read as %+v, %v", p, text, q, err)
		}
	}
	for _, bad := range []string{"pos=x", "file", "what=1", "gtids=1", "created=99999999999", "file=%1"} {
		var q Position
		if err := q.UnmarshalText([]byte(bad)); err == nil {
			t.Errorf("%q was read as %+v", bad, q)
		}
	}
}

func TestCursorMove(t *testing.T) {
	c := cursor{pos: 1<<32 - 10}
	c.moveTo(5) // past 4 GiB
	if c.pos != 1<<32+5 {
		t.Errorf("got %d", c.pos)
	}
	c.moveTo(500)
	if c.pos != 1<<32+500 {
		t.Errorf("got %d", c.pos)
	}
}
