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
	left := p.Len(u) / block * block // what the full blocks hold
	var store [blockWords]uint64
	words := append(store[:0], seed) // of the block that is being filled
	filled := 0                      // of it
	for i := 0; left > 0; i++ {
		id, n := p[i].ID, min(p[i].length(u), left)
		left -= n
		for off := 0; off < n; {
			if whole := (n - off) / block; filled == 0 && whole > 0 {
				words = appendPiece(words, id, off, block)
				r := Run{First: hashWords(seed, words), Step: step(seed, id), Blocks: whole}
				dst = append(dst, r)
				words = append(words[:0], r.Hash(whole-1))
				off += whole * block
				continue
			}
			take := min(block-filled, n-off)
			words = appendPiece(words, id, off, take)
			off += take
			if filled += take; filled == block {
				r := Run{First: hashWords(seed, words), Blocks: 1}
				dst = append(dst, r)
				words = append(words[:0], r.First)
				filled = 0
			}
		}
	}
	return dst
}

// AppendHashes appends the hash of every full block of the prompt to dst and
// returns it; the parameters are those of AppendRuns.
func (p Prompt) AppendHashes(dst []uint64, seed uint64, block int, u Unit) []uint64 {
	var store [16]Run
	for _, r := range p.AppendRuns(store[:0], seed, block, u) {
		for i := range r.Blocks {
			dst = append(dst, r.Hash(i))
		}
	}
	return dst
}

// HashBlock is the hash, under parent's hash, of the block of that length in
// unit u which begins start units into the prompt and lies inside it. Under the
// hash that the block before has in the prompt's chain it is the one that
// AppendHashes gives; any other parent gives one that no chain has.
func (p Prompt) HashBlock(seed, parent uint64, start, block int, u Unit) uint64 {
	if hash, ok := p.chained(seed, parent, start, block, u); ok {
		return hash
	}
	words, filled := []uint64{parent}, 0
	for _, s := range p {
		n := s.length(u)
		if start >= n {
			start -= n
			continue
		}
		take := min(block-filled, n-start)
		words = appendPiece(words, s.ID, start, take)
		if filled += take; filled == block {
			break
		}
		start = 0
	}
	return hashWords(seed, words)
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
	return hashWords(0, []uint64{id ^ seed*0x9e3779b97f4a7c15}) | 1
}

// A block is hashed as its parent's hash and, of each piece of content in it, the
// identity, offset and length. blockWords is enough for a parent and four pieces.
const blockWords = 13

func appendPiece(words []uint64, id uint64, off, n int) []uint64 {
	return append(words, id, uint64(off), uint64(n))
}

// hashWords is XXH64 with a seed over the words as 8 little-endian bytes each
// (https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md). The library's
// one-shot function takes no seed, and a digest costs more than the hash.
func hashWords(seed uint64, words []uint64) uint64 {
	h, rest := seed+xxPrime5, words
	if len(words) >= 4 {
		lanes := [4]uint64{seed + xxPrime1 + xxPrime2, seed + xxPrime2, seed, seed - xxPrime1}
		for ; len(rest) >= 4; rest = rest[4:] {
			lanes[0] = xxRound(lanes[0], rest[0])
			lanes[1] = xxRound(lanes[1], rest[1])
			lanes[2] = xxRound(lanes[2], rest[2])
			lanes[3] = xxRound(lanes[3], rest[3])
		}
		h = bits.RotateLeft64(lanes[0], 1) + bits.RotateLeft64(lanes[1], 7) +
			bits.RotateLeft64(lanes[2], 12) + bits.RotateLeft64(lanes[3], 18)
		for _, lane := range lanes {
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

// XXH64's primes. As variables their sums and differences wrap.
var (
	xxPrime1 uint64 = 0x9e3779b185ebca87
	xxPrime2 uint64 = 0xc2b2ae3d27d4eb4f
	xxPrime3 uint64 = 0x165667b19e3779f9
	xxPrime4 uint64 = 0x85ebca77c2b2ae63
	xxPrime5 uint64 = 0x27d4eb2f165667c5
)
