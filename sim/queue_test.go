package sim

import (
	"cmp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
)

// Whatever order events are put in, they come out by time, kind and id.
func TestQueueOrder(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type what struct {
			at   simtime.Time
			kind kind
			id   int
		}
		planned := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) what {
			return what{
				simtime.Time(rapid.IntRange(0, 5).Draw(t, "at")),
				kind(rapid.IntRange(0, int(evSnapshot)).Draw(t, "kind")),
				rapid.SampledFrom([]int{0, 1, 7, 1 << 40}).Draw(t, "id"),
			}
		}), 0, 60).Draw(t, "events")
		var q eventQueue
		for _, w := range planned {
			q.push(newEvent(w.at, w.kind, w.id, nil))
		}
		slices.SortFunc(planned, func(a, b what) int {
			return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind), cmp.Compare(a.id, b.id))
		})
		for _, want := range planned {
			e := q.pop()
			require.Equal(t, want, what{e.at, e.kind(), e.id()})
		}
		require.Empty(t, q)
	})
}

// The first step end is the earliest, of equals the first replica's, while ends are
// put forward and back and replicas come.
func TestFirstStepEnd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ends := newStepEnds(rapid.IntRange(0, 9).Draw(t, "room"))
		times := make([]simtime.Time, 20)
		for i := range times {
			times[i] = simtime.Never
		}
		for range rapid.IntRange(0, 80).Draw(t, "changes") {
			id := rapid.IntRange(0, len(times)-1).Draw(t, "replica")
			times[id] = rapid.SampledFrom([]simtime.Time{1, 2, 3, 4, simtime.Never}).Draw(t, "at")
			ends.set(id, times[id])
			first := ends.first()
			least := slices.Min(times)
			require.Equal(t, least, first.at)
			if least < simtime.Never {
				require.Equal(t, slices.Index(times, least), first.replica)
			}
		}
	})
}
