package model

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
)

// A stretch never takes longer than the clock has room for, and is cut only where
// it would take half of that.
func TestStretchFitsTheClock(t *testing.T) {
	span := func(s stretch) *big.Int {
		n := big.NewInt(int64(s.steps))
		all := new(big.Int).Mul(n, big.NewInt(int64(s.cost)))
		pairs := new(big.Int).Mul(n, new(big.Int).Sub(n, big.NewInt(1)))
		pairs.Rsh(pairs, 1)
		return all.Add(all, pairs.Mul(pairs, big.NewInt(int64(s.slope))))
	}
	room := big.NewInt(int64(simtime.Horizon / 8))
	half := big.NewInt(int64(simtime.Horizon/16 - simtime.Horizon/1024))
	rapid.Check(t, func(t *rapid.T) {
		whole := stretch{
			steps: rapid.IntRange(0, 1<<31).Draw(t, "steps"),
			cost:  simtime.Time(rapid.Int64Range(0, int64(MaxStep)).Draw(t, "cost")),
			slope: simtime.Time(rapid.Int64Range(0, int64(MaxStep)).Draw(t, "slope")),
		}
		s := whole
		s.limit()
		require.LessOrEqual(t, span(s).Cmp(room), 0, "%+v becomes %+v", whole, s)
		if s != whole {
			require.Less(t, s.steps, whole.steps)
			s.steps++
			require.Positive(t, span(s).Cmp(half), "%+v is cut to less than %+v", whole, s)
		}
	})
}

func TestRatio(t *testing.T) {
	for _, c := range []struct {
		r       Ratio
		t, want simtime.Time
	}{
		{Ratio{}, 7, 7},
		{Ratio{3, 2}, 7, 10},
		{Ratio{1e12, 1e6}, simtime.Millisecond, 1000 * simtime.Second},
		{Ratio{1e12 + 1, 1e6}, simtime.Second, 1e6*simtime.Second + simtime.Microsecond},
		{Ratio{1e12, 1e6}, simtime.Hour, longestSlowStep},
		{Ratio{1 << 62, 1}, 1 << 62, longestSlowStep},
	} {
		require.Equal(t, c.want, c.r.of(c.t), "%v of %v", c.r, c.t)
	}
	// Two steps in flight, each with the most noise, end before the clock does.
	require.Positive(t, simtime.Horizon+2*(longestSlowStep+longestSlowStep/2)+simtime.Horizon/8)
}

// A step's bound is one: no work within the limits takes longer.
func TestLongestStep(t *testing.T) {
	c := CostModel{
		Decode: []simtime.Time{5 * simtime.Second, 3 * simtime.Second}, PerDecode: simtime.Second,
		PerDecodeContext: simtime.Millisecond, PerSharedContext: simtime.Microsecond,
		Base: simtime.Second, PerPrefillToken: 1e12, PerLongToken: 1e11, PerPrefillTokenContext: 1e9,
	}
	l := Limits{MaxNumSeqs: 4, MaxBatchedTokens: 100, MaxModelLen: 1000}
	// 5 of a table's entry, 1 of Base, 4 of sequences beyond the table, 4000 tokens
	// in memory at 1 ms; 100 tokens at 1.1 ms, 100,000 pairs at 1 us.
	require.InDelta(t, 5+1+4+4+0.11+0.1, c.LongestStep(l), 1e-9)
	rapid.Check(t, func(t *rapid.T) {
		var w Work
		left := l.MaxBatchedTokens
		for range rapid.IntRange(0, l.MaxNumSeqs).Draw(t, "sequences") {
			n := rapid.IntRange(0, left).Draw(t, "prompt tokens")
			if n == 0 {
				context := rapid.IntRange(1, l.MaxModelLen).Draw(t, "context")
				w.AddDecode(context, rapid.IntRange(0, context).Draw(t, "shared"))
				continue
			}
			w.AddPrefill(rapid.IntRange(0, l.MaxModelLen-n).Draw(t, "start"), n)
			left -= n
		}
		require.LessOrEqual(t, c.Step(&w).Seconds(), c.LongestStep(l))
	})
}
