package main

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

const someTrace = `{"timestamp": 0, "input_length": 600, "output_length": 10, "hash_ids": [0, 1]}
{"timestamp": 1000, "input_length": 700, "output_length": 20, "hash_ids": [0, 2]}
{"timestamp": 1000, "input_length": 30, "output_length": 0, "hash_ids": [3]}
{"timestamp": 4000, "input_length": 512, "output_length": 5, "hash_ids": [0]}
`

func read(t *testing.T, path string) string {
	data, err := os.ReadFile(path)
	require.NoError(t, err)
	return string(data)
}

func TestTraceConvert(t *testing.T) {
	in, out := write(t, "in.jsonl", someTrace), filepath.Join(t.TempDir(), "out.jsonl")
	status, stdout, stderr := sh("trace", "convert", in, out)
	require.Equal(t, statusOK, status, stderr)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "in.jsonl: mooncake, 3 rows over 4s (0.5/s)\n1 row skipped: 1 without output length\n")
	require.Contains(t, stderr, "out.jsonl: fleetsim, 3 rows written\n")
	require.Equal(t, `{"fleetsim_trace":1}
{"at":0,"input_tokens":600,"output_tokens":10,"block_tokens":512,"hash_ids":[0,1]}
{"at":1,"input_tokens":700,"output_tokens":20,"block_tokens":512,"hash_ids":[0,2]}
{"at":4,"input_tokens":512,"output_tokens":5,"block_tokens":512,"hash_ids":[0]}
`, read(t, out))

	back := filepath.Join(t.TempDir(), "back.jsonl.gz")
	status, _, stderr = sh("trace", "convert", out, back, "--to-format", "mooncake")
	require.Equal(t, statusOK, status, stderr)
	require.NotContains(t, stderr, "cannot hold")
	f, err := os.Open(back)
	require.NoError(t, err)
	defer f.Close()
	z, err := gzip.NewReader(f)
	require.NoError(t, err)
	data, err := io.ReadAll(z)
	require.NoError(t, err)
	require.Equal(t, 3, bytes.Count(data, []byte("\n")))
	require.Contains(t, string(data), `{"timestamp": 1000, "input_length": 700, "output_length": 20, "hash_ids": [0,2]}`)

	status, stdout, stderr = sh("trace", "convert", in, "-", "--to-format=azure", "--default-output=7", "--from=1s")
	require.Equal(t, statusOK, status)
	require.Equal(t, "TIMESTAMP,ContextTokens,GeneratedTokens\n2000-01-01 00:00:00.0000000+00:00,700,20\n"+
		"2000-01-01 00:00:00.0000000+00:00,30,7\n2000-01-01 00:00:03.0000000+00:00,512,5\n", stdout)
	require.Contains(t, stderr, "azure cannot hold all of it: shared prefixes (")
}

// That nothing is selected is said, and with --strict an error that leaves no file.
func TestTraceSelectsNothing(t *testing.T) {
	in, out := write(t, "in.jsonl", someTrace), filepath.Join(t.TempDir(), "out.jsonl")
	for _, args := range [][]string{
		{"convert", in, "--tenant", "nobody"}, {"head", in, "--phase", "none"}, {"sample", in, "--from", "1h"}, {"scale", in, "--from", "1h"}, {"info", in, "--tenant", "nobody"},
	} {
		status, _, stderr := sh(append([]string{"trace"}, args...)...)
		require.Equal(t, statusOK, status)
		require.Contains(t, stderr, "\nwarning: none of its rows is selected\n", args)
	}
	status, _, stderr := sh("trace", "convert", in, out, "--tenant", "nobody", "--strict")
	require.Equal(t, statusUsage, status)
	require.Contains(t, stderr, "in.jsonl: none of its rows is selected")
	require.NoFileExists(t, out)
}

func TestTraceHeadScaleSample(t *testing.T) {
	in := write(t, "in.jsonl", someTrace)
	_, stdout, _ := sh("trace", "head", in, "-n", "1")
	require.Equal(t, `{"timestamp": 0, "input_length": 600, "output_length": 10, "hash_ids": [0,1]}`+"\n", stdout)

	_, stdout, _ = sh("trace", "scale", in, "--rate", "4", "--to-format", "fleetsim")
	require.Contains(t, stdout, `"at":0.25,`)
	require.Contains(t, stdout, `{"at":1,"input_tokens":512,`)

	var many strings.Builder
	many.WriteString(`{"fleetsim_trace":1}` + "\n")
	for i := range 1000 {
		fmt.Fprintf(&many, `{"at":%d,"input_tokens":9,"output_tokens":1,"session":"s%d"}`+"\n", i, i%40)
	}
	in = write(t, "many.jsonl", many.String())
	_, bursts, _ := sh("trace", "sample", in, "--fraction", "0.25")
	require.InDelta(t, 250, strings.Count(bursts, "\n"), 130)
	_, sessions, _ := sh("trace", "sample", in, "--fraction", "0.25", "--by-session", "--seed", "3")
	_, again, _ := sh("trace", "sample", in, "--fraction", "0.25", "--by-session", "--seed", "3")
	_, other, _ := sh("trace", "sample", in, "--fraction", "0.25", "--by-session", "--seed", "4")
	require.Equal(t, sessions, again)
	require.NotEqual(t, sessions, other)
	require.Zero(t, (strings.Count(sessions, "\n")-1)%25, "sessions are whole")

	_, split, _ := sh("trace", "convert", in, "--split", "a=3", "--split", "b=1", "--closed-loop", "--think", "2s")
	require.Equal(t, 1000, strings.Count(split, `"tenant":"a"`)+strings.Count(split, `"tenant":"b"`))
	require.Equal(t, 960, strings.Count(split, `"think":2,"wait":true`))
}

func TestTraceToDirectory(t *testing.T) {
	parent := t.TempDir()
	target := filepath.Join(parent, "d")
	require.NoError(t, os.Mkdir(target, 0o777))
	status, stdout, stderr := sh("trace", "convert", write(t, "in.jsonl", someTrace), target)
	require.Equal(t, statusUsage, status)
	require.Empty(t, stdout)
	require.Equal(t, target+" is a directory: name a file\n", stderr)
	require.Empty(t, files(t, parent))
}

func TestTraceInfo(t *testing.T) {
	in := write(t, "in.jsonl", someTrace)
	status, stdout, stderr := sh("trace", "info", in)
	require.Equal(t, statusOK, status)
	require.Contains(t, stdout, "hit ratio, at most")
	require.Contains(t, stderr, "1 row skipped")
	_, stdout, _ = sh("trace", "info", in, "--format", "json", "--engine-block", "512")
	var info struct {
		Format  string
		Found   int
		Rows    int
		Skipped map[string]int
		Bound   float64 `json:"hit_ratio_upper_bound"`
		Block   int     `json:"engine_block_tokens"`
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &info))
	require.Equal(t, "mooncake", info.Format)
	require.Equal(t, []int{4, 3, 512}, []int{info.Found, info.Rows, info.Block})
	require.Equal(t, map[string]int{"without output length": 1}, info.Skipped)
	// The second finds block 0; the third's only block holds its last token.
	require.InDelta(t, 512.0/1812, info.Bound, 1e-12)
}

// Wrong flags and files end with status 2, all problems at once, nothing on
// standard output and no file.
func TestTraceWrongInput(t *testing.T) {
	good := write(t, "good.jsonl", someTrace)
	bad := write(t, "bad.jsonl", someTrace+`{"timestamp": 9, "input_length": -3, "output_length": 5}`+"\n"+`{"timestamp": 9, "input_length": 3, "output_length": NaN}`+"\n")
	header := write(t, "header.csv", "Timestamp,Model,Request tokens,Log Type\n1,a,2,x\n")
	untimed := write(t, "untimed.jsonl", `{"fleetsim_trace":1}`+"\n"+`{"input_tokens":3,"output_tokens":4}`+"\n")
	out := filepath.Join(t.TempDir(), "out.jsonl")
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no command":      {nil, []string{"convert", "info", "head", "sample", "scale"}},
		"unknown command": {[]string{"conver"}, []string{"conver", "convert"}},
		"no file":         {[]string{"convert"}, []string{"0 file names"}},
		"too many":        {[]string{"info", good, out}, []string{"2 file names"}},
		"missing":         {[]string{"convert", "nowhere.csv", out}, []string{"nowhere.csv"}},
		"flags": {[]string{"convert", good, out, "--from-format=moon", "--time-unit=h", "--to-format=vidur", "--from=3s", "--to=2s",
			"--closed-loop", "--replayed", "--split=a", "--untimed-rate=-1", "--chars-per-token=0"},
			[]string{`"moon"`, `"h"`, `"vidur"`, "--to 2s", "--replayed", `"a"`, "--untimed-rate -1", "--chars-per-token 0"}},
		"think":    {[]string{"convert", good, out, "--think=3s"}, []string{"--closed-loop"}},
		"rows":     {[]string{"head", good, out, "-n", "0"}, []string{"--rows 0"}},
		"fraction": {[]string{"sample", good, out, "--fraction", "1.5"}, []string{"--fraction 1.5"}},
		"rate":     {[]string{"scale", good, out, "--rate", "0"}, []string{"--rate 0"}},
		"window":   {[]string{"scale", good, out, "--from", "3"}, []string{"from", "1.5s"}},
		"block":    {[]string{"info", good, "--engine-block", "0", "--format", "xml"}, []string{"--engine-block 0", "xml"}},
		"bad rows": {[]string{"convert", bad, out}, []string{"bad.jsonl:5: input_length: ", "bad.jsonl:6: output_length: "}},
		"info":     {[]string{"info", bad}, []string{"bad.jsonl:5: "}},
		"header":   {[]string{"convert", header, out}, []string{"Response tokens"}},
		"no time":  {[]string{"convert", untimed, out, "--to-format=mooncake"}, []string{"untimed.jsonl:2: no arrival time"}},
		"strict":   {[]string{"convert", good, out, "--strict", "--from-format=bailian"}, []string{"good.jsonl"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := sh(append([]string{"trace"}, c.args...)...)
			require.Equal(t, statusUsage, status, stderr)
			require.Empty(t, stdout)
			for _, want := range c.want {
				require.Contains(t, stderr, want)
			}
			require.NoFileExists(t, out)
			left, err := os.ReadDir(filepath.Dir(out))
			require.NoError(t, err)
			require.Empty(t, left)
		})
	}
	status, _, stderr := sh("trace", "convert", bad, out, "--max-errors", "2")
	require.Equal(t, statusOK, status)
	require.Contains(t, stderr, "2 rows could not be read")
	require.FileExists(t, out)

	status, _, _ = sh("trace", "convert", good, filepath.Join(t.TempDir(), "no", "such", "folder.jsonl"))
	require.Equal(t, statusFailed, status)
}

func TestTraceHelp(t *testing.T) {
	for _, c := range []string{"", "convert", "info", "head", "sample", "scale"} {
		status, stdout, stderr := sh(strings.Fields("trace " + c + " --help")...)
		require.Equal(t, statusOK, status, stderr)
		require.Contains(t, stdout, "Example: sim trace")
	}
}

// hits are the hit tokens of a run of the trace.
func hits(t *testing.T, path string) int {
	status, stdout, stderr := sh("run", path, "--policy", "prefix-cache", "--format", "json", "--set", "cluster.replicas=1",
		"--set", "engine.block_tokens=512", "--set", "engine.blocks=2000")
	require.Equal(t, statusOK, status, stderr)
	phases, err := record.ReadPhases("out", strings.NewReader(stdout))
	require.NoError(t, err)
	total := 0
	for _, r := range phases[0].Replicas {
		total += r.CacheHitTokens.Or(0)
	}
	return total
}

// Prefixes that families share survive the way to another format and back.
func TestConversionKeepsSharedPrefixes(t *testing.T) {
	var b strings.Builder
	b.WriteString(`{"fleetsim_trace":1}` + "\n")
	for i := range 6 {
		fmt.Fprintf(&b, `{"at":%d,"input_tokens":15000,"output_tokens":2,"family":"f%d","family_tokens":14336}`+"\n", 60*i, i%2)
	}
	in := write(t, "families.jsonl", b.String())
	there, back := filepath.Join(t.TempDir(), "there.jsonl"), filepath.Join(t.TempDir(), "back.jsonl")
	status, _, stderr := sh("trace", "convert", in, there, "--to-format", "mooncake")
	require.Equal(t, statusOK, status, stderr)
	status, _, stderr = sh("trace", "convert", there, back)
	require.Equal(t, statusOK, status, stderr)
	want := hits(t, in)
	require.Positive(t, want)
	require.Equal(t, want, hits(t, there))
	require.Equal(t, want, hits(t, back))
}

func TestRunTrace(t *testing.T) {
	in := write(t, "in.jsonl", someTrace)
	status, stdout, stderr := sh("run", in, "--policy", "random", "--policy", "prefix-cache", "--set", "engine.block_tokens=16", "--set", "engine.blocks=5000")
	require.Equal(t, statusOK, status, stderr)
	require.Contains(t, stdout, "in.jsonl: 3 arrivals, 4 replicas, seed 1")
	require.Contains(t, stdout, "at most")
	require.Contains(t, stdout, "note: trace in.jsonl: mooncake, every request sent at its time")
	require.Contains(t, stdout, "note: trace in.jsonl: rows skipped: 1 without output length")
	require.Equal(t, 1, strings.Count(stdout, "cache without limits"), "said once for all policies")

	_, hot90, _ := sh("run", "hot90", "--policy", "random")
	require.NotContains(t, hot90, "at most")

	status, stdout, stderr = sh("run", write(t, "bad.jsonl", someTrace+"{\"timestamp\": 9}\n{\n"), "--format", "json")
	require.Equal(t, statusUsage, status)
	require.Empty(t, stdout)
	require.Contains(t, stderr, "bad.jsonl:6: ")

	// A scenario names its trace relative to itself, the command line to where it
	// is run.
	dir := t.TempDir()
	require.NoError(t, os.WriteFile(filepath.Join(dir, "t.jsonl"), []byte(someTrace), 0o600))
	file := filepath.Join(dir, "s.toml")
	require.NoError(t, os.WriteFile(file, []byte("policies = [\"random\"]\n[workload]\nrequests = 2\n[workload.trace]\npath = \"t.jsonl\"\n"), 0o600))
	status, stdout, stderr = sh("run", file)
	require.Equal(t, statusOK, status, stderr)
	require.Contains(t, stdout, "s: 2 arrivals, 1 replicas")
	status, _, stderr = sh("run", file, "--set", "workload.trace.path=t.jsonl")
	require.Equal(t, statusUsage, status)
	require.Contains(t, stderr, "t.jsonl: no such file")
}

// Every sample that holds requests runs, and says how many.
func TestRunSamples(t *testing.T) {
	samples, err := filepath.Glob("../../../shared/samples/*/*.*")
	require.NoError(t, err)
	if len(samples) == 0 {
		t.Skip("the shared samples are not beside the checkout")
	}
	planned := map[string]int{
		"v0.7.0_streaming_recorded.jsonl": 5, "v0.7.0_generator_style.jsonl": 8, "v0.7.0_scenarios_excerpt.jsonl": 4,
		"qwen_blksz_16_excerpt.jsonl": 7, "conversation_excerpt.jsonl": 13, "2024_style_excerpt.csv": 4,
		"AzureLLMInferenceTrace_code_excerpt.csv": 19, "report_with_requests.json": 3,
		"per_request_lifecycle_metrics.json": 4, "detailed.json": 5,
	}
	for _, path := range samples {
		name := filepath.Base(path)
		status, stdout, stderr := sh("run", path, "--policy", "least-request", "--format", "json")
		if name == "report_summary_only.json" {
			require.Equal(t, statusUsage, status)
			require.Contains(t, stderr, "only the summary of a run")
			continue
		}
		require.Equal(t, statusOK, status, stderr)
		phases, err := record.ReadPhases(name, strings.NewReader(stdout))
		require.NoError(t, err)
		require.Equal(t, record.Some(planned[name]), phases[0].Planned, name)
		require.Equal(t, phases[0].Planned, phases[0].Success, name)
	}
}
