package main

import (
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"fleetsim/calibrate"
	"fleetsim/sim/record"
)

// A comparedColumn is one figure of a study's table.
type comparedColumn struct {
	name, metric string
	format       func(float64) string
	slack        float64 // widens the band, a share of its bounds
	wide         bool    // only with --wide
}

func comparedColumns() []comparedColumn {
	return []comparedColumn{
		{"TTFT p50 s", "ttft.p50", fixed(3), 0.05, true},
		{"TTFT p95 s", "ttft.p95", fixed(3), 0.05, false},
		{"TPOT p95 ms", "tpot.p95", milliseconds, 0.05, false},
		{"hit ratio", "cache_hit_ratio", fixed(3), 0.005, true},
		{"good", "good", fixed(0), 0, false},
	}
}

func milliseconds(v float64) string { return fixed(1)(1000 * v) }

// printStudy writes a row a phase: measured | simulated, and the band.
func printStudy(w io.Writer, c *calibrate.StudyComparison, wide bool) {
	t := newTable(w)
	fmt.Fprintf(w, " %s: measured | simulated%s, profile %s\n", c.Study, seedsOf(c), c.Profile)
	header := table.Row{"phase"}
	var cells [][]string // by column
	add := func(name string, column []string) {
		header, cells = append(header, name), append(cells, column)
	}
	for _, col := range comparedColumns() {
		if wide || !col.wide {
			add(col.name, col.cells(c))
		}
	}
	if wide {
		for _, col := range replicaColumns {
			var column []string
			for i := range c.Phases {
				p := &c.Phases[i]
				column = append(column, perReplica(p, func(r *record.Replica) string { return col.show(p, r) }))
			}
			add(col.name, column)
		}
		var counters []string
		for i := range c.Phases {
			counters = append(counters, countersCell(&c.Phases[i]))
		}
		add("counters", counters)
	}
	t.AppendHeader(header)
	rightAlign(t, 2, len(header))
	for i := range c.Phases {
		row := table.Row{c.Phases[i].Phase}
		for _, column := range cells {
			row = append(row, column[i])
		}
		t.AppendRow(row)
	}
	t.Render()
	if wide {
		fmt.Fprintln(w, "Figures of replicas and counters are those of the first seed. Counters: prefix_match/prefix_match_skipped/least_request_fallback+imbalanced.")
	}
	printWarnings(w, c)
	printCoverage(w, c)
}

// seedsOf says what a simulated figure is when there are several.
func seedsOf(c *calibrate.StudyComparison) string {
	if c.Seeds == 1 {
		return ""
	}
	return fmt.Sprintf(": median (5..95%%) of %d seeds", c.Seeds)
}

// rightAlign aligns the columns first to last, counted from 1.
func rightAlign(t table.Writer, first, last int) {
	var configs []table.ColumnConfig
	for n := first; n <= last; n++ {
		configs = append(configs, table.ColumnConfig{Number: n, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
}

// printCoverage says how often the measured values lie inside the bands.
func printCoverage(w io.Writer, c *calibrate.StudyComparison) {
	if c.Seeds == 1 {
		return
	}
	fmt.Fprintln(w, "\nMeasured inside the 5-95% band (* marks one outside):")
	for _, col := range comparedColumns() {
		cov := c.Coverage(col.slack, col.metric)[0]
		if cov.Known > 0 {
			fmt.Fprintf(w, "  %-12s %d of %d (band widened by %g%%)\n", col.name, cov.Inside, cov.Known, 100*col.slack)
		}
	}
}

// cells are the column's cells, whose parts stand below each other.
func (col *comparedColumn) cells(c *calibrate.StudyComparison) []string {
	var rows [][]string
	for i := range c.Phases {
		p := &c.Phases[i]
		measured := record.Float{}
		if p.Measured != nil {
			measured = metricOf(p.Measured, col.metric)
		}
		band := p.Band.Of(col.metric)
		row := []string{orDash(measured, col.format), "|", orDash(band.P50, col.format)}
		if c.Seeds > 1 {
			mark := " "
			if inside, known := p.Inside(col.metric, col.slack); known && !inside {
				mark = "*"
			}
			row = append(row, "("+bandOf(band, col.format)+")", mark)
		}
		rows = append(rows, row)
	}
	return alignParts(rows)
}

func metricOf(p *record.Phase, name string) record.Float {
	for _, m := range calibrate.Metrics(p) {
		if m.Name == name {
			return m.Value(p)
		}
	}
	return record.Float{}
}

func orDash(v record.Float, format func(float64) string) string {
	f, ok := v.Get()
	if !ok {
		return "-"
	}
	return format(f)
}

func bandOf(b record.Band, format func(float64) string) string {
	low, ok := b.P5.Get()
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%s..%s", format(low), format(b.P95.Or(low)))
}

// alignParts joins the parts of each row, all padded on the left to the widest
// part in their place.
func alignParts(rows [][]string) []string {
	var widths []int
	for _, row := range rows {
		for i, part := range row {
			if i == len(widths) {
				widths = append(widths, 0)
			}
			widths[i] = max(widths[i], utf8.RuneCountInString(part))
		}
	}
	joined := make([]string, len(rows))
	for r, row := range rows {
		padded := make([]string, len(row))
		for i, part := range row {
			padded[i] = strings.Repeat(" ", widths[i]-utf8.RuneCountInString(part)) + part
		}
		joined[r] = strings.Join(padded, " ")
	}
	return joined
}

// printWarnings writes what makes the sides of a phase unlike, and what the
// measurement's source says about it.
func printWarnings(w io.Writer, c *calibrate.StudyComparison) {
	for i := range c.Phases {
		for _, warning := range c.Phases[i].Warnings {
			fmt.Fprintf(w, "warning: %s: %s\n", c.Phases[i].Phase, warning)
		}
		for _, note := range c.Phases[i].Notes() {
			fmt.Fprintf(w, "note: %s: %s\n", c.Phases[i].Phase, note)
		}
	}
}

// replicaColumns are figures of each replica.
var replicaColumns = []struct {
	name string
	show func(*calibrate.PhaseComparison, *record.Replica) string
}{
	{"split", func(_ *calibrate.PhaseComparison, r *record.Replica) string { return r.Requests.String() }},
	{"waiting peak", func(_ *calibrate.PhaseComparison, r *record.Replica) string { return r.WaitingPeak.String() }},
	{"KV peak, blocks", func(p *calibrate.PhaseComparison, r *record.Replica) string {
		return orDash(r.KVUsagePeak, func(usage float64) string { return fixed(0)(usage * float64(p.UsableBlocks)) })
	}},
}

// perReplica is a figure of each replica, measured | simulated.
func perReplica(p *calibrate.PhaseComparison, show func(*record.Replica) string) string {
	side := func(phase *record.Phase) string {
		if phase == nil || len(phase.Replicas) == 0 {
			return "-"
		}
		var parts []string
		for i := range phase.Replicas {
			parts = append(parts, show(&phase.Replicas[i]))
		}
		return strings.Join(parts, "/")
	}
	return side(p.Measured) + " | " + side(p.Simulated)
}

// countersCell is how prefix-cache chose: prefix_match, prefix_match_skipped,
// least_request_fallback and, after a +, imbalanced.
func countersCell(p *calibrate.PhaseComparison) string {
	side := func(phase *record.Phase) string {
		if phase == nil || phase.RoutingCounterDeltas == nil {
			return "-"
		}
		count := map[string]float64{}
		for _, d := range phase.RoutingCounterDeltas {
			switch d.Name {
			case "aibrix_prefix_cache_routing_selection_total":
				count[d.Labels["selection"]] = d.Delta
			case "aibrix_prefix_cache_load_imbalance_total":
				count["imbalanced"] = d.Delta
			}
		}
		if len(count) == 0 {
			return "-"
		}
		return fmt.Sprintf("%.0f/%.0f/%.0f+%.0f", count["prefix_match"], count["prefix_match_skipped"], count["least_request_fallback"], count["imbalanced"])
	}
	return side(p.Measured) + " | " + side(p.Simulated)
}

// timeFormats show the times of a group, each in its unit.
var timeFormats = map[string]struct {
	unit   string
	format func(float64) string
}{
	"ttft": {"s", fixed(3)},
	"tpot": {"ms", milliseconds},
	"e2e":  {"s", fixed(3)},
}

// printGroups writes, for each phase and tenant, the quantiles and the verdicts,
// and at the end all verdicts together.
func printGroups(w io.Writer, c *calibrate.StudyComparison) {
	fmt.Fprintf(w, "Measured beside %s%s, profile %s\n", c.Study, seedsOf(c), c.Profile)
	for i := range c.Phases {
		p := &c.Phases[i]
		fmt.Fprintf(w, "\n%s, %s\n", p.Phase, p.Plan.Policy)
		for _, warning := range p.Warnings {
			fmt.Fprintln(w, "warning:", warning)
		}
		for _, note := range p.Notes() {
			fmt.Fprintln(w, "note:", note)
		}
		for j := range p.Groups {
			printGroup(w, &p.Groups[j], c.Seeds)
		}
	}
	if len(c.Phases) > 1 {
		printVerdicts(w, c)
	}
}

func printGroup(w io.Writer, g *calibrate.Group, seeds int) {
	t := newTable(w)
	name := "all requests"
	if g.Tenant != "" {
		name = "tenant " + g.Tenant
	}
	fmt.Fprintf(w, " %s, successes: %s, %s simulated\n", name, counted(g.Success.Measured), orDash(g.Success.Simulated, fixed(0)))
	header := table.Row{"", "measured", "simulated"}
	if seeds > 1 {
		header = append(header, "5..95%")
	}
	t.AppendHeader(append(header, "error"))
	rightAlign(t, 2, len(header)+1)
	for i := range g.Metrics {
		m := &g.Metrics[i]
		show := timeFormats[m.Metric]
		for _, q := range m.Quantiles {
			row := table.Row{
				fmt.Sprintf("%s %s %s", strings.ToUpper(m.Metric), q.Quantile, show.unit),
				notMeasured(q.Measured, show.format), orDash(q.Simulated, show.format),
			}
			if seeds > 1 {
				row = append(row, bandOf(q.Band, show.format))
			}
			t.AppendRow(append(row, errorCell(&q)))
		}
	}
	t.Render()
	for i := range g.Metrics {
		m := &g.Metrics[i]
		line := fmt.Sprintf(" %s: %s", strings.ToUpper(m.Metric), m.Verdict)
		if reason := m.Reason(); reason != "" {
			line += " (" + reason + ")"
		}
		fmt.Fprintln(w, line)
	}
}

func counted(v record.Float) string {
	if !v.Valid() {
		return "not measured"
	}
	return orDash(v, fixed(0)) + " measured"
}

func notMeasured(v record.Float, format func(float64) string) string {
	if !v.Valid() {
		return "not measured"
	}
	return orDash(v, format)
}

// errorCell is the signed error, with a star when the measured value is outside
// the band.
func errorCell(q *calibrate.QuantileComparison) string {
	mark := " "
	if inside, known := q.Inside.Get(); known && !inside {
		mark = "*"
	}
	return orDash(q.Error, func(e float64) string { return fmt.Sprintf("%+.1f%%", 100*e) }) + mark
}

// printVerdicts is a row a group with a word for each time.
func printVerdicts(w io.Writer, c *calibrate.StudyComparison) {
	fmt.Fprintln(w)
	t := newTable(w)
	t.SetTitle("Verdicts")
	t.AppendHeader(table.Row{"phase", "TTFT", "TPOT", "E2E"})
	for i := range c.Phases {
		for j := range c.Phases[i].Groups {
			g := &c.Phases[i].Groups[j]
			name := c.Phases[i].Phase
			if g.Tenant != "" {
				name = "  tenant " + g.Tenant
			}
			row := table.Row{name}
			for _, m := range g.Metrics {
				row = append(row, string(m.Verdict))
			}
			t.AppendRow(row)
		}
	}
	t.Render()
}

// rankingNames are how people call what policies are ranked by.
var rankingNames = map[string]string{"good": "good", "ttft.p95": "TTFT p95"}

// printRankings writes the order of the policies on each load, and whether the
// simulation has the measured one.
func printRankings(w io.Writer, c *calibrate.StudyComparison) {
	if len(c.Rankings) == 0 {
		return
	}
	fmt.Fprintln(w)
	t := newTable(w)
	t.SetTitle("Policies on the same load, the best first")
	t.AppendHeader(table.Row{"load", "by", "measured", "simulated", "agree"})
	agreeing, decided := 0, 0
	for i := range c.Rankings {
		r := &c.Rankings[i]
		measured, simulated := calibrate.Order(r.Measured), calibrate.Order(r.Simulated)
		if measured == simulated {
			simulated = "the same"
		}
		verdict := "-"
		if r.Decided > 0 {
			decided++
			verdict = fmt.Sprintf("%d of %d", r.Agree, r.Decided)
			if r.Agrees() {
				agreeing++
			}
		}
		t.AppendRow(table.Row{r.Load, rankingNames[r.Metric], measured, simulated, verdict})
	}
	t.Render()
	fmt.Fprintln(w, "agree: of the pairs of policies whose measured gap exceeds the simulated 90% band, those in the same order.")
	fmt.Fprintf(w, "Of %d rankings with such a pair, the simulation has %d right.\n", decided, agreeing)
}

// pairFormats show what pairs differ in; those not here only with --wide.
var pairFormats = map[string]func(float64) string{
	"ttft.p95": fixed(3), "tpot.p95": fixed(4), "e2e.p95": fixed(3), "good": fixed(0), "cache_hit_ratio": fixed(3),
}

// printPairs writes the differences between policies, a row a metric.
func printPairs(w io.Writer, c *calibrate.StudyComparison, wide bool) {
	if len(c.Pairs) == 0 {
		fmt.Fprintln(w, "\nNo two phases differ in their policy alone.")
		return
	}
	fmt.Fprintln(w)
	t := newTable(w)
	t.SetTitle("Differences between policies: the second less the first, and the second over the first")
	t.AppendHeader(table.Row{"", "measured", "ratio", "simulated", "5..95%", "ratio", "error", "decided", "sign"})
	rightAlign(t, 2, 9)
	for i := range c.Pairs {
		pair := &c.Pairs[i]
		t.AppendRow(table.Row{fmt.Sprintf("%s: %s, %s", pair.Load, pair.A.Policy, pair.B.Policy)})
		for _, m := range pair.Metrics {
			format, usual := pairFormats[m.Metric]
			if !usual && !wide {
				continue
			}
			if !usual {
				format = fixed(3)
			}
			t.AppendRow(pairRow(&m, signed(format)))
		}
	}
	t.Render()
}

// signed is format with a sign before what it does not show as 0.
func signed(format func(float64) string) func(float64) string {
	return func(v float64) string {
		s := format(math.Abs(v))
		switch {
		case strings.Trim(s, "0.") == "":
			return s
		case v < 0:
			return "-" + s
		}
		return "+" + s
	}
}

func pairRow(m *calibrate.PairMetric, format func(float64) string) table.Row {
	yes := func(b record.Bool, yes, no string) string {
		v, ok := b.Get()
		switch {
		case !ok:
			return "-"
		case v:
			return yes
		}
		return no
	}
	return table.Row{
		"  " + m.Metric,
		orDash(m.Measured.Difference, format), orDash(m.Measured.Ratio, fixed(2)),
		orDash(m.Simulated.Difference, format), bandOf(m.Band, format), orDash(m.Simulated.Ratio, fixed(2)),
		orDash(m.Error, format), yes(m.Decided, "yes", "no"), yes(m.SignAgrees, "agrees", "opposite"),
	}
}
