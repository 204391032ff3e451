package workload

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Whatever a Hasher has seen before, it cuts a prompt as the prompt itself does.
func TestHasherAgainstPrompts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.IntRange(1, 60).Draw(t, "block")
		seed := rapid.Uint64().Draw(t, "seed")
		u := rapid.SampledFrom([]Unit{Tokens, Bytes}).Draw(t, "unit")
		h := NewHasher(seed, block, u)
		for range rapid.IntRange(1, 20).Draw(t, "prompts") {
			p := genPrompt(t, "p")
			require.Equal(t, p.AppendRuns(nil, seed, block, u), h.AppendRuns(nil, p))
			require.Equal(t, p.AppendHashes(nil, seed, block, u), h.AppendHashes(nil, p))
		}
	})
}

// A segment without identity or length is content like any other.
func TestHasherOfNothing(t *testing.T) {
	for _, p := range []Prompt{nil, {{}}, {{}, {}}, {{}, {}, {ID: 1, Tokens: 9}}} {
		require.Equal(t, p.AppendRuns(nil, 1, 4, Tokens), NewHasher(1, 4, Tokens).AppendRuns(nil, p))
	}
}

// Families find their heads again, more than the table begins with; heads that
// never come back do not make it grow without bound.
func TestHasherTable(t *testing.T) {
	prompt := func(family, n int) Prompt {
		return Prompt{{ID: 1<<56 | uint64(family), Tokens: 100}, {ID: 3 << 56, Tokens: 900}, {ID: 4<<56 | uint64(n), Tokens: 60}}
	}
	h := NewHasher(0, 16, Tokens)
	var runs []Run
	for n := range 20_000 {
		p := prompt(n%1000, n)
		runs = h.AppendRuns(runs[:0], p)
		require.Equal(t, p.AppendRuns(nil, 0, 16, Tokens), runs)
	}
	found := 0
	for f := range 1000 {
		at := h.place([2]headSegment{{1<<56 | uint64(f), 100}, {3 << 56, 900}})
		if at.segments[0].id == 1<<56|uint64(f) {
			found++
		}
	}
	require.Equal(t, 1000, found)
	for n := range 20_000 {
		runs = h.AppendRuns(runs[:0], prompt(1000+n, n))
	}
	require.Len(t, h.heads, mostHeads)
}

func TestHasherDoesNotAllocate(t *testing.T) {
	h := NewHasher(0, 128, Bytes)
	p := Prompt{{ID: 1, Bytes: 280}, {ID: 2, Bytes: 28500}, {ID: 3, Bytes: 92}}
	runs, hashes := h.AppendRuns(nil, p), h.AppendHashes(nil, p)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p[2].ID++
		runs, hashes = h.AppendRuns(runs[:0], p), h.AppendHashes(hashes[:0], p)
	}))
}

func BenchmarkHasher(b *testing.B) {
	p := Prompt{{ID: 1, Bytes: 280}, {ID: 2, Bytes: 28500}, {ID: 3, Bytes: 92}}
	for _, c := range []struct {
		name     string
		families uint64
	}{{"families=8", 8}, {"families=1000", 1000}, {"unique", 1 << 62}} {
		b.Run(c.name, func(b *testing.B) {
			h := NewHasher(0, 128, Bytes)
			var runs []Run
			n := uint64(0)
			b.ReportAllocs()
			for b.Loop() {
				n++
				p[0].ID, p[2].ID = n%c.families, n
				runs = h.AppendRuns(runs[:0], p)
			}
		})
	}
}
