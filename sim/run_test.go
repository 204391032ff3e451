package sim

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// even is a profile whose every step takes 10 ms, with 1 ms from the client to
// the engine and 2 ms back.
func even(t require.TestingT) *model.Profile {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	p.Cost = model.CostModel{Base: 10 * simtime.Millisecond}
	p.RequestOverhead, p.PerPromptToken, p.ResponseOverhead = simtime.Millisecond, 0, 2*simtime.Millisecond
	return p
}

// load is hot90 with the given changes.
func load(t require.TestingT, sets ...string) *scenario.Scenario {
	sc, err := scenario.LoadWith("hot90", sets)
	require.NoError(t, err)
	return sc
}

// simulate runs the scenario and returns its phase and request records.
func simulate(t require.TestingT, sc *scenario.Scenario, p *model.Profile, policy string, seed uint64) (*record.Phase, []record.Request) {
	var requests []record.Request
	phase, err := Run(Setup{Scenario: sc, Profile: p, Policy: policy, Seed: seed,
		Each: func(r *record.Request) { requests = append(requests, *r) }})
	require.NoError(t, err)
	return phase, requests
}

// recorded has the setup's request records kept.
func recorded(s *Setup) *[]record.Request {
	requests := new([]record.Request)
	s.Each = func(r *record.Request) { *requests = append(*requests, *r) }
	return requests
}

func value(t require.TestingT, f record.Float) float64 {
	v, ok := f.Get()
	require.True(t, ok, "absent")
	return v
}

// A lone cold prompt takes two prefill steps; its first token comes with the
// second, and two more tokens a step each.
func TestLoneRequest(t *testing.T) {
	sc := load(t, "workload.requests=1", "workload.output_tokens=3", "start.engine_cache=cold")
	phase, requests := simulate(t, sc, even(t), "random", 1)
	r := requests[0]
	require.InDelta(t, 0.023, value(t, r.TTFT), 1e-12)
	require.InDelta(t, 0.043, value(t, r.E2E), 1e-12)
	require.InDelta(t, 0.010, value(t, r.TPOT), 1e-12)
	require.Equal(t, record.Some(0), r.CachedTokens)
	require.Equal(t, record.Some(4), phase.Steps, "two prefill and two decode steps")
}

// With two steps in flight, an arrival during a step is first computed two
// steps later: sent at 14 ms, it reaches the engine at 15 ms, is scheduled when
// the step ends at 21 ms, and waits for the one that begins then.
func TestArrivalDuringAStep(t *testing.T) {
	sc := load(t, "workload.requests=2", "workload.output_tokens=8", "cluster.replicas=1", `cluster.names=["L20-A"]`,
		"start.engine_cache=cold", "start.router_index=cold", "start.owners=[]", "start.spare={}",
		"workload.prompt.families=0", "workload.prompt.hot_fraction=0", "workload.prompt.body_repeat=10",
		"workload.arrivals.rate_per_second=71.42857142857143")
	_, requests := simulate(t, sc, even(t), "random", 1)
	slices.SortFunc(requests, func(a, b record.Request) int { return a.Index.Or(0) - b.Index.Or(0) })
	require.InDelta(t, 0.014, value(t, requests[1].Started), 1e-12)
	require.InDelta(t, 0.006, value(t, requests[1].QueueSeconds), 1e-12)
	require.InDelta(t, 0.041+0.002-0.014, value(t, requests[1].TTFT), 1e-12)
}

// What takes longer than the clock reaches is said, not computed wrongly.
func TestHorizon(t *testing.T) {
	p := even(t)
	p.Cost.PerDecodeContext = 50 * simtime.Nanosecond
	long := []string{"workload.requests=1", "engine.max_model_len=100000000", "engine.blocks=70000"}
	// The n-1 steps of n tokens after a prompt of c: (n-1)·10 ms + 50 ns · Σ(c+1 … c+n-1).
	sc := load(t, append(long, "workload.output_tokens=30000000")...)
	_, requests := simulate(t, sc, p, "random", 1)
	n, c := 3e7, float64(requests[0].InputTokens.Or(0))
	require.InEpsilon(t, (n-1)*0.01+50e-9*((n-1)*c+n*(n-1)/2), value(t, requests[0].E2E)-value(t, requests[0].TTFT), 1e-12)
	for _, sets := range [][]string{
		append(long, "workload.output_tokens=66000000"),
		append(long, "workload.output_tokens=90000000"),
		{`faults=[{ kind = "slow", at = "0s", replica = "L20-A", factor = 1e6 }, { kind = "slow", at = "0s", replica = "L20-B", factor = 1e6 }]`, "workload.in_flight_cap=0", "workload.requests=5000"},
	} {
		_, err := Run(Setup{Scenario: load(t, sets...), Profile: p, Policy: "random", Seed: 1})
		require.ErrorIs(t, err, errHorizon, "%v", sets)
		require.ErrorContains(t, err, "hot90 under random, seed 1: ")
	}
	_, err := Limits(p, load(t, "engine.max_num_batched_tokens=10000000", "engine.max_model_len=10000000", "engine.blocks=7000"))
	require.NoError(t, err)
	p.Cost.PerPrefillTokenContext = 5_000_000 // 5 ns
	_, err = Limits(p, load(t, "engine.max_num_batched_tokens=10000000", "engine.max_model_len=10000000", "engine.blocks=7000"))
	require.ErrorContains(t, err, "could take 5e+05 s")
}

func TestPromptOverTheLimit(t *testing.T) {
	sc := load(t, "engine.max_model_len=5100", "workload.requests=4")
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, record.Some(4), phase.Failed)
	require.Equal(t, record.Some(0), phase.Steps)
	require.False(t, phase.TTFT.P50.Valid())
	for _, r := range requests {
		require.Equal(t, record.Some(400), r.HTTPStatus)
		require.Equal(t, record.Error, r.Result)
		require.Equal(t, "prompt_too_long", r.ErrorCategory)
		require.InDelta(t, 0.003, value(t, r.E2E), 1e-12)
	}
}

func TestOneOutputToken(t *testing.T) {
	phase, requests := simulate(t, load(t, "workload.output_tokens=1"), even(t), "least-request", 1)
	require.Equal(t, record.Some(96), phase.Good)
	require.False(t, phase.TPOT.P50.Valid())
	require.True(t, phase.TTFT.P50.Valid())
	require.False(t, requests[0].TPOT.Valid())
}

func TestNoRequests(t *testing.T) {
	sc := load(t)
	sc.Workload.Requests, sc.Workload.Arrivals.Rate = 0, 0
	phase, requests := simulate(t, sc, even(t), "prefix-cache", 1)
	require.Empty(t, requests)
	require.Equal(t, record.Some(0), phase.Planned)
	require.False(t, phase.CacheHitRatio.Valid())
	_, err := json.Marshal(phase)
	require.NoError(t, err)
}

// At the cap an arrival is dropped, never sent.
func TestInFlightCap(t *testing.T) {
	sc := load(t, "workload.in_flight_cap=2", "workload.requests=5", "workload.arrivals.rate_per_second=1000")
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []record.Int{record.Some(5), record.Some(2), record.Some(3)},
		[]record.Int{phase.Planned, phase.Requests, phase.Dropped})
}

// A closed loop of C lanes has C requests in flight until its time is over.
func TestClosedLoop(t *testing.T) {
	sc := load(t, "workload.output_tokens=10")
	sc.Workload.Arrivals, sc.Workload.Requests = nil, 0
	sc.Workload.ClosedLoop = &scenario.ClosedLoop{Concurrency: 3, Duration: scenario.Duration{Time: simtime.Second}}
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	starts := 0
	for _, r := range requests {
		require.Less(t, value(t, r.Started), 1.0)
		if value(t, r.Started) == 0 {
			starts++
		}
	}
	require.Equal(t, 3, starts)
	require.Equal(t, phase.Requests, phase.Success)
	require.Greater(t, phase.Requests.Or(0), 15)
}

// Equal setups give equal bytes, whatever runs beside them.
func TestDeterminism(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	var setups []Setup
	for _, policy := range []string{"random", "least-request", "prefix-cache"} {
		for seed := range uint64(4) {
			setups = append(setups, Setup{Scenario: load(t), Profile: p, Policy: policy, Seed: seed})
		}
	}
	outputs := map[string]bool{}
	for _, procs := range []int{1, 2, 2} {
		old := runtime.GOMAXPROCS(procs)
		phases, err := RunAll(context.Background(), setups, 0, nil)
		runtime.GOMAXPROCS(old)
		require.NoError(t, err)
		out, err := json.Marshal(phases)
		require.NoError(t, err)
		outputs[string(out)] = true
	}
	require.Len(t, outputs, 1)
}

// Whatever the load, every planned arrival ends in exactly one of dropped,
// rejected, failed and success; times are in order; nothing stays in flight;
// and a replica admits requests in the order in which they came.
func TestNothingIsLost(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		sc := load(t,
			fmt.Sprintf("workload.requests=%d", rapid.IntRange(1, 80).Draw(t, "requests")),
			fmt.Sprintf("workload.arrivals.rate_per_second=%d", rapid.IntRange(1, 50).Draw(t, "rate")),
			fmt.Sprintf("workload.arrivals.process=%q", rapid.SampledFrom([]string{"constant", "poisson"}).Draw(t, "process")),
			fmt.Sprintf("workload.in_flight_cap=%d", rapid.IntRange(0, 30).Draw(t, "cap")),
			fmt.Sprintf("workload.output_tokens=%d", rapid.IntRange(1, 60).Draw(t, "output")),
			fmt.Sprintf("workload.prompt.body_repeat=%d", rapid.SampledFrom([]int{1, 80, 300, 1700, 2100}).Draw(t, "repeat")),
			fmt.Sprintf("engine.blocks=%d", rapid.SampledFrom([]int{60, 181}).Draw(t, "blocks")),
			"start.spare={}",
		)
		policy := rapid.SampledFrom([]string{"random", "least-request", "prefix-cache"}).Draw(t, "policy")
		setup := Setup{Scenario: sc, Profile: p, Policy: policy, Seed: rapid.Uint64().Draw(t, "seed")}
		requests := recorded(&setup)
		r, err := newRun(setup)
		require.NoError(t, err)
		r.start()
		last := simtime.Time(0)
		for !r.over() {
			r.step()
			require.GreaterOrEqual(t, r.now, last, "the clock runs forward")
			last = r.now
		}
		phase := r.finish()
		require.Equal(t, phase.Planned.Or(-1), phase.Dropped.Or(0)+phase.Rejected.Or(0)+phase.Failed.Or(0)+phase.Success.Or(0))
		require.Equal(t, sc.Workload.Requests, phase.Planned.Or(-1))
		require.Zero(t, r.client.inFlight)
		for _, rep := range r.replicas {
			require.Zero(t, r.gateways.running(rep.id))
			require.Zero(t, rep.Gauges().UsedBlocks)
			requireFIFO(t, *requests, rep, p)
		}
	})
}

// requireFIFO checks that requests were first scheduled in the order in which
// they reached the replica.
func requireFIFO(t require.TestingT, requests []record.Request, rep *replica, p *model.Profile) {
	type visit struct{ reached, scheduled float64 }
	var visits []visit
	for i := range requests {
		q := &requests[i]
		if q.Replica == rep.name && q.QueueSeconds.Valid() {
			reached := value(t, q.Started) + p.RequestDelay(q.InputTokens.Or(0)).Seconds()
			visits = append(visits, visit{reached, reached + value(t, q.QueueSeconds)})
		}
	}
	slices.SortFunc(visits, func(a, b visit) int { return cmp.Compare(a.reached, b.reached) })
	for i := 1; i < len(visits); i++ {
		require.GreaterOrEqual(t, visits[i].scheduled, visits[i-1].scheduled-1e-9)
	}
}

// A run without a single arrival says why it is empty.
func TestNothingArrives(t *testing.T) {
	const nothing = "nothing arrived: the rates are 0 all along, or nothing of the trace is selected"
	stages := func(rates string) *scenario.Scenario {
		return load(t, "workload.requests=0", "workload.arrivals={process=\"constant\", stages=["+rates+"]}")
	}
	p, _ := simulate(t, stages(`{duration="10s", rate_per_second=0}, {duration="5s", rate_per_second=0}`), even(t), "random", 1)
	require.Zero(t, p.Planned.Or(-1))
	require.Contains(t, p.Notes, nothing)
	p, _ = simulate(t, stages(`{duration="10s", rate_per_second=0}, {duration="5s", rate_per_second=1}`), even(t), "random", 1)
	require.NotZero(t, p.Planned.Or(-1))
	require.NotContains(t, p.Notes, nothing)
}
