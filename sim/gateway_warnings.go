package sim

import (
	"fmt"
	"strings"

	"fleetsim/workload"
)

// needs are the inputs without which a policy draws at random, and what gives
// them to it.
var needs = []struct {
	policy, what string
	missing      func(*gateways) bool
}{
	{"least-kv-cache", `vLLM 0.26 exports no cpu_cache_usage_perc; see router.extra_metrics`, lacks("cpu_cache_usage_perc")},
	{"least-gpu-cache", `vLLM 0.26 exports no gpu_cache_usage_perc; see router.extra_metrics`, lacks("gpu_cache_usage_perc")},
	{"least-utilization", `vLLM 0.26 exports no engine_utilization; see router.extra_metrics`, lacks("engine_utilization")},
	{"least-busy-time", `vLLM 0.26 exports no gpu_busy_time_ratio; see router.extra_metrics`, lacks("gpu_busy_time_ratio")},
	{"least-latency", "averages a request need a Prometheus; see router.prometheus_interval", withoutPrometheus},
	{"throughput", "averages a request need a Prometheus; see router.prometheus_interval", withoutPrometheus},
	{"session-affinity", "no request has a session", func(g *gateways) bool { return !g.sessions }},
	{"vtc-basic", "no request has a user; see workload.tenants", func(g *gateways) bool { return !g.users }},
}

func lacks(metric string) func(*gateways) bool {
	return func(g *gateways) bool {
		for _, name := range g.config.ExtraMetrics {
			if name == metric {
				return false
			}
		}
		return true
	}
}

func withoutPrometheus(g *gateways) bool { return g.config.PrometheusInterval.Time == 0 }

// warnings are what a reader of the phase's figures must know about the routing.
func (r *run) warnings() []string {
	g := r.gateways
	var out []string
	for strategy := range strings.SplitSeq(r.Policy, ",") {
		name, _, _ := strings.Cut(strings.TrimSpace(strategy), ":")
		for _, n := range needs {
			if n.policy == name && n.missing(g) {
				out = append(out, fmt.Sprintf("%s draws at random here: %s", name, n.what))
			}
		}
	}
	gw := g.processes[0]
	if index := gw.Auditor(); index != nil && gw.HearsKVEvents() {
		engine := r.replicas[0].Limits().BlockTokens
		if s := index.IndexScheme(); s.Unit == workload.Tokens && s.Block != engine {
			out = append(out, fmt.Sprintf("KV events match no prompt here: blocks of the index have %d tokens, those of the engines %d; "+
				"AIBRIX_PREFIX_CACHE_BLOCK_SIZE = %d would make them equal", s.Block, engine, 4*engine))
		}
	}
	return out
}
