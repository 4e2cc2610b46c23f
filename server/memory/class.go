package memory

import "math/bits"

// Size classes: every 8 bytes up to 256, then 16 steps to each doubling, so that
// a slot is at most 1/16 and on average 1/45 larger than its item. From 1 KiB on
// every size is a multiple of 64, which is what the index's lines need. The largest
// classes are what a span holds 15, 14, ... 4 of.
const (
	minSlot     = 32
	fineSlots   = 256
	fineClasses = (fineSlots-minSlot)/8 + 1 // 32, 40, ... 256
	stepClasses = fineClasses + 16*10       // ... 262144
	fewest      = 4                         // slots of a span

	totalClasses = 192
	largeClass   = totalClasses - 1 // one item in a run of grains
)

// layout says how memory is cut, which depends on the limit: a class that is in
// use at all takes a span, and they must not fill a small store. All spans are of
// one size, so that any class can use what another gives back.
type layout struct {
	span  int                // bytes of a span
	sizes []int              // bytes of a slot, by class
	from  [stepClasses]uint8 // by step: the first class that may fit
}

func newLayout(limit int64) *layout {
	l := &layout{span: 1 << 20}
	for l.span > 32<<10 && int64(l.span) > limit/1024 {
		l.span >>= 1
	}
	for c := 0; stepSize(c)*16 <= l.span; c++ {
		l.sizes = append(l.sizes, stepSize(c))
	}
	for n := 15; n >= fewest; n-- {
		l.sizes = append(l.sizes, l.span/n&^63)
	}
	class := 0
	for c := range stepClasses {
		least := 1
		if c > 0 {
			least = stepSize(c-1) + 1
		}
		for class < len(l.sizes) && l.sizes[class] < least {
			class++
		}
		l.from[c] = uint8(class)
	}
	return l
}

// classOf gives the class of the smallest slot that holds n bytes.
func (l *layout) classOf(n int) int {
	if n > l.span/fewest {
		return largeClass
	}
	class := int(l.from[stepOf(n)])
	for l.sizes[class] < n {
		class++
	}
	return class
}

// slotSize is the bytes of a slot of a class other than largeClass.
func (l *layout) slotSize(class int) int { return l.sizes[class] }

// stepOf gives the step of the scale above that n bytes are in.
func stepOf(n int) int {
	switch {
	case n <= minSlot:
		return 0
	case n <= fineSlots:
		return (n - minSlot + 7) >> 3
	}
	e := bits.Len(uint(n-1)) - 1 // 2^e < n <= 2^(e+1), e >= 8
	return fineClasses + (e-8)*16 + (n-1-1<<e)>>(e-4)
}

// stepSize is its inverse: the most bytes of a step.
func stepSize(c int) int {
	if c < fineClasses {
		return minSlot + 8*c
	}
	c -= fineClasses
	e := 8 + c/16
	return 1<<e + (c%16+1)<<(e-4)
}
