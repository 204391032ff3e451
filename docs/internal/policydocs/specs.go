package main

import (
	"fmt"
	"strings"

	"fleetsim/sim/scenario"
)

// A spec is a policy with what its scenario must have so that it can show what
// it does.
type spec struct {
	name   string // of the figure, and in the table
	policy string
	sets   func(replicas int) []string
	load   string // of the figure: conversations, evicting or "", which is hot50
}

// specs are all policies, in the order of the documentation.
var specs = []spec{
	{name: "random"},
	{name: "least-request"},
	{name: "prefix-cache"},
	{name: "prefix-cache-kv-sync", policy: "prefix-cache", load: "evicting", sets: always(
		"router.env.AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED=true", "router.env.AIBRIX_PREFIX_CACHE_USE_REMOTE_TOKENIZER=true",
		// A block of the index must be a block of the engine: 1,568 tokens of 4 bytes.
		"router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE=6272", "router.kv_event_delay=10ms")},
	{name: "prefix-cache-preble"},
	{name: "least-kv-cache", sets: always(`router.extra_metrics=["cpu_cache_usage_perc"]`)},
	{name: "least-gpu-cache", sets: always(`router.extra_metrics=["gpu_cache_usage_perc"]`)},
	{name: "least-utilization", sets: always(`router.extra_metrics=["engine_utilization"]`)},
	{name: "least-busy-time", sets: always(`router.extra_metrics=["gpu_busy_time_ratio"]`)},
	{name: "least-latency", sets: always("router.prometheus_interval=15s")},
	{name: "throughput", sets: always("router.prometheus_interval=15s")},
	{name: "power-of-two"},
	{name: "session-affinity", load: "conversations"},
	{name: "vtc-basic", sets: always(`workload.tenants=[{name="a"},{name="b"}]`)},
	{name: "slo", sets: always(gpuProfile)},
	{name: "slo-least-load-pulling", sets: always(gpuProfile)},
	{name: "slo-least-load", sets: always(gpuProfile)},
	{name: "slo-pack-load", sets: always(gpuProfile)},
	{name: "pd", sets: roles},
	{name: "weighted", policy: "prefix-cache:2,least-request:1"},
}

// gpuProfile is what the simulator itself says of a replica under the studies'
// prompts: about 1 request a second, 5 s each.
const gpuProfile = `router.gpu_profiles=[{pods="",output_tokens=[128],input_tokens=[5050],rate_per_second=[[1.0]],e2e_seconds=[[5.0]],slo={e2e="30s"}}]`

func always(sets ...string) func(int) []string {
	return func(int) []string { return sets }
}

// roles lets a quarter of the replicas prefill and the others decode; what is
// cached at the start is on the former.
func roles(replicas int) []string {
	prefill := max(replicas/4, 1)
	owners := make([]string, 8)
	for f := range owners {
		owners[f] = fmt.Sprintf("[%q]", fmt.Sprintf("pod-%d", f%prefill))
	}
	return []string{
		fmt.Sprintf("cluster.pd.prefill=%d", prefill),
		"cluster.pd.transfer_latency=5ms", "cluster.pd.transfer_per_token=8us",
		"start.owners=[" + strings.Join(owners, ",") + "]",
	}
}

// settings are those of the spec's scenario with so many replicas.
func (s *spec) settings(replicas int) []string {
	sets := []string{
		fmt.Sprintf("cluster.replicas=%d", replicas), "cluster.names=[]", "start.owners=[]", "start.spare={}",
	}
	sets = scenario.WithPolicies(sets, s.routed())
	if s.sets != nil {
		sets = append(sets, s.sets(replicas)...)
	}
	return sets
}

// routed is the policy as a scenario names it.
func (s *spec) routed() string {
	if s.policy != "" {
		return s.policy
	}
	return s.name
}

// perReplica scales the studies' load, which is for two replicas.
func perReplica(replicas int) []string {
	return []string{
		fmt.Sprintf("workload.requests=%d", 48*replicas),
		fmt.Sprintf("workload.arrivals.rate_per_second=%g", 0.8*float64(replicas)),
		fmt.Sprintf("workload.in_flight_cap=%d", 24*replicas),
	}
}
