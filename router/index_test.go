package router

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// A naiveIndex is the local index written down as the rules read: a list of
// blocks from the least recently put to the most, swept at every interval.
type naiveIndex struct {
	settings PrefixSettings
	fixed    map[string]bool
	blocks   []naiveBlock
	ticks    simtime.Time
}

type naiveBlock struct {
	hash uint64
	put  simtime.Time
	pods map[string]map[int]bool
}

func (x *naiveIndex) sweep(now simtime.Time) {
	for ; (x.ticks+1)*x.settings.EvictionInterval <= now; x.ticks++ {
		at := (x.ticks + 1) * x.settings.EvictionInterval
		x.blocks = slices.DeleteFunc(x.blocks, func(b naiveBlock) bool { return at-b.put > x.settings.EvictionDuration })
	}
}

func (x *naiveIndex) find(hash uint64) int {
	return slices.IndexFunc(x.blocks, func(b naiveBlock) bool { return b.hash == hash })
}

func (x *naiveIndex) add(now simtime.Time, model string, hashes []uint64, pod int) {
	x.sweep(now)
	hashes = slices.Clone(hashes)
	if x.fixed[FixLRUHeads] {
		slices.Reverse(hashes)
	}
	for _, h := range hashes {
		b := naiveBlock{hash: h, pods: map[string]map[int]bool{}}
		if i := x.find(h); i >= 0 {
			b = x.blocks[i]
			x.blocks = slices.Delete(x.blocks, i, i+1)
		}
		b.put = now
		if b.pods[model] == nil {
			b.pods[model] = map[int]bool{}
		}
		b.pods[model][pod] = true
		x.blocks = append(x.blocks, b)
		if len(x.blocks) > x.settings.BlockNumber {
			x.blocks = x.blocks[1:]
		}
	}
}

func (x *naiveIndex) match(now simtime.Time, model string, hashes []uint64, pods []Pod, candidates, percents []int) {
	x.sweep(now)
	left := slices.Clone(candidates)
	for depth, h := range hashes {
		i := x.find(h)
		if i < 0 {
			return
		}
		left = slices.DeleteFunc(left, func(c int) bool { return !x.blocks[i].pods[model][pods[c].ID] })
		for _, c := range left {
			percents[c] = (depth + 1) * 100 / len(hashes)
		}
	}
}

func (x *naiveIndex) podRemoved(pod int) {
	if !x.fixed[FixDeadPods] {
		return
	}
	x.blocks = slices.DeleteFunc(x.blocks, func(b naiveBlock) bool {
		left := 0
		for _, pods := range b.pods {
			delete(pods, pod)
			left += len(pods)
		}
		return left == 0
	})
}

func (x *naiveIndex) stats(now simtime.Time) IndexStats {
	x.sweep(now)
	s := IndexStats{Entries: len(x.blocks), Bytes: int64(len(x.blocks)) * bytesPerBlock}
	for _, b := range x.blocks {
		s.Bytes += int64(len(b.pods)) * bytesPerBlockModel
	}
	return s
}

func TestLocalIndexAgainstNaive(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := DefaultSettings().Prefix
		s.BlockNumber = rapid.IntRange(1, 60).Draw(t, "capacity")
		s.EvictionInterval = simtime.Time(rapid.IntRange(1, 5).Draw(t, "interval"))
		s.EvictionDuration = simtime.Time(rapid.IntRange(1, 40).Draw(t, "ttl"))
		fixed := map[string]bool{
			FixLRUHeads: rapid.Bool().Draw(t, "heads"),
			FixDeadPods: rapid.Bool().Draw(t, "dead"),
		}
		got := newLocalIndex(s, fixed)
		want := &naiveIndex{settings: s, fixed: fixed}
		// Pods of three words, so that blocks need more than one holding.
		pods := []Pod{{ID: 0}, {ID: 1}, {ID: 63}, {ID: 64}, {ID: 130}}
		now := simtime.Time(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			now += simtime.Time(rapid.IntRange(0, 12).Draw(t, "dt"))
			model := rapid.SampledFrom([]string{"m1", "m2"}).Draw(t, "model")
			p := promptOf(t)
			hashes := hashesOf(p)
			switch op := rapid.IntRange(0, 6).Draw(t, "op"); op {
			case 0:
				pod := rapid.SampledFrom(pods).Draw(t, "pod").ID
				got.podRemoved(pod)
				want.podRemoved(pod)
			case 1, 2, 3:
				pod := rapid.SampledFrom(pods).Draw(t, "pod").ID
				got.add(now, model, p, pod)
				want.add(now, model, hashes, pod)
			default:
				candidates := rapid.SliceOfNDistinct(rapid.IntRange(0, len(pods)-1), 1, len(pods), rapid.ID).Draw(t, "candidates")
				b := unmatched(len(pods))
				want.match(now, model, hashes, pods, candidates, b)
				require.Equal(t, b, matchAmong(got, now, model, p, pods, candidates))
			}
			g := got.stats(now)
			g.Evicted, g.Expired = 0, 0
			require.Equal(t, want.stats(now), g)
		}
	})
}

// matchAmong is the index's percentages of the candidates, in the list of the pods.
func matchAmong(x prefixIndex, now simtime.Time, model string, p *promptBlocks, pods []Pod, candidates []int) []int {
	var r roster
	var m matches
	r.enrol(pods)
	among := make(slotSet, len(r.words))
	for _, i := range candidates {
		among.put(r.slots[i])
	}
	x.match(now, model, p, &r, among, &m)
	var percents []int
	for _, slot := range r.slots {
		percents = append(percents, m.of(slot))
	}
	return percents
}

// matchAll is the index's percentages of the pods.
func matchAll(x prefixIndex, now simtime.Time, model string, p *promptBlocks, pods []Pod) []int {
	var candidates []int
	for i := range pods {
		candidates = append(candidates, i)
	}
	return matchAmong(x, now, model, p, pods, candidates)
}

func unmatched(n int) []int { return slices.Repeat([]int{noMatch}, n) }

// promptOf draws a prompt from few: a chain of single blocks, or symbolic content
// that is cut into runs.
func promptOf(t *rapid.T) *promptBlocks {
	if rapid.Bool().Draw(t, "single blocks") {
		return blocks(chain(t)...)
	}
	var prompt workload.Prompt
	for _, id := range []uint64{1, 2, 3} {
		n := rapid.IntRange(0, 25).Draw(t, "length")
		prompt = append(prompt, workload.Segment{ID: id, Bytes: n})
	}
	var p promptBlocks
	block := rapid.IntRange(1, 3).Draw(t, "block")
	p.cut(prompt, workload.NewHasher(0, block, workload.Bytes), IndexScheme{})
	return &p
}

// blocks is a prompt of single blocks.
func blocks(hashes ...uint64) *promptBlocks {
	p := &promptBlocks{blocks: len(hashes)}
	for _, h := range hashes {
		p.runs = append(p.runs, workload.Run{First: h, Blocks: 1})
	}
	return p
}

func hashesOf(p *promptBlocks) (hashes []uint64) {
	for _, h := range p.hashes {
		hashes = append(hashes, h)
	}
	return hashes
}

// chain draws the hashes of a prompt from a small tree of prompts.
func chain(t *rapid.T) []uint64 {
	var hashes []uint64
	parent := uint64(1)
	for range rapid.IntRange(0, 8).Draw(t, "blocks") {
		parent = parent*3 + uint64(rapid.IntRange(0, 1).Draw(t, "branch"))
		// Equal low bits, to make the table probe.
		hashes = append(hashes, parent<<5)
	}
	return hashes
}

func TestBlockTableAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var table blockTable
		want := map[uint64]int32{}
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			// Few starting places, some at the end of the table, so that runs wrap.
			h := uint64(rapid.IntRange(0, 3).Draw(t, "high"))<<32 | rapid.SampledFrom([]uint64{0, 1, 2, 61, 62, 63}).Draw(t, "low")
			if _, known := want[h]; known {
				table.remove(h)
				delete(want, h)
			} else {
				e := int32(rapid.IntRange(0, 1000).Draw(t, "entry"))
				table.put(h, e)
				want[h] = e
			}
			require.Equal(t, len(want), table.used)
			for high := range uint64(4) {
				for _, low := range []uint64{0, 1, 2, 61, 62, 63} {
					e, known := want[high<<32|low]
					if !known {
						e = noEntry
					}
					require.Equal(t, e, table.get(high<<32|low))
				}
			}
		}
	})
}

// Ids that only differ above bit 31, or beyond float64's precision, are different
// content.
func TestHashesKeepAll64Bits(t *testing.T) {
	for _, ids := range [][2]uint64{{4294967297, 1}, {9007199254740993, 9007199254740992}} {
		x := newLocalIndex(DefaultSettings().Prefix, nil)
		x.add(0, "m", blocks(ids[:1]...), 0)
		require.Equal(t, unmatched(1), matchAll(x, 0, "m", blocks(ids[1:]...), []Pod{{}}))
	}
}

func TestSweepIsStrictlyOlder(t *testing.T) {
	x := newLocalIndex(DefaultSettings().Prefix, nil)
	x.add(simtime.Second/2, "m", blocks(1), 0)
	age := 20*simtime.Minute + simtime.Second/2
	require.Equal(t, 1, x.stats(age).Entries, "20 minutes old, but no sweep since 19:59.5")
	require.Equal(t, 1, x.stats(20*simtime.Minute+simtime.Second-1).Entries)
	require.Equal(t, 0, x.stats(20*simtime.Minute+simtime.Second).Entries)
	require.EqualValues(t, 1, x.stats(20*simtime.Minute+simtime.Second).Expired)

	x.add(simtime.Hour, "m", blocks(2), 0)
	require.Equal(t, 1, x.stats(simtime.Hour+20*simtime.Minute).Entries, "exactly 20 minutes old at the sweep")
	require.Equal(t, 0, x.stats(simtime.Hour+20*simtime.Minute+simtime.Second).Entries)
}

// A capacity of 4 and two prompts of 3 blocks: v0.7.0 evicts the first one's head
// and keeps its tail, which no walk can reach; fixed, the head stays.
func TestCapacityEvictsHeadsFirst(t *testing.T) {
	for _, c := range []struct {
		fixed bool
		want  int
	}{{false, noMatch}, {true, 33}} {
		s := DefaultSettings().Prefix
		s.BlockNumber = 4
		x := newLocalIndex(s, map[string]bool{FixLRUHeads: c.fixed})
		x.add(0, "m", blocks(1, 2, 3), 0)
		x.add(0, "m", blocks(11, 12, 13), 0)
		require.Equal(t, []int{c.want}, matchAll(x, 0, "m", blocks(1, 2, 3), []Pod{{}}), "fixed %v", c.fixed)
		require.EqualValues(t, 2, x.stats(0).Evicted)
	}
}

func TestDeadPodsStayInTheLocalIndex(t *testing.T) {
	for _, fixed := range []bool{false, true} {
		s := DefaultSettings()
		s.UpstreamFixed = map[string]bool{FixDeadPods: fixed}
		g := newTestGateway(t, "prefix-cache", s, 2)
		g.Remember(0, &Request{Prompt: longText("a", 1024)}, 0)
		g.RemovePod(0)
		want := 8
		if fixed {
			want = 0
		}
		require.Equal(t, want, g.IndexStats(0).Entries, "fixed %v", fixed)
	}
}

func newTestSyncIndex(fixes ...string) *syncIndex {
	s := DefaultSettings()
	s.UpstreamFixed = map[string]bool{}
	for _, f := range fixes {
		s.UpstreamFixed[f] = true
	}
	return newSyncIndex(s)
}

// percentsOf are the match percentages of pods 0 and 1 for the first blocks
// blocks of a text of 8 blocks of 4 tokens.
func percentsOf(x *syncIndex, text Text) []int {
	hashes := text.AppendHashes(nil, 0, 4, workload.Tokens)
	return matchAll(x, 0, "m", blocks(hashes...), []Pod{{ID: 0}, {ID: 1}})
}

func storedEvent(pod int, text Text) *BlockStored {
	return &BlockStored{Pod: pod, Model: "m", Blocks: []uint64{1, 2, 3, 4}, Prompt: text, BlockTokens: 4}
}

func TestSyncIndexHashesAllBlocksOfAnEventUnderOneParent(t *testing.T) {
	text := longText("sync", 64)
	for _, c := range []struct {
		fixes []string
		want  int
	}{{nil, 25}, {[]string{FixSyncChain}, 100}} {
		x := newTestSyncIndex(c.fixes...)
		x.stored(0, storedEvent(0, text))
		require.Equal(t, []int{c.want, noMatch}, percentsOf(x, text), "%v", c.fixes)
	}
}

func TestSyncIndexDropsRemovedBlocksForAllPods(t *testing.T) {
	text := longText("sync", 64)
	for _, c := range []struct {
		fixes []string
		want  []int
	}{
		{[]string{FixSyncChain}, []int{50, 50}},
		{[]string{FixSyncChain, FixBlockRemoved}, []int{50, 100}},
	} {
		x := newTestSyncIndex(c.fixes...)
		x.stored(0, storedEvent(0, text))
		x.stored(0, storedEvent(1, text))
		x.blocksRemoved(0, &BlockRemoved{Pod: 0, Model: "m", Blocks: []uint64{3, 4, 99}})
		require.Equal(t, c.want, percentsOf(x, text), "%v", c.fixes)
		x.blocksRemoved(0, &BlockRemoved{Pod: 0, Model: "nobody", Blocks: []uint64{1}})
		x.blocksRemoved(0, &BlockRemoved{Pod: 1, Model: "m", Blocks: []uint64{3, 4}})
		require.Equal(t, []int{50, 50}, percentsOf(x, text), "%v", c.fixes)
		require.Equal(t, 2, x.stats(0).Entries)
		require.Equal(t, 2, x.contexts["m"].counted)
	}
}

func TestSyncIndexIgnoresClearedCaches(t *testing.T) {
	text := longText("sync", 64)
	for _, c := range []struct {
		fixes []string
		want  []int
	}{{[]string{FixSyncChain}, []int{100, 100}}, {[]string{FixSyncChain, FixCacheCleared}, []int{noMatch, 100}}} {
		x := newTestSyncIndex(c.fixes...)
		x.stored(0, storedEvent(0, text))
		x.stored(0, storedEvent(1, text))
		x.cleared(0)
		require.Equal(t, c.want, percentsOf(x, text), "%v", c.fixes)
	}
}

// A pod without the first block is credited with the later one, and a walk goes on
// as long as somebody has the block.
func TestSyncMatchDoesNotNarrow(t *testing.T) {
	text := longText("sync", 64)
	hashes := text.AppendHashes(nil, 0, 4, workload.Tokens)
	x := newTestSyncIndex()
	x.add(0, "m", blocks(hashes[:2]...), 0)
	x.add(0, "m", blocks(hashes[1:3]...), 1)
	require.Equal(t, []int{50, 75}, percentsOf(x, text))
	x.podRemoved(0)
	require.Equal(t, []int{noMatch, noMatch}, percentsOf(x, text), "nobody has the first block")
}

func TestSyncAddsStopAtTheCapAndEventsDoNot(t *testing.T) {
	x := newTestSyncIndex()
	x.settings.MaxPrefixes = 3
	x.add(0, "m", blocks(1, 2, 3, 4), 0)
	x.add(0, "m", blocks(1), 1)
	require.Equal(t, 3, x.stats(0).Entries)
	require.False(t, x.contexts["m"].holders[1].has(1), "not even a known block gains a pod")
	x.stored(0, storedEvent(1, longText("sync", 64)))
	require.Equal(t, 7, x.stats(0).Entries)
}

func TestSyncIndexForgetsIdleModels(t *testing.T) {
	x := newTestSyncIndex()
	x.add(0, "a", blocks(1), 0)
	x.add(0, "b", blocks(1, 2), 0)
	matchAll(x, 10*simtime.Minute, "a", blocks(1), []Pod{{}})
	x.stored(15*simtime.Minute, &BlockStored{Model: "b", Blocks: []uint64{7}, Prompt: longText("x", 16), BlockTokens: 4})
	require.Equal(t, 4, x.stats(20*simtime.Minute).Entries)
	require.Equal(t, 1, x.stats(21*simtime.Minute).Entries, "events do not keep a model")
	require.Equal(t, 0, x.stats(31*simtime.Minute).Entries)
	require.EqualValues(t, 4, x.stats(31*simtime.Minute).Expired)
}

// Symbolic blocks chain to the hashes of the whole prompt, and text blocks do, too.
func TestHashBlockChainsToAppendHashes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var p workload.Prompt
		for range rapid.IntRange(0, 5).Draw(t, "segments") {
			p = append(p, workload.Segment{
				ID:     rapid.Uint64().Draw(t, "id"),
				Tokens: rapid.IntRange(0, 40).Draw(t, "tokens"),
				Bytes:  rapid.IntRange(0, 160).Draw(t, "bytes"),
			})
		}
		text := Text(rapid.StringN(0, 200, -1).Draw(t, "text"))
		seed := rapid.Uint64().Draw(t, "seed")
		block := rapid.IntRange(1, 16).Draw(t, "block")
		u := rapid.SampledFrom([]workload.Unit{workload.Tokens, workload.Bytes}).Draw(t, "unit")
		for _, c := range []struct {
			Prompt
			BlockHasher
		}{{p, Symbolic(p)}, {text, text}} {
			parent := seed
			for i, want := range c.AppendHashes(nil, seed, block, u) {
				parent = c.HashBlock(seed, parent, i*block, block, u)
				require.Equal(t, want, parent)
			}
		}
	})
}

func TestKVEventsReachTheSyncBranchAlone(t *testing.T) {
	text := longText("sync", 256)
	for _, on := range []bool{false, true} {
		s := DefaultSettings()
		s.Prefix.KVEventSync = on
		s.UpstreamFixed = map[string]bool{FixSyncChain: true, FixCacheCleared: true}
		g := newTestGateway(t, "prefix-cache", s, 2)
		e := &BlockStored{Pod: 1, Blocks: []uint64{1, 2}, Prompt: text, BlockTokens: 32}
		g.BlockStored(0, e)
		c := mustRoute(t, g, 0, &Request{Prompt: text})
		if !on {
			require.Equal(t, SelectionFallback, c.Selection)
			continue
		}
		require.Equal(t, Choice{PodID: 1, PrefillID: 1, Decision: Decision{Pod: 1, MatchPercent: 100, Selection: SelectionMatch}}, c)
		require.Equal(t, Label{"using_kv_sync", "true"}, g.Counters()[0].Labels[1])
		g.BlockRemoved(0, &BlockRemoved{Pod: 1, Blocks: []uint64{1}})
		require.Equal(t, 1, g.IndexStats(0).Entries)
		g.AllBlocksCleared(0, 1)
		require.Equal(t, 0, g.IndexStats(0).Entries)
	}
}
