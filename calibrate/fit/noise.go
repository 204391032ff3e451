package fit

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"fleetsim/model"
	"fleetsim/sim/record"
)

// leastForNoise is how many requests the scatter needs, each after the end of
// the one before it.
const leastForNoise = 8

// A residue is by how much, as a share, a request's TPOT is off.
type residue struct {
	start, end float64 // s
	tokens     int
	off        float64
}

// Noise measures how step times scatter around the fit. A request's TPOT is a
// mean over its steps, so that its scatter says how much steps scatter, and how
// it goes on in the next request, whose steps are others, says how long a
// deviation lasts. The difference between replicas is that between the means of
// the runs, which are of different replicas and days. All of it holds what the
// model does not explain as well.
func (r *Result) Noise(runs []Run) (model.Noise, error) {
	var chain []residue
	var means []float64
	for i := range runs {
		all, err := r.residues(&runs[i])
		if err != nil {
			return model.Noise{}, err
		}
		if len(all) > 0 {
			means = append(means, meanOff(all))
		}
		if !runs[i].Sorted {
			chain = append(chain, apart(all)...)
		}
	}
	if len(chain) < leastForNoise {
		return model.Noise{}, fmt.Errorf("%d requests follow each other without overlap in runs that are compared request by request: step noise needs %d", len(chain), leastForNoise)
	}
	n := noiseOf(chain)
	if len(means) > 1 {
		n.ReplicaSD = round(deviation(means))
	}
	n.Source = fmt.Sprintf("TPOT residuals of %d requests that do not overlap, and of %d runs", len(chain), len(means))
	return n, nil
}

// residues are the TPOT residuals of a run with request records, by start.
func (r *Result) residues(run *Run) ([]residue, error) {
	if len(run.Requests) == 0 {
		return nil, nil
	}
	p, err := r.Profile(run.Environment, "")
	if err != nil {
		return nil, err
	}
	answers, plan, _, err := run.simulate(p)
	if err != nil {
		return nil, err
	}
	indexes := match(run, plan)
	var all []residue
	for i := range run.Requests {
		q := &run.Requests[i]
		tpot, ok := q.MeanTokenTime().Get()
		at, found := slices.BinarySearchFunc(answers, indexes[i], func(a answered, index int) int { return cmp.Compare(a.index, index) })
		if !ok || !found || !succeeded(q) || math.IsNaN(answers[at].tpot) {
			continue
		}
		start := q.Started.Or(0)
		all = append(all, residue{start, start + q.E2E.Or(0), q.OutputTokens.Or(2), tpot/answers[at].tpot - 1})
	}
	slices.SortFunc(all, func(a, b residue) int { return cmp.Compare(a.start, b.start) })
	return all, nil
}

// apart are residuals of requests each of which starts after the one before
// has ended.
func apart(all []residue) []residue {
	var out []residue
	for _, x := range all {
		if len(out) == 0 || x.start >= out[len(out)-1].end {
			out = append(out, x)
		}
	}
	return out
}

// noiseOf finds the first-order autoregression of steps under which means over
// a request's steps scatter, and go on from one to the next, as they do.
func noiseOf(chain []residue) model.Noise {
	steps, off := 0.0, make([]float64, len(chain))
	for i, x := range chain {
		steps += float64(x.tokens-1) / float64(len(chain))
		off[i] = x.off
	}
	centre := median(off)
	for i := range off {
		off[i] -= centre
	}
	sd := 1.4826 * median(absolute(off)) // as a normal distribution has it; outliers do not count
	c := carriedOver(off, 3*sd)
	n := model.Noise{}
	if c > 2/math.Sqrt(float64(len(off))) {
		n.StepCorrelation = stepCorrelation(c, steps)
	}
	rho := n.StepCorrelation
	n.StepSD = round(sd / math.Sqrt(varianceOfMean(rho, steps)))
	return n
}

// stepCorrelation is the correlation of steps under which means over stretches
// of n steps side by side have the correlation c.
func stepCorrelation(c, n float64) float64 {
	low, high := 0.0, 0.99999
	for range 50 {
		rho := (low + high) / 2
		if correlationOfMeans(rho, n) < c {
			low = rho
		} else {
			high = rho
		}
	}
	return round(low)
}

// correlationOfMeans is that of the means of two stretches of n steps side by
// side, in a first-order autoregression: the mean of rho^(distance) over pairs
// across, over that of pairs within.
func correlationOfMeans(rho, n float64) float64 {
	across := rho * math.Pow((1-math.Pow(rho, n))/(1-rho), 2) / (n * n)
	return across / varianceOfMean(rho, n)
}

// varianceOfMean is the variance of the mean of n steps of a first-order
// autoregression, as a share of a step's.
func varianceOfMean(rho, n float64) float64 {
	if rho == 0 {
		return 1 / n
	}
	return (1 + rho) / (1 - rho) / n * (1 - 2*rho*(1-math.Pow(rho, n))/(n*(1-rho*rho)))
}

// carriedOver is the correlation of each value with the next, values beyond
// most in size left out.
func carriedOver(off []float64, most float64) float64 {
	product, square := 0.0, 0.0
	for i := 1; i < len(off); i++ {
		if math.Abs(off[i]) <= most && math.Abs(off[i-1]) <= most {
			product += off[i] * off[i-1]
			square += (off[i]*off[i] + off[i-1]*off[i-1]) / 2
		}
	}
	if square == 0 {
		return 0
	}
	return product / square
}

func meanOff(all []residue) float64 {
	sum := 0.0
	for _, x := range all {
		sum += x.off
	}
	return sum / float64(len(all))
}

// deviation is the sample standard deviation.
func deviation(values []float64) float64 {
	m, sum := mean(values), 0.0
	for _, v := range values {
		sum += (v - m) * (v - m)
	}
	return math.Sqrt(sum / float64(len(values)-1))
}

func absolute(values []float64) []float64 {
	out := make([]float64, len(values))
	for i, v := range values {
		out[i] = math.Abs(v)
	}
	return out
}

func median(values []float64) float64 {
	sorted := slices.Clone(values)
	slices.Sort(sorted)
	return record.Quantile(sorted, 0.5).Or(0)
}
