package fit

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"fleetsim/model"
	"fleetsim/sim/record"
)

// A problem is what a search works on: x are logarithms of the parameters'
// values over their starts.
type problem struct {
	runs         []Run
	parameters   []Parameter
	base         *model.Profile
	environments map[string]*model.Profile
	begin        []float64 // start value of each parameter
	low, high    []float64 // bounds of x
	observations []observation
	first        []int // of each run in observations, and the end
	workers      int
	blur         float64 // what the scales of residuals are multiplied by
	coverage     Coverage
}

// Coverage is what the runs exercise; beyond it a profile extrapolates.
type Coverage struct {
	Decodes       int // most sequences that run at a time
	ContextTokens int // of the longest request
	Observations  int
	// Long is the number of observations of requests beyond LongContext tokens,
	// LongRuns that of the runs they are from.
	Long, LongRuns int
}

// LongContext is the length of a request, in tokens, beyond which few samples
// are worth a warning.
const LongContext = 8192

// newProblem is the problem with the parameters' bounds and no observations yet.
func newProblem(runs []Run, o Options) (*problem, error) {
	p := &problem{runs: runs, parameters: o.Parameters, base: o.Base, environments: o.Environments, workers: o.Workers, blur: 1}
	if p.workers <= 0 {
		p.workers = runtime.GOMAXPROCS(0)
	}
	if len(o.Parameters) == 0 {
		return nil, fmt.Errorf("%w: no parameter is free", ErrNothingToFit)
	}
	for i := range o.Parameters {
		if err := p.bound(&o.Parameters[i]); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// observe simulates the runs to find the observations in them. It refuses those that
// cannot carry a fit.
func (p *problem) observe() error {
	if err := enough(p.runs, len(p.parameters)); err != nil {
		return err
	}
	for i := range p.runs {
		run := &p.runs[i]
		p.first = append(p.first, len(p.observations))
		answers, plan, phase, err := run.simulate(p.profile(run.Environment, make([]float64, len(p.parameters))))
		if err != nil {
			return err
		}
		all := observe(i, run, plan)
		if len(all) == 0 {
			return fmt.Errorf("%s: no measured request is one that the scenario plans", run.Name)
		}
		p.observations = append(p.observations, all...)
		p.cover(answers, phase, len(all))
	}
	p.first = append(p.first, len(p.observations))
	return nil
}

// reach is how far a parameter without bounds may go from its start, as a factor.
const reach = 50

// bound finds the parameter's start and its bounds around it.
func (p *problem) bound(q *Parameter) error {
	environment, names := q.targets()
	base := p.base
	if e, ok := p.environments[environment]; ok {
		base = e
	}
	start := 0.0
	for _, name := range names {
		v, err := base.Coefficient(name)
		if err != nil {
			return fmt.Errorf("fit %q: %w", q.Name, err)
		}
		start += v
	}
	if start <= 0 {
		return fmt.Errorf("%s is 0 in profile %s: a search needs a start above 0", q.Name, base.Name)
	}
	low, high := q.Low, q.High
	if low == 0 && high == 0 {
		low, high = start/reach, start*reach
	}
	if !(low > 0 && low <= start && start <= high) {
		return fmt.Errorf("%s: bounds %v to %v: allowed are bounds above 0 around the start %v", q.Name, low, high, start)
	}
	p.begin = append(p.begin, start)
	p.low = append(p.low, math.Log(low/start))
	p.high = append(p.high, math.Log(high/start))
	return nil
}

// value is the i-th parameter at x.
func (p *problem) value(i int, x float64) float64 { return p.begin[i] * math.Exp(x) }

// profile is the profile of an environment at x.
func (p *problem) profile(environment string, x []float64) *model.Profile {
	base := p.base
	if e, ok := p.environments[environment]; ok {
		base = e
	}
	out := *base
	for i := range p.parameters {
		scope, names := p.parameters[i].targets()
		if scope != "" && scope != environment {
			continue
		}
		if scope == "" && environment != "" && p.overridden(environment, names) {
			continue
		}
		for _, name := range names {
			// Bounds keep values positive; one too large for the model is as bad
			// as the largest.
			_ = out.SetCoefficient(name, p.value(i, x[i])/float64(len(names)))
		}
	}
	return &out
}

// overridden reports whether the environment has parameters of its own for the
// coefficients.
func (p *problem) overridden(environment string, names []string) bool {
	for i := range p.parameters {
		scope, own := p.parameters[i].targets()
		if scope == environment && slices.Equal(own, names) {
			return true
		}
	}
	return false
}

// cover notes what a run exercises.
func (p *problem) cover(answers []answered, phase *record.Phase, observations int) {
	long := 0
	for i := range answers {
		p.coverage.ContextTokens = max(p.coverage.ContextTokens, answers[i].tokens)
		if answers[i].tokens > LongContext {
			long++
		}
	}
	for i := range phase.Replicas {
		p.coverage.Decodes = max(p.coverage.Decodes, phase.Replicas[i].RunningMax.Or(0))
	}
	p.coverage.Observations += observations
	if long > 0 {
		p.coverage.LongRuns++
		p.coverage.Long += observations * long / len(answers)
	}
}

// A point is a place in the search.
type point struct {
	x         []float64
	values    []float64 // simulated, one an observation; NaN: none
	objective float64
}

// missing is the residual of an observation that the simulation has no value
// for: a request that it dropped, say.
const missing = 20

// residual is by how many scales the i-th observation is missed.
func (p *problem) residual(i int, value float64) float64 {
	if math.IsNaN(value) {
		return missing
	}
	o := &p.observations[i]
	return (value - o.value) / (o.scale() * p.blur)
}

// loss is the soft L1 loss: half the square of small residuals, and no more
// than the size of large ones, so that a few outliers do not rule.
func loss(r float64) float64 { return math.Sqrt(1+r*r) - 1 }

// lossWeight is the weight under which a square has the loss's gradient.
func lossWeight(r float64) float64 { return 1 / math.Sqrt(1+r*r) }

// at simulates all runs at x.
func (p *problem) at(x []float64) (*point, error) {
	pt := &point{x: slices.Clone(x), values: make([]float64, len(p.observations))}
	errs := make([]error, len(p.runs))
	var next atomic.Int64
	var wg sync.WaitGroup
	for range min(p.workers, len(p.runs)) {
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < len(p.runs); i = int(next.Add(1)) - 1 {
				r := &p.runs[i]
				answers, _, _, err := r.simulate(p.profile(r.Environment, x))
				if errs[i] = err; err == nil {
					copy(pt.values[p.first[i]:], predict(p.observations[p.first[i]:p.first[i+1]], answers))
				}
			}
		})
	}
	wg.Wait()
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	sum, weights := 0.0, 0.0
	for i, v := range pt.values {
		w := p.observations[i].weight
		sum += w * loss(p.residual(i, v))
		weights += w
	}
	pt.objective = sum / weights
	return pt, nil
}

// errors are how far each run is off at a point.
func (p *problem) errors(pt *point) []Errors {
	var all []Errors
	for run := range p.runs {
		e := Errors{Run: p.runs[run].Name, Observations: p.first[run+1] - p.first[run]}
		var relative [2][]float64
		for i := p.first[run]; i < p.first[run+1]; i++ {
			o := &p.observations[i]
			if math.IsNaN(pt.values[i]) {
				e.Missing++
				continue
			}
			relative[o.metric] = append(relative[o.metric], pt.values[i]/o.value-1)
		}
		e.TTFT, e.TPOT = deviations(relative[TTFT]), deviations(relative[TPOT])
		all = append(all, e)
	}
	return all
}

func deviations(relative []float64) Deviations {
	d := Deviations{Mean: mean(relative)}
	absolute := make([]float64, len(relative))
	for i, v := range relative {
		absolute[i] = math.Abs(v)
	}
	slices.Sort(absolute)
	d.Absolute = record.Quantile(absolute, 0.5).Or(math.NaN())
	return d
}

// digestBytes is how much of the digest is kept: enough to tell data apart.
const digestBytes = 8

// digest identifies what was measured: the runs' names and every observation.
func (p *problem) digest() string {
	h := sha256.New()
	for i := range p.observations {
		o := &p.observations[i]
		h.Write([]byte(p.runs[o.run].Name))
		for _, v := range []uint64{uint64(o.metric), uint64(o.index), math.Float64bits(o.level), math.Float64bits(o.value)} {
			h.Write(binary.BigEndian.AppendUint64(nil, v))
		}
	}
	return "sha256:" + hex.EncodeToString(h.Sum(nil)[:digestBytes])
}
