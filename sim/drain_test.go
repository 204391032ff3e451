package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// drained is one long answer on each of two replicas, the requests 10 ms apart;
// which has pod-0 is the gateway's draw.
func drained(t *testing.T, sets ...string) (*record.Phase, []record.Request, int) {
	sc := small(t, append(append(every("10ms", 2), "cluster.replicas=2", "workload.output_tokens=400"), sets...)...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	on := 0
	if byIndex(requests)[1].Replica == "pod-0" {
		on = 1
	}
	return phase, requests, on
}

// SIGTERM aborts; the client has HTTP 200 and a stream that never ends, and
// gives up when it has heard nothing for its read timeout since the last token.
func TestNativeDeletion(t *testing.T) {
	phase, requests, victim := drained(t, fault("delete", "pod-0", "1s"), `workload.read_timeout="30s"`)
	q, other := requests[victim], requests[1-victim]
	require.Equal(t, record.Failed, q.Result)
	require.Equal(t, errReadTimeout, q.ErrorCategory)
	require.Equal(t, record.Some(200), q.HTTPStatus)
	// The step that ended last by 1 s began at 1 ms or 11 ms: tokens come at the
	// engine at 1 ms past each 10 ms, at the client 2 ms later.
	require.InDelta(t, 0.993+30, value(t, q.Started)+e2e(t, q), 1e-9)
	require.Equal(t, record.OK, other.Result)
	require.Equal(t, []record.Int{record.Some(1), record.Some(1), record.Some(1)}, []record.Int{phase.Success, phase.Failed, phase.Good})
}

// Without a read timeout the client would wait for ever; it is taken to notice.
func TestNativeDeletionWithoutReadTimeout(t *testing.T) {
	_, requests, victim := drained(t, fault("delete", "pod-0", "1s"))
	require.Equal(t, errStreamCut, requests[victim].ErrorCategory)
	require.InDelta(t, 1.002, value(t, requests[victim].Started)+e2e(t, requests[victim]), 1e-9)
}

// With a shutdown timeout longer than the answer it is finished.
func TestDraining(t *testing.T) {
	phase, requests, _ := drained(t, fault("delete", "pod-0", "1s"), `drain.shutdown_timeout="10s"`, `lifecycle.model_load.mean="60s"`)
	require.Equal(t, []string{"ok", "ok"}, outcomes(requests))
	s := member[ScalingSummary](t, phase, "scaling")
	require.Equal(t, 1, s.ReadyLeast)
	require.Equal(t, 2, s.DesiredFinal)
}

// What is not finished when the shutdown timeout is over is cut.
func TestShutdownTimeout(t *testing.T) {
	_, requests, victim := drained(t, fault("delete", "pod-0", "1s"), `drain.pre_stop="500ms"`, `drain.shutdown_timeout="2s"`)
	require.Equal(t, errStreamCut, requests[victim].ErrorCategory)
	require.InDelta(t, 3.502, value(t, requests[victim].Started)+e2e(t, requests[victim]), 1e-9)
	require.Equal(t, record.OK, requests[1-victim].Result)
}

// The grace period, the preStop hook included, ends in SIGKILL whatever the
// engine's timeout.
func TestGracePeriod(t *testing.T) {
	_, requests, victim := drained(t, fault("delete", "pod-0", "1s"), `drain.pre_stop="500ms"`, `drain.shutdown_timeout="10s"`, `drain.grace_period="1s"`)
	require.Equal(t, errStreamCut, requests[victim].ErrorCategory)
	require.InDelta(t, 2.002, value(t, requests[victim].Started)+e2e(t, requests[victim]), 1e-9)
}

// A field case: a replica drained at 10 s with an answer of 40 s and 30 s of
// grace. The answer is cut at 40 s, a failed stream though it had HTTP 200.
func TestAnswerLongerThanTheGrace(t *testing.T) {
	sc := small(t, "cluster.replicas=1", "workload.output_tokens=4400", fault("delete", "pod-0", "10s"),
		`drain.shutdown_timeout="600s"`, `drain.grace_period="30s"`)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"failed stream_cut"}, outcomes(requests))
	require.InDelta(t, 40.002, e2e(t, requests[0]), 1e-9)
	require.Equal(t, record.Some(200), requests[0].HTTPStatus)
	require.Equal(t, record.Some(0), phase.Success)
	require.False(t, phase.TTFT.P50.Valid(), "quantiles are of successes")
}

// What reaches a deleted replica depends on how far it is: during preStop it is
// served; after SIGTERM it is aborted at once while others drain, and refused
// when the engine has exited; when the gateway has heard, it goes elsewhere.
func TestRequestsToATerminatingReplica(t *testing.T) {
	sc := small(t, append(every("500ms", 8), "cluster.replicas=1", "workload.output_tokens=110",
		fault("delete", "pod-0", "900ms", "replace=false"),
		`drain.pre_stop="700ms"`, `drain.shutdown_timeout="60s"`, `router.endpoint_delay="2s"`)...)
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	// Sent at 0, 0.5, 1.0 and 1.5 s before SIGTERM at 1.6 s; those of 1 s and 1.5 s
	// end at 2.1 s and 2.6 s. The gateway hears at 2.9 s.
	require.Equal(t, []string{"ok", "ok", "ok", "ok",
		"failed aborted", "failed aborted", "error no_routable_pod 503", "error no_routable_pod 503"}, outcomes(requests))

	sc = small(t, append(every("500ms", 4), "cluster.replicas=1", "workload.output_tokens=10",
		fault("delete", "pod-0", "700ms", "replace=false"), `router.endpoint_delay="600ms"`)...)
	_, requests = simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "ok", "error connection_refused 503", "error no_routable_pod 503"}, outcomes(requests))
}

// The deleted replica keeps its GPU until its engine has exited; only then does
// the replacement start: pending from 1 s to 4.003 s, ready 5 s later.
func TestReplacementWaitsForTheGPU(t *testing.T) {
	sc := small(t, append(every("10s", 2), "cluster.replicas=1", "cluster.gpus=1", "workload.output_tokens=400",
		fault("delete", "pod-0", "1s"), `drain.shutdown_timeout="60s"`, `lifecycle.model_load.mean="5s"`)...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "ok"}, outcomes(requests))
	require.Equal(t, "pod-1", requests[1].Replica)
	require.Equal(t, []ScalingPoint{
		{At: 0, Desired: 1, Created: 1, Ready: 1},
		{At: 1, Desired: 1, Created: 1, Pending: 1, Terminating: 1},
		{At: 4.001, Desired: 1, Created: 1, Starting: 1},
		{At: 9.001, Desired: 1, Created: 1, Ready: 1},
	}, member[ScalingSummary](t, phase, "scaling").Changes)
	require.Len(t, phase.Replicas, 2)
}
