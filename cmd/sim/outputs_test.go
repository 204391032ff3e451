package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// Nothing is written over what is read, under whatever name: the command is refused
// before it does anything.
func TestOutputIsAnInput(t *testing.T) {
	dir := t.TempDir()
	run, swept := filepath.Join(dir, "run"), filepath.Join(dir, "swept")
	status, _, stderr := sh("run", "hot90", "--policy", "random", "--out", run)
	require.Equal(t, statusOK, status, stderr)
	status, _, stderr = sh(with(small, "--out", swept)...)
	require.Equal(t, statusOK, status, stderr)
	put := func(name, content string) string {
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, []byte(content), 0o600))
		return path
	}
	_, base, err := scenario.Open("hot90")
	require.NoError(t, err)
	sc := put("mine.toml", string(base))
	profile := put("profile.toml", "name = \"mine\"\ninherits = \"qwen3.8-27b-fp8-l20\"\n")
	trace := put("trace.jsonl", someTrace)
	traced := put("traced.toml", "cluster.replicas = 2\nworkload.trace.path = \"run/requests.jsonl.gz\"\n")
	symbolic, hard := filepath.Join(dir, "symbolic"), filepath.Join(dir, "hard")
	require.NoError(t, os.Symlink("trace.jsonl", symbolic))
	require.NoError(t, os.Link(trace, hard))
	requests, phases := filepath.Join(run, record.RequestsFile), filepath.Join(run, record.PhasesFile)
	figure := put("figure.svg", `{"phase":"a","result":"ok","http_status":200,"ttft":0.5,"e2e":1.5,"output_tokens":11}`)
	calibrate := []string{"calibrate", requests, "--scenario", sc, "--policy", "random", "--profile", profile}
	all := func() map[string]string {
		found := files(t, dir)
		for _, d := range []string{run, swept} {
			for name, content := range files(t, d) {
				found[filepath.Join(d, name)] = content
			}
		}
		return found
	}
	before := all()
	for name, args := range map[string][]string{
		"convert":               {"trace", "convert", trace, trace},
		"convert symbolic link": {"trace", "convert", trace, symbolic},
		"convert hard link":     {"trace", "convert", hard, trace},
		"convert another way":   {"trace", "convert", trace, filepath.Join(run, "..", "trace.jsonl")},
		"head":                  {"trace", "head", trace, trace},
		"sample":                {"trace", "sample", trace, trace},
		"scale":                 {"trace", "scale", trace, trace},
		"calibrate run":         with(calibrate, "-o", requests),
		"calibrate scenario":    with(calibrate, "-o", sc),
		"calibrate profile":     with(calibrate, "-o", profile),
		"calibrate bench":       with(calibrate, "--bench-output", sc),
		"calibrate one for two": with(calibrate, "-o", filepath.Join(dir, "new.toml"), "--bench-output", filepath.Join(run, "..", "new.toml")),
		"export":                {"export", "openmetrics", run, "--out", phases},
		"report":                {"sweep", "report", swept, "--report", filepath.Join(swept, "runs.log")},
		"report of new results": with(small, "--out", filepath.Join(dir, "new"), "--report", filepath.Join(dir, "new", "runs.log")),
		"report for the sweep":  with(small, "--out", swept, "--resume", "--report", filepath.Join(swept, "manifest.json")),
		"merge":                 {"sweep", "merge", swept, "--out", filepath.Join(dir, "new"), "--report", filepath.Join(swept, "runs.csv")},
		"run a trace":           {"run", phases, "--out", run},
		"run with a trace":      {"run", traced, "--out", run},
		"compare figure":        {"compare", figure, "--scenario", "hot90", "--policy", "random", "--plot", dir},
		"compare file":          {"compare", run, "--scenario", "hot90", "--plot", phases},
		"replay":                {"replay", sc, "--out", sc},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := sh(args...)
			require.Equal(t, statusUsage, status, stderr)
			require.Empty(t, stdout)
			require.Regexp(t, "would replace .*: allowed is another|is a file, not a directory: name a directory", stderr)
			require.Equal(t, before, all())
			require.NoDirExists(t, filepath.Join(dir, "new"))
		})
	}
	status, _, stderr = sh("trace", "convert", os.DevNull, os.DevNull)
	require.NotContains(t, stderr, "would replace", "it is not replaced")
	require.Equal(t, statusUsage, status, "there is nothing to read")
}
