package calibrate

import (
	"fmt"
	"math"
	"slices"

	"fleetsim/sim/record"
)

// From where the two sides count as unlike.
const (
	shareTolerance  = 0.01 // of the share of requests that were dropped, rejected, …
	countTolerance  = 0.01 // of the number of requests sent
	promptTolerance = 0.01 // of the prompts' tokens
	hitTolerance    = 0.05 // of the cache hit ratio
)

// warnings are what makes the two sides unlike although each may be right. They
// are empty when nothing was measured.
func (p *PhaseComparison) warnings() []string {
	all := []string{}
	if p.Measured == nil {
		return all
	}
	for _, check := range []func() []string{
		p.differentLoads, p.differentShares, p.differentStart, p.differentPrompts, p.notStreamed,
	} {
		all = append(all, check()...)
	}
	return all
}

// Notes are what the measurement's source says about it, but for what Warnings
// say already.
func (p *PhaseComparison) Notes() []string {
	if p.Measured == nil {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(p.Measured.Notes), func(note string) bool { return note == unstreamedNote })
}

// differentLoads compares what was sent.
func (p *PhaseComparison) differentLoads() []string {
	measured, simulated := p.both(func(r *record.Phase) record.Float { return number(r.Requests) })
	m, haveM := measured.Get()
	s, haveS := simulated.Get()
	if !haveM || !haveS || math.Abs(m-s) <= max(1, countTolerance*m) {
		return nil
	}
	return []string{fmt.Sprintf("%.0f requests were sent in the measurement and %.0f in the simulation: is it the same load?", m, s)}
}

// differentShares compares what became of the requests: times are of successes
// alone, and a server that refuses load looks faster than one that serves it.
func (p *PhaseComparison) differentShares() []string {
	var warnings []string
	for _, share := range []struct {
		what string
		of   func(*record.Phase) record.Int
	}{
		{"dropped", func(r *record.Phase) record.Int { return r.Dropped }},
		{"rejected", func(r *record.Phase) record.Int { return r.Rejected }},
		{"failed", func(r *record.Phase) record.Int { return r.Failed }},
	} {
		measured, simulated := p.both(func(r *record.Phase) record.Float { return record.Ratio(share.of(r), r.Planned) })
		if !measured.Valid() { // arrivals that were never sent are unknown then
			measured, simulated = p.both(func(r *record.Phase) record.Float { return record.Ratio(share.of(r), r.Requests) })
		}
		m, haveM := measured.Get()
		s, haveS := simulated.Get()
		if haveM && haveS && math.Abs(m-s) > shareTolerance {
			warnings = append(warnings, fmt.Sprintf("%s: %.1f%% measured, %.1f%% simulated; the times are those of the other requests", share.what, 100*m, 100*s))
		}
	}
	return warnings
}

// both is a figure on both sides, simulated the median over the seeds.
func (p *PhaseComparison) both(value func(*record.Phase) record.Float) (measured, simulated record.Float) {
	var values []float64
	for _, run := range p.Runs {
		if v, ok := value(run).Get(); ok {
			values = append(values, v)
		}
	}
	return value(p.Measured), record.BandOf(values).P50
}

// differentStart tells a warm measurement from a scenario that starts cold.
func (p *PhaseComparison) differentStart() []string {
	if p.Plan.Continue || p.Plan.Scenario.Start.EngineCache != "cold" {
		return nil
	}
	const advice = `start.engine_cache = "all" or "owners" begins warm`
	if t := p.traces.measured; t != nil && t.first > 0 {
		if 2*t.warm > t.first {
			return []string{fmt.Sprintf("the measurement began warm (the first request of %d of %d families hit the cache), the scenario begins cold: %s", t.warm, t.first, advice)}
		}
		return nil
	}
	measured, simulated := p.both(func(r *record.Phase) record.Float { return r.CacheHitRatio })
	m, haveM := measured.Get()
	s, haveS := simulated.Get()
	switch {
	case haveM && haveS && m-s > hitTolerance:
		return []string{fmt.Sprintf("the hit ratio is %.3f measured and %.3f simulated: did the measurement begin warm? The scenario begins cold: %s", m, s, advice)}
	case !haveM && haveS && s > hitTolerance:
		return []string{fmt.Sprintf("cache hits were not measured, and the scenario begins cold and hits %.3f: if the measurement began warm, %s", s, advice)}
	}
	return nil
}

// differentPrompts compares the prompts by the server's count.
func (p *PhaseComparison) differentPrompts() []string {
	measured, simulated, how := p.promptTokens()
	m, haveM := measured.Get()
	s, haveS := simulated.Get()
	if !haveM || !haveS || math.Abs(m-s) <= promptTolerance*m {
		return nil
	}
	return []string{fmt.Sprintf("prompts: %s %.0f tokens measured, %.0f simulated (%+.0f); a chat template adds tokens on the server", how, m, s, s-m)}
}

// promptTokens are the mean prompts if both sides have request records, or else
// the middles of the ranges.
func (p *PhaseComparison) promptTokens() (measured, simulated record.Float, how string) {
	if t := p.traces.measured; t != nil && len(p.traces.simulated) > 0 {
		var all tokenMean
		for _, run := range p.traces.simulated {
			all.sum, all.n = all.sum+run.prompts.sum, all.n+run.prompts.n
		}
		return t.prompts.of(), all.of(), "on average"
	}
	measured, simulated = p.both(func(r *record.Phase) record.Float {
		low, haveLow := r.InputTokensRange.Min.Get()
		high, haveHigh := r.InputTokensRange.Max.Get()
		if !haveLow || !haveHigh {
			return record.Float{}
		}
		return record.Some(float64(low+high) / 2)
	})
	return measured, simulated, "in the middle of their range"
}

// unstreamedNote is record.Summarize's.
const unstreamedNote = "no TTFT: the source did not stream"

// notStreamed explains why a measurement with E2E has no TTFT.
func (p *PhaseComparison) notStreamed() []string {
	if p.Measured.TTFT.P50.Valid() || p.Measured.TTFT.P95.Valid() || !p.Measured.E2E.P50.Valid() {
		return nil
	}
	return []string{unstreamedNote}
}
