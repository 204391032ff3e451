package model

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// small is an attention-only engine with blocks of 4 tokens, 7 of them usable,
// whose every step takes 10 ms.
func small(async bool) *Replica {
	return NewReplica(Limits{MaxModelLen: 28, MaxNumSeqs: 4, MaxBatchedTokens: 8, BlockTokens: 4, Blocks: 8,
		PrefixCaching: true, AsyncScheduling: async}, CostModel{Base: 10 * simtime.Millisecond})
}

// tokens is a sequence whose prompt begins with the content.
func tokens(content uint64, prompt, output int) *Seq {
	p := workload.Prompt{{ID: content, Tokens: prompt}, {ID: content<<8 | 1, Tokens: output}}
	return &Seq{Prompt: prompt, Output: output, Hashes: p.AppendHashes(nil, 0, 4, workload.Tokens)}
}

type heard struct {
	at    int64 // ms
	event CacheEvent
}

func listen(r *Replica) *[]heard {
	var all []heard
	r.WatchCache(func(at simtime.Time, events []CacheEvent) {
		for _, e := range events {
			all = append(all, heard{int64(at / simtime.Millisecond), e})
		}
	})
	return &all
}

func finishAll(r *Replica) {
	for r.Next() != simtime.Never {
		r.Advance(r.Next(), func(*Seq) {})
	}
}

// A prompt of 11 tokens takes two chunks of 8 and 3 tokens; its answer of 6
// tokens fills the third block when the first of them is computed, and the
// fourth four tokens later. Each allocation is published when the engine next
// takes results: the one at 0 ms at 10 ms, and so on.
func TestCacheEventsOfOneSequence(t *testing.T) {
	r := small(false)
	all := listen(r)
	s := tokens(1, 11, 6)
	r.Add(0, s)
	finishAll(r)
	require.Equal(t, []heard{
		{10, CacheEvent{Seq: s, First: 0, Blocks: 2}}, // tokens 0-7 at 0 ms
		{30, CacheEvent{Seq: s, First: 2, Blocks: 1}}, // token 11 at 20 ms
		{70, CacheEvent{Seq: s, First: 3, Blocks: 1}}, // token 15 at 60 ms
	}, *all)
}

// A second prompt that needs 6 of the 7 blocks evicts what the first has left,
// block by block, its tail first; and what it registers comes in the same order
// as the allocations.
func TestCacheEventsOfEvictions(t *testing.T) {
	r := small(false)
	first, second := tokens(1, 12, 1), tokens(2, 24, 1)
	r.Add(0, first)
	finishAll(r)
	all := listen(r)
	now := r.lastEnd
	r.Add(now, second)
	finishAll(r)
	at := int64(now/simtime.Millisecond) + 10
	h := first.Hashes
	require.Equal(t, []heard{
		{at, CacheEvent{Seq: second, First: 0, Blocks: 2}},
		{at + 10, CacheEvent{Seq: second, First: 2, Blocks: 2}},
		{at + 20, CacheEvent{Removed: h[2]}},
		{at + 20, CacheEvent{Removed: h[1]}},
		{at + 20, CacheEvent{Seq: second, First: 4, Blocks: 2}},
	}, *all)
	require.False(t, r.Caches(h[1]))
	require.True(t, r.Caches(h[0]))
	require.True(t, r.Caches(second.Hashes[5]))
}

// With two steps in flight, the second chunk is scheduled at once, before the
// results of the first: both go out with those.
func TestCacheEventsUnderAsyncScheduling(t *testing.T) {
	r := small(true)
	all := listen(r)
	s := tokens(1, 12, 2)
	r.Add(0, s)
	finishAll(r)
	require.Equal(t, []heard{{10, CacheEvent{Seq: s, First: 0, Blocks: 2}}, {10, CacheEvent{Seq: s, First: 2, Blocks: 1}}}, *all)
}

// Priming tells nobody; forgetting everything is an event, unless a block is held.
func TestCacheEventsOfPrimingAndReset(t *testing.T) {
	r := small(false)
	all := listen(r)
	primed := tokens(1, 9, 1)
	r.Prime(9, primed.Hashes)
	require.Empty(t, *all)
	require.True(t, r.Caches(primed.Hashes[1]))
	n := 0
	r.EachCached(func(uint64) { n++ })
	require.Equal(t, 2, n)

	s := tokens(2, 3, 1)
	r.Add(0, s)
	require.False(t, r.ResetPrefixCache(5*simtime.Millisecond))
	finishAll(r)
	require.Empty(t, *all)
	require.True(t, r.ResetPrefixCache(20*simtime.Millisecond))
	require.Equal(t, []heard{{20, CacheEvent{Cleared: true}}}, *all)
	require.False(t, r.Caches(primed.Hashes[0]))
}

// Skipping steady steps publishes the same events at the same times.
func TestCacheEventsWhenSkipping(t *testing.T) {
	run := func(stepwise bool) []heard {
		r := NewReplica(Limits{MaxModelLen: 4000, MaxNumSeqs: 4, MaxBatchedTokens: 64, BlockTokens: 64, Blocks: 100,
			PrefixCaching: true, AsyncScheduling: true}, CostModel{Base: 10 * simtime.Millisecond, PerDecodeContext: 7})
		if stepwise {
			r.Stepwise()
		}
		var all []heard
		r.WatchCache(func(at simtime.Time, events []CacheEvent) {
			for _, e := range events {
				e.Seq = nil
				all = append(all, heard{int64(at), e})
			}
		})
		for i := range 3 {
			p := workload.Prompt{{ID: uint64(i), Tokens: 100 + i}, {ID: 99, Tokens: 1000}}
			r.Add(0, &Seq{Prompt: 100 + i, Output: 1000, Hashes: p.AppendHashes(nil, 0, 64, workload.Tokens)})
		}
		finishAll(r)
		return all
	}
	stepped := run(true)
	require.Greater(t, len(stepped), 40)
	require.Equal(t, stepped, run(false))
}

// A sequence whose prompt was computed elsewhere takes all its blocks, computes
// its last token in a decode step and goes on like any other. Its blocks are
// cached, so that the next one has them from here.
func TestReceivedPrompt(t *testing.T) {
	d := newDriver()
	s := prompt(0, 0, 5030, 15, 128)
	s.Received = 5044
	d.submit(s)
	require.Equal(t, given{0: 1}, d.schedule())
	require.Equal(t, Work{Decodes: 1, DecodeContext: 5045}, d.flight.at(0).work)
	require.Equal(t, 7, d.pool.used(), "4 blocks of attention, one state in 3 groups")
	d.run()
	require.Equal(t, 128, s.Outputs)
	require.Zero(t, s.Cached)
	require.Zero(t, d.pool.used())
	for _, h := range s.Hashes[:3] {
		require.NotEqual(t, nullBlock, d.pool.lookup(d.attention(), h))
	}
}

// What was received is lost with a preemption: then everything that is not
// cached is computed here.
func TestReceivedPromptPreempted(t *testing.T) {
	e := newEngine(Limits{MaxModelLen: 28, MaxNumSeqs: 4, MaxBatchedTokens: 28, BlockTokens: 4, Blocks: 8})
	d := &driver{engine: e}
	a, b := tokens(1, 12, 4), tokens(2, 12, 8)
	b.ID = 1
	a.reset(0)
	b.reset(0)
	b.Received = 11
	d.submit(a, b)
	require.Equal(t, given{0: 12, 1: 1}, d.schedule())
	d.process()
	require.Equal(t, given{0: 1}, d.schedule(), "one free block: a takes it, b is preempted")
	d.run()
	require.Equal(t, 1, b.Preemptions)
	require.Equal(t, 8, b.Outputs)
}
