package lifecycle

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// Draw draws a duration. A span without a distribution, or without a deviation
// where it needs one, is constant; exponential takes its deviation from its mean.
// A normal draw below 0 counts as 0, which lifts the mean where the deviation is
// not small against it; no draw is above 30 days.
//
// All but constant durations are whole microseconds, so that the last bit of a
// logarithm, which may differ between machines, does not show.
func Draw(s scenario.Span, rng *rand.Rand) simtime.Time {
	mean, sd := s.Mean.Seconds(), s.SD.Seconds()
	var x float64
	switch s.Distribution {
	case "uniform":
		x = mean + float64(math.Sqrt(3)*sd*(2*rng.Float64()-1))
	case "normal":
		x = mean + float64(sd*rng.NormFloat64())
	case "lognormal":
		// With variance v of the logarithm, mean and deviation of the draw are
		// exp(mu+v/2) and mean*sqrt(exp(v)-1).
		v := 0.0
		if mean > 0 {
			v = math.Log1p((sd / mean) * (sd / mean))
		}
		x = mean * math.Exp(float64(math.Sqrt(v)*rng.NormFloat64())-v/2)
	case "exponential":
		x = mean * rng.ExpFloat64()
	default:
		return s.Mean.Time
	}
	t := min(simtime.FromSeconds(math.Max(x, 0)), longestDraw)
	return t / simtime.Microsecond * simtime.Microsecond
}

// CheckSpan reports every problem of a span that Draw could not take.
func CheckSpan(s scenario.Span) error {
	var problems []error
	switch s.Distribution {
	case "", "constant", "uniform", "normal", "lognormal", "exponential":
	default:
		problems = append(problems, fmt.Errorf("distribution %q: unknown; allowed are constant, uniform, normal, lognormal and exponential", s.Distribution))
	}
	if s.Mean.Time < 0 || s.Mean.Time > longestStage {
		problems = append(problems, fmt.Errorf("mean %v: must be 0s to %v", s.Mean, longestStage))
	}
	if s.SD.Time < 0 || s.SD.Time > longestStage {
		problems = append(problems, fmt.Errorf("sd %v: must be 0s to %v", s.SD, longestStage))
	}
	if s.Distribution == "uniform" && s.Mean.Seconds() < math.Sqrt(3)*s.SD.Seconds() {
		problems = append(problems, fmt.Errorf("sd %v: a uniform span reaches sqrt(3)*sd below its mean, %v, which must not be below 0", s.SD, s.Mean))
	}
	return errors.Join(problems...)
}

// Limits that keep sums of stages well inside simtime.Time.
const (
	longestStage = 24 * simtime.Hour
	longestDraw  = 30 * 24 * simtime.Hour
)
