package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExport(t *testing.T) {
	dir := t.TempDir()
	run, file := filepath.Join(dir, "run"), filepath.Join(dir, "hot90.om")
	status, _, stderr := sh("run", "hot90", "--policy", "prefix-cache", "--out", run)
	require.Equal(t, statusOK, status, stderr)

	status, stdout, stderr := sh("export", "openmetrics", run, "--start", "2026-09-10T00:00:00Z", "--step", "1s", "--model", "qwen", "--out", file)
	require.Equal(t, statusOK, status, stderr)
	require.Contains(t, stdout, "hot90 under prefix-cache: 2026-09-10T00:00:00.000Z to 2026-09-10T00:01:")
	written, err := os.ReadFile(file)
	require.NoError(t, err)
	require.True(t, strings.HasSuffix(string(written), "# EOF\n"))

	status, stdout, _ = sh("export", "openmetrics", run, "--start", "2026-09-10T00:00:00Z", "--step", "1s", "--model", "qwen")
	require.Equal(t, statusOK, status)
	require.Equal(t, string(written), stdout)
	for _, want := range []string{"vllm:num_requests_waiting{", "vllm:kv_cache_usage_perc{", "vllm:prefix_cache_hits_total{",
		"vllm:time_to_first_token_seconds_bucket{", "aibrix_prefix_cache_routing_selection_total{", `node_alias="L20-A"`, `model_name="qwen"`, `phase="hot90"`} {
		require.Contains(t, stdout, want)
	}
}

func TestExportWrongInput(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no format":    {[]string{"runs"}, "openmetrics"},
		"no directory": {[]string{"openmetrics"}, "RUN_DIR"},
		"missing":      {[]string{"openmetrics", filepath.Join(t.TempDir(), "nowhere")}, "nowhere"},
		"start":        {[]string{"openmetrics", ".", "--start", "today"}, "2026-01-01T00:00:00Z"},
		"gap":          {[]string{"openmetrics", ".", "--gap", "-1s"}, "0s or more"},
	} {
		status, stdout, stderr := sh(append([]string{"export"}, c.args...)...)
		require.Equal(t, statusUsage, status, name)
		require.Empty(t, stdout, name)
		require.Contains(t, stderr, c.want, name)
	}
}
