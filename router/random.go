package router

import (
	"math/rand/v2"

	"fleetsim/simtime"
)

func init() {
	Register("random", func(Settings, Options) (Policy, error) { return randomPolicy{}, nil })
}

// randomPolicy takes any pod with the same chance.
type randomPolicy struct{}

func (randomPolicy) Route(_ simtime.Time, _ *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	return Decision{Pod: rng.IntN(len(pods))}, nil
}

// draw is one of the candidates, each with the same chance. It draws nothing
// when there is one.
func draw(rng *rand.Rand, candidates []int) int {
	if len(candidates) == 1 {
		return candidates[0]
	}
	return candidates[rng.IntN(len(candidates))]
}

// ReadsMetrics is false.
func (randomPolicy) ReadsMetrics() bool { return false }
