package protocol

import (
	"math"
	"strconv"
	"testing"
)

func TestNumbers(t *testing.T) {
	for _, s := range []string{
		"", "0", "1", "9", "10", "007", "-", "-0", "-1", "+1", " 1", "1 ", "1x", "x", "18446744073709551615",
		"18446744073709551616", "18446744073709551620", "99999999999999999999", "000000000000000000001",
		"9223372036854775807", "9223372036854775808", "-9223372036854775807", "-9223372036854775808", "--1", "1-",
	} {
		checkNumber(t, s)
	}
}

// checkNumber compares with strconv, apart from what is left out here on purpose:
// a plus sign, and more than 20 digits.
func checkNumber(t *testing.T, s string) {
	t.Helper()
	want, err := strconv.ParseUint(s, 10, 64)
	wantOK := err == nil && len(s) <= 20
	if !wantOK {
		want = 0
	}
	if got, ok := Uint([]byte(s)); ok != wantOK || got != want {
		t.Errorf("Uint(%q): %d %v, want %d %v", s, got, ok, want, wantOK)
	}
	signed, err := strconv.ParseInt(s, 10, 64)
	digits := len(s)
	if s != "" && s[0] == '-' {
		digits--
	}
	wantOK = err == nil && digits <= 20 && s[0] != '+' && signed != math.MinInt64
	if !wantOK {
		signed = 0
	}
	if got, ok := Int([]byte(s)); ok != wantOK || got != signed {
		t.Errorf("Int(%q): %d %v, want %d %v", s, got, ok, signed, wantOK)
	}
}

func TestAppendNumbers(t *testing.T) {
	for _, v := range []uint64{0, 1, 9, 10, 99, 100, 12345, 1<<32 - 1, 1 << 63, math.MaxUint64} {
		if got, want := string(AppendUint([]byte("x"), v)), "x"+strconv.FormatUint(v, 10); got != want {
			t.Errorf("AppendUint(%d): %q", v, got)
		}
		if got, want := string(AppendInt([]byte("x"), int64(v))), "x"+strconv.FormatInt(int64(v), 10); got != want {
			t.Errorf("AppendInt(%d): %q", int64(v), got)
		}
	}
}

func FuzzNumber(f *testing.F) {
	for _, s := range []string{"0", "18446744073709551615", "-1", "+5", "007", "9223372036854775808"} {
		f.Add(s, uint64(1)<<40)
	}
	f.Fuzz(func(t *testing.T, s string, v uint64) {
		checkNumber(t, s)
		if got := string(AppendUint(nil, v)); got != strconv.FormatUint(v, 10) {
			t.Errorf("AppendUint(%d): %q", v, got)
		}
		if got := string(AppendInt(nil, int64(v))); got != strconv.FormatInt(int64(v), 10) {
			t.Errorf("AppendInt(%d): %q", int64(v), got)
		}
	})
}
