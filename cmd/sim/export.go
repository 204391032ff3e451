package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"time"

	"fleetsim/sim/metrics"
)

const exportHelp = `
Usage: sim export openmetrics RUN_DIR [flags]

Writes what Prometheus would have held of a run directory (sim run --out, sim
replay --out): the engine's, the gateway's and the client's series, with their
real names and timestamps, the phases one after the other. Load them with

  promtool tsdb create-blocks-from openmetrics FILE DATA_DIR

Example: sim export openmetrics runs/hot90 --out hot90.om`

func exportCommand(args []string, stdout, stderr io.Writer) int {
	var start, out string
	var step, gap time.Duration
	var model string
	f := newFlags("export", exportHelp, stdout, stderr)
	f.StringVar(&start, "start", seriesStart.Format(time.RFC3339), "when the first phase begins (RFC 3339)")
	f.DurationVar(&step, "step", metrics.DefaultStep*time.Second, "between two points of a counter or histogram")
	f.DurationVar(&gap, "gap", metrics.DefaultGap*time.Second, "between two phases")
	f.StringVar(&model, "model", "model", "the label model_name")
	f.StringVar(&out, "out", "", "file to write, instead of standard output")
	if status, ok := f.parse(args); !ok {
		return status
	}
	if f.NArg() != 2 || f.Arg(0) != "openmetrics" {
		return f.fail(statusUsage, errors.New("export takes a format, openmetrics, and one RUN_DIR (see sim export --help)"))
	}
	begin, err := time.Parse(time.RFC3339, start)
	if err != nil {
		return f.fail(statusUsage, fmt.Errorf("--start %q: allowed is a time such as 2026-01-01T00:00:00Z", start))
	}
	if gap < 0 {
		return f.fail(statusUsage, fmt.Errorf("--gap %v: allowed is 0s or more", gap))
	}
	if step < time.Millisecond {
		return f.fail(statusUsage, fmt.Errorf("--step %v: allowed is 1ms or more", step))
	}
	if out != "" {
		if err := checkFile(out); err != nil {
			return f.fail(statusUsage, fmt.Errorf("--out: %w", err))
		}
		if err := apart(runFiles(f.Arg(1)), output{"--out", out}); err != nil {
			return f.fail(statusUsage, err)
		}
	}
	o := metrics.Options{Start: float64(begin.UnixMilli()) / 1000, Step: step.Seconds(), Gap: gap.Seconds(), Model: model}
	if out != "" {
		o.Dir = filepath.Dir(out)
	}
	ctx, stop := untilInterrupt()
	defer stop()
	x, err := metrics.ReadRunDir(ctx, f.Arg(1), o)
	if err != nil {
		return f.fail(statusUsage, err)
	}
	defer x.Close()
	spans, err := x.Spans()
	if err != nil {
		return f.fail(statusUsage, fmt.Errorf("--step: %w", err))
	}
	write := func(w io.Writer) error { return x.WriteOpenMetrics(&untilDone{ctx, w}) }
	if out == "" {
		err = write(stdout)
	} else {
		err = writeFile(out, write)
	}
	if err != nil {
		return f.fail(statusFailed, err)
	}
	if out != "" {
		for _, s := range spans {
			fmt.Fprintf(stdout, "%s under %s: %s to %s\n", s.Phase, s.Route, instant(s.Start), instant(s.End))
		}
	}
	return statusOK
}

// seriesStart is when the first phase of a run is said to begin.
var seriesStart = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// defaultSeries are the options of sim export without flags.
func defaultSeries() metrics.Options {
	return metrics.Options{Start: float64(seriesStart.Unix()), Step: metrics.DefaultStep, Gap: metrics.DefaultGap, Model: "model"}
}

func instant(unix float64) string {
	return time.UnixMilli(int64(unix * 1000)).UTC().Format("2006-01-02T15:04:05.000Z")
}

// writeFile writes a file that is only seen whole. What is there and is no regular
// file, such as /dev/null or a pipe, is written to as it is: it must not be
// replaced.
func writeFile(name string, write func(io.Writer) error) error {
	if err := checkFile(name); err != nil {
		return err
	}
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		return errors.Join(write(f), f.Close())
	}
	f, err := os.CreateTemp(filepath.Dir(name), "."+filepath.Base(name)+".*.tmp")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // there is nothing to remove after the renaming
	err = write(f)
	if err == nil {
		err = f.Chmod(0o644)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), name)
}
