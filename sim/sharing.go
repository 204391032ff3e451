package sim

import (
	"fmt"

	"fleetsim/sim/record"
	"fleetsim/workload"
	traces "fleetsim/workload/trace"
)

// sharing watches what the prompts that reach engines share: what a cache could do
// at best, and whether the engine's block is too long for any hit.
type sharing struct {
	block   int
	bound   *traces.HitBound // of a trace; nil otherwise
	longest int              // prompt, tokens

	// Whether any prompt begins as another one, and whether any two share a whole
	// block that is looked up, among the first prompts.
	begins map[uint64]struct{} // contents
	blocks map[uint64]struct{} // hashes
	common bool
	whole  bool
}

const (
	// boundBlocks is how many blocks the bound of a trace is found from: some 10 MB.
	boundBlocks = 1 << 18
	// watchedBegins is how many different beginnings of prompts are held.
	watchedBegins = 1 << 16
	// usualBlock is vLLM's default block, in tokens: what is shorter is never shared.
	usualBlock = 16
)

// newSharing is nil where nothing can be shared.
func newSharing(s Setup) *sharing {
	limits, err := Limits(s.Profile, s.Scenario)
	if err != nil || !limits.PrefixCaching {
		return nil
	}
	w := &s.Scenario.Workload
	sh := &sharing{block: limits.BlockTokens, begins: map[uint64]struct{}{}, blocks: map[uint64]struct{}{}}
	switch {
	case w.Trace != nil:
		sh.bound = traces.NewHitBound(limits.BlockTokens, boundBlocks)
	case w.Prompt.Families == 0:
		return nil
	}
	return sh
}

// add looks at the prompt of a request whose hashes have just been made.
func (s *sharing) add(q *request) {
	if s == nil {
		return
	}
	if s.bound != nil {
		reusable := q.seq.Prompt
		if q.Answer != 0 {
			reusable += q.Output - 1 // the last token is never computed
		}
		s.bound.Add(q.seq.Hashes[:reusable/s.block], q.seq.Prompt)
	}
	s.longest = max(s.longest, q.seq.Prompt)
	if s.whole || len(s.begins) > watchedBegins {
		return
	}
	if id, ok := beginning(q.Prompt); ok && seen(s.begins, id) {
		s.common = true
	}
	if q.seq.Prompt > s.block && seen(s.blocks, q.seq.Hashes[0]) {
		s.whole = true
		s.begins, s.blocks = nil, nil
	}
}

// beginning is the identity of what the prompt begins with, if that is long enough
// to be shared.
func beginning(p workload.Prompt) (id uint64, ok bool) {
	for _, s := range p {
		if s.Tokens > 0 {
			return s.ID, s.Tokens >= usualBlock
		}
	}
	return 0, false
}

// seen reports whether the set has the key, and adds it.
func seen(set map[uint64]struct{}, key uint64) bool {
	if _, ok := set[key]; ok {
		return true
	}
	set[key] = struct{}{}
	return false
}

// notes says that no request could hit for the length of the block.
func (s *sharing) notes(replicas []record.Replica) []string {
	if s == nil || s.whole || !s.common || record.CacheHitRatio(replicas).Or(0) > 0 {
		return nil
	}
	return []string{fmt.Sprintf("the engine's block of %d tokens is longer than any prefix that prompts share (the longest prompt has %d tokens), so that no request can hit the prefix cache",
		s.block, s.longest)}
}
