package model

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

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
	// PerPromptToken adds to RequestOverhead: a longer prompt takes longer to be
	// sent on and to be made tokens of.
	PerPromptToken simtime.Time
	// Coefficients are the cost and overhead figures with their provenance, in
	// the order of CompareCoefficients.
	Coefficients []Quantity
	Range        Range
	Noise        Noise
}

// RequestDelay is the time from the client's send of a prompt of so many tokens
// to the engine's queue, at most simtime.Horizon.
func (p *Profile) RequestDelay(promptTokens int) simtime.Time {
	return min(p.RequestOverhead+p.PerPromptToken.Times(promptTokens), simtime.Horizon)
}

// A Quantity is a figure of a profile with its provenance.
type Quantity struct {
	Name   string  `toml:"-"`
	Value  float64 `toml:"value"`
	Unit   string  `toml:"unit"`
	Source string  `toml:"source"`
	// Interval is the 90% interval of the fit: two values, or none if the value
	// was not fitted or the data did not pin it down.
	Interval []float64 `toml:"interval"`
	// Data is the digest of the data of the fit.
	Data string `toml:"data"`
}

// A Range is what a fit has seen; results beyond it are extrapolation.
type Range struct {
	Decodes       int `toml:"decodes"`        // sequences that decode in one step
	ContextTokens int `toml:"context_tokens"` // tokens of one sequence
}

// A coefficient is a kind of figure that a profile can have.
type coefficient struct {
	name, unit string
	required   bool
	most       float64 // largest value that makes sense
	set        func(*Profile, float64)
	get        func(*Profile) float64
}

const mostSeconds = 3600

// coefficients are all but the decode table, which comes before them.
func coefficients() []coefficient {
	ticks := func(name, unit string, required bool, at func(*Profile) *simtime.Time) coefficient {
		return coefficient{name, unit, required, mostSeconds,
			func(p *Profile, v float64) { *at(p) = simtime.FromSeconds(v) },
			func(p *Profile) float64 { return at(p).Seconds() }}
	}
	scaled := func(name, unit string, required bool, scale, most float64, at func(*Profile) *int64) coefficient {
		return coefficient{name, unit, required, most,
			func(p *Profile, v float64) { *at(p) = int64(math.Round(v * scale)) },
			func(p *Profile) float64 { return float64(*at(p)) / scale }}
	}
	const femtos, mille = 1e15, 1e3
	return []coefficient{
		ticks("per_decode", "s/sequence", false, func(p *Profile) *simtime.Time { return &p.Cost.PerDecode }),
		ticks("per_decode_context", "s/token", false, func(p *Profile) *simtime.Time { return &p.Cost.PerDecodeContext }),
		ticks("per_shared_context", "s/token", false, func(p *Profile) *simtime.Time { return &p.Cost.PerSharedContext }),
		ticks("base", "s/step", true, func(p *Profile) *simtime.Time { return &p.Cost.Base }),
		scaled("per_prefill_token", "s/token", true, femtos, 1, func(p *Profile) *int64 { return &p.Cost.PerPrefillToken }),
		scaled("per_long_prefill_token", "s/token", false, femtos, 1, func(p *Profile) *int64 { return &p.Cost.PerLongToken }),
		scaled("long_prefill_tokens", "tokens", false, 1, 1e7, func(p *Profile) *int64 { return &p.Cost.LongTokens }),
		scaled("per_prefill_token_context", "s/token²", false, femtos, 1e-3, func(p *Profile) *int64 { return &p.Cost.PerPrefillTokenContext }),
		ticks("launch", "s/step", false, func(p *Profile) *simtime.Time { return &p.Cost.Launch }),
		scaled("launch_lag", "1", false, mille, 1, func(p *Profile) *int64 { return &p.Cost.LaunchLag }),
		ticks("request_overhead", "s", true, func(p *Profile) *simtime.Time { return &p.RequestOverhead }),
		ticks("per_prompt_token_overhead", "s/token", false, func(p *Profile) *simtime.Time { return &p.PerPromptToken }),
		ticks("response_overhead", "s", true, func(p *Profile) *simtime.Time { return &p.ResponseOverhead }),
	}
}

// decodePrefix begins the names of the decode table's entries: decode_1 is the
// step in which one sequence decodes.
const decodePrefix = "decode_"

// maxDecodeTable bounds the decode table.
const maxDecodeTable = 4096

// decodeEntry is the number of sequences in the name of a decode table entry.
func decodeEntry(name string) (n int, ok bool) {
	digits, ok := strings.CutPrefix(name, decodePrefix)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(digits)
	return n, err == nil && n >= 1 && n <= maxDecodeTable && strconv.Itoa(n) == digits
}

// find is the coefficient of that name.
func find(name string) (coefficient, error) {
	if n, ok := decodeEntry(name); ok {
		return coefficient{name, "s/step", false, mostSeconds,
			func(p *Profile, v float64) { p.setDecode(n, simtime.FromSeconds(v)) },
			func(p *Profile) float64 {
				if n > len(p.Cost.Decode) {
					return 0
				}
				return p.Cost.Decode[n-1].Seconds()
			}}, nil
	}
	for _, c := range coefficients() {
		if c.name == name {
			return c, nil
		}
	}
	return coefficient{}, fmt.Errorf("unknown coefficient %q: allowed are %s", name, strings.Join(CoefficientNames(), ", "))
}

// CoefficientNames are the names of coefficients as a message lists them: the
// entries of the decode table together, then the others.
func CoefficientNames() []string {
	names := []string{fmt.Sprintf("%s1 to %s%d", decodePrefix, decodePrefix, maxDecodeTable)}
	for _, c := range coefficients() {
		names = append(names, c.name)
	}
	return names
}

// setDecode writes an entry of the decode table. The table is the profile's
// own afterwards: copies of a profile share it.
func (p *Profile) setDecode(n int, t simtime.Time) {
	table := slices.Clone(p.Cost.Decode)
	for len(table) < n {
		table = append(table, 0)
	}
	table[n-1] = t
	p.Cost.Decode = table
}

// RequiredCoefficients are the names that a profile must have a value for; all
// others are 0 without one.
func RequiredCoefficients() []string {
	var names []string
	for _, c := range coefficients() {
		if c.required {
			names = append(names, c.name)
		}
	}
	return names
}

// CompareCoefficients orders names of coefficients as profiles list them.
func CompareCoefficients(a, b string) int {
	rank := func(name string) int {
		if n, ok := decodeEntry(name); ok {
			return n - maxDecodeTable - 1
		}
		return slices.IndexFunc(coefficients(), func(c coefficient) bool { return c.name == name })
	}
	return rank(a) - rank(b)
}

// SetCoefficient changes the named figure, in the unit of UnitOf, rounding it to
// what the cost model can hold. A value that is negative, not finite or too
// large, and an unknown name, are errors.
func (p *Profile) SetCoefficient(name string, v float64) error {
	c, err := find(name)
	if err != nil {
		return err
	}
	if math.IsNaN(v) || v < 0 || v > c.most {
		return fmt.Errorf("%s = %v %s: allowed is 0 to %v", name, v, c.unit, c.most)
	}
	c.set(p, v)
	return nil
}

// Coefficient is the named figure as the cost model holds it; an unknown name
// is an error.
func (p *Profile) Coefficient(name string) (float64, error) {
	c, err := find(name)
	if err != nil {
		return 0, err
	}
	return c.get(p), nil
}

// UnitOf is the unit of the named coefficient; an unknown name is an error.
func UnitOf(name string) (string, error) {
	c, err := find(name)
	return c.unit, err
}

// A Fault is something wrong with a profile.
type Fault struct {
	Key string // in a profile's file: "engine.blocks"
	Msg string
}

// Faults are what is wrong with a profile as a whole: limits and noise out of
// range, and a decode table with holes: from decode_1 on every entry up to the last
// must have a value.
func (p *Profile) Faults() []Fault {
	var faults []Fault
	for _, f := range p.Limits.faults() {
		faults = append(faults, Fault{"engine." + f.Key, "engine: " + f.Msg})
	}
	for _, f := range p.Noise.faults() {
		faults = append(faults, Fault{"noise." + f.Key, "noise: " + f.Msg})
	}
	if i := slices.Index(p.Cost.Decode, 0); i >= 0 {
		hole := fmt.Sprintf("%s%d", decodePrefix, i+1)
		faults = append(faults, Fault{"cost." + hole, fmt.Sprintf("%s is missing: the table goes from decode_1 to decode_%d", hole, len(p.Cost.Decode))})
	}
	return faults
}
