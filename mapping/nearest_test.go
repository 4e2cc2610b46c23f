package mapping

import "testing"

func TestNearest(t *testing.T) {
	words := []string{"server", "source", "memory", "max_staleness"}
	for got, want := range map[string]string{
		"sever": "server", "sorce": "source", "Memroy": "memory", "max-staleness": "max_staleness", "qqq": "", "": "", "tables": "",
	} {
		if n := Nearest(got, words); n != want {
			t.Errorf("nearest to %q is %q, want %q", got, n, want)
		}
	}
}
