package fit

import (
	"fmt"
	"math"
	"slices"

	"fleetsim/model/profiles"
	"fleetsim/sim/record"
)

// alikeShare is how far, as a share, the measured load may be from the scenario's
// before it is worth a note.
const alikeShare = 0.01

// note adds to what is to be known of the run.
func (r *Run) note(format string, args ...any) {
	r.Notes = append(r.Notes, fmt.Sprintf(format, args...))
}

// align makes the scenario that of the measured requests: it begins warm if they
// did, and its prompts are as long as the server counted them. Where else the two
// differ is noted; requests sent at other times than the scenario's are an error.
func (r *Run) align() error {
	if len(r.Requests) == 0 {
		return nil
	}
	r.noteFailures()
	r.beginWarm()
	sc := r.Setup.Scenario
	p, err := profiles.Load(sc.Profile)
	if err != nil {
		return fmt.Errorf("%s: %w", r.Name, err)
	}
	_, plan, _, err := r.simulate(p) // what is sent does not depend on the profile
	if err != nil {
		return err
	}
	pairs := r.pairs(plan)
	if sc.Workload.ClosedLoop == nil && sc.Workload.Trace == nil {
		if err := r.checkTimes(plan, pairs); err != nil {
			return err
		}
		r.compareSent(plan)
	}
	r.alignPrompts(pairs)
	r.compareAnswers(pairs)
	return nil
}

func (r *Run) noteFailures() {
	failures := 0
	for i := range r.Requests {
		if !succeeded(&r.Requests[i]) {
			failures++
		}
	}
	if failures > 0 {
		r.note("%d of %d requests are no success: they are not fitted to", failures, len(r.Requests))
	}
}

// beginWarm has a scenario that begins cold begin with every family in the cache
// if the measured one did: otherwise what the server had would pass for speed.
func (r *Run) beginWarm() {
	told, warm := record.FirstSightings(r.Requests)
	if r.Setup.Scenario.Start.EngineCache != "cold" || 2*warm <= told {
		return
	}
	began := fmt.Sprintf("the measurement began warm (the first request of %d of %d families hit the cache), the scenario begins cold", warm, told)
	if r.Setup.Scenario.Workload.Prompt.Families == 0 {
		r.note("%s and has no families that could be warm: TTFT is fitted to what the cache saved", began)
		return
	}
	r.Setup.Scenario = afterOthers(r.Setup.Scenario)
	r.note(`%s: simulated with start.engine_cache = "all"`, began)
}

// A pair is a measured request and the arrival of the plan that it is.
type pair struct {
	measured *record.Request
	plan     planned
}

// pairs are the measured requests that the scenario plans, too.
func (r *Run) pairs(plan []planned) []pair {
	var all []pair
	for i, index := range match(r, plan) {
		at, found := slices.BinarySearchFunc(plan, index, func(p planned, index int) int { return p.index - index })
		if found && r.Requests[i].Outcome() != record.DroppedArrival {
			all = append(all, pair{&r.Requests[i], plan[at]})
		}
	}
	return all
}

// checkTimes holds an open loop's sending against the plan. Clocks differ, so the
// median offset is none, and clients fall behind by and by.
func (r *Run) checkTimes(plan []planned, pairs []pair) error {
	var offsets []float64
	for i := range pairs {
		if start, ok := pairs[i].measured.Started.Get(); ok {
			offsets = append(offsets, start-pairs[i].plan.start)
		}
	}
	slices.Sort(offsets)
	middle := record.Quantile(offsets, 0.5).Or(0)
	tolerance := startTolerance
	if n := len(plan); n > 0 {
		tolerance += alikeShare * plan[n-1].start
	}
	timed := 0
	for i := range r.Requests {
		if q := &r.Requests[i]; q.Outcome() != record.DroppedArrival && q.Started.Valid() {
			timed++
		}
	}
	off := timed
	for _, o := range offsets {
		if math.Abs(o-middle) < tolerance {
			off--
		}
	}
	if off == 0 {
		return nil
	}
	late := fmt.Sprintf("%d of %d requests were sent over %.2g s before or after the scenario sends one", off, timed, tolerance)
	if 2*off >= timed {
		return fmt.Errorf("%s: %s: it is another load", r.Name, late)
	}
	r.note("%s", late)
	return nil
}

// compareSent compares how many requests were sent.
func (r *Run) compareSent(plan []planned) {
	sent, simulated := 0, 0
	for i := range r.Requests {
		if r.Requests[i].Outcome() != record.DroppedArrival {
			sent++
		}
	}
	for i := range plan {
		if plan[i].sent {
			simulated++
		}
	}
	if d := math.Abs(float64(sent - simulated)); d > max(1, alikeShare*float64(sent)) {
		r.note("%d requests were sent, %d are in the simulation with profile %s", sent, simulated, r.Setup.Scenario.Profile)
	}
}

// alignPrompts makes prompts as long as the server counted them on average: a chat
// template is as long in each.
func (r *Run) alignPrompts(pairs []pair) {
	measured, simulated := means(pairs, func(p *pair) (record.Int, record.Int) { return p.measured.InputTokens, p.plan.input })
	if !differ(measured, simulated) {
		return
	}
	more := int(math.Round(measured - simulated))
	const lengths = "prompts have %.0f tokens on average by the server's count, %.0f in the scenario"
	if w := &r.Setup.Scenario.Workload; w.Trace != nil || w.Prompt.HeadTokens+more < 0 {
		r.note(lengths+": simulated as in the scenario", measured, simulated)
		return
	}
	longer := *r.Setup.Scenario
	longer.Workload.Prompt.HeadTokens += more
	r.Setup.Scenario = &longer
	r.note(lengths+": simulated with %+d each", measured, simulated, more)
}

// compareAnswers compares how many tokens were asked for.
func (r *Run) compareAnswers(pairs []pair) {
	measured, simulated := means(pairs, func(p *pair) (record.Int, record.Int) { return p.measured.RequestedOutput, p.plan.output })
	if differ(measured, simulated) {
		r.note("answers of %.0f tokens were asked for on average, of %.0f in the scenario", measured, simulated)
	}
}

// means are the means of two numbers over the pairs that have both; NaN of none.
func means(pairs []pair, of func(*pair) (measured, simulated record.Int)) (measured, simulated float64) {
	n := 0.0
	for i := range pairs {
		m, s := of(&pairs[i])
		if m.Valid() && s.Valid() {
			measured, simulated, n = measured+float64(m.Or(0)), simulated+float64(s.Or(0)), n+1
		}
	}
	return measured / n, simulated / n
}

// differ is false of NaN.
func differ(measured, simulated float64) bool {
	return math.Abs(measured-simulated) > alikeShare*measured
}
