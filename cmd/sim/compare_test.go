package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestCompareWrongInput(t *testing.T) {
	good := write(t, "good.jsonl", `{"phase":"a","result":"ok","http_status":200,"ttft":0.5,"e2e":1.5,"output_tokens":11}`)
	bad := write(t, "bad.jsonl", `{"phase":"a","result":"ok"}`+"\n"+`{"phase":"a","result":"ok","ttft":"soon","e2e":[]}`)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"measured without scenario": {[]string{good}, []string{good, "--scenario"}},
		"two studies":               {[]string{"routing-study", "production-study"}, []string{"--scenario"}},
		"policy for a study":        {[]string{"routing-study", "--policy", "random"}, []string{"--policy"}},
		"no files":                  {[]string{"--scenario", "hot90"}, []string{"MEASURED"}},
		"every problem at its line": {[]string{bad, "--scenario", "hot90"}, []string{bad + ":2: ttft", bad + ":2: e2e"}},
		"missing file":              {[]string{"nowhere.jsonl", "--scenario", "hot90"}, []string{"nowhere.jsonl: no such file"}},
		"unknown scenario":          {[]string{good, "--scenario", "hot9"}, []string{"hot90"}},
		"no policy":                 {[]string{good, "--scenario", "hot90"}, []string{"--policy", "prefix-cache"}},
		"unknown policy":            {[]string{good, "--scenario", "hot90", "--policy", "a=randon"}, []string{`phase "a": --policy: unknown policy "randon"; did you mean "random"?`}},
		"policy twice":              {[]string{good, "--scenario", "hot90", "--policy", "random", "--policy", "random"}, []string{"twice"}},
		"unknown phase of a study":  {[]string{good, "--scenario", "routing-study"}, []string{`phase "a"`, "r1-hot90-random"}},
		"repeat":                    {[]string{"routing-study", "--repeat", "0"}, []string{"--repeat 0"}},
		"format":                    {[]string{"routing-study", "--format", "jsonl"}, []string{"jsonl", "table, json"}},
		"set":                       {[]string{good, "--scenario", "hot90", "--policy", "random", "--set", "cluster.replcas=3"}, []string{"replicas"}},
		"profile":                   {[]string{good, "--scenario", "hot90", "--policy", "random", "--profile", "h100"}, []string{"h100"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := sh(append([]string{"compare"}, c.args...)...)
			require.Equal(t, statusUsage, status, stderr)
			require.Empty(t, stdout)
			for _, want := range c.want {
				require.Contains(t, stderr, want)
			}
		})
	}
}

// A run directory, compared with its own scenario, is the same; a measurement
// without TTFT is told from one with TTFT 0.
func TestCompareRuns(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	status, _, stderr := sh("run", "hot90", "--policy", "random", "--policy", "prefix-cache", "--out", dir)
	require.Equal(t, statusOK, status, stderr)
	figures := filepath.Join(t.TempDir(), "figures")
	status, stdout, stderr := sh("compare", dir, "--scenario", "hot90", "--plot", figures, "--pairs")
	require.Equal(t, statusOK, status, stderr)
	require.Empty(t, stderr)
	for _, want := range []string{
		"hot90 random, random", "hot90 prefix-cache, prefix-cache", "successes: 96 measured, 96 simulated",
		"TTFT: same (p50 +0.0%, p95 +0.0%, W1 0 ms", "Verdicts", "Policies on the same load", "hot90, seed 102: prefix-cache, random", "agrees",
	} {
		require.Contains(t, stdout, want)
	}
	require.NotContains(t, stdout, "warning")
	for _, name := range []string{"hot90_random-ttft.svg", "hot90_prefix-cache-timeline.png"} {
		require.FileExists(t, filepath.Join(figures, name))
	}

	blocking := write(t, "blocking.jsonl", strings.Repeat(`{"phase":"a","result":"ok","http_status":200,"e2e":1.5,"output_tokens":11}`+"\n", 5))
	status, stdout, stderr = sh("compare", blocking, "--scenario", "hot90", "--policy", "random")
	require.Equal(t, statusOK, status, stderr)
	for _, want := range []string{"no TTFT: the source did not stream", "TTFT: not measured", "TTFT p95 s   not measured", "5 requests were sent"} {
		require.Contains(t, stdout, want)
	}
}

// JSON has the members that a study's comparison has always had, and the new.
func TestCompareRunsJSON(t *testing.T) {
	measured := write(t, "m.jsonl", `{"phase":"r1-hot90-random","success":96,"ttft":{"p50":0.5,"p95":5.5}}`)
	status, stdout, stderr := sh("compare", measured, "--scenario", "routing-study", "--repeat", "3", "--format", "json")
	require.Equal(t, statusOK, status, stderr)
	var c struct {
		Study  string
		Phases []struct {
			Phase               string
			Measured, Simulated map[string]any
			Band                map[string]struct{ P5, P50, P95 *float64 }
			Groups              []struct {
				Metrics []struct {
					Metric, Verdict string
					Wasserstein     *float64
					Quantiles       []struct {
						Quantile                   string
						Measured, Simulated, Error *float64
					}
				}
			}
		}
		Pairs, Rankings []any
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &c))
	require.Equal(t, "routing-study", c.Study)
	require.Len(t, c.Phases, 1)
	p := c.Phases[0]
	require.Equal(t, "r1-hot90-random", p.Phase)
	require.NotNil(t, p.Simulated["good"])
	require.Nil(t, p.Measured["good"])
	require.Equal(t, p.Band["ttft.p95"].P50, p.Groups[0].Metrics[0].Quantiles[1].Simulated)
	ttft, tpot := p.Groups[0].Metrics[0], p.Groups[0].Metrics[1]
	require.InDelta(t, *ttft.Quantiles[1].Simulated/5.5-1, *ttft.Quantiles[1].Error, 1e-12)
	require.Nil(t, ttft.Quantiles[2].Measured)
	require.Nil(t, ttft.Wasserstein, "no request records")
	require.Equal(t, "not measured", tpot.Verdict)
	require.NotNil(t, c.Pairs)
	require.Empty(t, c.Rankings)
}

// The study's table fits a window, its columns stand below each other, and
// --wide adds the rest.
func TestCompareStudyTable(t *testing.T) {
	status, stdout, stderr := sh("compare", "routing-study", "--repeat", "3")
	require.Equal(t, statusOK, status, stderr)
	bars := ""
	for _, line := range strings.Split(stdout, "\n") {
		require.LessOrEqual(t, utf8.RuneCountInString(strings.TrimRight(line, " ")), 120, line)
		if strings.HasPrefix(line, " r1-") || strings.HasPrefix(line, " r2-") {
			at := ""
			for i, r := range line {
				if r == '|' {
					at += " " + string(rune('0'+i/100)) + string(rune('0'+i/10%10)) + string(rune('0'+i%10))
				}
			}
			if bars == "" {
				bars = at
			}
			require.Equal(t, bars, at, line)
		}
	}
	require.NotEmpty(t, bars)
	require.Contains(t, stdout, "Of ")
	require.NotContains(t, stdout, "split")

	status, stdout, _ = sh("compare", "routing-study", "--repeat", "2", "--wide")
	require.Equal(t, statusOK, status)
	for _, want := range []string{"split", "counters", "hit ratio", "TTFT p50 s", "KV peak, blocks"} {
		require.Contains(t, stdout, want)
	}
}

// The figures and the text do not depend on the number of workers.
func TestCompareSameBytes(t *testing.T) {
	outputs := map[string]bool{}
	for _, workers := range []string{"1", "2"} {
		dir := filepath.Join(t.TempDir(), "figures")
		status, stdout, stderr := sh("compare", "production-study", "--repeat", "2", "--workers", workers, "--plot", dir)
		require.Equal(t, statusOK, status, stderr)
		entries, err := os.ReadDir(dir)
		require.NoError(t, err)
		require.Len(t, entries, 13*4*2)
		all := stdout
		for _, e := range entries {
			content, err := os.ReadFile(filepath.Join(dir, e.Name()))
			require.NoError(t, err)
			all += e.Name() + string(content)
		}
		outputs[all] = true
	}
	require.Len(t, outputs, 1)
}
