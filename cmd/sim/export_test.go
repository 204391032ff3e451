package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
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

// A directory is refused before anything is made beside it, and what is no regular
// file is written to, not replaced.
func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, os.Mkdir(filepath.Join(dir, "d"), 0o777))
	hello := func(w io.Writer) error {
		_, err := io.WriteString(w, "hello")
		return err
	}
	for _, name := range []string{"d", "new/"} {
		require.ErrorContains(t, writeFile(dir+"/"+name, func(io.Writer) error {
			t.Error("written to")
			return nil
		}), "is a directory: name a file")
	}
	require.Empty(t, files(t, dir))

	pipe := filepath.Join(dir, "pipe")
	require.NoError(t, syscall.Mkfifo(pipe, 0o600))
	in, err := os.OpenFile(pipe, os.O_RDWR, 0)
	require.NoError(t, err)
	defer in.Close()
	require.NoError(t, writeFile(pipe, hello))
	got := make([]byte, 5)
	_, err = io.ReadFull(in, got)
	require.NoError(t, err)
	require.Equal(t, "hello", string(got))

	file := filepath.Join(dir, "f")
	require.NoError(t, writeFile(file, hello))
	require.Equal(t, "hello", read(t, file))
	info, err := os.Stat(file)
	require.NoError(t, err)
	require.Equal(t, os.FileMode(0o644), info.Mode())
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
		"out":          {[]string{"openmetrics", ".", "--out", os.TempDir()}, "is a directory: name a file"},
		"step":         {[]string{"openmetrics", ".", "--step", "0s"}, "1ms or more"},
		"gap":          {[]string{"openmetrics", ".", "--gap", "-1s"}, "0s or more"},
	} {
		status, stdout, stderr := sh(append([]string{"export"}, c.args...)...)
		require.Equal(t, statusUsage, status, name)
		require.Empty(t, stdout, name)
		require.Contains(t, stderr, c.want, name)
	}
}
