package router

import (
	"math"
	"math/rand/v2"

	"fleetsim/simtime"
	"fleetsim/workload"
)

func init() {
	Register("prefix-cache", func(s Settings, _ Options) (Policy, error) { return newPrefixCache(s), nil })
}

// prefixCache prefers the pod that was sent the longest part of the prompt, as
// long as that pod is not much busier than the rest.
//
// With settings.KVEventSync it takes its other branch: the same rules over an
// index that engine events feed too and that counts in tokens. The original
// hashes token ids of 4 bytes, so that a block is BlockSize/4 tokens; a symbolic
// prompt is cut at the same tokens and hashed by the identity of its content.
// Events name engine blocks: only where those are BlockSize/4 tokens long, too,
// can what an engine stored match a prompt.
type prefixCache struct {
	settings PrefixSettings
	index    prefixIndex
	synced   *syncIndex // index, in the KV-event-sync branch; nil otherwise
	scheme   IndexScheme
	hasher   *workload.Hasher // of the scheme
	counters []prefixCounters

	// Scratch of one decision.
	prompt  promptBlocks
	matches matches
	best    slotSet // among which the choice is drawn
	list    fleet   // of a list of pods that comes without a fleet
}

// A prefixIndex answers which pods were sent how much of a prompt.
type prefixIndex interface {
	// match sets m to what percentages of the blocks the pods among the roster's are
	// listed for.
	match(now simtime.Time, model string, p *promptBlocks, r *roster, among slotSet, m *matches)
	add(now simtime.Time, model string, p *promptBlocks, pod int)
	podRemoved(pod int)
	stats(now simtime.Time) IndexStats
	eachHolding(now simtime.Time, f func(hash uint64, pod int))
	lists(model string, hash uint64, pod int) bool
}

// promptBlocks is a prompt as an index sees it.
type promptBlocks struct {
	runs   []workload.Run
	blocks int      // in all runs
	single []uint64 // scratch
}

// cut sets p to the full blocks of a prompt, which may be nil, as h or the prompt
// itself cuts them. Only a symbolic prompt knows the runs among its blocks; of any
// other, each block is a run of its own.
func (p *promptBlocks) cut(prompt Prompt, h *workload.Hasher, scheme IndexScheme) {
	p.runs, p.blocks = p.runs[:0], 0
	switch prompt := prompt.(type) {
	case nil:
	case *workload.Prompt:
		p.runs = h.AppendRuns(p.runs, *prompt)
	case workload.Prompt:
		p.runs = h.AppendRuns(p.runs, prompt)
	default:
		p.single = prompt.AppendHashes(p.single[:0], scheme.Seed, scheme.Block, scheme.Unit)
		for _, hash := range p.single {
			p.runs = append(p.runs, workload.Run{First: hash, Blocks: 1})
		}
	}
	for _, r := range p.runs {
		p.blocks += r.Blocks
	}
}

// hashes yields the hash of each block with its place in the prompt.
func (p *promptBlocks) hashes(yield func(i int, hash uint64) bool) {
	i := 0
	for _, r := range p.runs {
		for k := range r.Blocks {
			if !yield(i, r.Hash(k)) {
				return
			}
			i++
		}
	}
}

func newPrefixCache(s Settings) *prefixCache {
	p := &prefixCache{settings: s.Prefix, scheme: IndexScheme{s.Prefix.HashSeed, s.Prefix.BlockSize, workload.Bytes}}
	if s.Prefix.KVEventSync {
		p.scheme.Block, p.scheme.Unit = s.Prefix.BlockSize/tokenBytes, workload.Tokens
		p.synced = newSyncIndex(s)
		p.index = p.synced
	} else {
		p.index = newLocalIndex(s.Prefix, s.UpstreamFixed)
	}
	p.hasher = workload.NewHasher(p.scheme.Seed, p.scheme.Block, p.scheme.Unit)
	return p
}

func (p *prefixCache) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	p.list.reset(pods)
	return p.routeFleet(now, req, &p.list, rng)
}

func (p *prefixCache) routeFleet(now simtime.Time, req *Request, f *fleet, rng *rand.Rand) (Decision, error) {
	p.hash(req)
	d := p.choose(now, req.Model, f)
	d.Pod = f.draw(rng, p.best, p.best.size())
	d.MatchPercent = max(0, p.matches.of(f.slots[d.Pod]))
	p.index.add(now, req.Model, &p.prompt, f.pods[d.Pod].ID)
	p.countersOf(req.Model).count(d.MatchPercent, d.Selection, d.Imbalanced)
	return d, nil
}

func (p *prefixCache) hash(req *Request) {
	p.prompt.cut(req.Prompt, p.hasher, p.scheme)
}

// choose leaves in p.best the pods among which the choice is drawn, and says how
// they came about. When the spread of in-flight counts is above the threshold, only
// the least loaded pods may match.
func (p *prefixCache) choose(now simtime.Time, model string, f *fleet) (d Decision) {
	among := f.all
	if f.spread() > p.settings.Imbalance {
		d.Imbalanced, among = true, f.least()
	}
	p.index.match(now, model, &p.prompt, &f.roster, among, &p.matches)
	switch {
	case p.pickMatched(f):
		d.Selection = SelectionMatch
		return d
	case len(p.matches.percents) > 0:
		d.Selection = SelectionSkipped
	default:
		d.Selection = SelectionFallback
	}
	p.best = append(p.best[:0], f.least()...)
	return d
}

// pickMatched leaves in p.best the matching pods of the highest percentage, and
// of these the least loaded, among those that pass the gate; it reports false
// without any. The original shuffles and then sorts, which draws among pods equal
// in both.
func (p *prefixCache) pickMatched(f *fleet) bool {
	p.best = resize(p.best, len(f.words))
	for i := len(p.matches.percents) - 1; i >= 0; i-- {
		count := f.leastOf(p.matches.set(i), p.best)
		if !f.beyondGate(count, float64(p.settings.DeviationFactor)) {
			return true
		}
	}
	return false
}

// gate is the highest in-flight count of a pod that may be used for its prefix.
func gate(pods []Pod, factor float64) float64 {
	return deviationGate(len(pods), func(i int) float64 { return float64(pods[i].Running) }, factor)
}

// deviationGate is mean + factor * standard deviation of the sample of n counts.
// At most (n-1)/sqrt(n) deviations lie between the mean and the highest of n, so
// a factor of 1 refuses nothing below n = 3 and a factor of 2 nothing below 6.
func deviationGate(n int, count func(i int) float64, factor float64) float64 {
	sum := 0.0
	for i := range n {
		sum += count(i)
	}
	mean := sum / float64(n)
	if n < 2 {
		return mean
	}
	squares := 0.0
	for i := range n {
		d := count(i) - mean
		squares += d * d
	}
	return mean + factor*math.Sqrt(squares/float64(n-1))
}

func (p *prefixCache) countersOf(model string) *prefixCounters {
	for i := range p.counters {
		if p.counters[i].model == model {
			return &p.counters[i]
		}
	}
	p.counters = append(p.counters, prefixCounters{model: model})
	return &p.counters[len(p.counters)-1]
}

// AppendCounters appends the counters of all models.
func (p *prefixCache) AppendCounters(dst []Counter) []Counter {
	for i := range p.counters {
		dst = p.counters[i].appendTo(dst, p.settings.KVEventSync)
	}
	return dst
}

// IndexStats describes the prefix index at now.
func (p *prefixCache) IndexStats(now simtime.Time) IndexStats { return p.index.stats(now) }

// Remember adds a prompt to the index for a pod.
func (p *prefixCache) Remember(now simtime.Time, req *Request, pod int) {
	p.hash(req)
	p.index.add(now, req.Model, &p.prompt, pod)
}

// BlockStored hands an engine's event to the index of the KV-event-sync branch.
func (p *prefixCache) BlockStored(now simtime.Time, e *BlockStored) {
	if p.synced != nil {
		p.synced.stored(now, e)
	}
}

// BlockRemoved hands an engine's event to the index of the KV-event-sync branch.
func (p *prefixCache) BlockRemoved(now simtime.Time, e *BlockRemoved) {
	if p.synced != nil {
		p.synced.blocksRemoved(now, e)
	}
}

// AllBlocksCleared hands an engine's event to the index of the KV-event-sync
// branch.
func (p *prefixCache) AllBlocksCleared(_ simtime.Time, pod int) {
	if p.synced != nil {
		p.synced.cleared(pod)
	}
}

// PodRemoved takes the pod out of the index where the index does that.
func (p *prefixCache) PodRemoved(pod int) { p.index.podRemoved(pod) }

// Score gives the match percentages over all pods.
func (p *prefixCache) Score(now simtime.Time, req *Request, pods []Pod, _ *rand.Rand, scores []float64) {
	p.matchList(now, req, pods)
	for i := range pods {
		scores[i] = float64(max(0, p.matches.of(p.list.slots[i])))
	}
}

// matchList matches the prompt with the pods of a list.
func (p *prefixCache) matchList(now simtime.Time, req *Request, pods []Pod) {
	p.hash(req)
	p.list.enrol(pods)
	p.index.match(now, req.Model, &p.prompt, &p.list.roster, p.list.all, &p.matches)
}

// LowerIsBetter is false: more of the prompt is better.
func (p *prefixCache) LowerIsBetter() bool { return false }

// Routed adds the prompt that was last scored to the index.
func (p *prefixCache) Routed(now simtime.Time, req *Request, pods []Pod, chosen int) {
	p.index.add(now, req.Model, &p.prompt, pods[chosen].ID)
}

// ReadsMetrics is false: prefix-cache goes by its index and the gateway's own
// counts.
func (*prefixCache) ReadsMetrics() bool { return false }

// HearsKVEvents reports whether the index is the one that events feed.
func (p *prefixCache) HearsKVEvents() bool { return p.synced != nil }

// IndexScheme is how the index cuts prompts.
func (p *prefixCache) IndexScheme() IndexScheme { return p.scheme }

// EachHolding calls f for each block and pod of the index.
func (p *prefixCache) EachHolding(now simtime.Time, f func(hash uint64, pod int)) {
	p.index.eachHolding(now, f)
}

// Lists reports whether the index lists the pod for the block.
func (p *prefixCache) Lists(model string, hash uint64, pod int) bool {
	return p.index.lists(model, hash, pod)
}
