package fit_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/calibrate/fit"
	"fleetsim/model"
	"fleetsim/sim"
	"fleetsim/sim/record"
)

const bench = `{"max_concurrency":2,"duration":10.0,"completed":4,"failed":0,"total_input_tokens":512,"total_output_tokens":256,
"mean_ttft_ms":113.2,"median_ttft_ms":112.5,"p95_ttft_ms":116.8,"mean_tpot_ms":56.56,"p50_tpot_ms":56.57}`

func TestBenchRun(t *testing.T) {
	ms := 1000.0
	r, err := fit.BenchRun("b.json", []byte(bench))
	require.NoError(t, err)
	require.Equal(t, fit.Bench, r.Environment)
	require.Equal(t, []fit.Figure{
		{Metric: fit.TTFT, Quantile: fit.Mean, Value: 113.2 / ms}, {Metric: fit.TTFT, Quantile: 0.5, Value: 0.1125}, {Metric: fit.TTFT, Quantile: 0.95, Value: 0.1168},
		{Metric: fit.TPOT, Quantile: fit.Mean, Value: 0.05656}, {Metric: fit.TPOT, Quantile: 0.5, Value: 0.05657},
	}, r.Figures)
	w := r.Setup.Scenario.Workload
	require.Equal(t, 64, w.Output)
	require.Equal(t, 2, w.ClosedLoop.Concurrency)
	require.InDelta(t, 7.5, w.ClosedLoop.Duration.Seconds(), 1e-9, "two requests a lane of 5 s: the last are sent before 7.5 s")
}

func TestBenchProblems(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`{`, "b.json: "},
		{`{"completed":0,"failed":9}`, "b.json: no request was completed"},
		{`{"completed":4,"duration":10}`, "b.json: not a result of vllm bench serve with --max-concurrency"},
		{`{"completed":4,"duration":10,"max_concurrency":1,"total_input_tokens":4,"total_output_tokens":4}`, "allowed are at least 2 and 1 a request"},
	} {
		_, err := fit.BenchRun("b.json", []byte(c.text))
		require.ErrorContains(t, err, c.want)
	}
}

func FuzzBenchRun(f *testing.F) {
	f.Add([]byte(bench))
	f.Add([]byte(`{"completed":1,"duration":1e300,"max_concurrency":999999999}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := fit.BenchRun("f.json", data)
		if (r == nil) == (err == nil) {
			t.Fatal("neither a run nor an error, or both")
		}
	})
}

// file writes a file and returns its path.
func file(t *testing.T, name, text string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

const request = `{"phase":"fixed1-wave","result":"ok","http_status":200,"ttft":0.2,"tpot":0.0564,"e2e":7.4,"input_tokens":519,"output_tokens":128,"requested_output":128,"started_relative_seconds":%}` + "\n"

func requests(starts ...string) string {
	var b strings.Builder
	for _, s := range starts {
		b.WriteString(strings.Replace(request, "%", s, 1))
	}
	return b.String()
}

func TestLoad(t *testing.T) {
	var zipped bytes.Buffer
	z := gzip.NewWriter(&zipped)
	_, err := z.Write([]byte(requests("100", "105")))
	require.NoError(t, err)
	require.NoError(t, z.Close())
	phase := `{"phase":"fixed2-wave","ttft":{"p50":0.27,"p95":0.3,"p99":0.31},"tpot":{"p50":0.058,"p95":0.0596,"p99":0.06}}` + "\n"
	runs, err := fit.Load(fit.Input{
		Files:    []string{file(t, "r.jsonl.gz", zipped.String()), file(t, "p.jsonl", phase), file(t, "b.json", bench)},
		Scenario: "production-study",
	})
	require.NoError(t, err)
	require.Equal(t, []string{"b.json", "fixed1-wave", "fixed2-wave"}, fit.Names(runs))
	require.Len(t, runs[1].Requests, 2)
	require.False(t, runs[1].Sorted, "one replica: request by request")
	require.Len(t, runs[2].Figures, 6)
	require.True(t, runs[2].Sorted, "chance decides which replica a request goes to")
	require.Equal(t, "least-request", runs[2].Setup.Policy)
}

// A phase that continues others is simulated with what they have left.
func TestLoadContinuedPhase(t *testing.T) {
	text := strings.ReplaceAll(requests("1"), "fixed1-wave", "cache-online-least-b")
	runs, err := fit.Load(fit.Input{Files: []string{file(t, "r.jsonl", text)}, Scenario: "production-study"})
	require.NoError(t, err)
	require.Equal(t, "all", runs[0].Setup.Scenario.Start.EngineCache)
}

func TestLoadProblems(t *testing.T) {
	records := file(t, "r.jsonl", requests("1"))
	for _, c := range []struct {
		name string
		in   fit.Input
		want string
	}{
		{"no file", fit.Input{Files: []string{"none.jsonl"}}, "none.jsonl"},
		{"no scenario", fit.Input{Files: []string{records}}, "records need --scenario"},
		{"unknown scenario", fit.Input{Files: []string{records}, Scenario: "nobody"}, "nobody"},
		{"unknown phase", fit.Input{Files: []string{records}, Scenario: "routing-study"}, `routing-study has no phase "fixed1-wave"`},
		{"other phase", fit.Input{Files: []string{records}, Scenario: "production-study", Phases: []string{"x"}}, "none of the records is of phase x"},
		{"broken record", fit.Input{Files: []string{file(t, "x.jsonl", "{\n")}, Scenario: "hot90"}, "x.jsonl:1"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := fit.Load(c.in)
			require.ErrorContains(t, err, c.want)
		})
	}
}

func options(t *testing.T, names ...string) fit.Options {
	o := fit.Options{Base: profile(t, builtin, nil), Seed: 1, Starts: 1}
	for _, n := range names {
		o.Parameters = append(o.Parameters, fit.Parameter{Name: n})
	}
	return o
}

func TestRefusals(t *testing.T) {
	load := func(text string) []fit.Run {
		runs, err := fit.Load(fit.Input{Files: []string{file(t, "r.jsonl", text)}, Scenario: "production-study"})
		require.NoError(t, err)
		return runs
	}
	failed := strings.NewReplacer(`"result":"ok"`, `"result":"failed"`).Replace(requests("0", "5", "10"))
	_, err := fit.Fit(context.Background(), load(failed), options(t, "base"))
	require.ErrorIs(t, err, fit.ErrNothingToFit)
	require.ErrorContains(t, err, "none of the 3 requests of fixed1-wave is a success with a TTFT")

	_, err = fit.Fit(context.Background(), load(requests("0", "5", "10")), options(t, "base", "decode_1"))
	require.ErrorContains(t, err, "fixed1-wave have 3 successes and figures; 2 parameters need at least 10")

	_, err = fit.Fit(context.Background(), nil, options(t, "base"))
	require.ErrorIs(t, err, fit.ErrNothingToFit)

	enough := load(requests("0", "5", "10", "15", "20", "25", "30", "35", "40", "45", "50"))
	_, err = fit.Fit(context.Background(), enough, options(t))
	require.ErrorContains(t, err, "no parameter is free")
	_, err = fit.Fit(context.Background(), enough, options(t, "speed"))
	require.ErrorContains(t, err, `unknown coefficient "speed"`)
	o := options(t, "base")
	o.Parameters[0].Low, o.Parameters[0].High = 1, 2
	_, err = fit.Fit(context.Background(), enough, o)
	require.ErrorContains(t, err, "bounds 1 to 2: allowed are bounds above 0 around the start")
}

// lone are lone requests that took longer than the built-in profile says.
func lone(t *testing.T) []fit.Run {
	known := profile(t, builtin, map[string]float64{"decode_1": 0.058, "base": 0.05})
	path, sc := measure(t, t.TempDir(), known)
	runs, err := fit.Load(fit.Input{Files: []string{path}, Scenario: sc})
	require.NoError(t, err)
	return runs
}

func TestCancelledFitKeepsTheBest(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	o := options(t, "decode_1", "base", "per_prefill_token")
	o.Starts = 5
	o.Progress = func(p fit.Progress) {
		if p.Evaluations == 30 {
			cancel()
		}
	}
	r, err := fit.Fit(ctx, lone(t), o)
	require.NoError(t, err)
	require.False(t, r.Complete)
	require.Less(t, r.Objective, r.Before)
	require.Less(t, r.Evaluations, 60)
	p, err := r.Profile("", "test")
	require.NoError(t, err)
	require.NotEqual(t, o.Base.Cost, p.Cost)
	var out bytes.Buffer
	require.NoError(t, r.Write(&out, nil))
	require.Contains(t, out.String(), "The search was stopped")
}

// The same data and seed give the same result, whatever the number of workers.
func TestFitIsDeterministic(t *testing.T) {
	runs := lone(t)
	report := func(workers int) string {
		o := options(t, "decode_1", "base")
		o.Workers, o.Starts, o.Polish = workers, 2, 30
		r, err := fit.Fit(context.Background(), runs, o)
		require.NoError(t, err)
		var out bytes.Buffer
		require.NoError(t, r.Write(&out, nil))
		return out.String()
	}
	one := report(1)
	require.Equal(t, one, report(7))
	require.Contains(t, one, "decode_1")
	require.Contains(t, one, "training errors")
}

// Data that pins down none of the parameters leaves the profile as it is.
func TestNothingIdentified(t *testing.T) {
	o := options(t, "decode_1", "per_decode") // no batch is beyond the table
	o.Parameters[0].Low, o.Parameters[0].High = 0.05, 0.0566
	o.Polish = 10
	r, err := fit.Fit(context.Background(), lone(t), o)
	require.NoError(t, err)
	require.True(t, r.Complete)
	require.Equal(t, r.Before, r.Objective)
	require.Contains(t, r.Parameters[0].Why, "it went to its bound")

	o.Parameters = o.Parameters[1:]
	r, err = fit.Fit(context.Background(), lone(t), o)
	require.NoError(t, err)
	require.Equal(t, r.Before, r.Objective)
	for _, f := range r.Parameters {
		require.False(t, f.Identified)
		require.Equal(t, f.Start, f.Value)
	}
}

func TestCrossValidation(t *testing.T) {
	var runs []fit.Run
	for _, seed := range []string{"1", "2", "3"} {
		r := lone(t)[0]
		r.Name = "part " + seed
		runs = append(runs, r)
	}
	o := options(t, "decode_1", "base")
	all, err := fit.Fit(context.Background(), runs, o)
	require.NoError(t, err)
	folds, err := fit.CrossValidate(context.Background(), runs, o, all)
	require.NoError(t, err)
	require.Len(t, folds, 3)
	for _, f := range folds {
		require.Less(t, f.Held.TPOT.Absolute, 0.002)
		require.NotZero(t, f.Held.Observations)
	}
	var out bytes.Buffer
	require.NoError(t, all.Write(&out, folds))
	require.Contains(t, out.String(), "of a run predicted from the others")
	_, err = fit.CrossValidate(context.Background(), runs[:1], o, all)
	require.ErrorContains(t, err, "at least two runs")
}

// Noise of a simulated run comes back from its records.
func TestNoiseComesBack(t *testing.T) {
	n := measureNoise(t, model.Noise{StepSD: 0.02})
	require.InDelta(t, 0.02, n.StepSD, 0.005)
	require.Zero(t, n.StepCorrelation)
	require.Contains(t, n.Source, "do not overlap")

	n = measureNoise(t, model.Noise{StepSD: 0.01, StepCorrelation: 0.99})
	require.InDelta(t, 0.01, n.StepSD, 0.004)
	require.InDelta(t, 0.99, n.StepCorrelation, 0.006)
}

// measureNoise simulates a run with the noise and measures that in its records.
func measureNoise(t *testing.T, noise model.Noise) model.Noise {
	p := profile(t, builtin, nil)
	p.Noise = noise
	path := filepath.Join(t.TempDir(), "r.jsonl")
	sc := strings.Replace(mixed, "rate_per_second = 0.5", "rate_per_second = 0.05", 1) + "\n[model]\nnoise = true\n"
	scenarioFile := file(t, "s.toml", strings.Replace(sc, "burstiness = 0.1", "burstiness = 5.0", 1))
	out, err := os.Create(path)
	require.NoError(t, err)
	w := record.NewRequestWriter(out)
	runs, err := fit.Load(fit.Input{Files: []string{file(t, "one.jsonl", requests("1"))}, Scenario: scenarioFile})
	require.NoError(t, err)
	s := runs[0].Setup
	s.Profile, s.Each = p, func(r *record.Request) { require.NoError(t, w.Write(r)) }
	_, err = sim.Run(s)
	require.NoError(t, err)
	require.NoError(t, out.Close())
	runs, err = fit.Load(fit.Input{Files: []string{path}, Scenario: scenarioFile, Sets: []string{"model.noise=false"}})
	require.NoError(t, err)
	r, err := fit.Fit(context.Background(), runs, options(t, "decode_1"))
	require.NoError(t, err)
	n, err := r.Noise(runs)
	require.NoError(t, err)
	return n
}

func TestChoice(t *testing.T) {
	base := profile(t, builtin, nil)
	run, err := fit.BenchRun("b.json", []byte(bench))
	require.NoError(t, err)
	c := fit.Choice{Fix: []string{"launch_lag"}, Bounds: []string{"launch=0.05:0.2"}}
	ps, err := c.Parameters(base, []fit.Run{*run, {Name: "lab"}})
	require.NoError(t, err)
	var names []string
	for _, p := range ps {
		names = append(names, p.Name)
		if p.Name == "launch" {
			require.Equal(t, fit.Parameter{Name: "launch", Low: 0.05, High: 0.2}, p)
		}
	}
	require.Equal(t, "decode_1 decode_2 decode_3 decode_4 decode_5 decode_6 decode_7 decode_8 per_decode_context base per_prefill_token "+
		"per_long_prefill_token per_prefill_token_context launch bench:overhead overhead", strings.Join(names, " "))
	for _, bad := range []string{"launch", "launch=1", "launch=a:b", "speed=1:2"} {
		_, err := (&fit.Choice{Bounds: []string{bad}}).Parameters(base, []fit.Run{*run})
		require.Error(t, err, bad)
	}
	runs := []fit.Run{*run}
	require.NoError(t, fit.Weigh(runs, []string{"b.json=2.5"}))
	require.InDelta(t, 2.5, runs[0].Weight, 0)
	for _, bad := range []string{"b.json", "b.json=-1", "c=1", "b.json=NaN"} {
		require.Error(t, fit.Weigh(runs, []string{bad}), bad)
	}
}
