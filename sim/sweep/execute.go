package sweep

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"sync"

	"fleetsim/sim"
)

// Options are how a sweep is run; the results do not depend on them.
type Options struct {
	Shard   Shard
	Workers int // runs at a time; 0: one a CPU
	// Version is what the program calls itself; results of different versions
	// are not mixed.
	Version string
	// Progress is told how many runs are done, of how many at most; nil for
	// nobody. The most falls when cells need fewer seeds. Calls do not overlap.
	Progress func(done, most int)
}

// Execute runs what is missing of the sweep, or of a shard of it, and keeps every
// finished run in the log in dir at once, so that a killed Execute can be
// repeated and goes on where it was. When ctx ends, no further run is begun and
// the error is ctx's. Afterwards Commit makes the directory complete.
func (s *Sweep) Execute(ctx context.Context, dir string, o Options) (Results, error) {
	results := s.newResults()
	log, err := openLog(dir, s.header(o), func(x run) error { return s.keep(results, x) })
	if err != nil {
		return nil, err
	}
	e := newExecution(s, results, o)
	e.log = log
	err = e.run(ctx, o.Workers)
	if closeErr := log.close(); err == nil {
		err = closeErr
	}
	return results, err
}

func (s *Sweep) header(o Options) logHeader {
	return logHeader{Sweep: s.Digest(), Version: o.Version, Shard: o.Shard}
}

// Run runs the whole sweep in memory, without a log.
func (s *Sweep) Run(ctx context.Context, workers int) (Results, error) {
	results := s.newResults()
	return results, newExecution(s, results, Options{Shard: Whole}).run(ctx, workers)
}

// A task is one run to do.
type task struct{ race, cell, k int }

// An execution hands tasks to workers and takes results from them.
type execution struct {
	sweep    *Sweep
	results  Results
	log      *log // nil: none
	progress func(done, most int)

	mu      sync.Mutex
	wake    sync.Cond // a race went on, or all are over
	races   []*race   // by group of the shard
	missing []int     // by race: runs that its look waits for
	next    int       // first race whose first look has not been handed out
	tasks   []task    // of looks that have been handed out
	running int
	done    int
	most    int
	err     error
}

func newExecution(s *Sweep, r Results, o Options) *execution {
	e := &execution{sweep: s, results: r, progress: o.Progress}
	e.wake.L = &e.mu
	for _, g := range s.groupsOf(o.Shard) {
		e.races = append(e.races, s.newRace(g))
		e.most += len(s.groups[g]) * len(s.Seeds)
		for _, cell := range s.groups[g] {
			e.done += r.Ran(cell)
		}
	}
	e.missing = make([]int, len(e.races))
	return e
}

func (e *execution) run(ctx context.Context, workers int) error {
	if workers <= 0 {
		workers = runtime.GOMAXPROCS(0)
	}
	// A worker that waits for a task must hear of the end of ctx.
	defer context.AfterFunc(ctx, func() { e.stop(context.Cause(ctx)) })()
	e.report()
	var wg sync.WaitGroup
	for range workers {
		wg.Go(e.work)
	}
	wg.Wait()
	return e.err
}

func (e *execution) stop(err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.err == nil {
		e.err = err
	}
	e.wake.Broadcast()
}

// work does tasks until there are none left.
func (e *execution) work() {
	var runner sim.Runner
	for {
		t, ok := e.take()
		if !ok {
			return
		}
		phase, err := runner.Run(e.sweep.Setup(t.cell, e.sweep.Seeds[t.k]))
		if err != nil {
			e.stop(fmt.Errorf("cell %d (%s): %w", t.cell, e.sweep.Label(t.cell), err))
			return
		}
		if err := e.finish(t, e.sweep.values(phase)); err != nil {
			e.stop(err)
			return
		}
	}
}

// take is the next task. It waits while there is none but a race may yet go on.
func (e *execution) take() (t task, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for e.err == nil {
		for len(e.tasks) == 0 && e.next < len(e.races) {
			e.next++
			e.advance(e.next - 1)
		}
		if len(e.tasks) > 0 {
			t, e.tasks = e.tasks[0], e.tasks[1:]
			e.running++
			return t, true
		}
		if e.running == 0 {
			break
		}
		e.wake.Wait()
	}
	e.wake.Broadcast()
	return task{}, false
}

// advance puts the tasks of the race's look in the queue. Looks that need none,
// because the log has all their runs, are decided at once.
func (e *execution) advance(i int) {
	race := e.races[i]
	for e.missing[i] == 0 {
		cells, seeds := race.due()
		if len(cells) == 0 {
			e.retire(i)
			return
		}
		for _, cell := range cells {
			for k := range seeds {
				if e.results[cell][k] == nil {
					e.tasks = append(e.tasks, task{i, cell, k})
					e.missing[i]++
				}
			}
		}
		if e.missing[i] == 0 {
			race.decide(e.results)
		}
	}
}

// retire takes the runs that the race did not need off what is to be done.
func (e *execution) retire(i int) {
	for _, cell := range e.sweep.groups[e.races[i].group] {
		e.most -= len(e.sweep.Seeds) - e.results.Ran(cell)
	}
}

// finish keeps the result of a task, and goes on with its race when that was the
// last of its look.
func (e *execution) finish(t task, v Values) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.log != nil {
		if err := e.log.append(run{t.cell, e.sweep.Seeds[t.k], v}); err != nil {
			return err
		}
	}
	e.results[t.cell][t.k] = v
	e.running--
	e.done++
	if e.missing[t.race]--; e.missing[t.race] == 0 {
		e.races[t.race].decide(e.results)
		e.advance(t.race)
	}
	e.wake.Broadcast()
	e.report()
	return nil
}

func (e *execution) report() {
	if e.progress != nil {
		e.progress(e.done, e.most)
	}
}

// check reports the cells, of those given, whose runs are not exactly those
// that the sweep's rule asks for.
func (s *Sweep) check(r Results, shard Shard) error {
	for _, g := range s.groupsOf(shard) {
		want := map[int]int{}
		race := s.newRace(g)
		for cells, seeds := race.due(); len(cells) > 0; cells, seeds = race.due() {
			for _, cell := range cells {
				want[cell] = seeds
				if k := slices.IndexFunc(r[cell][:seeds], func(v Values) bool { return v == nil }); k >= 0 {
					return fmt.Errorf("cell %d (%s) is missing the run with seed %d", cell, s.Label(cell), s.Seeds[k])
				}
			}
			race.decide(r)
		}
		for _, cell := range s.groups[g] {
			for k := want[cell]; k < len(s.Seeds); k++ {
				if r[cell][k] != nil {
					return fmt.Errorf("cell %d (%s) has a run with seed %d that the sweep does not ask for", cell, s.Label(cell), s.Seeds[k])
				}
			}
		}
	}
	return nil
}
