package mapping

import "strings"

// Nearest gives the known word that an unknown one was probably meant to be, or "" when none is near: about a
// third of its letters may differ. Case is ignored.
func Nearest(got string, words []string) string {
	best, at := "", len(got)/3+1
	low := strings.ToLower(got)
	for _, w := range words {
		if d := distance(low, strings.ToLower(w), at); d <= at && (best == "" || d < at) {
			best, at = w, d
		}
	}
	return best
}

// distance is the number of single-byte insertions, deletions, changes and swaps of neighbours between a and
// b; anything above limit may be reported as limit+1.
func distance(a, b string, limit int) int {
	if len(a)-len(b) > limit || len(b)-len(a) > limit {
		return limit + 1
	}
	before, prev, cur := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], before[j-2]+1)
			}
		}
		before, prev, cur = prev, cur, before
	}
	return prev[len(b)]
}
