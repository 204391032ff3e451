package report

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"fleetsim/sim/sweep"
)

// Build makes the report of a sweep's results.
func Build(in Input) *Report {
	b := &builder{Input: in, s: in.Sweep, r: in.Results}
	b.survey()
	r := &Report{
		Title: in.Sweep.Name, Description: in.Sweep.Description,
		Facts: b.facts(), Warnings: b.warnings(), Answers: b.answers(), Method: b.method(),
	}
	r.Figures = append(r.Figures, b.heatmaps()...)
	r.Figures = append(r.Figures, b.bands()...)
	r.Figures = append(r.Figures, b.pareto()...)
	r.Figures = append(r.Figures, b.distributions()...)
	r.Figures = append(r.Figures, b.timelines()...)
	if in.Fidelity != nil {
		r.Tables = append(r.Tables, *in.Fidelity)
	}
	r.Tables = append(r.Tables, b.cellTable())
	return r
}

// A builder holds what several figures need.
type builder struct {
	Input
	s       *sweep.Sweep
	r       sweep.Results
	choices []sweep.Choice
	best    []bool   // by cell
	beyond  []string // by cell: how it left the calibrated range
	varied  []int    // the first axis of each dimension with several values
}

func (b *builder) survey() {
	b.choices = b.s.Choose(b.r)
	b.best = make([]bool, len(b.s.Cells))
	for _, c := range b.choices {
		if c.Best >= 0 {
			b.best[c.Best] = true
		}
	}
	b.beyond = make([]string, len(b.s.Cells))
	for i := range b.beyond {
		b.beyond[i] = b.s.Extrapolates(b.r, i)
	}
	zipped := map[string]bool{}
	for a := range b.s.Axes {
		axis := &b.s.Axes[a]
		if len(axis.Values) < 2 || axis.Zip != "" && zipped[axis.Zip] {
			continue
		}
		zipped[axis.Zip] = true
		b.varied = append(b.varied, a)
	}
}

func (b *builder) facts() []Fact {
	runs := 0
	for cell := range b.s.Cells {
		runs += b.r.Ran(cell)
	}
	profiles := []string{}
	for _, c := range b.s.Cells {
		if !slices.Contains(profiles, c.Profile.Name) {
			profiles = append(profiles, c.Profile.Name)
		}
	}
	facts := []Fact{
		{"Scenario", b.s.Cells[0].Scenario.Name},
		{"Profile", strings.Join(profiles, ", ")},
		{"Cells", strconv.Itoa(len(b.s.Cells))},
		{"Runs", strconv.Itoa(runs)},
		{"Seeds a cell", fmt.Sprintf("%s, from %d on, the same in every cell", seedRange(b.s.Looks()), b.s.Seeds[0])},
		{"Confidence", fmt.Sprintf("%g%%", 100*b.s.Confidence)},
	}
	for _, a := range b.s.Axes {
		facts = append(facts, Fact{"Axis " + a.Name, fmt.Sprintf("%s: %s", a.Key, b.valuesText(&a))})
	}
	if o := b.s.Objective; o != nil {
		way := "minimise "
		if o.Maximise {
			way = "maximise "
		}
		facts = append(facts, Fact{"Objective", way + o.Name})
	}
	for _, c := range b.s.Constraints {
		facts = append(facts, Fact{"Subject to", b.constraintText(c)})
	}
	facts = append(facts, Fact{"Version", b.Version})
	if b.Command != "" {
		facts = append(facts, Fact{"Made by", b.Command})
	}
	return facts
}

func seedRange(looks []int) string {
	if len(looks) == 1 {
		return strconv.Itoa(looks[0])
	}
	return fmt.Sprintf("%d to %d, until decided", looks[0], looks[len(looks)-1])
}

func (b *builder) valuesText(a *sweep.Axis) string {
	n := len(a.Values)
	if n <= 8 {
		var texts []string
		for _, v := range a.Values {
			texts = append(texts, v.Text())
		}
		return strings.Join(texts, ", ")
	}
	return fmt.Sprintf("%s to %s, %d values", a.Values[0].Text(), a.Values[n-1].Text(), n)
}

func (b *builder) constraintText(c sweep.Constraint) string {
	sign := "≤"
	if c.Least {
		sign = "≥"
	}
	return fmt.Sprintf("mean %s %s %g", b.s.Metrics[c.Metric].Name, sign, c.Bound)
}

// warnings say which cells lie outside what their profile was calibrated on,
// and how.
func (b *builder) warnings() []string {
	n := 0
	first := ""
	for cell, how := range b.beyond {
		if how == "" {
			continue
		}
		if n++; n == 1 {
			first = fmt.Sprintf("cell %d (%s): %s", cell, b.s.Label(cell), how)
		}
	}
	if n == 0 {
		return nil
	}
	which := fmt.Sprintf("%d of %d cells lie", n, len(b.s.Cells))
	if n == 1 {
		which = fmt.Sprintf("1 of %d cells lies", len(b.s.Cells))
	}
	return []string{fmt.Sprintf(
		"Outside the calibrated range: %s outside what the profile was calibrated on. Their figures are extrapolated and may be wrong by more than the fidelity table says. They are hatched in the heatmaps, hollow among dots and marked in the tables. The first is %s.",
		which, first)}
}

// maxAnswers is how many groups a table shows; all are in the results' files.
const maxAnswers = 250

// answers is a row a group: what is given, what is best, and how sure that is.
func (b *builder) answers() *Table {
	if b.s.Objective == nil {
		return nil
	}
	t := &Table{ID: "answers", Title: "The best setting", Caption: b.answersCaption()}
	var given, chosen []int
	for a := range b.s.Axes {
		switch {
		case b.s.Led(a):
		case b.s.Given(a):
			given = append(given, a)
		default:
			chosen = append(chosen, a)
		}
	}
	for _, a := range append(slices.Clone(given), chosen...) {
		t.Columns = append(t.Columns, Column{b.s.Axes[a].Name, b.s.Axes[a].Numeric()})
	}
	metric := b.s.Objective.Metric
	if metric >= 0 {
		t.Columns = append(t.Columns, Column{b.label(metric), true}, Column{"to the baseline", true})
	}
	for _, c := range b.s.Constraints {
		t.Columns = append(t.Columns, Column{b.label(c.Metric), true})
	}
	t.Columns = append(t.Columns, Column{"as good", true}, Column{"undecided", true})
	for _, c := range b.choices[:min(len(b.choices), maxAnswers)] {
		t.Rows = append(t.Rows, b.answer(c, given, chosen))
	}
	if len(b.choices) > maxAnswers {
		t.Caption += fmt.Sprintf(" The first %d of %d are shown; the rest is in %s.", maxAnswers, len(b.choices), sweep.CellsFile)
	}
	return t
}

func (b *builder) answersCaption() string {
	s := "Per row, the setting with the best objective of those that are shown to meet every constraint. In brackets, the interval. “As good” counts further settings that are not shown to be worse"
	if len(b.s.Constraints) > 0 {
		s += "; “undecided” those that neither meet nor miss the constraints for certain"
	}
	return s + "."
}

func (b *builder) answer(c sweep.Choice, given, chosen []int) []string {
	var row []string
	for _, a := range given {
		row = append(row, b.s.Value(c.Cells[0], a).Text())
	}
	for _, a := range chosen {
		text := "none"
		if c.Best >= 0 {
			text = b.s.Value(c.Best, a).Text()
		}
		row = append(row, text)
	}
	metric := b.s.Objective.Metric
	if metric >= 0 {
		value, difference := "", ""
		if c.Best >= 0 {
			st := b.s.Stat(b.r, c.Best, metric)
			value = interval(st.Mean)
			switch {
			case b.s.Cells[c.Best].Baseline == c.Best:
				difference = "is the baseline"
			case st.Diff.N > 1:
				difference = interval(st.Diff)
			}
		}
		row = append(row, value, difference)
	}
	for _, k := range b.s.Constraints {
		text := ""
		if c.Best >= 0 {
			i, _ := b.s.Judge(b.r, c.Best, k, b.r.Ran(c.Best))
			text = interval(i)
		}
		row = append(row, text)
	}
	if c.Best >= 0 && b.beyond[c.Best] != "" {
		row[0] += " ⚠"
	}
	return append(row, strconv.Itoa(len(c.Ties)), strconv.Itoa(len(c.Undecided)))
}

// interval is an estimate with its bounds.
func interval(i sweep.Interval) string {
	return fmt.Sprintf("%s (%s … %s)", number(i.Estimate, 4), number(i.Low, 4), number(i.High, 4))
}

// label is a metric's name with its unit.
func (b *builder) label(metric int) string {
	m := b.s.Metrics[metric]
	if m.Unit == "" {
		return m.Name
	}
	return m.Name + ", " + m.Unit
}

// metric is the index of the named metric, which every sweep has.
func (b *builder) metric(name string) int {
	i, err := b.s.MetricIndex(name)
	if err != nil {
		panic(err)
	}
	return i
}

// shownMetrics are those of the goals and, as far as they differ between cells,
// the usual three, each once.
func (b *builder) shownMetrics(most int) []int {
	var out []int
	add := func(m int) {
		if m >= 0 && len(out) < most && !slices.Contains(out, m) {
			out = append(out, m)
		}
	}
	if b.s.Objective != nil {
		add(b.s.Objective.Metric)
	}
	for _, c := range b.s.Constraints {
		add(c.Metric)
	}
	for _, name := range []string{"good_share", "ttft_p95", "cache_hit_ratio"} {
		if low, high := extent(b.means(b.metric(name))); high > low {
			add(b.metric(name))
		}
	}
	return out
}

// maxCells is how many cells the report's own table shows.
const maxCells = 300

func (b *builder) cellTable() Table {
	t := Table{
		ID: "cells", Title: "Cells",
		Caption: "Per cell, the mean over the seeds with its interval, and in the last columns the difference of the first figure to the baseline cell, paired by seed.",
	}
	t.Columns = append(t.Columns, Column{"cell", true})
	for _, a := range b.s.Axes {
		t.Columns = append(t.Columns, Column{a.Name, a.Numeric()})
	}
	t.Columns = append(t.Columns, Column{"seeds", true})
	metrics := b.shownMetrics(4)
	for _, m := range metrics {
		t.Columns = append(t.Columns, Column{b.label(m), true})
	}
	t.Columns = append(t.Columns, Column{"to the baseline", true}, Column{"verdict", false})
	if len(b.s.Cells) > maxCells {
		t.Caption += fmt.Sprintf(" The first %d of %d cells; all are in %s.", maxCells, len(b.s.Cells), sweep.SummaryCSVFile)
	}
	for cell := range b.s.Cells[:min(len(b.s.Cells), maxCells)] {
		row := []string{strconv.Itoa(cell)}
		for a := range b.s.Axes {
			row = append(row, b.s.Value(cell, a).Text())
		}
		row = append(row, strconv.Itoa(b.r.Ran(cell)))
		for _, m := range metrics {
			row = append(row, interval(b.s.Stat(b.r, cell, m).Mean))
		}
		difference := ""
		if len(metrics) > 0 {
			if d := b.s.Stat(b.r, cell, metrics[0]).Diff; d.N > 1 {
				difference = interval(d)
			}
		}
		t.Rows = append(t.Rows, append(row, difference, b.remarks(cell)))
	}
	return t
}

// remarks are what was decided about a cell.
func (b *builder) remarks(cell int) string {
	var words []string
	if len(b.s.Constraints) > 0 {
		words = append(words, b.s.Verdict(b.r, cell, b.r.Ran(cell)).String())
	}
	if b.best[cell] {
		words = append(words, "best")
	}
	if b.beyond[cell] != "" {
		words = append(words, "⚠ "+b.beyond[cell])
	}
	return strings.Join(words, ", ")
}

func (b *builder) method() []string {
	tail := 100 * (1 - 2*b.s.Tail())
	m := []string{
		"Every cell was simulated with the same seeds (common random numbers): the arrivals, the documents asked for and all other chance are the same wherever the setting leaves them the same, so that cells are compared seed by seed.",
		fmt.Sprintf("Intervals of means are Student's t over the seeds; differences are taken seed by seed and have the paired t interval. Each covers %.4g%%. They take the seeds' figures for independent and their mean for about normal, and are not widened for the number of cells that are looked at. Bands in the charts are something else: they hold 90%% of the seeds, from the 5%% to the 95%% quantile.", tail),
	}
	if len(b.s.Constraints) > 0 {
		m = append(m, "A constraint is met when the one-sided bound of the mean's interval is within it. For a share, that is the worse of the t bound over the seeds and the Clopper-Pearson bound of the pooled requests, so that a few runs without a failure do not count as proof.")
	}
	if looks := b.s.Looks(); len(looks) > 1 {
		m = append(m, fmt.Sprintf("Seeds were added only where the decision was open: after %s. Each of these %d looks is a chance to err, so every interval errs with a %[2]dth of the probability (Bonferroni), which is why intervals cover more than %g%%.", joinInts(looks), len(looks), 100*b.s.Confidence))
	}
	return append(m, "Results are simulated. The fidelity table says how far the profile's simulation agrees with measurements; nothing here was measured.")
}

func joinInts(ns []int) string {
	var texts []string
	for _, n := range ns {
		texts = append(texts, strconv.Itoa(n))
	}
	if len(texts) > 8 {
		texts = append(append(texts[:4:4], "…"), texts[len(texts)-1])
	}
	return strings.Join(texts, ", ")
}

// mean is the mean of a metric over a cell's seeds.
func (b *builder) mean(cell, metric int) float64 {
	return b.s.Stat(b.r, cell, metric).Mean.Estimate
}

// sample are at most n places of values, evenly spread, the ends among them.
func sample(values, n int) []int {
	if values <= n {
		all := make([]int, values)
		for i := range all {
			all[i] = i
		}
		return all
	}
	var out []int
	for i := range n {
		out = append(out, int(math.Round(float64(i)*float64(values-1)/float64(n-1))))
	}
	return out
}
