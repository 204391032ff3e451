package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"fleetsim/sim/scenario"
	"fleetsim/sim/sweep"
)

const planHelp = `
Usage: sim plan SCENARIO [flags]

Finds the fewest replicas, or the highest rate of arrivals, that meet the SLO
with the asked confidence, for each policy: it steps away from the scenario's own
value and then bisects, with more seeds for a value while it is undecided. It
shows every value it tried. A value that stays undecided counts as not meeting
the SLO.

Example: sim plan hot50 --find replicas --slo "good>=99%" --set workload.arrivals.rate_per_second=4`

// planFlags are what `sim plan` was asked for.
type planFlags struct {
	search   sweep.Search
	find     string
	within   string
	slo      []string
	policies []string
	seed     string
	profile  string
	progress bool
}

func planCommand(args []string, stdout, stderr io.Writer) int {
	var o planFlags
	f := newFlags("plan", planHelp, stdout, stderr)
	f.StringVar(&o.find, "find", string(sweep.Replicas), "replicas (the fewest) or rate (the highest)")
	f.StringArrayVar(&o.slo, "slo", []string{"good>=99%"}, "goal for the mean over the seeds: METRIC>=VALUE or METRIC<=VALUE, with a number, a percentage or a duration (repeatable)")
	f.StringVar(&o.within, "within", "", "range to search in: LOW..HIGH (default: 1..64 replicas; the scenario's rate by 64 either way)")
	f.Float64Var(&o.search.Tolerance, "tolerance", 0.02, "relative distance between the rates that are tried, with --find rate")
	f.Float64Var(&o.search.Confidence, "confidence", 0.95, "of each decision")
	f.IntVar(&o.search.First, "first", 5, "seeds before the first decision")
	f.IntVar(&o.search.Step, "step", 5, "further seeds while a value is undecided")
	f.IntVar(&o.search.Seeds, "seeds", 40, "seeds for a value at most")
	f.StringArrayVar(&o.policies, "policy", nil, "routing policy, instead of the scenario's (repeatable)")
	f.StringArrayVar(&o.search.Sets, "set", nil, "change one key of the scenario: path.to.key=value (repeatable)")
	f.StringVar(&o.seed, "seed", "", "first seed, instead of the scenario's")
	f.StringVar(&o.profile, "profile", "", "profile, a built-in name or a .toml file, instead of the scenario's")
	f.IntVar(&o.search.Workers, "workers", 0, "runs at a time (0: one a CPU); results do not depend on it")
	f.BoolVar(&o.progress, "progress", false, "show progress even when standard error is no terminal")
	if status, ok := f.parse(args); !ok {
		return status
	}
	if f.NArg() != 1 {
		return f.fail(statusUsage, errors.New("plan takes one SCENARIO: a file or one of the names that sim run --list shows"))
	}
	if f.Changed("tolerance") && o.find != string(sweep.Rate) {
		return f.fail(statusUsage, errors.New("--tolerance is given without --find rate, to which it belongs: replicas are tried one by one"))
	}
	if err := o.prepare(f.Arg(0)); err != nil {
		return f.fail(statusUsage, err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	answers, err := o.answers(ctx, stderr)
	if len(answers) > 0 {
		o.print(stdout, answers)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return f.fail(statusFailed, fmt.Errorf("stopped: %d of %d policies are planned", len(answers), len(o.policies)))
	case err != nil:
		return f.fail(statusFailed, err)
	}
	return statusOK
}

// prepare turns the flags into a search, which has no policy yet.
func (o *planFlags) prepare(name string) error {
	q := &o.search
	q.Find = sweep.Quantity(o.find)
	var problems []error
	for _, text := range o.slo {
		goal, err := sweep.ParseGoal(text)
		if err != nil {
			problems = append(problems, fmt.Errorf("--slo %w", err))
		}
		q.Goals = append(q.Goals, goal)
	}
	if !(q.Tolerance >= 1e-4 && q.Tolerance <= 1) {
		problems = append(problems, fmt.Errorf("--tolerance %g: allowed is 0.0001 to 1", q.Tolerance))
	}
	if !(q.Confidence > 0.5 && q.Confidence < 1) {
		problems = append(problems, fmt.Errorf("--confidence %g: allowed is above 0.5 and below 1", q.Confidence))
	}
	if err := o.parseRange(); err != nil {
		problems = append(problems, err)
	}
	if o.profile != "" {
		q.Sets = append(q.Sets, "profile="+strconv.Quote(o.profile))
	}
	if o.seed != "" {
		q.Sets = append(q.Sets, "seed="+o.seed)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	file, text, err := scenario.Open(name)
	if err != nil {
		return err
	}
	q.BaseFile, q.BaseText = file, string(text)
	sets, err := withPolicies(q.Sets, o.policies)
	if err != nil {
		return err
	}
	sc, err := scenario.ParseWith(file, text, sets)
	if err != nil {
		return atPolicyFlag(o.policies, err)
	}
	o.policies = sc.Policies
	for _, policy := range o.policies {
		q.Policy = policy
		if err := q.Check(); err != nil {
			return err
		}
	}
	return nil
}

func (o *planFlags) parseRange() error {
	if o.within == "" {
		return nil
	}
	low, high, ok := strings.Cut(o.within, "..")
	var err1, err2 error
	o.search.Low, err1 = strconv.ParseFloat(low, 64)
	o.search.High, err2 = strconv.ParseFloat(high, 64)
	if !ok || err1 != nil || err2 != nil || !(o.search.Low > 0) || !(o.search.High >= o.search.Low) {
		return fmt.Errorf("--within %q: allowed is LOW..HIGH with numbers above 0, such as 1..16", o.within)
	}
	return nil
}

func (o *planFlags) answers(ctx context.Context, stderr io.Writer) ([]*sweep.Answer, error) {
	var answers []*sweep.Answer
	for _, policy := range o.policies {
		q := o.search
		q.Policy = policy
		if drawn(stderr, o.progress) {
			q.Done = func(p sweep.Probe) {
				fmt.Fprintf(stderr, "%s: %s %s after %d runs: %s\n", policy, short(p.Value), o.find, p.Runs, p.Verdict)
			}
		}
		a, err := q.Run(ctx)
		if err != nil {
			return answers, err
		}
		answers = append(answers, a)
	}
	return answers, nil
}

// print writes the values tried for each policy, and then the answers.
func (o *planFlags) print(w io.Writer, answers []*sweep.Answer) {
	for _, a := range answers {
		o.printProbes(w, a)
	}
	t := newTable(w)
	fmt.Fprintf(w, " %s with %s at %g%% confidence (profile %s)\n", o.what(), strings.Join(o.slo, ", "), 100*o.search.Confidence, answers[0].Profile.Name)
	t.AppendHeader(table.Row{"policy", o.find, "bracket", "runs"})
	t.SetColumnConfigs([]table.ColumnConfig{{Number: 2, Align: text.AlignRight, AlignHeader: text.AlignRight}, {Number: 4, Align: text.AlignRight, AlignHeader: text.AlignRight}})
	for _, a := range answers {
		t.AppendRow(table.Row{a.Policy, found(a), bracket(a), a.Runs})
	}
	t.Render()
	for _, a := range answers {
		if a.Met != nil && a.Met.Extrapolates != "" {
			fmt.Fprintf(w, "warning: %s: the answer lies outside what the profile was calibrated on: %s\n", a.Policy, a.Met.Extrapolates)
		}
	}
}

func (o *planFlags) what() string {
	if o.search.Find == sweep.Replicas {
		return "fewest replicas"
	}
	return "highest rate, arrivals per second,"
}

func (o *planFlags) printProbes(w io.Writer, a *sweep.Answer) {
	t := newTable(w)
	t.SetTitle("%s: values tried, in order", a.Policy)
	header := table.Row{o.find, "runs"}
	for _, g := range o.slo {
		header = append(header, g+": mean (bounds)")
	}
	t.AppendHeader(append(header, "verdict"))
	for _, p := range a.Probes {
		row := table.Row{short(p.Value), p.Runs}
		for _, i := range p.Goals {
			row = append(row, intervalCell(i))
		}
		t.AppendRow(append(row, p.Verdict))
	}
	t.Render()
	fmt.Fprintln(w)
}

func found(a *sweep.Answer) string {
	if a.Met == nil {
		return "none in the range"
	}
	return short(a.Met.Value)
}

// bracket is the two values between which the answer lies.
func bracket(a *sweep.Answer) string {
	switch {
	case a.Met == nil:
		return "no value tried meets it"
	case a.NotMet == nil:
		return fmt.Sprintf("%s meets it, the end of the range", short(a.Met.Value))
	}
	return fmt.Sprintf("%s meets it, %s: %s", short(a.Met.Value), short(a.NotMet.Value), a.NotMet.Verdict)
}
