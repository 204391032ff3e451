package plan

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/workload"
)

// The plan is what the simulator's client sends: every embedded open-loop
// scenario, request by request.
func TestPlanIsTheSimulators(t *testing.T) {
	planned := 0
	for _, name := range scenario.Names() {
		sc, err := scenario.Load(name)
		require.NoError(t, err)
		if sc.Workload.Arrivals == nil || sc.Workload.Requests > 10_000 {
			continue
		}
		profile, err := profiles.Load(sc.Profile)
		require.NoError(t, err)
		sent := make(map[int]record.Request)
		phase, err := sim.Run(sim.Setup{Scenario: sc, Profile: profile, Policy: sc.Policies[0], Seed: sc.Seed,
			Each: func(r *record.Request) { sent[r.Index.Or(-1)] = *r }})
		require.NoError(t, err, name)
		p, err := New(sc, sc.Seed)
		require.NoError(t, err)
		for r, ok := p.Next(); ok; r, ok = p.Next() {
			s, ok := sent[r.Index]
			require.True(t, ok, "%s: request %d", name, r.Index)
			require.Equal(t, s.Started.Or(-1), r.At.Seconds(), name)
			require.Equal(t, s.Tenant, r.Tenant)
			require.Equal(t, s.Family.Or(-1), r.Family)
			require.Equal(t, s.RequestedOutput.Or(-1), r.Output)
			if tokens, ok := s.InputTokens.Get(); ok {
				require.Equal(t, tokens, r.Prompt.Len(workload.Tokens), name)
			}
			planned++
		}
		require.Equal(t, phase.Planned.Or(-1), p.Count(), name)
	}
	require.Positive(t, planned)
}

func TestClosedLoop(t *testing.T) {
	sc, err := scenario.Load("cache-online")
	require.NoError(t, err)
	p, err := New(sc, 1)
	require.NoError(t, err)
	require.Equal(t, 4, p.Closed().Concurrency)
	first, second := p.At(0), p.At(7)
	require.Equal(t, []int{0, 1, 0, 0, 64}, []int{first.Index, second.Index, first.Family, second.Family, second.Output})
	require.EqualValues(t, 7, second.At)
}

func TestStart(t *testing.T) {
	sc, err := scenario.Load("hot90")
	require.NoError(t, err)
	start := Start(sc, 102)
	cached, indexed := map[string]int{}, map[string]int{}
	for _, p := range start {
		for _, name := range p.Cached {
			cached[name]++
		}
		for _, name := range p.Indexed {
			indexed[name]++
		}
	}
	require.Equal(t, map[string]int{"L20-A": 4 + 3, "L20-B": 4 + 5}, cached)
	require.Equal(t, map[string]int{"L20-A": 4, "L20-B": 4}, indexed)
	cold, err := scenario.Load("cold-uniform")
	require.NoError(t, err)
	require.Empty(t, Start(cold, 102))
}

func TestNoPlan(t *testing.T) {
	_, err := New(&scenario.Scenario{Workload: scenario.Workload{Trace: &scenario.Trace{}}}, 1)
	require.ErrorIs(t, err, ErrTrace)
	_, err = New(&scenario.Scenario{}, 1)
	require.ErrorContains(t, err, "no load")
}
