package scenario

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/router"
	"fleetsim/simtime"
)

// Every message about roles, metrics and GPU profiles.
func TestGatewayProblems(t *testing.T) {
	const profile = `router.gpu_profiles=[{pods="pod-",output_tokens=[128],input_tokens=[512],rate_per_second=[[2]],e2e_seconds=[[4]],slo={e2e="9s"}}]`
	for _, c := range []struct {
		sets []string
		want string // part of the only message; "": none
	}{
		{[]string{`policies=["pd"]`}, `policy "pd" needs pods with roles`},
		{[]string{`policies=["pd"]`, "cluster.replicas=3", "cluster.pd.prefill=1"}, ""},
		{[]string{"cluster.replicas=3", "cluster.pd.prefill=3"}, "cluster.pd.prefill must be a whole number from 1 to 2, not 3"},
		{[]string{"cluster.replicas=3", "cluster.pd.prefill=1", "cluster.pd.role_sets=2"}, "cluster.pd.role_sets must be a whole number from 0 to 1, not 2"},
		{[]string{"cluster.replicas=3", "cluster.pd.prefill=1", "rollout.at=5s"}, "cluster.pd and rollout.at do not go together"},
		{[]string{"cluster.replicas=3", "cluster.pd.prefill=1", "autoscale.strategy=apa", "autoscale.max_replicas=4",
			"autoscale.metric=in_flight", "autoscale.target=2"}, "cluster.pd and [autoscale] do not go together"},
		{[]string{`router.extra_metrics=["gpu_cache_usage"]`}, `router.extra_metrics.0 "gpu_cache_usage" is unknown`},
		{[]string{profile}, ""},
		{[]string{profile, "router.gpu_profiles.0.e2e_seconds=[[0]]"}, `GPU profile "pod-": e2e: want 1 rows`},
	} {
		_, err := LoadWith("hot90", c.sets)
		if c.want == "" {
			require.NoError(t, err, c.sets)
			continue
		}
		require.ErrorContains(t, err, c.want)
		require.Len(t, err.(Problems), 1)
	}
}

// The list of fixes is one for router and autoscaler; the gateway's settings have
// the router's alone.
func TestRouterSettings(t *testing.T) {
	sc, err := LoadWith("hot90", []string{`router.upstream_fixed=["kpa-times-replicas","lru_keeps_heads"]`,
		"router.env.AIBRIX_PREFIX_CACHE_BLOCK_SIZE=64"})
	require.NoError(t, err)
	s, err := sc.Router.Settings()
	require.NoError(t, err)
	require.Equal(t, map[string]bool{router.FixLRUHeads: true}, s.UpstreamFixed)
	require.Equal(t, 64, s.Prefix.BlockSize)
}

func TestRefreshInterval(t *testing.T) {
	sc, err := LoadWith("hot90", []string{"router.metrics_interval=200ms"})
	require.NoError(t, err)
	require.Equal(t, 200*simtime.Millisecond, sc.Router.RefreshInterval())
	sc, err = LoadWith("hot90", []string{"router.metrics_interval=200ms", "router.env.AIBRIX_POD_METRIC_REFRESH_INTERVAL_MS=70"})
	require.NoError(t, err)
	require.Equal(t, 70*simtime.Millisecond, sc.Router.RefreshInterval())
}

func TestGPUProfileInTheRoutersTerms(t *testing.T) {
	sc, err := LoadWith("hot90", []string{
		`router.gpu_profiles=[{pods="L20",output_tokens=[1,2],input_tokens=[3],rate_per_second=[[4],[5]],e2e_seconds=[[6],[7]],ttft_seconds=[[8],[9]],slo={ttft="1s",tpot="2s",tpat="3s",e2e="4s"}}]`})
	require.NoError(t, err)
	require.Equal(t, []router.GPUProfile{{
		PodPrefix: "L20", OutputTokens: []float64{1, 2}, InputTokens: []float64{3},
		Rate: [][]float64{{4}, {5}}, E2E: [][]float64{{6}, {7}}, TTFT: [][]float64{{8}, {9}},
		SLO: router.ProfileSLO{TTFT: 1, TPOT: 2, TPAT: 3, E2E: 4},
	}}, sc.Router.Options().Profiles)
}
