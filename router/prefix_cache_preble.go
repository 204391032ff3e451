package router

import (
	"math"
	"math/rand/v2"
	"slices"

	"fleetsim/simtime"
	"fleetsim/workload"
)

func init() {
	Register("prefix-cache-preble", func(s Settings, _ Options) (Policy, error) {
		return &preble{settings: s.Preble, seed: s.Prefix.HashSeed, tree: newPrebleTree()}, nil
	})
}

// preble sends a request that shares more than half of its prompt with earlier
// ones to a pod that was sent the longest shared part, the least loaded of these.
// Any other request goes to the pod with the lowest allocation cost: the sum,
// over the prompt parts that it was sent in the sliding window, of a prefill time
// fitted for a 7B model on the target GPU and of a fixed decode time. In-flight
// counts play no part.
//
// The cost of a decision grows with the number of prompt parts in the window.
type preble struct {
	settings PrebleSettings
	seed     uint64
	tree     *prebleTree
	live     []*prebleNode // with something in the window, in order of entry
	recent   []prebleEntry // requests in the window, oldest first
	swept    simtime.Time
	known    int // pods at the last decision

	hashes []uint64    // scratch
	node   *prebleNode // where the last scored prompt ends
	scores []float64   // scratch
	best   []int       // scratch
}

// A prebleEntry is a request in the window.
type prebleEntry struct {
	at   simtime.Time
	node *prebleNode
}

const (
	preblePrefixRatio   = 0.5  // of the prompt, above which its prefix decides
	prebleTimePerToken  = 0.15 // seconds to decode a token
	preblePrefillShare  = 0.9  // by which a fitted prefill time is divided
	preblePackingTokens = 32 * 256 * 2048
)

// OrderSensitive is true: the first of equally cheap pods is taken.
func (p *preble) OrderSensitive() bool { return true }

func (p *preble) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	d := Decision{Pod: p.choose(now, req, pods, rng)}
	p.Routed(now, req, pods, d.Pod)
	return d, nil
}

func (p *preble) choose(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) int {
	p.scores = resize(p.scores, len(pods))
	byPrefix := p.score(now, req, pods, p.scores)
	p.best = appendLowest(p.best[:0], p.scores)
	if byPrefix {
		return draw(rng, p.best)
	}
	return p.best[0]
}

// Score gives the loads of the pods with the longest shared prefix, and nothing
// for the others, when the prefix decides; the allocation costs otherwise.
func (p *preble) Score(now simtime.Time, req *Request, pods []Pod, _ *rand.Rand, scores []float64) {
	p.score(now, req, pods, scores)
}

// LowerIsBetter is true of loads and costs.
func (p *preble) LowerIsBetter() bool { return true }

// score enters the prompt into the tree, sets the scores and reports whether they
// are those of the prefix.
func (p *preble) score(now simtime.Time, req *Request, pods []Pod, scores []float64) (byPrefix bool) {
	p.sweep(now)
	p.notePods(pods)
	matched := p.insert(now, req)
	if float64(matched) > preblePrefixRatio*float64(len(p.hashes)) && p.prefixScores(req.Model, pods, scores) {
		return true
	}
	p.costs(pods, scores)
	return false
}

// insert enters the prompt into the tree, leaves the node where it ends in p.node
// and returns how many of its blocks were there before.
func (p *preble) insert(now simtime.Time, req *Request) (matched int) {
	p.hashes = p.hashes[:0]
	if req.Prompt != nil {
		p.hashes = req.Prompt.AppendHashes(p.hashes, p.seed, prebleBlock, workload.Tokens)
	}
	p.node, matched = p.tree.insert(now, p.hashes)
	return matched
}

// prefixScores scores the pods of the node nearest to the prompt's end that has a
// routable pod for the model by their loads; it reports false without such a node.
func (p *preble) prefixScores(model string, pods []Pod, scores []float64) bool {
	for n := p.node; n != nil; n = n.parent {
		found := false
		for i := range pods {
			scores[i] = missing()
			if n.holds(model, pods[i].ID) {
				scores[i] = p.load(pods[i].ID)
				found = true
			}
		}
		if found {
			return true
		}
	}
	return false
}

// load is the number of requests in the window over the nodes that a pod holds.
func (p *preble) load(pod int) float64 {
	requests := 0
	for _, n := range p.live {
		if n.holdsAny(pod) {
			requests += n.window.requests
		}
	}
	return float64(requests)
}

// costs sets scores to the allocation costs, in seconds. A pod that holds nothing
// costs 0.
func (p *preble) costs(pods []Pod, scores []float64) {
	clear(scores)
	decode := float64(p.settings.DecodingLength) * prebleTimePerToken
	for _, n := range p.live {
		holders := n.podCount()
		if holders == 0 {
			continue
		}
		cost := p.prefillCost(n)/float64(holders) + decode
		for i := range pods {
			for _, set := range n.pods {
				if set.has(pods[i].ID) {
					scores[i] += cost
				}
			}
		}
	}
}

// prefillCost is the time that the window's requests ending at node n take to
// prefill what they do not share, in seconds.
func (p *preble) prefillCost(n *prebleNode) float64 {
	miss := 1.0
	if n.window.prompt > 0 {
		miss = 1 - float64(n.window.hit)/float64(n.window.prompt)
	}
	gpu := prebleV100
	if p.settings.TargetGPU == "A6000" {
		gpu = prebleA6000
	}
	return miss * float64(n.window.requests) * gpu.prefill(n.tokens(), n.context)
}

// Routed notes where the prompt that was last scored went.
func (p *preble) Routed(now simtime.Time, req *Request, pods []Pod, chosen int) {
	p.note(now, req.Model, pods[chosen].ID)
}

// Remember enters a prompt as if its request had been routed to the pod.
func (p *preble) Remember(now simtime.Time, req *Request, pod int) {
	p.sweep(now)
	p.insert(now, req)
	p.note(now, req.Model, pod)
}

// note writes the pod on the prompt's node and on all above it, and enters the
// request into the window.
func (p *preble) note(now simtime.Time, model string, pod int) {
	for n := p.node; n != nil; n = n.parent {
		n.pods[model] = n.pods[model].with(pod)
	}
	n := p.node
	if n.window == (prebleWindow{}) {
		p.live = append(p.live, n)
	}
	p.recent = append(p.recent, prebleEntry{now, n})
	n.window.total += n.context
	n.window.requests++
	n.window.hit += n.context - n.tokens()
	n.window.prompt += n.context
}

// notePods forgets the pods that have gone when the number of pods has changed
// since the last decision; that is how the original notices.
func (p *preble) notePods(pods []Pod) {
	if len(pods) == p.known {
		return
	}
	p.known = len(pods)
	var present podSet
	for i := range pods {
		present = present.with(pods[i].ID)
	}
	p.tree.root.each(func(n *prebleNode) { n.keepOnly(present) })
	p.recent = slices.DeleteFunc(p.recent, func(e prebleEntry) bool { return e.node.podCount() == 0 })
}

// sweep brings the periodic eviction up to now: first of nodes idle for too long,
// then of requests that have left the window.
func (p *preble) sweep(now simtime.Time) {
	last := now - now%p.settings.EvictionLoop
	if last <= p.swept {
		return
	}
	p.swept = last
	p.tree.root.evict(last - prebleIdle)
	p.recent = slices.DeleteFunc(p.recent, func(e prebleEntry) bool {
		if e.node.evicted {
			return true
		}
		if e.at > last-p.settings.Window {
			return false
		}
		e.node.leaveWindow()
		return true
	})
	p.live = slices.DeleteFunc(p.live, func(n *prebleNode) bool {
		return n.evicted || n.window == (prebleWindow{})
	})
}

// leaveWindow takes one request out of the node's window, with the node's length
// as it is now, which a split may have shortened.
func (n *prebleNode) leaveWindow() {
	n.window.total -= n.context
	n.window.requests--
	n.window.hit -= n.context - n.tokens()
	n.window.prompt -= n.context
	if n.window.total <= 0 {
		n.window = prebleWindow{}
	}
}

// A prebleGPU holds the fits of a 7B model's step times on a GPU, in
// milliseconds, t being a node's tokens and c those from the root to its end.
type prebleGPU struct {
	linearSlope, linearBase float64    // linear layers from 384 tokens on
	midLinear               [3]float64 // from 192 on: powers 0, 1 and 2 of t
	smallLinear             float64    // below 192
	smallAttention          float64    // up to 1,024 tokens of context
	attentionSlope          float64    // beyond
	attentionBase           float64
	quadratic               [3]float64 // attention inside a prompt from 4,096 tokens on
}

var (
	prebleV100 = prebleGPU{
		0.27106428, 10.52444263, [3]float64{-295, 3.125, -6.4e-3}, 55,
		0.80, 4.65e-4, 0.398, [3]float64{-18.425, 9.65e-3, 5.4e-6},
	}
	prebleA6000 = prebleGPU{
		0.10842571, 4.209777054806409, [3]float64{-118, 1.25, -2.56e-3}, 22,
		0.32, 1.86e-4, 0.159, [3]float64{-7.37, 3.86e-3, 2.16e-6},
	}
)

// prefill is the time to prefill t tokens that end at a context of c, in seconds.
func (g *prebleGPU) prefill(t, c int) float64 {
	return (g.linear(t) + g.attention(t, c) + g.quadraticAttention(t)) / preblePrefillShare / 1000
}

func (g *prebleGPU) linear(t int) float64 {
	switch {
	case t >= 384:
		return g.linearSlope*float64(t) + g.linearBase
	case t >= 192:
		return polynomial(g.midLinear, float64(t))
	}
	return g.smallLinear
}

// attention is over a context of c tokens, of which the node's own are unique.
func (g *prebleGPU) attention(unique, c int) float64 {
	if unique == 0 {
		unique = c
	}
	if c <= 1024 {
		return g.smallAttention
	}
	ms := g.attentionSlope*float64(c) + g.attentionBase
	if unique <= 1024 && unique <= preblePackingTokens {
		ms /= 2
	}
	return ms
}

func (g *prebleGPU) quadraticAttention(t int) float64 {
	if t < 4096 {
		return 0
	}
	return polynomial(g.quadratic, float64(t))
}

func polynomial(coefficients [3]float64, x float64) float64 {
	return coefficients[0] + coefficients[1]*x + coefficients[2]*math.Pow(x, 2)
}

// ReadsMetrics is false: preble goes by its own tree.
func (*preble) ReadsMetrics() bool { return false }
