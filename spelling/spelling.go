// Package spelling says what a name that nobody knows may have been meant as.
package spelling

import (
	"slices"
	"strings"
)

// Suggest says what a name might have been meant as: `; did you mean "x"?`
// when one of known is close, else which names there are.
func Suggest(name string, known []string) string {
	if best, edits := nearest(name, known); best != "" && edits <= slip(name) {
		return `; did you mean "` + best + `"?`
	}
	if len(known) == 0 {
		return ""
	}
	known = slices.Clone(known)
	slices.Sort(known)
	return "; allowed: " + strings.Join(known, ", ")
}

// Nearest is the known name with the smallest edit distance from name, the first of
// those in known's order, however far it is; "" when none is known.
func Nearest(name string, known []string) string {
	best, _ := nearest(name, known)
	return best
}

// slip is how many edits a misspelling may take: a third of the letters.
func slip(name string) int { return max(1, len(name)/3) }

// nearest is the known name with the smallest edit distance, and that.
func nearest(name string, known []string) (best string, least int) {
	name = strings.ToLower(name)
	for i, k := range known {
		if d := distance(name, strings.ToLower(k)); i == 0 || d < least {
			best, least = k, d
		}
	}
	return best, least
}

// distance is the number of bytes to insert, delete, replace or swap with
// their neighbour to make b of a (optimal string alignment).
func distance(a, b string) int {
	before, last, row := make([]int, len(b)+1), make([]int, len(b)+1), make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			change := 1
			if a[i-1] == b[j-1] {
				change = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+change)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
