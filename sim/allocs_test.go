package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
)

// Once caches, queues and indexes have their size, a request leaves nothing to the
// garbage collector.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	for _, tt := range []struct {
		name, policy string
		sets         []string
	}{
		{"unique prompts", "least-request", wave},
		{"families", "prefix-cache", nil},
		{"families and metrics", "least-kv-cache", []string{"router.metrics_delay=20ms"}},
		{"a fleet", "prefix-cache", of(fleet64, "cluster.replicas=16", "workload.arrivals.rate_per_second=12", "workload.prompt.families=50")},
	} {
		t.Run(tt.name, func(t *testing.T) {
			sc := load(t, of(tt.sets, "workload.requests=1000000")...)
			r, err := newRun(Setup{Scenario: sc, Profile: p, Policy: tt.policy, Seed: 1, Sketch: true})
			require.NoError(t, err)
			r.start()
			send := func(requests int) {
				for last := r.client.planned + requests; r.client.planned < last; {
					r.step()
				}
			}
			send(20_000)
			require.Zero(t, testing.AllocsPerRun(50, func() { send(100) }), "a hundred requests")
		})
	}
}
