package trace

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/random"
	"fleetsim/simtime"
)

func summarize(t *testing.T, r *Reader, opts InfoOptions) Summary {
	t.Helper()
	info := NewInfo(opts)
	for row, err := range r.Rows() {
		require.NoError(t, err)
		info.Add(&row)
	}
	return info.Summary()
}

func TestInfoByHand(t *testing.T) {
	const text = `{"timestamp": 0, "input_length": 1024, "output_length": 10, "hash_ids": [0, 1]}
{"timestamp": 1000, "input_length": 1024, "output_length": 20, "hash_ids": [0, 2]}
{"timestamp": 1000, "input_length": 1024, "output_length": 30, "hash_ids": [0, 1]}
{"timestamp": 4000, "input_length": 100, "output_length": 40, "hash_ids": [9]}
`
	s := summarize(t, openText(t, text, Options{}), InfoOptions{})
	require.Equal(t, 4, s.Rows)
	require.Equal(t, 4.0, s.Span)
	require.Equal(t, 0.75, *s.Rate)
	// Gaps 1, 0, 3: mean 4/3, variance 14/9.
	require.InDelta(t, 0.9354, *s.GapCV, 1e-4)
	require.InDelta(t, 1.0/3, *s.Simultaneous, 1e-12)
	require.Equal(t, []int{1, 2, 0, 0, 1}, s.RateOverTime)
	require.Equal(t, 1.0, s.BucketSeconds)
	// Sorted 100, 1024, 1024, 1024: p50 between the second and the third.
	require.Equal(t, &LengthSummary{Min: 100, P50: 1024, P90: 1024, P95: 1024, P99: 1024, Max: 1024, Mean: 793}, s.Input)
	// 10, 20, 30, 40 at (n-1)q = 1.5, 2.7, 2.85 and 2.97.
	require.InDelta(t, 25, s.Output.P50, 1e-9)
	require.InDelta(t, 37, s.Output.P90, 1e-9)
	require.InDelta(t, 38.5, s.Output.P95, 1e-9)
	require.InDelta(t, 39.7, s.Output.P99, 1e-9)
	// The second finds block 0 (512 tokens); the third everything but the last
	// 16-token block, which an engine never takes whole.
	require.InDelta(t, (512+1024-16)/3172.0, *s.HitRatioBound, 1e-12)
	require.False(t, s.Sampled)
	require.Empty(t, s.Warnings)
	// Reuse after 1 s (block 0, second row), 0 s (block 0, third) and 1 s (block 1).
	require.InDelta(t, 1, s.ReuseTime.P90, 0.09)

	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.Contains(t, string(data), `"measured_hit_ratio":null`)
	require.Contains(t, s.String(), "hit ratio, at most     0.4792 of the prompt tokens")
}

func TestInfoOfNothing(t *testing.T) {
	s := NewInfo(InfoOptions{}).Summary()
	require.Nil(t, s.Rate)
	require.Nil(t, s.GapCV)
	require.Nil(t, s.HitRatioBound)
	require.Nil(t, s.Input)
	data, err := json.Marshal(s)
	require.NoError(t, err)
	require.NotContains(t, string(data), "NaN")
	require.NotEmpty(t, s.String())
}

// TestSharedPartialBlocks: the last block of two equal prompts is shared though it
// is partial, yet at most all but one token are found.
func TestSharedPartialBlocks(t *testing.T) {
	line := `{"timestamp": 0, "input_length": 1902, "output_length": 9, "hash_ids": [0, 975, 976, 977]}` + "\n"
	s := summarize(t, openText(t, line+line, Options{}), InfoOptions{})
	require.InDelta(t, 1901/16*16/(2*1902.0), *s.HitRatioBound, 1e-12)
	s = summarize(t, openText(t, line+line, Options{}), InfoOptions{EngineBlock: 1})
	require.InDelta(t, 1901/(2*1902.0), *s.HitRatioBound, 1e-12)
}

func TestMooncakeSampleBound(t *testing.T) {
	const file = "../../../shared/samples/mooncake/conversation_excerpt.jsonl"
	if _, err := os.Stat(file); err != nil {
		t.Skip("the shared samples are not beside the checkout")
	}
	s := summarize(t, openFile(t, file, Options{}), InfoOptions{})
	// All 12 rows after the first share block 0; [0, 1541 … 1544] comes again whole,
	// [0, 820] too, and the row at 90 s is that at 12 s again, less the last token.
	want := 12*512 + 4*512 + 512 + (1901/16*16 - 512)
	require.InDelta(t, float64(want)/46593, *s.HitRatioBound, 1e-12)
}

// TestReuseTrackerIsExact compares with counting by hand.
func TestReuseTrackerIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := rapid.IntRange(4, 9).Draw(t, "limit")
		tracker := newReuseTracker(limit)
		var history []uint64
		uses := rapid.SliceOfN(rapid.IntRange(1, limit), 0, 100).Draw(t, "uses")
		for i, b := range uses {
			hash := uint64(b)
			got := tracker.use(hash, simtime.Time(i))
			want := reuse{followed: true, weight: 1}
			between := map[uint64]bool{}
			for j := len(history) - 1; j >= 0; j-- {
				if history[j] == hash {
					want.again, want.between, want.after = true, float64(len(between)), simtime.Time(i-j)
					break
				}
				between[history[j]] = true
			}
			if got != want {
				t.Fatalf("use %d of %v: %+v, want %+v", i, uses, got, want)
			}
			history = append(history, hash)
		}
	})
}

// zipfTrace is prompts of one to four blocks from a long-tailed set.
func zipfTrace(n int) Rows {
	return func(yield func(Row, error) bool) {
		rng := random.Stream(5, "zipf")
		z := rand.NewZipf(rng, 1.2, 4, 20_000)
		for i := range n {
			ids := []uint64{0}
			for range rng.IntN(4) {
				ids = append(ids, 1+z.Uint64())
			}
			row := Row{Index: i, At: simtime.Time(i) * simtime.Second, Timed: true, InputTokens: 64 * len(ids), OutputTokens: 1, HashIDs: ids, BlockTokens: 64}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// TestSampledReuseIsNearTheExact: with a small share of the blocks the estimates
// stay close.
func TestSampledReuseIsNearTheExact(t *testing.T) {
	look := func(blocks int) Summary {
		info := NewInfo(InfoOptions{MaxBlocks: blocks})
		for row := range zipfTrace(30_000) {
			info.Add(&row)
		}
		return info.Summary()
	}
	exact, sampled := look(1<<20), look(4096)
	require.False(t, exact.Sampled)
	require.True(t, sampled.Sampled)
	require.Less(t, sampled.SampleShare, 0.1)
	require.InDelta(t, *exact.HitRatioBound, *sampled.HitRatioBound, 0.02)
	require.InEpsilon(t, exact.ReuseDistance.P90, sampled.ReuseDistance.P90, 0.25)
}

func TestRateBucketsDouble(t *testing.T) {
	var b rateBuckets
	for i := range 1000 {
		b.add(simtime.Time(i) * simtime.Second)
	}
	require.Equal(t, 16*simtime.Second, b.width)
	total := 0
	for i, n := range b.counts {
		if i < len(b.counts)-1 {
			require.Equal(t, 16, n)
		}
		total += n
	}
	require.Equal(t, 1000, total)
	b = rateBuckets{}
	b.add(0)
	b.add(1000 * simtime.Hour)
	require.Equal(t, 2, b.counts[0]+b.counts[len(b.counts)-1])
	require.LessOrEqual(t, len(b.counts), maxBuckets)
}

func TestLengthQuantilesAreThoseOfTheSortedList(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.IntRange(1, 20), 1, 50).Draw(t, "lengths")
		l := lengths{}
		sum := 0
		for _, v := range values {
			l[v]++
			sum += v
		}
		got := l.summary()
		sorted := append([]int(nil), values...)
		for i := range sorted {
			for j := i; j > 0 && sorted[j] < sorted[j-1]; j-- {
				sorted[j], sorted[j-1] = sorted[j-1], sorted[j]
			}
		}
		pos := float64(len(sorted)-1) * 0.9
		low := int(pos)
		high := min(low+1, len(sorted)-1)
		want := float64(sorted[low]) + (pos-float64(low))*float64(sorted[high]-sorted[low])
		if diff := got.P90 - want; diff > 1e-9 || diff < -1e-9 {
			t.Fatalf("p90 of %v: %v, want %v", sorted, got.P90, want)
		}
		if got.Min != sorted[0] || got.Max != sorted[len(sorted)-1] || got.Mean != float64(sum)/float64(len(sorted)) {
			t.Fatalf("%+v of %v", got, sorted)
		}
	})
}

func TestTenantsAreCounted(t *testing.T) {
	info := NewInfo(InfoOptions{})
	for i := range 5 {
		info.Add(&Row{Tenant: fmt.Sprint("t", i%2), Timed: true, InputTokens: 1, OutputTokens: 1, Wait: i == 0, Session: "s"})
	}
	s := info.Summary()
	require.Equal(t, map[string]int{"t0": 3, "t1": 2}, s.Tenants)
	require.Equal(t, 1, s.Sessions)
	require.Equal(t, 5, s.SessionRows)
	require.Equal(t, 1, s.ClosedLoopRows)
	require.Contains(t, s.String(), "tenant t0              3\n")
}
