package router

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
	"fleetsim/workload"
)

// What a fleet policy answers is held to policies written down as the rules read,
// which look at every pod of the list.

// scanning is least-request and prefix-cache over a list of pods.
type scanning struct {
	prefix *PrefixSettings // nil: least-request
	index  *naiveIndex
}

func (p *scanning) Route(now simtime.Time, req *Request, pods []Pod, rng *rand.Rand) (Decision, error) {
	if p.prefix == nil {
		return Decision{Pod: draw(rng, appendLeastRunning(nil, pods))}, nil
	}
	hashes := req.Prompt.AppendHashes(nil, p.prefix.HashSeed, p.prefix.BlockSize, workload.Bytes)
	least, most := pods[0].Running, pods[0].Running
	for i := range pods {
		least, most = min(least, pods[i].Running), max(most, pods[i].Running)
	}
	d := Decision{Imbalanced: most-least > p.prefix.Imbalance}
	var candidates, best []int
	for i := range pods {
		if !d.Imbalanced || pods[i].Running == least {
			candidates = append(candidates, i)
		}
	}
	percents := unmatched(len(pods))
	p.index.match(now, req.Model, hashes, pods, candidates, percents)
	limit := gate(pods, float64(p.prefix.DeviationFactor))
	d.Selection = SelectionFallback
	for i := range pods {
		if percents[i] == noMatch {
			continue
		}
		if d.Selection == SelectionFallback {
			d.Selection = SelectionSkipped
		}
		if float64(pods[i].Running) <= limit {
			d.Selection = SelectionMatch
			best = append(best, i)
		}
	}
	better := func(i, j int) bool {
		return percents[i] > percents[j] || percents[i] == percents[j] && pods[i].Running < pods[j].Running
	}
	best = slices.DeleteFunc(slices.Clone(best), func(i int) bool {
		return slices.ContainsFunc(best, func(j int) bool { return better(j, i) })
	})
	if len(best) == 0 {
		best = appendLeastRunning(nil, pods)
	}
	d.Pod = draw(rng, best)
	d.MatchPercent = max(0, percents[d.Pod])
	p.index.add(now, req.Model, hashes, pods[d.Pod].ID)
	return d, nil
}

func (p *scanning) PodRemoved(pod int) {
	if p.index != nil {
		p.index.podRemoved(pod)
	}
}

// Pods come, go and come back at the end of the list, counts spread by one and by
// more, and both gateways choose the same with the same draws.
func TestFleetPoliciesAgainstScanning(t *testing.T) {
	numbers := []int{0, 1, 2, 3, 5, 62, 63, 64, 65, 130, 131, 400}
	rapid.Check(t, func(t *rapid.T) {
		s := DefaultSettings()
		s.Prefix.BlockSize = rapid.IntRange(1, 3).Draw(t, "block")
		s.Prefix.BlockNumber = rapid.IntRange(1, 80).Draw(t, "capacity")
		s.Prefix.Imbalance = rapid.IntRange(0, 8).Draw(t, "imbalance")
		s.Prefix.DeviationFactor = rapid.IntRange(1, 2).Draw(t, "factor")
		s.UpstreamFixed = map[string]bool{FixDeadPods: rapid.Bool().Draw(t, "dead"), FixLRUHeads: rapid.Bool().Draw(t, "heads")}
		policy, reference := Policy(&leastRequest{}), &scanning{}
		if rapid.Bool().Draw(t, "prefix") {
			policy = newPrefixCache(s)
			reference = &scanning{prefix: &s.Prefix, index: &naiveIndex{settings: s.Prefix, fixed: s.UpstreamFixed}}
		}
		got, want := NewGateway(policy, newRand()), NewGateway(reference, newRand())
		both := func(f func(g *Gateway)) { f(got); f(want) }
		for _, id := range rapid.Permutation(numbers).Draw(t, "pods")[:rapid.IntRange(2, len(numbers)).Draw(t, "number")] {
			both(func(g *Gateway) { g.AddPod(id, goldenPod(id), "", "") })
		}
		now := simtime.Time(0)
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			now += simtime.Time(rapid.IntRange(0, int(simtime.Second)).Draw(t, "dt"))
			id := rapid.SampledFrom(numbers).Draw(t, "pod")
			switch op := rapid.IntRange(0, 15).Draw(t, "op"); op {
			case 0:
				both(func(g *Gateway) { g.RemovePod(id) })
			case 1:
				both(func(g *Gateway) { g.AddPod(id, goldenPod(id), "", "") })
			case 2:
				others := rapid.IntRange(0, 9).Draw(t, "others")
				both(func(g *Gateway) { g.Share(id, others) })
			case 3, 4, 5:
				both(func(g *Gateway) { g.End(id) })
			case 6, 7:
				both(func(g *Gateway) { g.Begin(id) })
			default:
				req := &Request{Prompt: workload.Prompt{
					{ID: rapid.Uint64Range(1, 3).Draw(t, "family"), Bytes: rapid.IntRange(0, 12).Draw(t, "shared")},
					{ID: rapid.Uint64Range(4, 6).Draw(t, "question"), Bytes: rapid.IntRange(0, 6).Draw(t, "own")},
				}}
				c, err := got.Route(now, req)
				expected, expectedErr := want.Route(now, req)
				require.Equal(t, expectedErr, err)
				require.Equal(t, expected, c)
				if err == nil {
					both(func(g *Gateway) { g.Begin(c.PodID) })
				}
			}
			require.Equal(t, want.pods, got.pods)
			require.Equal(t, want.rng.Uint64(), got.rng.Uint64())
		}
	})
}

// A fleet's levels and sums are those of its pods' counts, however they came about.
func TestFleetAgainstCounting(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		pods := listOf(rapid.SliceOfN(rapid.IntRange(0, 9), 1, 150).Draw(t, "counts"))
		rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "order"), 1)).Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
		var f fleet
		f.reset(pods)
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			i := rapid.IntRange(0, len(pods)-1).Draw(t, "pod")
			n := pods[i].Running + rapid.SampledFrom([]int{-1, 1, -1, 1, 0, 7}).Draw(t, "by")
			f.count(i, max(0, n))
		}
		members := map[int][]int{}
		sum, squares := 0, 0
		for i := range pods {
			n := pods[i].Running
			members[n] = append(members[n], i)
			sum, squares = sum+n, squares+n*n
		}
		require.Equal(t, sum, f.sum)
		require.Equal(t, squares, f.squares)
		require.Len(t, f.levels, len(members))
		for i := range f.levels {
			l := &f.levels[i]
			require.True(t, i == 0 || f.levels[i-1].count < l.count)
			require.Equal(t, members[l.count], membersOf(&f.roster, f.set(l)))
			require.EqualValues(t, len(members[l.count]), l.size)
		}
		require.Equal(t, f.levels[len(f.levels)-1].count-f.levels[0].count, f.spread())
	})
}

// listOf is pods numbered from 0, with gaps of whole words, and their counts.
func listOf(counts []int) []Pod {
	var pods []Pod
	for i, n := range counts {
		pods = append(pods, Pod{ID: i + i/40*128, Running: n})
	}
	return pods
}

// The n-th of a set is drawn in the order of the list, whatever the numbers.
func TestRosterDraws(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfNDistinct(rapid.IntRange(0, 700), 1, 40, rapid.ID).Draw(t, "pods")
		if rapid.Bool().Draw(t, "sorted") {
			slices.Sort(ids)
		}
		var pods []Pod
		for _, id := range ids {
			pods = append(pods, Pod{ID: id})
		}
		var r roster
		r.enrol(pods)
		require.Equal(t, slices.IsSorted(ids), r.ordered)
		set := make(slotSet, len(r.words))
		for _, i := range rapid.SliceOfNDistinct(rapid.IntRange(0, len(ids)-1), 1, len(ids), rapid.ID).Draw(t, "set") {
			set.put(r.slots[i])
		}
		members := membersOf(&r, set)
		require.Equal(t, len(members), set.size())
		src := new(forced)
		for n, i := range members {
			src.force(n, len(members))
			require.Equal(t, i, r.draw(rand.New(src), set, set.size()))
		}
	})
}

// The gate's answer from the sums is that of the floating-point sum, which is
// looked at itself where the two could differ.
func TestGateAgainstTheSum(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.SampledFrom([]int{1, 2, 5, 40, 1000, 1 << 20, 1 << 31, 1 << 40}).Draw(t, "most")
		counts := rapid.SliceOfN(rapid.IntRange(0, most), 1, 60).Draw(t, "counts")
		for range rapid.IntRange(0, 40).Draw(t, "equal") {
			counts = append(counts, counts[0])
		}
		pods := listOf(counts)
		var f fleet
		f.reset(pods)
		for factor := -1; factor <= 3; factor++ {
			limit := gate(pods, float64(factor))
			for _, n := range counts {
				require.Equal(t, float64(n) > limit, f.beyondGate(n, float64(factor)), "%d, factor %d", n, factor)
			}
		}
	})
}

// Counts that lie at the gate exactly, such as 6 of 4, 5 and 6 with a factor of 1:
// the order in which floating-point numbers are added decides.
func TestGateAtTheBoundary(t *testing.T) {
	at := 0
	var try func(counts []int, size int)
	try = func(counts []int, size int) {
		if len(counts) < size {
			for n := counts[len(counts)-1]; n <= 6; n++ {
				try(append(counts, n), size)
			}
			return
		}
		highest := counts[size-1]
		for factor := 1; factor <= 2; factor++ {
			if !atGate(counts, highest, factor) {
				continue
			}
			at++
			for turn := range size {
				for _, base := range []int{0, 1, 10, 333} {
					turned := slices.Concat(counts[turn:], counts[:turn])
					for i := range turned {
						turned[i] += base
					}
					pods := listOf(turned)
					var f fleet
					f.reset(pods)
					want := float64(highest+base) > gate(pods, float64(factor))
					require.Equal(t, want, f.beyondGate(highest+base, float64(factor)), "%v", turned)
				}
			}
		}
	}
	for size := 2; size <= 9; size++ {
		for least := range 7 {
			try([]int{least}, size)
		}
	}
	require.Greater(t, at, 50, "hardly a count was at the gate")
}

// atGate reports whether n is the mean of the counts and factor deviations of their
// sample, in whole numbers, with the counts apart.
func atGate(counts []int, n, factor int) bool {
	size, sum, squares := len(counts), 0, 0
	for _, c := range counts {
		sum, squares = sum+c, squares+c*c
	}
	above, scatter := size*n-sum, size*squares-sum*sum
	return scatter > 0 && above >= 0 && above*above*(size-1) == factor*factor*size*scatter
}
