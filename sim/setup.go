package sim

import (
	"errors"
	"fmt"

	"fleetsim/model"
	"fleetsim/random"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// A Setup is everything that a run depends on: equal setups give equal results
// to the last byte.
type Setup struct {
	Phase    string // name for the records; "" is the scenario's
	Scenario *scenario.Scenario
	Profile  *model.Profile
	Policy   string
	Seed     uint64
	// Continue goes on with the cluster as the setup before it in RunAll's list
	// has left it: caches, the gateway's index and the clock. The scenario's start
	// state then does not count.
	Continue bool
	// Stepwise simulates every engine step by itself, slower and with the same
	// records: the reference that skipping over steady steps is held to.
	Stepwise bool
	// Sketch keeps the memory of a run independent of the number of its requests:
	// its quantiles are then within 0.1% of the exact ones.
	Sketch bool
	// Each is called with the record of every arrival, in the order in which
	// they end; nil for nobody. The record is only valid during the call.
	Each func(*record.Request)
	// Sample is called with each replica's gauges at each snapshot; nil for nobody.
	Sample func(Sample)
	// Done is called when the run is complete, after the last Each and Sample and by
	// the same goroutine; nil for nobody.
	Done func()
}

// Limits are the engine's settings under the scenario: the profile's, with the
// scenario's overrides. The error is what is wrong with them, that all replicas
// together would have too many blocks, or that a step might take longer than
// model.MaxStep.
func Limits(p *model.Profile, sc *scenario.Scenario) (model.Limits, error) {
	l, o := p.Limits, &sc.Engine
	set(&l.MaxNumSeqs, o.MaxNumSeqs)
	set(&l.MaxBatchedTokens, o.MaxNumBatchedTokens)
	set(&l.MaxModelLen, o.MaxModelLen)
	set(&l.BlockTokens, o.BlockTokens)
	set(&l.Blocks, o.Blocks)
	set(&l.PrefixCaching, o.PrefixCaching)
	set(&l.AsyncScheduling, o.AsyncScheduling)
	set(&l.CountStatsAtLookup, o.CountStatsAtLookup)
	if err := l.Validate(); err != nil {
		return l, fmt.Errorf("engine: %w", err)
	}
	if t := p.Cost.LongestStep(l); t > model.MaxStep.Seconds() {
		return l, fmt.Errorf("engine: a step of max_num_batched_tokens = %d and max_num_seqs = %d with contexts up to max_model_len = %d could take %.3g s by profile %s; allowed: %g s",
			l.MaxBatchedTokens, l.MaxNumSeqs, l.MaxModelLen, t, p.Name, model.MaxStep.Seconds())
	}
	return l, sc.CheckBlocks(l.Blocks)
}

func set[T any](dst *T, v *T) {
	if v != nil {
		*dst = *v
	}
}

// Shape is the scenario's prompt shape in the workload's terms.
func Shape(p scenario.Prompt) workload.Shape {
	return workload.Shape{
		SaltBytes: p.SaltChars, SaltTokens: p.SaltTokens, SaltSpread: p.SaltTokensSpread,
		HeadBytes: p.HeadChars, HeadTokens: p.HeadTokens,
		BodyRepeat: p.BodyRepeat, BodyBytes: p.BodyChars, BodyTokens: p.BodyTokens,
		QuestionBytes: p.QuestionChars, QuestionTokens: p.QuestionTokens,
	}
}

// SLO is the scenario's SLO in the records' terms; 0 is no bound.
func SLO(s scenario.SLO) record.SLO {
	bound := func(d scenario.Duration) record.Float {
		if d.Time == 0 {
			return record.Float{}
		}
		return record.Some(d.Seconds())
	}
	return record.SLO{TTFT: bound(s.TTFT), TPOT: bound(s.TPOT), E2E: bound(s.E2E)}
}

// Arrivals is the scenario's open-loop process, which it must have, under the seed.
func Arrivals(w scenario.Workload, seed uint64) (*workload.Arrivals, error) {
	a := w.Arrivals
	stages := []workload.Stage{{Rate: a.Rate}}
	if len(a.Stages) > 0 {
		stages = stages[:0]
		for _, st := range a.Stages {
			stages = append(stages, workload.Stage{Duration: st.Duration.Time, Rate: st.Rate})
		}
	}
	rng := random.Stream(seed, "arrivals")
	switch a.Process {
	case "", "constant":
		return workload.Constant(stages, w.Requests), nil
	case "poisson":
		return workload.Poisson(stages, w.Requests, rng), nil
	case "gamma":
		return workload.Gamma(stages, w.Requests, a.Burstiness, rng), nil
	}
	return nil, fmt.Errorf("workload.arrivals.process = %q: allowed are constant, poisson, gamma", a.Process)
}

var errNoLoad = errors.New("the scenario has no load: workload.arrivals or workload.closed_loop")

// seconds is t for a record; Never is absent.
func seconds(t simtime.Time) record.Float {
	if t == simtime.Never {
		return record.Float{}
	}
	return record.Some(t.Seconds())
}
