package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Whoever compares policies is told when one of them had nothing to go by.
func TestWarnings(t *testing.T) {
	for _, c := range []struct {
		policy string
		sets   []string
		want   []string
	}{
		{"least-request", nil, nil},
		{"least-kv-cache", nil, []string{"least-kv-cache draws at random here: vLLM 0.26 exports no cpu_cache_usage_perc; see router.extra_metrics"}},
		{"least-kv-cache", []string{`router.extra_metrics=["cpu_cache_usage_perc"]`}, nil},
		{"throughput", nil, []string{"throughput draws at random here: averages a request need a Prometheus; see router.prometheus_interval"}},
		{"throughput", []string{"router.prometheus_interval=15s"}, nil},
		{"session-affinity", nil, []string{"session-affinity draws at random here: no request has a session"}},
		{"vtc-basic", nil, []string{"vtc-basic draws at random here: no request has a user; see workload.tenants"}},
		{"vtc-basic", []string{`workload.tenants=[{name="a"}]`}, nil},
		{"prefix-cache:2, least-busy-time", nil, []string{"least-busy-time draws at random here: vLLM 0.26 exports no gpu_busy_time_ratio; see router.extra_metrics"}},
		{"prefix-cache", []string{"router.env.AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED=true"},
			[]string{"KV events match no prompt here: blocks of the index have 32 tokens, those of the engines 1568; AIBRIX_PREFIX_CACHE_BLOCK_SIZE = 6272 would make them equal"}},
		{"prefix-cache", []string{"router.env.AIBRIX_PREFIX_CACHE_KV_EVENT_SYNC_ENABLED=true", "router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE=6272"}, nil},
	} {
		phase, err := Run(Setup{Scenario: onTwo(t, burst(4, c.sets...)...), Profile: plain(t), Policy: c.policy})
		require.NoError(t, err)
		require.Equal(t, c.want, phase.Notes, c.policy)
	}
}
