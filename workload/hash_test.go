package workload

import (
	"encoding/binary"
	"testing"

	"github.com/cespare/xxhash/v2"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// genPrompt draws a prompt of few contents, so that prompts often share some.
func genPrompt(t *rapid.T, label string) Prompt {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Segment {
		n := rapid.IntRange(0, 40).Draw(t, "length")
		return Segment{ID: rapid.Uint64Range(1, 3).Draw(t, "id"), Tokens: n, Bytes: 3 * n}
	}), 0, 6).Draw(t, label)
}

// content is the prompt written out, a unit each, as (identity, offset).
func content(p Prompt, u Unit) [][2]uint64 {
	var out [][2]uint64
	for _, s := range p {
		for off := range s.length(u) {
			out = append(out, [2]uint64{s.ID, uint64(off)})
		}
	}
	return out
}

// Two prompts have equal hashes for as many blocks as their contents share from
// the start, as far as the contents were put together in the same pieces.
func TestHashesFollowContent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, q := genPrompt(t, "p"), genPrompt(t, "q")
		block := rapid.IntRange(1, 12).Draw(t, "block")
		u := rapid.SampledFrom([]Unit{Tokens, Bytes}).Draw(t, "unit")
		hp, hq := p.AppendHashes(nil, 7, block, u), q.AppendHashes(nil, 7, block, u)
		cp, cq := content(p, u), content(q, u)
		require.Len(t, hp, len(cp)/block)
		shared := 0
		for shared < min(len(cp), len(cq)) && cp[shared] == cq[shared] {
			shared++
		}
		for i := range min(len(hp), len(hq)) {
			if (i+1)*block > shared {
				require.NotEqual(t, hp[i], hq[i], "block %d", i)
			} else {
				require.Equal(t, hp[i], hq[i], "block %d", i)
			}
		}
	})
}

// A block's hash is XXH64 of what is in it, by the library.
func TestHashWordsAgainstTheLibrary(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		seed := rapid.Uint64().Draw(t, "seed")
		words := rapid.SliceOfN(rapid.Uint64(), 0, 20).Draw(t, "words")
		digest := xxhash.NewWithSeed(seed)
		for _, w := range words {
			require.NoError(t, binary.Write(digest, binary.LittleEndian, w))
		}
		require.Equal(t, digest.Sum64(), hashWords(seed, words))
	})
}

// hashesByBlock cuts the prompt block by block and hashes with the library.
func hashesByBlock(p Prompt, seed uint64, block int, u Unit) (hashes []uint64) {
	var pieces []byte // of the block that is being filled
	filled, parent := 0, seed
	for _, s := range p {
		inside := false // the block before lies in this segment
		for off := 0; off < s.length(u); {
			take := min(block-filled, s.length(u)-off)
			for _, w := range []uint64{s.ID, uint64(off), uint64(take)} {
				pieces = binary.LittleEndian.AppendUint64(pieces, w)
			}
			off, filled = off+take, filled+take
			if filled < block {
				continue
			}
			if inside {
				parent += step(seed, s.ID)
			} else {
				digest := xxhash.NewWithSeed(seed)
				digest.Write(binary.LittleEndian.AppendUint64(nil, parent))
				digest.Write(pieces)
				parent = digest.Sum64()
			}
			hashes = append(hashes, parent)
			pieces, filled, inside = pieces[:0], 0, take == block
		}
	}
	return hashes
}

func TestHashesAgainstBlockByBlock(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genPrompt(t, "p")
		block := rapid.IntRange(1, 60).Draw(t, "block")
		seed := rapid.Uint64().Draw(t, "seed")
		u := rapid.SampledFrom([]Unit{Tokens, Bytes}).Draw(t, "unit")
		require.Equal(t, hashesByBlock(p, seed, block, u), p.AppendHashes(nil, seed, block, u))
	})
}

// Runs and single blocks give the hashes that AppendHashes gives.
func TestRunsAndBlocksAgree(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := genPrompt(t, "p")
		block := rapid.IntRange(1, 12).Draw(t, "block")
		seed := rapid.Uint64().Draw(t, "seed")
		hashes := p.AppendHashes(nil, seed, block, Tokens)
		i := 0
		for _, r := range p.AppendRuns(nil, seed, block, Tokens) {
			require.Positive(t, r.Blocks)
			for k := range r.Blocks {
				require.Equal(t, hashes[i], r.Hash(k))
				i++
			}
		}
		require.Equal(t, len(hashes), i)
		parent := seed
		for i, h := range hashes {
			parent = p.HashBlock(seed, parent, i*block, block, Tokens)
			require.Equal(t, h, parent, "block %d", i)
		}
	})
}

// Blocks that are hashed under the wrong parent have hashes of their own, each
// another, which no block of the chain has.
func TestBlocksUnderAWrongParent(t *testing.T) {
	p := Prompt{{ID: 1, Tokens: 100}, {ID: 2, Tokens: 30}}
	hashes := p.AppendHashes(nil, 5, 10, Tokens)
	seen := map[uint64]bool{5: true}
	for _, h := range hashes {
		seen[h] = true
	}
	for _, parent := range []uint64{5, hashes[3], 12345} {
		for i := range hashes {
			if i == 0 && parent == 5 || i == 4 && parent == hashes[3] {
				continue
			}
			h := p.HashBlock(5, parent, 10*i, 10, Tokens)
			require.False(t, seen[h], "block %d under %d", i, parent)
			seen[h] = true
		}
	}
}

// A long shared segment is one run.
func TestALongSegmentIsOneRun(t *testing.T) {
	p := Prompt{{ID: 1, Bytes: 280}, {ID: 2, Bytes: 28500}, {ID: 3, Bytes: 92}}
	var blocks []int
	for _, r := range p.AppendRuns(nil, 0, 128, Bytes) {
		blocks = append(blocks, r.Blocks)
	}
	// 280 = 2 blocks + 24; the third block straddles; 28,396 of the second segment
	// are left: 221 blocks and 108; the last straddles and 72 are left over.
	require.Equal(t, []int{2, 1, 221, 1}, blocks)
}

func BenchmarkAppendRuns(b *testing.B) {
	p := Prompt{{ID: 1, Bytes: 280}, {ID: 2, Bytes: 28500}, {ID: 3, Bytes: 92}}
	var runs []Run
	b.ReportAllocs()
	for b.Loop() {
		runs = p.AppendRuns(runs[:0], 0, 128, Bytes)
	}
}
