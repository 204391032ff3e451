package fit

import (
	"context"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"
	"gonum.org/v1/gonum/optimize"

	"fleetsim/random"
)

// A search looks for the best point of a problem.
type search struct {
	problem     *problem
	ctx         context.Context
	o           Options
	best        *point
	evaluations int
	err         error // of a simulation; nil for a cancelled search
}

// start is the origin: the base profile.
func (s *search) start() []float64 { return make([]float64, len(s.problem.parameters)) }

// evaluate simulates at x and notes the best point.
func (s *search) evaluate(x []float64) (*point, error) {
	pt, err := s.problem.at(x)
	if err != nil {
		return nil, err
	}
	s.evaluations++
	if s.best != nil && s.problem.blur == 1 && pt.objective < s.best.objective {
		s.best = pt
	}
	if s.o.Progress != nil && s.best != nil {
		s.o.Progress(Progress{s.evaluations, max(s.expected(), s.evaluations), s.best.objective})
	}
	return pt, nil
}

// expected is roughly how many evaluations the search takes: derivatives for
// several steps of each descent, and the polish.
func (s *search) expected() int {
	const steps = 12
	derivatives := 2*len(s.problem.parameters) + 2
	return derivatives*(2+steps*(s.o.Starts+1)) + s.o.Polish
}

// over reports whether the search must end.
func (s *search) over() bool { return s.err != nil || s.ctx.Err() != nil }

// run searches with the free parameters, the others at the base's values, and
// returns the best point.
func (s *search) run(free []int) *point {
	if len(free) == 0 {
		return s.best
	}
	rng := random.Stream(s.o.Seed, "calibration starts")
	for k := 0; k < s.o.Starts && !s.over(); k++ {
		x := s.start()
		if k > 0 {
			x = s.around(s.best.x, spreads[k%len(spreads)], rng, free)
		}
		for _, blur := range blurs {
			s.problem.blur = blur
			x = s.descend(x, free)
		}
	}
	if s.o.Polish > 0 && !s.over() {
		s.polish(free)
		s.descend(s.best.x, free)
	}
	return s.best
}

// blurs are what the scales of residuals are multiplied by, one descent after
// the other. Far from the truth batches form otherwise than they did, and only
// the coarse view has a slope that leads there.
var blurs = [...]float64{30, 10, 3, 1}

// spreads are the standard deviations of starts around the best point, in
// logarithms, in turn: a near miss is left by a small step, a wrong valley by
// a large one.
var spreads = [...]float64{0.1, 0.01, 0.03}

// around is a point around x.
func (s *search) around(x []float64, spread float64, rng *rand.Rand, free []int) []float64 {
	out := slices.Clone(x)
	for _, i := range free {
		out[i] = s.problem.inside(i, x[i]+spread*rng.NormFloat64())
	}
	return out
}

// onto is x with all parameters but the free ones at the base's values.
func onto(x []float64, free []int) []float64 {
	out := make([]float64, len(x))
	for _, i := range free {
		out[i] = x[i]
	}
	return out
}

// Settings of the descent.
const (
	difference = 0.004 // step of the differences that stand for derivatives, in logarithms; longer in a coarse view
	rounds     = 30    // most steps of a descent
	settled    = 1e-4  // share of the objective that a step must win for the descent to go on
	mostDamp   = 1e6
)

// descend goes from x downhill by Levenberg and Marquardt's method, in which
// the loss weighs each residual anew at each step, and returns where it came.
func (s *search) descend(x []float64, free []int) []float64 {
	at, err := s.evaluate(x)
	if err != nil {
		s.err = err
		return x
	}
	damp := 1e-2
	for range rounds {
		j := s.jacobian(at, free)
		if s.over() {
			break
		}
		next, ok := s.step(at, j, free, &damp)
		if !ok {
			break
		}
		won := at.objective - next.objective
		if at = next; won < settled*at.objective {
			break
		}
	}
	return at.x
}

// step looks for a lower point, more cautiously each time it finds none.
func (s *search) step(at *point, j *mat.Dense, free []int, damp *float64) (*point, bool) {
	for ; *damp < mostDamp && !s.over(); *damp *= 8 {
		delta, ok := s.problem.newton(at, j, *damp, nil)
		if !ok {
			continue
		}
		x := slices.Clone(at.x)
		for k, i := range free {
			x[i] = s.problem.inside(i, x[i]+min(max(delta[k], -longest), longest))
		}
		next, err := s.evaluate(x)
		if err != nil {
			s.err = err
			return nil, false
		}
		if next.objective < at.objective {
			*damp = max(*damp/20, 1e-7)
			return next, true
		}
	}
	return nil, false
}

// longest is the most that a step changes a parameter by, in logarithms.
const longest = 0.3

// inside is the nearest value of x within the i-th parameter's bounds.
func (p *problem) inside(i int, x float64) float64 { return min(max(x, p.low[i]), p.high[i]) }

// jacobian has the derivative of each residual by each free parameter, by
// central differences.
func (s *search) jacobian(at *point, free []int) *mat.Dense {
	p := s.problem
	j := mat.NewDense(len(p.observations), len(free), nil)
	for k, i := range free {
		if s.over() {
			return j
		}
		up, down := slices.Clone(at.x), slices.Clone(at.x)
		d := difference * math.Sqrt(p.blur)
		up[i], down[i] = p.inside(i, at.x[i]+d), p.inside(i, at.x[i]-d)
		high, err := s.evaluate(up)
		if err == nil {
			var low *point
			if low, err = s.evaluate(down); err == nil {
				fillColumn(j, k, p, high, low, up[i]-down[i])
			}
		}
		if err != nil {
			s.err = err
			return j
		}
	}
	return j
}

// steepest is the largest derivative that is believed: beyond it a request has
// changed its place, and the difference says nothing about a slope.
const steepest = 5000

func fillColumn(j *mat.Dense, k int, p *problem, high, low *point, width float64) {
	for i := range p.observations {
		a, b := high.values[i], low.values[i]
		if math.IsNaN(a) || math.IsNaN(b) || width == 0 {
			continue
		}
		d := (p.residual(i, a) - p.residual(i, b)) / width
		if math.Abs(d) < steepest {
			j.Set(i, k, d)
		}
	}
}

// newton is the step that would be best if the residuals were linear, with
// observations weighted by the loss and, if given, by their counts.
func (p *problem) newton(at *point, j *mat.Dense, damp float64, counts []float64) ([]float64, bool) {
	rows, n := j.Dims()
	normal, gradient := mat.NewSymDense(n, nil), make([]float64, n)
	for i := range rows {
		if math.IsNaN(at.values[i]) {
			continue
		}
		r := p.residual(i, at.values[i])
		w := p.observations[i].weight * lossWeight(r)
		if counts != nil {
			w *= counts[i]
		}
		row := j.RawRowView(i)
		for a := range n {
			gradient[a] -= w * row[a] * r
			for b := a; b < n; b++ {
				normal.SetSym(a, b, normal.At(a, b)+w*row[a]*row[b])
			}
		}
	}
	for a := range n {
		normal.SetSym(a, a, normal.At(a, a)*(1+damp)+1e-12)
	}
	var chol mat.Cholesky
	if !chol.Factorize(normal) {
		return nil, false
	}
	var delta mat.VecDense
	if err := chol.SolveVecTo(&delta, mat.NewVecDense(n, gradient)); err != nil {
		return nil, false
	}
	return delta.RawVector().Data, true
}

// polish searches around the best point without derivatives.
func (s *search) polish(free []int) {
	from := slices.Clone(s.best.x)
	objective := func(v []float64) float64 {
		x, outside := slices.Clone(from), 0.0
		for k, i := range free {
			x[i] = s.problem.inside(i, v[k])
			outside += math.Abs(x[i] - v[k])
		}
		pt, err := s.evaluate(x)
		if err != nil {
			s.err = err
			return math.Inf(1)
		}
		return pt.objective * (1 + outside)
	}
	begin := make([]float64, len(free))
	for k, i := range free {
		begin[k] = from[i]
	}
	settings := &optimize.Settings{FuncEvaluations: s.o.Polish, Recorder: stopper{s}, Converger: optimize.NeverTerminate{}}
	// It ends by its budget or by the stopper; the best point is noted by evaluate.
	_, _ = optimize.Minimize(optimize.Problem{Func: objective}, begin, settings, &optimize.NelderMead{SimplexSize: 0.01})
}

// stopper ends an optimisation with its search.
type stopper struct{ s *search }

func (stopper) Init() error { return nil }

func (r stopper) Record(*optimize.Location, optimize.Operation, *optimize.Stats) error {
	if r.s.err != nil {
		return r.s.err
	}
	return r.s.ctx.Err()
}
