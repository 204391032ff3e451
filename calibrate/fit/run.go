package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"fleetsim/model"
	"fleetsim/sim"
	"fleetsim/sim/record"
)

// A Run is one measured phase and the setup that it is simulated with.
type Run struct {
	Name string
	// Setup is what was measured; its Profile does not count.
	Setup sim.Setup
	// Environment is where the client stood: "" is the usual place. Parameters
	// of an environment hold in its runs alone.
	Environment string
	// Requests are the measured records; without any, Figures are compared.
	Requests []record.Request
	Figures  []Figure
	// Weight is the run's share of the objective beside others; 0 is 1.
	Weight float64
	// Notes are what is to be known of the run, for people.
	Notes []string
	// Sorted compares the distributions instead of request with request: where
	// chance decides which replica a request goes to.
	Sorted bool
}

// A Figure is a measured statistic of a run, in seconds.
type Figure struct {
	Metric Latency
	// Quantile is the level, or Mean.
	Quantile float64
	Value    float64
}

// Mean stands for the mean where a quantile's level is asked for.
const Mean = -1

// A Latency is one of the two that a profile is fitted to.
type Latency int

// The latencies.
const (
	TTFT Latency = iota
	TPOT
)

func (l Latency) String() string { return [...]string{"ttft", "tpot"}[l] }

// An observation is one number that was measured and is simulated.
type observation struct {
	run    int // of the runs that are compared
	metric Latency
	index  int     // of the request in the plan; -1: a statistic
	level  float64 // of a statistic
	value  float64 // s
	weight float64
}

// scale is the deviation that counts as one: what a client's clock and the
// scatter between two runs of the same load amount to.
func (o *observation) scale() float64 {
	if o.metric == TTFT {
		return 0.002 + 0.005*o.value
	}
	return 0.00002 + 0.001*o.value
}

// answered is what a simulated request took.
type answered struct {
	index      int
	ok         bool
	tokens     int     // of prompt and answer
	ttft, tpot float64 // s; NaN when there is none
}

// levels are the quantiles that a sorted run is compared at.
var levels = []float64{0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95}

// observe lists what of the run is compared. plan has the simulated requests
// of any profile, in order of the plan: when they start does not depend on it
// in an open loop.
func observe(number int, r *Run, plan []planned) []observation {
	var all []observation
	add := func(o observation) { o.run = number; all = append(all, o) }
	switch {
	case len(r.Requests) == 0:
		for _, f := range r.Figures {
			add(observation{metric: f.Metric, index: -1, level: f.Quantile, value: f.Value, weight: 1})
		}
	case r.Sorted:
		for _, metric := range []Latency{TTFT, TPOT} {
			values := measured(r.Requests, metric)
			for _, level := range levels {
				if v, ok := record.Quantile(values, level).Get(); ok {
					add(observation{metric: metric, index: -1, level: level, value: v, weight: 1})
				}
			}
		}
	default:
		indexes := match(r, plan)
		for i := range r.Requests {
			for _, metric := range []Latency{TTFT, TPOT} {
				if v, ok := latency(&r.Requests[i], metric).Get(); ok && indexes[i] >= 0 && succeeded(&r.Requests[i]) {
					add(observation{metric: metric, index: indexes[i], value: v, weight: 1})
				}
			}
		}
	}
	share := 1 / float64(max(len(all), 1))
	for i := range all {
		all[i].weight *= share * cmp.Or(r.Weight, 1)
	}
	return all
}

// planned is an arrival of the simulated plan.
type planned struct {
	index         int
	start         float64    // s
	input, output record.Int // tokens of the prompt, and to be asked for
	sent          bool
}

// match finds the arrival of the plan that each measured request is: by its
// index; or in an open loop by its start, the nearest within a tolerance; or in
// a closed loop by its place in the order of starts. -1 is none.
func match(r *Run, plan []planned) []int {
	indexes := make([]int, len(r.Requests))
	order := byStart(r.Requests)
	closed := r.Setup.Scenario.Workload.ClosedLoop != nil
	if len(order) == 0 {
		return indexes
	}
	begin := r.Requests[order[0]].Started.Or(0)
	next := 0
	for place, i := range order {
		q := &r.Requests[i]
		indexes[i] = -1
		if index, ok := q.Index.Get(); ok {
			indexes[i] = index
			continue
		}
		if closed {
			indexes[i] = place
			continue
		}
		start, ok := q.Started.Get()
		if !ok || len(plan) == 0 {
			continue
		}
		at := start - begin + plan[0].start
		for next+1 < len(plan) && math.Abs(plan[next+1].start-at) <= math.Abs(plan[next].start-at) {
			next++
		}
		if math.Abs(plan[next].start-at) < startTolerance {
			indexes[i] = plan[next].index
		}
	}
	return indexes
}

// startTolerance is how far a client may be behind its plan, in seconds.
const startTolerance = 0.1

// byStart are the positions of the requests in order of their starts.
func byStart(requests []record.Request) []int {
	order := make([]int, len(requests))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		return cmp.Compare(requests[a].Started.Or(0), requests[b].Started.Or(0))
	})
	return order
}

func succeeded(q *record.Request) bool { return q.Outcome() == record.Success }

func latency(q *record.Request, metric Latency) record.Float {
	if metric == TTFT {
		return q.TTFT
	}
	return q.MeanTokenTime()
}

// measured are the sorted latencies of the successes.
func measured(requests []record.Request, metric Latency) []float64 {
	var values []float64
	for i := range requests {
		if v, ok := latency(&requests[i], metric).Get(); ok && succeeded(&requests[i]) {
			values = append(values, v)
		}
	}
	slices.Sort(values)
	return values
}

// simulate runs the setup under a profile.
func (r *Run) simulate(p *model.Profile) (answers []answered, plan []planned, phase *record.Phase, err error) {
	s := r.Setup
	s.Profile = p
	s.Each = func(q *record.Request) {
		out := answered{index: q.Index.Or(-1), ok: succeeded(q), tokens: q.InputTokens.Or(0) + q.RequestedOutput.Or(0), ttft: math.NaN(), tpot: math.NaN()}
		if v, ok := q.TTFT.Get(); ok {
			out.ttft = v
		}
		if v, ok := q.TPOT.Get(); ok {
			out.tpot = v
		}
		answers = append(answers, out)
		plan = append(plan, planned{out.index, q.Started.Or(0), q.InputTokens, q.RequestedOutput, q.Outcome() != record.DroppedArrival})
	}
	if phase, err = sim.Run(s); err != nil {
		return nil, nil, nil, fmt.Errorf("%s: %w", r.Name, err)
	}
	slices.SortFunc(answers, func(a, b answered) int { return cmp.Compare(a.index, b.index) })
	slices.SortFunc(plan, func(a, b planned) int { return cmp.Compare(a.index, b.index) })
	return answers, plan, phase, nil
}

// predict is the simulated value of each observation of one run; NaN where the
// simulation has none.
func predict(observations []observation, answers []answered) []float64 {
	var sorted [2][]float64
	for _, s := range answers {
		if s.ok {
			for metric, v := range [...]float64{s.ttft, s.tpot} {
				if !math.IsNaN(v) {
					sorted[metric] = append(sorted[metric], v)
				}
			}
		}
	}
	slices.Sort(sorted[TTFT])
	slices.Sort(sorted[TPOT])
	out := make([]float64, len(observations))
	for i := range observations {
		o := &observations[i]
		switch {
		case o.index >= 0:
			out[i] = math.NaN()
			at, found := slices.BinarySearchFunc(answers, o.index, func(s answered, index int) int { return cmp.Compare(s.index, index) })
			if found && answers[at].ok {
				out[i] = [...]float64{answers[at].ttft, answers[at].tpot}[o.metric]
			}
		case o.level == Mean:
			out[i] = mean(sorted[o.metric])
		default:
			out[i] = record.Quantile(sorted[o.metric], o.level).Or(math.NaN())
		}
	}
	return out
}

// mean is NaN of nothing.
func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / float64(len(values))
}
