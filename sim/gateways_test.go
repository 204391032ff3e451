package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/router"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// A look is what a policy was shown.
type look struct {
	at   simtime.Time
	pods []router.Pod // by ID
}

// spy takes the pod with the lowest count, the first of equals by ID, and notes
// what it was shown.
type spy struct{ looks []look }

// spies are those of all runs, the latest last. Runs that use them are not
// parallel.
var spies []*spy

func init() {
	router.Register("spy", func(router.Settings, router.Options) (router.Policy, error) {
		s := &spy{}
		spies = append(spies, s)
		return s, nil
	})
}

func (s *spy) Route(now simtime.Time, _ *router.Request, pods []router.Pod, _ *rand.Rand) (router.Decision, error) {
	shown := slices.Clone(pods)
	slices.SortFunc(shown, func(a, b router.Pod) int { return a.ID - b.ID })
	s.looks = append(s.looks, look{now, shown})
	best := 0
	for i := range pods {
		if pods[i].Running < pods[best].Running || pods[i].Running == pods[best].Running && pods[i].ID < pods[best].ID {
			best = i
		}
	}
	return router.Decision{Pod: best}, nil
}

// spied runs the scenario with the spy and returns what the run's spies saw, one
// for each gateway.
func spied(t require.TestingT, s Setup) (*record.Phase, []*spy) {
	spies = nil
	s.Policy = "spy"
	phase, err := Run(s)
	require.NoError(t, err)
	return phase, spies
}

// plain is a profile whose every step takes 10 ms and whose overheads are 1 ms
// to the engine and 2 ms back.
func plain(t require.TestingT) *model.Profile {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	return &model.Profile{
		Name: p.Name, Limits: p.Limits, Cost: model.CostModel{Base: 10 * simtime.Millisecond},
		RequestOverhead: simtime.Millisecond, ResponseOverhead: 2 * simtime.Millisecond,
	}
}

// burst is a closed loop of n requests that are all sent at 0, on two replicas
// with cold caches. The prompts are unique and take one step.
func burst(n int, sets ...string) []string {
	return append([]string{
		fmt.Sprintf("workload.requests=%d", n), fmt.Sprintf("workload.closed_loop.concurrency=%d", n),
		"workload.prompt.families=0", "workload.prompt.hot_fraction=0", "workload.prompt.body_repeat=10",
		"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}",
		"workload.in_flight_cap=0",
	}, sets...)
}

// twoReplicas is a scenario without a load, on the two replicas that hot90 has.
const twoReplicas = `
[cluster]
replicas = 2
names = ["L20-A", "L20-B"]
`

// onTwo is a scenario on two replicas, whose load the changes give it.
func onTwo(t require.TestingT, sets ...string) *scenario.Scenario {
	sc, err := scenario.ParseWith("two.toml", []byte(twoReplicas), sets)
	require.NoError(t, err)
	return sc
}

func requestsOf(p *record.Phase) []int {
	var n []int
	for _, rep := range p.Replicas {
		n = append(n, rep.Requests.Or(-1))
	}
	return n
}

// Field case F45: 8 arrivals at one time on 2 replicas. Counted at once they are
// spread 4 and 4; counted 1 ms after the choice, each choice finds both pods
// idle, and a policy that takes the first of equals sends all 8 to one.
func TestChoiceToCountDelay(t *testing.T) {
	for delay, want := range map[string][]int{"0s": {4, 4}, "1ms": {8, 0}} {
		sc := onTwo(t, burst(8, `router.choice_to_count_delay="`+delay+`"`)...)
		phase, _ := spied(t, Setup{Scenario: sc, Profile: plain(t)})
		require.Equal(t, want, requestsOf(phase), delay)
	}
}

// AIBrix draws among equals, so with least-request the counts need not be equal:
// when a pod is one ahead, all 8 go to the other, while 5 would have been enough
// to make it even.
func TestChoiceToCountDelayWithLeastRequest(t *testing.T) {
	for delay, want := range map[string]int{"0s": 1, "1ms": 0} {
		sc := onTwo(t, burst(8, `router.choice_to_count_delay="`+delay+`"`)...)
		r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "least-request"})
		require.NoError(t, err)
		r.gateways.processes[0].Begin(1) // somebody else's request
		phase, err := r.simulate(context.Background())
		require.NoError(t, err)
		if want == 0 {
			require.Equal(t, []int{8, 0}, requestsOf(phase))
		} else {
			require.GreaterOrEqual(t, requestsOf(phase)[1], 3)
		}
		r.gateways.processes[0].End(1)
		require.Zero(t, r.gateways.running(0))
	}
}

// The delay comes before the request is sent on, and so do routing latency and
// the choice at its end: the answer is later by both, and the choice by the
// latency.
func TestRoutingLatency(t *testing.T) {
	sc := onTwo(t, burst(1, "router.choice_to_count_delay=3ms", "router.routing_latency=4ms", "workload.output_tokens=2")...)
	var requests []record.Request
	_, saw := spied(t, Setup{Scenario: sc, Profile: plain(t), Each: func(r *record.Request) { requests = append(requests, *r) }})
	require.InDelta(t, 0.001+0.004+0.003+0.010+0.002, value(t, requests[0].TTFT), 1e-12)
	require.Equal(t, 5*simtime.Millisecond, saw[0].looks[0].at)
}

// A client that gives up before its request is counted leaves nothing behind.
func TestCancelBeforeTheCount(t *testing.T) {
	for _, policy := range []string{"least-request", "power-of-two", "pd"} {
		sc := onTwo(t, burst(4, "router.choice_to_count_delay=10s", "workload.cancel.fraction=1", "workload.cancel.after=1s",
			"cluster.pd.prefill=1")...)
		r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: policy})
		require.NoError(t, err)
		phase, err := r.simulate(context.Background())
		require.NoError(t, err)
		require.Equal(t, 4, phase.Failed.Or(-1))
		require.Zero(t, r.gateways.running(0)+r.gateways.running(1))
	}
}

// Each gateway counts for itself: with two of them, 8 arrivals are not spread 4
// and 4 but so that each gateway's own share is, the odd one on the first pod.
func TestGatewaysDoNotShareCounts(t *testing.T) {
	odd := 0
	for seed := range uint64(20) {
		sc := onTwo(t, burst(8, "router.gateways=2")...)
		phase, saw := spied(t, Setup{Scenario: sc, Profile: plain(t), Seed: seed})
		require.Len(t, saw, 2)
		a, b := len(saw[0].looks), len(saw[1].looks)
		require.Equal(t, 8, a+b)
		require.Equal(t, []int{(a+1)/2 + (b+1)/2, a/2 + b/2}, requestsOf(phase))
		require.JSONEq(t, fmt.Sprintf("[%d,%d]", a, b), string(phase.Other["gateway_requests"]))
		odd += a % 2
	}
	require.NotZero(t, odd, "the draw is even every time")
}

// Counters are summed over the gateways.
func TestCountersOfSeveralGateways(t *testing.T) {
	sc := onTwo(t, burst(20, "router.gateways=3")...)
	phase, err := Run(Setup{Scenario: sc, Profile: plain(t), Policy: "prefix-cache"})
	require.NoError(t, err)
	sums := map[string]float64{}
	for _, c := range phase.RoutingCounterDeltas {
		sums[c.Name] += c.Delta
	}
	require.Equal(t, map[string]float64{
		"aibrix_prefix_cache_routing_decisions_total": 20, "aibrix_prefix_cache_routing_selection_total": 20,
	}, sums)
}

// Two gateways with state sync, refreshing every 50 ms from a snapshot of every
// 100 ms, and one pod's count as the first gateway's policy sees it.
func TestSharedCounts(t *testing.T) {
	sc := onTwo(t, burst(1, "router.gateways=2", "router.state_sync=true")...)
	spies = nil
	g, err := newGateways(Setup{Scenario: sc, Policy: "spy"})
	require.NoError(t, err)
	g.addPod(0, 0, "a", "", "")
	g.addPod(0, 1, "b", "", "")
	own, other := g.processes[0], g.processes[1]
	ms := func(n int) simtime.Time { return simtime.Time(n) * simtime.Millisecond }
	request := func(p *gateway) *request {
		return &request{progress: progress{routing: routing{gateway: p, chosen: true}}}
	}
	seen := func(at int) int {
		g.share(ms(at), own)
		_, err := own.Route(ms(at), &router.Request{})
		require.NoError(t, err)
		looks := spies[0].looks
		require.Zero(t, looks[len(looks)-1].pods[1].Running, "nobody is at the other pod")
		return looks[len(looks)-1].pods[0].Running
	}

	first, second := request(other), request(other)
	g.begin(ms(10), first)
	require.Equal(t, 0, seen(60), "the refresh at 50 has the snapshot of 0")
	require.Equal(t, 0, seen(100), "what happens at the time of a refresh does not see it")
	require.Equal(t, 1, seen(101))
	g.begin(ms(101), second)
	require.Equal(t, 1, seen(199), "the refresh at 150 has the snapshot of 100")
	mine := request(own)
	g.begin(ms(180), mine)
	require.Equal(t, 1, seen(190), "its own count alone")
	require.Equal(t, 3, seen(201), "its own and the two of 200")
	g.ended(ms(210), first)
	require.Equal(t, 3, seen(300))
	require.Equal(t, 2, seen(301))
	g.ended(ms(310), mine)
	require.Equal(t, 0, seen(349))
	require.Equal(t, 1, seen(351))
}

// Without state sync nothing is shared, whatever the time.
func TestCountsAreNotSharedWithoutStateSync(t *testing.T) {
	sc := onTwo(t, burst(1, "router.gateways=2")...)
	g, err := newGateways(Setup{Scenario: sc, Policy: "spy"})
	require.NoError(t, err)
	require.False(t, g.shares)
	sc = onTwo(t, burst(1, "router.gateways=2", "router.env.AIBRIX_STATESYNC_ENABLED=true")...)
	g, err = newGateways(Setup{Scenario: sc, Policy: "spy"})
	require.NoError(t, err)
	require.True(t, g.shares)
}

func TestHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const keep = 50
		var h history
		var all []change
		now := simtime.Time(0)
		for range rapid.IntRange(0, 60).Draw(t, "changes") {
			now += simtime.Time(rapid.IntRange(0, 20).Draw(t, "pause"))
			n := rapid.IntRange(0, 9).Draw(t, "n")
			h.add(now, n, keep)
			all = append(all, change{now, n})
			for at := max(now-keep, 0); at <= now+1; at++ {
				want := 0
				for _, c := range all {
					if c.at <= at {
						want = c.to
					}
				}
				require.Equal(t, want, h.at(at))
			}
			require.Equal(t, n, h.last())
			require.Equal(t, now, h.changed())
		}
	})
}

// Field case F44: 90% of the requests are of one family, on 4 replicas. Prefix
// routing lets a queue of over 16 grow at its pod before another may take any, and
// requests wait beyond the SLO; least-request does not. A lower imbalance
// threshold helps.
func TestHotFamilySkew(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	run := func(policy, threshold string) (skew, good int) {
		sc := load(t, "cluster.replicas=4", "cluster.names=[]", "start.owners=[]", "start.spare={}", "workload.requests=192",
			"workload.arrivals.rate_per_second=3.2", "router.env.AIBRIX_PREFIX_CACHE_POD_RUNNING_REQUEST_IMBALANCE_ABS_COUNT="+threshold)
		phase, err := Run(Setup{Scenario: sc, Profile: p, Policy: policy, Seed: 1})
		require.NoError(t, err)
		n := requestsOf(phase)
		return slices.Max(n) - slices.Min(n), phase.Good.Or(0)
	}
	even, served := run("least-request", "16")
	require.Less(t, even, 20, "about 48 each")
	skew, good := run("prefix-cache", "16")
	require.Greater(t, skew, 2*even)
	require.Less(t, good, served-20)
	_, eager := run("prefix-cache", "2")
	require.Greater(t, eager, good)
}

// The index that the record describes is that of all gateways, and what it
// dropped is of the phase. 40 unique prompts have 12 blocks of 128 bytes each.
func TestRouterIndexInTheRecord(t *testing.T) {
	index := func(sets ...string) string {
		sc := onTwo(t, burst(40, sets...)...)
		phase, err := Run(Setup{Scenario: sc, Profile: plain(t), Policy: "prefix-cache"})
		require.NoError(t, err)
		return string(phase.Other["router_index"])
	}
	require.JSONEq(t, fmt.Sprintf(`{"entries":%d,"bytes":%d,"evicted":0,"expired":0}`, 40*10, 40*10*740), index())
	require.JSONEq(t, fmt.Sprintf(`{"entries":%d,"bytes":%d,"evicted":%d,"expired":0}`, 100, 100*740, 40*10-100),
		index("router.env.AIBRIX_PREFIX_CACHE_BLOCK_NUMBER=100"))
	sc := onTwo(t, burst(4)...)
	phase, err := Run(Setup{Scenario: sc, Profile: plain(t), Policy: "least-request"})
	require.NoError(t, err)
	require.NotContains(t, phase.Other, "router_index")
}

// What a policy cannot route is refused with the reason.
func TestRoutingErrors(t *testing.T) {
	sc := onTwo(t, burst(2)...)
	for policy, want := range map[string]string{"pd": errRouting} {
		var requests []record.Request
		_, err := Run(Setup{Scenario: sc, Profile: plain(t), Policy: policy,
			Each: func(r *record.Request) { requests = append(requests, *r) }})
		require.NoError(t, err)
		require.Len(t, requests, 2)
		require.Equal(t, record.Some(503), requests[0].HTTPStatus)
		require.Equal(t, want, requests[0].ErrorCategory)
	}
}

// Where answers cost no time, a lane whose requests are refused would go round for
// ever: that is said. Time to think, an end by number or any overhead prevents it.
func TestLaneThatSpins(t *testing.T) {
	run := func(overhead simtime.Time, sets ...string) (*record.Phase, error) {
		p := plain(t)
		p.RequestOverhead, p.ResponseOverhead = 0, overhead
		sc := onTwo(t, append(burst(1, "workload.requests=0", "workload.closed_loop.duration=10ms", "engine.max_model_len=100"), sets...)...)
		return Run(Setup{Scenario: sc, Profile: p, Policy: "random"})
	}
	_, err := run(0)
	require.ErrorContains(t, err, "workload.closed_loop: a request ended at the very instant")
	for _, c := range []struct {
		overhead simtime.Time
		set      string
		want     int
	}{
		{0, "workload.closed_loop.think_time=1ms", 10},
		{0, "workload.requests=7", 7},
		{simtime.Millisecond, "workload.closed_loop.think_time=0s", 10},
	} {
		p, err := run(c.overhead, c.set)
		require.NoError(t, err, c.set)
		require.Equal(t, c.want, p.Errors.Or(0), c.set)
	}
}
