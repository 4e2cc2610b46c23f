package memory

import "math/bits"

// Size classes: every 8 bytes up to 256, then 16 steps to each doubling, so that
// a slot is at most 1/16 and on average 1/45 larger than its item. From 1 KiB on
// every size is a multiple of 64, which is what the index's lines need.
const (
	minSlot      = 32
	fineSlots    = 256
	maxSlot      = 128 << 10
	fineClasses  = (fineSlots-minSlot)/8 + 1 // 32, 40, ... 256
	slotClasses  = fineClasses + 16*9        // ... 131072
	largeClass   = slotClasses               // one item in a run of grains
	totalClasses = slotClasses + 1
)

// classOf gives the class of the smallest slot that holds n bytes.
func classOf(n int) int {
	switch {
	case n <= minSlot:
		return 0
	case n <= fineSlots:
		return (n - minSlot + 7) >> 3
	case n > maxSlot:
		return largeClass
	}
	e := bits.Len(uint(n-1)) - 1 // 2^e < n <= 2^(e+1), e >= 8
	step := (n - 1 - 1<<e) >> (e - 4)
	return fineClasses + (e-8)*16 + step
}

// slotSize is the inverse: bytes of a slot of class c.
func slotSize(c int) int {
	if c < fineClasses {
		return minSlot + 8*c
	}
	c -= fineClasses
	e := 8 + c/16
	return 1<<e + (c%16+1)<<(e-4)
}

// spanGrains chooses how many grains a span of class c has: the fewest that give
// at least 8 slots and leave less than 1/50 unused at the end.
func spanGrains(c int) int {
	size := slotSize(c)
	best, waste := 0, 1.0
	for g := 1; g <= 16; g++ {
		n := g * grainSize / size
		if n < 8 {
			continue
		}
		w := float64(g*grainSize-n*size) / float64(g*grainSize)
		if w < waste {
			best, waste = g, w
		}
		if waste < 0.02 {
			break
		}
	}
	return best
}
