package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
)

// benchmark reports the cost of one request of the scenario.
func benchmark(b *testing.B, policy string, sets ...string) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(b, err)
	sc := load(b, sets...)
	requests, steps, events := 0, 0, 0
	b.ReportAllocs()
	for b.Loop() {
		phase, err := Run(Setup{Scenario: sc, Profile: p, Policy: policy, Seed: 1})
		require.NoError(b, err)
		requests += phase.Planned.Or(0)
		steps += phase.Steps.Or(0)
		events += phase.Events.Or(0)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(requests), "ns/request")
	b.ReportMetric(float64(requests)/b.Elapsed().Seconds(), "requests/s")
	b.ReportMetric(float64(steps)/float64(requests), "steps/request")
	b.ReportMetric(float64(events)/float64(requests), "events/request")
}

func BenchmarkHot90PrefixCache(b *testing.B) { benchmark(b, "prefix-cache") }

func BenchmarkHot90Long(b *testing.B) {
	benchmark(b, "prefix-cache", "workload.requests=10000")
}

// The production study's load on two replicas: unique prompts of about 518
// tokens, 128 output tokens.
func BenchmarkWave(b *testing.B) {
	benchmark(b, "least-request", "workload.requests=10000", "workload.prompt.families=0", "workload.prompt.hot_fraction=0",
		"workload.prompt.body_repeat=30", "workload.prompt.salt_tokens=0", "workload.prompt.salt_tokens_spread=0",
		"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}")
}
