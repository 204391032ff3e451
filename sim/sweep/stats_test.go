package sweep

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
)

// The expectations are worked out by hand with t(0.975, 4) = 2.776445 and
// t(0.975, 3) = 3.182446 from printed tables.
func TestMeanInterval(t *testing.T) {
	i := MeanInterval([]float64{1, 2, 3, 4, 5}, 0.95) // s/√5 = 0.707107
	require.Equal(t, 5, i.N)
	require.InDelta(t, 3, i.Estimate, 1e-12)
	require.InDelta(t, 3-1.963243, i.Low, 1e-5)
	require.InDelta(t, 3+1.963243, i.High, 1e-5)
	require.True(t, i.Decided(1))
	require.False(t, i.Decided(2))

	same := MeanInterval([]float64{0.1, 0.1, 0.1}, 0.95)
	require.Equal(t, Interval{3, 0.1, 0.1, 0.1}, same)

	one := MeanInterval([]float64{4}, 0.95)
	require.Equal(t, Interval{1, 4, math.Inf(-1), math.Inf(1)}, one)

	none := MeanInterval(nil, 0.95)
	require.Zero(t, none.N)
	require.True(t, math.IsNaN(none.Estimate))
	require.False(t, none.Decided(0))
}

func TestPairedInterval(t *testing.T) {
	nan := math.NaN()
	// Differences 1, 2, 3, 2 (the pairs with an absent value do not count): mean 2,
	// s = √(2/3), s/√4 = 0.408248, times 3.182446 = 1.299228.
	i := PairedInterval([]float64{11, 22, nan, 33, 42, 7}, []float64{10, 20, 25, 30, 40, nan}, 0.95)
	require.Equal(t, 4, i.N)
	require.InDelta(t, 2, i.Estimate, 1e-12)
	require.InDelta(t, 2-1.299228, i.Low, 1e-5)
	require.InDelta(t, 2+1.299228, i.High, 1e-5)

	require.Equal(t, 0, PairedInterval(nil, []float64{1}, 0.95).N)
}

// Pairing is what makes small differences visible: the same noise on both sides
// drops out.
func TestPairingRemovesCommonNoise(t *testing.T) {
	rng := random.Stream(1, "noise")
	a, b := make([]float64, 10), make([]float64, 10)
	for i := range a {
		noise := 100 * rng.NormFloat64()
		a[i], b[i] = noise+1+0.1*rng.NormFloat64(), noise
	}
	require.True(t, PairedInterval(a, b, 0.95).Decided(0))
	require.False(t, MeanInterval(a, 0.95).Decided(0))
}

// With k = 0 the upper bound is 1 - tail^(1/n), with k = n the lower tail^(1/n);
// 5 of 10 is in every table: 0.1871 to 0.8129.
func TestClopperPearson(t *testing.T) {
	none := clopperPearson(0, 10, 0.025)
	require.Zero(t, none.Low)
	require.InDelta(t, 1-math.Pow(0.025, 0.1), none.High, 1e-9)
	all := clopperPearson(298, 298, 0.05)
	require.InDelta(t, math.Pow(0.05, 1.0/298), all.Low, 1e-9)
	require.Equal(t, 1.0, all.High)
	half := clopperPearson(5, 10, 0.025)
	require.InDelta(t, 0.1871, half.Low, 5e-5)
	require.InDelta(t, 0.8129, half.High, 5e-5)
	require.Equal(t, 0.0, clopperPearson(0, 0, 0.025).Low)
	require.Equal(t, 1.0, clopperPearson(0, 0, 0.025).High)
}

// Of 95% intervals of normal samples about 95% hold the true mean: with 4,000
// of them within 4 standard errors, 0.0138.
func TestCoverage(t *testing.T) {
	rng := random.Stream(2, "coverage")
	const trials = 4000
	held := 0
	values := make([]float64, 6)
	for range trials {
		for i := range values {
			values[i] = 10 + 3*rng.NormFloat64()
		}
		if !MeanInterval(values, 0.95).Decided(10) {
			held++
		}
	}
	require.InDelta(t, 0.95, float64(held)/trials, 0.0138)
}

func TestIntervalProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), 2, 30).Draw(t, "values")
		other := rapid.SliceOfN(rapid.Float64Range(-1e6, 1e6), len(values), len(values)).Draw(t, "other")
		wide, narrow := MeanInterval(values, 0.99), MeanInterval(values, 0.9)
		require.LessOrEqual(t, wide.Low, narrow.Low)
		require.LessOrEqual(t, narrow.Low, narrow.Estimate)
		require.LessOrEqual(t, narrow.Estimate, narrow.High)
		require.LessOrEqual(t, narrow.High, wide.High)
		there, back := PairedInterval(values, other, 0.95), PairedInterval(other, values, 0.95)
		require.InDelta(t, there.Estimate, -back.Estimate, 1e-6)
		require.InDelta(t, there.Low, -back.High, 1e-4)
		n := rapid.IntRange(1, 500).Draw(t, "n")
		k := rapid.IntRange(0, n).Draw(t, "k")
		p := clopperPearson(k, n, 0.025)
		require.True(t, 0 <= p.Low && p.Low <= p.Estimate && p.Estimate <= p.High && p.High <= 1)
	})
}

// Mean 3 and median 3 of 1 to 5; the 5% and 95% quantiles at positions 0.2 and
// 3.8; the difference to a baseline one lower is exactly 1.
func TestStatOf(t *testing.T) {
	s := statOf([]float64{1, 2, 3, 4, 5}, []float64{0, 1, 2, 3}, 0.025)
	require.InDelta(t, 3, s.Mean.Estimate, 1e-12)
	require.InDelta(t, 3, s.Band.P50.Or(0), 1e-12)
	require.InDelta(t, 1.2, s.Band.P5.Or(0), 1e-12)
	require.InDelta(t, 4.8, s.Band.P95.Or(0), 1e-12)
	require.Equal(t, Interval{4, 1, 1, 1}, s.Diff)
	require.Zero(t, statOf([]float64{1}, nil, 0.025).Diff.N)
}
