package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
	"fleetsim/sim/sweep"
)

// small is a sweep of six cells.
var small = []string{"sweep", "tenant-quota", "--axis", "quota_a=2,4", "--axis", "quota_b=1,2,4", "--seeds", "3"}

func with(args []string, more ...string) []string { return append(args[:len(args):len(args)], more...) }

// files are the contents of a directory.
func files(t *testing.T, dir string) map[string]string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	out := map[string]string{}
	for _, e := range entries {
		if e.IsDir() {
			continue
		}
		data, err := os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
		out[e.Name()] = string(data)
	}
	return out
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	out, html, figures := filepath.Join(dir, "out"), filepath.Join(dir, "pages", "r.html"), filepath.Join(dir, "figures")
	status, stdout, stderr := sh(with(small, "--out", out, "--report", html, "--figures", figures)...)
	require.Equal(t, statusOK, status, stderr)
	require.Empty(t, stderr)
	for _, want := range []string{"tenant-quota: 6 cells, 18 runs", "quota_a", "tenant_B_good_share", "results: " + out, "report: " + html} {
		require.Contains(t, stdout, want)
	}
	page, err := os.ReadFile(html)
	require.NoError(t, err)
	require.Contains(t, string(page), "Fidelity of the profile")
	require.Contains(t, string(page), "sim sweep tenant-quota --axis quota_a=2,4 --axis quota_b=1,2,4 --seeds 3")
	require.NotEmpty(t, files(t, figures))

	// Once complete, the results are refused or gone on with, and can be drawn again.
	status, _, stderr = sh(with(small, "--out", out)...)
	require.Equal(t, statusUsage, status)
	require.Contains(t, stderr, "--resume")
	before := files(t, out)
	status, again, _ := sh(with(small, "--out", out, "--resume")...)
	require.Equal(t, statusOK, status)
	require.True(t, strings.HasPrefix(stdout, again))
	require.Equal(t, before, files(t, out))
	status, again, stderr = sh("sweep", "report", out)
	require.Equal(t, statusOK, status, stderr)
	require.True(t, strings.HasPrefix(stdout, again))

	// Another sweep neither goes on with them nor changes them.
	status, _, stderr = sh(with(small, "--out", out, "--resume", "--seeds", "2")...)
	require.Equal(t, statusUsage, status)
	require.Contains(t, stderr, "another sweep")
	require.Equal(t, before, files(t, out))
	status, _, stderr = sh(with(small, "--out", html)...)
	require.Equal(t, statusUsage, status)
	require.Contains(t, stderr, "not a directory")
	require.Equal(t, string(page), read(t, html))

	// Any cell can be run again alone.
	status, phases, stderr := sh("run", "--from", out, "--cell", "5", "--format", "jsonl")
	require.Equal(t, statusOK, status, stderr)
	read, err := record.ReadPhases("stdout", strings.NewReader(phases))
	require.NoError(t, err)
	require.Len(t, read, 3)
	require.Equal(t, "tenant-quota-cell-5", read[0].Phase)
}

// The shards that an Indexed Job runs, merged, are the same files as one run's.
func TestSweepShards(t *testing.T) {
	dir := t.TempDir()
	whole, parts, merged := filepath.Join(dir, "whole"), filepath.Join(dir, "parts"), filepath.Join(dir, "merged")
	capacity := []string{"sweep", "capacity", "--axis", "rate=0.8,1.6,3.2", "--axis", "replicas=2,4,6", "--axis", "policy=prefix-cache,random", "--seeds", "6", "--set", "workload.requests=60"}
	status, _, stderr := sh(with(capacity, "--out", whole)...)
	require.Equal(t, statusOK, status, stderr)
	t.Setenv("JOB_COMPLETIONS", "4")
	for _, index := range []string{"2", "0", "3"} {
		t.Setenv("JOB_COMPLETION_INDEX", index)
		status, stdout, stderr := sh(with(capacity, "--out", parts, "--resume")...)
		require.Equal(t, statusOK, status, stderr)
		require.Contains(t, stdout, "shard "+index+"/4")
	}
	status, _, stderr = sh("sweep", "merge", parts, "--out", merged)
	require.Equal(t, statusUsage, status)
	require.Contains(t, stderr, "shard 1/4 is missing")
	t.Setenv("JOB_COMPLETION_INDEX", "")
	status, _, stderr = sh(with(capacity, "--out", parts, "--shard", "1/4")...)
	require.Equal(t, statusOK, status, stderr)
	status, _, stderr = sh("sweep", "merge", parts, "--out", merged)
	require.Equal(t, statusOK, status, stderr)
	require.Equal(t, files(t, whole), files(t, merged))
	status, _, stderr = sh("sweep", "merge", parts, "--out", parts)
	require.Equal(t, statusOK, status, stderr)
	beside := files(t, parts)
	for name, content := range files(t, whole) {
		require.Equal(t, content, beside[name], "%s beside the shards", name)
	}

	status, _, stderr = sh("sweep", "report", filepath.Join(parts, "shard-1-of-4"))
	require.Equal(t, statusUsage, status)
	require.Contains(t, stderr, "merge")
}

func TestSweepWrongInput(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		env  [2]string // JOB_COMPLETION_INDEX, JOB_COMPLETIONS
		want string
	}{
		"no sweep":         {args: []string{"sweep"}, want: "SWEEP"},
		"unknown":          {args: []string{"sweep", "capcity"}, want: `did you mean "capacity"?`},
		"missing file":     {args: []string{"sweep", "capacity.txt"}, want: "capacity.txt: no such file"},
		"directory":        {args: []string{"sweep", os.TempDir()}, want: "is a directory"},
		"axis":             {args: with(small, "--axis", "quota=2"), want: "quota_a"},
		"axis prefix":      {args: with(small, "--axis", "quota_a"), want: "--axis quota_a: there must be values: quota_a=VALUE,VALUE…; allowed: "},
		"set":              {args: with(small, "--set", "workload.request=2"), want: "workload.request"},
		"seeds":            {args: with(small, "--seeds", "-1"), want: "--seeds -1"},
		"first seed":       {args: with(small, "--first-seed", "x"), want: `--first-seed "x"`},
		"profile":          {args: with(small, "--profile", "h100"), want: "h100"},
		"shard":            {args: with(small, "--shard", "8/8"), want: "i/n"},
		"cell":             {args: with(small, "--cell", "6", "--report", "r.html"), want: "allowed is 0 to 5"},
		"report of shard":  {args: with(small, "--shard", "0/2", "--report", "r.html"), want: "a shard has no report"},
		"no completions":   {args: small, env: [2]string{"3", ""}, want: "JOB_COMPLETIONS is not"},
		"bad completions":  {args: small, env: [2]string{"3", "3"}, want: "JOB_COMPLETION_INDEX and JOB_COMPLETIONS"},
		"merge no dirs":    {args: []string{"sweep", "merge", "--out", "x"}, want: "directories of the shards"},
		"merge no out":     {args: []string{"sweep", "merge", "x"}, want: "--out DIR"},
		"merge nothing":    {args: []string{"sweep", "merge", "nowhere", "--out", "x"}, want: "nowhere"},
		"report no dir":    {args: []string{"sweep", "report"}, want: "one DIR"},
		"report nothing":   {args: []string{"sweep", "report", "nowhere"}, want: "nowhere"},
		"run from nothing": {args: []string{"run", "--from", "nowhere", "--cell", "0"}, want: "nowhere"},
		"run from with":    {args: []string{"run", "hot90", "--from", "nowhere", "--cell", "0"}, want: "as it was"},
		"plan no scenario": {args: []string{"plan"}, want: "SCENARIO"},
		"plan slo":         {args: []string{"plan", "hot50", "--slo", "good>99%", "--slo", "ttft<1s"}, want: `"ttft<1s"`},
		"plan metric":      {args: []string{"plan", "hot50", "--slo", "ttft<=1s"}, want: "ttft_p"},
		"plan find":        {args: []string{"plan", "hot50", "--find", "pods"}, want: "replicas, rate"},
		"plan within":      {args: []string{"plan", "hot50", "--within", "4"}, want: "LOW..HIGH"},
		"plan tolerance":   {args: []string{"plan", "hot90", "--policy", "random", "--find", "rate", "--tolerance", "nan"}, want: "--tolerance NaN: allowed is 0.0001 to 1"},
		"plan tolerance 0": {args: []string{"plan", "hot90", "--find", "rate", "--tolerance", "0"}, want: "--tolerance 0: allowed is 0.0001 to 1"},
		"plan confidence":  {args: []string{"plan", "hot90", "--confidence", "nan"}, want: "--confidence NaN: allowed is above 0.5 and below 1"},
		"plan step":        {args: []string{"plan", "hot90", "--step", "nan"}, want: "--step"},
		"plan replicas":    {args: []string{"plan", "hot90", "--within", "1..100000"}, want: "from 1 to 10000"},
		"plan NaN within":  {args: []string{"plan", "hot90", "--within", "nan..4"}, want: "LOW..HIGH"},
		"plan share":       {args: []string{"plan", "hot90", "--slo", "good>=200%"}, want: "0% to 100%"},
		"out is a device":  {args: with(small, "--out", os.DevNull), want: "--out: "},
		"shard in a file":  {args: with(small, "--out", os.DevNull, "--shard", "0/2"), want: "--out: "},
		"report directory": {args: with(small, "--report", "."), want: "--report: . is a directory: name a file"},
		"figures in file":  {args: with(small, "--figures", os.DevNull), want: "is a file, not a directory"},
		"plan policy":      {args: []string{"plan", "hot50", "--policy", "rr"}, want: "rr"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			t.Setenv("JOB_COMPLETION_INDEX", c.env[0])
			t.Setenv("JOB_COMPLETIONS", c.env[1])
			status, stdout, stderr := sh(c.args...)
			require.Equal(t, statusUsage, status, stderr)
			require.Empty(t, stdout)
			require.Contains(t, stderr, c.want)
			require.NotContains(t, stderr, "goroutine")
			require.Empty(t, files(t, "."))
		})
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.5: "0.5", 0.12345: "0.1235", 4: "4", 100: "100", 102: "102", -102: "-102", 102.25: "102.2", 10000: "10000"} {
		require.Equal(t, want, short(v))
	}
}

func TestSweepList(t *testing.T) {
	status, stdout, _ := sh("sweep", "--list")
	require.Equal(t, statusOK, status)
	for _, name := range sweep.Names() {
		require.Contains(t, stdout, name)
	}
	for _, sub := range []string{"merge", "report"} {
		status, stdout, _ = sh("sweep", sub, "--help")
		require.Equal(t, statusOK, status)
		require.Contains(t, stdout, "Example: sim sweep "+sub)
	}
}

func TestPlan(t *testing.T) {
	status, stdout, stderr := sh("plan", "hot50", "--slo", "good>=60%", "--slo", "ttft_p50<=2s", "--policy", "least-request", "--within", "1..12", "--seeds", "10")
	require.Equal(t, statusOK, status, stderr)
	require.Empty(t, stderr)
	for _, want := range []string{"least-request: values tried", "good>=60%: mean (bounds)", "fewest replicas", "bracket", "meets it"} {
		require.Contains(t, stdout, want)
	}
	status, stdout, stderr = sh("plan", "hot50", "--find", "rate", "--slo", "good>=60%", "--policy", "random", "--tolerance", "0.2", "--seeds", "10", "--profile", "qwen3.8-27b-fp8-l20", "--seed", "5")
	require.Equal(t, statusOK, status, stderr)
	require.Contains(t, stdout, "highest rate")
}
