package sim

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
	"fleetsim/sim/record"
)

// A run gives the same records whatever its runner has run before: longer prompts,
// requests that were cut off, other policies and tenants.
func TestRunnerForgets(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	setups := []Setup{
		{Scenario: load(t), Policy: "prefix-cache"},
		{Scenario: load(t, wave...), Policy: "least-request"},
		{Scenario: load(t, "workload.cancel.fraction=0.3", "workload.cancel.after=3s"), Policy: "random"},
		{Scenario: load(t, of(fleet64, "workload.requests=300")...), Policy: "prefix-cache"},
	}
	records := func(n *Runner, s Setup) []string {
		var lines []string
		s.Profile, s.Seed = p, 7
		s.Each = func(r *record.Request) { lines = append(lines, string(r.AppendJSON(nil))) }
		phase, err := n.Run(s)
		require.NoError(t, err)
		line, err := json.Marshal(phase)
		require.NoError(t, err)
		return append(lines, string(line))
	}
	var runner Runner
	for range 2 {
		for _, s := range setups {
			require.Equal(t, records(new(Runner), s), records(&runner, s))
		}
	}
}
