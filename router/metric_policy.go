package router

import (
	"math"
	"math/rand/v2"

	"fleetsim/simtime"
)

// A metricPolicy takes the pod with the lowest score computed from engine
// metrics. A pod whose metrics have not arrived has no score; when none has one,
// any pod is taken with the same chance.
type metricPolicy struct {
	tie tieRule
	// score sets scores[i] for each pods[i], to NaN when a metric is missing.
	score  func(pods []Pod, scores []float64)
	scores []float64 // scratch
	best   []int     // scratch
}

// A tieRule says which of the pods with the lowest score is taken.
type tieRule int

const (
	tieRandom tieRule = iota // each with the same chance
	tieFirst                 // the first in the list
	tieLast                  // the last in the list
)

// registerMetric registers a metric policy.
func registerMetric(name string, tie tieRule, score func(pods []Pod, scores []float64)) {
	Register(name, func(Settings, Options) (Policy, error) {
		return &metricPolicy{tie: tie, score: score}, nil
	})
}

// missing is the score of a pod that has none.
func missing() float64 { return math.NaN() }

// OrderSensitive reports whether the place in the list breaks ties.
func (p *metricPolicy) OrderSensitive() bool { return p.tie != tieRandom }

func (p *metricPolicy) Route(_ simtime.Time, _ *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	p.choose(pods)
	return Decision{Pod: draw(rng, p.best)}, nil
}

// choose leaves in p.best the pods among which the choice is drawn.
func (p *metricPolicy) choose(pods []Pod) {
	p.scores = resize(p.scores, len(pods))
	p.score(pods, p.scores)
	p.best = appendLowest(p.best[:0], p.scores)
	switch {
	case len(p.best) == 0:
		for i := range pods {
			p.best = append(p.best, i)
		}
	case p.tie == tieFirst:
		p.best = p.best[:1]
	case p.tie == tieLast:
		p.best = p.best[len(p.best)-1:]
	}
}

// Score gives the policy's scores to a multi-strategy list.
func (p *metricPolicy) Score(_ simtime.Time, _ *Request, pods []Pod, _ *rand.Rand, scores []float64) {
	p.score(pods, scores)
}

// LowerIsBetter is true of every metric policy.
func (p *metricPolicy) LowerIsBetter() bool { return true }

// appendLowest appends the indices of the lowest score; NaN is no score.
func appendLowest(dst []int, scores []float64) []int {
	least := math.Inf(1)
	for _, s := range scores {
		if s < least {
			least = s
		}
	}
	for i, s := range scores {
		if s == least {
			dst = append(dst, i)
		}
	}
	return dst
}

// resize is s with length n, its contents undefined.
func resize[T any](s []T, n int) []T {
	if cap(s) < n {
		return make([]T, n)
	}
	return s[:n]
}
