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

func newRand() *rand.Rand { return rand.New(rand.NewPCG(1, 2)) }

// newTestGateway is a gateway with n pods p00, p01, … numbered from 0.
func newTestGateway(t testing.TB, policy string, s Settings, n int) *Gateway {
	t.Helper()
	p, err := New(policy, s, Options{})
	require.NoError(t, err)
	g := NewGateway(p, newRand())
	for i := range n {
		g.AddPod(i, goldenPod(i), "", "")
	}
	return g
}

func mustRoute(t testing.TB, g *Gateway, now simtime.Time, req *Request) Choice {
	t.Helper()
	c, err := g.Route(now, req)
	require.NoError(t, err)
	return c
}

// longText is a text of n bytes that differs from others of another name in its
// first block.
func longText(name string, n int) Text {
	text := []byte(name)
	for len(text) < n {
		text = append(text, byte('a'+len(text)%23))
	}
	return Text(text[:n])
}

func TestRouteWithoutPod(t *testing.T) {
	g := newTestGateway(t, "random", DefaultSettings(), 0)
	_, err := g.Route(0, &Request{})
	require.ErrorIs(t, err, ErrNoPod)
}

func TestSinglePodBypassesPolicy(t *testing.T) {
	g := newTestGateway(t, "prefix-cache", DefaultSettings(), 1)
	req := &Request{Prompt: longText("a", 1024)}
	c := mustRoute(t, g, 0, req)
	require.Equal(t, Choice{PodID: 0, PrefillID: 0, Bypassed: true}, c)
	require.Empty(t, g.Counters())
	require.Zero(t, g.IndexStats(0).Entries)

	g.AddPod(1, goldenPod(1), "", "")
	c = mustRoute(t, g, 0, req)
	require.False(t, c.Bypassed)
	require.Equal(t, SelectionFallback, c.Selection, "the bypassed request taught the index nothing")
}

// In a pair the busier pod is at most 0.71 sample deviations above the mean, so
// the gate never refuses it, whatever the factor.
func TestTwoReplicaBoundaryNeverExcludesTheBusier(t *testing.T) {
	for factor := 1; factor <= 2; factor++ {
		for lead := 0; lead <= 16; lead++ {
			s := DefaultSettings()
			s.Prefix.DeviationFactor = factor
			g := newTestGateway(t, "prefix-cache", s, 2)
			req := &Request{Prompt: longText("hot", 1024)}
			g.Remember(0, req, 1)
			for range lead {
				g.Begin(1)
			}
			c := mustRoute(t, g, 0, req)
			require.Equal(t, 1, c.PodID, "factor %d lead %d", factor, lead)
			require.Equal(t, SelectionMatch, c.Selection)
			require.Equal(t, 100, c.MatchPercent)
		}
	}
}

// The least number of pods for which the busiest can be refused: 3 for a factor
// of 1 and 6 for a factor of 2.
func TestGateNeedsEnoughPods(t *testing.T) {
	for _, c := range []struct {
		factor, pods int
		want         string
	}{{1, 2, SelectionMatch}, {1, 3, SelectionSkipped}, {2, 5, SelectionMatch}, {2, 6, SelectionSkipped}} {
		s := DefaultSettings()
		s.Prefix.DeviationFactor = c.factor
		g := newTestGateway(t, "prefix-cache", s, c.pods)
		req := &Request{Prompt: longText("hot", 1024)}
		g.Remember(0, req, 0)
		for range 16 {
			g.Begin(0)
		}
		require.Equal(t, c.want, mustRoute(t, g, 0, req).Selection, "%d pods, factor %d", c.pods, c.factor)
	}
}

func TestImbalanceIsStrictlyGreater(t *testing.T) {
	for lead, want := range map[int]Choice{
		16: {PodID: 1, PrefillID: 1, Decision: Decision{Pod: 1, MatchPercent: 100, Selection: SelectionMatch}},
		17: {PodID: 0, PrefillID: 0, Decision: Decision{Pod: 0, Selection: SelectionFallback, Imbalanced: true}},
	} {
		g := newTestGateway(t, "prefix-cache", DefaultSettings(), 2)
		req := &Request{Prompt: longText("hot", 1024)}
		g.Remember(0, req, 1)
		for range lead {
			g.Begin(1)
		}
		require.Equal(t, want, mustRoute(t, g, 0, req), "lead %d", lead)
	}
}

func TestEmptyPromptFallsBack(t *testing.T) {
	g := newTestGateway(t, "prefix-cache", DefaultSettings(), 2)
	for _, p := range []Prompt{nil, Text(""), longText("short", 127)} {
		require.Equal(t, SelectionFallback, mustRoute(t, g, 0, &Request{Prompt: p}).Selection)
	}
	require.Zero(t, g.IndexStats(0).Entries)
}

func TestCountersHaveTheOriginalsNamesAndLabels(t *testing.T) {
	g := newTestGateway(t, "prefix-cache", DefaultSettings(), 2)
	a := &Request{Prompt: longText("a", 1024)}
	mustRoute(t, g, 0, a)
	mustRoute(t, g, 0, a)
	for range 17 {
		g.Begin(0)
	}
	mustRoute(t, g, 0, &Request{Prompt: longText("b", 1024), Model: "m"})
	sync := Label{"using_kv_sync", "false"}
	require.Equal(t, []Counter{
		{"aibrix_prefix_cache_load_imbalance_total", []Label{{"model", "m"}, sync}, 1},
		{"aibrix_prefix_cache_routing_decisions_total", []Label{{"match_percent_bucket", "0"}, {"model", "m"}, sync}, 1},
		{"aibrix_prefix_cache_routing_decisions_total", []Label{{"match_percent_bucket", "0"}, sync}, 1},
		{"aibrix_prefix_cache_routing_decisions_total", []Label{{"match_percent_bucket", "76-100"}, sync}, 1},
		{"aibrix_prefix_cache_routing_selection_total", []Label{{"model", "m"}, {"selection", SelectionFallback}, sync}, 1},
		{"aibrix_prefix_cache_routing_selection_total", []Label{{"selection", SelectionFallback}, sync}, 1},
		{"aibrix_prefix_cache_routing_selection_total", []Label{{"selection", SelectionMatch}, sync}, 1},
	}, g.Counters())
}

func TestBuckets(t *testing.T) {
	for percent, want := range map[int]string{
		0: "0", 1: "1-25", 25: "1-25", 26: "26-50", 50: "26-50", 51: "51-75", 75: "51-75", 76: "76-100", 100: "76-100",
	} {
		require.Equal(t, want, buckets[bucketOf(percent)], "%d", percent)
	}
}

func TestRemovedPodKeepsItsCount(t *testing.T) {
	g := newTestGateway(t, "least-request", DefaultSettings(), 3)
	g.Begin(1)
	g.Begin(1)
	g.RemovePod(1)
	g.RemovePod(1)
	require.Equal(t, 2, g.Pods())
	require.Equal(t, 2, g.Running(1))
	g.End(1)
	require.Equal(t, 1, g.Running(1))
	for range 50 {
		require.NotEqual(t, 1, mustRoute(t, g, 0, &Request{}).PodID)
	}
	g.AddPod(1, goldenPod(1), "", "")
	require.Equal(t, 1, g.pods[g.place[1]].Running)
	g.End(1)
	g.End(1)
	require.Zero(t, g.Running(1), "a count never goes below 0")
	require.Zero(t, g.Running(99))
}

func TestSharedCountLastsUntilTheNextLocalOne(t *testing.T) {
	g := newTestGateway(t, "least-request", DefaultSettings(), 2)
	g.Begin(0)
	g.Share(1, 3)
	require.Equal(t, 0, mustRoute(t, g, 0, &Request{}).PodID, "1 here against 3 elsewhere")
	g.Begin(1)
	g.Begin(0)
	require.Equal(t, 1, mustRoute(t, g, 0, &Request{}).PodID, "the local count has replaced the shared one")
	require.Equal(t, 1, g.Running(1))
}

// Eight arrivals at once on two pods: counted at once they split evenly; counted
// late they all see the same counts.
func TestChoiceToCountDelay(t *testing.T) {
	atOnce := newTestGateway(t, "least-request", DefaultSettings(), 2)
	for range 8 {
		atOnce.Begin(mustRoute(t, atOnce, 0, &Request{}).PodID)
	}
	require.Equal(t, []int{4, 4}, []int{atOnce.Running(0), atOnce.Running(1)})

	late := newTestGateway(t, "least-request", DefaultSettings(), 2)
	late.Begin(0)
	for range 8 {
		require.Equal(t, 1, mustRoute(t, late, 0, &Request{}).PodID)
	}
}

// The gateway's tables stay true under any sequence of changes and shuffles.
func TestGatewayTables(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := NewGateway(&vtcBasic{settings: DefaultSettings().VTC, users: map[string]*vtcUser{}}, newRand())
		running := map[int]int{}
		routable := map[int]bool{}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			id := rapid.IntRange(0, 9).Draw(t, "pod")
			switch rapid.IntRange(0, 4).Draw(t, "op") {
			case 0:
				g.AddPod(id, goldenPod(id), "", "")
				routable[id] = true
			case 1:
				g.RemovePod(id)
				delete(routable, id)
			case 2:
				g.Begin(id)
				running[id]++
			case 3:
				g.End(id)
				running[id] = max(0, running[id]-1)
			case 4:
				c, err := g.Route(0, &Request{User: "u"})
				if len(routable) == 0 {
					require.ErrorIs(t, err, ErrNoPod)
					break
				}
				require.NoError(t, err)
				require.True(t, routable[c.PodID])
			}
			require.Equal(t, len(routable), g.Pods())
			for id := range 10 {
				require.Equal(t, running[id], g.Running(id))
				i := slices.IndexFunc(g.pods, func(p Pod) bool { return p.ID == id })
				require.Equal(t, routable[id], i >= 0)
				if i >= 0 {
					require.Equal(t, i, g.place[id])
					require.Equal(t, running[id], g.pods[i].Running)
				}
			}
		}
	})
}

type brokenPolicy struct{ d Decision }

func (p brokenPolicy) Route(simtime.Time, *Request, []Pod, *rand.Rand) (Decision, error) {
	return p.d, nil
}

func TestGatewayRefusesAnImpossibleChoice(t *testing.T) {
	for _, d := range []Decision{{Pod: 2}, {Pod: -1}, {Disaggregated: true, Prefill: 2}} {
		g := NewGateway(brokenPolicy{d}, newRand())
		g.AddPod(0, "a", "", "")
		g.AddPod(1, "b", "", "")
		_, err := g.Route(0, &Request{})
		require.Error(t, err, "%+v", d)
	}
}

// symbolicPrompt is like the routing study's: 29,000 bytes in three segments.
func symbolicPrompt(family, question uint64) workload.Prompt {
	return workload.Prompt{
		{ID: 1000 + family, Tokens: 180, Bytes: 256},
		{ID: 1, Tokens: 4800, Bytes: 28_700},
		{ID: 2000 + question, Tokens: 12, Bytes: 44},
	}
}

func TestRoutingDoesNotAllocate(t *testing.T) {
	var prompts []Prompt
	for f := range uint64(8) {
		prompts = append(prompts, symbolicPrompt(f, 7))
	}
	for _, policy := range []string{"random", "least-request", "prefix-cache"} {
		g := newTestGateway(t, policy, DefaultSettings(), 64)
		req := &Request{}
		n := 0
		allocs := testing.AllocsPerRun(200, func() {
			req.Prompt = prompts[n%len(prompts)]
			n++
			c, _ := g.Route(simtime.Time(n)*simtime.Second, req)
			g.Begin(c.PodID)
			if n%3 != 0 {
				g.End(c.PodID)
			}
		})
		require.LessOrEqual(t, allocs, 0.0, policy)
	}
}
