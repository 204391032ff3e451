package metrics

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// simulate runs the scenario under each of its policies, one phase a policy.
func simulate(t *testing.T, name string) []phaseRun {
	sc, err := scenario.Load(name)
	require.NoError(t, err)
	profile, err := profiles.Load(sc.Profile)
	require.NoError(t, err)
	var runs []phaseRun
	for _, policy := range sc.Policies {
		var run phaseRun
		phase, err := sim.Run(sim.Setup{
			Phase: name + "-" + policy, Scenario: sc, Profile: profile, Policy: policy, Seed: sc.Seed,
			Each: func(r *record.Request) { run.Requests = append(run.Requests, *r) },
			Sample: func(s sim.Sample) {
				var line Sample
				require.NoError(t, json.Unmarshal(s.AppendJSON(nil), &line))
				run.Timeline = append(run.Timeline, line)
			},
		})
		require.NoError(t, err)
		run.Phase = *phase
		runs = append(runs, run)
	}
	return runs
}

// A server is a real Prometheus on the loopback interface with blocks made by
// promtool.
type server struct{ address string }

// loadPrometheus starts one over the export.
func loadPrometheus(t *testing.T, x *Export) *server {
	for _, binary := range []string{"promtool", "prometheus"} {
		if _, err := exec.LookPath(binary); err != nil {
			t.Skipf("no %s here (Debian: apt-get install prometheus)", binary)
		}
	}
	dir := t.TempDir()
	file, config, data := filepath.Join(dir, "metrics.om"), filepath.Join(dir, "prometheus.yml"), filepath.Join(dir, "data")
	require.NoError(t, os.WriteFile(file, []byte(openMetrics(t, x)), 0o600))
	require.NoError(t, os.WriteFile(config, []byte("global: {}\n"), 0o600))
	out, err := exec.Command("promtool", "tsdb", "create-blocks-from", "openmetrics", file, data).CombinedOutput()
	require.NoError(t, err, "%s", out)

	ctx, cancel := context.WithCancel(context.Background())
	s := &server{address: freeAddress(t)}
	cmd := exec.CommandContext(ctx, "prometheus", "--config.file="+config, "--storage.tsdb.path="+data,
		"--storage.tsdb.retention.time=100y", "--web.listen-address="+s.address, "--log.level=error")
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait() // it was killed
	})
	for range 300 {
		if resp, err := http.Get("http://" + s.address + "/-/ready"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return s
			}
		}
		time.Sleep(100 * time.Millisecond)
	}
	require.Fail(t, "Prometheus is not ready after 30 s", log.String())
	return nil
}

func freeAddress(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	return l.Addr().String()
}

// A result is one element of an instant vector.
type result struct {
	labels map[string]string
	value  float64
}

// query evaluates expr at the Unix time at.
func (s *server) query(t *testing.T, expr string, at float64) []result {
	resp, err := http.Get("http://" + s.address + "/api/v1/query?" + url.Values{
		"query": {expr}, "time": {strconv.FormatFloat(at, 'f', 3, 64)}}.Encode())
	require.NoError(t, err)
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	var answer struct {
		Status string
		Data   struct {
			Result []struct {
				Metric map[string]string
				Value  [2]any
			}
		}
	}
	require.NoError(t, json.Unmarshal(body, &answer), "%s", body)
	require.Equal(t, "success", answer.Status, "%s: %s", expr, body)
	var out []result
	for _, r := range answer.Data.Result {
		v, err := strconv.ParseFloat(r.Value[1].(string), 64)
		require.NoError(t, err)
		out = append(out, result{r.Metric, v})
	}
	return out
}

// by is the vector as a map by one label.
func by(label string, results []result) map[string]float64 {
	m := make(map[string]float64)
	for _, r := range results {
		m[r.labels[label]] = r.value
	}
	return m
}

// dashboardQueries are the queries of the dashboard's panels, by title.
func dashboardQueries(t *testing.T, phase, route, interval string) (titles []string, queries map[string][]string) {
	data, err := os.ReadFile("../../deploy/grafana/routing.json")
	require.NoError(t, err)
	var d struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	require.NoError(t, json.Unmarshal(data, &d))
	queries = make(map[string][]string)
	fill := strings.NewReplacer("$phase", phase, "$route", route, "$__rate_interval", interval)
	for _, p := range d.Panels {
		titles = append(titles, p.Title)
		for _, target := range p.Targets {
			q := fill.Replace(target.Expr)
			require.NotContains(t, q, "$", "every variable is known")
			queries[p.Title] = append(queries[p.Title], q)
		}
	}
	return titles, queries
}

// What a real Prometheus answers to the study's queries, which are those of the
// dashboard, is what the records say.
func TestPrometheusAnswersAsTheRecords(t *testing.T) {
	runs := simulate(t, "hot90")
	x := export(t, runs, Options{Start: DefaultStart, Step: DefaultStep, Gap: DefaultGap, Model: "qwen"}, spoolEvents)
	spans, err := x.Spans()
	require.NoError(t, err)
	s := loadPrometheus(t, x)
	for i, run := range runs {
		span, p := spans[i], &run.Phase
		t.Run(p.Route, func(t *testing.T) {
			length := span.End - span.Start
			titles, q := dashboardQueries(t, p.Phase, p.Route, fmt.Sprintf("%.0fs", length))
			require.Equal(t, []string{"Routing choice", "Distribution", "Prefix-cache hits", "Waiting", "TTFT", "SLO"}, titles)

			choices := by("selection", s.query(t, q["Routing choice"][0], span.End))
			want := 0
			for _, c := range p.RoutingCounterDeltas {
				if c.Name == "aibrix_prefix_cache_routing_selection_total" {
					want++
					// The whole phase in one range that ends on its last point; what happens
					// before the first point but one may lie outside of a range that is open
					// on the left.
					require.InDelta(t, c.Delta, choices[c.Labels["selection"]]*length, 1+c.Delta*DefaultStep/length, c.Labels["selection"])
				}
			}
			require.Len(t, choices, want)

			distribution := by("node_alias", s.query(t, q["Distribution"][0], span.End))
			hits := by("node_alias", s.query(t, q["Prefix-cache hits"][0], span.End))
			for _, rep := range p.Replicas {
				require.Equal(t, float64(rep.Requests.Or(-1)), distribution[rep.Name])
				ratio, _ := record.Ratio(rep.CacheHitTokens, rep.CacheQueriesTokens).Get()
				require.InDelta(t, ratio, hits[rep.Name], 0.02, rep.Name)
				require.Equal(t, float64(rep.CacheHitTokens.Or(-1)), total(s.query(t, selector("vllm:prefix_cache_hits_total", p, rep.Name), span.End)))
				require.Equal(t, float64(rep.CacheQueriesTokens.Or(-1)), total(s.query(t, selector("vllm:prefix_cache_queries_total", p, rep.Name), span.End)))
			}
			checkWaiting(t, s, q["Waiting"], run, span)
			checkTTFT(t, s, q["TTFT"], run, span)
			good, _ := p.GoodShare().Get()
			require.InDelta(t, good, by("phase", s.query(t, q["SLO"][0], span.End))[p.Phase], 1e-9)
		})
	}
}

func selector(name string, p *record.Phase, replica string) string {
	return fmt.Sprintf(`%s{phase=%q,route=%q,node_alias=%q,model_name="qwen"}`, name, p.Phase, p.Route, replica)
}

func total(results []result) float64 {
	sum := 0.0
	for _, r := range results {
		sum += r.value
	}
	return sum
}

// Waiting by replica is the timeline's, at each of its snapshots and at its
// peak the phase record's; in flight is what the request records give.
func checkWaiting(t *testing.T, s *server, queries []string, run phaseRun, span Span) {
	peak := make(map[string]float64)
	for _, sample := range run.Timeline {
		got := by("node_alias", s.query(t, queries[0], span.Start+sample.At))
		require.Equal(t, sample.Waiting, got[sample.Replica])
		peak[sample.Replica] = max(peak[sample.Replica], got[sample.Replica])
	}
	for _, rep := range run.Phase.Replicas {
		require.Equal(t, float64(rep.WaitingPeak.Or(-1)), peak[rep.Name])
	}
	for at := 0.0; at <= span.End-span.Start; at += DefaultStep {
		inFlight := 0
		for _, r := range run.Requests {
			if start := r.Started.Or(0); start <= at && start+r.E2E.Or(0) > at {
				inFlight++
			}
		}
		require.Equal(t, float64(inFlight), total(s.query(t, queries[1], span.Start+at)), "in flight %g s into the phase", at)
	}
}

// Prometheus' quantile lies in the bucket of the observation of rank q·n, a
// tenth wide; the records' lies between that observation and a neighbour.
func checkTTFT(t *testing.T, s *server, queries []string, run phaseRun, span Span) {
	var ttfts []float64
	for _, r := range run.Requests {
		if v, ok := r.TTFT.Get(); ok {
			ttfts = append(ttfts, v)
		}
	}
	slices.Sort(ttfts)
	for i, q := range []float64{0.50, 0.95, 0.99} {
		rank := int(math.Ceil(q * float64(len(ttfts))))
		got := by("phase", s.query(t, queries[i], span.End))[run.Phase.Phase]
		require.InEpsilon(t, ttfts[rank-1], got, 0.1, queries[i])
		want, _ := record.Quantile(ttfts, q).Get()
		require.GreaterOrEqual(t, want, ttfts[rank-2])
		require.LessOrEqual(t, want, ttfts[min(rank, len(ttfts)-1)])
	}
}

// The engine's own histogram has vLLM's buckets.
func TestEngineHistogramInPrometheus(t *testing.T) {
	runs := simulate(t, "warm-uniform")[:1]
	x := export(t, runs, Options{Start: DefaultStart, Step: DefaultStep, Model: "qwen"}, spoolEvents)
	spans, err := x.Spans()
	require.NoError(t, err)
	s := loadPrometheus(t, x)
	buckets := by("le", s.query(t, `sum by (le) (vllm:time_to_first_token_seconds_bucket)`, spans[0].End))
	require.Len(t, buckets, len(ttftBounds)+1)
	for le, got := range buckets {
		bound, err := strconv.ParseFloat(le, 64)
		require.NoError(t, err)
		want := 0
		for _, r := range runs[0].Requests {
			if ttft, ok := r.TTFT.Get(); ok && ttft <= bound {
				want++
			}
		}
		require.Equal(t, float64(want), got, "le=%s", le)
	}
	require.NotEmpty(t, s.query(t, InFlight.Name, spans[0].End))
	require.False(t, math.IsNaN(buckets["+Inf"]))
}
