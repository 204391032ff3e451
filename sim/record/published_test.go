package record_test

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"

	"fleetsim/sim/record"
)

// The published figures follow from the published requests, up to the rounding of
// their times (0.1 ms; TPOT 1 µs).
func TestSummaryEqualsPublished(t *testing.T) {
	phases := readMeasuredPhases(t, "production-study-phases.jsonl")
	reqs, err := record.ReadRequests("production-requests.jsonl", openMeasured(t, "production-requests.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "requests in all", len(reqs), 1650)
	byPhase := make(map[string][]record.Request)
	for _, r := range reqs {
		byPhase[r.Phase] = append(byPhase[r.Phase], r)
		if good := record.StudySLO().Good(&r); record.Some(good) != r.Good {
			t.Errorf("%s at %v s: good %v, published %v", r.Phase, r.Started, good, r.Good)
		}
	}
	equal(t, "phases with requests", len(byPhase), 7)
	for _, want := range phases {
		reqs := byPhase[want.Phase]
		if len(reqs) == 0 {
			continue
		}
		t.Run(want.Phase, func(t *testing.T) {
			got := record.Summarize(reqs, record.StudySLO(), record.Meta{
				Phase: want.Phase, Planned: want.Planned, Elapsed: want.Elapsed,
			})
			equal(t, "planned", got.Planned, want.Planned)
			equal(t, "requests", got.Requests, want.Requests)
			equal(t, "success", got.Success, want.Success)
			equal(t, "errors", got.Errors, want.Errors)
			equal(t, "dropped", got.Dropped, want.Dropped)
			equal(t, "rejected", got.Rejected, want.Rejected)
			equal(t, "good", got.Good, want.Good)
			near(t, "throughput", got.OutputTokensPerSecond, want.OutputTokensPerSecond, 1e-9)
			nearPercentiles(t, "ttft", got.TTFT, want.TTFT, 1.0001e-4/2)
			nearPercentiles(t, "tpot", got.TPOT, want.TPOT, 1.0001e-6/2)
			nearPercentiles(t, "e2e", got.E2E, want.E2E, 1.0001e-4/2)
			equal(t, "tenants", len(got.Tenants), 1)
			equal(t, "tenant input range", got.Tenants[0].InputTokensRange, want.Tenants[0].InputTokensRange)
			equal(t, "tenant answers", got.Tenants[0].StatusCounts.Of("200"), want.Tenants[0].StatusCounts.Of("200"))
			near(t, "tenant ttft p95", got.Tenants[0].TTFT.P95, want.Tenants[0].TTFT.P95, 1e-4)

			// Without the published length, that of the records is close to it.
			alone := record.Summarize(reqs, record.StudySLO(), record.Meta{})
			near(t, "elapsed", alone.Elapsed, want.Elapsed, 0.02)
		})
	}
}

func near(t testing.TB, what string, got, want record.Float, within float64) {
	t.Helper()
	g, haveGot := got.Get()
	w, haveWant := want.Get()
	if !haveGot || !haveWant || math.Abs(g-w) > within {
		t.Errorf("%s: got %v, want %v ± %g", what, got, want, within)
	}
}

func nearPercentiles(t testing.TB, what string, got, want record.Percentiles, within float64) {
	t.Helper()
	near(t, what+".p50", got.P50, want.P50, within)
	near(t, what+".p95", got.P95, want.P95, within)
	near(t, what+".p99", got.P99, want.P99, within)
}

func TestReadRoutingStudy(t *testing.T) {
	phases := readMeasuredPhases(t, "routing-study-phases.jsonl")
	equal(t, "phases", len(phases), 24)
	notCaptured, noneMoved := 0, 0
	for _, p := range phases {
		equal(t, p.Phase+" planned", p.Planned, record.Some(96))
		equal(t, p.Phase+" requests", p.Requests, record.Some(96))
		equal(t, p.Phase+" success", p.Success, record.Some(96))
		equal(t, p.Phase+" errors", p.Errors, record.Some(0))
		equal(t, p.Phase+" rejected", p.Rejected, record.Some(0))
		equal(t, p.Phase+" failed", p.Failed, record.Some(0))
		equal(t, p.Phase+" dropped", p.Dropped, record.Some(0))
		equal(t, p.Phase+" families", len(p.Families), 8)
		equal(t, p.Phase+" replicas", len(p.Replicas), 2)
		equal(t, p.Phase+" replica 0", p.Replicas[0].Name, "L20-A")
		equal(t, p.Phase+" replica 1", p.Replicas[1].Name, "L20-B")
		equal(t, p.Phase+" hit ratio", record.CacheHitRatio(p.Replicas), p.CacheHitRatio)
		equal(t, p.Phase+" tenants absent", p.Tenants == nil, true)
		switch {
		case p.RoutingCounterDeltas == nil:
			notCaptured++
		case len(p.RoutingCounterDeltas) == 0:
			noneMoved++
		}
	}
	equal(t, "phases whose counters were not captured", notCaptured, 3)
	equal(t, "phases where no counter moved", noneMoved, 14)

	p := phases[len(phases)-1]
	for _, q := range phases {
		if q.Phase == "r2-hot90-prefix-cache" {
			p = q
		}
	}
	equal(t, "route", p.Route, "prefix-cache")
	equal(t, "scenario", p.Scenario, "hot90")
	equal(t, "round", p.Round, record.Some(2))
	equal(t, "seed", p.Seed, record.Some(uint64(103)))
	equal(t, "good", p.Good, record.Some(61))
	equal(t, "ttft.p95", p.TTFT.P95, record.Some(8.00105095654726))
	equal(t, "family 1", p.Families[1], record.Family{Name: "1", Requests: record.Some(2), TTFTP95: record.Some(7.919788390025497)})
	equal(t, "A's families", countsText(p.Replicas[0].FamilyCounts), "5:1 0:34 4:1 7:1 6:1")
	equal(t, "B outstanding", p.Replicas[1].GatewayOutstandingAtSelectionPeak, record.Some(16))
	equal(t, "counters", len(p.RoutingCounterDeltas), 5)
	equal(t, "fallbacks", p.RoutingCounterDeltas[3].Labels["selection"], "least_request_fallback")
	equal(t, "fallbacks", p.RoutingCounterDeltas[3].Delta, 1)
	equal(t, "rps is kept", string(p.Other["rps"]), "1.6")
}

func countsText(c record.Counts) string {
	var parts []string
	for _, e := range c {
		parts = append(parts, e.Name+":"+record.Some(e.N).String())
	}
	return strings.Join(parts, " ")
}

func TestReadProductionStudy(t *testing.T) {
	phases := readMeasuredPhases(t, "production-study-phases.jsonl")
	equal(t, "phases", len(phases), 13)
	sent := 0
	byName := make(map[string]record.Phase)
	for _, p := range phases {
		sent += p.Requests.Or(0)
		byName[p.Phase] = p
		equal(t, p.Phase+" replicas absent", p.Replicas == nil, true)
		equal(t, p.Phase+" counters not captured", p.RoutingCounterDeltas == nil, true)
		equal(t, p.Phase+" hit ratio absent", p.CacheHitRatio, record.Float{})
		equal(t, p.Phase+" config is kept", len(p.Other["config"]) > 0, true)
	}
	equal(t, "requests in all", sent, 2566)

	wave := byName["fixed1-wave"]
	equal(t, "planned", wave.Planned, record.Some(414))
	equal(t, "dropped", wave.Dropped, record.Some(105))
	equal(t, "route", wave.Route, "least-request")
	equal(t, "finished", wave.Finished, record.Some(392.3467252254486))

	drain := byName["drain-native"]
	equal(t, "failed", drain.Failed, record.Some(2))
	equal(t, "rejected", drain.Rejected, record.Some(0))
	equal(t, "no route was set", drain.Route, "")

	protected := byName["tenants-protected"]
	equal(t, "rejected", protected.Rejected, record.Some(95))
	equal(t, "failed", protected.Failed, record.Some(0))
	equal(t, "planned", protected.Planned, record.Some(210))
	b := protected.Tenants[1]
	equal(t, "B", b.Name, "B")
	equal(t, "B rejected", b.Rejected, record.Some(95))
	equal(t, "B ttft p95", b.TTFT.P95, record.Some(0.5915707375854253))
	equal(t, "B ttft p50 is not measured", b.TTFT.P50, record.Float{})
}

// What was read is written without loss: reading it again gives the same.
func TestPhasesRoundTrip(t *testing.T) {
	for _, name := range []string{"routing-study-phases.jsonl", "production-study-phases.jsonl"} {
		phases := readMeasuredPhases(t, name)
		var out bytes.Buffer
		for i := range phases {
			if err := record.WritePhase(&out, &phases[i]); err != nil {
				t.Fatal(err)
			}
		}
		first := out.String()
		again, err := record.ReadPhases("again", &out)
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(again, phases) {
			t.Errorf("%s: written and read again it differs", name)
		}
		for i := range again {
			if err := record.WritePhase(&out, &again[i]); err != nil {
				t.Fatal(err)
			}
		}
		equal(t, name+" written twice", out.String(), first)
	}
}
