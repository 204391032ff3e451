package model

import (
	"fmt"
	"math"

	"fleetsim/simtime"
)

// A Profile is a calibrated GPU and model: engine limits, cost model and the
// overhead outside the engine.
type Profile struct {
	Name        string
	Description string
	Limits      Limits
	Cost        CostModel
	// RequestOverhead is the time from the client's send to the engine's queue,
	// ResponseOverhead from the end of a step to the client's receipt.
	RequestOverhead  simtime.Time
	ResponseOverhead simtime.Time
	// Coefficients are the cost and overhead figures with their provenance, in
	// the order of Coefficient names.
	Coefficients []Quantity
	Range        Range
}

// A Quantity is a figure of a profile with its provenance.
type Quantity struct {
	Name   string  `toml:"-"`
	Value  float64 `toml:"value"`
	Unit   string  `toml:"unit"`
	Source string  `toml:"source"`
}

// A Range is what a fit has seen; results beyond it are extrapolation.
type Range struct {
	Decodes       int `toml:"decodes"`
	ContextTokens int `toml:"context_tokens"`
}

// CoefficientNames are the fitted figures of a profile, in the order of
// Profile.Coefficients.
var CoefficientNames = [...]string{
	"base", "per_decode", "per_decode_context",
	"prefill_step", "per_prefill_token", "per_prefill_token_context",
	"request_overhead", "response_overhead",
}

// SetCoefficient changes the named figure, in seconds (per its unit), rounding
// it to what the cost model can hold. A negative or non-finite value and an
// unknown name are errors.
func (p *Profile) SetCoefficient(name string, v float64) error {
	if math.IsNaN(v) || v < 0 || v > 3600 {
		return fmt.Errorf("%s = %v: a coefficient is between 0 and 3600 seconds", name, v)
	}
	ticks, femtos := simtime.FromSeconds(v), int64(math.Round(v*1e15))
	switch name {
	case "base":
		p.Cost.Base = ticks
	case "per_decode":
		p.Cost.PerDecode = ticks
	case "per_decode_context":
		p.Cost.PerDecodeContext = ticks
	case "prefill_step":
		p.Cost.PrefillStep = ticks
	case "per_prefill_token":
		p.Cost.PerPrefillToken = femtos
	case "per_prefill_token_context":
		p.Cost.PerPrefillTokenContext = femtos
	case "request_overhead":
		p.RequestOverhead = ticks
	case "response_overhead":
		p.ResponseOverhead = ticks
	default:
		return fmt.Errorf("unknown coefficient %q", name)
	}
	return nil
}
