package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"fleetsim/sim"
	"fleetsim/sim/metrics"
	"fleetsim/sim/record"
)

// A runDir writes a run directory while its runs go on: it keeps no record.
type runDir struct {
	path               string
	dir                *record.Dir
	requests, timeline *record.Parts
	fail               context.CancelCauseFunc
	ctx                context.Context // ends when a record cannot be written
}

// errWrite marks an error of writing among those that end the runs.
type errWrite struct{ error }

func (e errWrite) Unwrap() error { return e.error }

func newRunDir(path string) (*runDir, error) {
	dir, err := record.CreateDir(path)
	if err != nil {
		return nil, err
	}
	d := &runDir{path: path, dir: dir}
	if d.requests, err = dir.CreateParts(record.RequestsFile); err == nil {
		d.timeline, err = dir.CreateParts(sim.TimelineFile)
	}
	if err != nil {
		dir.Abort()
		return nil, err
	}
	return d, nil
}

// abort removes what has not been committed.
func (d *runDir) abort() { d.dir.Abort() }

// record makes the setups write their records and samples. The context for them
// ends when one cannot be written.
func (d *runDir) record(ctx context.Context, setups []sim.Setup) context.Context {
	d.ctx, d.fail = context.WithCancelCause(ctx)
	check := func(err error) {
		if err != nil {
			d.fail(errWrite{err})
		}
	}
	for i := range setups {
		requests, timeline := d.requests.Part(i), d.timeline.Part(i)
		w := record.NewRequestWriter(requests)
		setups[i].Each = func(r *record.Request) { check(w.Write(r)) }
		var line []byte
		setups[i].Sample = func(s sim.Sample) {
			line = append(s.AppendJSON(line[:0]), '\n')
			_, err := timeline.Write(line)
			check(err)
		}
		setups[i].Done = func() { check(errors.Join(requests.Complete(), timeline.Complete())) }
	}
	return d.ctx
}

// failed is why a record could not be written.
func (d *runDir) failed() error {
	var failed errWrite
	if errors.As(context.Cause(d.ctx), &failed) {
		return failed.error
	}
	return nil
}

// commit finishes the directory with the phases that are complete, and adds their
// time series in that step; 0: none. When ctx ends it leaves them out.
func (d *runDir) commit(ctx context.Context, phases []*record.Phase, step time.Duration) error {
	w, err := d.dir.Create(record.PhasesFile)
	if err != nil {
		return err
	}
	for _, p := range phases {
		if err := record.WritePhase(w, p); err != nil {
			return err
		}
	}
	// Those of an earlier run would be taken for this one's.
	if err := os.Remove(filepath.Join(d.path, seriesFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := d.dir.Commit(); err != nil || step == 0 {
		return err
	}
	return d.writeSeries(ctx, step)
}

// seriesFile is a run directory's time series, as sim export makes them.
const seriesFile = "metrics.openmetrics.txt"

func (d *runDir) writeSeries(ctx context.Context, step time.Duration) error {
	o := defaultSeries()
	o.Step, o.Dir = step.Seconds(), d.path
	x, err := metrics.ReadRunDir(ctx, d.path, o)
	if err == nil {
		err = writeFile(filepath.Join(d.path, seriesFile), func(w io.Writer) error {
			return x.WriteOpenMetrics(&untilDone{ctx, w})
		})
		err = errors.Join(err, x.Close())
	}
	if ctx.Err() != nil {
		return fmt.Errorf("stopped: %s has the records and no time series", d.path)
	}
	return err
}

// untilInterrupt is a context that ends when the process is asked to.
func untilInterrupt() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}

// untilDone writes until a context ends.
type untilDone struct {
	ctx context.Context
	w   io.Writer
}

func (u *untilDone) Write(p []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, err
	}
	return u.w.Write(p)
}
