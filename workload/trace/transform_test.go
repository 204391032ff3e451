package trace

import (
	"errors"
	"fmt"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/random"
	"fleetsim/simtime"
)

// rowsAt is a stream of rows at the times, in seconds.
func rowsAt(seconds ...float64) Rows {
	return func(yield func(Row, error) bool) {
		for i, s := range seconds {
			row := Row{Index: i, Line: i + 1, At: simtime.FromSeconds(s), Timed: true, InputTokens: 10, OutputTokens: 1}
			if !yield(row, nil) {
				return
			}
		}
	}
}

func collect(t *testing.T, rows Rows) (list []Row) {
	t.Helper()
	for row, err := range rows {
		require.NoError(t, err)
		list = append(list, row)
	}
	return list
}

func seconds(rows []Row) (s []float64) {
	for i := range rows {
		s = append(s, rows[i].At.Seconds())
	}
	return s
}

func TestWindowHeadScale(t *testing.T) {
	in := rowsAt(0, 1, 2, 3, 4)
	require.Equal(t, []float64{1, 2}, seconds(collect(t, Window(in, simtime.Second, 3*simtime.Second, false))))
	require.Equal(t, []float64{0, 1, 2}, seconds(collect(t, Window(in, 2*simtime.Second, 0, true))))
	require.Equal(t, []float64{0, 1}, seconds(collect(t, Head(in, 2))))
	require.Empty(t, collect(t, Head(in, 0)))

	fast, err := ScaleRate(in, 4)
	require.NoError(t, err)
	require.Equal(t, []float64{0, 0.25, 0.5, 0.75, 1}, seconds(collect(t, fast)))
	for _, bad := range []float64{0, -1, math.NaN(), math.Inf(1)} {
		_, err := ScaleRate(in, bad)
		require.Error(t, err)
		_, err = Thin(in, bad)
		require.Error(t, err)
		_, err = Spaced(in, bad)
		require.Error(t, err)
		_, err = Sample(in, bad, random.Stream(1, "s"))
		require.Error(t, err)
	}
}

func TestSpaced(t *testing.T) {
	untimed := func(yield func(Row, error) bool) {
		for i := range 4 {
			if !yield(Row{Index: i, Timed: i == 2, At: simtime.Time(i) * simtime.Second}, nil) {
				return
			}
		}
	}
	spaced, err := Spaced(untimed, 2)
	require.NoError(t, err)
	require.Equal(t, []float64{0, 1, 2, 3}, seconds(collect(t, spaced)))
	all, err := Spaced(func(yield func(Row, error) bool) {
		for range 3 {
			if !yield(Row{}, nil) {
				return
			}
		}
	}, 2)
	require.NoError(t, err)
	require.Equal(t, []float64{0, 0.5, 1}, seconds(collect(t, all)))
}

func TestTransformationsPassErrorsOn(t *testing.T) {
	failing := func(yield func(Row, error) bool) {
		if yield(Row{Timed: true}, nil) {
			yield(Row{}, errors.New("broken"))
		}
	}
	thin, err := Thin(failing, 0.5)
	require.NoError(t, err)
	for name, rows := range map[string]Rows{"window": Window(failing, 0, 0, false), "head": Head(failing, 9), "thin": thin, "loop": ClosedLoop(failing, 0)} {
		var got error
		for _, err := range rows {
			got = err
		}
		require.EqualError(t, got, "broken", name)
	}
}

// burstyGaps are gamma gaps of mean 1 s with the coefficient of variation cv.
func burstyTrace(n int, cv float64) []float64 {
	rng := random.Stream(7, "bursts")
	// A hyperexponential of two phases, balanced means, has the wanted variation.
	c2 := cv * cv
	p := (1 + math.Sqrt((c2-1)/(c2+1))) / 2
	at, times := 0.0, make([]float64, n)
	for i := range times {
		rate := 2 * p
		if rng.Float64() >= p {
			rate = 2 * (1 - p)
		}
		at += rng.ExpFloat64() / rate
		times[i] = at
	}
	return times
}

func gapCV(t *testing.T, rows Rows) (cv, rate float64, n int) {
	info := NewInfo(InfoOptions{MaxBlocks: 1024})
	for row, err := range rows {
		require.NoError(t, err)
		info.Add(&row)
	}
	s := info.Summary()
	return *s.GapCV, *s.Rate, s.Rows
}

func TestThinKeepsBurstiness(t *testing.T) {
	const cv = 3.0
	times := burstyTrace(100_000, cv)
	whole, wholeRate, _ := gapCV(t, rowsAt(times...))
	require.InDelta(t, cv, whole, 0.1)
	for _, share := range []float64{0.5, 0.25, 0.1} {
		thin, err := Thin(rowsAt(times...), share)
		require.NoError(t, err)
		got, rate, n := gapCV(t, thin)
		require.InDelta(t, share, float64(n)/100_000, 0.01)
		require.InDelta(t, share*wholeRate, rate, 0.03*share*wholeRate)
		require.InDelta(t, whole, got, 0.1*whole, "share %v", share)

		// Dropping rows one by one makes a renewal process with this variation, which
		// is much nearer to a Poisson process's 1.
		sample, err := Sample(rowsAt(times...), share, random.Stream(1, "sample"))
		require.NoError(t, err)
		got, _, _ = gapCV(t, sample)
		require.InDelta(t, math.Sqrt(1+share*(whole*whole-1)), got, 0.15)
	}
}

func TestThinFollowsTheTraceAndItsOrder(t *testing.T) {
	// Twice the rate in the second half.
	var times []float64
	for i := range 10_000 {
		times = append(times, float64(i))
	}
	for i := range 20_000 {
		times = append(times, 10_000+float64(i)/2)
	}
	thin, err := Thin(rowsAt(times...), 0.25)
	require.NoError(t, err)
	rows := collect(t, thin)
	early := 0
	for i, row := range rows {
		if i > 0 {
			require.LessOrEqual(t, rows[i-1].At, row.At)
		}
		if row.At < 10_000*simtime.Second {
			early++
		}
	}
	require.InDelta(t, 2500, early, 256)
	require.InDelta(t, 7500, len(rows), 256)

	all, err := Thin(rowsAt(times...), 1)
	require.NoError(t, err)
	require.Equal(t, times, seconds(collect(t, all)))
	few, err := Thin(rowsAt(times[:13]...), 0.5)
	require.NoError(t, err)
	require.Len(t, collect(t, few), 8, "short traces are thinned in groups of 8")
	// Rows of one instant have no gaps to stretch.
	same, err := Thin(rowsAt(5, 5, 5, 5, 5, 5, 5, 5, 5, 5), 0.5)
	require.NoError(t, err)
	require.Equal(t, []float64{5, 5, 5, 5, 5, 5, 5, 5}, seconds(collect(t, same)))
}

func sessionRows(n, turns int) Rows {
	return func(yield func(Row, error) bool) {
		for i := range n * turns {
			row := Row{Index: i, At: simtime.Time(i) * simtime.Second, Timed: true, Session: fmt.Sprint(i % n), InputTokens: 1, OutputTokens: 1}
			if !yield(row, nil) {
				return
			}
		}
	}
}

func TestSampleKeepsSessionsWhole(t *testing.T) {
	sample, err := Sample(sessionRows(1000, 4), 0.3, random.Stream(3, "sample"))
	require.NoError(t, err)
	turns := map[string]int{}
	for _, row := range collect(t, sample) {
		turns[row.Session]++
	}
	require.InDelta(t, 300, len(turns), 45) // three standard deviations
	for s, n := range turns {
		require.Equal(t, 4, n, s)
	}
}

func TestSplitTenants(t *testing.T) {
	split, err := SplitTenants(sessionRows(3000, 2), []TenantShare{{"a", 3}, {"b", 1}}, random.Stream(3, "tenants"))
	require.NoError(t, err)
	of := map[string]string{}
	count := map[string]int{}
	for _, row := range collect(t, split) {
		if old, ok := of[row.Session]; ok {
			require.Equal(t, old, row.Tenant)
		}
		of[row.Session] = row.Tenant
		count[row.Tenant]++
	}
	require.InDelta(t, 4500, count["a"], 150)
	require.Equal(t, 6000, count["a"]+count["b"])
	require.Len(t, collect(t, OnlyTenant(split, "b")), count["b"])

	_, err = SplitTenants(sessionRows(1, 1), nil, random.Stream(1, "x"))
	require.Error(t, err)
	_, err = SplitTenants(sessionRows(1, 1), []TenantShare{{"a", -1}}, random.Stream(1, "x"))
	require.Error(t, err)
}

func TestOnlyPhase(t *testing.T) {
	r := openFile(t, "testdata/vllm_bench_appended.jsonl", Options{})
	rows := collect(t, OnlyPhase(r.Rows(), "20260815-031500"))
	require.Len(t, rows, 1)
	require.Equal(t, 256, rows[0].InputTokens)
}
