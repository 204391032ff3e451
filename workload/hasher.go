package workload

import "math/bits"

// A Hasher cuts prompts into the blocks of one length in one unit, all hashed with
// one seed, as Prompt.AppendRuns does, and remembers how prompts begin: of those
// that share their first two segments, the blocks in these are hashed once. It
// holds at most a few hundred kilobytes.
//
// What it remembers changes no hash. It serves one goroutine at a time.
type Hasher struct {
	cutter
	heads  []head   // a power of two
	misses int      // since heads last grew, where another head lay
	words  []uint64 // scratch
	runs   []Run    // scratch
}

// A head is how some prompts begin: one or two segments, the last of the prompt
// left out, and the cutter's state behind them.
type head struct {
	segments [2]headSegment // the second has no length if there is one
	runs     [3]Run         // the second segment may begin in the middle of a block
	words    [1 + 3*2]uint64
	nRuns    uint8
	nWords   uint8
	filled   int
}

type headSegment struct {
	id uint64
	n  int
}

// Sizes of the table: it grows while prompts contend for their places.
const (
	fewestHeads = 64
	mostHeads   = 2048
)

// NewHasher returns a Hasher; the parameters are those of Prompt.AppendRuns.
func NewHasher(seed uint64, block int, u Unit) *Hasher {
	return &Hasher{cutter: cutter{seed, block, u}}
}

// AppendRuns appends the runs of the prompt's full blocks to dst and returns it.
func (h *Hasher) AppendRuns(dst []Run, p Prompt) []Run {
	left := p.Len(h.unit) / h.block * h.block
	if left == 0 {
		return dst
	}
	b := partial{words: append(h.words[:0], h.seed)}
	if n := min(len(p)-1, 2); n > 0 {
		begin := h.head(p[:n])
		dst = append(dst, begin.runs[:begin.nRuns]...)
		b = partial{append(b.words[:0], begin.words[:begin.nWords]...), begin.filled}
		left -= begin.segments[0].n + begin.segments[1].n
		p = p[n:]
	}
	dst, b = h.cut(dst, b, p, left)
	h.words = b.words
	return dst
}

// AppendHashes appends the hash of every full block of the prompt to dst and
// returns it.
func (h *Hasher) AppendHashes(dst []uint64, p Prompt) []uint64 {
	h.runs = h.AppendRuns(h.runs[:0], p)
	return appendHashes(dst, h.runs)
}

// head is the head of one or two segments.
func (h *Hasher) head(p Prompt) *head {
	var key [2]headSegment
	for i, s := range p {
		key[i] = headSegment{s.ID, s.length(h.unit)}
	}
	at := h.place(key)
	if at.nWords > 0 {
		if at.segments == key {
			return at
		}
		if h.misses++; h.misses > len(h.heads) && len(h.heads) < mostHeads {
			h.heads, h.misses = make([]head, 2*len(h.heads)), 0
			at = h.place(key)
		}
	}
	runs, b := at.runs[:0], partial{words: append(at.words[:0], h.seed)}
	for _, s := range key {
		runs, b = h.add(runs, b, s.id, s.n)
	}
	at.segments, at.nRuns, at.nWords, at.filled = key, uint8(len(runs)), uint8(len(b.words)), b.filled
	return at
}

// place is where the head of the segments is, or would be.
func (h *Hasher) place(key [2]headSegment) *head {
	if h.heads == nil {
		h.heads = make([]head, fewestHeads)
	}
	// Identities count up: times the golden ratio their high bits are spread evenly.
	spread := (key[0].id + key[1].id<<1 + uint64(key[0].n)<<20 + uint64(key[1].n)<<40) * goldenRatio
	return &h.heads[spread>>(64-bits.Len(uint(len(h.heads)-1)))]
}
