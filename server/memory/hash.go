package memory

import (
	"math/bits"
	"unsafe"
)

// seeds make the hash different in every process, so that nobody outside can
// choose keys that collide.
type seeds struct{ a, b uint64 }

// mix is the folded 64x64 multiplication: one instruction and an exclusive or,
// and every input bit reaches every output bit.
func mix(x, y uint64) uint64 {
	hi, lo := bits.Mul64(x, y)
	return hi ^ lo
}

func load64(p unsafe.Pointer) uint64 { return *(*uint64)(p) }
func load32(p unsafe.Pointer) uint64 { return uint64(*(*uint32)(p)) }

// sum hashes a key. Keys are at most 250 bytes, typically 10 to 40: 16 bytes a
// step, the last 16 overlapping, no branch on the bytes left over.
func (s seeds) sum(key []byte) uint64 {
	p := unsafe.Pointer(unsafe.SliceData(key))
	n := uintptr(len(key))
	var x, y uint64
	acc := s.a
	switch {
	case n > 16:
		for ; n > 16; n -= 16 {
			acc = mix(load64(p)^s.b, load64(unsafe.Add(p, 8))^acc)
			p = unsafe.Add(p, 16)
		}
		x, y = load64(unsafe.Add(p, n-16)), load64(unsafe.Add(p, n-8))
	case n >= 8:
		x, y = load64(p), load64(unsafe.Add(p, n-8))
	case n >= 4:
		x, y = load32(p), load32(unsafe.Add(p, n-4))
	case n > 0:
		x = uint64(key[0])<<16 | uint64(key[n/2])<<8 | uint64(key[n-1])
	}
	return mix(mix(x^s.b, y^acc)^uint64(len(key)), s.a^0x9e3779b97f4a7c15)
}
