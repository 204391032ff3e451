package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/model"
	"fleetsim/sim/record"
)

// A crash cuts the streams, and while the container is down connections are
// refused; it comes back with an empty cache and its counters go on.
func TestCrash(t *testing.T) {
	sc := load(t, append(every("1s", 6), "cluster.replicas=1", "cluster.names=[]", "start.engine_cache=cold", "start.router_index=cold",
		"start.owners=[]", "start.spare={}", "workload.prompt.families=1", "workload.prompt.hot_fraction=0", "workload.output_tokens=50",
		"workload.arrivals.rate_per_second=0", fault("crash", "pod-0", "2100ms", `duration="1500ms"`), `router.endpoint_delay="1200ms"`)...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	// Down from 2.1 s to 3.6 s; off the gateway's list from 3.3 s to 4.8 s.
	require.Equal(t, []string{"ok", "ok", "failed stream_cut", "error connection_refused 503", "error no_routable_pod 503", "ok"}, outcomes(requests))
	require.InDelta(t, 0.102, e2e(t, requests[2]), 1e-12)
	require.Equal(t, record.Some(4704), requests[1].CachedTokens)
	require.Equal(t, record.Some(0), requests[5].CachedTokens, "cold after the restart")
	queries := 0
	for _, i := range []int{0, 1, 2, 5} {
		queries += requests[i].InputTokens.Or(0)
	}
	require.Equal(t, record.Some(queries), phase.Replicas[0].CacheQueriesTokens, "the engine before counts too")
	require.Equal(t, ScalingPoint{At: 2.1, Desired: 1, Created: 1, Crashed: 1}, member[ScalingSummary](t, phase, "scaling").Changes[1])
}

// A crash for good gives the pod up, and the deployment makes up for it: on the
// same GPU, which is free at once, since there is nothing left to drain.
func TestCrashForGood(t *testing.T) {
	sc := small(t, append(every("1s", 6), "cluster.replicas=1", "cluster.gpus=1", fault("crash", "pod-0", "500ms"),
		`drain.pre_stop="20s"`, `lifecycle.compile.mean="3s"`)...)
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "error no_routable_pod 503", "error no_routable_pod 503", "error no_routable_pod 503", "ok", "ok"}, outcomes(requests))
	require.Equal(t, "pod-1", requests[4].Replica)
}

// Nothing answers from a lost node: streams and new connections hang until the
// client has had enough, and the endpoint stays until the gateway hears of it.
func TestNodeLoss(t *testing.T) {
	sc := small(t, append(every("1s", 4), "cluster.replicas=1", "cluster.gpus=1", "workload.output_tokens=150",
		fault("node_loss", "pod-0", "1500ms"), `router.endpoint_delay="1s"`, `workload.read_timeout="5s"`)...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"failed read_timeout", "failed read_timeout", "failed read_timeout", "error no_routable_pod 503"}, outcomes(requests)[0:4])
	require.Equal(t, record.Some(200), requests[1].HTTPStatus, "its stream had begun")
	require.False(t, requests[2].HTTPStatus.Valid(), "not even a connection")
	require.InDelta(t, 5, e2e(t, requests[2]), 1e-12)
	last := member[ScalingSummary](t, phase, "scaling").Changes
	require.Equal(t, ScalingPoint{At: 1.5, Desired: 1, Created: 1, Pending: 1}, last[len(last)-1], "its GPU is lost with it")
}

// At half the speed every step scheduled from then on takes 20 ms, until it
// recovers. Two steps are in flight when it begins and when it ends.
func TestSlowReplica(t *testing.T) {
	sc := small(t, "workload.output_tokens=100", fault("slow", "pod-0", "100ms", "factor=2.0", `duration="200ms"`))
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	// Steps end at 11, 21, …, 101 and, scheduled before 100 ms, at 111 ms; 131 to
	// 331 ms at half the speed, of which those ending at 311 and 331 ms were
	// scheduled at 271 and 291 ms; the 79 left of 100 take 790 ms.
	require.InDelta(t, 0.331+0.78+0.002, e2e(t, requests[0]), 1e-12)
	require.Equal(t, model.Ratio{Num: 3, Den: 2}, ratioOf(1.5))
	require.Equal(t, model.Ratio{Num: 1, Den: 1}, ratioOf(1))
	require.Equal(t, model.Ratio{Num: 1, Den: 1_000_000}, ratioOf(1e-9))
}

// A fault on a replica that is not there is said, not hidden.
func TestFaultWithoutVictim(t *testing.T) {
	sc := small(t, append(every("1s", 3), `faults=[{kind="delete", replica="pod-0", at="500ms", replace=false}, {kind="slow", replica="pod-0", at="1500ms", factor=2.0}]`)...)
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{`faults[1] (slow at 1.5s) struck nothing: there was no replica "pod-0" then`}, phase.Notes)
}

// A rolling update with a surge of one replaces both replicas, one after the
// other, and loses nothing.
func TestRollingUpdate(t *testing.T) {
	sc := small(t, append(every("100ms", 400), "cluster.replicas=2", `rollout.at="5s"`, `rollout.max_surge="1"`, `rollout.max_unavailable="0"`,
		`drain.shutdown_timeout="20s"`, `drain.pre_stop="1s"`, `lifecycle.model_load.mean="4s"`)...)
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, record.Some(400), phase.Success)
	s := member[ScalingSummary](t, phase, "scaling")
	require.Equal(t, []int{2, 3}, []int{s.ReadyLeast, max(s.ReadyPeak, s.Changes[1].Created)})
	var names []string
	for _, rep := range phase.Replicas {
		names = append(names, rep.Name)
	}
	require.Equal(t, []string{"pod-0", "pod-1", "pod-2", "pod-3"}, names)
}
