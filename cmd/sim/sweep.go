package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/spf13/pflag"

	"fleetsim/sim/sweep"
)

const sweepHelp = `
Usage: sim sweep SWEEP [flags]
       sim sweep merge DIR... --out DIR [flags]
       sim sweep report DIR [flags]

Runs one scenario at many settings, all on the same seeds, and says which
settings meet the constraints and which is best. SWEEP is a file or a built-in
name (--list shows them). Finished runs are kept in --out as they end: after a
kill, --resume goes on. A sweep can be cut into shards that run anywhere and are
merged to the same bytes as one run. sim sweep report draws complete results.

Example: sim sweep imbalance-threshold --axis hot_fraction=0,0.5,0.9 --report report.html`

// sweepFlags are what `sim sweep` was asked for.
type sweepFlags struct {
	out       string
	resume    bool
	shard     string
	sets      []string
	axes      []string
	seeds     int
	firstSeed string
	profile   string
	workers   int
	list      bool
	progress  bool
	figures   figureFlags
}

func sweepCommand(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 {
		switch args[0] {
		case "merge":
			return mergeCommand(args[1:], stdout, stderr)
		case "report":
			return reportCommand(args[1:], stdout, stderr)
		}
	}
	var o sweepFlags
	f := newFlags("sweep", sweepHelp, stdout, stderr)
	f.StringVar(&o.out, "out", "", "directory of the results (default: sweep-NAME here)")
	f.BoolVar(&o.resume, "resume", false, "go on with the results in --out, if there are any")
	f.StringVar(&o.shard, "shard", "", "run part i, from 0, of n: i/n; results go to a directory of the shard below --out (default: JOB_COMPLETION_INDEX/JOB_COMPLETIONS of the environment, if set)")
	f.StringArrayVar(&o.axes, "axis", nil, "keep only these values of an axis: NAME=VALUE,VALUE... (repeatable)")
	f.StringArrayVar(&o.sets, "set", nil, "change one key of the base scenario: path.to.key=value (repeatable)")
	f.IntVar(&o.seeds, "seeds", 0, "seeds a cell, instead of the sweep's")
	f.StringVar(&o.firstSeed, "first-seed", "", "first seed, instead of the sweep's")
	f.StringVar(&o.profile, "profile", "", "profile, a built-in name or a .toml file, instead of the scenario's")
	f.IntVar(&o.workers, "workers", 0, "runs at a time (0: one a CPU); results do not depend on it")
	f.BoolVar(&o.list, "list", false, "list the built-in sweeps and end")
	f.BoolVar(&o.progress, "progress", false, "show progress even when standard error is no terminal")
	o.figures.add(f.FlagSet)
	if status, ok := f.parse(args); !ok {
		return status
	}
	if o.list {
		if err := f.alone("list"); err != nil {
			return f.fail(statusUsage, err)
		}
		return listSweeps(f)
	}
	if f.NArg() != 1 {
		return f.fail(statusUsage, errors.New("sweep takes one SWEEP: a file or one of the names that sim sweep --list shows"))
	}
	if err := errors.Join(o.checkSeeds(f), f.belongs("cell", "report", "figures")); err != nil {
		return f.fail(statusUsage, err)
	}
	s, opts, err := o.sweep(f.Arg(0))
	if err != nil {
		return f.fail(statusUsage, err)
	}
	if err := o.figures.check(s); err != nil {
		return f.fail(statusUsage, err)
	}
	dir := o.directory(s, opts.Shard)
	if err := o.figures.apart(sweepInputs(s, f.Arg(0)), inDir("--out", dir, sweep.ResultNames()...)...); err != nil {
		return f.fail(statusUsage, err)
	}
	if sweep.Begun(dir) && !o.resume {
		return f.fail(statusUsage, fmt.Errorf("%s holds results already: --resume goes on with them, --out DIR takes another directory", dir))
	}
	if opts.Shard != sweep.Whole && o.figures.asked() {
		return f.fail(statusUsage, errors.New("a shard has no report: sim sweep merge joins the shards and draws it"))
	}
	if err := makeOut(dir); err != nil {
		return f.fail(statusUsage, err)
	}
	results, err := o.execute(s, dir, opts, stderr)
	switch {
	case errors.Is(err, sweep.ErrOther), errors.Is(err, sweep.ErrDamaged):
		return f.fail(statusUsage, err)
	case err != nil:
		return f.fail(statusFailed, err)
	}
	if opts.Shard != sweep.Whole {
		fmt.Fprintf(stdout, "shard %s of %s is complete: %s\n", opts.Shard, s.Name, dir)
		return statusOK
	}
	return o.figures.finish(f, s, results, dir)
}

// checkSeeds reports a number of seeds that is none; the sweep's own are had by
// leaving the flag out.
func (o *sweepFlags) checkSeeds(f *flagSet) error {
	if f.Changed("seeds") && o.seeds < 1 {
		return fmt.Errorf("--seeds %d: allowed is 1 or more; without the flag it is the sweep's own", o.seeds)
	}
	return nil
}

// sweep is the sweep that the flags ask for.
func (o *sweepFlags) sweep(name string) (*sweep.Sweep, sweep.Options, error) {
	opts := sweep.Options{Shard: sweep.Whole, Workers: o.workers, Version: buildVersion()}
	src, err := sweep.Find(name)
	if err != nil {
		return nil, opts, err
	}
	src.Sets, src.AxisTexts, src.Seeds = o.sets, o.axes, o.seeds
	if o.profile != "" {
		src.Sets = append(src.Sets, "profile="+strconv.Quote(o.profile))
	}
	if o.firstSeed != "" {
		first, err := strconv.ParseUint(o.firstSeed, 10, 63)
		if err != nil {
			return nil, opts, fmt.Errorf("--first-seed %q: allowed is a whole number from 0 to 2^63-1", o.firstSeed)
		}
		src.FirstSeed = &first
	}
	shard, err := o.whichShard(os.Getenv)
	if err != nil {
		return nil, opts, err
	}
	opts.Shard = shard
	s, err := src.Resolve()
	return s, opts, err
}

// sweepInputs are the files that the sweep of that name is made of.
func sweepInputs(s *sweep.Sweep, name string) []string {
	inputs := inputFiles(name, s.Source.BaseFile)
	seen := map[string]bool{}
	for i := range s.Cells {
		for _, file := range filesOf(s.Cells[i].Scenario) {
			if !seen[file] {
				seen[file] = true
				inputs = append(inputs, file)
			}
		}
	}
	return inputs
}

// whichShard is the shard of the flag, or else of the environment: an Indexed
// Job of Kubernetes sets JOB_COMPLETION_INDEX.
func (o *sweepFlags) whichShard(getenv func(string) string) (sweep.Shard, error) {
	index, of := getenv("JOB_COMPLETION_INDEX"), getenv("JOB_COMPLETIONS")
	switch {
	case o.shard != "":
		shard, err := sweep.ParseShard(o.shard)
		if err != nil {
			return shard, fmt.Errorf("--shard: %w", err)
		}
		return shard, nil
	case index == "":
		return sweep.Whole, nil
	case of == "":
		return sweep.Whole, errors.New("JOB_COMPLETION_INDEX is set but JOB_COMPLETIONS is not: set it to the job's spec.completions, or give --shard i/n")
	}
	shard, err := sweep.ParseShard(index + "/" + of)
	if err != nil {
		return shard, fmt.Errorf("JOB_COMPLETION_INDEX and JOB_COMPLETIONS: %w", err)
	}
	return shard, nil
}

func (o *sweepFlags) directory(s *sweep.Sweep, shard sweep.Shard) string {
	dir := o.out
	if dir == "" {
		dir = "sweep-" + s.Name
	}
	if shard != sweep.Whole {
		dir = filepath.Join(dir, shard.DirName())
	}
	return dir
}

// makeOut makes the directory of --out when it is missing.
func makeOut(dir string) error {
	if err := os.MkdirAll(dir, 0o777); err != nil {
		return fmt.Errorf("--out: %w; allowed is a directory, or a name that is free for one", err)
	}
	return nil
}

// execute runs what is missing and completes the directory.
func (o *sweepFlags) execute(s *sweep.Sweep, dir string, opts sweep.Options, stderr io.Writer) (sweep.Results, error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	done := 0
	draw := changingProgress(stderr, "runs", o.progress)
	opts.Progress = func(n, most int) {
		done = n
		draw(n, most)
	}
	results, err := s.Execute(ctx, dir, opts)
	switch {
	case errors.Is(err, context.Canceled):
		return nil, fmt.Errorf("stopped: %d runs are kept in %s; the same command with --resume goes on", done, dir)
	case err != nil:
		return nil, err
	}
	return results, s.Commit(dir, results, opts)
}

func listSweeps(f *flagSet) int {
	for _, name := range sweep.Names() {
		s, err := sweep.Load(name)
		if err != nil {
			return f.fail(statusFailed, err)
		}
		fmt.Fprintf(f.stdout, "%-22s %6d cells x %d seeds: %s\n", name, len(s.Cells), len(s.Seeds), s.Description)
	}
	return statusOK
}

const mergeHelp = `
Usage: sim sweep merge DIR... --out DIR [flags]

Joins the shards of one sweep to the same files as a single run. Each DIR is the
directory of a shard, or one that holds the shards'. Every cell must be there
exactly once; a shard that is missing, there twice or damaged is named.

Example: sim sweep merge results --out results/all --report report.html`

func mergeCommand(args []string, stdout, stderr io.Writer) int {
	var out string
	var figures figureFlags
	f := newFlags("sweep merge", mergeHelp, stdout, stderr)
	f.StringVar(&out, "out", "", "directory of the merged results")
	figures.add(f.FlagSet)
	if status, ok := f.parse(args); !ok {
		return status
	}
	if err := f.belongs("cell", "report", "figures"); err != nil {
		return f.fail(statusUsage, err)
	}
	if f.NArg() == 0 || out == "" {
		return f.fail(statusUsage, errors.New("merge takes the directories of the shards and --out DIR (see sim sweep merge --help)"))
	}
	if sweep.Begun(out) {
		return f.fail(statusUsage, fmt.Errorf("%s holds results already; allowed is another directory", out))
	}
	s, results, m, err := sweep.Merge(f.Args())
	if err != nil {
		return f.fail(statusUsage, err)
	}
	if err := figures.check(s); err != nil {
		return f.fail(statusUsage, err)
	}
	var shards []string
	for _, dir := range f.Args() {
		shards = append(shards, sweep.ResultFiles(dir)...)
	}
	if err := figures.apart(shards, inDir("--out", out, sweep.ResultNames()...)...); err != nil {
		return f.fail(statusUsage, err)
	}
	if err := makeOut(out); err != nil {
		return f.fail(statusUsage, err)
	}
	if err := s.Commit(out, results, sweep.Options{Shard: sweep.Whole, Version: m.Version}); err != nil {
		return f.fail(statusFailed, err)
	}
	return figures.finish(f, s, results, out)
}

const reportHelp = `
Usage: sim sweep report DIR [flags]

Prints the choices of complete results, and draws their report and figures.

Example: sim sweep report sweep-capacity --report report.html --figures figures`

func reportCommand(args []string, stdout, stderr io.Writer) int {
	var figures figureFlags
	f := newFlags("sweep report", reportHelp, stdout, stderr)
	figures.add(f.FlagSet)
	if status, ok := f.parse(args); !ok {
		return status
	}
	if err := f.belongs("cell", "report", "figures"); err != nil {
		return f.fail(statusUsage, err)
	}
	if f.NArg() != 1 {
		return f.fail(statusUsage, errors.New("report takes one DIR of complete results (see sim sweep report --help)"))
	}
	s, results, m, err := sweep.Open(f.Arg(0))
	if err != nil {
		return f.fail(statusUsage, err)
	}
	if m.Shard != sweep.Whole {
		return f.fail(statusUsage, fmt.Errorf("%s is shard %s alone; sim sweep merge joins the shards", f.Arg(0), m.Shard))
	}
	if err := figures.check(s); err != nil {
		return f.fail(statusUsage, err)
	}
	if err := figures.apart(sweep.ResultFiles(f.Arg(0))); err != nil {
		return f.fail(statusUsage, err)
	}
	return figures.finish(f, s, results, f.Arg(0))
}

// figureFlags are what is drawn of complete results.
type figureFlags struct {
	report  string
	figures string
	cell    int
}

func (o *figureFlags) add(f *pflag.FlagSet) {
	f.StringVar(&o.report, "report", "", "write a report, one HTML file that needs no network")
	f.StringVar(&o.figures, "figures", "", "write the figures as SVG and PNG files to this directory")
	f.IntVar(&o.cell, "cell", -1, "cell whose requests and timeline the report shows (default: the best)")
}

func (o *figureFlags) asked() bool { return o.report != "" || o.figures != "" }

func (o *figureFlags) check(s *sweep.Sweep) error {
	if o.cell < -1 || o.cell >= len(s.Cells) {
		return fmt.Errorf("--cell %d: allowed is 0 to %d", o.cell, len(s.Cells)-1)
	}
	if o.report != "" {
		if err := checkFile(o.report); err != nil {
			return fmt.Errorf("--report: %w", err)
		}
	}
	if o.figures != "" {
		if err := checkDir(o.figures); err != nil {
			return fmt.Errorf("--figures: %w", err)
		}
	}
	return nil
}

// apart reports what of the results, the report and the figures would replace an
// input, or another of them.
func (o *figureFlags) apart(inputs []string, results ...output) error {
	outputs := results
	if o.figures != "" {
		outputs = append(outputs, figuresIn("--figures", o.figures)...)
	}
	if o.report != "" {
		outputs = append(outputs, output{"--report", o.report})
	}
	return apart(inputs, outputs...)
}

// finish prints the choices and draws what is asked for.
func (o *figureFlags) finish(f *flagSet, s *sweep.Sweep, r sweep.Results, dir string) int {
	printChoices(f.stdout, s, r)
	fmt.Fprintf(f.stdout, "\nresults: %s\n", dir)
	if !o.asked() {
		return statusOK
	}
	if err := o.draw(f.stdout, s, r); err != nil {
		return f.fail(statusFailed, err)
	}
	return statusOK
}

// shownChoices is how many groups are worth reading on a terminal.
const shownChoices = 40

// printChoices writes a row a group: what is given, what is best there, and the
// cells that may be as good.
func printChoices(w io.Writer, s *sweep.Sweep, r sweep.Results) {
	choices := s.Choose(r)
	t := newTable(w)
	runs := 0
	for cell := range s.Cells {
		runs += r.Ran(cell)
	}
	t.SetTitle("%s: %d cells, %d runs; intervals at %g%%", s.Name, len(s.Cells), runs, 100*s.Confidence)
	if choices == nil {
		t.AppendRow(table.Row{"the sweep has no objective: see the summary in the results"})
		t.Render()
		return
	}
	var given, chosen []int
	for a := range s.Axes {
		switch {
		case s.Led(a):
		case s.Given(a):
			given = append(given, a)
		default:
			chosen = append(chosen, a)
		}
	}
	header := table.Row{}
	for _, a := range append(given[:len(given):len(given)], chosen...) {
		header = append(header, s.Axes[a].Name)
	}
	header = append(header, s.Objective.Name)
	for _, c := range s.Constraints {
		header = append(header, s.Metrics[c.Metric].Name)
	}
	t.AppendHeader(append(header, "to baseline", "as good", "undecided"))
	for _, c := range choices[:min(len(choices), shownChoices)] {
		t.AppendRow(choiceRow(s, r, c, given, chosen))
	}
	t.Render()
	if len(choices) > shownChoices {
		fmt.Fprintf(w, "and %d more, in %s\n", len(choices)-shownChoices, sweep.CellsFile)
	}
}

func choiceRow(s *sweep.Sweep, r sweep.Results, c sweep.Choice, given, chosen []int) table.Row {
	row := table.Row{}
	for _, a := range given {
		row = append(row, s.Value(c.Cells[0], a).Text())
	}
	if c.Best < 0 {
		for range chosen {
			row = append(row, "-")
		}
		row = append(row, "-")
		for range s.Constraints {
			row = append(row, "none is shown to meet it")
		}
		return append(row, "", "", len(c.Undecided))
	}
	for _, a := range chosen {
		row = append(row, s.Value(c.Best, a).Text())
	}
	row = append(row, objectiveCell(s, r, c.Best))
	for _, k := range s.Constraints {
		i, _ := s.Judge(r, c.Best, k, r.Ran(c.Best))
		row = append(row, intervalCell(i))
	}
	difference := ""
	if m := s.Objective.Metric; m >= 0 {
		if s.Cells[c.Best].Baseline == c.Best {
			difference = "is the baseline"
		} else if st := s.Stat(r, c.Best, m); st.Diff.N > 1 {
			difference = intervalCell(st.Diff)
		}
	}
	return append(row, difference, len(c.Ties), len(c.Undecided))
}

func objectiveCell(s *sweep.Sweep, r sweep.Results, cell int) string {
	if s.Objective.Axis >= 0 {
		return s.Value(cell, s.Objective.Axis).Text()
	}
	return intervalCell(s.Stat(r, cell, s.Objective.Metric).Mean)
}

// intervalCell is an estimate with its interval.
func intervalCell(i sweep.Interval) string {
	return fmt.Sprintf("%s (%s..%s)", short(i.Estimate), short(i.Low), short(i.High))
}

// short is a number with four decimals at most, one from 100 on, and none that
// are 0.
func short(v float64) string {
	decimals := 4
	if v >= 100 || v <= -100 {
		decimals = 1
	}
	s := strconv.FormatFloat(v, 'f', decimals, 64)
	if strings.ContainsRune(s, '.') {
		s = strings.TrimRight(strings.TrimRight(s, "0"), ".")
	}
	return s
}
