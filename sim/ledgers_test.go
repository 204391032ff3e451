package sim

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/router"
	"fleetsim/workload"
)

// A prompt of 10 tokens and 40 bytes, then 5 tokens and 15 bytes: index blocks of
// 8 bytes end with tokens 2, 4, 6, 8, 10 of the first segment and, at 3 bytes a
// token, inside the third and with the sixth of the second.
func TestLocate(t *testing.T) {
	l := &ledgers{scheme: router.IndexScheme{Block: 8, Unit: workload.Bytes}}
	p := workload.Prompt{{ID: 1, Tokens: 10, Bytes: 40}, {ID: 2, Tokens: 5, Bytes: 15}, {ID: 3, Tokens: 7}}
	l.hashes = p.AppendHashes(nil, 0, 8, workload.Bytes)
	l.locate(p)
	require.Equal(t, []int{2, 4, 6, 8, 10, 13}, l.ends)

	l.scheme = router.IndexScheme{Block: 4, Unit: workload.Tokens}
	l.hashes = p.AppendHashes(nil, 0, 4, workload.Tokens)
	l.locate(p)
	require.Equal(t, []int{4, 8, 12, 16, 20}, l.ends)
}

// Which block holds which: index blocks that end with tokens 2, 4, …, 10 and 13
// against engine blocks of 4 tokens, of which there are 5.
func TestLearn(t *testing.T) {
	l := &ledgers{scheme: router.IndexScheme{Block: 8, Unit: workload.Bytes}, tokens: 4,
		behind: map[placement]uint64{}, ahead: map[placement]uint64{}}
	p := workload.Prompt{{ID: 1, Tokens: 10, Bytes: 40}, {ID: 2, Tokens: 5, Bytes: 15}, {ID: 3, Tokens: 7}}
	index, engine := p.AppendHashes(nil, 0, 8, workload.Bytes), p.AppendHashes(nil, 0, 4, workload.Tokens)
	l.learn(p, 1)
	require.Len(t, engine, 5)
	require.Equal(t, map[placement]uint64{
		{index[0], 1}: engine[0], {index[1], 1}: engine[0], {index[2], 1}: engine[1], {index[3], 1}: engine[1],
		{index[4], 1}: engine[2], {index[5], 1}: engine[3],
	}, l.behind)
	require.Equal(t, map[placement]uint64{
		{engine[0], 1}: index[1], {engine[1], 1}: index[3], {engine[2], 1}: index[5],
	}, l.ahead, "token 16 and what follows is nothing that a gateway sees")

	short := p[:1]
	l.learn(short, 2)
	require.Zero(t, l.behind[placement{index[4], 2}], "tokens 9 and 10 fill no block")
	_, known := l.behind[placement{index[4], 2}]
	require.True(t, known)
}

// The studies' warm start: each family on one replica, where the index knows it.
// Of a prompt's 224 blocks of 128 bytes those beyond the third engine block are
// tails, and so is what no answer fills up; spare prefixes are unknown.
func TestLedgersAtTheStart(t *testing.T) {
	sc := load(t, "observe.ledgers=true")
	r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "prefix-cache"})
	require.NoError(t, err)
	counts := r.compareLedgers()
	require.Len(t, counts, 2)
	a, b := counts[0], counts[1]
	require.Equal(t, 4*3, a.Cached-a.Unknown, "four families of three blocks each")
	require.Equal(t, 3*3, a.Unknown, "three spares")
	require.Equal(t, 5*3, b.Unknown)
	require.Equal(t, a.Gone, a.Tails)
	require.Zero(t, a.Unmatchable)
	// Each prompt's question is its own, so only the last block or two differ; a
	// family's blocks are those of one prompt.
	blocks := (256 + 24 + 300*95 + 90 + 10) / 128
	require.Equal(t, 4*blocks, a.Entries)
	// 4,704 of about 5,055 tokens are in full engine blocks.
	require.InDelta(t, 4*float64(blocks)*(1-4704.0/5055), float64(a.Gone), 8)
}

// A replica that is gone has nothing; the local index goes on listing it, unless
// that is fixed.
func TestLedgersOfADeadPod(t *testing.T) {
	for _, fixed := range []string{"[]", `["dead_pods_leave"]`} {
		sc := load(t, "observe.ledgers=true", "router.upstream_fixed="+fixed, "workload.requests=8",
			`faults=[{at="1s",kind="crash",replica="L20-A",replace=false}]`)
		sum := ledgersOf(t, Setup{Scenario: sc, Profile: plain(t)})
		if fixed == "[]" {
			require.Greater(t, value(t, sum.GoneShare), 0.4)
		} else {
			require.Equal(t, sum.Gone, sum.Tails)
		}
	}
}

// The comparison is in the timeline's samples, adds up over the replicas, and is
// absent where nobody asks.
func TestLedgersInTheTimeline(t *testing.T) {
	for _, asked := range []bool{true, false} {
		var lines []string
		sc := load(t, fmt.Sprintf("observe.ledgers=%t", asked), "workload.requests=20")
		phase, err := Run(Setup{Scenario: sc, Profile: plain(t), Policy: "prefix-cache",
			Sample: func(s Sample) { lines = append(lines, string(s.AppendJSON(nil))) }})
		require.NoError(t, err)
		require.NotEmpty(t, lines)
		for _, line := range lines {
			var m map[string]any
			require.NoError(t, json.Unmarshal([]byte(line), &m))
			require.Equal(t, asked, strings.Contains(line, `"index_entries"`))
			if asked {
				require.GreaterOrEqual(t, m["index_entries"], m["index_gone"])
				require.GreaterOrEqual(t, m["kv_cached"], m["kv_unknown"])
				require.NotZero(t, m["index_entries"])
			}
		}
		_, recorded := phase.Other["ledgers"]
		require.Equal(t, asked, recorded)
	}
}

// Pruning forgets nothing that is still counted.
func TestPrunedLedgers(t *testing.T) {
	sc := load(t, "observe.ledgers=true", "workload.requests=200", "workload.prompt.families=0", "workload.prompt.hot_fraction=0",
		"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}",
		"router.env.AIBRIX_PREFIX_CACHE_BLOCK_NUMBER=2000", "workload.arrivals.rate_per_second=4")
	r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "prefix-cache"})
	require.NoError(t, err)
	most := 0
	r.start()
	for !r.over() {
		r.step()
		most = max(most, len(r.ledgers.behind))
	}
	before := len(r.ledgers.behind)
	first := sumOf(r.compareLedgers())
	second := sumOf(r.compareLedgers())
	require.Equal(t, first, second)
	require.Zero(t, first.Unmatchable)
	require.Greater(t, most, before, "it was pruned on the way")
	require.Less(t, len(r.ledgers.behind), 200*224)
}

// Phases that continue each other keep a policy's ledgers, as they keep its index.
func TestLedgersOverPhases(t *testing.T) {
	sc := load(t, "observe.ledgers=true", "workload.requests=10")
	phases, _ := inChain(t,
		Setup{Phase: "a", Scenario: sc, Profile: plain(t), Policy: "prefix-cache"},
		Setup{Phase: "b", Scenario: sc, Profile: plain(t), Policy: "random", Continue: true},
		Setup{Phase: "c", Scenario: sc, Profile: plain(t), Policy: "prefix-cache", Continue: true})
	sum := func(i int) (s LedgerSummary) {
		require.NoError(t, json.Unmarshal(phases[i].Other["ledgers"], &s))
		return s
	}
	require.NotContains(t, phases[1].Other, "ledgers")
	require.Zero(t, sum(2).Unmatchable)
	require.Greater(t, sum(2).Unknown, sum(0).Unknown, "what random sent where the index does not know")
	require.Equal(t, sum(0).Comparisons, 1+int(value(t, phases[0].Elapsed)/5)+1)
}
