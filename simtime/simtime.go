// Package simtime is the simulator's clock unit: an integer count of 10 ps ticks.
//
// Step costs are sums of coefficients as small as a few nanoseconds per token;
// an integer unit makes those sums exact, so that advancing over many decode
// steps at once gives the same instant, to the last digit, as stepping through
// them one by one. 10 ps keeps the smallest coefficient to three digits and an
// int64 reaches 2.9 years, of which a run may use the first half.
package simtime

import (
	"math"
	"math/bits"
	"strconv"
)

// Time is an instant since the start of a run, or a span, in ticks of 10 ps.
type Time int64

// The usual spans.
const (
	Tick        Time = 1
	Nanosecond       = 100 * Tick
	Microsecond      = 1000 * Nanosecond
	Millisecond      = 1000 * Microsecond
	Second           = 1000 * Millisecond
	Minute           = 60 * Second
	Hour             = 60 * Minute
)

// Never is later than every instant a run can reach.
const Never Time = math.MaxInt64

// Horizon is the last instant that a run may reach, 1.46 years after its start, and
// the longest span in it: an instant and a span later the clock has not overflowed.
const Horizon Time = 1<<62 - 1

// FromSeconds rounds s, in seconds, to the nearest tick. Values beyond the
// range saturate; NaN is 0.
func FromSeconds(s float64) Time {
	switch t := math.Round(s * float64(Second)); {
	case math.IsNaN(t):
		return 0
	case t >= math.MaxInt64:
		return Never
	case t <= math.MinInt64:
		return math.MinInt64
	default:
		return Time(t)
	}
}

// Times is n spans of t, both at least 0, and at most the horizon.
func (t Time) Times(n int) Time {
	hi, lo := bits.Mul64(uint64(t), uint64(n))
	if hi > 0 || lo > uint64(Horizon) {
		return Horizon
	}
	return Time(lo)
}

// Seconds is t in seconds, correctly rounded.
func (t Time) Seconds() float64 { return float64(t) / float64(Second) }

// String is t in seconds with the unit, for messages.
func (t Time) String() string {
	return strconv.FormatFloat(t.Seconds(), 'g', -1, 64) + "s"
}
