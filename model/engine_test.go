package model

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/workload"
)

// l20 is the studies' engine: 180 usable blocks of 1,568 tokens.
func l20() Limits {
	return Limits{MaxModelLen: 32768, MaxNumSeqs: 8, MaxBatchedTokens: 8192, BlockTokens: 1568, Blocks: 181,
		StateGroups: 3, PrefixCaching: true, AsyncScheduling: true, CountStatsAtLookup: true}
}

// prompt is a sequence of a family's shared tokens and its own.
func prompt(id, family, shared, own, output int) *Seq {
	p := workload.Prompt{
		{ID: 1<<40 | uint64(family), Tokens: shared},
		{ID: 2<<40 | uint64(id), Tokens: own},
		{ID: 3<<40 | uint64(id), Tokens: output},
	}
	s := &Seq{ID: id, Prompt: shared + own, Output: output, Hashes: p.AppendHashes(nil, 0, 1568, workload.Tokens)}
	s.reset(0)
	return s
}

// driver steps an engine with up to two steps in flight, as a replica does,
// but without time.
type driver struct {
	*engine
	ended []int
}

func (d *driver) submit(seqs ...*Seq) {
	for _, s := range seqs {
		d.waiting.pushBack(s)
	}
}

// schedule returns the tokens given to each sequence in the next step.
func (d *driver) schedule() map[int]int {
	given := map[int]int{}
	st := d.engine.schedule(0)
	if st == nil {
		return given
	}
	for _, it := range st.items {
		given[it.seq.ID] = it.n
	}
	if st.members > 0 {
		for _, s := range d.engine.running {
			if s.state == inStride {
				given[s.ID] = 1
			}
		}
	}
	return given
}

// process takes the results of the oldest step in flight.
func (d *driver) process() {
	d.finish(func(s *Seq) { d.ended = append(d.ended, s.ID) })
	d.settleAll()
}

// run goes on until nothing is left to do.
func (d *driver) run() {
	for {
		for !d.flight.full() && len(d.schedule()) > 0 {
		}
		if d.flight.n == 0 {
			return
		}
		d.process()
	}
}

type given = map[int]int

func newDriver() *driver { return &driver{engine: newEngine(l20())} }

// A lone cold prompt of 5,045 tokens is computed in two chunks and holds 6, 10
// and then 7 blocks.
func TestLoneColdPrompt(t *testing.T) {
	d := newDriver()
	d.submit(prompt(0, 0, 5030, 15, 128))
	require.Equal(t, given{0: 4704}, d.schedule())
	require.Equal(t, 6, d.pool.used())
	require.Equal(t, given{0: 341}, d.schedule())
	require.Equal(t, 10, d.pool.used())
	d.process()
	require.Equal(t, given{0: 1}, d.schedule())
	require.Equal(t, 10, d.pool.used(), "the state at 4,704 is held until tokens beyond it are processed")
	d.process()
	require.Equal(t, given{0: 1}, d.schedule())
	require.Equal(t, 7, d.pool.used())
	d.run()
	require.Equal(t, []int{0}, d.ended)
	require.Zero(t, d.pool.used())
}

// Cold prompts that arrive together share the budget on the block grid: 4,704
// and 3,136 in the first step, and what is left holds no block, so the third
// waits though its lookup was counted.
func TestColdPromptsShareABudget(t *testing.T) {
	d := newDriver()
	d.submit(prompt(0, 0, 5030, 15, 8), prompt(1, 1, 5030, 15, 8), prompt(2, 2, 5030, 15, 8))
	require.Equal(t, given{0: 4704, 1: 3136}, d.schedule())
	require.EqualValues(t, 3*5045, d.stats.QueryTokens)
	require.Equal(t, given{0: 341, 1: 1568, 2: 4704}, d.schedule())
	require.EqualValues(t, 4*5045, d.stats.QueryTokens)
	d.process()
	require.Equal(t, given{0: 1, 1: 341, 2: 341}, d.schedule())
	d.run()
	require.Equal(t, []int{0, 1, 2}, d.ended)
	require.Zero(t, d.stats.HitTokens)
}

// Of two identical cold prompts the second is admitted one step later with the
// whole prefix, long before the first is complete.
func TestIdenticalColdPrompts(t *testing.T) {
	d := newDriver()
	a, b := prompt(0, 0, 5030, 15, 8), prompt(1, 0, 5030, 15, 8)
	d.submit(a, b)
	require.Equal(t, given{0: 4704}, d.schedule())
	require.Equal(t, given{0: 341, 1: 341}, d.schedule())
	require.Equal(t, 4704, b.Cached)
	require.EqualValues(t, 3*5045, d.stats.QueryTokens, "the deferred lookup counts twice")
	require.EqualValues(t, 2*4704, d.stats.HitTokens)
	d.run()
}

// A later engine counts a lookup once, when it leads to an admission.
func TestCountStatsAtAdmission(t *testing.T) {
	l := l20()
	l.CountStatsAtLookup = false
	d := &driver{engine: newEngine(l)}
	d.submit(prompt(0, 0, 5030, 15, 8), prompt(1, 0, 5030, 15, 8))
	d.run()
	require.EqualValues(t, 2*5045, d.stats.QueryTokens)
	require.EqualValues(t, 4704, d.stats.HitTokens)
}

func TestWarmPrompt(t *testing.T) {
	d := newDriver()
	d.submit(prompt(0, 0, 5030, 15, 1))
	d.run()
	b := prompt(1, 0, 5030, 15, 128)
	d.submit(b)
	require.Equal(t, given{1: 341}, d.schedule())
	require.Equal(t, 10, d.pool.used(), "6 shared and 4 of its own")
	d.schedule()
	d.process()
	d.schedule()
	require.Equal(t, 7, d.pool.used())
	require.Equal(t, 4704, b.Cached)
}

// N sequences decoding over S live prefixes hold 4N + 3S blocks.
func TestSteadyDecodeBlocks(t *testing.T) {
	for _, c := range []struct{ families, want int }{{7, 53}, {6, 50}, {5, 47}, {4, 44}} {
		d := newDriver()
		for i := range 8 {
			d.submit(prompt(i, i%c.families, 5030, 15, 128))
		}
		for range 12 {
			for !d.flight.full() {
				d.schedule()
			}
			d.process()
		}
		require.Equal(t, c.want, d.pool.used(), "%d families", c.families)
	}
}

// A prompt that ends on the grid must compute its last token, and so loses its
// last block; nothing is cached at the block before until a second prompt has
// left a state there.
func TestAlignedPrompt(t *testing.T) {
	d := newDriver()
	d.submit(prompt(0, 0, 4704, 0, 1))
	require.Equal(t, given{0: 4704}, d.schedule())
	d.run()
	second := prompt(1, 0, 4704, 0, 1)
	d.submit(second)
	require.Equal(t, given{1: 3136}, d.schedule(), "stops at the junction")
	require.Equal(t, given{1: 1568}, d.schedule())
	d.run()
	require.Zero(t, second.Cached)
	third := prompt(2, 0, 4704, 0, 1)
	d.submit(third)
	require.Equal(t, given{2: 1568}, d.schedule())
	require.Equal(t, 3136, third.Cached)
}

// A prefix of two blocks in a longer cached prompt is hit on its third use: the
// second leaves the state.
func TestJunction(t *testing.T) {
	d := newDriver()
	d.submit(prompt(0, 0, 3200, 1845, 1))
	d.run()
	b, c := prompt(1, 0, 3200, 1845, 1), prompt(2, 0, 3200, 1845, 1)
	d.submit(b)
	require.Equal(t, given{1: 3136}, d.schedule())
	d.run()
	d.submit(c)
	d.run()
	require.Equal(t, []int{0, 3136}, []int{b.Cached, c.Cached})
}

// A prefix of 5,045 tokens leaves 6 blocks, and computing one takes 10, so the
// thirtieth evicts the oldest: its states and the tail of its attention.
func TestEvictionOfIdlePrefixes(t *testing.T) {
	r := NewReplica(l20(), CostModel{})
	family := func(f int) *Seq { return prompt(f, f, 5030, 15, 1) }
	for f := range 29 {
		r.Prime(5045, family(f).Hashes)
	}
	hit, _ := r.engine.lookup(family(0))
	require.Equal(t, 4704, hit)
	r.Prime(5045, family(29).Hashes)
	hit, _ = r.engine.lookup(family(0))
	require.Zero(t, hit)
	for f := 1; f < 30; f++ {
		hit, _ = r.engine.lookup(family(f))
		require.Equal(t, 4704, hit, "family %d", f)
	}
	require.Equal(t, Stats{Evictions: 4}, r.Stats(), "priming leaves no other trace")
	require.Zero(t, r.engine.pool.used())
}

// A prompt that the front end would refuse cannot be primed, which ends all the same.
func TestPrimingTooLongAPrompt(t *testing.T) {
	r := NewReplica(Limits{MaxModelLen: 28, MaxNumSeqs: 4, MaxBatchedTokens: 28, BlockTokens: 4, Blocks: 8, PrefixCaching: true}, CostModel{})
	r.Prime(28, []uint64{1, 2, 3, 4, 5, 6, 7})
	require.False(t, r.Caches(1))
	r.Prime(27, []uint64{1, 2, 3, 4, 5, 6})
	require.True(t, r.Caches(1))
}

// Two sequences of one block and three states each fill 8 of 11 blocks. Growing
// past the block takes 4, so the first to grow preempts the other. That one is
// back before it needs a second block, finds 2 free when it does, and preempts
// itself; its third admission takes both blocks at once.
func TestPreemption(t *testing.T) {
	l := l20()
	l.Blocks = 12
	d := &driver{engine: newEngine(l)}
	a, b := prompt(0, 0, 0, 1560, 20), prompt(1, 1, 0, 1560, 20)
	d.submit(a, b)
	d.run()
	require.Equal(t, []int{0, 1}, d.ended)
	require.Equal(t, []int{0, 2}, []int{a.Preemptions, b.Preemptions})
	require.EqualValues(t, 2, d.stats.Preemptions)
	require.Equal(t, []int{20, 20}, []int{a.Outputs, b.Outputs})
	require.Zero(t, d.pool.used())
}

// Eight prompts of 29,700 tokens take 22 of 180 blocks each and all are
// admitted; their decodes cross into a twentieth block and no longer fit.
func TestPreemptionNearTheContextLimit(t *testing.T) {
	d := newDriver()
	var seqs []*Seq
	for i := range 8 {
		seqs = append(seqs, prompt(i, i, 0, 29700, 128))
	}
	d.submit(seqs...)
	for len(d.engine.running) < 8 && d.stats.Preemptions == 0 {
		d.schedule()
		if d.flight.full() {
			d.process()
		}
		checkPool(t, d)
	}
	d.run()
	require.Len(t, d.ended, 8)
	require.Positive(t, d.stats.Preemptions)
	for _, s := range seqs {
		require.Equal(t, 128, s.Outputs)
	}
	require.Zero(t, d.pool.used())
}

// An attention-only model has no grid: one chunk, and a hit on each full block.
func TestAttentionOnly(t *testing.T) {
	l := l20()
	l.StateGroups, l.BlockTokens, l.Blocks = 0, 16, 4001
	d := &driver{engine: newEngine(l)}
	seq := func(id int) *Seq {
		s := prompt(id, 0, 5030, 15, 1)
		p := workload.Prompt{{ID: 7, Tokens: 5030}, {ID: uint64(100 + id), Tokens: 15}}
		s.Hashes = p.AppendHashes(nil, 0, 16, workload.Tokens)
		return s
	}
	d.submit(seq(0))
	require.Equal(t, given{0: 5045}, d.schedule())
	d.run()
	d.submit(seq(1))
	require.Equal(t, given{1: 5045 - 5024}, d.schedule())
}

// checkPool compares the pool with what sequences hold.
func checkPool(t require.TestingT, d *driver) {
	refs := make([]int32, len(d.pool.blocks))
	for _, s := range d.engine.running {
		for _, id := range s.attn {
			refs[id]++
		}
		for _, id := range s.held {
			refs[id]++
		}
	}
	free := 0
	for id := d.pool.blocks[nullBlock].next; id != nullBlock; id = d.pool.blocks[id].next {
		free++
		require.Zero(t, refs[id], "block %d is held and free", id)
	}
	require.Equal(t, free, d.pool.free)
	held := 0
	for id := 1; id < len(refs); id++ {
		require.Equal(t, refs[id], d.pool.blocks[id].ref, "block %d", id)
		if refs[id] > 0 {
			held++
		}
	}
	require.Equal(t, len(refs)-1, free+held, "blocks are conserved")
	hashed := 0
	for g, m := range d.pool.cached {
		for hash, id := range m {
			for ; id != nullBlock; id = d.pool.blocks[id].same {
				require.Equal(t, block{hash: hash, group: int16(g), hashed: true},
					block{hash: d.pool.blocks[id].hash, group: d.pool.blocks[id].group, hashed: d.pool.blocks[id].hashed})
				hashed++
			}
		}
	}
	for id := range d.pool.blocks {
		if d.pool.blocks[id].hashed {
			hashed--
		}
	}
	require.Zero(t, hashed, "every cached block is in the table once")
}

// Whatever arrives, blocks are conserved at each step, first admissions are in
// order of arrival, every sequence ends with all its tokens, and at the end
// nothing is held.
func TestEngineInvariants(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := l20()
		l.Blocks = rapid.IntRange(40, 181).Draw(t, "blocks")
		l.MaxNumSeqs = rapid.IntRange(1, 8).Draw(t, "max_num_seqs")
		l.LongPrefillTokens = rapid.SampledFrom([]int{0, 0, 2000}).Draw(t, "long_prefill")
		d := &driver{engine: newEngine(l)}
		var seqs []*Seq
		for i := range rapid.IntRange(0, 25).Draw(t, "requests") {
			shared := rapid.SampledFrom([]int{0, 100, 1568, 3200, 5030, 9000, 20000}).Draw(t, "shared")
			own := rapid.IntRange(1, 3000).Draw(t, "own")
			s := prompt(i, rapid.IntRange(0, 5).Draw(t, "family"), shared, own, rapid.IntRange(1, 300).Draw(t, "output"))
			seqs = append(seqs, s)
		}
		next := 0
		for steps := 0; len(d.ended) < len(seqs); steps++ {
			require.Less(t, steps, 100_000, "no progress")
			for range rapid.IntRange(0, 3).Draw(t, "arrivals") {
				if next < len(seqs) {
					d.submit(seqs[next])
					next++
				}
			}
			for !d.flight.full() && len(d.schedule()) > 0 {
				checkPool(t, d)
			}
			require.LessOrEqual(t, len(d.engine.running), l.MaxNumSeqs)
			if d.flight.n > 0 {
				d.process()
				checkPool(t, d)
			}
		}
		for _, s := range seqs {
			require.Equal(t, s.Output, s.Outputs)
		}
		require.Zero(t, d.pool.used())
	})
}

// Chunks of a recurrent model's prompt end on blocks while states are cached, so
// neither a step nor the threshold may be shorter than one: nothing would ever run.
// Nor may the pool take all memory.
func TestLimits(t *testing.T) {
	for _, c := range []struct {
		name   string
		change func(*Limits)
		want   string
	}{
		{"as the studies", func(*Limits) {}, ""},
		{"a step of a block", func(l *Limits) { l.MaxBatchedTokens = 1568 }, ""},
		{"less than a block", func(l *Limits) { l.MaxBatchedTokens = 1567 }, "max_num_batched_tokens = 1567"},
		{"chunks of a block", func(l *Limits) { l.LongPrefillTokens = 1568 }, ""},
		{"smaller chunks", func(l *Limits) { l.LongPrefillTokens = 600 }, "long_prefill_token_threshold = 600"},
		{"without caching", func(l *Limits) { l.LongPrefillTokens, l.PrefixCaching = 600, false }, ""},
		{"many blocks", func(l *Limits) { l.Blocks = 1 << 24 }, ""},
		{"too many", func(l *Limits) { l.Blocks = 1<<24 + 1 }, "blocks = 16777217: allowed is 2 to 16777216"},
		{"without states", func(l *Limits) { l.LongPrefillTokens, l.StateGroups = 600, 0 }, ""},
	} {
		l := l20()
		c.change(&l)
		if err := l.Validate(); c.want == "" {
			require.NoError(t, err, c.name)
		} else {
			require.ErrorContains(t, err, c.want, c.name)
		}
	}
}

// All faults are told, but those between limits only where each is in range.
func TestFaults(t *testing.T) {
	keys := func(l Limits) []string {
		var keys []string
		for _, f := range (&Profile{Limits: l, Noise: Noise{ReplicaSD: 1}}).Faults() {
			keys = append(keys, f.Key)
		}
		return keys
	}
	l := l20()
	require.Equal(t, []string{"noise.replica_sd"}, keys(l))
	l.MaxBatchedTokens, l.LongPrefillTokens, l.Blocks = 1000, 600, 20
	require.Equal(t, []string{"engine.max_num_batched_tokens", "engine.long_prefill_token_threshold", "engine.blocks", "noise.replica_sd"}, keys(l))
	l.MaxNumSeqs, l.StateGroups = 0, -1
	require.Equal(t, []string{"engine.max_num_seqs", "engine.state_groups", "noise.replica_sd"}, keys(l))
}
