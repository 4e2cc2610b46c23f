package mapping

import (
	"database/sql"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/rowcached/rowcached/binlog"
	"pgregory.net/rapid"
)

// rawBytes gives the arguments of SetQuery for a whole row.
func rawBytes(texts [][]byte) (cols []int, vals []sql.RawBytes) {
	for i, text := range texts {
		if text == nil {
			text = []byte{}
		}
		cols, vals = append(cols, i), append(vals, text)
	}
	return cols, vals
}

func TestValues(t *testing.T) {
	table := users()
	full := map[string][]byte{
		"id": []byte("0000000042"), "Name": []byte("A \"b\" \\ /<é>\n\t\x01"), "shard": []byte("-7"), "region": nil,
		"price": []byte("00000012.50"), "ratio": []byte("1e20"), "bits": {0x0a, 0xbc}, "born": []byte("0000"),
		"doc": []byte(`{"a": 1}`), "raw": {0, 1, 2, 255}, "kind": []byte("b"), "expires": []byte("-1"), "hidden": []byte("5"),
	}
	nulls := map[string][]byte{
		"id": []byte("0000000000"), "Name": {}, "shard": []byte("0"), "region": nil, "price": nil, "ratio": nil, "bits": nil,
		"born": nil, "doc": nil, "raw": nil, "kind": nil, "expires": nil, "hidden": nil,
	}
	for _, c := range []struct {
		spec ValueSpec
		row  map[string][]byte
		want string
	}{
		{ValueSpec{}, full, `{"id":42,"Name":"A \"b\" \\ /<é>\n\t\u0001","region":null,"shard":-7,"price":12.50,"ratio":1e20,"bits":2748,` +
			`"born":"0000","doc":{"a": 1},"raw":"AAEC/w==","kind":"b","expires":-1}`},
		{ValueSpec{}, nulls, `{"id":0,"Name":"","region":null,"shard":0,"price":null,"ratio":null,"bits":null,"born":null,"doc":null,"raw":null,"kind":null,"expires":null}`},
		{ValueSpec{Columns: []string{"HIDDEN", "name"}}, nulls, `{"hidden":null,"Name":""}`},
		{ValueSpec{Format: "text"}, nulls, "0000000000|||0||||||||"},
		{ValueSpec{Format: "text", Columns: []string{"raw"}}, full, "\x00\x01\x02\xff"},
		{ValueSpec{Format: "text", Columns: []string{"raw"}}, nulls, ""},
		{ValueSpec{Format: "text", Columns: []string{"price", "id", "bits"}, Separator: "; "}, full, "00000012.50; 0000000042; \x0a\xbc"},
	} {
		m := compiled(t, Spec{Value: c.spec}, table)
		got, err := m.AppendValue([]byte("+"), query(t, table, c.row))
		if err != nil || string(got) != "+"+c.want {
			t.Errorf("%+v:\n got %q, %v\nwant %q", c.spec, got, err, c.want)
		}
	}
}

func TestAPartialRowHasNoValue(t *testing.T) {
	m := compiled(t, Spec{}, users())
	got, err := m.AppendValue([]byte("+"), query(t, users(), map[string][]byte{"id": []byte("1")}))
	if !errors.Is(err, ErrAbsent) || string(got) != "+" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestAnEmptyDocumentIsNull(t *testing.T) {
	m := compiled(t, Spec{Value: ValueSpec{Columns: []string{"doc"}}}, users())
	got, err := m.AppendValue(nil, query(t, users(), map[string][]byte{"doc": {}}))
	if err != nil || string(got) != `{"doc":null}` {
		t.Fatalf("%q, %v", got, err)
	}
}

// A server gives what is no UTF-8 for a label whose bytes a change of charset has spoilt.
func TestAStringIsUTF8(t *testing.T) {
	m := compiled(t, Spec{Value: ValueSpec{Columns: []string{"kind"}}}, users())
	got, err := m.AppendValue(nil, query(t, users(), map[string][]byte{"kind": []byte("\xfcx\"é\xe9")}))
	if want := `{"kind":"\ufffdx\"é\ufffd"}`; err != nil || string(got) != strings.ReplaceAll(want, `\ufffd`, "\ufffd") {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestZerofillLosesItsZeros(t *testing.T) {
	for text, want := range map[string]string{
		"0000.00": "0.00", "0012.30": "12.30", "00000": "0", "0": "0", "0.5": "0.5", "100": "100", "0001e20": "1e20", "00000.00000001": "0.00000001", "00-0": "-0", "0-0.00": "-0.00",
	} {
		if got := string(unpad([]byte("07"+text), 2)); got != "07"+want {
			t.Errorf("%s becomes %s, want 07%s", text, got, want)
		}
	}
}

func TestBadValueSettingsAreRefusedWithTheFix(t *testing.T) {
	hidden := users()
	for i := range hidden.Columns {
		hidden.Columns[i].Invisible = true
	}
	for _, c := range []struct {
		table *binlog.Table
		spec  ValueSpec
		want  string
	}{
		{users(), ValueSpec{Format: "jsn"}, "did you mean json?"},
		{users(), ValueSpec{Columns: []string{"emial"}}, "no column"},
		{users(), ValueSpec{Columns: []string{"id", "ID"}}, "twice"},
		{users(), ValueSpec{Separator: ","}, "add `format: text`"},
		{hidden, ValueSpec{}, "name the ones to serve"},
	} {
		_, err := Compile(Spec{Value: c.spec}, c.table)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v; want it to say %q", c.spec, err, c.want)
		}
	}
}

// A json value is valid and holds the text, whatever the text and the column's name are.
func TestPropertyJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name := rapid.StringN(1, 20, -1).Draw(t, "name")
		if !utf8.ValidString(name) || strings.EqualFold(name, "id") {
			t.Skip()
		}
		table := &binlog.Table{
			TableName: binlog.TableName{Schema: "s", Name: "t"},
			Columns: []binlog.Column{
				{Name: "id", Kind: binlog.KindInt, Bytes: 8},
				{Name: name, Kind: binlog.KindText},
				{Name: "b i n", Kind: binlog.KindBinary},
			},
			Keys: []binlog.Key{{Name: "PRIMARY", Columns: []int{0}}},
		}
		if strings.EqualFold(name, "b i n") {
			t.Skip()
		}
		text := strings.ToValidUTF8(rapid.String().Draw(t, "text"), "?")
		bin := rapid.SliceOf(rapid.Byte()).Draw(t, "bin")
		m, err := Compile(Spec{}, table)
		if err != nil {
			t.Fatal(err)
		}
		r := new(binlog.Row)
		cols, vals := rawBytes([][]byte{[]byte("-5"), []byte(text), bin})
		r.SetQuery(table, cols, vals)
		got, err := m.AppendValue(make([]byte, 0, rapid.IntRange(0, 64).Draw(t, "room")), r)
		if err != nil {
			t.Fatal(err)
		}
		var back map[string]any
		if err := json.Unmarshal(got, &back); err != nil {
			t.Fatalf("%q: %v", got, err)
		}
		if back["id"] != -5.0 || back[name] != text || back["b i n"] != base64.StdEncoding.EncodeToString(bin) || len(back) != 3 {
			t.Fatalf("%q holds %v", got, back)
		}
	})
}
