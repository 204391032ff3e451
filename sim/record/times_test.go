package record

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A sketch's quantiles are within 0.1% of the exact ones, however the values are
// spread, and whether they were added to one sketch or to two that were merged.
func TestSketchAgainstExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		values := rapid.SliceOfN(rapid.OneOf(
			rapid.Float64Range(0, 1e4), rapid.Float64Range(1e-6, 1e-2), rapid.Just(0.0),
		), 1, 3*few).Draw(t, "values")
		var exact, one, a, b times
		for i, v := range values {
			exact.add(Some(v), false)
			one.add(Some(v), true)
			if i%2 == 0 {
				a.add(Some(v), true)
			} else {
				b.add(Some(v), true)
			}
		}
		a.merge(&b)
		require.Equal(t, one.percentiles(), a.percentiles())
		want, got := exact.percentiles(), one.percentiles()
		require.Equal(t, want.N, got.N)
		for _, c := range []struct{ want, got Float }{{want.P50, got.P50}, {want.P95, got.P95}, {want.P99, got.P99}} {
			w := c.want.Or(-1)
			require.InDelta(t, w, c.got.Or(-1), 0.001*w+1e-8)
		}
	})
}

// A summary does not depend on the order in which records come, and a sketched one
// is within 0.1% of it.
func TestSummaryOfRecordsInAnyOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		reqs := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Request {
			r := Request{
				Result: rapid.SampledFrom([]string{OK, OK, OK, Dropped, Failed}).Draw(t, "result"),
				Tenant: rapid.SampledFrom([]string{"A", "B"}).Draw(t, "tenant"),
				TTFT:   Some(rapid.Float64Range(0.01, 5).Draw(t, "ttft")),
				E2E:    Some(rapid.Float64Range(5, 50).Draw(t, "e2e")),
				Family: Some(rapid.IntRange(0, 3).Draw(t, "family")), Replica: "r",
				OutputTokens: Some(rapid.IntRange(1, 9).Draw(t, "output")), HTTPStatus: Some(200),
			}
			return r
		}), 0, 40).Draw(t, "requests")
		for i := range reqs {
			reqs[i].Index, reqs[i].Started = Some(i), Some(float64(i))
		}
		forward, backward, sketched := NewSummary(StudySLO()), NewSummary(StudySLO()), NewSketch(StudySLO())
		for i := range reqs {
			forward.Add(&reqs[i])
			backward.Add(&reqs[len(reqs)-1-i])
			sketched.Add(&reqs[i])
		}
		want, err := forward.Phase(Meta{}).MarshalJSON()
		require.NoError(t, err)
		got, err := backward.Phase(Meta{}).MarshalJSON()
		require.NoError(t, err)
		require.JSONEq(t, string(want), string(got))
		a, b := forward.Phase(Meta{}), sketched.Phase(Meta{})
		require.Equal(t, a.Good, b.Good)
		if v, ok := a.TTFT.P95.Get(); ok {
			require.InEpsilon(t, v, b.TTFT.P95.Or(-1), 0.001)
		}
	})
}
