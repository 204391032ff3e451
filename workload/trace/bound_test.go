package trace

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
	"fleetsim/workload"
)

func TestHitBoundByHand(t *testing.T) {
	b := NewHitBound(16, 100)
	_, ok := b.Ratio()
	require.False(t, ok)
	b.Add([]uint64{1, 2}, 40)
	b.Add([]uint64{1, 2, 3}, 48) // looks up 2 blocks: the last token is always computed
	b.Add([]uint64{1, 2, 3}, 60) // finds the third too, though nobody looked it up
	b.Add(nil, 10)
	share, ok := b.Ratio()
	require.True(t, ok)
	require.InDelta(t, (2*16+3*16)/(40+48+60+10.0), share, 1e-12)
	require.False(t, b.Estimated())
}

// With room for all blocks the bound is that of Info; the order does not matter.
func TestHitBoundIsInfos(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		block := rapid.IntRange(1, 40).Draw(t, "block")
		info, bound, prompter := NewInfo(InfoOptions{EngineBlock: block}), NewHitBound(block, 1<<20), NewPrompter(0)
		for i := range rapid.IntRange(1, 30).Draw(t, "rows") {
			row := Row{At: simtime.Time(i), Timed: true, OutputTokens: rapid.IntRange(1, 60).Draw(t, "output"), BlockTokens: 16,
				InputTokens: rapid.IntRange(1, 100).Draw(t, "input")}
			if rapid.Bool().Draw(t, "history") {
				row.Session, row.History = rapid.SampledFrom([]string{"a", "b"}).Draw(t, "session"), true
			} else {
				row.HashIDs = rapid.SliceOfN(rapid.Uint64Range(0, 3), 0, 6).Draw(t, "ids")
			}
			info.Add(&row)
			req, err := prompter.Request(&row)
			require.NoError(t, err)
			prompt := req.Prompt
			if req.Answer != 0 {
				prompt = append(prompt[:len(prompt):len(prompt)], workload.Segment{ID: req.Answer, Tokens: req.Output - 1})
			}
			bound.Add(prompt.AppendHashes(nil, 0, block, workload.Tokens), req.Prompt.Len(workload.Tokens))
		}
		share, _ := bound.Ratio()
		require.InDelta(t, *info.Summary().HitRatioBound, share, 1e-12)
	})
}

// An estimate from a sixteenth of the blocks is near the truth.
func TestHitBoundFromASample(t *testing.T) {
	exact, sampled, prompter := NewHitBound(64, 1<<20), NewHitBound(64, 1500), NewPrompter(0)
	for row := range zipfTrace(20_000) {
		prompt := prompter.Prompt(&row)
		hashes := prompt.AppendHashes(nil, 0, 64, workload.Tokens)
		exact.Add(hashes, prompt.Len(workload.Tokens))
		sampled.Add(hashes, prompt.Len(workload.Tokens))
	}
	require.True(t, sampled.Estimated())
	require.LessOrEqual(t, len(sampled.seen), 1500)
	want, _ := exact.Ratio()
	got, _ := sampled.Ratio()
	require.InDelta(t, want, got, 0.03)
}

// What a conversation's answer adds to the cache counts for the next turn: of 160
// computed tokens the second prompt of 201 finds all.
func TestInfoCountsAnswersOfConversations(t *testing.T) {
	info := NewInfo(InfoOptions{})
	for i, in := range []int{100, 40} {
		info.Add(&Row{At: simtime.Time(i), Timed: true, InputTokens: in, OutputTokens: 61, Session: "s", History: true})
	}
	require.InDelta(t, 160/301.0, *info.Summary().HitRatioBound, 1e-12)
}

// A second Prompter that is told of the first's rows makes no content of its own
// that the first made.
func TestDistinguish(t *testing.T) {
	seen := map[uint64]bool{}
	for _, before := range []int{0, 3} {
		p := NewPrompter(0)
		p.Distinguish(before)
		for range 3 {
			req, err := p.Request(&Row{Timed: true, InputTokens: 5, OutputTokens: 1, Session: "s", History: true})
			require.NoError(t, err)
			for _, id := range []uint64{req.Prompt[len(req.Prompt)-1].ID, req.Answer} {
				require.False(t, seen[id])
				seen[id] = true
			}
		}
	}
}
