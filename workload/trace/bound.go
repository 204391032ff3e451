package trace

import (
	"maps"
	"math"
	"math/bits"
)

// A HitBound finds the share of prompt tokens that a prefix cache without limits
// would hit, whatever the order of the requests in time: what no routing policy can
// exceed. It counts misses rather than hits, since a block has but one. Of more
// blocks than it may hold it follows a share chosen by hash, and the figure is an
// estimate.
type HitBound struct {
	block, limit int
	threshold    uint64 // hashes up to it are followed
	seen         map[uint64]struct{}

	tokens  float64 // of the prompts
	lookups float64 // blocks looked up
	misses  float64 // of them seen for the first time
}

// NewHitBound returns a HitBound for an engine with blocks of block tokens, which
// holds at most limit hashes.
func NewHitBound(block, limit int) *HitBound {
	return &HitBound{block: block, limit: limit, threshold: math.MaxUint64, seen: make(map[uint64]struct{})}
}

// Add books a request with a prompt of the given length. hashes are those of its
// full blocks, those of the answer too where a later prompt has it. The engine
// never looks up the prompt's last token, whose logits it needs.
func (b *HitBound) Add(hashes []uint64, prompt int) {
	lookedUp := (prompt - 1) / b.block
	b.tokens += float64(prompt)
	b.lookups += float64(lookedUp)
	for i, h := range hashes {
		if h > b.threshold {
			continue
		}
		if _, again := b.seen[h]; again {
			continue
		}
		if i < lookedUp {
			b.misses += b.weight()
		}
		b.seen[h] = struct{}{}
	}
	for len(b.seen) > b.limit {
		b.threshold >>= 1
		maps.DeleteFunc(b.seen, func(h uint64, _ struct{}) bool { return h > b.threshold })
	}
}

// weight is how many blocks one that is followed stands for.
func (b *HitBound) weight() float64 { return math.Exp2(float64(bits.LeadingZeros64(b.threshold))) }

// Ratio is the share so far; ok is false over no prompt.
func (b *HitBound) Ratio() (share float64, ok bool) {
	if b.tokens == 0 {
		return 0, false
	}
	return max(b.lookups-b.misses, 0) * float64(b.block) / b.tokens, true
}

// Estimated reports that the ratio is an estimate from a sample of the blocks.
func (b *HitBound) Estimated() bool { return b.threshold != math.MaxUint64 }
