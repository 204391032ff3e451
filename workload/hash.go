package workload

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

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
	h := blockHasher{seed: seed, parent: seed}
	filled := 0 // of the block that is being filled
	for _, s := range p {
		n, off := s.length(u), 0
		if n == 0 {
			continue
		}
		if filled > 0 || n < block {
			off = min(block-filled, n)
			h.add(filled == 0, s.ID, 0, off)
			if filled += off; filled < block {
				continue
			}
			dst = append(dst, Run{First: h.sum(), Blocks: 1})
			filled = 0
		}
		if whole := (n - off) / block; whole > 0 {
			h.add(true, s.ID, off, block)
			r := Run{First: h.sum(), Step: step(seed, s.ID), Blocks: whole}
			h.parent = r.Hash(whole - 1)
			dst = append(dst, r)
			off += whole * block
		}
		if off < n {
			h.add(true, s.ID, off, n-off)
			filled = n - off
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
	h := blockHasher{seed: seed, parent: parent}
	filled := 0
	for _, s := range p {
		n := s.length(u)
		if start >= n {
			start -= n
			continue
		}
		take := min(block-filled, n-start)
		h.add(filled == 0, s.ID, start, take)
		if filled += take; filled == block {
			break
		}
		start = 0
	}
	return h.sum()
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
	var word [8]byte
	binary.LittleEndian.PutUint64(word[:], id^seed*0x9e3779b97f4a7c15)
	return xxhash.Sum64(word[:]) | 1
}

// blockHasher hashes a block piece by piece: XXH64, with the seed, over the
// parent's hash and the identity, offset and length of each piece of content.
type blockHasher struct {
	seed, parent uint64
	digest       xxhash.Digest
}

// add adds a piece of content, the first of its block if begin is set.
func (h *blockHasher) add(begin bool, id uint64, off, n int) {
	var word [24]byte
	if begin {
		h.digest.ResetWithSeed(h.seed)
		binary.LittleEndian.PutUint64(word[:8], h.parent)
		h.digest.Write(word[:8])
	}
	binary.LittleEndian.PutUint64(word[0:], id)
	binary.LittleEndian.PutUint64(word[8:], uint64(off))
	binary.LittleEndian.PutUint64(word[16:], uint64(n))
	h.digest.Write(word[:])
}

// sum ends the block, whose hash is the parent of the next.
func (h *blockHasher) sum() uint64 {
	h.parent = h.digest.Sum64()
	return h.parent
}
