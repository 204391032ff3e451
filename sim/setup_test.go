package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
)

// The profile's own blocks count for all replicas together, as the scenario's do.
func TestLimitsBoundTheBlocksOfAllReplicas(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	p.Limits.Blocks = 1 << 24
	for replicas, want := range map[string]string{
		"cluster.replicas=4": "",
		"cluster.replicas=5": "engine.blocks is 16777216, which for up to 5 replicas makes 83886080; allowed: at most 67108864 in all, so 13421772 each",
	} {
		sc, err := scenario.LoadWith("hot90", []string{replicas})
		require.NoError(t, err)
		if _, err = Limits(p, sc); want == "" {
			require.NoError(t, err)
			continue
		}
		require.EqualError(t, err, want)
	}
}
