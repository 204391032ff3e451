// Package fit finds the coefficients of a profile from measured runs. It
// simulates the measured load and makes the simulated latencies meet the
// measured ones: batches form in the simulation as they did in the engine, so
// that a request's wait behind others is not mistaken for its own cost.
//
// The objective is the weighted mean over observations of the soft L1 loss of
// (simulated - measured) / scale. Parameters are searched as logarithms, from
// several starts, by Levenberg and Marquardt's method with the loss's weights;
// the best is polished by Nelder and Mead's, which does not mind the jumps of a
// discrete simulation.
package fit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"fleetsim/model"
)

// A Parameter is a coefficient to be fitted.
type Parameter struct {
	// Name is a coefficient of a profile, or "overhead" for both halves of the
	// overhead in equal parts, which few measurements tell apart. With an
	// environment before it and a colon it holds there alone: "bench:overhead".
	Name string
	// Low and High bound the value, in the coefficient's unit; both 0 are a
	// fiftieth and fifty times the start.
	Low, High float64
}

// Options say how to fit.
type Options struct {
	// Base is the profile that the search starts from; what is not a parameter
	// keeps its value.
	Base *model.Profile
	// Environments are profiles to start from where one is not as Base, by the
	// name of the environment; their parameters must have the environment before
	// their names, all others are those of Base.
	Environments map[string]*model.Profile
	Parameters   []Parameter
	Seed         uint64
	Starts       int // of the search, at least 1; the first is Base itself, the others are around the best so far
	// Polish is the number of simulations of all runs that the last part of the
	// search may take; 0 is none.
	Polish  int
	Workers int // runs simulated at a time; 0: one a CPU. Results do not depend on it.
	// Progress is told of the search; nil is nobody.
	Progress func(Progress)
}

// Progress is how far a search has come.
type Progress struct {
	Evaluations int // simulations of all runs
	Expected    int // in all, by the look of it
	Best        float64
}

// A Fitted parameter is the outcome for one.
type Fitted struct {
	Parameter
	Unit  string
	Start float64
	Value float64
	// IntervalLow and IntervalHigh are the bounds of the 90% interval.
	IntervalLow, IntervalHigh float64
	// Identified is whether the data pins the value down. If not, Value is Start.
	Identified bool
	// Why says what is wrong with one that is not identified.
	Why string
}

// A Result is the outcome of a fit.
type Result struct {
	Parameters  []Fitted
	Objective   float64 // mean loss
	Before      float64 // that of Base
	Evaluations int
	Complete    bool // false: the search was cancelled, and this is the best so far
	Runs        []Errors
	Data        string // digest of what was measured
	Coverage    Coverage
	Notes       []string // of the runs, each with the run's name

	base         *model.Profile
	environments map[string]*model.Profile
}

// Errors are how far a run's simulation is from what was measured.
type Errors struct {
	Run          string
	Observations int
	Missing      int        // observations that the simulation has no value for
	TTFT, TPOT   Deviations // of the rest
}

// Deviations are relative errors.
type Deviations struct {
	Mean     float64 // signed
	Absolute float64 // median of the absolute ones; NaN of nothing
}

// ErrNothingToFit is wrapped by errors about data that holds no success.
var ErrNothingToFit = errors.New("nothing to fit")

// Fit searches for the parameters under which the runs' simulations come
// closest to what was measured. When ctx is cancelled it returns the best so far.
func Fit(ctx context.Context, runs []Run, o Options) (*Result, error) {
	p, err := newProblem(runs, o)
	if err != nil {
		return nil, err
	}
	if err := p.observe(); err != nil {
		return nil, err
	}
	s := &search{problem: p, ctx: ctx, o: o}
	before, err := s.evaluate(s.start())
	if err != nil {
		return nil, err
	}
	s.best = before
	free := s.influential(before)
	at := s.run(free)
	fitted, at := s.judge(free, at)
	return s.result(fitted, before, at), s.err
}

// leastObservations is how many requests a fit needs, and how many a parameter.
const (
	leastObservations = 10
	leastPerParameter = 2
)

// enough refuses data that cannot carry a fit.
func enough(runs []Run, parameters int) error {
	successes, requests, figures := 0, 0, 0
	var names []string
	for i := range runs {
		names = append(names, runs[i].Name)
		requests += len(runs[i].Requests)
		figures += len(runs[i].Figures)
		for j := range runs[i].Requests {
			q := &runs[i].Requests[j]
			if succeeded(q) && q.TTFT.Valid() {
				successes++
			}
		}
	}
	where := strings.Join(names, ", ")
	switch {
	case requests+figures == 0:
		return fmt.Errorf("%w: no run has requests or figures", ErrNothingToFit)
	case successes+figures == 0:
		return fmt.Errorf("%w: none of the %d requests of %s is a success with a TTFT", ErrNothingToFit, requests, where)
	}
	if need := max(leastObservations, leastPerParameter*parameters); successes+figures < need {
		return fmt.Errorf("%w: %s have %d successes and figures; %d parameters need at least %d",
			ErrNothingToFit, where, successes+figures, parameters, need)
	}
	return nil
}

// result describes the point at.
func (s *search) result(fitted []Fitted, before, at *point) *Result {
	var notes []string
	for i := range s.problem.runs {
		for _, note := range s.problem.runs[i].Notes {
			notes = append(notes, s.problem.runs[i].Name+": "+note)
		}
	}
	r := &Result{
		Notes:      notes,
		Parameters: fitted, Objective: at.objective, Before: before.objective,
		Evaluations: s.evaluations, Complete: s.ctx.Err() == nil,
		Runs: s.problem.errors(at), Data: s.problem.digest(), Coverage: s.problem.coverage,
		base: s.o.Base, environments: s.o.Environments,
	}
	return r
}

// Profile is the fitted profile of an environment; "" is the usual one.
// sources says, for people, what the data is.
func (r *Result) Profile(environment, sources string) (*model.Profile, error) {
	base := r.base
	if e, ok := r.environments[environment]; ok {
		base = e
	}
	p := *base
	p.Coefficients = slices.Clone(base.Coefficients)
	for i := range r.Parameters {
		f := &r.Parameters[i]
		scope, names := f.targets()
		if scope != "" && scope != environment {
			continue
		}
		for _, name := range names {
			q := f.quantity(name, len(names), sources, r.Data)
			if err := p.SetCoefficient(name, q.Value); err != nil {
				return nil, err
			}
			p.Coefficients = put(p.Coefficients, q)
		}
	}
	p.Range = model.Range{Decodes: r.Coverage.Decodes, ContextTokens: r.Coverage.ContextTokens}
	return &p, nil
}

// quantity is what the profile says of one of the parts that the parameter
// stands for.
func (f *Fitted) quantity(name string, parts int, sources, data string) model.Quantity {
	n := float64(parts)
	q := model.Quantity{Name: name, Value: round(f.Value / n), Unit: f.Unit, Data: data}
	if !f.Identified {
		q.Source = fmt.Sprintf("not identified by %s (%s): kept", sources, f.Why)
		return q
	}
	q.Source = "fitted through the simulator to " + sources
	if parts > 1 {
		q.Source += "; the split is assumed even"
	}
	q.Interval = []float64{round(f.IntervalLow / n), round(f.IntervalHigh / n)}
	return q
}

// put replaces the quantity of that name, or adds it in order.
func put(all []model.Quantity, q model.Quantity) []model.Quantity {
	at := slices.IndexFunc(all, func(o model.Quantity) bool { return o.Name == q.Name })
	if at >= 0 {
		all[at] = q
		return all
	}
	all = append(all, q)
	slices.SortStableFunc(all, func(a, b model.Quantity) int { return model.CompareCoefficients(a.Name, b.Name) })
	return all
}

// digits is what a fitted value is worth writing.
const digits = 5

// round is v to a few significant digits.
func round(v float64) float64 {
	if v == 0 || math.IsInf(v, 0) || math.IsNaN(v) {
		return v
	}
	scale := math.Pow(10, digits-1-math.Floor(math.Log10(math.Abs(v))))
	return math.Round(v*scale) / scale
}

// overhead is the parameter that stands for both halves.
const overhead = "overhead"

// targets are the environment that a parameter holds in, "" for all, and the
// coefficients that it stands for in equal parts.
func (p *Parameter) targets() (environment string, names []string) {
	environment, name, ok := strings.Cut(p.Name, ":")
	if !ok {
		environment, name = "", p.Name
	}
	if name == overhead {
		return environment, []string{"request_overhead", "response_overhead"}
	}
	return environment, []string{name}
}

// unitOf is the unit of a coefficient that is known to exist.
func unitOf(name string) string {
	unit, _ := model.UnitOf(name)
	return unit
}
