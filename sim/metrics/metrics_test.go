package metrics

import (
	"bytes"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"

	"fleetsim/sim"
	"fleetsim/sim/record"
)

func page() []Family {
	h := NewHistogram([]float64{0.5, 1})
	h.Observe(0.5)
	h.ObserveN(0.75, 2)
	h.Observe(9)
	return []Family{
		{Name: "vllm:g", Help: "A \\ gauge.", Type: Gauge, Series: []Series{
			{Labels: []Label{{"name", "a\"b\\c\nd"}}, Points: []Point{{At: 1, Value: 1}, {At: 2.5, Value: 2}}},
			{Points: []Point{{At: 1, Value: 3}}},
		}},
		{Name: "c", Help: "A counter.", Type: Counter, Series: []Series{{Points: []Point{{At: 1, Value: 1e21}}}}},
		{Name: "h", Help: "A histogram.", Type: HistogramType, Series: []Series{{Labels: []Label{{"x", "y"}}, Points: []Point{{At: 1, Histogram: h}}}}},
		{Name: "empty", Help: "No series.", Type: Gauge, Series: []Series{{}}},
	}
}

func TestOpenMetricsText(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteOpenMetrics(&out, page()))
	require.Equal(t, strings.Join([]string{
		`# HELP vllm:g A \\ gauge.`,
		`# TYPE vllm:g gauge`,
		`vllm:g{name="a\"b\\c\nd"} 1 1.000`,
		`vllm:g{name="a\"b\\c\nd"} 2 2.500`,
		`vllm:g 3 1.000`,
		`# HELP c A counter.`,
		`# TYPE c counter`,
		`c_total 1e+21 1.000`,
		`# HELP h A histogram.`,
		`# TYPE h histogram`,
		`h_bucket{x="y",le="0.5"} 1 1.000`,
		`h_bucket{x="y",le="1.0"} 3 1.000`,
		`h_bucket{x="y",le="+Inf"} 4 1.000`,
		`h_sum{x="y"} 11 1.000`,
		`h_count{x="y"} 4 1.000`,
		`# HELP empty No series.`,
		`# TYPE empty gauge`,
		`# EOF`, ``,
	}, "\n"), out.String())
}

// The page is what Prometheus' own parser reads back.
func TestTextPage(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, WriteText(&out, page()))
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(&out)
	require.NoError(t, err)
	gauge := families["vllm:g"].GetMetric()
	require.Equal(t, "a\"b\\c\nd", gauge[0].GetLabel()[0].GetValue())
	require.Equal(t, 2.0, gauge[0].GetGauge().GetValue(), "the last point")
	require.Equal(t, 1e21, families["c_total"].GetMetric()[0].GetCounter().GetValue())
	h := families["h"].GetMetric()[0].GetHistogram()
	require.Equal(t, uint64(4), h.GetSampleCount())
	require.Equal(t, 11.0, h.GetSampleSum())
	require.Equal(t, uint64(3), h.GetBucket()[1].GetCumulativeCount())
}

func TestPercentBucket(t *testing.T) {
	for percent, want := range map[int]string{0: "0", 1: "1-25", 25: "1-25", 26: "26-50", 50: "26-50", 51: "51-75", 76: "76-100", 100: "76-100"} {
		require.Equal(t, want, percentBucket(percent), percent)
	}
}

// Two requests by hand, in steps of a second: a runs 0.5 to 2.5 s on A, b is
// dropped at 1 s.
func TestExport(t *testing.T) {
	run := Run{
		Phase: record.Phase{
			Phase: "p", Route: "prefix-cache", Elapsed: record.Some(2.5), Requests: record.Some(1), Dropped: record.Some(1),
			Replicas: []record.Replica{{Name: "A", CacheQueriesTokens: record.Some(120), CacheHitTokens: record.Some(60)}},
			RoutingCounterDeltas: []record.CounterDelta{{Name: "aibrix_prefix_cache_routing_selection_total",
				Labels: map[string]string{"selection": "prefix_match", "using_kv_sync": "false"}, Delta: 1}},
		},
		Requests: []record.Request{
			{Phase: "p", Result: record.OK, HTTPStatus: record.Some(200), Started: record.Some(0.5), E2E: record.Some(2.0), TTFT: record.Some(1.0),
				InputTokens: record.Some(100), CachedTokens: record.Some(60), OutputTokens: record.Some(11), QueueSeconds: record.Some(0.6),
				Replica: "A", Selection: "prefix_match", MatchPercent: record.Some(60), Good: record.Some(true)},
			{Phase: "p", Result: record.Dropped, Started: record.Some(1.0)},
		},
		Timeline: []Sample{{Phase: "p", Route: "prefix-cache", At: 0.5, Replica: "A", Waiting: 1}},
	}
	families, spans, err := Export([]Run{run, run}, Options{Start: 1000, Step: 1, Gap: 100, Model: "m"})
	require.NoError(t, err)
	require.Equal(t, []Span{{"p", "prefix-cache", 1000, 1004}, {"p", "prefix-cache", 1140, 1144}}, spans, "the next phase begins on a minute")
	var out bytes.Buffer
	require.NoError(t, WriteOpenMetrics(&out, families))
	text := out.String()
	for _, want := range []string{
		`vllm:num_requests_waiting{model_name="m",engine="0",node_alias="A",phase="p",route="prefix-cache"} 1 1000.500`,
		`vllm:prefix_cache_hits_total{model_name="m",engine="0",node_alias="A",phase="p",route="prefix-cache"} 0 1001.000`,
		`vllm:prefix_cache_hits_total{model_name="m",engine="0",node_alias="A",phase="p",route="prefix-cache"} 60 1002.000`,
		`vllm:prefix_cache_queries_total{model_name="m",engine="0",node_alias="A",phase="p",route="prefix-cache"} 100 1003.000`,
		`vllm:prefix_cache_queries_total{model_name="m",engine="0",node_alias="A",phase="p",route="prefix-cache"} 120 1004.000`,
		`vllm:request_success_total{model_name="m",engine="0",node_alias="A",finished_reason="length",phase="p",route="prefix-cache"} 1 1003.000`,
		`aibrix_prefix_cache_routing_selection_total{model="m",selection="prefix_match",using_kv_sync="false",phase="p",route="prefix-cache"} 1 1001.000`,
		`client_requests_in_flight{phase="p",route="prefix-cache"} 1 1002.000`,
		`client_requests_in_flight{phase="p",route="prefix-cache"} 0 1003.000`,
		`client_requests_total{result="dropped",phase="p",route="prefix-cache"} 1 1001.000`,
		`client_requests_good_total{phase="p",route="prefix-cache"} 0 1002.000`,
		`client_requests_good_total{phase="p",route="prefix-cache"} 1 1003.000`,
	} {
		require.Contains(t, text, want+"\n")
	}
	require.Equal(t, 1, strings.Count(text, "# TYPE client_requests counter"), "a family is in one piece")
}

func TestExportRefusesAStepThatIsNone(t *testing.T) {
	for _, step := range []float64{0, -1, 0.0001} {
		_, _, err := Export(nil, Options{Step: step})
		require.ErrorContains(t, err, "step")
	}
	long := Run{Phase: record.Phase{Phase: "long", Elapsed: record.Some(1e9)}}
	_, _, err := Export([]Run{long}, Options{Step: 0.001})
	require.ErrorContains(t, err, "long")
}

// A directory with one scenario under several policies gives each phase its own
// requests and timeline, though all have one name.
func TestReadRunDir(t *testing.T) {
	dir := t.TempDir()
	d, err := record.CreateDir(dir)
	require.NoError(t, err)
	w, err := d.Create(record.PhasesFile)
	require.NoError(t, err)
	for _, route := range []string{"random", "prefix-cache"} {
		require.NoError(t, record.WritePhase(w, &record.Phase{Phase: "p", Route: route, Seed: record.Some(uint64(1)), Requests: record.Some(1), Dropped: record.Some(1)}))
	}
	w, err = d.Create(record.RequestsFile)
	require.NoError(t, err)
	requests := record.NewRequestWriter(w)
	for i := range 4 {
		require.NoError(t, requests.Write(&record.Request{Phase: "p", Index: record.Some(i), Result: record.OK}))
	}
	w, err = d.Create(sim.TimelineFile)
	require.NoError(t, err)
	for _, s := range []sim.Sample{
		{Phase: "p", Route: "random", Seed: 1, Replica: "A", Waiting: 3},
		{Phase: "p", Route: "prefix-cache", Seed: 1, Replica: "A", Waiting: 4},
		{Phase: "q", Route: "random", Seed: 1, Replica: "A"},
	} {
		_, err := w.Write(append(s.AppendJSON(nil), '\n'))
		require.NoError(t, err)
	}
	require.NoError(t, d.Commit())

	runs, err := ReadRunDir(dir)
	require.NoError(t, err)
	require.Len(t, runs, 2)
	require.Equal(t, 2, runs[1].Requests[0].Index.Or(-1))
	require.Len(t, runs[0].Timeline, 1)
	require.Equal(t, 4.0, runs[1].Timeline[0].Waiting)
}

func TestReadRunDirProblems(t *testing.T) {
	_, err := ReadRunDir(t.TempDir())
	require.ErrorContains(t, err, record.PhasesFile)
	require.ErrorContains(t, err, record.RequestsFile)

	dir := t.TempDir()
	require.NoError(t, record.WriteDir(dir, []record.Phase{{Phase: "p", Route: "random", Requests: record.Some(3)}}, []record.Request{{Phase: "p", Result: record.OK}}))
	_, err = ReadRunDir(dir)
	require.ErrorContains(t, err, "says 3 requests; the request records hold 1")
}
