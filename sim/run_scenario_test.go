package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/scenario"
)

// RunScenario gives what Run gives, policy by policy.
func TestRunScenario(t *testing.T) {
	phases, err := RunScenario("hot50", "workload.requests=20", `policies=["prefix-cache","random"]`, "seed=7")
	require.NoError(t, err)
	require.Len(t, phases, 2)
	sc, err := scenario.LoadWith("hot50", []string{"workload.requests=20"})
	require.NoError(t, err)
	for i, policy := range []string{"prefix-cache", "random"} {
		want, err := Run(Setup{Scenario: sc, Profile: l20Profile(t), Policy: policy, Seed: 7})
		require.NoError(t, err)
		require.Equal(t, want, phases[i])
	}
}

func TestRunScenarioProblems(t *testing.T) {
	_, err := RunScenario("hot50", "workload.request=20")
	require.IsType(t, scenario.Problems{}, err)
	_, err = RunScenario("hot51")
	require.ErrorContains(t, err, "hot50")
	_, err = RunScenario("hot50", `profile="absent.toml"`)
	require.Error(t, err)
}
