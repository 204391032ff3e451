package sim

import (
	"context"

	"fleetsim/model/profiles"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// RunScenario runs the scenario in a file, or the embedded one of that name,
// under each of its policies, all on the same arrivals, and returns their records
// in the order of the policies. Each of sets changes one key before the scenario
// is checked, "path.to.key=value". It is `sim run` for a program of one's own,
// which may have registered policies of its own with package router.
//
// The error is scenario.Problems when the scenario was found but is wrong.
func RunScenario(nameOrPath string, sets ...string) ([]*record.Phase, error) {
	sc, err := scenario.LoadWith(nameOrPath, sets)
	if err != nil {
		return nil, err
	}
	p, err := profiles.Load(sc.Profile)
	if err != nil {
		return nil, err
	}
	setups := make([]Setup, len(sc.Policies))
	for i, policy := range sc.Policies {
		setups[i] = Setup{Scenario: sc, Profile: p, Policy: policy, Seed: sc.Seed}
	}
	return RunAll(context.Background(), setups, 0, nil)
}
