package metrics

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

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

func TestOpenMetricsLines(t *testing.T) {
	var out bytes.Buffer
	w := lineWriter{w: &out}
	w.text = appendHead(w.text, "vllm:g", "A \\ gauge.", Gauge)
	w.starts = lineStarts("vllm:g", Gauge, nil, []Label{{"name", "a\"b\\c\nd"}})
	require.NoError(t, w.point(1, 1))
	require.NoError(t, w.point(2.5, 2))
	w.starts = lineStarts("vllm:g", Gauge, nil, nil)
	require.NoError(t, w.point(1, 3))
	w.starts = lineStarts("c", Counter, nil, nil)
	require.NoError(t, w.point(1, 1e21))
	h := NewHistogram([]float64{0.5, 1})
	h.Observe(0.5)
	h.ObserveN(0.75, 2)
	h.Observe(9)
	w.starts = lineStarts("h", HistogramType, h.Bounds, []Label{{"x", "y"}})
	require.NoError(t, w.point(1, h.appendValues(nil)...))
	require.NoError(t, w.flush())
	require.Equal(t, strings.Join([]string{
		`# HELP vllm:g A \\ gauge.`,
		`# TYPE vllm:g gauge`,
		`vllm:g{name="a\"b\\c\nd"} 1 1.000`,
		`vllm:g{name="a\"b\\c\nd"} 2 2.500`,
		`vllm:g 3 1.000`,
		`c_total 1e+21 1.000`,
		`h_bucket{x="y",le="0.5"} 1 1.000`,
		`h_bucket{x="y",le="1.0"} 3 1.000`,
		`h_bucket{x="y",le="+Inf"} 4 1.000`,
		`h_sum{x="y"} 11 1.000`,
		`h_count{x="y"} 4 1.000`, ``,
	}, "\n"), out.String())
}

// The short way for counts writes what the long one would.
func TestAppendValue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := rapid.OneOf(rapid.Float64(), rapid.Map(rapid.IntRange(-10, 2e6), func(n int) float64 { return float64(n) })).Draw(t, "v")
		require.Equal(t, strconv.FormatFloat(v, 'g', -1, 64), string(appendValue(nil, v)))
	})
	for v, want := range map[float64]string{math.Inf(1): "+Inf", math.Inf(-1): "-Inf", math.Copysign(0, -1): "-0", 999_999: "999999", 1e6: "1e+06"} {
		require.Equal(t, want, string(appendValue(nil, v)))
	}
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

// A phaseRun is a phase with the records behind it.
type phaseRun struct {
	Phase    record.Phase
	Requests []record.Request
	Timeline []Sample
}

// export takes the runs; its spool holds that many events in memory.
func export(t testing.TB, runs []phaseRun, o Options, limit int) *Export {
	var phases []record.Phase
	for _, r := range runs {
		phases = append(phases, r.Phase)
	}
	o.Dir = t.TempDir()
	x, err := NewExport(phases, o)
	require.NoError(t, err)
	x.spool.limit = limit
	for i, r := range runs {
		for k := range r.Timeline {
			x.Sample(i, &r.Timeline[k])
		}
		for k := range r.Requests {
			x.Request(i, &r.Requests[k])
		}
	}
	return x
}

func openMetrics(t testing.TB, x *Export) string {
	var out bytes.Buffer
	require.NoError(t, x.WriteOpenMetrics(&out))
	require.NoError(t, x.Close())
	return out.String()
}

// Two requests by hand, in steps of a second: a runs 0.5 to 2.5 s on A, b is
// dropped at 1 s.
func TestExport(t *testing.T) {
	run := phaseRun{
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
	x := export(t, []phaseRun{run, run}, Options{Start: 1000, Step: 1, Gap: 100, Model: "m"}, spoolEvents)
	spans, err := x.Spans()
	require.NoError(t, err)
	require.Equal(t, []Span{{"p", "prefix-cache", 1000, 1004}, {"p", "prefix-cache", 1140, 1144}}, spans, "the next phase begins on a minute")
	text := openMetrics(t, x)
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
		_, err := NewExport(nil, Options{Step: step})
		require.ErrorContains(t, err, "step")
	}
	x, err := NewExport([]record.Phase{{Phase: "long", Elapsed: record.Some(1e9)}}, Options{Step: 0.001})
	require.NoError(t, err)
	_, err = x.Spans()
	require.ErrorContains(t, err, "long")
	require.Equal(t, err, x.WriteOpenMetrics(io.Discard))
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
		require.NoError(t, record.WritePhase(w, &record.Phase{Phase: "p", Route: route, Seed: record.Some(uint64(1)), Requests: record.Some(1), Dropped: record.Some(1),
			Replicas: []record.Replica{{Name: "A"}}}))
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

	x, err := ReadRunDir(t.Context(), dir, Options{Step: 1})
	require.NoError(t, err)
	text := openMetrics(t, x)
	for _, want := range []string{
		`vllm:num_requests_waiting{model_name="",engine="0",node_alias="A",phase="p",route="random"} 3 0.000`,
		`vllm:num_requests_waiting{model_name="",engine="0",node_alias="A",phase="p",route="prefix-cache"} 4 60.000`,
		`client_requests_total{result="ok",phase="p",route="random"} 2 0.000`,
		`client_requests_total{result="ok",phase="p",route="prefix-cache"} 2 60.000`,
	} {
		require.Contains(t, text, want+"\n")
	}
	require.Equal(t, 2, strings.Count(text, "vllm:num_requests_waiting{"), "what is of no phase is left out")

	for _, name := range []string{record.RequestsFile, sim.TimelineFile} {
		inTwoStreams(t, filepath.Join(dir, name))
	}
	x, err = ReadRunDir(t.Context(), dir, Options{Step: 1})
	require.NoError(t, err)
	require.Equal(t, text, openMetrics(t, x), "several gzip streams are one file")

	timeline := filepath.Join(dir, sim.TimelineFile)
	data, err := os.ReadFile(timeline)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(timeline, append(data, "garbage"...), 0o600))
	_, err = ReadRunDir(t.Context(), dir, Options{Step: 1})
	require.EqualError(t, err, timeline+":4: the gzip data end, and something that is no gzip follows")
}

// inTwoStreams packs a packed file anew, its first line by itself.
func inTwoStreams(t *testing.T, name string) {
	data, err := os.ReadFile(name)
	require.NoError(t, err)
	r, err := gzip.NewReader(bytes.NewReader(data))
	require.NoError(t, err)
	text, err := io.ReadAll(r)
	require.NoError(t, err)
	first := bytes.IndexByte(text, '\n') + 1
	var out bytes.Buffer
	for _, part := range [][]byte{text[:first], text[first:]} {
		w := gzip.NewWriter(&out)
		_, err := w.Write(part)
		require.NoError(t, err)
		require.NoError(t, w.Close())
	}
	require.NoError(t, os.WriteFile(name, out.Bytes(), 0o600))
}

func TestReadRunDirProblems(t *testing.T) {
	_, err := ReadRunDir(t.Context(), t.TempDir(), Options{Step: 1})
	require.ErrorContains(t, err, record.PhasesFile)
	require.ErrorContains(t, err, record.RequestsFile)

	dir := t.TempDir()
	require.NoError(t, record.WriteDir(dir, []record.Phase{{Phase: "p", Route: "random", Requests: record.Some(3)}}, []record.Request{{Phase: "p", Result: record.OK}}))
	_, err = ReadRunDir(t.Context(), dir, Options{Step: 1})
	require.ErrorContains(t, err, "says 3 requests; the request records hold 1")

	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err = ReadRunDir(ctx, dir, Options{Step: 1})
	require.ErrorContains(t, err, "canceled")
}
