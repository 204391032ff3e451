package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// The first answer takes one slot for 5 s. The second client hears nothing and
// gives up a second after it has sent; the third, which comes later, is served
// when the first has ended: its place was freed.
func TestReadTimeoutInTheQueue(t *testing.T) {
	sc := small(t, append(every("4500ms", 2), "engine.max_num_seqs=1", "workload.output_tokens=500", "workload.read_timeout=\"1s\"")...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "ok"}, outcomes(requests), "0.5 s of waiting is not a second")
	require.Equal(t, record.Some(2), phase.Success)

	sc = small(t, append(every("2s", 3), "engine.max_num_seqs=1", "workload.output_tokens=500", "workload.read_timeout=\"1500ms\"")...)
	phase, requests = simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "failed read_timeout", "ok"}, outcomes(requests))
	require.InDelta(t, 1.5, e2e(t, requests[1]), 1e-12)
	require.Equal(t, record.Some(200), requests[1].HTTPStatus)
	require.Equal(t, record.Some(0), requests[1].OutputTokens)
	require.False(t, requests[1].QueueSeconds.Valid())
	// Sent at 4 s, in the engine at 4.001; the first ends at 5.001. The pipeline
	// then holds nothing, so it starts at once.
	require.InDelta(t, 1.013, value(t, requests[2].TTFT), 1e-12)
	require.Equal(t, record.Counts{{Name: "read_timeout", N: 1}}, phase.ErrorCategories)
}

// Silence counts from the latest token, not from the sending.
func TestLongAnswersAreNoSilence(t *testing.T) {
	sc := small(t, "workload.output_tokens=1000", `workload.read_timeout="20ms"`)
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok"}, outcomes(requests))
	require.InDelta(t, 10.003, e2e(t, requests[0]), 1e-9)
}

// A client that gives up after 95 ms has its first tokens: the 9th came at 93 ms.
// The engine is free for the next.
func TestCancellation(t *testing.T) {
	sc := small(t, append(every("100ms", 2), "workload.output_tokens=50", "workload.cancel.fraction=1.0", `workload.cancel.after="95ms"`)...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"failed cancelled", "failed cancelled"}, outcomes(requests))
	require.InDelta(t, 0.095, e2e(t, requests[0]), 1e-12)
	require.Equal(t, record.Some(9), requests[0].OutputTokens)
	require.InDelta(t, 0.013, value(t, requests[0].TTFT), 1e-12)
	require.Equal(t, record.Bool(record.Some(false)), requests[0].Good)
	require.InDelta(t, 0.013, value(t, requests[1].TTFT), 0.011, "at most the rest of a step that ran on")
	require.Equal(t, record.Some(2), phase.Failed)
}

// A token that is under way when the client closes counts for nothing: the first
// leaves the engine after 11 ms and arrives after 13.
func TestTokenUnderWayAtTheEnd(t *testing.T) {
	for after, tokens := range map[string]int{"10ms": 0, "12ms": 0, "13ms": 1, "91ms": 8, "92ms": 8} {
		sc := small(t, "workload.cancel.fraction=1.0", "workload.cancel.after=\""+after+"\"")
		_, requests := simulate(t, sc, even(t), "least-request", 1)
		require.Equal(t, record.Some(tokens), requests[0].OutputTokens, after)
		require.Equal(t, tokens > 0, requests[0].TTFT.Valid(), after)
	}
}

// Which requests are cancelled depends on the seed alone.
func TestCancellationIsDrawnPerArrival(t *testing.T) {
	cancelled := func(policy string) []int {
		sc := small(t, append(every("100ms", 200), "cluster.replicas=2", "workload.cancel.fraction=0.3", `workload.cancel.after="50ms"`)...)
		_, requests := simulate(t, sc, even(t), policy, 7)
		var out []int
		for _, r := range byIndex(requests) {
			if r.ErrorCategory == errCancelled {
				out = append(out, r.Index.Or(-1))
			}
		}
		return out
	}
	require.Equal(t, cancelled("random"), cancelled("least-request"))
	require.InDelta(t, 60, len(cancelled("random")), 20)
}

// A lane thinks between the end of an answer and its next question: answers of
// 103 ms and 400 ms of thought make a question every 503 ms.
func TestThinkTime(t *testing.T) {
	sc := small(t)
	sc.Workload.Arrivals, sc.Workload.Requests = nil, 0
	sc.Workload.ClosedLoop = closedLoop(1, "2s", "400ms")
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Len(t, requests, 4)
	for i, r := range byIndex(requests) {
		require.InDelta(t, 0.503*float64(i), value(t, r.Started), 1e-12)
	}
}

// A closed loop without a duration ends with its requests.
func TestClosedLoopOfSoManyRequests(t *testing.T) {
	sc := small(t)
	sc.Workload.Arrivals, sc.Workload.Requests = nil, 7
	sc.Workload.ClosedLoop = closedLoop(3, "0s", "0s")
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, record.Some(7), phase.Success)
	sc.Workload.Requests = 2
	phase, _ = simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, record.Some(2), phase.Planned, "fewer than lanes")
}
