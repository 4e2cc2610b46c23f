package memory

import (
	"encoding/json"
	"flag"
	"testing"
)

var residentItems = flag.Int("resident.items", 300_000, "items of the resident memory test")

// TestResident: what an item of a 24-byte key and a 100-byte value takes of this
// process, everything counted. memcached 1.6.45 takes 200 bytes for the same.
func TestResident(t *testing.T) {
	if heapReserve {
		t.Skip("the region is on the Go heap")
	}
	before := residentBytes()
	if before == 0 {
		t.Skip("the system does not tell the resident size")
	}
	s := newStore(t, Options{Limit: max(int64(*residentItems)*256, 64<<20)})
	c := newSession(t, s)
	key, value := []byte("resident................"), make([]byte, 100)
	for n := range *residentItems {
		for i, v := 23, n; i >= 8; i, v = i-1, v/10 {
			key[i] = byte('0' + v%10)
		}
		d, err := c.Reserve(key, 0, 0, len(value))
		if err != nil {
			t.Fatal(err)
		}
		copy(d.Data(), value)
		c.Store(d, Set, 0)
	}
	st := s.Stats()
	per := float64(residentBytes()-before) / float64(*residentItems)
	kinds, _ := json.Marshal(st.ByKind)
	t.Logf("%d items: %.1f bytes resident for each, %.1f counted, index %.1f; %s", st.Items, per,
		float64(st.Bytes)/float64(st.Items), float64(st.HashBytes)/float64(st.Items), kinds)
	if st.Items != int64(*residentItems) || per > 195 {
		t.Errorf("%d items take %.1f bytes each", st.Items, per)
	}
}
