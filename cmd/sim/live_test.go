package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

func TestReplayWrongInput(t *testing.T) {
	const url = "http://127.0.0.1:1"
	enough := []string{"--max-requests", "1000", "--max-duration", "1m", "--out", t.TempDir()}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"no scenario":      {nil, []string{"SCENARIO"}},
		"everything":       {[]string{"hot90"}, []string{"--url is missing", "--max-requests is missing", "--max-duration is missing", "--out is missing"}},
		"not this machine": {append([]string{"hot90", "--url", "http://example.org"}, enough...), []string{"example.org", "--yes-send-traffic"}},
		"engine elsewhere": {append([]string{"hot90", "--url", url, "--engine", "A=http://10.0.0.1"}, enough...), []string{"10.0.0.1", "--yes-send-traffic"}},
		"scheme":           {append([]string{"hot90", "--url", "ftp://127.0.0.1"}, enough...), []string{"--url", "http://127.0.0.1:8080"}},
		"password":         {append([]string{"hot90", "--url", "http://me:secret@127.0.0.1"}, enough...), []string{"--auth-env"}},
		"auth by flag":     {append([]string{"hot90", "--url", url, "--header", "authorization=Bearer secret"}, enough...), []string{"--auth-env"}},
		"auth missing":     {append([]string{"hot90", "--url", url, "--auth-env", "FLEETSIM_TEST_NO_SUCH"}, enough...), []string{"FLEETSIM_TEST_NO_SUCH"}},
		"pair":             {append([]string{"hot90", "--url", url, "--alias", "pod"}, enough...), []string{"--alias", "NAME=VALUE"}},
		"twice":            {append([]string{"hot90", "--url", url, "--alias", "p=A", "--alias", "p=B"}, enough...), []string{"twice"}},
		"endpoint":         {append([]string{"hot90", "--url", url, "--endpoint", "responses"}, enough...), []string{"completions, chat"}},
		"speed":            {append([]string{"hot90", "--url", url, "--speed", "0"}, enough...), []string{"--speed"}},
		"too many":         {[]string{"hot90", "--url", url, "--max-requests", "200", "--max-duration", "1m", "--out", t.TempDir()}, []string{"288 requests in 3 phases"}},
		"policy":           {append([]string{"hot90", "--url", url, "--policy", "least-requests"}, enough...), []string{"least-request"}},
	} {
		t.Run(name, func(t *testing.T) {
			status, stdout, stderr := sh(append([]string{"replay"}, c.args...)...)
			require.Equal(t, statusUsage, status, stderr)
			require.Empty(t, stdout)
			for _, want := range c.want {
				require.Contains(t, stderr, want)
			}
			require.NotContains(t, stderr, "secret")
		})
	}
}

// A dry run opens no connection, also to a host that would need permission.
func TestReplayDryRun(t *testing.T) {
	t.Setenv("FLEETSIM_TEST_AUTH", "Bearer secret")
	status, stdout, stderr := sh("replay", "hot90", "--url", "http://gateway.example.org", "--policy", "prefix-cache", "--auth-env", "FLEETSIM_TEST_AUTH",
		"--header", "x-key=secret", "--controlled-start", "--engine", "L20-A=http://10.0.0.1:8000", "--max-requests", "500", "--max-duration", "5m", "--dry-run")
	require.Equal(t, statusOK, status, stderr)
	for _, want := range []string{"96 requests in 59.375s", "12288 output tokens", "POST http://gateway.example.org/v1/completions", "Routing-Strategy: prefix-cache",
		"Authorization: (given, not shown)", "controlled start: up to", "nothing was sent"} {
		require.Contains(t, stdout, want)
	}
	require.NotContains(t, stdout, "secret")
}

func TestServeWrongInput(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"no scenario": {nil, "SCENARIO"},
		"speed":       {[]string{"hot90", "--speed", "fast"}, "or max"},
		"seed":        {[]string{"hot90", "--seed", "-1"}, "--seed"},
		"policy":      {[]string{"hot90", "--policy", "least-requests"}, "least-request"},
		"profile":     {[]string{"hot90", "--profile", "h100"}, "qwen3.8-27b-fp8-l20"},
		"body":        {[]string{"hot90", "--max-body", "0"}, "--max-body"},
		"address":     {[]string{"hot90", "--listen", "nowhere:http:80"}, "--listen"},
	} {
		status, stdout, stderr := sh(append([]string{"serve"}, c.args...)...)
		require.Equal(t, statusUsage, status, name)
		require.Empty(t, stdout, name)
		require.Contains(t, stderr, c.want, name)
	}
}

// Serve, replay and export, from the command line: what is replayed is recorded
// like a simulated run.
func TestServeAndReplay(t *testing.T) {
	o := serveFlags{speed: "max", salt: "sim", sets: []string{"workload.requests=12", "workload.output_tokens=4"}, maxBody: 1 << 20, timeout: time.Minute}
	s, notes, err := o.server([]string{"hot90"})
	require.NoError(t, err)
	require.Empty(t, notes)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serveUntil(ctx, s, l, time.Minute) }()
	base, dir := "http://"+l.Addr().String(), filepath.Join(t.TempDir(), "run")

	status, stdout, stderr := sh("replay", "hot90", "--url", base, "--set", "workload.requests=12", "--set", "workload.output_tokens=4", "--salt", "sim",
		"--policy", "prefix-cache", "--policy", "least-request", "--speed", "1000", "--max-requests", "24", "--max-duration", "1m",
		"--engine", "L20-A="+base+"/pods/L20-A", "--engine", "L20-B="+base+"/pods/L20-B", "--gateway-metrics", base+"/metrics",
		"--model", "qwen3.8-27b-fp8-l20", "--out", dir)
	require.Equal(t, statusOK, status, stderr)
	require.Contains(t, stdout, "prefix-cache")
	phases, err := record.ReadPhases("phases", strings.NewReader(read(t, filepath.Join(dir, record.PhasesFile))))
	require.NoError(t, err)
	require.Len(t, phases, 2)
	for _, p := range phases {
		require.Equal(t, 12, p.Success.Or(-1))
		require.True(t, p.CacheHitRatio.Valid())
	}
	require.Equal(t, "hot90-prefix-cache", phases[0].Phase)
	requests, err := record.ReadRequests("requests", strings.NewReader(read(t, filepath.Join(dir, record.RequestsFile))))
	require.NoError(t, err)
	require.Len(t, requests, 24)
	status, stdout, stderr = sh("export", "openmetrics", dir)
	require.Equal(t, statusOK, status, stderr)
	require.True(t, strings.HasSuffix(stdout, "# EOF\n"))

	stop()
	require.NoError(t, <-ended)
	_, err = http.Get(base + "/health")
	require.Error(t, err, "nobody listens any more")
}

// At the end of the grace what is in flight is aborted, and the exit says so.
func TestServeAbortsAfterTheGrace(t *testing.T) {
	o := serveFlags{speed: "1", salt: "sim", maxBody: 1 << 20, timeout: time.Minute}
	s, _, err := o.server([]string{"hot90"})
	require.NoError(t, err)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- serveUntil(ctx, s, l, 100*time.Millisecond) }()
	resp, err := http.Post("http://"+l.Addr().String()+"/v1/completions", "application/json",
		strings.NewReader(`{"model":"qwen3.8-27b-fp8-l20","prompt":"What is it","max_tokens":1000,"stream":true}`))
	require.NoError(t, err)
	defer resp.Body.Close()
	stop()
	body, err := io.ReadAll(resp.Body)
	require.NoError(t, err)
	require.Contains(t, string(body), `"finish_reason":"abort"`)
	require.ErrorContains(t, <-ended, "aborted")
}

func TestServeSaysWhatItLeavesOut(t *testing.T) {
	for name, want := range map[string]string{"tenants-protected": "[admission]", "kpa-scale": "[autoscale]", "drain-native": "[[faults]]", "evicting-kv-sync": "KV cache events"} {
		o := serveFlags{speed: "1", maxBody: 1, timeout: time.Second}
		s, notes, err := o.server([]string{name})
		require.NoError(t, err, name)
		require.NoError(t, s.Close(context.Background()))
		require.Len(t, notes, 1, name)
		require.Contains(t, notes[0], want)
	}
}
