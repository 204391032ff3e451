package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"fleetsim/calibrate"
	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/scenario"
)

const compareHelp = `
Usage: sim compare STUDY [flags]
       sim compare MEASURED... --scenario SCENARIO|STUDY [flags]

Sets measured beside simulated. A STUDY, a file or a built-in one, brings its
own measurements. MEASURED are files of phase or request records (JSON lines,
plain or gzip) and run directories; they are simulated by the phases of the
same name in a study, or all by one scenario. With request records whole
distributions are compared, of each phase and tenant, and judged in a word.

--repeat adds the 5-95% band over that many seeds.

Example: sim compare routing-study --repeat 100 --pairs
         sim compare requests.jsonl.gz --scenario hot90 --policy prefix-cache --plot figures`

// compareFlags are what `sim compare` was asked for.
type compareFlags struct {
	scenario string
	policies []string
	repeat   int
	sets     []string
	profile  string
	format   string
	plot     string
	pairs    bool
	wide     bool
	workers  int
	progress bool
}

func compareCommand(args []string, stdout, stderr io.Writer) int {
	var o compareFlags
	f := newFlags("compare", compareHelp, stdout, stderr)
	f.StringVar(&o.scenario, "scenario", "", "scenario or study that simulates the measured files, a built-in name or a .toml file")
	f.StringArrayVar(&o.policies, "policy", nil, "policy that the measured phases ran under, or PHASE=POLICY for one of them (repeatable)")
	f.IntVar(&o.repeat, "repeat", 1, "number of seeds a phase, one after the other: adds the 5-95% band")
	f.StringArrayVar(&o.sets, "set", nil, "change one key of every phase's scenario: path.to.key=value (repeatable)")
	f.StringVar(&o.profile, "profile", "", "profile, a built-in name or a .toml file, instead of the scenarios'")
	f.StringVar(&o.format, "format", "table", "table or json")
	f.StringVar(&o.plot, "plot", "", "directory for figures, SVG and PNG: distributions and a timeline of each phase")
	f.BoolVar(&o.pairs, "pairs", false, "also show the differences between policies on the same load")
	f.BoolVar(&o.wide, "wide", false, "show every column, however wide")
	f.IntVar(&o.workers, "workers", 0, "runs at a time (0: one a CPU); results do not depend on it")
	f.BoolVar(&o.progress, "progress", false, "show progress even when standard error is no terminal")
	if status, ok := f.parse(args); !ok {
		return status
	}
	if err := o.checkTable(); err != nil {
		return f.fail(statusUsage, err)
	}
	plan, err := o.plan(f.Args())
	if err == nil && o.plot != "" {
		err = o.checkPlot(plan, f.Args())
	}
	if err != nil {
		return f.fail(statusUsage, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	c, err := o.compare(ctx, plan, stderr)
	switch {
	case errors.Is(err, context.Canceled):
		return f.fail(statusFailed, errors.New("stopped: a comparison needs all its runs"))
	case err != nil:
		return f.fail(statusUsage, err)
	}
	if o.plot != "" {
		if err := c.Plot(o.plot); err != nil {
			return f.fail(statusFailed, err)
		}
	}
	if err := o.print(stdout, c); err != nil {
		return f.fail(statusFailed, err)
	}
	return statusOK
}

// checkTable reports what is asked of a table that is not printed.
func (o *compareFlags) checkTable() error {
	switch {
	case o.format == "json" && (o.pairs || o.wide):
		return errors.New("--pairs and --wide are for --format table")
	case o.wide && o.scenario != "" && !o.pairs:
		return errors.New("--wide is for the tables of a STUDY and of --pairs")
	}
	return nil
}

// plan is what to simulate, and what was measured.
func (o *compareFlags) plan(args []string) (*calibrate.Plan, error) {
	if err := oneOf("format", o.format, "table", "json"); err != nil {
		return nil, err
	}
	if o.repeat < 1 || o.repeat > 1_000_000 {
		return nil, fmt.Errorf("--repeat %d: allowed is 1 to 1000000", o.repeat)
	}
	if o.scenario != "" {
		return o.planRuns(args)
	}
	switch {
	case len(args) == 0:
		return nil, errors.New("compare takes a STUDY, or MEASURED files with --scenario (see sim compare --help)")
	case len(args) > 1 || isMeasured(args[0]):
		return nil, fmt.Errorf("%s: measured files need --scenario, a scenario or a study to simulate them by", args[0])
	case len(o.policies) > 0:
		return nil, errors.New("--policy: a study names the policy of each phase itself")
	}
	study, err := scenario.LoadStudyWith(args[0], o.sets)
	if err != nil {
		return nil, err
	}
	return calibrate.PlanStudy(study), nil
}

// checkPlot reports a directory that cannot be written, or in which a figure may
// replace an input.
func (o *compareFlags) checkPlot(plan *calibrate.Plan, args []string) error {
	if err := checkDir(o.plot); err != nil {
		return fmt.Errorf("--plot: %w", err)
	}
	inputs := inputFiles(append([]string{o.scenario, o.profile}, args...)...)
	for i := range plan.Study.Phases {
		inputs = append(inputs, filesOf(plan.Study.Phases[i].Scenario)...)
	}
	return apart(inputs, figuresIn("--plot", o.plot)...)
}

// isMeasured reports whether the argument is there and no scenario file.
func isMeasured(arg string) bool {
	_, err := os.Stat(arg)
	return err == nil && !strings.HasSuffix(arg, ".toml")
}

func (o *compareFlags) planRuns(args []string) (*calibrate.Plan, error) {
	if len(args) == 0 {
		return nil, errors.New("no MEASURED is given: a file of phase or request records, or a run directory")
	}
	policies := map[string]string{}
	for _, p := range o.policies {
		phase, policy, single := strings.Cut(p, "=")
		if !single {
			phase, policy = "", p
		}
		if _, twice := policies[phase]; twice {
			return nil, fmt.Errorf("--policy %s: a policy is given for this twice", p)
		}
		policies[phase] = policy
	}
	measured, err := calibrate.ReadMeasured(args...)
	if err != nil {
		return nil, err
	}
	return calibrate.PlanRuns(o.scenario, o.sets, policies, measured)
}

// compare runs the plan. Request records are kept only where something needs
// them: they are most of the memory.
func (o *compareFlags) compare(ctx context.Context, plan *calibrate.Plan, stderr io.Writer) (*calibrate.StudyComparison, error) {
	loaded := map[string]*model.Profile{} // phases share theirs
	profile := func(sc *scenario.Scenario) (*model.Profile, error) {
		name := cmp.Or(o.profile, sc.Profile)
		if p, ok := loaded[name]; ok {
			return p, nil
		}
		p, err := profiles.Load(name)
		if err == nil {
			loaded[name] = p
		}
		return p, err
	}
	done := progress(stderr, "runs", o.repeat*len(plan.Study.Phases), o.progress)
	if o.scenario == "" && o.plot == "" {
		return calibrate.CompareStudy(ctx, plan.Study, profile, o.repeat, o.workers, done)
	}
	return calibrate.CompareRuns(ctx, plan, profile, o.repeat, o.workers, done)
}

func (o *compareFlags) print(w io.Writer, c *calibrate.StudyComparison) error {
	if o.format == "json" {
		return json.NewEncoder(w).Encode(c)
	}
	if o.scenario == "" {
		printStudy(w, c, o.wide)
	} else {
		printGroups(w, c)
	}
	printRankings(w, c)
	if o.pairs {
		printPairs(w, c, o.wide)
	}
	return nil
}
