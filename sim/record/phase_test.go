package record_test

import (
	"encoding/json"
	"math"
	"reflect"
	"strings"
	"testing"

	"fleetsim/sim/record"
)

func samplePhase() record.Phase {
	n, f := record.Some[int], record.Some[float64]
	q := record.Percentiles{P50: f(0.2), P95: f(7.5), P99: f(8), N: n(90)}
	return record.Phase{
		Phase: "hot90-prefix-cache", Scenario: "hot90", Route: "prefix-cache", Round: n(2), Seed: record.Some(uint64(math.MaxUint64)),
		Planned: n(96), Requests: n(95), Success: n(90), Errors: n(5), Dropped: n(1), Rejected: n(4), Failed: n(1), Good: n(61),
		Started: f(0), Finished: f(66.5), Elapsed: f(66.5), OutputTokensPerSecond: f(184.7),
		TTFT: q, TPOT: record.Percentiles{N: n(0)}, E2E: q,
		Families: []record.Family{{Name: "10", Requests: n(90), TTFTP95: f(8)}, {Name: "2", Requests: n(5)}},
		Tenants: []record.Tenant{{Name: "A", Requests: n(95), Success: n(90), Errors: n(5), Rejected: n(4), Failed: n(1),
			StatusCounts: record.Counts{{"200", 90}, {"429", 4}, {"502", 1}}, TTFT: q}},
		Replicas: []record.Replica{
			{Name: "pod-1", Requests: n(50), CacheQueriesTokens: n(100), CacheHitTokens: n(75), WaitingPeak: n(3), RunningPeak: n(8),
				KVUsagePeak: f(0.25), WaitingMax: n(4), RunningMax: n(8), KVUsageMax: f(0.3),
				FamilyCounts: record.Counts{{"2", 5}, {"10", 45}}, Preemptions: n(0), GatewayOutstandingAtSelectionPeak: n(16),
				Other: map[string]json.RawMessage{"ready_at": json.RawMessage("3")}},
			{Name: "pod-0"},
		},
		CacheHitRatio: f(0.75), InputTokensRange: record.Range{Min: n(5036), Max: n(5054)},
		RoutingCounterDeltas: []record.CounterDelta{{Name: "selection_total", Labels: map[string]string{"b": "2", "a": `"1"`}, Delta: 95}},
		ErrorCategories:      record.Counts{{"rejected", 4}, {"stream_broken", 1}},
		Simulated:            true, Steps: n(1000), Events: n(5000), Notes: []string{"a note"},
		Other: map[string]json.RawMessage{"timeline": json.RawMessage(`[{"t": 0}]`), "assumed": json.RawMessage(`"x"`)},
	}
}

const sampleLine = `{"phase":"hot90-prefix-cache","round":2,"scenario":"hot90","route":"prefix-cache","seed":18446744073709551615,` +
	`"planned":96,"requests":95,"success":90,"errors":5,"dropped":1,"rejected":4,"failed":1,"good":61,` +
	`"started_relative_seconds":0,"finished_relative_seconds":66.5,"elapsed":66.5,"output_tokens_per_second":184.7,` +
	`"ttft":{"p50":0.2,"p95":7.5,"p99":8,"n":90},"tpot":{"p50":null,"p95":null,"p99":null,"n":0},"e2e":{"p50":0.2,"p95":7.5,"p99":8,"n":90},` +
	`"families":{"10":{"requests":90,"ttft_p95":8},"2":{"requests":5,"ttft_p95":null}},` +
	`"tenants":{"A":{"planned":null,"requests":95,"success":90,"errors":5,"dropped":null,"rejected":4,"failed":1,"good":null,` +
	`"output_tokens_per_second":null,"status_counts":{"200":90,"429":4,"502":1},"input_tokens_range":null,` +
	`"ttft":{"p50":0.2,"p95":7.5,"p99":8,"n":90},"tpot":{"p50":null,"p95":null,"p99":null},"e2e":{"p50":null,"p95":null,"p99":null},` +
	`"ttft_p95_seconds":7.5,"tpot_p95_seconds":null}},` +
	`"replicas":{"pod-1":{"requests":50,"cache_queries_tokens":100,"cache_hit_tokens":75,"waiting_peak":3,"running_peak":8,"kv_usage_peak":0.25,` +
	`"waiting_max":4,"running_max":8,"kv_usage_max":0.3,"family_counts":{"2":5,"10":45},"preemptions":0,"gateway_outstanding_at_selection_peak":16,"ready_at":3},` +
	`"pod-0":{"requests":null,"cache_queries_tokens":null,"cache_hit_tokens":null,"waiting_peak":null,"running_peak":null,"kv_usage_peak":null,` +
	`"family_counts":null,"preemptions":null,"gateway_outstanding_at_selection_peak":null}},` +
	`"cache_hit_ratio":0.75,"input_tokens_range":[5036,5054],` +
	`"routing_counter_deltas":[{"name":"selection_total","labels":{"a":"\"1\"","b":"2"},"delta":95}],` +
	`"error_categories":{"rejected":4,"stream_broken":1},"simulated":true,"steps":1000,"events":5000,"notes":["a note"],` +
	`"assumed":"x","timeline":[{"t":0}]}`

func TestPhaseJSON(t *testing.T) {
	p := samplePhase()
	var out strings.Builder
	if err := record.WritePhase(&out, &p); err != nil {
		t.Fatal(err)
	}
	equal(t, "line", out.String(), sampleLine+"\n")

	marshalled, err := json.Marshal([]record.Phase{p})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "by encoding/json", string(marshalled), "["+sampleLine+"]")

	got, err := record.ReadPhases("f", strings.NewReader(out.String()))
	if err != nil {
		t.Fatal(err)
	}
	p.Other["timeline"] = json.RawMessage(`[{"t":0}]`) // read compact
	if !reflect.DeepEqual(got, []record.Phase{p}) {
		t.Errorf("read: %+v\nwant: %+v", got[0], p)
	}
}

// Not captured, none and never zero: the three are kept apart.
func TestAbsentIsNotEmpty(t *testing.T) {
	for _, in := range []string{
		`{"phase":"p","routing_counter_deltas":null,"families":null,"replicas":null}`,
		`{"phase":"p","routing_counter_deltas":[],"families":{},"replicas":{}}`,
		`{"phase":"p"}`,
	} {
		phases, err := record.ReadPhases("f", strings.NewReader(in))
		if err != nil {
			t.Fatal(err)
		}
		line, err := phases[0].AppendJSON(nil)
		if err != nil {
			t.Fatal(err)
		}
		empty := strings.Contains(in, "[]")
		for null, none := range map[string]string{
			`"routing_counter_deltas":null`: `"routing_counter_deltas":[]`, `"families":null`: `"families":{}`, `"replicas":null`: `"replicas":{}`,
		} {
			want := null
			if empty {
				want = none
			}
			if !strings.Contains(string(line), want) {
				t.Errorf("%s is written as %s: no %s", in, line, want)
			}
		}
		equal(t, "errors", phases[0].Errors, record.Int{})
		equal(t, "planned", phases[0].Planned, record.Int{})
		equal(t, "good share", phases[0].GoodShare(), record.Float{})
	}
}

func TestExtend(t *testing.T) {
	var p record.Phase
	if err := p.Extend("timeline", []int{1, 2}); err != nil {
		t.Fatal(err)
	}
	line, err := p.AppendJSON(nil)
	if err != nil || !strings.HasSuffix(string(line), `,"timeline":[1,2]}`) {
		t.Errorf("%s, %v", line, err)
	}
	if err := p.Extend("good", 3); err == nil {
		t.Error("an extension may replace a member of the schema")
	}
	if err := p.Extend("x", math.NaN()); err == nil {
		t.Error("an extension may be NaN")
	}
	p.Other["broken"] = json.RawMessage("{")
	if line, err := p.AppendJSON([]byte("kept")); err == nil || string(line) != "kept" {
		t.Errorf("an extension that is not JSON is written: %s, %v", line, err)
	}
	p = record.Phase{Replicas: []record.Replica{{Name: "a", Other: map[string]json.RawMessage{"requests": json.RawMessage("1")}}}}
	if _, err := p.AppendJSON(nil); err == nil {
		t.Error("a replica's extension may replace a member of the schema")
	}
}

// Every member that is written has a name that an extension may not take, so that
// no record can have a name twice.
func TestEveryMemberIsReserved(t *testing.T) {
	p := samplePhase()
	p.Other = nil
	line, err := p.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(line, &members); err != nil {
		t.Fatal(err)
	}
	equal(t, "members", len(members), 31)
	for name := range members {
		if err := p.Extend(name, 1); err == nil {
			t.Errorf("%q may be taken by an extension", name)
		}
	}
}

func TestHitRatio(t *testing.T) {
	n := record.Some[int]
	r := func(hits, queries record.Int) record.Replica {
		return record.Replica{CacheHitTokens: hits, CacheQueriesTokens: queries}
	}
	equal(t, "both", record.CacheHitRatio([]record.Replica{r(n(1), n(10)), r(n(5), n(10))}), record.Some(0.3))
	equal(t, "one without counters", record.CacheHitRatio([]record.Replica{r(n(1), n(10)), {}}), record.Float{})
	equal(t, "nothing queried", record.CacheHitRatio([]record.Replica{r(n(0), n(0))}), record.Float{})
	equal(t, "no replica", record.CacheHitRatio(nil), record.Float{})
}

func TestSummarizeGroups(t *testing.T) {
	reqs := readRequests(t, // in completion order
		`{"result":"ok","tenant":"B","family":10,"replica":"b","started_relative_seconds":2,"ttft":1,"e2e":3,"output_tokens":5,"input_tokens":30,"http_status":200}`,
		`{"result":"ok","tenant":"A","family":2,"replica":"b","started_relative_seconds":1,"ttft":2,"e2e":9,"output_tokens":5,"input_tokens":20,"http_status":200}`,
		`{"result":"rejected","tenant":"B","family":2,"started_relative_seconds":4,"http_status":429,"e2e":0.1}`,
		`{"result":"dropped","tenant":"B","family":2,"started_relative_seconds":3}`,
		`{"result":"failed","tenant":"A","family":10,"replica":"a","started_relative_seconds":5,"e2e":7,"http_status":200,"error_category":"drain"}`,
	)
	p := record.Summarize(reqs, record.SLO{}, record.Meta{
		Phase: "p", Scenario: "s", Route: "random", Seed: record.Some(uint64(7)), Replicas: []string{"c", "b"}, Simulated: true,
	})
	line, err := p.AppendJSON(nil)
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Planned, Requests, Success, Errors, Dropped, Rejected, Failed, Good int
		Elapsed                                                             float64
		Throughput                                                          float64 `json:"output_tokens_per_second"`
		Families                                                            json.RawMessage
		Replicas                                                            map[string]struct {
			Requests     int
			FamilyCounts json.RawMessage `json:"family_counts"`
		}
		Range      json.RawMessage `json:"input_tokens_range"`
		Categories json.RawMessage `json:"error_categories"`
		Simulated  bool
	}
	if err := json.Unmarshal(line, &got); err != nil {
		t.Fatal(err)
	}
	equal(t, "counts", [8]int{got.Planned, got.Requests, got.Success, got.Errors, got.Dropped, got.Rejected, got.Failed, got.Good},
		[8]int{5, 4, 2, 2, 1, 1, 1, 2})
	equal(t, "elapsed", got.Elapsed, 11) // from 1 to 5+7
	equal(t, "throughput", got.Throughput, 10.0/11)
	equal(t, "families", string(got.Families), `{"2":{"requests":2,"ttft_p95":2},"10":{"requests":2,"ttft_p95":1}}`)
	equal(t, "replica order", []string{p.Replicas[0].Name, p.Replicas[1].Name, p.Replicas[2].Name}[2], "a")
	equal(t, "c", got.Replicas["c"].Requests, 0)
	equal(t, "b", string(got.Replicas["b"].FamilyCounts), `{"2":1,"10":1}`)
	equal(t, "range", string(got.Range), "[20,30]")
	equal(t, "categories", string(got.Categories), `{"drain":1,"rejected":1}`)
	equal(t, "tenants", len(p.Tenants), 2)
	b := p.Tenants[1]
	equal(t, "B planned", b.Planned, record.Some(3))
	equal(t, "B dropped", b.Dropped, record.Some(1))
	equal(t, "B answers", countsText(b.StatusCounts), "200:1 429:1")
}

// Arrivals that have no record count as dropped; whose they were is unknown when
// there are several tenants.
func TestSummarizePlanned(t *testing.T) {
	reqs := readRequests(t, `{"result":"ok","output_tokens":1,"tenant":"A"}`, `{"result":"ok","output_tokens":1,"tenant":"B"}`)
	p := record.Summarize(reqs, record.SLO{}, record.Meta{Planned: record.Some(5)})
	equal(t, "planned", p.Planned, record.Some(5))
	equal(t, "dropped", p.Dropped, record.Some(3))
	equal(t, "success share", p.SuccessShare(), record.Some(0.4))
	equal(t, "A planned", p.Tenants[0].Planned, record.Int{})

	p = record.Summarize(reqs[:1], record.SLO{}, record.Meta{Planned: record.Some(5)})
	equal(t, "only tenant planned", p.Tenants[0].Planned, record.Some(5))

	p = record.Summarize(reqs, record.SLO{}, record.Meta{Planned: record.Some(1)})
	equal(t, "planned less than recorded", p.Planned, record.Some(2))
	equal(t, "dropped", p.Dropped, record.Some(0))
	equal(t, "said", p.Notes[len(p.Notes)-1], "2 records of 1 planned arrivals: taken as 2 planned")

	p = record.Summarize(nil, record.StudySLO(), record.Meta{Phase: "nothing"})
	equal(t, "planned of nothing", p.Planned, record.Some(0))
	equal(t, "share of nothing", p.GoodShare(), record.Float{})
	equal(t, "elapsed of nothing", p.Elapsed, record.Float{})
	equal(t, "throughput of nothing", p.OutputTokensPerSecond, record.Float{})
}
