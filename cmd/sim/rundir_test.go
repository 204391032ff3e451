package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"fleetsim/sim"
	"fleetsim/sim/record"
)

// wave is a load of unique prompts on two replicas that can take it.
var wave = []string{"workload.prompt.families=0", "workload.prompt.hot_fraction=0", "workload.prompt.body_repeat=30",
	"workload.prompt.salt_tokens=0", "workload.prompt.salt_tokens_spread=0", "start.engine_cache=cold", "start.router_index=cold",
	"start.owners=[]", "start.spare={}"}

func waveSetups(t testing.TB, requests int, policies ...string) []sim.Setup {
	o := runFlags{format: "jsonl", repeat: 1, policies: policies, sets: append(wave, fmt.Sprint("workload.requests=", requests))}
	setups, err := o.setups([]string{"hot90"})
	require.NoError(t, err)
	return setups
}

// BenchmarkRunDir is the cost of the records of a run, without time series: all of it
// with the simulation, what the simulation's own goroutine does of it, and how much is held
// in memory beyond the 24 bytes a request of the summary.
func BenchmarkRunDir(b *testing.B) {
	for _, n := range []int{100_000, 1_000_000} {
		b.Run(fmt.Sprintf("requests=%d", n), func(b *testing.B) {
			var held uint64
			var loop time.Duration
			for b.Loop() {
				setups := waveSetups(b, n, "least-request")
				before := reachable()
				d, err := newRunDir(b.TempDir())
				require.NoError(b, err)
				ctx := d.record(b.Context(), setups)
				each, ended := setups[0].Each, 0
				setups[0].Each = func(r *record.Request) {
					each(r)
					if ended++; ended == n-100 {
						held = reachable() - before - 24*uint64(n)
					}
				}
				start := time.Now()
				phases, err := sim.RunAll(ctx, setups, 1, nil)
				loop += time.Since(start)
				require.NoError(b, err)
				require.NoError(b, d.commit(b.Context(), phases, 0))
			}
			requests := float64(b.N) * float64(n)
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/requests, "ns/request")
			b.ReportMetric(float64(loop.Nanoseconds())/requests, "loop-ns/request")
			b.ReportMetric(float64(held)/1e6, "held-MB")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// reachable is how many bytes are reachable.
func reachable() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

// allFiles are the names in a directory, hidden ones too.
func allFiles(t *testing.T, dir string) []string {
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// Of runs that are stopped those that are complete are kept, with their own
// requests, also when they come after one that is not.
func TestStoppedRunsKeepWhatIsComplete(t *testing.T) {
	dir := t.TempDir()
	setups := append(waveSetups(t, 5000, "random"), waveSetups(t, 300, "least-request")...)
	d, err := newRunDir(dir)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ctx = d.record(ctx, setups)
	other := make(chan struct{})
	done, each, n := setups[1].Done, setups[0].Each, 0
	setups[1].Done = func() { done(); close(other) }
	setups[0].Each = func(r *record.Request) {
		each(r)
		if n++; n == 1000 {
			<-other
			stop()
		}
	}
	phases, err := sim.RunAll(ctx, setups, 2, nil)
	require.ErrorIs(t, err, context.Canceled)
	require.NoError(t, d.failed())
	require.Nil(t, phases[0])
	require.NoError(t, d.commit(t.Context(), kept(phases), time.Second))
	d.abort()
	require.Equal(t, []string{seriesFile, record.PhasesFile, record.RequestsFile, sim.TimelineFile}, allFiles(t, dir))
	require.NotContains(t, read(t, filepath.Join(dir, seriesFile)), `route="random"`)

	alone := filepath.Join(t.TempDir(), "alone")
	d, err = newRunDir(alone)
	require.NoError(t, err)
	phases, err = sim.RunAll(d.record(t.Context(), setups[1:]), setups[1:], 1, nil)
	require.NoError(t, err)
	require.NoError(t, d.commit(t.Context(), phases, time.Second))
	for _, name := range allFiles(t, dir) {
		require.Equal(t, read(t, filepath.Join(alone, name)), read(t, filepath.Join(dir, name)), name)
	}
}

// An interrupt before any run is complete leaves the directory as it was.
func TestInterruptedRunLeavesNothing(t *testing.T) {
	dir := t.TempDir()
	before := filepath.Join(dir, record.PhasesFile)
	require.NoError(t, os.WriteFile(before, []byte("{}\n"), 0o600))
	go func() {
		for range 1000 {
			if entries, err := os.ReadDir(dir); err == nil && len(entries) > 3 { // records have gone through a file
				_ = syscall.Kill(os.Getpid(), syscall.SIGINT)
				return
			}
			time.Sleep(10 * time.Millisecond)
		}
	}()
	args := []string{"run", "hot90", "--policy", "least-request", "--out", dir, "--set", "workload.requests=30000000", "--summary-only"}
	for _, s := range wave {
		args = append(args, "--set", s)
	}
	status, stdout, stderr := sh(args...)
	require.Equal(t, statusFailed, status, stderr)
	require.Contains(t, stderr, "stopped: 0 of 1 runs are complete and kept")
	require.Empty(t, stdout)
	require.Equal(t, []string{record.PhasesFile}, allFiles(t, dir))
	require.Equal(t, "{}\n", read(t, before))
}

// A signal while a scenario is loaded ends the command at once. The scenario is a pipe
// that nobody writes to.
func TestSignalWhileLoading(t *testing.T) {
	if pipe := os.Getenv("SIM_TEST_LOADS"); pipe != "" {
		os.Exit(dispatch([]string{"run", pipe}, os.Stdout, os.Stderr))
	}
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		pipe := filepath.Join(t.TempDir(), "pipe.toml")
		require.NoError(t, syscall.Mkfifo(pipe, 0o600))
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		child := exec.CommandContext(ctx, os.Args[0], "-test.run=^TestSignalWhileLoading$")
		child.Env = append(os.Environ(), "SIM_TEST_LOADS="+pipe)
		require.NoError(t, child.Start())
		writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the reader
		require.NoError(t, err)
		require.NoError(t, child.Process.Signal(signal))
		require.ErrorContains(t, child.Wait(), "signal: "+signal.String())
		require.NoError(t, ctx.Err())
		writer.Close()
	}
}

// A reader who has gone ends the command, but not before its records are there.
func TestClosedPipeKeepsRecords(t *testing.T) {
	if dir := os.Getenv("SIM_TEST_CLOSED"); dir != "" {
		os.Exit(dispatch([]string{"run", "hot90", "--policy", "random", "--out", dir}, os.Stdout, os.Stderr))
	}
	dir := t.TempDir()
	child := exec.Command(os.Args[0], "-test.run=^TestClosedPipeKeepsRecords$")
	child.Env = append(os.Environ(), "SIM_TEST_CLOSED="+dir)
	reader, writer, err := os.Pipe()
	require.NoError(t, err)
	require.NoError(t, reader.Close())
	child.Stdout = writer
	require.ErrorContains(t, child.Run(), "signal: broken pipe")
	require.Equal(t, []string{seriesFile, record.PhasesFile, record.RequestsFile, sim.TimelineFile}, allFiles(t, dir))
}

// An interrupt while time series are written leaves the records, and no half a file.
func TestInterruptedSeries(t *testing.T) {
	dir := t.TempDir()
	setups := waveSetups(t, 300, "least-request")
	d, err := newRunDir(dir)
	require.NoError(t, err)
	phases, err := sim.RunAll(d.record(t.Context(), setups), setups, 1, nil)
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorContains(t, d.commit(ctx, phases, time.Second), "has the records and no time series")
	require.Equal(t, []string{record.PhasesFile, record.RequestsFile, sim.TimelineFile}, allFiles(t, dir))
}

// A record that cannot be written ends the runs.
func TestRunDirFails(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "gone")
	setups := waveSetups(t, 30_000_000, "least-request")
	setups[0].Sketch = true
	d, err := newRunDir(dir)
	require.NoError(t, err)
	require.NoError(t, os.RemoveAll(dir))
	phases, err := sim.RunAll(d.record(t.Context(), setups), setups, 1, nil)
	require.Error(t, err)
	require.Nil(t, phases[0])
	require.ErrorIs(t, d.failed(), os.ErrNotExist)
	d.abort()
	require.NoDirExists(t, dir)
}

// A longer step gives a smaller file, which is that of sim export, and 0s none, also
// where an earlier run has left one.
func TestRunStep(t *testing.T) {
	dir := t.TempDir()
	run := func(step string) string {
		status, _, stderr := sh("run", "hot90", "--policy", "random", "--out", dir, "--step", step)
		require.Equal(t, statusOK, status, stderr)
		if step == "0s" {
			return ""
		}
		return read(t, filepath.Join(dir, seriesFile))
	}
	fine, coarse := run("1s"), run("10s")
	require.Less(t, len(coarse), len(fine)/5)
	status, exported, _ := sh("export", "openmetrics", dir, "--step", "10s")
	require.Equal(t, statusOK, status)
	require.Equal(t, exported, coarse)
	run("0s")
	require.NoFileExists(t, filepath.Join(dir, seriesFile))
}

// With --summary-only the records are the same, and only the summary's quantiles are
// not exact.
func TestSummaryOnlyOut(t *testing.T) {
	exact, sketched := t.TempDir(), t.TempDir()
	for dir, flag := range map[string]string{exact: "--summary-only=false", sketched: "--summary-only"} {
		status, _, stderr := sh("run", "hot90", "--out", dir, flag)
		require.Equal(t, statusOK, status, stderr)
	}
	for _, name := range []string{seriesFile, record.RequestsFile, sim.TimelineFile} {
		require.Equal(t, read(t, filepath.Join(exact, name)), read(t, filepath.Join(sketched, name)), name)
	}
}
