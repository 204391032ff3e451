package record

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Numbers of every size have each their own value, in the order in which they came.
func TestNumbered(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		numbers := rapid.SliceOf(rapid.SampledFrom([]int{-1, 0, 1, 2, smallNumbers - 1, smallNumbers, smallNumbers + 1, 1 << 40})).Draw(t, "numbers")
		var counts numbered[int]
		want := map[int]int{}
		var order []int
		for _, k := range numbers {
			*counts.at(k)++
			if want[k]++; want[k] == 1 {
				order = append(order, k)
			}
		}
		require.Equal(t, order, counts.keys)
		for i, k := range counts.keys {
			require.Equal(t, want[k], counts.values[i], "of %d", k)
		}
	})
}
