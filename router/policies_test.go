package router

import (
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/simtime"
)

// everyPolicy is each single policy and some lists of them.
func everyPolicy() []string {
	return append(Names(), "prefix-cache:2,least-request:1", "prefix-cache-preble,vtc-basic:3,session-affinity",
		"least-latency,least-kv-cache,throughput:5")
}

// play sends requests through a gateway while pods come and go, and returns what
// was chosen. Everything about it follows from the seed.
func play(t require.TestingT, policy string, s Settings, seed uint64, steps int) (log []string) {
	p, err := New(policy, s, Options{Profiles: []GPUProfile{quarterProfile("p0", 2, 10), quarterProfile("", 3, 6)}})
	require.NoError(t, err)
	g := NewGateway(p, rand.New(rand.NewPCG(seed, 1)))
	rng := rand.New(rand.NewPCG(seed, 2))
	addPod := func(id int) { g.AddPod(id, goldenPod(id), []string{RolePrefill, RoleDecode}[id%2], fmt.Sprint(id/2%2)) }
	for id := range 8 {
		addPod(id)
	}
	type flight struct {
		req *Request
		c   Choice
	}
	var inFlight []flight
	var now simtime.Time
	for n := range steps {
		now += simtime.Time(rng.IntN(int(40 * simtime.Second)))
		switch rng.IntN(10) {
		case 0:
			g.RemovePod(4 + rng.IntN(4))
		case 1:
			addPod(4 + rng.IntN(4))
		case 2:
			g.SetMetrics(rng.IntN(8), someMetrics(rng))
		case 3, 4:
			if len(inFlight) == 0 {
				break
			}
			i := rng.IntN(len(inFlight))
			f := inFlight[i]
			inFlight[i] = inFlight[len(inFlight)-1]
			inFlight = inFlight[:len(inFlight)-1]
			g.PrefillFinished(now, f.req, f.c)
			g.Finished(now, f.req, f.c, 1+rng.IntN(300))
			g.End(f.c.PodID)
		case 5:
			g.BlockStored(now, &BlockStored{Pod: rng.IntN(8), Blocks: []uint64{uint64(n), uint64(n) + 1}, Prompt: longText("x", 256), BlockTokens: 32})
		default:
			req := &Request{
				Prompt: longText(fmt.Sprint("family ", rng.IntN(5)), 200+rng.IntN(2000)),
				User:   []string{"", "u", "v"}[rng.IntN(3)], Session: []string{"", "s", "t"}[rng.IntN(3)], Arrived: now,
			}
			c, err := g.Route(now, req)
			require.NoError(t, err)
			require.NotEqual(t, notRoutable, g.index(c.PodID), "%s chose a pod that is not routable", policy)
			g.Begin(c.PodID)
			inFlight = append(inFlight, flight{req, c})
			log = append(log, fmt.Sprintf("%+v", c))
		}
	}
	for _, c := range g.Counters() {
		log = append(log, fmt.Sprint(c))
	}
	return append(log, fmt.Sprint(g.IndexStats(now)))
}

func someMetrics(rng *rand.Rand) Metrics {
	value := func() Value {
		if rng.IntN(4) == 0 {
			return Value{}
		}
		return Some(float64(rng.IntN(5)) / 4)
	}
	return Metrics{
		BusyTimeRatio: value(), KVCacheUsage: value(), CPUCacheUsage: value(), GPUCacheUsage: value(),
		Utilization: value(), PromptTokens: value(), OutputTokens: value(), QueueTime: value(),
		PrefillTime: value(), DecodeTime: value(), EngineRunning: value(), OutputRate: value(), DrainRate: value(),
	}
}

// The same seed gives the same choices, whatever the order of Go's maps.
func TestPoliciesAreDeterministic(t *testing.T) {
	for _, policy := range everyPolicy() {
		for _, sync := range []bool{false, true} {
			s := DefaultSettings()
			s.Prefix.KVEventSync = sync
			want := play(t, policy, s, 1, 400)
			for range 5 {
				require.Equal(t, want, play(t, policy, s, 1, 400), policy)
			}
			require.NotEqual(t, want, play(t, policy, s, 2, 400), policy)
		}
	}
}

// No policy fails or chooses a pod that is not there, under any seed and with any
// of the fixes.
func TestPoliciesAlwaysChooseARoutablePod(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := DefaultSettings()
		s.Prefix.KVEventSync = rapid.Bool().Draw(t, "sync")
		s.Prefix.BlockNumber = rapid.IntRange(1, 100).Draw(t, "capacity")
		s.UpstreamFixed = map[string]bool{}
		for _, f := range UpstreamFixes() {
			s.UpstreamFixed[f.Name] = rapid.Bool().Draw(t, f.Name)
		}
		play(t, rapid.SampledFrom(everyPolicy()).Draw(t, "policy"), s, rapid.Uint64().Draw(t, "seed"), 100)
	})
}

// Where the place in the list breaks ties, the shuffle makes every one of equal
// pods come up.
func TestOrderSensitivePoliciesSpreadTies(t *testing.T) {
	full := Metrics{
		BusyTimeRatio: Some(1), KVCacheUsage: Some(1), CPUCacheUsage: Some(1), GPUCacheUsage: Some(1), Utilization: Some(1),
		PromptTokens: Some(1), OutputTokens: Some(1), QueueTime: Some(1), PrefillTime: Some(1), DecodeTime: Some(1),
	}
	for _, policy := range []string{
		"least-busy-time", "least-kv-cache", "least-latency", "least-gpu-cache", "least-utilization", "throughput",
		"least-request", "random", "least-request,least-latency",
	} {
		g := newTestGateway(t, policy, DefaultSettings(), 5)
		for id := range 5 {
			g.SetMetrics(id, full)
		}
		g.SetMetrics(99, full)
		seen := map[int]int{}
		for range 1000 {
			seen[mustRoute(t, g, 0, &Request{}).PodID]++
		}
		for id := range 5 {
			require.InDelta(t, 200, seen[id], 60, "%s pod %d", policy, id)
		}
	}
}

// Without a metric nobody has a score, and any pod is taken; a pod without one is
// not taken beside a pod with one, however bad.
func TestMissingMetrics(t *testing.T) {
	for _, policy := range []string{"least-busy-time", "least-gpu-cache", "least-utilization"} {
		g := newTestGateway(t, policy, DefaultSettings(), 4)
		seen := map[int]bool{}
		for range 200 {
			seen[mustRoute(t, g, 0, &Request{}).PodID] = true
		}
		require.Len(t, seen, 4, policy)
		g.SetMetrics(2, Metrics{BusyTimeRatio: Some(0.99), GPUCacheUsage: Some(0.99), Utilization: Some(0.99)})
		for range 20 {
			require.Equal(t, 2, mustRoute(t, g, 0, &Request{}).PodID, policy)
		}
	}
}

func TestValue(t *testing.T) {
	v, ok := Some(0).Get()
	require.True(t, ok, "0 is not missing")
	require.Zero(t, v)
	_, ok = Value{}.Get()
	require.False(t, ok)
	require.Equal(t, 7.0, Value{}.Or(7))
}

// Two pods: the user's place is 0, so the first in the list is better by one.
func TestVTCInAList(t *testing.T) {
	p, err := New("vtc-basic,least-request", DefaultSettings(), Options{})
	require.NoError(t, err)
	m := p.(*multiStrategy)
	req := &Request{User: "u", Prompt: longText("a", 4000)}
	require.Equal(t, 0, route(t, m, 0, req, podList(2)))
	require.Equal(t, []float64{1, 0.5}, m.final)
	require.Equal(t, 4000.0, m.parts[0].Policy.(*vtcBasic).users["u"].total, "the choice is charged")
	route(t, m, 0, &Request{}, podList(2))
	require.Equal(t, []float64{0.5, 0.5}, m.final, "without a user vtc scores nobody")
}

func TestPrebleInAList(t *testing.T) {
	p, err := New("prefix-cache-preble,least-request", DefaultSettings(), Options{})
	require.NoError(t, err)
	m := p.(*multiStrategy)
	pods := podList(3)
	req := &Request{Prompt: longText("a", 256)}
	m.Remember(0, req, 1)
	require.Equal(t, 1, route(t, m, 0, req, pods))
	require.Equal(t, []float64{0.5, 1, 0.5}, m.final, "pods without the prefix have no score")
}
