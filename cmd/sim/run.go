package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/metrics"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
	"fleetsim/sim/sweep"
)

const runHelp = `
Usage: sim run SCENARIO... [flags]

Simulates each scenario under each of its policies, all on the same arrivals,
and prints the policies side by side. SCENARIO is a file or a built-in name
(--list shows them), or a trace of any format that sim trace reads, which then
goes through 4 replicas: --set cluster.replicas=8 --set workload.trace.rate=2.

Example: sim run hot90 --policy prefix-cache --repeat 20 --set cluster.replicas=4`

// runFlags are what `sim run` was asked for.
type runFlags struct {
	policies []string
	seed     string
	repeat   int
	sets     []string
	format   string
	out      string
	profile  string
	workers  int
	from     string
	cell     int
	sketch   bool
	step     time.Duration
	list     bool
	progress bool
}

func runCommand(args []string, stdout, stderr io.Writer) int {
	var o runFlags
	f := newFlags("run", runHelp, stdout, stderr)
	f.StringArrayVar(&o.policies, "policy", nil, "routing policy, instead of the scenario's (repeatable)")
	f.StringVar(&o.seed, "seed", "", "first seed, instead of the scenario's")
	f.IntVar(&o.repeat, "repeat", 1, "number of seeds, one after the other: the table shows median and 5-95% band")
	f.StringArrayVar(&o.sets, "set", nil, "change one key of the scenario: path.to.key=value (repeatable)")
	f.StringVar(&o.format, "format", "table", "table, json or jsonl (phase records)")
	f.StringVar(&o.out, "out", "", "directory for phases.jsonl, requests.jsonl.gz, timeline.jsonl.gz and time series for Prometheus")
	f.StringVar(&o.profile, "profile", "", "profile, a built-in name or a .toml file, instead of the scenario's")
	f.IntVar(&o.workers, "workers", 0, "runs at a time (0: one a CPU); results do not depend on it")
	f.StringVar(&o.from, "from", "", "results of a sweep: run its --cell again, with the seeds that it had")
	f.IntVar(&o.cell, "cell", 0, "cell of --from")
	f.DurationVar(&o.step, "step", metrics.DefaultStep*time.Second, "between two points of the time series of --out, whose size goes by the simulated time (0s: no time series)")
	f.BoolVar(&o.sketch, "summary-only", false, "keep a run's memory independent of its length: quantiles within 0.1%")
	f.BoolVar(&o.list, "list", false, "list the built-in scenarios and end")
	f.BoolVar(&o.progress, "progress", false, "show progress even when standard error is no terminal")
	if status, ok := f.parse(args); !ok {
		return status
	}
	if o.list {
		if err := f.alone("list"); err != nil {
			return f.fail(statusUsage, err)
		}
		listScenarios(stdout)
		return statusOK
	}
	if f.Changed("cell") != (o.from != "") {
		return f.fail(statusUsage, errors.New("--from and --cell go together: the results of a sweep and the number of a cell"))
	}
	if err := f.belongs("step", "out"); err != nil {
		return f.fail(statusUsage, err)
	}
	setups, err := o.setups(f.Args())
	if err != nil {
		return f.fail(statusUsage, err)
	}
	ctx, stop := untilInterrupt() // not before: while it loads there is nothing to keep
	defer stop()
	var out *runDir
	if o.out != "" {
		if err := o.checkOut(setups, f.Args()); err != nil {
			return f.fail(statusUsage, err)
		}
		if out, err = newRunDir(o.out); err != nil {
			return f.fail(statusUsage, fmt.Errorf("--out: %w", err))
		}
		defer out.abort()
		ctx = out.record(ctx, setups)
	}
	phases, err := sim.RunAll(ctx, setups, o.workers, progress(stderr, "runs", len(setups), o.progress))
	if out != nil && out.failed() != nil {
		return f.fail(statusFailed, out.failed())
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return f.fail(statusUsage, err)
	}
	complete := kept(phases)
	var writeErr error
	if out != nil && len(complete) > 0 {
		// What is complete is kept even after an interrupt; another one ends that, too.
		ctx, stop := untilInterrupt()
		defer stop()
		writeErr = out.commit(ctx, complete, o.step)
	}
	// After the records, which a closed pipe would cost: the process ends with it.
	if outputErr := errors.Join(writeErr, printPhases(stdout, o.format, complete)); outputErr != nil {
		return f.fail(statusFailed, outputErr)
	}
	if err != nil {
		return f.fail(statusFailed, fmt.Errorf("stopped: %d of %d runs are complete and kept", len(complete), len(setups)))
	}
	return statusOK
}

// setups are the runs that the flags ask for: scenarios, by policies, by seeds.
func (o *runFlags) setups(names []string) ([]sim.Setup, error) {
	if err := oneOf("format", o.format, "table", "json", "jsonl"); err != nil {
		return nil, err
	}
	if o.step != 0 && o.step < time.Millisecond {
		return nil, fmt.Errorf("--step %v: allowed is 1ms or more, or 0s for no time series", o.step)
	}
	if o.from != "" {
		return o.cellSetups(names)
	}
	if len(names) == 0 {
		return nil, errors.New("no SCENARIO is given: a file or one of the names that sim run --list shows")
	}
	if o.repeat < 1 || o.repeat > 1_000_000 {
		return nil, fmt.Errorf("--repeat %d: allowed is 1 to 1000000", o.repeat)
	}
	if o.workers < 0 {
		return nil, fmt.Errorf("--workers %d: allowed is 0, for one a CPU, or more", o.workers)
	}
	for i, name := range names {
		if slices.Contains(names[:i], name) {
			return nil, fmt.Errorf("%s is given twice: its runs could not be told apart", name)
		}
	}
	var setups []sim.Setup
	var problems []error
	for _, name := range names {
		s, err := o.scenarioSetups(name)
		if err != nil {
			problems = append(problems, err)
		}
		setups = append(setups, s...)
	}
	return setups, errors.Join(problems...)
}

// checkOut reports a directory that cannot be written, or in which one of the files
// would replace an input.
func (o *runFlags) checkOut(setups []sim.Setup, names []string) error {
	if err := checkDir(o.out); err != nil {
		return fmt.Errorf("--out: %w", err)
	}
	inputs := inputFiles(append([]string{o.profile}, names...)...)
	if o.from != "" {
		inputs = append(inputs, sweep.ResultFiles(o.from)...)
	}
	for i := range setups {
		if i == 0 || setups[i].Scenario != setups[i-1].Scenario {
			inputs = append(inputs, filesOf(setups[i].Scenario)...)
		}
	}
	return apart(inputs, inDir("--out", o.out, record.PhasesFile, record.RequestsFile, sim.TimelineFile, seriesFile)...)
}

// cellSetups are the runs of one cell of a sweep's results.
func (o *runFlags) cellSetups(names []string) ([]sim.Setup, error) {
	if len(names) > 0 || len(o.policies) > 0 || len(o.sets) > 0 || o.seed != "" || o.repeat != 1 || o.profile != "" || o.sketch {
		return nil, errors.New("--from runs a cell as it was: allowed with it are --cell, --format, --out, --step and --workers")
	}
	return sweep.CellSetups(o.from, o.cell)
}

func (o *runFlags) scenarioSetups(name string) ([]sim.Setup, error) {
	sets, err := withPolicies(o.sets, o.policies)
	if err != nil {
		return nil, err
	}
	sc, err := loadScenario(name, sets)
	if err != nil {
		return nil, atPolicyFlag(o.policies, err)
	}
	profile := sc.Profile
	if o.profile != "" {
		profile = o.profile
	}
	p, err := profiles.Load(profile)
	if err != nil {
		return nil, err
	}
	if _, err := sim.Limits(p, sc); err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	seed := sc.Seed
	if o.seed != "" {
		if seed, err = strconv.ParseUint(o.seed, 10, 64); err != nil {
			return nil, fmt.Errorf("--seed %q: allowed is a whole number from 0 to 2^64-1", o.seed)
		}
	}
	if seed > math.MaxUint64-uint64(o.repeat-1) {
		return nil, fmt.Errorf("seed %d with --repeat %d: the last seed is beyond 2^64-1", seed, o.repeat)
	}
	var setups []sim.Setup
	for _, policy := range sc.Policies {
		for i := range uint64(o.repeat) {
			setups = append(setups, sim.Setup{Scenario: sc, Profile: p, Policy: policy, Seed: seed + i, Sketch: o.sketch})
		}
	}
	return setups, nil
}

// traceReplicas is how many replicas a trace goes through that comes without a
// scenario: enough for policies to differ.
const traceReplicas = 4

// loadScenario reads the scenario of that name, or makes one for the trace file of
// that name.
func loadScenario(name string, sets []string) (*scenario.Scenario, error) {
	info, err := os.Stat(name)
	if err != nil || !info.Mode().IsRegular() || strings.HasSuffix(name, ".toml") || slices.Contains(scenario.Names(), name) {
		return scenario.LoadWith(name, sets)
	}
	sets = append([]string{
		"name=" + strconv.Quote(filepath.Base(name)),
		"workload.trace.path=" + strconv.Quote(name),
		"cluster.replicas=" + strconv.Itoa(traceReplicas),
	}, sets...)
	return scenario.ParseWith(name, nil, sets)
}

// withPolicies are the overrides of --set with those that --policy asks for.
func withPolicies(sets, policies []string) ([]string, error) {
	if len(policies) == 0 {
		return sets, nil
	}
	if slices.ContainsFunc(sets, func(s string) bool { return strings.HasPrefix(strings.TrimSpace(s), "policies") }) {
		return nil, errors.New("--policy and --set policies both say which policies to run: allowed is one of them")
	}
	return scenario.WithPolicies(sets, policies...), nil
}

// atPolicyFlag is err, of a scenario withPolicies, with the flag as the place of what
// is wrong with them.
func atPolicyFlag(policies []string, err error) error {
	if len(policies) == 0 {
		return err
	}
	return scenario.PoliciesAt("--policy", err)
}

// kept are the phases that were run.
func kept(phases []*record.Phase) []*record.Phase {
	var out []*record.Phase
	for _, p := range phases {
		if p != nil {
			out = append(out, p)
		}
	}
	return out
}

func listScenarios(w io.Writer) {
	for _, name := range scenario.Names() {
		sc, err := scenario.Load(name)
		if err != nil {
			fmt.Fprintln(w, name, err)
			continue
		}
		fmt.Fprintf(w, "%-22s %s\n", name, sc.Description)
	}
}
