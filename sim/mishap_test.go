package sim

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
	"fleetsim/simtime"
)

// mishaps draws a scenario in which much goes wrong: load of every kind, faults,
// autoscalers, admission, clients without patience.
func mishaps(t *rapid.T) *scenario.Scenario {
	one := func(label string, values ...string) string { return rapid.SampledFrom(values).Draw(t, label) }
	span := func(label string, ms ...int) string {
		return fmt.Sprintf("%q", fmt.Sprint(rapid.SampledFrom(ms).Draw(t, label))+"ms")
	}
	replicas := rapid.IntRange(1, 4).Draw(t, "replicas")
	gpus := rapid.SampledFrom([]int{0, 0, 1, 2}).Draw(t, "spare gpus")
	if gpus > 0 {
		gpus += replicas - 1
	}
	sets := []string{
		fmt.Sprintf("cluster.replicas=%d", replicas),
		fmt.Sprintf("cluster.gpus=%d", gpus),
		fmt.Sprintf("workload.requests=%d", rapid.IntRange(1, 60).Draw(t, "requests")),
		fmt.Sprintf("workload.in_flight_cap=%d", rapid.SampledFrom([]int{0, 5, 30}).Draw(t, "cap")),
		fmt.Sprintf("workload.output_tokens=%d", rapid.SampledFrom([]int{1, 20, 200}).Draw(t, "output")),
		fmt.Sprintf("workload.prompt.body_repeat=%d", rapid.SampledFrom([]int{1, 80, 300, 2100}).Draw(t, "repeat")),
		fmt.Sprintf("workload.prompt.families=%d", rapid.SampledFrom([]int{0, 3}).Draw(t, "families")),
		"workload.read_timeout=" + span("read timeout", 0, 300, 2000, 20000),
		"workload.cancel.fraction=" + one("cancelled", "0.0", "0.0", "0.4"), "workload.cancel.after=" + span("patience", 1, 30, 700),
		"workload.retry.max_attempts=" + one("attempts", "0", "3"), "workload.retry.back_off=" + span("back-off", 0, 100),
		"workload.retry.jitter=" + one("jitter", "0.0", "0.5"), "workload.retry.budget=" + one("budget", "0.0", "0.3"),
		"router.endpoint_delay=" + span("endpoint delay", 0, 400, 5000),
		"drain.pre_stop=" + span("preStop", 0, 500), "drain.shutdown_timeout=" + span("shutdown timeout", 0, 800, 60000),
		"drain.grace_period=" + span("grace", 0, 2000, 30000),
		"lifecycle.model_load={mean=" + span("load", 0, 300, 4000) + ", distribution=\"exponential\"}",
		"observe.snapshot_interval=" + span("snapshots", 7, 5000),
		one("pool", "engine.blocks=181", "engine.blocks=60", "engine={blocks=17, max_model_len=8000}"), "engine.async_scheduling=" + one("async", "true", "false"),
	}
	sets = append(sets, drawLoad(t)...)
	sets = append(sets, admissions(t)...)
	sets = append(sets, scalers(t, replicas)...)
	sets = append(sets, faults(t, replicas))
	if rapid.Bool().Draw(t, "rollout") {
		sets = append(sets, "rollout.at="+span("rollout at", 100, 3000))
	}
	sc, err := scenario.LoadWith("fixed1-wave", sets)
	require.NoError(t, err)
	if rapid.Bool().Draw(t, "closed loop") {
		sc.Workload.Arrivals = nil
		sc.Workload.ClosedLoop = closedLoop(rapid.IntRange(1, 12).Draw(t, "lanes"), "5s",
			rapid.SampledFrom([]string{"0s", "150ms"}).Draw(t, "think time"))
	}
	return sc
}

func drawLoad(t *rapid.T) []string {
	rate := rapid.SampledFrom([]int{1, 5, 50}).Draw(t, "rate")
	return []string{
		fmt.Sprintf("workload.arrivals.process=%q", rapid.SampledFrom([]string{"constant", "poisson"}).Draw(t, "process")),
		fmt.Sprintf(`workload.arrivals.stages=[{duration="4s", rate_per_second=%d}, {duration="6s", rate_per_second=%d}]`, rate, rapid.IntRange(0, 3).Draw(t, "second rate")),
	}
}

func admissions(t *rapid.T) []string {
	sets := []string{
		fmt.Sprintf("admission.quota=%d", rapid.SampledFrom([]int{0, 0, 1, 6}).Draw(t, "quota")),
		fmt.Sprintf("admission.proxies=%d", rapid.IntRange(1, 2).Draw(t, "proxies")),
		fmt.Sprintf("admission.queue_length=%d", rapid.SampledFrom([]int{0, 2, 20}).Draw(t, "queue")),
		fmt.Sprintf(`admission.queue_timeout="%dms"`, rapid.SampledFrom([]int{0, 300}).Draw(t, "queue timeout")),
		"admission.burst=2.0",
		fmt.Sprintf("admission.rate_per_second=%v", rapid.SampledFrom([]string{"0.0", "0.0", "3.0"}).Draw(t, "admission rate")),
	}
	if rapid.Bool().Draw(t, "tenants") {
		sets = append(sets, `workload.tenants=[{name="A", quota=2}, {name="B"}, {name="C", output_tokens=50}]`)
	}
	return sets
}

func scalers(t *rapid.T, replicas int) []string {
	strategy := rapid.SampledFrom([]string{"", "kpa", "apa", "hpa"}).Draw(t, "strategy")
	if strategy == "" {
		return nil
	}
	sets := []string{
		fmt.Sprintf("autoscale.strategy=%q", strategy),
		fmt.Sprintf("autoscale.max_replicas=%d", replicas+2), "autoscale.min_replicas=1",
		fmt.Sprintf("autoscale.metric=%q", rapid.SampledFrom([]string{"in_flight", "num_requests_running", "num_requests_waiting", "kv_cache_usage_perc"}).Draw(t, "metric")),
		"autoscale.target=" + rapid.SampledFrom([]string{"1.0", "4.0", "50.0"}).Draw(t, "target"),
		`autoscale.interval="700ms"`,
		fmt.Sprintf(`autoscale.scrape_interval="%dms"`, rapid.SampledFrom([]int{0, 300}).Draw(t, "scrape")),
		fmt.Sprintf(`autoscale.metric_delay="%dms"`, rapid.SampledFrom([]int{0, 900}).Draw(t, "delay")),
	}
	if rapid.Bool().Draw(t, "pre-scale") {
		sets = append(sets, fmt.Sprintf(`autoscale.pre_scale=[{at="900ms", replicas=%d}, {at="4s", replicas=1}]`, replicas+1))
	}
	return sets
}

func faults(t *rapid.T, replicas int) string {
	var list []string
	for range rapid.IntRange(0, 4).Draw(t, "faults") {
		kind := rapid.SampledFrom([]string{"delete", "crash", "node_loss", "slow"}).Draw(t, "kind")
		f := fmt.Sprintf(`kind=%q, replica="pod-%d", at="%dms"`, kind, rapid.IntRange(0, replicas-1).Draw(t, "victim"),
			rapid.SampledFrom([]int{0, 1, 250, 1000, 2500}).Draw(t, "at"))
		if kind == "slow" {
			f += ", factor=" + rapid.SampledFrom([]string{"0.5", "3.0"}).Draw(t, "factor")
		} else {
			f += fmt.Sprintf(", replace=%t", rapid.Bool().Draw(t, "replace"))
		}
		if d := rapid.SampledFrom([]int{0, 600}).Draw(t, "duration"); d > 0 && (kind == "slow" || kind == "crash") {
			f += fmt.Sprintf(`, duration="%dms"`, d)
		}
		list = append(list, "{"+f+"}")
	}
	return "faults=[" + strings.Join(list, ", ") + "]"
}

var mishapPolicies = []string{"random", "least-request", "prefix-cache", "least-kv-cache", "power-of-two", "prefix-cache-preble"}

// Whatever goes wrong, every planned arrival ends in exactly one of dropped,
// rejected, failed and success; counts never go below 0 and end at 0; and no
// more GPUs are in use than there are. The long run is
//
//	go test ./sim -run NothingIsLostInMishaps -rapid.checks=10000
func TestNothingIsLostInMishaps(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		setup := Setup{Scenario: mishaps(t), Profile: p, Policy: rapid.SampledFrom(mishapPolicies).Draw(t, "policy"), Seed: rapid.Uint64Range(0, 1<<20).Draw(t, "seed")}
		requests := recorded(&setup)
		r, err := newRun(setup)
		require.NoError(t, err)
		r.start()
		for last := simtime.Time(0); !r.over(); last = r.now {
			r.step()
			requireSound(t, r, last)
		}
		phase := r.finish()
		require.Equal(t, phase.Planned.Or(-1), phase.Dropped.Or(0)+phase.Rejected.Or(0)+phase.Failed.Or(0)+phase.Success.Or(0))
		require.Len(t, *requests, r.client.planned, "one record an arrival")
		requireQuiet(t, r)
	})
}

// requireSound checks what holds after every event.
func requireSound(t require.TestingT, r *run, last simtime.Time) {
	if r.now < last || r.client.inFlight < 0 || r.client.live < r.client.inFlight {
		require.Fail(t, "unsound", "at %v after %v: %d in flight of %d", r.now, last, r.client.inFlight, r.client.live)
	}
	counts := r.deployment.Counts()
	if limit := r.Scenario.Cluster.GPUs; limit > 0 && counts.GPUs > limit {
		require.Fail(t, "GPUs", "%d of %d", counts.GPUs, limit)
	}
	for _, rep := range r.replicas {
		if rep.active < 0 || rep.answers() && (rep.Gauges().Waiting < 0 || rep.Gauges().Running < 0) {
			require.Fail(t, "unsound replica", "%s: %d requests, %+v", rep.name, rep.active, rep.Gauges())
		}
	}
}

// requireQuiet checks that nothing is in flight anywhere.
func requireQuiet(t require.TestingT, r *run) {
	require.Zero(t, r.client.inFlight)
	require.Zero(t, r.client.live)
	for _, rep := range r.replicas {
		require.Zero(t, r.gateways.running(rep.id), rep.name)
		require.Zero(t, rep.active, rep.name)
	}
	if r.gate != nil {
		require.Empty(t, r.gate.waiting)
		for tenant := range max(len(r.Scenario.Workload.Tenants), 1) {
			require.Zero(t, r.gate.proxies.InFlight(tenant))
			require.Zero(t, r.gate.proxies.Waiting(tenant))
		}
	}
	for i, q := range r.client.free {
		require.False(t, slices.Contains(r.client.free[:i], q), "recycled twice")
	}
}

// Skipping and stepping give the same records and timelines through mishaps too.
func TestSkippingEqualsSteppingInMishaps(t *testing.T) {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	rapid.Check(t, func(t *rapid.T) {
		setup := Setup{Scenario: mishaps(t), Profile: p, Policy: rapid.SampledFrom(mishapPolicies).Draw(t, "policy"), Seed: rapid.Uint64Range(0, 1<<20).Draw(t, "seed")}
		stepped := setup
		stepped.Stepwise = true
		require.Equal(t, trace(t, stepped), trace(t, setup))
	})
}
