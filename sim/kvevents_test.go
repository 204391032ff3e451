package sim

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model"
	"fleetsim/router"
	"fleetsim/simtime"
	"fleetsim/workload"
)

// synced are the settings under which engine blocks of 32 tokens match prompts.
func synced(sets ...string) []string {
	return append([]string{
		"router.env.AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED=true", "router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE=128",
		"router.env.AIBRIX_SYNC_MAX_PREFIXES_PER_CONTEXT=1000000",
		"engine.block_tokens=32", "workload.requests=40", "workload.closed_loop.concurrency=4",
		"workload.prompt.families=4", "workload.prompt.body_repeat=10",
		"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}",
	}, sets...)
}

const repaired = `router.upstream_fixed=["sync_event_chain","block_removed_one_pod","cache_cleared_heard"]`

// attentionOnly is plain without recurrent layers, so that small blocks will do.
func attentionOnly(t require.TestingT) *model.Profile {
	p := plain(t)
	p.Limits.StateGroups, p.Limits.MaxModelLen, p.Limits.Blocks = 0, 2048, 200
	return p
}

func ledgersOf(t require.TestingT, s Setup) LedgerSummary {
	s.Policy = "prefix-cache"
	phase, err := Run(s)
	require.NoError(t, err)
	var sum LedgerSummary
	require.NoError(t, json.Unmarshal(phase.Other["ledgers"], &sum))
	return sum
}

// With the surprises of v0.7.0 repaired and no delay, the index that events feed
// holds what the engines hold and nothing else, whatever they evict: every entry
// has its KV behind it, under a hash that a prompt has. An engine that computes
// the same content twice at one time says so when the first copy goes, and
// nothing more when the second does; without such content the index knows every
// block.
func TestRepairedEventsKeepTheIndexTrue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		unique := rapid.Bool().Draw(t, "unique")
		families := 0
		if !unique {
			families = rapid.IntRange(1, 12).Draw(t, "families")
		}
		sc := onTwo(t, synced(repaired,
			fmt.Sprintf("workload.prompt.families=%d", families),
			fmt.Sprintf("workload.requests=%d", rapid.IntRange(1, 60).Draw(t, "requests")),
			fmt.Sprintf("workload.closed_loop.concurrency=%d", rapid.IntRange(1, 12).Draw(t, "lanes")),
			fmt.Sprintf("workload.output_tokens=%d", rapid.SampledFrom([]int{1, 40, 100}).Draw(t, "output")),
			fmt.Sprintf("engine.blocks=%d", rapid.SampledFrom([]int{65, 100, 1000}).Draw(t, "blocks")),
			fmt.Sprintf("engine.async_scheduling=%t", rapid.Bool().Draw(t, "async")),
			fmt.Sprintf("router.gateways=%d", rapid.IntRange(1, 3).Draw(t, "gateways")),
		)...)
		sum := ledgersOf(t, Setup{Scenario: sc, Profile: attentionOnly(t), Seed: rapid.Uint64().Draw(t, "seed")})
		require.Zero(t, sum.Gone, "%+v", sum)
		require.Zero(t, sum.Unmatchable, "%+v", sum)
		if unique {
			require.Zero(t, sum.Unknown, "%+v", sum)
			require.Equal(t, sum.Entries, sum.Cached)
		}
	})
}

// As v0.7.0 is, of the blocks that an event brings only the first has a hash that
// a prompt can have.
func TestEventChainOfV070(t *testing.T) {
	sc := func(fixes ...string) Setup {
		return Setup{Scenario: onTwo(t, synced(append(fixes, "workload.prompt.families=0", "workload.requests=4")...)...), Profile: attentionOnly(t)}
	}
	// A prompt of about 406 tokens has 12 full blocks, which are one event; the
	// answer of 128 fills 4 more, an event each, whose parent is a block that the
	// index knows by its true hash only in the first case.
	broken := ledgersOf(t, sc())
	require.Equal(t, 4*(11+4), broken.Unmatchable)
	require.Equal(t, 4*(12+15), broken.Entries, "the router's own 12 and 15 of the engine's 16")
	fixed := ledgersOf(t, sc(repaired))
	require.Zero(t, fixed.Unmatchable)
	require.Equal(t, 4*16, fixed.Entries)
}

// A local index is told nothing: what the engines evict stays in it.
func TestLocalIndexGoesStale(t *testing.T) {
	sets := []string{"observe.ledgers=true", "engine.blocks=65", "workload.prompt.families=0", "workload.requests=40"}
	local := ledgersOf(t, Setup{Scenario: onTwo(t, synced(append(sets,
		"router.env.AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED=false")...)...), Profile: attentionOnly(t)})
	told := ledgersOf(t, Setup{Scenario: onTwo(t, synced(append(sets, repaired)...)...), Profile: attentionOnly(t)})
	require.Greater(t, value(t, local.GoneShare), 0.5)
	require.Zero(t, told.Gone)
	require.Zero(t, local.Unmatchable)
}

// Events reach the index after the delay: what an engine evicted is believed to be
// there so much longer. With a delay beyond the end nothing has arrived.
func TestKVEventDelay(t *testing.T) {
	gone := func(delay string) LedgerSummary {
		return ledgersOf(t, Setup{Scenario: onTwo(t, synced(repaired, "engine.blocks=65", "workload.prompt.families=0",
			"router.kv_event_delay="+delay)...), Profile: attentionOnly(t)})
	}
	at0, late, never := gone("0s"), gone("1s"), gone("1h")
	require.Zero(t, at0.Gone)
	require.NotZero(t, late.Gone)
	require.Greater(t, never.Gone, late.Gone)
	require.Equal(t, 40*12, never.Entries, "the router's own")
}

// The engine's first prompt is published when its first step ends, at 11 ms, and
// is heard 5 ms later.
func TestWhenEventsAreHeard(t *testing.T) {
	sc := onTwo(t, synced("router.kv_event_delay=5ms", "workload.requests=1", "workload.closed_loop.concurrency=1")...)
	r, err := newRun(Setup{Scenario: sc, Profile: attentionOnly(t), Policy: "prefix-cache"})
	require.NoError(t, err)
	r.start()
	entries := func(at simtime.Time) int {
		for r.upcoming() <= at {
			r.step()
		}
		return r.gateways.processes[0].IndexStats(at).Entries
	}
	require.Equal(t, 12, entries(16*simtime.Millisecond-1), "the router's own")
	require.Equal(t, 12+11, entries(16*simtime.Millisecond), "11 of 12 under other hashes, as v0.7.0 does it")
}

// A cache that is reset while nothing runs is empty, and the gateway hears of it,
// but v0.7.0 does not listen.
func TestCacheReset(t *testing.T) {
	fault := `faults=[{at="20s",kind="cache_reset",replica="L20-A"}]`
	run := func(sets ...string) LedgerSummary {
		// Two requests at 0 s, one on each replica, and the load's end at 30 s.
		return ledgersOf(t, Setup{Scenario: onTwo(t, synced(append(sets, fault, "workload.prompt.families=0",
			"workload.closed_loop.concurrency=2", "workload.requests=0", "workload.closed_loop.duration=25s",
			"workload.closed_loop.think_time=24s", "observe.snapshot_offset=22s", "observe.snapshot_interval=1h")...)...), Profile: attentionOnly(t)})
	}
	deaf := run(`router.upstream_fixed=["sync_event_chain","block_removed_one_pod"]`)
	heard := run(repaired)
	require.InDelta(t, 0.5, value(t, deaf.GoneSharePeak), 1e-12, "all that L20-A had at 22 s")
	require.Zero(t, heard.GoneSharePeak.Or(0))
}

func TestCacheResetWhileBusy(t *testing.T) {
	sc := onTwo(t, synced(`faults=[{at="15ms",kind="cache_reset",replica="L20-A"}]`, "workload.requests=2")...)
	phase, err := Run(Setup{Scenario: sc, Profile: attentionOnly(t), Policy: "prefix-cache"})
	require.NoError(t, err)
	require.Contains(t, phase.Notes[0], "the cache of L20-A was not reset")
}

// What comes late from a pod that has left the list is dropped.
func TestEventsOfPodsThatAreGone(t *testing.T) {
	r, err := newRun(Setup{Scenario: onTwo(t, synced("router.kv_event_delay=10ms")...), Profile: attentionOnly(t), Policy: "prefix-cache"})
	require.NoError(t, err)
	stored := kvEvent{stored: &router.BlockStored{Pod: 1, Blocks: []uint64{7}, BlockTokens: 32,
		Prompt: router.Symbolic(workload.Prompt{{ID: 1, Tokens: 32}})}}
	r.publish(0, kvMessage{pod: 1, events: []kvEvent{stored}})
	r.gateways.removePod(1)
	r.hearKV(0)
	require.Zero(t, r.gateways.processes[0].IndexStats(0).Entries)
	require.Empty(t, r.kvEvents.underWay)
}

// Who does not listen is told nothing.
func TestNobodyListens(t *testing.T) {
	r, err := newRun(Setup{Scenario: onTwo(t, synced()...), Profile: attentionOnly(t), Policy: "least-request"})
	require.NoError(t, err)
	require.False(t, r.replicas[0].watched)
	_, err = r.simulate(context.Background())
	require.NoError(t, err)
	require.Zero(t, r.kvEvents.sent)
}
