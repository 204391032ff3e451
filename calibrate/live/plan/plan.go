// Package plan reads off a scenario what a load generator sends: the same
// arrivals, with the same prompts, that package sim simulates. A test holds the
// two to equality.
package plan

import (
	"errors"
	"slices"

	"fleetsim/random"
	"fleetsim/sim"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// A Plan yields the requests of one phase.
type Plan struct {
	w        scenario.Workload
	arrivals *workload.Arrivals // nil in a closed loop
	prompts  *workload.Generator
	order    []int // family of each request; beyond it, in turn
	count    int
}

// What a plan cannot be made of.
var (
	ErrTrace  = errors.New("workload.trace: traces hold no prompts to send; allowed are workload.arrivals and workload.closed_loop")
	errNoLoad = errors.New("the scenario has no load: workload.arrivals or workload.closed_loop")
)

// New is the plan of the scenario under the seed.
func New(sc *scenario.Scenario, seed uint64) (*Plan, error) {
	w := sc.Workload
	p := &Plan{w: w, prompts: prompts(sc, seed)}
	switch {
	case w.Trace != nil:
		return nil, ErrTrace
	case w.Arrivals != nil:
		var err error
		if p.arrivals, err = sim.Arrivals(w, seed); err != nil {
			return nil, err
		}
	case w.ClosedLoop == nil:
		return nil, errNoLoad
	}
	if p.order = w.Prompt.FamilyOrder; len(p.order) == 0 && w.Prompt.Families > 0 && w.Requests > 0 {
		p.order = workload.Order(w.Requests, w.Prompt.Families, w.Prompt.HotFraction, random.Stream(seed, "families"))
	}
	return p, nil
}

func prompts(sc *scenario.Scenario, seed uint64) *workload.Generator {
	return workload.NewGenerator(sim.Shape(sc.Workload.Prompt), sc.Workload.Prompt.Families, arrivalContents, random.Stream(seed, "prompts"))
}

// Bases that keep apart the contents of prompts of different origin, as in
// package sim.
const (
	arrivalContents = iota
	spareContents
)

// Next is the next arrival of an open loop, or false after the last.
func (p *Plan) Next() (workload.Request, bool) {
	at, ok := p.arrivals.Next()
	if !ok {
		return workload.Request{}, false
	}
	return p.At(at), true
}

// Closed is the plan's closed loop; nil in an open one.
func (p *Plan) Closed() *scenario.ClosedLoop { return p.w.ClosedLoop }

// At is the next request of a closed loop, whose lane is free at at.
func (p *Plan) At(at simtime.Time) workload.Request {
	i := p.count
	p.count++
	repeat, output, tenant := p.w.Prompt.BodyRepeat, p.w.Output, ""
	if n := len(p.w.Tenants); n > 0 {
		t := &p.w.Tenants[i%n]
		tenant = t.Name
		if t.BodyRepeat != nil {
			repeat = *t.BodyRepeat
		}
		if t.Output != nil {
			output = *t.Output
		}
	}
	family := p.family(i)
	return workload.Request{Index: i, At: at, Tenant: tenant, Family: family, Prompt: p.prompts.Prompt(nil, family, i, repeat), Output: output}
}

// Count is the number of requests yielded.
func (p *Plan) Count() int { return p.count }

func (p *Plan) family(i int) int {
	switch families := p.prompts.Families(); {
	case families == 0:
		return -1
	case len(p.order) > 0:
		return p.order[i%len(p.order)]
	default:
		return i % families
	}
}

// Total is what an open loop sends in all.
type Total struct {
	Requests, InputTokens, OutputTokens int
	Last                                simtime.Time // of the last arrival
}

// Sum is the total of the open loop of the scenario under the seed.
func Sum(sc *scenario.Scenario, seed uint64) (Total, error) {
	var t Total
	p, err := New(sc, seed)
	if err != nil {
		return t, err
	}
	for r, ok := p.Next(); ok; r, ok = p.Next() {
		t.Requests++
		t.InputTokens += r.Prompt.Len(workload.Tokens)
		t.OutputTokens += r.Output
		t.Last = r.At
	}
	return t, nil
}

// A Priming is a prompt that is in a cache or an index before the first arrival.
type Priming struct {
	Prompt workload.Prompt
	Family int // -1: a prefix that no arrival uses
	// Cached and Indexed name the replicas whose engine holds it, and that the
	// router's index takes for its owners.
	Cached, Indexed []string
}

// Start is the scenario's starting state under the seed, in the order in which
// it comes about.
func Start(sc *scenario.Scenario, seed uint64) []Priming {
	var out []Priming
	repeat := sc.Workload.Prompt.BodyRepeat
	spares := workload.NewGenerator(sim.Shape(sc.Workload.Prompt), 0, spareContents, random.Stream(seed, "spares"))
	for id, name := range sc.Cluster.Names {
		for i := range sc.Start.Spare[name] {
			out = append(out, Priming{Prompt: spares.Prompt(nil, -1, id<<20+i, repeat), Family: -1, Cached: []string{name}})
		}
	}
	for f, prompt := range Families(sc, seed) {
		p := Priming{Prompt: prompt, Family: f}
		for _, name := range sc.Cluster.Names {
			owns := f < len(sc.Start.Owners) && slices.Contains(sc.Start.Owners[f], name)
			if sc.Start.EngineCache == "all" || sc.Start.EngineCache == "owners" && owns {
				p.Cached = append(p.Cached, name)
			}
			if sc.Start.RouterIndex == "owners" && owns {
				p.Indexed = append(p.Indexed, name)
			}
		}
		if len(p.Cached)+len(p.Indexed) > 0 {
			out = append(out, p)
		}
	}
	return out
}

// Hidden tells of each family whether the answers to it begin with a token
// that has no visible content.
func Hidden(sc *scenario.Scenario, seed uint64) []bool {
	rng := random.Stream(seed, "hidden")
	hidden := make([]bool, sc.Workload.Prompt.Families)
	for f := range hidden {
		hidden[f] = rng.Float64() < sc.Workload.HiddenFirst
	}
	return hidden
}

// Families are prompts of the families, in order, that no arrival sends.
func Families(sc *scenario.Scenario, seed uint64) []workload.Prompt {
	const beyondAnyIndex = 1 << 30
	g := prompts(sc, seed)
	out := make([]workload.Prompt, g.Families())
	for f := range out {
		out[f] = g.Prompt(nil, f, beyondAnyIndex+f, sc.Workload.Prompt.BodyRepeat)
	}
	return out
}
