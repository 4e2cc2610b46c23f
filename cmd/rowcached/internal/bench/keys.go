package bench

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strconv"
	"strings"
)

// patternOffsets is how many different beginnings values have: two keys share one with a chance of 1 in 65,536.
const patternOffsets = 1 << 16

// keyspace gives the keys and the values that belong to them. Both follow from a key's number (0 to n-1) alone, so a
// reply can be checked without remembering what was stored.
type keyspace struct {
	prefix, suffix string
	width          int // digits of the number, with leading zeros; 0: as many as it has
	n              int
	sizeMin        int
	sizeSpan       int    // sizes are sizeMin to sizeMin+sizeSpan
	pattern        []byte // values are parts of it
}

func newKeyspace(s *Spec) (*keyspace, error) {
	k := &keyspace{n: s.Keys, sizeMin: s.ValueMin, sizeSpan: s.ValueMax - s.ValueMin}
	var ok bool
	var rest string
	if k.prefix, rest, ok = strings.Cut(s.Key, "{n"); ok {
		var width string
		if width, k.suffix, ok = strings.Cut(rest, "}"); ok && width != "" {
			w, err := strconv.Atoi(strings.TrimPrefix(width, ":"))
			k.width = w
			ok = err == nil && width[0] == ':' && w > 0 && w <= 250
		}
	}
	if !ok {
		return nil, fmt.Errorf("--key %q: the number's place is missing; write for example bench:{n} or bench:{n:18}", s.Key)
	}
	digits := len(strconv.Itoa(max(s.Keys, 1)))
	if k.width > 0 && k.width < digits {
		return nil, fmt.Errorf("--key %q: %d keys need %d digits", s.Key, s.Keys, digits)
	}
	if n := len(k.prefix) + max(k.width, digits) + len(k.suffix); n > 250 {
		return nil, fmt.Errorf("--key %q: keys of %d bytes; memcached allows 250", s.Key, n)
	}
	if strings.ContainsFunc(k.prefix+k.suffix, func(r rune) bool { return r <= ' ' || r == 127 }) {
		return nil, fmt.Errorf("--key %q: a key cannot have a space or a control character", s.Key)
	}
	return k, nil
}

// fill makes the pattern, which values need.
func (k *keyspace) fill() {
	r := rand.New(rand.NewPCG(0x726f77, 0x63616368))
	const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_"
	k.pattern = make([]byte, patternOffsets+k.sizeMin+k.sizeSpan)
	for i := range k.pattern {
		k.pattern[i] = letters[r.Uint32()%64]
	}
}

const zeros = "00000000000000000000"

// appendKey appends the key of the number.
func (k *keyspace) appendKey(b []byte, number uint32) []byte {
	b = append(b, k.prefix...)
	if k.width == 0 {
		b = strconv.AppendUint(b, uint64(number)+1, 10)
	} else {
		for left := k.width; left > 0; left -= len(zeros) {
			b = append(b, zeros[:min(left, len(zeros))]...)
		}
		for i, v := len(b)-1, uint64(number)+1; v > 0; i, v = i-1, v/10 {
			b[i] = byte('0' + v%10)
		}
	}
	return append(b, k.suffix...)
}

// mix spreads a number over 64 bits.
func mix(number uint32) uint64 {
	x := (uint64(number) + 1) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	return x ^ x>>32
}

func (k *keyspace) size(number uint32) int {
	if k.sizeSpan == 0 {
		return k.sizeMin
	}
	hi, _ := bits.Mul64(mix(number), uint64(k.sizeSpan)+1)
	return k.sizeMin + int(hi)
}

// value gives the value of the number's key: a part of the pattern, not to be changed.
func (k *keyspace) value(number uint32) []byte {
	at := int(mix(number) % patternOffsets)
	return k.pattern[at : at+k.size(number)]
}

// chooser gives the numbers of keys to ask for.
type chooser struct {
	rng    *rand.PCG
	n      uint64
	ranks  *zipf
	stride uint64 // ranks are spread over the numbers with it
}

func newChooser(s *Spec, stream uint64) *chooser {
	c := &chooser{rng: rand.NewPCG(s.Seed, stream), n: uint64(s.Keys)}
	if s.Distribution == Zipf {
		c.ranks = newZipf(s.Keys, s.Exponent)
		// Keys asked for often are not neighbours in the order in which they were stored.
		for c.stride = c.n*618/1000 | 1; gcd(c.stride, c.n) != 1; c.stride += 2 {
		}
	}
	return c
}

func (c *chooser) next() uint32 {
	if c.ranks != nil {
		return uint32(uint64(c.ranks.rank(c.rng)-1) * c.stride % c.n)
	}
	hi, _ := bits.Mul64(c.rng.Uint64(), c.n)
	return uint32(hi)
}

func gcd(a, b uint64) uint64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
