package sim

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// scaled is a load of one request a second, each of which takes 5.003 s, so that
// five are in flight from 5 s on, under an autoscaler.
func scaled(t *testing.T, sets ...string) (*record.Phase, ScalingSummary) {
	sc := small(t, append(append(every("1s", 120), "workload.output_tokens=500", "cluster.replicas=1",
		"autoscale.max_replicas=8", `autoscale.metric="in_flight"`, "autoscale.target=2.0"), sets...)...)
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	return phase, member[ScalingSummary](t, phase, "scaling")
}

// APA: reconciles at 10, 20, … s read 5 in flight on one pod (that of 4 s is on
// its last millisecond); the mean over the window is 5, 2.5 times the target, and
// at most twice the replicas may be asked for. The new replica is silent until it
// is ready, and counts as 0: at 20 s the mean of (5, 2.5) asks for
// ceil(2 × 3.75/2) = 4. v0.7.0 does not wait for what it has asked for: at 30 s,
// with two silent replicas and one without an address, the mean of (5, 2.5, 5/3)
// asks for ceil(4 × 3.056/2) = 7.
func TestScaleUp(t *testing.T) {
	phase, s := scaled(t, `autoscale.strategy="apa"`, `lifecycle.schedule.mean="1s"`, `lifecycle.model_load.mean="24s"`, "cluster.gpus=3")
	require.Equal(t, []ScalingPoint{
		{At: 0, Desired: 1, Created: 1, Ready: 1},
		{At: 10, Desired: 2, Created: 2, Ready: 1, Starting: 1},
		{At: 20, Desired: 4, Created: 4, Ready: 1, Starting: 2, Pending: 1},
		{At: 30, Desired: 7, Created: 7, Ready: 1, Starting: 2, Pending: 4},
		{At: 35, Desired: 7, Created: 7, Ready: 2, Starting: 1, Pending: 4},
	}, s.Changes[:5])
	require.Equal(t, record.Some(120), phase.Success)
	require.Len(t, phase.Replicas, 3, "those pending never served")
}

// A new replica takes requests when the gateway has heard of it, not before, and
// its cache is cold.
func TestNewReplicaIsCold(t *testing.T) {
	sc := load(t, append(every("1s", 40), "cluster.replicas=1", "cluster.names=[]", "start.engine_cache=cold", "start.router_index=cold",
		"start.owners=[]", "start.spare={}", "workload.prompt.families=1", "workload.prompt.hot_fraction=0", "workload.output_tokens=10",
		"workload.arrivals.rate_per_second=0", `autoscale.strategy="apa"`, "autoscale.min_replicas=2", "autoscale.max_replicas=2",
		`autoscale.metric="in_flight"`, "autoscale.target=1.0", `lifecycle.model_load.mean="5s"`, `router.endpoint_delay="2s"`)...)
	_, requests := simulate(t, sc, even(t), "random", 1)
	first := -1
	for i, r := range byIndex(requests) {
		if r.Replica == "pod-1" && first < 0 {
			first = i
			require.Equal(t, record.Some(0), r.CachedTokens)
		}
	}
	require.GreaterOrEqual(t, first, 17, "asked for at 10 s, ready at 15 s, known at 17 s")
}

// A field case: the load ends at 60 s; when does desired fall, to the second?
// APA's window still holds the samples of the load.
func TestScaleDown(t *testing.T) {
	sc := small(t, "workload.requests=60", "workload.output_tokens=500", "cluster.replicas=4",
		"workload.arrivals.stages=[{duration=\"60s\", rate_per_second=1.0}, {duration=\"600s\", rate_per_second=0.0}]",
		`autoscale.strategy="apa"`, "autoscale.max_replicas=8", `autoscale.metric="in_flight"`, "autoscale.target=1.25")
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	s := member[ScalingSummary](t, phase, "scaling")
	// Samples: 6 of 1.25 from 10 s to 60 s (5 in flight on 4 pods), then 0 each
	// 10 s. The mean falls below 0.9 of the target when 6/(6+n) < 0.9: at the
	// first 0, at 70 s, where it asks for ceil(4 × 6/7) = 4; 6/8 asks for 3 at 80 s.
	require.Equal(t, ScalingPoint{At: 80, Desired: 3, Created: 3, Ready: 3}, settled(s.Changes)[1])
	require.Equal(t, 1, s.DesiredFinal)
	require.InDelta(t, 64.0, value(t, phase.Elapsed), 0.1, "the run goes on after the last answer, the phase does not")
}

// settled are the points at which no replica terminates.
func settled(points []ScalingPoint) []ScalingPoint {
	var out []ScalingPoint
	for _, p := range points {
		if p.Terminating == 0 {
			out = append(out, p)
		}
	}
	return out
}

// Pre-scaling takes effect at its time, between two reconciles, and its end lets
// the metric decide again.
func TestPreScale(t *testing.T) {
	_, s := scaled(t, `autoscale.strategy="kpa"`, "autoscale.target=100.0", `autoscale.annotations={"scale-down-cooldown-window"="0s"}`,
		`autoscale.pre_scale=[{at="14s", replicas=3}, {at="55s", replicas=1}]`, `lifecycle.model_load.mean="5s"`)
	require.Equal(t, ScalingPoint{At: 14, Desired: 3, Created: 3, Ready: 1, Starting: 2}, s.Changes[1])
	require.Equal(t, ScalingPoint{At: 19, Desired: 3, Created: 3, Ready: 3}, s.Changes[2])
	require.Equal(t, 55.0, s.Changes[3].At)
	require.Equal(t, 1, s.Changes[3].Desired)
}

// The autoscaler sees what was scraped, when it has come through: scraped each
// 15 s and 4 s under way, the 5 in flight of 15 s arrive for 20 s, where the mean
// of (0, 5) is above the tolerance. 6 s under way they miss that reconcile: the
// mean of (0, 0, 5) at 30 s is below it, that of (0, 0, 5, 5) at 40 s above.
func TestMetricDelay(t *testing.T) {
	_, s := scaled(t, `autoscale.strategy="apa"`, `autoscale.scrape_interval="15s"`, `autoscale.metric_delay="4s"`)
	require.Equal(t, 20.0, s.Changes[1].At)
	_, s = scaled(t, `autoscale.strategy="apa"`, `autoscale.scrape_interval="15s"`, `autoscale.metric_delay="6s"`)
	require.Equal(t, 40.0, s.Changes[1].At)
}

// Every metric the schema names can be read: with a target far below it, each
// makes the deployment grow.
func TestMetrics(t *testing.T) {
	for _, metric := range []string{"in_flight", "kv_cache_usage_perc", "num_requests_running", "num_requests_waiting"} {
		_, s := scaled(t, `autoscale.strategy="apa"`, `autoscale.metric="`+metric+`"`, "autoscale.target=0.001", "engine.max_num_seqs=2")
		require.Greater(t, s.DesiredPeak, 1, metric)
	}
}

// The timeline has the changes in the order of time, among the gauges.
func TestScalingOnTheTimeline(t *testing.T) {
	sc := small(t, append(every("1s", 20), "cluster.replicas=1", fault("delete", "pod-0", "7s"), `lifecycle.model_load.mean="5s"`)...)
	var lines []string
	_, err := Run(Setup{Scenario: sc, Profile: even(t), Policy: "random", Seed: 1,
		Sample: func(s Sample) { lines = append(lines, string(s.AppendJSON(nil))) }})
	require.NoError(t, err)
	require.Equal(t, `{"phase":"fixed1-wave","route":"random","seed":1,"relative_seconds":0,"desired":1,"created":1,"pending":0,"starting":0,"ready":1,"crashed":0,"terminating":0}`, lines[0])
	require.Equal(t, `{"phase":"fixed1-wave","route":"random","seed":1,"relative_seconds":0,"replica":"pod-0","running":0,"waiting":0,"kv_usage":0,"in_flight":0}`, lines[1])
	require.Contains(t, lines[3], `"relative_seconds":7,"desired":1,"created":1,"pending":0,"starting":1,"ready":0`)
	require.Contains(t, lines[4], `"relative_seconds":12,"desired":1,"created":1,"pending":0,"starting":0,"ready":1`)
	require.False(t, strings.Contains(strings.Join(lines[3:5], ""), "replica"), "no engine answers at 10 s")
}
