package simtime

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestFromSeconds(t *testing.T) {
	for s, want := range map[float64]Time{
		0: 0, 1: Second, 1e-11: Tick, 0.4e-11: 0, -2.5: -5 * Second / 2,
		1e9: Never, -1e9: math.MinInt64, math.Inf(1): Never, math.NaN(): 0,
	} {
		require.Equal(t, want, FromSeconds(s), "%g s", s)
	}
}

func TestTimes(t *testing.T) {
	for _, c := range []struct {
		t    Time
		n    int
		want Time
	}{
		{0, math.MaxInt, 0},
		{3 * Second, 0, 0},
		{3 * Second, 7, 21 * Second},
		{Horizon, 1, Horizon},
		{Horizon / 3, 3, Horizon}, // 2^62 - 1 is a multiple of 3
		{Horizon/3 + 1, 3, Horizon},
		{1 << 32, 1 << 32, Horizon},
		{Never, math.MaxInt, Horizon},
	} {
		require.Equal(t, c.want, c.t.Times(c.n), "%d times %d", c.n, c.t)
	}
}

// An instant and a span may be added unseen.
func TestHorizon(t *testing.T) {
	require.Positive(t, Horizon+Horizon)
	require.Less(t, Horizon+Horizon, Never)
	require.Greater(t, Horizon, 365*24*Hour)
}
