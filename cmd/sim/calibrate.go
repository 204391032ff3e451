package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"

	"fleetsim/calibrate/fit"
	"fleetsim/model"
	"fleetsim/model/profiles"
)

const calibrateHelp = `
Usage: sim calibrate RUN... [--scenario SCENARIO|STUDY] [flags]

Fits a profile to measured runs: it simulates the same arrivals and moves the
coefficients until simulated TTFT and TPOT meet the measured ones. RUN is a file
of request records (JSON lines, plain or gzip), of phase records where there is
nothing finer, or a result of vllm bench serve, which needs no scenario.

Ctrl-C keeps the best so far.

Example: sim calibrate requests.jsonl.gz --scenario hot90 --policy prefix-cache -o mine.toml
         sim run hot90 --profile mine.toml`

// calibrateFlags are what sim calibrate was asked for.
type calibrateFlags struct {
	input    fit.Input
	choice   fit.Choice
	weights  []string
	profile  string
	bench    string
	name     string
	source   string
	output   string
	benchOut string
	seed     uint64
	starts   int
	polish   int
	workers  int
	crossval bool
	noise    bool
	progress bool
}

func calibrateCommand(args []string, stdout, stderr io.Writer) int {
	var o calibrateFlags
	f := newFlags("calibrate", calibrateHelp, stdout, stderr)
	f.StringVar(&o.input.Scenario, "scenario", "", "scenario or study that the records were measured under, a built-in name or a .toml file")
	f.StringArrayVar(&o.input.Sets, "set", nil, "change one key of the scenario: path.to.key=value (repeatable)")
	f.StringVar(&o.input.Policy, "policy", "", "routing policy that was measured (default the scenario's first)")
	f.StringArrayVar(&o.input.Phases, "phase", nil, "take only this phase (repeatable)")
	f.StringVar(&o.profile, "profile", "qwen3.8-27b-fp8-l20", "profile to start from, a built-in name or a .toml file")
	f.StringVar(&o.bench, "bench-profile", "", "profile to start from for results of vllm bench serve (default as --profile)")
	f.StringArrayVar(&o.choice.Fit, "fit", nil, "fit only this coefficient, or overhead for both halves; bench:NAME for vllm bench serve alone (repeatable)")
	f.StringArrayVar(&o.choice.Fix, "fix", nil, "keep this coefficient (repeatable)")
	f.StringArrayVar(&o.choice.Bounds, "bound", nil, "bounds of a coefficient: NAME=LOW:HIGH (repeatable)")
	f.StringArrayVar(&o.weights, "weight", nil, "weight of a run beside the others: RUN=WEIGHT (repeatable)")
	f.BoolVar(&o.crossval, "cross-validate", false, "predict each run from the others, and show both errors")
	f.BoolVar(&o.noise, "noise", false, "measure how step times scatter, and put it into the profile")
	f.StringVarP(&o.output, "output", "o", "", "file for the profile")
	f.StringVar(&o.benchOut, "bench-output", "", "file for the profile of vllm bench serve")
	f.StringVar(&o.name, "name", "", "name of the profile (default that of --profile with -fitted)")
	f.StringVar(&o.source, "source", "", "what the data is, for the profile (default the names of the runs)")
	f.Uint64Var(&o.seed, "seed", 1, "seed of the search's starts and of the bootstrap")
	f.IntVar(&o.starts, "starts", 3, "starts of the search")
	f.IntVar(&o.polish, "polish", 400, "simulations of all runs for the search's last part")
	f.IntVar(&o.workers, "workers", 0, "runs at a time (0: one a CPU); results do not depend on it")
	f.BoolVar(&o.progress, "progress", false, "show progress even when standard error is no terminal")
	if status, ok := f.parse(args); !ok {
		return status
	}
	o.input.Files = f.Args()
	if err := o.checkUses(f); err != nil {
		return f.fail(statusUsage, err)
	}
	runs, options, err := o.plan()
	if err != nil {
		return f.fail(statusUsage, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	tell := changingProgress(stderr, "simulations", o.progress)
	options.Progress = func(p fit.Progress) { tell(p.Evaluations, p.Expected) }
	r, err := fit.Fit(ctx, runs, options)
	if err != nil {
		return f.fail(statusUsage, err)
	}
	var folds []fit.Fold
	if o.crossval && r.Complete {
		if folds, err = fit.CrossValidate(ctx, runs, options, r); err != nil {
			return f.fail(statusFailed, err)
		}
	}
	if err := o.write(stdout, r, runs, folds); err != nil {
		return f.fail(statusFailed, err)
	}
	if !r.Complete {
		return f.fail(statusFailed, errors.New("stopped: the profile is the best so far, and its intervals are not known"))
	}
	return statusOK
}

// checkUses reports flags that would do nothing.
func (o *calibrateFlags) checkUses(f *flagSet) error {
	var problems []error
	for _, flag := range []string{"set", "policy", "phase"} {
		problems = append(problems, f.belongs(flag, "scenario"))
	}
	for _, flag := range []string{"name", "source", "noise"} {
		problems = append(problems, f.belongs(flag, "output", "bench-output"))
	}
	return errors.Join(problems...)
}

// checkRuns reports what the runs that are given do not fit together with.
func (o *calibrateFlags) checkRuns(runs []fit.Run) error {
	if o.crossval && len(runs) < 2 {
		return errors.New("--cross-validate needs at least two runs: one is predicted from the others")
	}
	if benched := slices.ContainsFunc(runs, func(r fit.Run) bool { return r.Environment == fit.Bench }); !benched && (o.bench != "" || o.benchOut != "") {
		return errors.New("--bench-profile and --bench-output are for results of vllm bench serve: none is given")
	}
	return nil
}

// plan is what to fit to what.
func (o *calibrateFlags) plan() ([]fit.Run, fit.Options, error) {
	options := fit.Options{Seed: o.seed, Starts: o.starts, Polish: o.polish, Workers: o.workers}
	if len(o.input.Files) == 0 {
		return nil, options, errors.New("no RUN is given: a file of request or phase records, or a result of vllm bench serve")
	}
	if o.starts < 1 || o.starts > 1000 || o.polish < 0 || o.polish > 1_000_000 {
		return nil, options, fmt.Errorf("--starts %d --polish %d: allowed are 1 to 1000 and 0 to 1000000", o.starts, o.polish)
	}
	if err := o.checkOutputs(inputFiles(append([]string{o.input.Scenario, o.profile, o.bench}, o.input.Files...)...)); err != nil {
		return nil, options, err
	}
	for i, file := range o.input.Files {
		if at := slices.IndexFunc(o.input.Files[:i], func(before string) bool { return sameFile(before, file) }); at >= 0 {
			return nil, options, fmt.Errorf("%s is given twice, as %s before: its requests would count double", file, o.input.Files[at])
		}
	}
	runs, err := fit.Load(o.input)
	if err == nil {
		err = o.checkRuns(runs)
	}
	if err != nil {
		return nil, options, err
	}
	for i := range runs {
		if sc := runs[i].Setup.Scenario; sc != nil {
			if err := o.checkOutputs(filesOf(sc)); err != nil {
				return nil, options, err
			}
		}
	}
	if err := fit.Weigh(runs, o.weights); err != nil {
		return nil, options, fmt.Errorf("--weight: %w", err)
	}
	if options.Base, err = profiles.Load(o.profile); err != nil {
		return nil, options, err
	}
	if o.bench != "" {
		bench, err := profiles.Load(o.bench)
		if err != nil {
			return nil, options, err
		}
		options.Environments = map[string]*model.Profile{fit.Bench: bench}
	}
	options.Parameters, err = o.choice.Parameters(options.Base, runs)
	return runs, options, err
}

// checkOutputs reports profiles that cannot be written where they are asked for, or
// would replace one of the inputs. That the profile to start from may not be replaced
// either is so that the same command gives the same again.
func (o *calibrateFlags) checkOutputs(inputs []string) error {
	var outputs []output
	for _, out := range []output{{"--output", o.output}, {"--bench-output", o.benchOut}} {
		if out.path == "" {
			continue
		}
		if err := checkFile(out.path); err != nil {
			return fmt.Errorf("%s: %w", out.flag, err)
		}
		outputs = append(outputs, out)
	}
	return apart(inputs, outputs...)
}

// write prints the report and writes the profiles.
func (o *calibrateFlags) write(stdout io.Writer, r *fit.Result, runs []fit.Run, folds []fit.Fold) error {
	if err := r.Write(stdout, folds); err != nil {
		return err
	}
	sources := o.source
	if sources == "" {
		sources = strings.Join(fit.Names(runs), ", ")
	}
	for _, out := range []struct{ path, environment, suffix string }{
		{o.output, "", "-fitted"}, {o.benchOut, fit.Bench, "-fitted-bench"},
	} {
		if out.path == "" {
			continue
		}
		p, err := r.Profile(out.environment, sources)
		if err != nil {
			return err
		}
		if p.Name += out.suffix; o.name != "" {
			p.Name = o.name + strings.TrimPrefix(out.suffix, "-fitted")
		}
		if o.noise {
			if p.Noise, err = r.Noise(runs); err != nil {
				return err
			}
		}
		if err := profiles.WriteFile(out.path, p); err != nil {
			return err
		}
		fmt.Fprintln(stdout, "profile", p.Name, "is in", out.path)
	}
	return nil
}
