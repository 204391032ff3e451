package sim

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
)

// everyPolicy is one of each kind: what reads counts, an index, metrics, events,
// users, roles and profiles.
var everyPolicy = []string{
	"random", "least-request", "prefix-cache", "prefix-cache-preble", "least-kv-cache", "least-gpu-cache", "least-utilization",
	"least-busy-time", "least-latency", "throughput", "power-of-two", "session-affinity", "vtc-basic",
	"slo", "slo-pack-load", "slo-least-load", "slo-least-load-pulling", "pd", "prefix-cache:2,least-kv-cache:1,vtc-basic",
}

// aGateway draws settings of the routing layer and a load, on 4 replicas.
func aGateway(t *rapid.T) (*scenario.Scenario, string) {
	policy := rapid.SampledFrom(everyPolicy).Draw(t, "policy")
	sets := []string{
		`cluster.replicas=4`, `cluster.names=[]`, `start.owners=[]`, `start.spare={}`,
		`workload.tenants=[{name="a"},{name="b",body_repeat=3}]`,
		`router.extra_metrics=["gpu_cache_usage_perc","cpu_cache_usage_perc","engine_utilization","gpu_busy_time_ratio"]`,
		`router.gpu_profiles=[{pods="pod-",output_tokens=[64],input_tokens=[512],rate_per_second=[[2]],e2e_seconds=[[4]],slo={e2e="9s"}}]`,
		fmt.Sprintf("workload.requests=%d", rapid.IntRange(1, 40).Draw(t, "requests")),
		fmt.Sprintf("workload.arrivals.rate_per_second=%d", rapid.SampledFrom([]int{1, 5, 50}).Draw(t, "rate")),
		`workload.arrivals.process="poisson"`,
		fmt.Sprintf("workload.output_tokens=%d", rapid.SampledFrom([]int{1, 2, 100, 1700}).Draw(t, "output")),
		fmt.Sprintf("workload.prompt.body_repeat=%d", rapid.SampledFrom([]int{1, 80, 300}).Draw(t, "repeat")),
		fmt.Sprintf("engine.blocks=%d", rapid.SampledFrom([]int{40, 181}).Draw(t, "blocks")),
		fmt.Sprintf("engine.async_scheduling=%t", rapid.Bool().Draw(t, "async")),
		fmt.Sprintf("router.gateways=%d", rapid.IntRange(1, 3).Draw(t, "gateways")),
		fmt.Sprintf("router.state_sync=%t", rapid.Bool().Draw(t, "sync")),
		fmt.Sprintf("router.choice_to_count_delay=%q", rapid.SampledFrom([]string{"0s", "30ms"}).Draw(t, "count_delay")),
		fmt.Sprintf("router.routing_latency=%q", rapid.SampledFrom([]string{"0s", "5ms"}).Draw(t, "latency")),
		fmt.Sprintf("router.metrics_interval=%q", rapid.SampledFrom([]string{"7ms", "50ms", "1s"}).Draw(t, "interval")),
		fmt.Sprintf("router.metrics_delay=%q", rapid.SampledFrom([]string{"0s", "333ms"}).Draw(t, "delay")),
		fmt.Sprintf("router.prometheus_interval=%q", rapid.SampledFrom([]string{"0s", "200ms"}).Draw(t, "prometheus")),
		fmt.Sprintf("router.kv_event_delay=%q", rapid.SampledFrom([]string{"0s", "40ms"}).Draw(t, "event_delay")),
		fmt.Sprintf("router.env.AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED=%t", rapid.Bool().Draw(t, "events")),
		"router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE=6272", "observe.ledgers=true",
	}
	if rapid.Bool().Draw(t, "faults") {
		sets = append(sets, `faults=[{at="2s",kind="crash",replica="pod-1",duration="1s"},{at="3s",kind="delete",replica="pod-3"},{at="1s",kind="slow",replica="pod-0",factor=3,duration="2s"}]`)
	}
	if policy == "pd" {
		sets = append(sets, "cluster.pd.prefill=2", "cluster.pd.role_sets=2", "cluster.pd.transfer_per_token=1us")
	}
	sc, err := scenario.LoadWith("hot90", sets)
	require.NoError(t, err)
	return sc, policy
}

func l20Profile(t require.TestingT) *model.Profile {
	p, err := profiles.Load("qwen3.8-27b-fp8-l20")
	require.NoError(t, err)
	return p
}

// Skipping over steady steps changes no policy's decision, record or timeline,
// whatever the policy reads of the engines and when.
func TestSkippingEqualsSteppingForEveryPolicy(t *testing.T) {
	p := l20Profile(t)
	rapid.Check(t, func(t *rapid.T) {
		sc, policy := aGateway(t)
		setup := Setup{Scenario: sc, Profile: p, Policy: policy, Seed: rapid.Uint64().Draw(t, "seed")}
		stepped, skipped := setup, setup
		stepped.Stepwise = true
		require.Equal(t, trace(t, stepped), trace(t, skipped))
	})
}

// Equal setups give equal results, whatever order Go's maps have.
func TestEveryPolicyIsDeterministic(t *testing.T) {
	p := l20Profile(t)
	rapid.Check(t, func(t *rapid.T) {
		sc, policy := aGateway(t)
		setup := Setup{Scenario: sc, Profile: p, Policy: policy, Seed: rapid.Uint64().Draw(t, "seed")}
		require.Equal(t, trace(t, setup), trace(t, setup))
	})
}

// Nothing is lost on the way through gateways and roles: every arrival ends, and
// no gateway counts anything any more.
func TestNothingIsLostInTheGateways(t *testing.T) {
	p := l20Profile(t)
	rapid.Check(t, func(t *rapid.T) {
		sc, policy := aGateway(t)
		r, err := newRun(Setup{Scenario: sc, Profile: p, Policy: policy, Seed: rapid.Uint64().Draw(t, "seed")})
		require.NoError(t, err)
		phase, err := r.simulate(context.Background())
		require.NoError(t, err)
		require.Equal(t, sc.Workload.Requests, phase.Dropped.Or(0)+phase.Rejected.Or(0)+phase.Failed.Or(0)+phase.Success.Or(0))
		for _, rep := range r.replicas {
			require.Zero(t, r.gateways.running(rep.id))
		}
	})
}
