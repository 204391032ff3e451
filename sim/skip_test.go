package sim

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model/profiles"
	"fleetsim/sim/record"
)

// Skipping over steady steps and taking each by itself give identical records
// and timelines, byte for byte, whatever the scenario.
func TestSkippingEqualsStepping(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		sc := load(t,
			fmt.Sprintf("workload.requests=%d", rapid.IntRange(1, 40).Draw(t, "requests")),
			fmt.Sprintf("workload.arrivals.rate_per_second=%d", rapid.SampledFrom([]int{1, 2, 5, 50}).Draw(t, "rate")),
			fmt.Sprintf("workload.arrivals.process=%q", rapid.SampledFrom([]string{"constant", "poisson"}).Draw(t, "process")),
			fmt.Sprintf("workload.output_tokens=%d", rapid.SampledFrom([]int{1, 2, 3, 100, 1700}).Draw(t, "output")),
			fmt.Sprintf("workload.prompt.body_repeat=%d", rapid.SampledFrom([]int{1, 80, 300, 1600}).Draw(t, "repeat")),
			fmt.Sprintf("workload.prompt.families=%d", rapid.SampledFrom([]int{0, 1, 8}).Draw(t, "families")),
			fmt.Sprintf("engine.blocks=%d", rapid.SampledFrom([]int{40, 60, 181}).Draw(t, "blocks")),
			fmt.Sprintf("engine.max_num_seqs=%d", rapid.SampledFrom([]int{1, 3, 8, 20}).Draw(t, "max_num_seqs")),
			fmt.Sprintf("engine.async_scheduling=%t", rapid.Bool().Draw(t, "async")),
			fmt.Sprintf("engine.prefix_caching=%t", rapid.Bool().Draw(t, "caching")),
			fmt.Sprintf("observe.snapshot_interval=\"%dms\"", rapid.SampledFrom([]int{7, 500, 5000}).Draw(t, "interval")),
			"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}",
			"workload.prompt.hot_fraction=0",
		)
		setup := Setup{Scenario: sc, Profile: p, Seed: rapid.Uint64().Draw(t, "seed"),
			Policy: rapid.SampledFrom([]string{"random", "least-request", "prefix-cache"}).Draw(t, "policy")}
		stepped, skipped := setup, setup
		stepped.Stepwise = true
		require.Equal(t, trace(t, stepped), trace(t, skipped))
	})
}

// trace is everything that a run gives, but for the number of events that it
// took.
func trace(t require.TestingT, s Setup) []string {
	var lines []string
	s.Each = func(r *record.Request) { lines = append(lines, string(r.AppendJSON(nil))) }
	s.Sample = func(g Sample) { lines = append(lines, string(g.AppendJSON(nil))) }
	phase, err := Run(s)
	require.NoError(t, err)
	phase.Events = record.Int{}
	out, err := json.Marshal(phase)
	require.NoError(t, err)
	return append(lines, string(out))
}
