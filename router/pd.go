package router

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"

	"fleetsim/simtime"
)

func init() {
	Register("pd", func(s Settings, _ Options) (Policy, error) { return newPD(s), nil })
}

// pdPolicy is AIBrix's prefill/decode disaggregation: it picks a pod of role
// prefill and one of role decode from the same role set. Only role sets that have
// both take part. The decode pod is the target; Decision.Prefill is the other.
//
// The prefill side goes by the prompt's prefix and the policy's own count of
// prefills under way, the decode side by in-flight requests (with those whose
// prefill is still under way), generation throughput and free KV cache. A large
// imbalance on either side decides at once.
//
// Approximated: the pod-group-index label (every pod here answers requests), the
// prompt-length classes with combined pods, and the queue that delays the index
// add are not modelled. Free cache is read from kv_cache_usage_perc, from
// gpu_cache_usage_perc where that is missing, and counts as all where both are.
type pdPolicy struct {
	settings   PDSettings
	prefix     *prefixCache  // for its local index and hashes
	prefilling map[int]int   // by pod: prefills under way
	pending    map[int]int   // by pod: requests that will decode there after their prefill
	prefills   []pdCandidate // scratch
	decodes    []pdCandidate // scratch
	pairs      []pdPair      // scratch
	draws      []int         // scratch
}

// A pdCandidate is a pod with one of the roles.
type pdCandidate struct {
	pod        int // index in the list
	roleSet    string
	count      float64 // prefills under way, or requests in flight
	percent    int     // match percentage
	throughput float64
	free       float64 // free KV cache, percent
	score      float64
	skipped    bool
}

// A pdPair is the best prefill and decode pod of a role set.
type pdPair struct{ prefill, decode *pdCandidate }

// The labels of the two roles.
const (
	RolePrefill = "prefill"
	RoleDecode  = "decode"
)

var (
	errNoRoleSet = errors.New("router: pd: no role set has both a routable prefill and a routable decode pod")
	errNoPair    = errors.New("router: pd: no pair of pods has a score; is an engine metric not a number?")
)

func newPD(s Settings) *pdPolicy {
	s.Prefix.KVEventSync = false // this policy has the local index alone
	return &pdPolicy{
		settings: s.PD, prefix: newPrefixCache(s),
		prefilling: make(map[int]int), pending: make(map[int]int),
	}
}

func (p *pdPolicy) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	p.collect(pods)
	if len(p.prefills) == 0 {
		return Decision{}, errNoRoleSet
	}
	p.narrowPrefills(rng)
	p.measureDecodes(pods)
	most := p.maxima()
	p.narrowDecodes(pods, rng)
	p.scorePrefills(now, req, pods)
	p.scoreDecodes(most)
	pair, ok := p.bestPair(rng)
	if !ok {
		return Decision{}, errNoPair
	}
	d := Decision{
		Pod: pair.decode.pod, Disaggregated: true, Prefill: pair.prefill.pod,
		MatchPercent: pair.prefill.percent,
	}
	p.prefix.index.add(now, req.Model, &p.prefix.prompt, pods[d.Prefill].ID)
	p.prefilling[pods[d.Prefill].ID]++
	p.pending[pods[d.Pod].ID]++
	return d, nil
}

// PrefillFinished takes the request out of both of the policy's counts.
func (p *pdPolicy) PrefillFinished(_ simtime.Time, _ *Request, c Choice) {
	p.prefilling[c.PrefillID]--
	p.pending[c.PodID]--
}

// collect sets the candidates of both roles, from role sets that have both.
func (p *pdPolicy) collect(pods []Pod) {
	p.prefills, p.decodes = p.prefills[:0], p.decodes[:0]
	for i := range pods {
		c := pdCandidate{pod: i, roleSet: pods[i].RoleSet}
		switch pods[i].Role {
		case RolePrefill:
			c.count = float64(p.prefilling[pods[i].ID])
			p.prefills = append(p.prefills, c)
		case RoleDecode:
			p.decodes = append(p.decodes, c)
		}
	}
	p.decodes = slices.DeleteFunc(p.decodes, func(c pdCandidate) bool { return !inRoleSet(p.prefills, c.roleSet) })
	p.prefills = slices.DeleteFunc(p.prefills, func(c pdCandidate) bool { return !inRoleSet(p.decodes, c.roleSet) })
}

func inRoleSet(candidates []pdCandidate, roleSet string) bool {
	return slices.ContainsFunc(candidates, func(c pdCandidate) bool { return c.roleSet == roleSet })
}

// only keeps the candidates of one role set.
func only(candidates []pdCandidate, roleSet string) []pdCandidate {
	return slices.DeleteFunc(candidates, func(c pdCandidate) bool { return c.roleSet != roleSet })
}

// narrowPrefills leaves a single prefill pod, one with the fewest prefills, when
// the spread of their counts is above the threshold, and the decode pods of its
// role set.
func (p *pdPolicy) narrowPrefills(rng *rand.Rand) {
	least, most := spread(p.prefills, func(c *pdCandidate) float64 { return c.count })
	if most-least <= float64(p.settings.PrefillSpread) {
		return
	}
	c := p.prefills[p.drawLowest(p.prefills, rng, func(c *pdCandidate) float64 { return c.count })]
	p.prefills = append(p.prefills[:0], c)
	p.decodes = only(p.decodes, c.roleSet)
}

// spread is the lowest and the highest value over the candidates.
func spread(candidates []pdCandidate, value func(*pdCandidate) float64) (least, most float64) {
	least, most = math.Inf(1), math.Inf(-1)
	for i := range candidates {
		v := value(&candidates[i])
		least, most = math.Min(least, v), math.Max(most, v)
	}
	return least, most
}

// drawLowest is the place of a candidate with the lowest value, each of equals
// with the same chance.
func (p *pdPolicy) drawLowest(candidates []pdCandidate, rng *rand.Rand, value func(*pdCandidate) float64) int {
	least, _ := spread(candidates, value)
	p.draws = p.draws[:0]
	for i := range candidates {
		if value(&candidates[i]) == least {
			p.draws = append(p.draws, i)
		}
	}
	return draw(rng, p.draws)
}

// measureDecodes reads what the decode side is judged by.
func (p *pdPolicy) measureDecodes(pods []Pod) {
	for i := range p.decodes {
		c := &p.decodes[i]
		pod := &pods[c.pod]
		c.count = float64(pod.Running + p.pending[pod.ID])
		c.throughput = pod.Metrics.OutputRate.Or(0)
		usage := pod.Metrics.KVCacheUsage.Or(pod.Metrics.GPUCacheUsage.Or(0))
		c.free = math.Round(100 - 100*usage)
		if c.free <= 0 {
			c.free = 0.1
		}
	}
}

// pdMaxima are the highest values over the decode pods, at least 1.
type pdMaxima struct{ count, throughput, free float64 }

func (p *pdPolicy) maxima() pdMaxima {
	m := pdMaxima{1, 1, 1}
	for i := range p.decodes {
		m.count = math.Max(m.count, p.decodes[i].count)
		m.throughput = math.Max(m.throughput, p.decodes[i].throughput)
		m.free = math.Max(m.free, p.decodes[i].free)
	}
	return m
}

// narrowDecodes leaves a single decode pod when requests, throughput or the time
// to drain are out of balance, and the prefill pods of its role set.
func (p *pdPolicy) narrowDecodes(pods []Pod, rng *rand.Rand) {
	value := p.imbalance(pods)
	if value == nil {
		return
	}
	c := p.decodes[p.drawLowest(p.decodes, rng, value)]
	p.decodes = append(p.decodes[:0], c)
	if len(p.prefills) > 1 {
		p.prefills = only(p.prefills, c.roleSet)
	}
}

// minDrainRate keeps a pod that hardly finishes anything from dividing by 0, in
// requests a second.
const minDrainRate = 0.1

// imbalance is the first measure in which the decode pods are out of balance, nil
// when they are in none. Unlike elsewhere a spread of requests equal to the
// threshold is enough.
func (p *pdPolicy) imbalance(pods []Pod) func(*pdCandidate) float64 {
	count := func(c *pdCandidate) float64 { return c.count }
	if least, most := spread(p.decodes, count); math.Max(most, 1)-least >= float64(p.settings.DecodeSpread) {
		return count
	}
	throughput := func(c *pdCandidate) float64 { return c.throughput }
	if least, most := spread(p.decodes, throughput); math.Max(most, 1)-least > p.settings.ThroughputSpread {
		return throughput
	}
	rate := func(c *pdCandidate) float64 { return pods[c.pod].Metrics.DrainRate.Or(0) }
	if slowest, _ := spread(p.decodes, rate); slowest <= 0 {
		return nil
	}
	drain := func(c *pdCandidate) float64 { return c.count / math.Max(rate(c), minDrainRate) }
	if least, most := spread(p.decodes, drain); least > 0 && most/least > p.settings.DrainRatio {
		return drain
	}
	return nil
}

// scorePrefills scores the prefill pods, lower being better: the missing part of
// the prompt weighs up to 10, the count of prefills up to 1, and a pod above
// mean + factor * standard deviation of the counts is left out. The least_request
// policy goes by the count alone.
func (p *pdPolicy) scorePrefills(now simtime.Time, req *Request, pods []Pod) {
	p.matchPrefills(now, req, pods)
	if p.settings.PrefillScore == "least_request" {
		for i := range p.prefills {
			p.prefills[i].score = p.prefills[i].count
		}
		return
	}
	_, most := spread(p.prefills, func(c *pdCandidate) float64 { return c.count })
	limit := p.prefillGate()
	for i := range p.prefills {
		c := &p.prefills[i]
		c.skipped = c.count > limit
		c.score = float64(100-c.percent)*0.1 + c.count/math.Max(most, 1)
	}
}

// matchPrefills sets the match percentages. Whether a pod matches does not depend on
// which others are asked for, except where an index credits a pod with blocks past
// a gap, which the local one does not.
func (p *pdPolicy) matchPrefills(now simtime.Time, req *Request, pods []Pod) {
	p.prefix.matchList(now, req, pods)
	for i := range p.prefills {
		c := &p.prefills[i]
		c.percent = max(0, p.prefix.matches.of(p.prefix.list.slots[c.pod]))
	}
}

// prefillGate is prefix-cache's gate over the counts of the prefill pods.
func (p *pdPolicy) prefillGate() float64 {
	return deviationGate(len(p.prefills), func(i int) float64 { return p.prefills[i].count },
		float64(p.prefix.settings.DeviationFactor))
}

// scoreDecodes scores the decode pods, lower being better: requests and missing
// throughput, both in shares of the highest, over the share of free cache. The
// least_request policy goes by the requests alone.
func (p *pdPolicy) scoreDecodes(most pdMaxima) {
	for i := range p.decodes {
		c := &p.decodes[i]
		if p.settings.DecodeScore == "least_request" {
			c.score = c.count
			continue
		}
		c.score = (p.settings.RunningWeight*c.count/most.count +
			p.settings.ThroughputWeight*(1-c.throughput/most.throughput)) / (c.free / most.free)
	}
}

// bestPair takes the best pod of each role in each role set, and the role set
// whose scores, each in shares of the highest, have the lowest sum. Equals are
// drawn with the same chance everywhere.
func (p *pdPolicy) bestPair(rng *rand.Rand) (pdPair, bool) {
	mostPrefill, mostDecode := 1.0, 0.01
	for i := range p.prefills {
		if !p.prefills[i].skipped {
			mostPrefill = math.Max(mostPrefill, p.prefills[i].score)
		}
	}
	for i := range p.decodes {
		mostDecode = math.Max(mostDecode, p.decodes[i].score)
	}
	p.pairs = p.pairs[:0]
	least := math.Inf(1)
	for i := range p.prefills {
		roleSet := p.prefills[i].roleSet
		if inRoleSet(p.prefills[:i], roleSet) {
			continue
		}
		pair := pdPair{p.bestOf(p.prefills, roleSet, rng), p.bestOf(p.decodes, roleSet, rng)}
		if pair.prefill == nil || pair.decode == nil {
			continue
		}
		sum := pair.prefill.score/mostPrefill + pair.decode.score/mostDecode
		if sum < least {
			least, p.pairs = sum, p.pairs[:0]
		}
		if sum == least {
			p.pairs = append(p.pairs, pair)
		}
	}
	if len(p.pairs) == 0 {
		return pdPair{}, false
	}
	if len(p.pairs) == 1 {
		return p.pairs[0], true
	}
	return p.pairs[rng.IntN(len(p.pairs))], true
}

// bestOf is a candidate of the role set with the lowest score, nil when all of
// them are skipped.
func (p *pdPolicy) bestOf(candidates []pdCandidate, roleSet string, rng *rand.Rand) *pdCandidate {
	p.draws = p.draws[:0]
	least := math.Inf(1)
	for i := range candidates {
		c := &candidates[i]
		if c.roleSet != roleSet || c.skipped {
			continue
		}
		if c.score < least {
			least, p.draws = c.score, p.draws[:0]
		}
		if c.score == least {
			p.draws = append(p.draws, i)
		}
	}
	if len(p.draws) == 0 {
		return nil
	}
	return &candidates[draw(rng, p.draws)]
}

// IndexStats describes the prefix index at now.
func (p *pdPolicy) IndexStats(now simtime.Time) IndexStats { return p.prefix.IndexStats(now) }

// Remember adds a prompt to the index for a pod.
func (p *pdPolicy) Remember(now simtime.Time, req *Request, pod int) {
	p.prefix.Remember(now, req, pod)
}

// PodRemoved takes the pod out of the index where the index does that.
func (p *pdPolicy) PodRemoved(pod int) { p.prefix.PodRemoved(pod) }

// IndexScheme is how the index cuts prompts.
func (p *pdPolicy) IndexScheme() IndexScheme { return p.prefix.IndexScheme() }

// EachHolding calls f for each block and prefill pod of the index.
func (p *pdPolicy) EachHolding(now simtime.Time, f func(hash uint64, pod int)) {
	p.prefix.EachHolding(now, f)
}

// Lists reports whether the index lists the pod for the block.
func (p *pdPolicy) Lists(model string, hash uint64, pod int) bool {
	return p.prefix.Lists(model, hash, pod)
}
