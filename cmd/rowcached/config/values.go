package config

import (
	"encoding"
	"fmt"
	"math/bits"
	"reflect"
	"strconv"
	"strings"
	"time"
)

// Size is a number of bytes, written as 64, 64KiB, 1MiB, 2GiB; k, m and g mean the same as KiB, MiB and GiB, as in memcached.
type Size int64

var sizeUnits = []struct {
	suffix string
	shift  int
}{{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}, {"kb", 10}, {"mb", 20}, {"gb", 30}, {"k", 10}, {"m", 20}, {"g", 30}, {"b", 0}}

// UnmarshalText reads a size.
func (s *Size) UnmarshalText(text []byte) error {
	in := strings.TrimSpace(string(text))
	number, shift := in, 0
	for _, u := range sizeUnits {
		if len(in) > len(u.suffix) && strings.EqualFold(in[len(in)-len(u.suffix):], u.suffix) {
			number, shift = strings.TrimSpace(in[:len(in)-len(u.suffix)]), u.shift
			break
		}
	}
	n, err := strconv.ParseUint(number, 10, 63)
	if err != nil || bits.Len64(n)+shift > 62 {
		return fmt.Errorf("%q is not a size; write for example 64MiB", in)
	}
	*s = Size(n << shift)
	return nil
}

// String writes the size with the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []int{3, 2, 1, 0} {
		if unit := sizeUnits[u]; s != 0 && s%(1<<unit.shift) == 0 {
			return strconv.FormatInt(int64(s>>unit.shift), 10) + unit.suffix
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Duration is a time span, written as 10s, 1m30s, 250ms; a bare number is seconds.
type Duration time.Duration

// UnmarshalText reads a duration.
func (d *Duration) UnmarshalText(text []byte) error {
	in := strings.TrimSpace(string(text))
	if n, err := strconv.ParseUint(in, 10, 31); err == nil {
		*d = Duration(time.Duration(n) * time.Second)
		return nil
	}
	v, err := time.ParseDuration(in)
	if err != nil || v < 0 {
		return fmt.Errorf("%q is not a time span; write for example 10s", in)
	}
	*d = Duration(v)
	return nil
}

// String writes the duration.
func (d Duration) String() string { return time.Duration(d).String() }

// Set reads a value as a flag or an environment variable has it. Lists are separated by commas.
func (s Setting) Set(text string) error {
	if u, ok := s.value.Addr().Interface().(encoding.TextUnmarshaler); ok {
		return u.UnmarshalText([]byte(text))
	}
	switch s.value.Kind() {
	case reflect.String:
		s.value.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return fmt.Errorf("%q is neither true nor false", text)
		}
		s.value.SetBool(b)
	case reflect.Int:
		n, err := strconv.Atoi(text)
		if err != nil {
			return fmt.Errorf("%q is not a number", text)
		}
		s.value.SetInt(int64(n))
	case reflect.Uint32:
		n, err := strconv.ParseUint(text, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is not a number between 0 and 4294967295", text)
		}
		s.value.SetUint(n)
	case reflect.Slice:
		var list []string
		for part := range strings.SplitSeq(text, ",") {
			if part = strings.TrimSpace(part); part != "" {
				list = append(list, part)
			}
		}
		s.value.Set(reflect.ValueOf(list))
	default:
		panic("config: no text form for " + s.value.Type().String())
	}
	return nil
}

// Share is a part of a whole, above 0 and at most 1, written as 5% or 0.05.
type Share float64

// UnmarshalText reads a share.
func (s *Share) UnmarshalText(text []byte) error {
	in := strings.TrimSpace(string(text))
	number, percent := strings.CutSuffix(in, "%")
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if percent {
		v /= 100
	}
	if err != nil || !(v > 0 && v <= 1) {
		return fmt.Errorf("%q is not a share of a whole; write for example 5%% or 0.05", in)
	}
	*s = Share(v)
	return nil
}

// String writes the share in per cent.
func (s Share) String() string { return strconv.FormatFloat(float64(s)*100, 'g', -1, 64) + "%" }
