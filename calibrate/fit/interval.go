package fit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"gonum.org/v1/gonum/mat"

	"fleetsim/random"
	"fleetsim/sim/record"
)

// influential are the parameters that change any simulated latency, each tried
// by a move up and a move down from the base.
func (s *search) influential(at *point) []int {
	var free []int
	for i := range s.problem.parameters {
		if s.over() {
			break
		}
		for _, move := range []float64{tryMove, -tryMove} {
			x := slices.Clone(at.x)
			x[i] = s.problem.inside(i, move)
			pt, err := s.evaluate(x)
			if err != nil {
				s.err = err
				break
			}
			if s.problem.differs(at, pt) {
				free = append(free, i)
				break
			}
		}
	}
	return free
}

// tryMove is the logarithm of the factor by which a parameter is tried.
const tryMove = 0.1

// differs reports whether two points are more apart than rounding.
func (p *problem) differs(a, b *point) bool {
	for i := range a.values {
		// A value that only one has is a difference.
		if d := math.Abs(p.residual(i, a.values[i]) - p.residual(i, b.values[i])); d > 0.01 {
			return true
		}
	}
	return false
}

// Settings of the judgement.
const (
	resamples     = 400
	intervalLow   = 0.05
	intervalHigh  = 0.95
	widest        = 2.5 // logarithm of high over low beyond which an interval says nothing
	blockRequests = 8   // requests that are resampled together: neighbours wait for the same steps
)

// judge finds the interval of each free parameter. Those that the data does
// not pin down go back to the base's value, and the others are fitted again.
func (s *search) judge(free []int, at *point) ([]Fitted, *point) {
	why := map[int]string{}
	for i := range s.problem.parameters {
		if !slices.Contains(free, i) {
			why[i] = "it changes no latency"
		}
	}
	for {
		intervals := s.intervals(at, free)
		if s.over() || intervals == nil {
			return s.fitted(at, free, intervals, why), at
		}
		kept := slices.DeleteFunc(slices.Clone(free), func(i int) bool {
			why[i] = s.problem.unclear(i, at.x[i], intervals[i])
			if why[i] == "" {
				delete(why, i)
			}
			return why[i] != ""
		})
		if len(kept) == len(free) {
			return s.fitted(at, free, intervals, why), at
		}
		free = kept
		s.best = nil
		x := onto(at.x, free)
		first, err := s.evaluate(x)
		if err != nil {
			s.err = err
			return s.fitted(at, free, nil, why), at
		}
		s.best = first
		if len(free) > 0 {
			s.descend(x, free)
		}
		at = s.best
	}
}

// unclear says why the data does not pin the i-th parameter down; "" if it does.
func (p *problem) unclear(i int, x float64, interval [2]float64) string {
	switch {
	case interval[1]-interval[0] > widest:
		return fmt.Sprintf("90%% interval %.3g to %.3g", p.value(i, interval[0]), p.value(i, interval[1]))
	case x <= p.low[i] || x >= p.high[i]:
		return fmt.Sprintf("it went to its bound %.3g", p.value(i, x))
	}
	return ""
}

// intervals are the 90% intervals of the free parameters, as x: quantiles of
// the fits to resampled data, each found by one Newton step.
func (s *search) intervals(at *point, free []int) map[int][2]float64 {
	if len(free) == 0 {
		return nil
	}
	j := s.jacobian(at, free)
	if s.over() {
		return nil
	}
	centre := s.problem.shift(at, j, nil)
	rng := random.Stream(s.o.Seed, "calibration bootstrap")
	shifts := make([][]float64, len(free))
	for range resamples {
		delta := s.problem.shift(at, j, s.problem.resample(rng))
		for k := range free {
			shifts[k] = append(shifts[k], delta[k]-centre[k])
		}
	}
	out := map[int][2]float64{}
	for k, i := range free {
		slices.Sort(shifts[k])
		out[i] = [2]float64{
			at.x[i] + record.Quantile(shifts[k], intervalLow).Or(0),
			at.x[i] + record.Quantile(shifts[k], intervalHigh).Or(0),
		}
	}
	return out
}

// shift is where the best point of the linear problem moves; the whole way of
// a parameter without influence is unknown, which an infinite shift says.
func (p *problem) shift(at *point, j *mat.Dense, counts []float64) []float64 {
	if delta, ok := p.newton(at, j, 1e-9, counts); ok {
		return delta
	}
	_, n := j.Dims()
	out := make([]float64, n)
	for i := range out {
		out[i] = math.Inf(1)
	}
	return out
}

// resample draws, with replacement, as many blocks of requests (statistics one
// by one) from each run as it has, and returns how often each observation was
// drawn.
func (p *problem) resample(rng *rand.Rand) []float64 {
	counts := make([]float64, len(p.observations))
	for run := range p.runs {
		var blocks [][]int
		of := map[int]int{}
		for i := p.first[run]; i < p.first[run+1]; i++ {
			o := &p.observations[i]
			if o.index < 0 {
				blocks = append(blocks, []int{i})
				continue
			}
			b, ok := of[o.index/blockRequests]
			if !ok {
				b = len(blocks)
				of[o.index/blockRequests] = b
				blocks = append(blocks, nil)
			}
			blocks[b] = append(blocks[b], i)
		}
		for range blocks {
			for _, i := range blocks[rng.IntN(len(blocks))] {
				counts[i]++
			}
		}
	}
	return counts
}

// fitted describes every parameter at a point.
func (s *search) fitted(at *point, free []int, intervals map[int][2]float64, why map[int]string) []Fitted {
	p := s.problem
	var all []Fitted
	for i := range p.parameters {
		_, names := p.parameters[i].targets()
		f := Fitted{Parameter: p.parameters[i], Start: p.begin[i], Value: p.begin[i], Why: why[i]}
		f.Unit = unitOf(names[0])
		if slices.Contains(free, i) {
			f.Value = p.value(i, at.x[i])
			if in, ok := intervals[i]; ok {
				f.Identified = true
				f.IntervalLow, f.IntervalHigh = p.value(i, in[0]), p.value(i, in[1])
			} else {
				f.Why = "the search was stopped before its interval was known"
			}
		}
		all = append(all, f)
	}
	return all
}
