package memory

import "testing"

func TestClasses(t *testing.T) {
	for _, limit := range []int64{1 << 20, 64 << 20, 100 << 20, 1 << 30, 1 << 40} {
		l := newLayout(limit)
		if len(l.sizes) >= largeClass {
			t.Fatalf("limit %d: %d classes", limit, len(l.sizes))
		}
		largest := l.span / fewest
		for c, size := range l.sizes {
			if c > 0 && size <= l.sizes[c-1] {
				t.Errorf("limit %d: class %d has %d bytes, the one before %d", limit, c, size, l.sizes[c-1])
			}
			if size%8 != 0 || size >= 1024 && size%64 != 0 {
				t.Errorf("limit %d: class %d has %d bytes", limit, c, size)
			}
		}
		for n := 1; n <= largest; n++ {
			c := l.classOf(n)
			if l.slotSize(c) < n || c > 0 && l.slotSize(c-1) >= n {
				t.Fatalf("limit %d: %d bytes are of class %d, %d bytes", limit, n, c, l.slotSize(c))
			}
		}
		if l.classOf(largest+1) != largeClass {
			t.Errorf("limit %d: %d bytes have a slot", limit, largest+1)
		}
	}
}
