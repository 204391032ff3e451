package sim

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// shared is a closed loop about one long document on two replicas.
func shared(t require.TestingT, sets ...string) *scenario.Scenario {
	sc, err := scenario.LoadWith("cache-online", append([]string{`workload.closed_loop.duration="2s"`}, sets...))
	require.NoError(t, err)
	return sc
}

// inChain runs the setups and returns their phases and requests.
func inChain(t *testing.T, setups ...Setup) ([]*record.Phase, [][]record.Request) {
	requests := make([][]record.Request, len(setups))
	for i := range setups {
		setups[i].Seed = 1
		setups[i].Each = func(r *record.Request) { requests[i] = append(requests[i], *r) }
	}
	phases, err := RunAll(context.Background(), setups, 1, nil)
	require.NoError(t, err)
	return phases, requests
}

// A phase that continues another finds its caches warm, its families the same,
// its questions new, and its own figures at 0.
func TestContinue(t *testing.T) {
	sc, p := shared(t), even(t)
	phases, requests := inChain(t,
		Setup{Phase: "a", Scenario: sc, Profile: p, Policy: "least-request"},
		Setup{Phase: "b", Scenario: sc, Profile: p, Policy: "least-request", Continue: true},
		Setup{Phase: "c", Scenario: sc, Profile: p, Policy: "least-request"})
	cold := 0
	for _, r := range requests[0] {
		if r.CachedTokens == record.Some(0) {
			cold++
		}
	}
	require.Equal(t, 2, cold, "one on each replica")
	for _, r := range requests[1] {
		require.Equal(t, record.Some(4704), r.CachedTokens, "the document, not the question")
		require.Less(t, value(t, r.Started), 2.0, "times count from the phase's own beginning")
	}
	require.Equal(t, record.Some(0), requests[1][0].Index)
	require.Len(t, phases[1].Replicas, 2)
	queries := 0
	for _, r := range requests[1] {
		queries += r.InputTokens.Or(0)
	}
	require.Equal(t, queries, phases[1].Replicas[0].CacheQueriesTokens.Or(0)+phases[1].Replicas[1].CacheQueriesTokens.Or(0))
	require.Less(t, value(t, phases[1].Elapsed), 4.0)
	phases[2].Phase = "a"
	require.Equal(t, phases[0], phases[2], "the third begins anew")
}

// prefix-cache's index outlives phases under other policies, which do not feed
// it: what only least-request has sent is unknown to it, what it has sent itself
// is known.
func TestIndexOutlivesOtherPolicies(t *testing.T) {
	sc, p := shared(t), even(t)
	var setups []Setup
	for i, policy := range []string{"least-request", "prefix-cache", "least-request", "prefix-cache"} {
		setups = append(setups, Setup{Phase: policy, Scenario: sc, Profile: p, Policy: policy, Continue: i > 0})
	}
	phases, requests := inChain(t, setups...)
	count := func(i int, selection string) (n int) {
		for _, r := range requests[i] {
			if r.Selection == selection {
				n++
			}
		}
		return n
	}
	require.Equal(t, 1, count(1, "least_request_fallback"), "the first has no match")
	require.Equal(t, 0, count(3, "least_request_fallback"))
	require.Empty(t, phases[2].RoutingCounterDeltas)
	sum := 0.0
	for _, d := range phases[3].RoutingCounterDeltas {
		if d.Name == "aibrix_prefix_cache_routing_selection_total" {
			sum += d.Delta
		}
	}
	require.Equal(t, float64(len(requests[3])), sum, "counted from the phase's beginning")
}

// What has begun in the cluster goes on in the next phase: a replica that was
// starting becomes ready, one that drains ends.
func TestClusterGoesOn(t *testing.T) {
	sc, p := shared(t, fault("delete", "pod-0", "1s"), `lifecycle.model_load.mean="3s"`, `drain.shutdown_timeout="60s"`), even(t)
	next := shared(t, `workload.closed_loop.duration="5s"`)
	next.Faults = []scenario.Fault{{At: sc.Faults[0].At, Kind: "slow", Replica: "pod-2", Factor: 1}}
	phases, requests := inChain(t,
		Setup{Phase: "a", Scenario: sc, Profile: p, Policy: "random"},
		Setup{Phase: "b", Scenario: next, Profile: p, Policy: "random", Continue: true})
	require.Equal(t, []string{"pod-0", "pod-1"}, names(phases[0]))
	require.Equal(t, []string{"pod-1", "pod-2"}, names(phases[1]))
	require.Equal(t, record.Some(0), phases[1].Failed)
	ready := member[ScalingSummary](t, phases[1], "scaling").Changes
	require.Equal(t, []int{1, 2}, []int{ready[0].Ready, ready[1].Ready})
	first := 100.0
	for _, r := range requests[1] {
		if r.Replica == "pod-2" {
			first = min(first, value(t, r.Started))
		}
	}
	require.GreaterOrEqual(t, first, ready[1].At)
}

func names(p *record.Phase) []string {
	var out []string
	for _, rep := range p.Replicas {
		out = append(out, rep.Name)
	}
	return out
}

// The first of a list has nothing to continue.
func TestContinueNothing(t *testing.T) {
	_, err := RunAll(context.Background(), []Setup{{Phase: "a", Scenario: shared(t), Profile: even(t), Policy: "random", Continue: true}}, 1, nil)
	require.ErrorContains(t, err, `"a"`)
}
