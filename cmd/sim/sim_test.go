package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim"
	"fleetsim/sim/record"
)

// sh runs a command line and returns its status and output.
func sh(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = dispatch(args, &out, &errs)
	return status, out.String(), errs.String()
}

func write(t *testing.T, name, content string) string {
	path := filepath.Join(t.TempDir(), name)
	require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
	return path
}

// Wrong input ends with status 2 and says what is wrong and what is allowed,
// with nothing on standard output.
func TestWrongInput(t *testing.T) {
	bad := write(t, "bad.toml", strings.Join([]string{
		`name = "bad"`,
		`policies = ["prefix-cash"]`,
		`[cluster]`,
		`replicas = 0`,
		`replica = 3`,
		`[workload]`,
		`output_tokens = 128`,
		`[workload.arrivals]`,
		`rate_per_second = -1.0`,
		`[workload.prompt]`,
		`families = 8`,
		`hot_fraction = 1.5`,
	}, "\n"))
	profile := write(t, "profile.toml", strings.Join([]string{
		`name = "bad"`,
		`inherits = "qwen3.8-27b-fp8-l20"`,
		`[engine]`,
		`max_num_seq = 4`,
		`[cost]`,
		`base = { value = -1, unit = "s/step" }`,
	}, "\n"))
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no command":                {nil, []string{"Usage"}},
		"unknown command":           {[]string{"rnu"}, []string{"rnu", "run, "}},
		"no scenario":               {[]string{"run"}, []string{"SCENARIO"}},
		"missing file":              {[]string{"run", "nowhere.toml"}, []string{"nowhere.toml"}},
		"missing trace":             {[]string{"run", "nowhere.jsonl"}, []string{"nowhere.jsonl: no such file"}},
		"directory":                 {[]string{"run", "../sim"}, []string{"../sim: is a directory"}},
		"unknown name":              {[]string{"run", "hot9"}, []string{"hot9", "hot90"}},
		"unknown flag":              {[]string{"run", "hot90", "--polcy", "random"}, []string{"polcy"}},
		"format":                    {[]string{"run", "hot90", "--format", "xml"}, []string{"xml", "table", "json", "jsonl"}},
		"repeat":                    {[]string{"run", "hot90", "--repeat", "0"}, []string{"--repeat 0"}},
		"seed":                      {[]string{"run", "hot90", "--seed", "-1"}, []string{"-1"}},
		"policy":                    {[]string{"run", "hot90", "--policy", "least-requests"}, []string{"least-requests", "least-request"}},
		"policy run":                {[]string{"run", "hot90", "--policy", "X"}, []string{`--policy: unknown policy "X"`}},
		"policy plan":               {[]string{"plan", "hot90", "--policy", "X"}, []string{`--policy: unknown policy "X"`}},
		"policy serve":              {[]string{"serve", "hot90", "--policy", "X"}, []string{`--policy: unknown policy "X"`}},
		"policy replay":             {[]string{"replay", "hot90", "--policy", "X"}, []string{`--policy: unknown policy "X"`}},
		"policies set":              {[]string{"run", "hot90", "--set", "policies=X"}, []string{"--set policies: "}},
		"policies of plan, twice":   {[]string{"plan", "hot90", "--policy", "random", "--set", "policies=[]"}, []string{"--policy and --set policies"}},
		"policies of replay, twice": {[]string{"replay", "hot90", "--policy", "random", "--set", "policies=[]"}, []string{"--policy and --set policies"}},
		"seed beyond":               {[]string{"run", "hot90", "--seed", "18446744073709551615", "--repeat", "3"}, []string{"2^64-1"}},
		"scenario twice":            {[]string{"run", "hot90", "hot90"}, []string{"hot90", "twice"}},
		"policies twice":            {[]string{"run", "hot90", "--policy", "random", "--set", `policies=["nope"]`}, []string{"--policy", "--set policies"}},
		"workers":                   {[]string{"run", "hot90", "--workers", "-1"}, []string{"--workers -1"}},
		"cell alone":                {[]string{"run", "hot90", "--cell", "3"}, []string{"--from", "--cell"}},
		"out is a file":             {[]string{"run", "hot90", "--out", bad}, []string{"--out", "not a directory"}},
		"step":                      {[]string{"run", "hot90", "--step", "1us", "--out", "never"}, []string{"--step 1µs", "1ms"}},
		"profile":                   {[]string{"run", "hot90", "--profile", "h100"}, []string{"h100", "qwen3.8-27b-fp8-l20"}},
		"set":                       {[]string{"run", "hot90", "--set", "cluster.replcas=3"}, []string{"cluster.replcas", "replicas"}},
		"engine":                    {[]string{"run", "hot90", "--set", "engine.blocks=20"}, []string{"blocks"}},
		"everything in a file at once": {[]string{"run", bad}, []string{
			"bad.toml:2:", "prefix-cash", "prefix-cache", "bad.toml:4:", "replicas", "bad.toml:5:", "bad.toml:9:", "rate_per_second", "bad.toml:12:", "hot_fraction",
		}},
		"everything in a profile at once": {[]string{"run", "hot90", "--profile", profile}, []string{
			"profile.toml:4:", "max_num_seqs", "profile.toml:6:", "0 to 3600",
		}},
		"unknown study": {[]string{"compare", "routing-studies"}, []string{"routing-studies", "routing-study"}},
		"no study":      {[]string{"compare"}, []string{"STUDY"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := sh(c.args...)
			require.Equal(t, statusUsage, status, stderr)
			require.Empty(t, stdout)
			for _, want := range c.want {
				require.Contains(t, stderr, want)
			}
			require.NotContains(t, stderr, "goroutine")
		})
	}
}

// A flag that would do nothing is refused with what it belongs to.
func TestUselessFlags(t *testing.T) {
	for line, want := range map[string]string{
		"run hot90 --step 2s":                        "--step is given without --out, to which it belongs",
		"run hot90 --list":                           "--list stands alone: not allowed with it: hot90",
		"run --list --format json":                   "--list stands alone: not allowed with it: --format",
		"run hot90 --out=":                           "--out is given without a value",
		"run --from x --cell 0 --summary-only":       "--from runs a cell as it was",
		"sweep capacity --list":                      "--list stands alone: not allowed with it: capacity",
		"sweep capacity --seeds 0":                   "--seeds 0: allowed is 1 or more; without the flag it is the sweep's own",
		"sweep capacity --cell 1":                    "--cell is given without --report or --figures",
		"sweep report x --cell 1":                    "--cell is given without --report or --figures",
		"sweep merge x --out y --cell 1":             "--cell is given without --report or --figures",
		"plan hot90 --tolerance 0.1":                 "--tolerance is given without --find rate",
		"plan hot90 --slo good>=99":                  "the load has 96; allowed: at most that, or a percentage of them, such as good>=99%",
		"compare routing-study --wide --format json": "--pairs and --wide are for --format table",
		"compare x --scenario hot90 --wide":          "--wide is for the tables of a STUDY and of --pairs",
		"calibrate x --policy random":                "--policy is given without --scenario",
		"calibrate x --noise":                        "--noise is given without --output or --bench-output",
		"trace convert x --seed 2":                   "--seed is given without --split",
		"trace convert x --think 0s":                 "--think is for --closed-loop only",
	} {
		status, stdout, stderr := sh(strings.Fields(line)...)
		require.Equal(t, statusUsage, status, line)
		require.Empty(t, stdout, line)
		require.Contains(t, stderr, want, line)
	}
}

// What is wrong with the flags is said before what is wrong with the data.
func TestCalibrateWrongInput(t *testing.T) {
	record := `{"phase":"a","result":"ok","http_status":200,"ttft":0.5,"e2e":1.5,"output_tokens":11}`
	few := write(t, "few.jsonl", record)
	link := filepath.Join(t.TempDir(), "link")
	require.NoError(t, os.Symlink(few, link))
	calibrate := []string{"calibrate", few, "--scenario", "hot90"}
	for _, c := range []struct {
		args []string
		want string
	}{
		{calibrate, "a have 1 successes and figures"},
		{with(calibrate, "--fit", "nope"), `fit "nope": unknown coefficient`},
		{with(calibrate, "--fit", "launch", "--fit", "launch"), `fit "launch": it is given twice`},
		{with(calibrate, "--fix", "nope"), `fix "nope": unknown coefficient`},
		{with(calibrate, "--bound", "launch=2:1"), "launch: bounds 2 to 1: allowed are"},
		{with(calibrate, "--policy", "X"), `--policy: unknown policy "X"`},
		{with(calibrate, few), few + " is given twice, as " + few + " before: its requests would count double"},
		{with(calibrate, link), link + " is given twice, as " + few},
		{with(calibrate, "--cross-validate"), "--cross-validate needs at least two runs"},
		{with(calibrate, "--bench-output", "b.toml"), "--bench-profile and --bench-output are for results of vllm bench serve"},
		{[]string{"calibrate", few, "--scenario", "routing-study", "--policy", "random"}, "a study names the policy of each phase itself"},
	} {
		status, stdout, stderr := sh(c.args...)
		require.Equal(t, statusUsage, status, c.args)
		require.Empty(t, stdout)
		require.Contains(t, stderr, c.want)
	}
}

// What standard output cannot take is an error, but for a reader who has had enough;
// the records are kept.
func TestStandardOutputFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "out")
	for name, args := range map[string][]string{
		"run":        {"run", "hot90", "--policy", "random"},
		"json":       {"run", "hot90", "--policy", "random", "--format", "json", "--out", dir},
		"run list":   {"run", "--list"},
		"sweep list": {"sweep", "--list"},
		"compare":    {"compare", "routing-study"},
		"plan":       {"plan", "hot50", "--policy", "random", "--seeds", "5"},
		"info":       {"trace", "info", write(t, "in.jsonl", someTrace)},
		"help":       {"help"},
		"run help":   {"run", "--help"},
		"version":    {"version"},
	} {
		t.Run(name, func(t *testing.T) {
			var stderr bytes.Buffer
			require.Equal(t, statusFailed, dispatch(args, failing{syscall.ENOSPC}, &stderr))
			require.Equal(t, 1, strings.Count(stderr.String(), "no space left on device"), stderr.String())
		})
	}
	require.FileExists(t, filepath.Join(dir, record.PhasesFile))
	var stderr bytes.Buffer
	require.Equal(t, statusOK, dispatch([]string{"version"}, failing{syscall.EPIPE}, &stderr))
	require.Empty(t, stderr.String())
}

// failing is a writer to which nothing can be written.
type failing struct{ err error }

func (f failing) Write([]byte) (int, error) {
	return 0, &os.PathError{Op: "write", Path: "/dev/stdout", Err: f.err}
}

func TestHelp(t *testing.T) {
	for _, c := range commands() {
		if c.name == "version" {
			continue
		}
		status, stdout, stderr := sh(c.name, "--help")
		require.Equal(t, statusOK, status)
		require.Contains(t, stdout, "Example: sim "+c.name)
		require.Empty(t, stderr)
	}
}

func TestRunTable(t *testing.T) {
	status, stdout, stderr := sh("run", "hot90")
	require.Equal(t, statusOK, status, stderr)
	require.Empty(t, stderr, "no progress outside a terminal")
	for _, want := range []string{"random", "least-request", "prefix-cache", "TTFT p50", "hit ratio", "split"} {
		require.Contains(t, stdout, want)
	}
}

// JSON is one phase record, or an array of several, that reads back.
func TestRunJSON(t *testing.T) {
	status, stdout, _ := sh("run", "hot90", "--policy", "prefix-cache", "--format", "json")
	require.Equal(t, statusOK, status)
	var one map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &one))
	require.Equal(t, true, one["simulated"])

	status, stdout, _ = sh("run", "hot90", "--policy", "prefix-cache", "--repeat", "3", "--format", "json")
	require.Equal(t, statusOK, status)
	var many []map[string]any
	require.NoError(t, json.Unmarshal([]byte(stdout), &many))
	require.Len(t, many, 3)

	status, stdout, _ = sh("run", "hot90", "--format", "jsonl")
	require.Equal(t, statusOK, status)
	phases, err := record.ReadPhases("stdout", strings.NewReader(stdout))
	require.NoError(t, err)
	require.Len(t, phases, 3)
}

// A run of constant memory has the figures of any other, its quantiles to 0.1%.
func TestSummaryOnly(t *testing.T) {
	read := func(args ...string) record.Phase {
		status, stdout, stderr := sh(append([]string{"run", "hot90", "--policy", "prefix-cache", "--format", "jsonl"}, args...)...)
		require.Equal(t, statusOK, status, stderr)
		phases, err := record.ReadPhases("stdout", strings.NewReader(stdout))
		require.NoError(t, err)
		require.Len(t, phases, 1)
		return phases[0]
	}
	exact, sketched := read(), read("--summary-only")
	require.Equal(t, exact.Good, sketched.Good)
	require.InEpsilon(t, exact.TTFT.P95.Or(0), sketched.TTFT.P95.Or(-1), 0.001)
}

// The same command gives the same bytes, on one processor or two, and in the
// run directory too.
func TestSameBytes(t *testing.T) {
	outputs := map[string]bool{}
	for _, procs := range []int{1, 2, 2} {
		old := runtime.GOMAXPROCS(procs)
		dir := filepath.Join(t.TempDir(), "out")
		status, stdout, stderr := sh("run", "hot90", "--repeat", "3", "--format", "jsonl", "--out", dir)
		runtime.GOMAXPROCS(old)
		require.Equal(t, statusOK, status, stderr)
		all := stdout
		for _, name := range []string{record.PhasesFile, record.RequestsFile, sim.TimelineFile, seriesFile} {
			content, err := os.ReadFile(filepath.Join(dir, name))
			require.NoError(t, err)
			require.NotEmpty(t, content)
			all += string(content)
		}
		outputs[all] = true
	}
	require.Len(t, outputs, 1)
}

func TestCompareJSON(t *testing.T) {
	status, stdout, stderr := sh("compare", "routing-study", "--repeat", "3", "--format", "json")
	require.Equal(t, statusOK, status, stderr)
	var c struct {
		Study  string
		Phases []struct {
			Phase               string
			Measured, Simulated map[string]any
			Band                map[string]struct{ P5, P50, P95 *float64 }
		}
	}
	require.NoError(t, json.Unmarshal([]byte(stdout), &c))
	require.Equal(t, "routing-study", c.Study)
	require.Len(t, c.Phases, 24)
	for _, p := range c.Phases {
		require.NotNil(t, p.Measured["good"])
		require.NotNil(t, p.Simulated["good"])
		band := p.Band["ttft.p95"]
		require.LessOrEqual(t, *band.P5, *band.P50)
		require.LessOrEqual(t, *band.P50, *band.P95)
	}
}

func TestCompareTable(t *testing.T) {
	status, stdout, stderr := sh("compare", "routing-study", "--repeat", "2")
	require.Equal(t, statusOK, status, stderr)
	require.Contains(t, stdout, "r2-hot90-prefix-cache")
	require.Contains(t, stdout, "inside the 5-95% band")
}
