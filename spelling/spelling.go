// Package spelling says what a name that nobody knows may have been meant as.
package spelling

import (
	"slices"
	"strings"
)

// Suggest says what a name might have been meant as: `; did you mean "x"?`
// when one of known is close, or when it begins the names of some, else which
// names there are.
func Suggest(name string, known []string) string {
	if best := Nearest(name, known); best != "" && distance(strings.ToLower(name), strings.ToLower(best)) <= slip(name) {
		return `; did you mean "` + best + `"?`
	}
	if begun := begunBy(name, known); len(begun) > 0 {
		return `; did you mean "` + strings.Join(begun, `" or "`) + `"?`
	}
	if len(known) == 0 {
		return ""
	}
	return "; allowed: " + strings.Join(sorted(known), ", ")
}

// Nearest is the known name with the smallest edit distance from name, the first of
// those in known's order, however far it is; "" when none is known.
func Nearest(name string, known []string) string {
	name = strings.ToLower(name)
	best, least := "", 0
	for i, k := range known {
		if d := distance(name, strings.ToLower(k)); i == 0 || d < least {
			best, least = k, d
		}
	}
	return best
}

// slip is how many edits a misspelling may take: a third of the letters.
func slip(name string) int { return max(1, len(name)/3) }

// begunBy are the known names that begin with name, sorted; none when it is empty.
func begunBy(name string, known []string) []string {
	name = strings.ToLower(name)
	return slices.DeleteFunc(sorted(known), func(k string) bool { return name == "" || !strings.HasPrefix(strings.ToLower(k), name) })
}

func sorted(known []string) []string { return slices.Sorted(slices.Values(known)) }

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
