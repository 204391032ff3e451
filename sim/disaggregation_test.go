package sim

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
	"fleetsim/simtime"
)

// disaggregated is one prefill pod, L20-A, and one decode pod, L20-B, whose
// transfers take 5 ms and 10 us a token.
func disaggregated(sets ...string) []string {
	return append(burst(1, "cluster.pd.prefill=1", "cluster.pd.transfer_latency=5ms", "cluster.pd.transfer_per_token=10us",
		"workload.output_tokens=3", "workload.prompt.salt_tokens_spread=0"), sets...)
}

func runPD(t require.TestingT, s Setup) (*record.Phase, []record.Request) {
	var requests []record.Request
	s.Policy = "pd"
	s.Each = func(r *record.Request) { requests = append(requests, *r) }
	phase, err := Run(s)
	require.NoError(t, err)
	return phase, requests
}

func pdRecord(t require.TestingT, p *record.Phase) (d disaggregation) {
	require.NoError(t, json.Unmarshal(p.Other["disaggregation"], &d))
	return d
}

// A prompt of 406 tokens is prefilled from 1 to 11 ms; its KV is at the decode pod
// at 11 + 5 + 4.06 ms, and three steps give three tokens.
func TestDisaggregatedRequest(t *testing.T) {
	sc := onTwo(t, disaggregated()...)
	phase, requests := runPD(t, Setup{Scenario: sc, Profile: plain(t)})
	r := requests[0]
	require.Equal(t, record.Some(406), r.InputTokens)
	require.InDelta(t, 0.02006+0.010+0.002, value(t, r.TTFT), 1e-12)
	require.InDelta(t, 0.02006+0.030+0.002, value(t, r.E2E), 1e-12)
	require.Equal(t, record.Some(3), r.OutputTokens)
	require.Equal(t, "L20-B", r.Replica)
	require.InDelta(t, 0, value(t, r.QueueSeconds), 1e-12)
	d := pdRecord(t, phase)
	require.Equal(t, map[string]int{"L20-A": 1}, d.Prefills)
	require.Equal(t, 406, d.Transferred)
}

// The request is in flight on the decode pod from the end of its prefill to the
// end of its stream, and on the prefill pod never.
func TestCountsOfADisaggregatedRequest(t *testing.T) {
	sc := onTwo(t, disaggregated()...)
	r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "pd"})
	require.NoError(t, err)
	r.start()
	at := func(us simtime.Time) [2]int {
		for r.upcoming() <= us*simtime.Microsecond {
			r.step()
		}
		return [2]int{r.gateways.running(0), r.gateways.running(1)}
	}
	require.Equal(t, [2]int{0, 0}, at(10_999))
	require.Equal(t, [2]int{0, 1}, at(11_000))
	require.Equal(t, [2]int{0, 1}, at(52_059))
	require.Equal(t, [2]int{0, 0}, at(52_060))
}

// The second request of a family finds the prefix on the prefill pod, and the
// record says so; the decode pod computed nothing but last tokens.
func TestPrefixOfADisaggregatedRequest(t *testing.T) {
	sc := onTwo(t, disaggregated("workload.requests=2", "workload.prompt.families=1", "workload.prompt.body_repeat=300")...)
	phase, requests := runPD(t, Setup{Scenario: sc, Profile: plain(t)})
	require.Equal(t, record.Some(0), requests[0].CachedTokens)
	require.Equal(t, record.Some(4704), requests[1].CachedTokens)
	require.Equal(t, record.Some(99), requests[1].MatchPercent, "all but the question")
	require.Equal(t, map[string]int{"L20-A": 2}, pdRecord(t, phase).Prefills)
}

// Two role sets of one prefill and one decode pod each; the scenario's pods are
// dealt out to them in turn, and a request stays inside one.
func TestRoleSets(t *testing.T) {
	sc := onTwo(t, append(burst(40), "cluster.replicas=4", "cluster.names=[]", "cluster.pd.prefill=2", "cluster.pd.role_sets=2")...)
	r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "pd"})
	require.NoError(t, err)
	var roles []string
	for _, rep := range r.replicas {
		roles = append(roles, rep.role+" "+rep.roleSet)
	}
	require.Equal(t, []string{"prefill roleset-0", "prefill roleset-1", "decode roleset-0", "decode roleset-1"}, roles)
	phase, err := r.simulate(context.Background())
	require.NoError(t, err)
	require.Equal(t, 40, phase.Success.Or(0))
	d := pdRecord(t, phase)
	require.Equal(t, phase.Replicas[2].Requests.Or(-1), d.Prefills["pod-0"])
	require.Equal(t, phase.Replicas[3].Requests.Or(-1), d.Prefills["pod-1"])
	require.Equal(t, 20, d.Prefills["pod-0"])
}

// A replica made in another's place takes its role.
func TestRoleOfAReplacement(t *testing.T) {
	for _, victim := range []string{"pod-1", "pod-3"} {
		sc := onTwo(t, append(burst(8), "cluster.replicas=4", "cluster.names=[]", "cluster.pd.prefill=2", "cluster.pd.role_sets=2",
			"workload.requests=0", "workload.closed_loop.duration=10s", `faults=[{at="2s",kind="delete",replica="`+victim+`"}]`)...)
		r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "pd"})
		require.NoError(t, err)
		_, err = r.simulate(context.Background())
		require.NoError(t, err)
		require.Len(t, r.replicas, 5)
		old := r.replicas[int(victim[4]-'0')]
		require.Equal(t, old.role, r.replicas[4].role)
		require.Equal(t, "roleset-1", r.replicas[4].roleSet)
	}
}

// A prefill that takes longer than the gateway waits fails, and its pod's engine
// is rid of it: 3 prompts in a row, of which the third would end after 3 s.
func TestPrefillTimeout(t *testing.T) {
	sc := onTwo(t, disaggregated("workload.requests=3", "workload.closed_loop.concurrency=3", "engine.max_num_seqs=1",
		"router.env.AIBRIX_PREFILL_REQUEST_TIMEOUT=1", `faults=[{at="0s",kind="slow",replica="L20-A",factor=40}]`)...)
	p := plain(t)
	setup := Setup{Scenario: sc, Profile: p, Policy: "pd"}
	requests := recorded(&setup)
	r, err := newRun(setup)
	require.NoError(t, err)
	phase, err := r.simulate(context.Background())
	require.NoError(t, err)
	require.Equal(t, 2, phase.Success.Or(0))
	require.Equal(t, 1, pdRecord(t, phase).Timeouts)
	for _, q := range *requests {
		if q.ErrorCategory != "" {
			require.Equal(t, errPrefill, q.ErrorCategory)
			require.Equal(t, record.Some(503), q.HTTPStatus)
			require.InDelta(t, 1.003, value(t, q.E2E), 1e-9)
		}
	}
	require.Zero(t, r.replicas[0].active)
}

// The end of a prefill pod fails the prefills it has; that of a lost node is
// noticed when the gateway's patience ends.
func TestPrefillPodDies(t *testing.T) {
	for kind, after := range map[string]float64{"crash": 0.008, "node_loss": 30.003} {
		sc := onTwo(t, disaggregated(`faults=[{at="6ms",kind="`+kind+`",replica="L20-A"}]`)...)
		_, requests := runPD(t, Setup{Scenario: sc, Profile: plain(t)})
		r := requests[0]
		require.Equal(t, errPrefill, r.ErrorCategory)
		require.Equal(t, record.Some(503), r.HTTPStatus)
		require.InDelta(t, after, value(t, r.E2E), 1e-9, kind)
	}
}

// A decode pod that is gone when the KV arrives refuses the connection.
func TestDecodePodDies(t *testing.T) {
	sc := onTwo(t, disaggregated(`faults=[{at="15ms",kind="crash",replica="L20-B",replace=false}]`)...)
	_, requests := runPD(t, Setup{Scenario: sc, Profile: plain(t)})
	require.Equal(t, errRefused, requests[0].ErrorCategory)
}

// A client that gives up leaves no counts, wherever its request is.
func TestCancelOfADisaggregatedRequest(t *testing.T) {
	for _, after := range []string{"500us", "5ms", "15ms", "25ms"} {
		sc := onTwo(t, disaggregated("workload.cancel.fraction=1", "workload.cancel.after="+after)...)
		r, err := newRun(Setup{Scenario: sc, Profile: plain(t), Policy: "pd"})
		require.NoError(t, err)
		phase, err := r.simulate(context.Background())
		require.NoError(t, err)
		require.Equal(t, 1, phase.Failed.Or(0), after)
		require.Zero(t, r.gateways.running(1))
		require.Zero(t, r.replicas[0].active+r.replicas[1].active)
	}
}

// Other policies take no notice of roles.
func TestRolesDoNotMatterToOthers(t *testing.T) {
	with := onTwo(t, append(burst(10), "cluster.pd.prefill=1")...)
	without := onTwo(t, burst(10)...)
	for _, policy := range []string{"least-request", "prefix-cache"} {
		a, err := Run(Setup{Scenario: with, Profile: plain(t), Policy: policy})
		require.NoError(t, err)
		b, err := Run(Setup{Scenario: without, Profile: plain(t), Policy: policy})
		require.NoError(t, err)
		require.Equal(t, b, a)
	}
}
