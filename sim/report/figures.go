package report

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strings"

	"fleetsim/sim/record"
	"fleetsim/sim/sweep"
)

// maxPanels is how many panels a figure has.
const maxPanels = 6

// A view is the grid seen along some of its axes: a cell for each place on them,
// the other axes being held.
type view struct {
	b    *builder
	held map[int]int // by axis, the place of its value
}

// find is the cell of the view where axis x has value i and, if y is an axis, y
// has value j; -1 when there is none.
func (v view) find(x, i, y, j int) int {
	for cell, c := range v.b.s.Cells {
		if c.At[x] != i || y >= 0 && c.At[y] != j {
			continue
		}
		if v.holds(c.At) {
			return cell
		}
	}
	return -1
}

func (v view) holds(at []int) bool {
	for a, place := range v.held {
		if at[a] != place {
			return false
		}
	}
	return true
}

func (v view) title() string {
	var parts []string
	for a := range v.b.s.Axes {
		if place, ok := v.held[a]; ok {
			parts = append(parts, v.b.s.Axes[a].Name+" "+v.b.s.Axes[a].Values[place].Text())
		}
	}
	return strings.Join(parts, ", ")
}

// facets are the views along all combinations of the axes' values, or an even
// sample of them; cut tells that it is a sample.
func (b *builder) facets(axes []int, most int) (views []view, cut bool) {
	views = []view{{b, map[int]int{}}}
	for _, a := range axes {
		n := max(most/len(views), 1)
		places := sample(len(b.s.Axes[a].Values), n)
		cut = cut || len(places) < len(b.s.Axes[a].Values)
		var next []view
		for _, v := range views {
			for _, p := range places {
				held := map[int]int{a: p}
				for k, w := range v.held {
					held[k] = w
				}
				next = append(next, view{b, held})
			}
		}
		views = next
	}
	return views, cut
}

// grid chooses the two axes of the heatmaps: those with the most values, numbers
// before names; the first is x. ok is false when there are not two.
func (b *builder) grid() (x, y int, rest []int, ok bool) {
	if len(b.varied) < 2 {
		return 0, 0, nil, false
	}
	order := slices.Clone(b.varied)
	sort.SliceStable(order, func(i, j int) bool {
		p, q := &b.s.Axes[order[i]], &b.s.Axes[order[j]]
		if p.Numeric() != q.Numeric() {
			return p.Numeric()
		}
		return len(p.Values) > len(q.Values)
	})
	x, y = order[0], order[1]
	// What is chosen goes along x, what is given along y.
	if b.s.Given(x) && !b.s.Given(y) {
		x, y = y, x
	}
	for _, a := range b.varied {
		if a != x && a != y {
			rest = append(rest, a)
		}
	}
	return x, y, rest, true
}

func (b *builder) category(a int) Category {
	c := Category{Label: b.s.Axes[a].Name}
	for _, v := range b.s.Axes[a].Values {
		c.Values = append(c.Values, v.Text())
	}
	return c
}

// heatmaps are a figure a metric, and one of the difference to the baseline.
func (b *builder) heatmaps() []Figure {
	x, y, rest, ok := b.grid()
	if !ok {
		return nil
	}
	views, cut := b.facets(rest, maxPanels)
	note := ""
	if cut {
		note = " Only some values of the other axes are shown."
	}
	var figures []Figure
	for i, m := range b.shownMetrics(3) {
		metric := &b.s.Metrics[m]
		f := Figure{
			ID: "heat-" + metric.Name, Title: "Mean " + metric.Name,
			Caption: strings.TrimSpace("Means over the seeds; brighter is better. " + b.marksText() + note),
		}
		for _, v := range views {
			h := b.heatmap(v, x, y, metric.Name, func(cell int) float64 { return b.mean(cell, m) })
			h.Unit, h.Reverse = metric.Unit, !metric.Higher
			f.Panels = append(f.Panels, h)
		}
		oneScale(f.Panels)
		figures = append(figures, f)
		if i == 0 && b.s.Cells[0].Baseline >= 0 {
			figures = append(figures, b.differences(views, x, y, m, note))
		}
	}
	return together(figures, "heatmaps", "All settings")
}

// together makes one figure of figures that have one panel each, so that they
// stand side by side. Each panel then has its figure's title.
func together(figures []Figure, id, title string) []Figure {
	all := Figure{ID: id, Title: title}
	for _, f := range figures {
		if len(f.Panels) != 1 {
			return figures
		}
		switch p := f.Panels[0].(type) {
		case *Heatmap:
			p.Title = join(f.Title, p.Title)
		case *Chart:
			p.Title = join(f.Title, p.Title)
		}
		all.Panels, all.Legend = append(all.Panels, f.Panels[0]), f.Legend
		if !strings.Contains(all.Caption, f.Caption) {
			all.Caption = strings.TrimSpace(all.Caption + " " + f.Caption)
		}
	}
	if len(all.Panels) == 0 {
		return nil
	}
	return []Figure{all}
}

func (b *builder) marksText() string {
	var s []string
	if slices.Contains(b.best, true) {
		s = append(s, "Ringed: the best setting of its group.")
	}
	if slices.ContainsFunc(b.beyond, func(h string) bool { return h != "" }) {
		s = append(s, "Hatched: outside the calibrated range.")
	}
	return strings.Join(s, " ")
}

func (b *builder) differences(views []view, x, y, m int, note string) Figure {
	metric := &b.s.Metrics[m]
	f := Figure{
		ID: "diff-" + metric.Name, Title: metric.Name + " against the baseline",
		Caption: strings.TrimSpace("Against the baseline: mean difference to the baseline cell, paired by seed, white where its interval holds 0 and nothing is shown; blue is better than the baseline, red is worse." + note),
	}
	for _, v := range views {
		h := b.heatmap(v, x, y, "difference in "+metric.Name, func(cell int) float64 {
			d := b.s.Stat(b.r, cell, m).Diff
			if d.N < 2 || !d.Decided(0) {
				return 0
			}
			return d.Estimate
		})
		h.Unit, h.Diverging, h.Reverse = metric.Unit, true, metric.Higher
		f.Panels = append(f.Panels, h)
	}
	oneScale(f.Panels)
	return f
}

func (b *builder) heatmap(v view, x, y int, name string, value func(cell int) float64) *Heatmap {
	h := &Heatmap{Title: v.title(), X: b.category(x), Y: b.category(y), Name: name}
	columns, rows := len(h.X.Values), len(h.Y.Values)
	cells := make([]int, rows*columns)
	for i := range cells {
		cells[i] = -1
	}
	for cell, c := range b.s.Cells {
		if v.holds(c.At) {
			cells[c.At[y]*columns+c.At[x]] = cell
		}
	}
	for j := range rows {
		values, best, hatched, notes := make([]float64, columns), make([]bool, columns), make([]bool, columns), make([]string, columns)
		for i := range columns {
			cell := cells[j*columns+i]
			if values[i] = math.NaN(); cell < 0 {
				continue
			}
			values[i], best[i], hatched[i], notes[i] = value(cell), b.best[cell], b.beyond[cell] != "", b.note(cell)
		}
		h.Values, h.Best, h.Hatched, h.Note = append(h.Values, values), append(h.Best, best), append(h.Hatched, hatched), append(h.Note, notes)
	}
	return h
}

// note is what the reader of one cell should know beside its value.
func (b *builder) note(cell int) string {
	s := fmt.Sprintf("cell %d", cell)
	if r := b.remarks(cell); r != "" {
		s += ", " + r
	}
	return s
}

// oneScale gives all panels the same colours for the same values.
func oneScale(panels []Panel) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		l, h := extent(p.(*Heatmap).Values...)
		low, high = min(low, l), max(high, h)
	}
	if math.IsInf(low, 0) {
		low, high = 0, 0
	}
	for _, p := range panels {
		h := p.(*Heatmap)
		if h.Low, h.High = low, high; h.Diverging {
			h.High = max(math.Abs(low), math.Abs(high))
			h.Low = -h.High
		}
	}
}

// maxLines is how many series a chart has.
const maxLines = 6

// bands are a figure a metric: its median and the band of 90% of the seeds along
// one axis.
func (b *builder) bands() []Figure {
	if len(b.varied) == 0 {
		return nil
	}
	x := b.along()
	var rest []int
	for _, a := range b.varied {
		if a != x {
			rest = append(rest, a)
		}
	}
	// The axis with the fewest values distinguishes the series.
	sort.SliceStable(rest, func(i, j int) bool { return len(b.s.Axes[rest[i]].Values) < len(b.s.Axes[rest[j]].Values) })
	color := -1
	if len(rest) > 0 {
		color, rest = rest[0], rest[1:]
	}
	views, cut := b.facets(rest, maxPanels)
	var figures []Figure
	for _, m := range b.shownMetrics(3) {
		f := Figure{
			ID: "band-" + b.s.Metrics[m].Name, Title: b.s.Metrics[m].Name + " along " + b.s.Axes[x].Name,
			Caption: "Median of the seeds, and the band that holds 90% of them.",
		}
		var places []int
		if color >= 0 {
			places = sample(len(b.s.Axes[color].Values), maxLines)
			cut = cut || len(places) < len(b.s.Axes[color].Values)
			for _, p := range places {
				f.Legend = append(f.Legend, b.s.Axes[color].Name+" "+b.s.Axes[color].Values[p].Text())
			}
		}
		if cut {
			f.Caption += " Only some values of the other axes are shown."
		}
		for _, v := range views {
			f.Panels = append(f.Panels, b.bandChart(v, x, m, color, places))
		}
		sameRange(f.Panels)
		figures = append(figures, f)
	}
	return together(figures, "bands", "Along "+b.s.Axes[x].Name)
}

// along is the axis of the band plots: of those that are chosen, else of all,
// the one with the most values, numbers before names.
func (b *builder) along() int {
	best := b.varied[0]
	weight := func(a int) int {
		w := len(b.s.Axes[a].Values)
		if b.s.Axes[a].Numeric() {
			w += 1 << 20
		}
		if !b.s.Given(a) {
			w += 1 << 21
		}
		return w
	}
	for _, a := range b.varied {
		if weight(a) > weight(best) {
			best = a
		}
	}
	return best
}

func (b *builder) bandChart(v view, x, m, color int, places []int) *Chart {
	c := &Chart{Title: v.title(), X: b.chartAxis(x), Y: Axis{Label: b.label(m)}}
	if color < 0 {
		c.Series = []Series{b.bandSeries(v, x, m, -1, 0, 0)}
		c.Series[0].Name = b.s.Metrics[m].Name
		return c
	}
	for k, p := range places {
		s := b.bandSeries(v, x, m, color, p, k)
		s.Name = b.s.Axes[color].Name + " " + b.s.Axes[color].Values[p].Text()
		c.Series = append(c.Series, s)
	}
	return c
}

func (b *builder) bandSeries(v view, x, m, color, place, index int) Series {
	s := Series{Color: index, Mark: Line}
	for i, value := range b.s.Axes[x].Values {
		at, ok := value.Number()
		if !ok || !b.s.Axes[x].Numeric() {
			at = float64(i)
		}
		cell := v.find(x, i, color, place)
		if cell < 0 {
			continue
		}
		band := b.s.Stat(b.r, cell, m).Band
		nan := math.NaN()
		s.X, s.Y = append(s.X, at), append(s.Y, band.P50.Or(nan))
		s.Low, s.High = append(s.Low, band.P5.Or(nan)), append(s.High, band.P95.Or(nan))
		s.Notes = append(s.Notes, fmt.Sprintf("%s: %s (%s … %s)", b.s.Label(cell), number(band.P50.Or(nan), 4), number(band.P5.Or(nan), 4), number(band.P95.Or(nan), 4)))
	}
	return s
}

// chartAxis is the sweep's axis as a chart's: logarithmic when its values are
// about evenly spaced so.
func (b *builder) chartAxis(a int) Axis {
	axis := &b.s.Axes[a]
	out := Axis{Label: axis.Name}
	if !axis.Numeric() {
		for _, v := range axis.Values {
			out.Values = append(out.Values, v.Text())
		}
		return out
	}
	n := len(axis.Values)
	first, _ := axis.Values[0].Number()
	middle, _ := axis.Values[n/2].Number()
	last, _ := axis.Values[n-1].Number()
	out.Log = first > 0 && last/first >= 8 && middle < (first+last)/3
	return out
}

// sameRange gives all charts the same range on y.
func sameRange(panels []Panel) {
	low, high := math.Inf(1), math.Inf(-1)
	for _, p := range panels {
		for _, s := range p.(*Chart).Series {
			l, h := extent(s.Y, s.Low, s.High)
			low, high = min(low, l), max(high, h)
		}
	}
	for _, p := range panels {
		if high > low {
			p.(*Chart).Y.Low, p.(*Chart).Y.High = low, high
		}
	}
}

// pareto are the two trade-offs: goodput against replicas, and TTFT against the
// hit ratio, each cell a dot, and the line of those that no other beats in both.
func (b *builder) pareto() []Figure {
	replicas := b.replicas()
	f := Figure{
		ID: "pareto", Title: "What is traded for what",
		Caption: "Each dot is a cell, its means over the seeds; the dashed line joins the cells that no other beats in both figures.",
	}
	color := b.colorAxis()
	if color >= 0 {
		for _, p := range sample(len(b.s.Axes[color].Values), maxLines) {
			f.Legend = append(f.Legend, b.s.Axes[color].Name+" "+b.s.Axes[color].Values[p].Text())
		}
	}
	low, high := extent(replicas)
	if high > low {
		f.Panels = append(f.Panels, b.tradeOff("Goodput against replicas", "replicas", replicas, false,
			b.label(b.metric("good_per_second")), b.means(b.metric("good_per_second")), true, color))
	}
	ratios := b.means(b.metric("cache_hit_ratio"))
	least, most := extent(ratios)
	if most > least {
		f.Panels = append(f.Panels, b.tradeOff("TTFT against hit ratio", "cache_hit_ratio", ratios, true,
			"ttft_p95, s", b.means(b.metric("ttft_p95")), false, color))
	}
	if len(f.Panels) == 0 {
		return nil
	}
	if len(b.s.Cells) > maxDots {
		f.Caption += fmt.Sprintf(" Of the other cells one in %d is drawn.", (len(b.s.Cells)+maxDots-1)/maxDots)
	}
	if !(high > low) {
		f.Caption += " All cells have as many replicas, so that goodput is not drawn against them."
	}
	if !(most > least) {
		f.Caption += " All cells have one hit ratio, so that TTFT is not drawn against it."
	}
	return []Figure{f}
}

func (b *builder) means(m int) []float64 {
	out := make([]float64, len(b.s.Cells))
	for cell := range out {
		out[cell] = b.mean(cell, m)
	}
	return out
}

// replicas are each cell's: the GPUs that it held on average.
func (b *builder) replicas() []float64 {
	gpu, elapsed := b.means(b.metric("gpu_seconds")), b.means(b.metric("elapsed"))
	for i := range gpu {
		gpu[i] /= elapsed[i]
	}
	return gpu
}

// colorAxis is the axis whose values the dots are coloured by: the one with the
// fewest; -1 when each has more than there are colours.
func (b *builder) colorAxis() int {
	best := -1
	for _, a := range b.varied {
		n := len(b.s.Axes[a].Values)
		if n <= maxLines && (best < 0 || n < len(b.s.Axes[best].Values)) {
			best = a
		}
	}
	return best
}

// maxDots is how many cells a trade-off draws beside its front.
const maxDots = 1200

func (b *builder) tradeOff(title, xLabel string, xs []float64, moreX bool, yLabel string, ys []float64, moreY bool, color int) *Chart {
	c := &Chart{Title: title, X: Axis{Label: xLabel}, Y: Axis{Label: yLabel}}
	front := frontOf(xs, ys, moreX, moreY)
	line := Series{Name: "front", Mark: Front}
	on := map[int]bool{}
	for _, cell := range front {
		on[cell] = true
		line.X, line.Y = append(line.X, xs[cell]), append(line.Y, ys[cell])
	}
	every := (len(b.s.Cells) + maxDots - 1) / maxDots
	index := map[[2]int]int{} // of the series by colour and mark
	for cell := range b.s.Cells {
		if cell%every != 0 && !on[cell] {
			continue
		}
		key := [2]int{0, int(Dots)}
		if color >= 0 {
			key[0] = b.s.Cells[cell].At[color]
		}
		if b.beyond[cell] != "" {
			key[1] = int(Hollow)
		}
		i, ok := index[key]
		if !ok {
			i = len(c.Series)
			index[key] = i
			s := Series{Name: "cells", Color: key[0], Mark: Mark(key[1])}
			if color >= 0 {
				s.Name = b.s.Axes[color].Name + " " + b.s.Axes[color].Values[key[0]].Text()
			}
			c.Series = append(c.Series, s)
		}
		s := &c.Series[i]
		s.X, s.Y = append(s.X, xs[cell]), append(s.Y, ys[cell])
		s.Notes = append(s.Notes, fmt.Sprintf("cell %d: %s: %s, %s", cell, b.s.Label(cell), number(xs[cell], 4), number(ys[cell], 4)))
	}
	c.Series = append(c.Series, line)
	return c
}

// frontOf are the places that no other beats in both figures, ordered by x.
func frontOf(xs, ys []float64, moreX, moreY bool) []int {
	order := make([]int, 0, len(xs))
	for i := range xs {
		if !math.IsNaN(xs[i]) && !math.IsNaN(ys[i]) {
			order = append(order, i)
		}
	}
	sign := func(more bool) float64 {
		if more {
			return -1
		}
		return 1
	}
	sx, sy := sign(moreX), sign(moreY)
	sort.SliceStable(order, func(i, j int) bool {
		a, b := order[i], order[j]
		if xs[a] != xs[b] {
			return sx*xs[a] < sx*xs[b]
		}
		return sy*ys[a] < sy*ys[b]
	})
	var front []int
	best := math.Inf(1)
	for _, i := range order {
		if sy*ys[i] < best {
			best = sy * ys[i]
			front = append(front, i)
		}
	}
	return front
}

// distributions are the times of all requests of the cell, beside its baseline's.
func (b *builder) distributions() []Figure {
	if b.Cell == nil {
		return nil
	}
	f := Figure{
		ID: "ecdf", Title: fmt.Sprintf("Requests of cell %d", b.Cell.Cell),
		Caption: fmt.Sprintf("Share of the successful requests, of all seeds, that took no longer. Cell %d is %s.", b.Cell.Cell, b.s.Label(b.Cell.Cell)),
		Legend:  []string{fmt.Sprintf("cell %d", b.Cell.Cell)},
	}
	if b.Baseline != nil {
		f.Legend = append(f.Legend, fmt.Sprintf("baseline, cell %d", b.Baseline.Cell))
		f.Caption += fmt.Sprintf(" The baseline is %s.", b.s.Label(b.Baseline.Cell))
	}
	for _, t := range []struct {
		name string
		of   func(*sweep.Detail) []float64
	}{
		{"TTFT, s", func(d *sweep.Detail) []float64 { return d.TTFT }},
		{"TPOT, s", func(d *sweep.Detail) []float64 { return d.TPOT }},
		{"E2E, s", func(d *sweep.Detail) []float64 { return d.E2E }},
	} {
		c := &Chart{X: Axis{Label: t.name}, Y: Axis{Label: "share of requests", Low: 0, High: 1}}
		for i, d := range []*sweep.Detail{b.Cell, b.Baseline} {
			if d != nil {
				s := ecdf(t.of(d))
				s.Name, s.Color = f.Legend[i], i
				c.Series = append(c.Series, s)
			}
		}
		f.Panels = append(f.Panels, c)
	}
	return []Figure{f}
}

// ecdfPoints is how many points a distribution function is drawn with.
const ecdfPoints = 400

// ecdf is the empirical distribution function, at so many even quantiles when
// there are more values.
func ecdf(values []float64) Series {
	sorted := slices.Sorted(slices.Values(values))
	s := Series{Mark: Step}
	n := len(sorted)
	if n <= ecdfPoints {
		for i, v := range sorted {
			s.X, s.Y = append(s.X, v), append(s.Y, float64(i+1)/float64(n))
		}
		return s
	}
	for i := range ecdfPoints + 1 {
		q := float64(i) / ecdfPoints
		s.X, s.Y = append(s.X, record.Quantile(sorted, q).Or(math.NaN())), append(s.Y, q)
	}
	return s
}
