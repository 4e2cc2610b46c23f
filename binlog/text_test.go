package binlog

import (
	"encoding/binary"
	"errors"
	"math"
	"testing"
	"time"
)

func TestReal(t *testing.T) {
	for _, test := range []struct {
		f    float64
		size int
		want string
	}{
		{0, 64, "0"}, {math.Copysign(0, -1), 64, "-0"}, {1, 64, "1"}, {-1.5, 64, "-1.5"}, {0.1, 64, "0.1"}, {0.1, 32, "0.1"},
		{1e15, 64, "1e15"}, {1e14, 64, "100000000000000"}, {123456789012345, 64, "123456789012345"},
		{123456789012345678, 64, "1.2345678901234568e17"}, {3708124926957776.5, 64, "3708124926957776.5"},
		{0.00001, 64, "0.00001"}, {1e-15, 64, "0.000000000000001"}, {1e-16, 64, "1e-16"}, {5e-324, 64, "5e-324"},
		{-1.7976931348623157e308, 64, "-1.7976931348623157e308"},
		{16777216, 32, "16777216"}, {3.4e38, 32, "3.4e38"}, {1e10, 32, "10000000000"},
	} {
		if got := string(appendReal(nil, test.f, test.size)); got != test.want {
			t.Errorf("%v: %s, want %s", test.f, got, test.want)
		}
	}
	for _, test := range []struct {
		f        float64
		decimals int
		want     string
	}{
		{1.1, 3, "1.100"}, {1234.5678, 3, "1234.568"}, {0, 2, "0.00"}, {2.5, 0, "2"}, {3.5, 0, "4"}, {7, 0, "7"}, {0.1, 30, "0.100000000000000000000000000000"},
		{1e22, 1, "10000000000000000000000.0"},
	} {
		if got := string(appendFixed(nil, test.f, test.decimals)); got != test.want {
			t.Errorf("%v with %d decimals: %s, want %s", test.f, test.decimals, got, test.want)
		}
	}
}

func TestParseFloat(t *testing.T) {
	for text, want := range map[string]float64{"0": 0, "-1.5": -1.5, "0.1": 0.1, "123456789012345": 123456789012345, "1e15": 1e15,
		"0.10000000149011612": 0.10000000149011612, "-0.000000000000009218246426140728": -0.000000000000009218246426140728} {
		if got, ok := parseFloat([]byte(text)); got != want || !ok {
			t.Errorf("%s: %v, %v", text, got, ok)
		}
	}
	if f, ok := parseFloat([]byte("-0")); !ok || !math.Signbit(f) {
		t.Error("the negative zero lost its sign")
	}
	for _, text := range []string{"", "-", "x", "1x", "1..2", "--1"} {
		if f, ok := parseFloat([]byte(text)); ok {
			t.Errorf("%q: %v", text, f)
		}
	}
}

// TestNotFinite: no server stores infinity; an image that has it is corrupt.
func TestNotFinite(t *testing.T) {
	c := &imageColumn{column: &Column{Kind: KindDouble, Decimals: -1}}
	for _, f := range []float64{math.Inf(1), math.NaN()} {
		if text, err := textDouble(nil, c, nil, binary.LittleEndian.AppendUint64(nil, math.Float64bits(f))); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%v: %s, %v", f, text, err)
		}
	}
}

// TestTimestamps compares the calendar with the standard library's over the range of TIMESTAMP.
func TestTimestamps(t *testing.T) {
	for seconds := int64(1); seconds < 1<<32; seconds += 86399 * 3 {
		got, err := appendTimestamp(nil, uint32(seconds), 0, 0)
		if want := time.Unix(seconds, 0).UTC().Format(time.DateTime); err != nil || string(got) != want {
			t.Fatalf("%d: %s, %v; want %s", seconds, got, err, want)
		}
	}
	if got, err := appendTimestamp(nil, math.MaxUint32, 999999, 6); err != nil || string(got) != "2106-02-07 06:28:15.999999" {
		t.Errorf("%s, %v", got, err)
	}
}
