package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// Answers take 103 ms; the quota is one, so of arrivals every 40 ms those at 40
// and 80 ms are refused within 1 ms, and the one at 120 ms passes: the place is
// held until the stream has ended, and no longer.
func TestQuota(t *testing.T) {
	sc := small(t, append(every("40ms", 6), "admission.quota=1")...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "rejected over_quota 429", "rejected over_quota 429", "ok", "rejected over_quota 429", "rejected over_quota 429"}, outcomes(requests))
	require.InDelta(t, 0.001, e2e(t, requests[1]), 1e-12)
	require.Empty(t, requests[1].Replica)
	require.False(t, requests[1].InputTokens.Valid())
	require.Equal(t, []record.Int{record.Some(6), record.Some(2), record.Some(4), record.Some(0)},
		[]record.Int{phase.Planned, phase.Success, phase.Rejected, phase.Failed})
	require.Equal(t, attemptTally{Attempts: 6, OverQuota: 4}, member[attemptTally](t, phase, "admission"))
}

// A tenant's quota is its own.
func TestQuotaPerTenant(t *testing.T) {
	sc := small(t, append(every("20ms", 6), `workload.tenants=[{name="A"}, {name="B", quota=1}]`)...)
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, record.Some(0), phase.Tenants[0].Rejected)
	require.Equal(t, record.Some(3), phase.Tenants[0].Success)
	require.Equal(t, record.Some(1), phase.Tenants[1].Success, "sent at 20 ms, ended at 123 ms or later; the others at 60 and 100 ms")
}

// Proxies do not share their counts: two let through what one refuses.
func TestProxiesMultiplyTheQuota(t *testing.T) {
	for proxies, want := range map[string]int{"1": 2, "2": 4} {
		sc := small(t, append(every("1ms", 10), "admission.quota=2", "admission.proxies="+proxies)...)
		phase, _ := simulate(t, sc, even(t), "least-request", 1)
		require.Equal(t, record.Some(want), phase.Success, proxies)
	}
}

// The one waiting request passes when the first has ended at 103 ms, and its
// TTFT includes the wait: sent at 20 ms, let through at 103 ms, first token 13 ms
// later. The third finds the queue full.
func TestAdmissionQueue(t *testing.T) {
	sc := small(t, append(every("20ms", 3), "admission.quota=1", "admission.queue_length=1")...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "ok", "rejected queue_full 429"}, outcomes(requests))
	require.InDelta(t, 0.096, value(t, requests[1].TTFT), 1e-12)
	require.Equal(t, attemptTally{Attempts: 3, Queued: 1, QueueFull: 1}, member[attemptTally](t, phase, "admission"))
}

// Waiting ends in a 429 when the timeout is over.
func TestAdmissionQueueTimeout(t *testing.T) {
	sc := small(t, append(every("20ms", 2), "admission.quota=1", "admission.queue_length=1", `admission.queue_timeout="50ms"`)...)
	phase, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "rejected queue_timeout 429"}, outcomes(requests))
	require.InDelta(t, 0.051, e2e(t, requests[1]), 1e-12)
	require.Equal(t, 1, member[attemptTally](t, phase, "admission").QueueTimeout)
}

// A client that gives up in the queue leaves its place to the next, which passes
// when the first has ended.
func TestGivingUpInTheQueue(t *testing.T) {
	sc := small(t, append(every("20ms", 4), "admission.quota=1", "admission.queue_length=1", `workload.read_timeout="30ms"`)...)
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "failed read_timeout", "rejected queue_full 429", "failed read_timeout"}, outcomes(requests))
	require.False(t, requests[1].HTTPStatus.Valid(), "no answer")
}

// The bucket holds two tokens and gains one a second.
func TestTokenBucket(t *testing.T) {
	sc := small(t, append(every("500ms", 6), "admission.rate_per_second=1.0", "admission.burst=2.0")...)
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	// Levels before each: 2, 1.5, 1, 0.5, 1, 0.5.
	require.Equal(t, []string{"ok", "ok", "ok", "rejected over_rate 429", "ok", "rejected over_rate 429"}, outcomes(requests))
}

// Nothing is retried unless it is asked for, and then every attempt is counted.
// The second arrival is refused at 40 ms and has its 429 at 41 ms; tried again
// 60 ms later, at 101 ms, it is refused once more; after twice that, at 222 ms, it
// passes. Its times count from its first sending.
func TestRetries(t *testing.T) {
	sets := append(every("40ms", 2), "admission.quota=1", `workload.retry.back_off="60ms"`, "workload.retry.max_attempts=1")
	phase, requests := simulate(t, small(t, sets...), even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "rejected over_quota 429"}, outcomes(requests))
	require.Equal(t, attemptTally{Attempts: 2, OverQuota: 1}, member[attemptTally](t, phase, "admission"))

	sc := small(t, append(sets, "workload.retry.max_attempts=3")...)
	phase, requests = simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "ok"}, outcomes(requests))
	require.InDelta(t, 0.040, value(t, requests[1].Started), 1e-12)
	require.InDelta(t, 0.222-0.040+0.013, value(t, requests[1].TTFT), 1e-12)
	require.Equal(t, attemptTally{Attempts: 4, Retries: 2, OverQuota: 2}, member[attemptTally](t, phase, "admission"))
	require.Equal(t, record.Some(2), phase.Planned)
	require.Equal(t, record.Some(0), phase.Rejected)
}

// The budget of a tenth of the first attempts stops a storm: with 20 arrivals at
// once, two are retried.
func TestRetryBudget(t *testing.T) {
	sc := small(t, append(every("1ms", 20), "admission.quota=1", `workload.retry.back_off="10ms"`, "workload.retry.max_attempts=9", "workload.retry.budget=0.1")...)
	phase, _ := simulate(t, sc, even(t), "least-request", 1)
	tally := member[attemptTally](t, phase, "admission")
	require.Equal(t, 2, tally.Retries)
	require.Equal(t, 22, tally.Attempts)
	require.Equal(t, record.Some(19), phase.Rejected)
}

// While it waits to try again a client holds its place in flight.
func TestBackingOffIsInFlight(t *testing.T) {
	sc := small(t, append(every("40ms", 3), "admission.quota=1", `workload.retry.back_off="60ms"`, "workload.retry.max_attempts=3", "workload.in_flight_cap=2")...)
	_, requests := simulate(t, sc, even(t), "least-request", 1)
	require.Equal(t, []string{"ok", "ok", "dropped"}, outcomes(requests))
}
