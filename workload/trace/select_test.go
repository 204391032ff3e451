package trace

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/random"
	"fleetsim/simtime"
)

func selected(t *testing.T, s Selection, rows Rows) []Row {
	t.Helper()
	out, err := s.Apply(rows, random.Stream(1, "select"))
	require.NoError(t, err)
	return collect(t, out)
}

func TestSelectionInOrder(t *testing.T) {
	in := rowsAt(0, 1, 2, 3, 4, 5, 6, 7)
	require.Len(t, selected(t, Selection{}, in), 8)
	// The window first, on the source's clock; then the rate; the head of what is left.
	got := selected(t, Selection{From: 2 * simtime.Second, To: 7 * simtime.Second, Rate: 2, Head: 3}, in)
	require.Equal(t, []float64{0, 0.5, 1}, seconds(got))

	named := apply(in, func(row *Row) (bool, bool) {
		row.Tenant, row.Phase = []string{"a", "b"}[row.Index%2], []string{"p", "q"}[row.Index/4]
		return true, false
	})
	require.Equal(t, []float64{5, 7}, seconds(selected(t, Selection{Tenant: "b", Phase: "q"}, named)))
	for _, row := range selected(t, Selection{Tenants: []TenantShare{{"c", 1}}}, named) {
		require.Equal(t, "c", row.Tenant)
	}
}

func TestSelectionOfSessions(t *testing.T) {
	in := apply(rowsAt(0, 1, 2), func(row *Row) (bool, bool) {
		row.Session, row.Wait = "s", row.Index == 2
		return true, false
	})
	waits := func(mode SessionMode) (list []bool) {
		for _, row := range selected(t, Selection{Sessions: mode, Think: simtime.Second}, in) {
			list = append(list, row.Wait)
		}
		return list
	}
	require.Equal(t, []bool{false, false, true}, waits(Recorded))
	require.Equal(t, []bool{false, false, false}, waits(Replayed))
	require.Equal(t, []bool{false, true, true}, waits(Waiting))
	require.Equal(t, Some(simtime.Second), selected(t, Selection{Sessions: Waiting, Think: simtime.Second}, in)[1].Think)
}

func TestSelectionErrors(t *testing.T) {
	for _, s := range []Selection{{Thin: 2}, {Sample: -1}, {Rate: math.NaN()}, {UntimedRate: -1}, {Tenants: []TenantShare{{"a", 0}}}} {
		_, err := s.Apply(rowsAt(0), random.Stream(1, "select"))
		require.Error(t, err, "%+v", s)
	}
}

func TestLocated(t *testing.T) {
	_, err := NewPrompter(0).Request(&Row{Line: 3, InputTokens: 1, OutputTokens: 1})
	require.EqualError(t, err, "line 3: no arrival time")
	require.EqualError(t, Located("a.csv", err), "a.csv:3: no arrival time")
	require.EqualError(t, Located("b.csv", Located("a.csv", err)), "a.csv:3: no arrival time")
	other := errors.New("other")
	require.Equal(t, other, Located("a.csv", other))
}
