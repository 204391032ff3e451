package model

import (
	"fmt"
	"math"
	"math/rand/v2"

	"fleetsim/simtime"
)

// Noise is how step times scatter around the cost model. The zero Noise is none.
type Noise struct {
	// StepSD is the standard deviation of a step's duration, as a share of it.
	StepSD float64 `toml:"step_sd"`
	// StepCorrelation is the correlation of a step's deviation with that of the
	// step before it, at least 0 and below 1: a first-order autoregression.
	StepCorrelation float64 `toml:"step_correlation"`
	// ReplicaSD is the standard deviation between replicas of the logarithm of
	// their speed, which each keeps for a run.
	ReplicaSD float64 `toml:"replica_sd"`
	// Source says what the figures come from.
	Source string `toml:"source"`
}

// faults are what is wrong with the noise, each by its key in a profile.
func (n Noise) faults() []Fault {
	var faults []Fault
	bad := func(key string, value float64, allowed string) {
		faults = append(faults, Fault{key, fmt.Sprintf("%s = %v: allowed is %s", key, value, allowed)})
	}
	if !(n.StepSD >= 0 && n.StepSD <= 0.2) {
		bad("step_sd", n.StepSD, "0 to 0.2")
	}
	if c := n.StepCorrelation; !(c >= 0 && c < 1) {
		bad("step_correlation", c, "0 up to but not 1")
	}
	if !(n.ReplicaSD >= 0 && n.ReplicaSD <= 0.2) {
		bad("replica_sd", n.ReplicaSD, "0 to 0.2")
	}
	return faults
}

// jitter draws the deviations of one replica.
type jitter struct {
	Noise
	rng     *rand.Rand
	replica float64 // deviation of all its steps
	step    float64 // of the latest step, without the replica's
}

// maxDeviation keeps a draw from making a step end before it begins.
const maxDeviation = 0.5

func newJitter(n Noise, rng *rand.Rand) *jitter {
	return &jitter{Noise: n, rng: rng, replica: float64(n.ReplicaSD * rng.NormFloat64())}
}

// of is a step's duration with its deviation; a nil jitter changes nothing.
func (j *jitter) of(t simtime.Time) simtime.Time {
	if j == nil {
		return t
	}
	return j.draw(t)
}

// draw is t with the next step's deviation. Products are rounded to float64 one by
// one, so that no machine fuses them with the sums.
func (j *jitter) draw(t simtime.Time) simtime.Time {
	c := j.StepCorrelation
	fresh := float64(j.StepSD * j.rng.NormFloat64())
	j.step = float64(c*j.step) + float64(math.Sqrt(1-float64(c*c))*fresh)
	e := min(max(j.replica+j.step, -maxDeviation), maxDeviation)
	return t + simtime.Time(math.Round(float64(float64(t)*e)))
}

// SetNoise makes the steps scheduled from now on scatter by n, with chance from
// rng. The replica must be idle. It then takes every step by itself, since no
// two are alike.
func (r *Replica) SetNoise(n Noise, rng *rand.Rand) {
	r.jitter = nil
	if n.StepSD > 0 || n.ReplicaSD > 0 {
		r.jitter = newJitter(n, rng)
	}
}
