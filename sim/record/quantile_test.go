package record

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// numbers draws samples of every kind that sorting has trouble with: equal values,
// runs, extremes and what is not a number.
func numbers() *rapid.Generator[[]float64] {
	return rapid.OneOf(
		rapid.SliceOfN(rapid.Float64(), 0, 300),
		rapid.SliceOfN(rapid.Map(rapid.IntRange(0, 5), func(i int) float64 { return float64(i) }), 0, 300),
		rapid.SliceOfN(rapid.SampledFrom([]float64{math.NaN(), math.Inf(-1), math.Inf(1), 0, 1, 2}), 0, 60),
		rapid.Custom(func(t *rapid.T) []float64 {
			values := rapid.SliceOfN(rapid.Float64(), 0, 300).Draw(t, "values")
			slices.Sort(values)
			if rapid.Bool().Draw(t, "descending") {
				slices.Reverse(values)
			}
			return values
		}),
	)
}

// What is selected is what sorting gives, and nothing is lost.
func TestSettleAgainstSort(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := numbers().Draw(t, "values")
		qs := rapid.SliceOfN(rapid.Float64Range(0, 1), 1, 6).Draw(t, "quantiles")
		slices.Sort(qs)
		sorted := slices.Sorted(slices.Values(values))
		settle(values, qs...)
		require.Equal(t, Quantiles(sorted, qs...), Quantiles(values, qs...))
		slices.Sort(values)
		same := func(a, b float64) bool { return a == b || math.IsNaN(a) && math.IsNaN(b) }
		require.True(t, slices.EqualFunc(sorted, values, same), "%v became %v", sorted, values)
	})
}

// However many splits it is allowed, down to none, the places are right.
func TestSelectionWithoutLuck(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for splits := range 12 {
		values := rng.Perm(1000)
		sample := make([]float64, len(values))
		for i, v := range values {
			sample[i] = float64(v)
		}
		places := []int{0, 1, 499, 500, 501, 950, 998, 999}
		selectPlaces(sample, 0, places, splits)
		for _, at := range places {
			require.Equal(t, float64(at), sample[at], "%d splits", splits)
		}
	}
}

func BenchmarkPercentiles(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 2))
	values := make([]float64, 10_000)
	for b.Loop() {
		for i := range values {
			values[i] = rng.Float64()
		}
		PercentilesOf(values)
	}
}
