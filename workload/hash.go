package workload

import "math/bits"

// A block's hash covers its parent's hash and the identity of its content, so
// two prompts have equal hashes up to the last block that they share from the
// start, exactly as hashes over the text would. A block that continues the
// content of its parent, deep in one segment, adds a step that depends on the
// segment alone; every other block is hashed anew. So the blocks of a long
// shared segment are a run that is known by its first hash and its length, and
// work on it need not go block by block.

// A Run is a number of consecutive blocks of a prompt. The i-th of them, from 0,
// has the hash First + i·Step. Runs with equal First begin with the same blocks.
type Run struct {
	First, Step uint64
	Blocks      int
}

// Hash is the hash of the run's i-th block.
func (r Run) Hash(i int) uint64 { return r.First + uint64(i)*r.Step }

// AppendRuns appends the runs of the prompt's full blocks to dst and returns it;
// a trailing partial block is in none. seed is the parent of the first block;
// block is the block length in unit u and must be positive.
func (p Prompt) AppendRuns(dst []Run, seed uint64, block int, u Unit) []Run {
	var store [blockWords]uint64
	c := cutter{seed, block, u}
	dst, _ = c.cut(dst, partial{words: append(store[:0], seed)}, p, p.Len(u)/block*block)
	return dst
}

// AppendHashes appends the hash of every full block of the prompt to dst and
// returns it; the parameters are those of AppendRuns.
func (p Prompt) AppendHashes(dst []uint64, seed uint64, block int, u Unit) []uint64 {
	var store [16]Run
	return appendHashes(dst, p.AppendRuns(store[:0], seed, block, u))
}

func appendHashes(dst []uint64, runs []Run) []uint64 {
	for _, r := range runs {
		for i := range r.Blocks {
			dst = append(dst, r.Hash(i))
		}
	}
	return dst
}

// A cutter cuts prompts into blocks of one length in one unit, hashed with one
// seed.
type cutter struct {
	seed  uint64
	block int
	unit  Unit
}

// A partial is a block that is being filled.
type partial struct {
	words  []uint64 // what its hash is of; see hashWords
	filled int
}

// with is the block and a piece of content.
func (b partial) with(id uint64, off, n int) partial {
	return partial{append(b.words, id, uint64(off), uint64(n)), b.filled + n}
}

// after is the next block, under the hash of this one.
func (b partial) after(hash uint64) partial { return partial{words: append(b.words[:0], hash)} }

// cut appends the runs of the blocks that the first n units of p complete, from
// block b on, and returns the block that is left.
func (c cutter) cut(dst []Run, b partial, p Prompt, n int) ([]Run, partial) {
	for i := 0; n > 0; i++ {
		take := min(p[i].length(c.unit), n)
		dst, b = c.add(dst, b, p[i].ID, take)
		n -= take
	}
	return dst, b
}

// add is cut for n units of a segment. What completes no block is not hashed.
func (c cutter) add(dst []Run, b partial, id uint64, n int) ([]Run, partial) {
	for off := 0; off < n; {
		run := Run{Blocks: 1}
		take := min(c.block-b.filled, n-off)
		b = b.with(id, off, take)
		off += take
		if b.filled < c.block {
			break
		}
		run.First = hashWords(c.seed, b.words)
		if take == c.block {
			run.Step = step(c.seed, id)
			run.Blocks += (n - off) / c.block
			off += (run.Blocks - 1) * c.block
		}
		dst = append(dst, run)
		b = b.after(run.Hash(run.Blocks - 1))
	}
	return dst, b
}

// HashBlock is the hash, under parent's hash, of the block of that length in
// unit u which begins start units into the prompt and lies inside it. Under the
// hash that the block before has in the prompt's chain it is the one that
// AppendHashes gives; any other parent gives one that no chain has.
func (p Prompt) HashBlock(seed, parent uint64, start, block int, u Unit) uint64 {
	if hash, ok := p.chained(seed, parent, start, block, u); ok {
		return hash
	}
	var store [blockWords]uint64
	b := partial{words: append(store[:0], parent)}
	for _, s := range p {
		n := s.length(u)
		if start >= n {
			start -= n
			continue
		}
		b = b.with(s.ID, start, min(block-b.filled, n-start))
		if b.filled == block {
			break
		}
		start = 0
	}
	return hashWords(seed, b.words)
}

// chained is the block's hash in the prompt's chain, if parent is that of the
// block before.
func (p Prompt) chained(seed, parent uint64, start, block int, u Unit) (hash uint64, ok bool) {
	if start%block != 0 {
		return 0, false
	}
	var store [16]Run
	before, i := seed, start/block
	for _, r := range p.AppendRuns(store[:0], seed, block, u) {
		if i >= r.Blocks {
			before, i = r.Hash(r.Blocks-1), i-r.Blocks
			continue
		}
		if i > 0 {
			before = r.Hash(i - 1)
		}
		return r.Hash(i), parent == before
	}
	return 0, false
}

// step is what a block deep in a segment adds to its parent's hash. It is odd,
// so that no two blocks of a run are equal.
func step(seed, id uint64) uint64 {
	return hashWords(0, []uint64{id ^ seed*goldenRatio}) | 1
}

// goldenRatio is its fraction, in 64 bits.
const goldenRatio = 0x9e3779b97f4a7c15

// A block is hashed as its parent's hash and, of each piece of content in it, the
// identity, offset and length. blockWords is enough for a parent and four pieces.
const blockWords = 13

// hashWords is XXH64 with a seed over the words as 8 little-endian bytes each
// (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). The library's
// one-shot function takes no seed, and a digest costs more than the hash.
func hashWords(seed uint64, words []uint64) uint64 {
	h, rest := seed+xxPrime5, words
	if len(words) >= 4 {
		a, b, c, d := seed+xxLane1, seed+xxPrime2, seed, seed-xxPrime1
		for ; len(rest) >= 4; rest = rest[4:] {
			a, b = xxRound(a, rest[0]), xxRound(b, rest[1])
			c, d = xxRound(c, rest[2]), xxRound(d, rest[3])
		}
		h = bits.RotateLeft64(a, 1) + bits.RotateLeft64(b, 7) + bits.RotateLeft64(c, 12) + bits.RotateLeft64(d, 18)
		for _, lane := range [...]uint64{a, b, c, d} {
			h = (h^xxRound(0, lane))*xxPrime1 + xxPrime4
		}
	}
	h += uint64(8 * len(words))
	for _, w := range rest {
		h = bits.RotateLeft64(h^xxRound(0, w), 27)*xxPrime1 + xxPrime4
	}
	h = (h ^ h>>33) * xxPrime2
	h = (h ^ h>>29) * xxPrime3
	return h ^ h>>32
}

func xxRound(lane, word uint64) uint64 {
	return bits.RotateLeft64(lane+word*xxPrime2, 31) * xxPrime1
}

const (
	xxPrime1 uint64 = 0x9e3779b185ebca87
	xxPrime2 uint64 = 0xc2b2ae3d27d4eb4f
	xxPrime3 uint64 = 0x165667b19e3779f9
	xxPrime4 uint64 = 0x85ebca77c2b2ae63
	xxPrime5 uint64 = 0x27d4eb2f165667c5
	xxLane1  uint64 = 0x60ea27eeadc0b5d6 // xxPrime1 + xxPrime2, wrapped
)
