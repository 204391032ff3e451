package router

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"

	"fleetsim/simtime"
)

// A Scorer is a policy that can be combined with others in a weighted list.
type Scorer interface {
	// Score sets scores[i] for each pods[i], to NaN where it cannot tell.
	Score(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand, scores []float64)
	// LowerIsBetter tells which end of the scores is the good one.
	LowerIsBetter() bool
}

// A PostRouter is a scoring policy that learns from a combined choice.
type PostRouter interface {
	// Routed reports that pods[chosen] got the request that was last scored.
	Routed(now simtime.Time, req *Request, pods []Pod, chosen int)
}

// multiStrategy adds up the weighted scores of several policies. It applies none
// of their other rules: prefix-cache takes part without its imbalance check, its
// gate and its counters.
type multiStrategy struct {
	parts  []weightedScorer
	scores []float64 // scratch
	final  []float64 // scratch: the combined scores
}

type weightedScorer struct {
	Policy
	scorer Scorer
	weight float64 // share of the total
}

func newMultiStrategy(strategies []strategy, s Settings, o Options) (Policy, error) {
	m := &multiStrategy{}
	total := 0
	for _, st := range strategies {
		total += st.weight
	}
	var problems []error
	for _, st := range strategies {
		p, err := newSingle(st.name, s, o)
		if err != nil {
			problems = append(problems, err)
			continue
		}
		scorer, ok := p.(Scorer)
		if !ok {
			problems = append(problems, fmt.Errorf("policy %q cannot score pods, so it cannot be one of several", st.name))
			continue
		}
		m.parts = append(m.parts, weightedScorer{p, scorer, float64(st.weight) / float64(total)})
	}
	return m, errors.Join(problems...)
}

// OrderSensitive is true: the first of equals wins.
func (m *multiStrategy) OrderSensitive() bool { return true }

func (m *multiStrategy) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	m.combine(now, req, pods, rng)
	d := Decision{Pod: firstHighest(m.final)}
	for _, part := range m.parts {
		if r, ok := part.Policy.(PostRouter); ok {
			r.Routed(now, req, pods, d.Pod)
		}
	}
	return d, nil
}

// combine sets m.final to the sum of the normalised scores times their weights.
func (m *multiStrategy) combine(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) {
	m.final = m.final[:0]
	for range pods {
		m.final = append(m.final, 0)
	}
	m.scores = resize(m.scores, len(pods))
	for _, part := range m.parts {
		part.scorer.Score(now, req, pods, rng, m.scores)
		normalise(m.scores, part.scorer.LowerIsBetter())
		for i, s := range m.scores {
			m.final[i] += s * part.weight
		}
	}
}

// normalise maps the finite scores onto 0 (worst) to 1 (best), onto 1 when all
// are equal; what is not finite becomes 0.
func normalise(scores []float64, lowerIsBetter bool) {
	least, most := math.Inf(1), math.Inf(-1)
	for _, s := range scores {
		if finite(s) {
			least, most = min(least, s), max(most, s)
		}
	}
	for i, s := range scores {
		switch {
		case !finite(s):
			scores[i] = 0
		case most == least:
			scores[i] = 1
		case lowerIsBetter:
			scores[i] = (most - s) / (most - least)
		default:
			scores[i] = (s - least) / (most - least)
		}
	}
}

func finite(f float64) bool { return !math.IsNaN(f) && !math.IsInf(f, 0) }

// tie is how far apart two combined scores may be and still count as equal.
const tie = 1e-9

// firstHighest is the index of the first score that no later one exceeds by more
// than tie.
func firstHighest(scores []float64) int {
	best := 0
	for i, s := range scores {
		if s > scores[best]+tie {
			best = i
		}
	}
	return best
}

// The optional parts of a policy are passed on to those strategies that have
// them.

// BlockStored passes an engine's event on.
func (m *multiStrategy) BlockStored(now simtime.Time, e *BlockStored) {
	eachPart(m, func(s KVEventSink) { s.BlockStored(now, e) })
}

// BlockRemoved passes an engine's event on.
func (m *multiStrategy) BlockRemoved(now simtime.Time, e *BlockRemoved) {
	eachPart(m, func(s KVEventSink) { s.BlockRemoved(now, e) })
}

// AllBlocksCleared passes an engine's event on.
func (m *multiStrategy) AllBlocksCleared(now simtime.Time, pod int) {
	eachPart(m, func(s KVEventSink) { s.AllBlocksCleared(now, pod) })
}

// PodRemoved passes the news on.
func (m *multiStrategy) PodRemoved(pod int) {
	eachPart(m, func(w PodWatcher) { w.PodRemoved(pod) })
}

// Remember passes the prompt on.
func (m *multiStrategy) Remember(now simtime.Time, req *Request, pod int) {
	eachPart(m, func(r Rememberer) { r.Remember(now, req, pod) })
}

// Finished passes the news on.
func (m *multiStrategy) Finished(now simtime.Time, req *Request, c Choice, outputTokens int) {
	eachPart(m, func(t Tracker) { t.Finished(now, req, c, outputTokens) })
}

// IndexStats adds up the indexes of the strategies.
func (m *multiStrategy) IndexStats(now simtime.Time) (sum IndexStats) {
	eachPart(m, func(h IndexHolder) {
		s := h.IndexStats(now)
		sum.Entries += s.Entries
		sum.Bytes += s.Bytes
		sum.Evicted += s.Evicted
		sum.Expired += s.Expired
	})
	return sum
}

// eachPart calls f for each strategy that is a T.
func eachPart[T any](m *multiStrategy, f func(T)) {
	for _, part := range m.parts {
		if t, ok := part.Policy.(T); ok {
			f(t)
		}
	}
}

// ReadsMetrics reports whether one of the strategies does.
func (m *multiStrategy) ReadsMetrics() bool {
	for _, part := range m.parts {
		if readsMetrics(part.Policy) {
			return true
		}
	}
	return false
}

// HearsKVEvents reports whether one of the strategies does.
func (m *multiStrategy) HearsKVEvents() bool {
	for _, part := range m.parts {
		if hearsKVEvents(part.Policy) {
			return true
		}
	}
	return false
}

func (m *multiStrategy) auditor() IndexAuditor {
	for _, part := range m.parts {
		if a, ok := part.Policy.(IndexAuditor); ok {
			return a
		}
	}
	return nil
}
