package calibrate

import (
	"fmt"
	"image/color"
	"math"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	_ "gonum.org/v1/plot/vg/vgimg" // the format png
	_ "gonum.org/v1/plot/vg/vgsvg" // the format svg

	"fleetsim/sim/record"
)

// Colours that also people who cannot tell red from green keep apart.
var (
	measuredColor  = color.NRGBA{R: 0x10, G: 0x3f, B: 0x7a, A: 0xff}
	simulatedColor = color.NRGBA{R: 0xe0, G: 0x6c, B: 0x00, A: 0xff}
	bandColor      = color.NRGBA{R: 0xe0, G: 0x6c, B: 0x00, A: 0x38}
	gridColor      = color.NRGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
)

const (
	distributionWidth  = 4.4 * vg.Inch
	distributionHeight = 3.2 * vg.Inch
	timelineWidth      = 7.0 * vg.Inch
	timelineHeight     = 1.7 * vg.Inch
	legendWidth        = 2 * vg.Inch // to the right of each panel
	margin             = 8           // points round a figure and between its panels

	levels = 200 // of a distribution that is drawn over seeds
	steps  = 600 // of a timeline, about one a pixel
)

// Plot writes figures of a comparison from CompareRuns into the directory dir,
// each as SVG and PNG: for every phase the distributions of TTFT, TPOT and E2E, a
// panel a tenant, and a timeline of the requests in flight, running and waiting. The
// same comparison gives the same bytes.
func (c *StudyComparison) Plot(dir string) error {
	d, err := record.CreateDir(dir)
	if err != nil {
		return err
	}
	defer d.Abort()
	names := fileNames(c.Phases)
	for i := range c.Phases {
		p := &c.Phases[i]
		for m := range timeMetrics {
			var panels []*panel
			for j := range p.Groups {
				panels = append(panels, p.distribution(&p.Groups[j], m))
			}
			name := names[i] + "-" + timeMetrics[m].name
			if err := save(d, name, [][]*panel{panels}, distributionWidth, distributionHeight); err != nil {
				return err
			}
		}
		if err := save(d, names[i]+"-timeline", p.timeline(), timelineWidth, timelineHeight); err != nil {
			return err
		}
	}
	return d.Commit()
}

// fileNames are the phases' names without what a file's name may not hold, and
// with a number where that makes two of them equal.
func fileNames(phases []PhaseComparison) []string {
	var names []string
	for i := range phases {
		plain := strings.Map(fileRune, phases[i].Phase)
		name := plain
		for n := 2; slices.Contains(names, name); n++ {
			name = fmt.Sprintf("%s_%d", plain, n)
		}
		names = append(names, name)
	}
	return names
}

func fileRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', strings.ContainsRune("-_.", r):
		return r
	}
	return '_'
}

// A panel is a plot with its legend, which stands beside it so that it hides
// nothing.
type panel struct {
	*plot.Plot
	names plot.Legend
}

// newPanel is an empty panel in the figures' style.
func newPanel(title, x, y string) *panel {
	p := &panel{plot.New(), plot.NewLegend()}
	sans := func(size vg.Length) font.Font {
		return font.Font{Typeface: "Liberation", Variant: "Sans", Size: size}
	}
	p.Title.Text, p.Title.TextStyle.Font, p.Title.Padding = title, sans(11), 4
	p.names.TextStyle.Font, p.names.ThumbnailWidth, p.names.Padding = sans(9), 18, 3
	p.names.Top, p.names.Left = true, true
	p.X.Label.Text, p.Y.Label.Text = x, y
	for _, axis := range []*plot.Axis{&p.X, &p.Y} {
		axis.Label.TextStyle.Font = sans(10)
		axis.Tick.Label.Font = sans(9)
		axis.Padding = 0
	}
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridColor, gridColor
	p.Add(grid)
	return p
}

// line draws a line and names it.
func (p *panel) line(name string, c color.Color, width vg.Length, at plotter.XYs) {
	line := &plotter.Line{XYs: at, LineStyle: draw.LineStyle{Color: c, Width: width}}
	p.Add(line)
	p.names.Add(name, line)
}

// measured and simulated draw a side's line; where the sides are equal, both
// can be seen.
func (p *panel) measured(name string, at plotter.XYs)  { p.line(name, measuredColor, 1.1, at) }
func (p *panel) simulated(name string, at plotter.XYs) { p.line(name, simulatedColor, 2, at) }

// band fills the area between two lines.
func (p *panel) band(low, high plotter.XYs) {
	ring := slices.Clone(low)
	for _, xy := range slices.Backward(high) {
		ring = append(ring, xy)
	}
	area := &plotter.Polygon{XYs: []plotter.XYs{ring}, Color: bandColor}
	p.Add(area)
	p.names.Add("5–95% of the seeds", area)
}

// says puts words without a line into the legend.
func (p *panel) says(words string) { p.names.Add(words) }

// save writes the panels, in rows, in both formats.
func save(d *record.Dir, name string, panels [][]*panel, width, height vg.Length) error {
	rows, cols := len(panels), len(panels[0])
	plots := make([][]*plot.Plot, rows)
	for r, row := range panels {
		for _, p := range row {
			plots[r] = append(plots[r], p.Plot)
		}
	}
	tiles := draw.Tiles{
		Rows: rows, Cols: cols, PadTop: margin, PadBottom: margin, PadLeft: margin,
		PadRight: legendWidth, PadX: legendWidth, PadY: margin,
	}
	for _, format := range []string{"svg", "png"} {
		canvas, err := draw.NewFormattedCanvas((width+legendWidth)*vg.Length(cols), height*vg.Length(rows), format)
		if err != nil {
			return fmt.Errorf("figure %s: %w", name, err)
		}
		for r, row := range plot.Align(plots, tiles, draw.New(canvas)) {
			for i, tile := range row {
				p := panels[r][i]
				p.Draw(tile)
				data := p.DataCanvas(tile)
				p.names.Draw(draw.Canvas{Canvas: tile.Canvas, Rectangle: vg.Rectangle{
					Min: vg.Point{X: data.Max.X + margin, Y: data.Min.Y},
					Max: vg.Point{X: data.Max.X + legendWidth, Y: data.Max.Y},
				}})
			}
		}
		w, err := d.Create(name + "." + format)
		if err != nil {
			return err
		}
		if _, err := canvas.WriteTo(w); err != nil {
			return fmt.Errorf("figure %s: %w", name, err)
		}
	}
	return nil
}

// distribution is one group's distribution functions of one time.
func (p *PhaseComparison) distribution(g *Group, metric int) *panel {
	title := p.Phase
	if g.Tenant != "" {
		title += ", tenant " + g.Tenant
	}
	unit := plotUnits[metric]
	out := newPanel(title, strings.ToUpper(timeMetrics[metric].name)+", "+unit.name, "share of requests")
	p.drawSimulated(out, g, metric, unit.scale)
	p.drawMeasured(out, g, metric, unit.scale)
	out.Y.Min, out.Y.Max = 0, 1
	switch x := &out.X; {
	case math.IsInf(x.Max, 0): // nothing is drawn
		x.Min, x.Max = 0, 1
	case x.Min < x.Max/3:
		x.Min, x.Max = 0, 1.03*x.Max
	default:
		room := max(0.05*(x.Max-x.Min), 0.005*x.Max)
		x.Min, x.Max = x.Min-room, x.Max+room
	}
	return out
}

// plotUnits are what the axes show the times in.
var plotUnits = [len(timeMetrics)]struct {
	name  string
	scale float64
}{{"s", 1}, {"ms", 1000}, {"s", 1}}

func (p *PhaseComparison) drawMeasured(out *panel, g *Group, metric int, scale float64) {
	if s := p.traces.measured.of(g.Tenant); s != nil && len(s.times[metric]) > 0 {
		times := slices.Sorted(slices.Values(s.times[metric]))
		out.measured(fmt.Sprintf("measured (%d)", len(times)), ecdf(times, scale))
		return
	}
	points := &plotter.Scatter{GlyphStyle: draw.GlyphStyle{Color: measuredColor, Radius: 3, Shape: draw.CircleGlyph{}}}
	for i, level := range []float64{0.50, 0.95, 0.99} {
		if v, ok := g.Metrics[metric].Quantiles[i].Measured.Get(); ok {
			points.XYs = append(points.XYs, plotter.XY{X: v * scale, Y: level})
		}
	}
	if len(points.XYs) == 0 {
		out.says("not measured")
		return
	}
	out.Add(points)
	out.names.Add("measured quantiles", points)
}

// drawSimulated draws the one seed's distribution, or of several the median and
// the band of each quantile.
func (p *PhaseComparison) drawSimulated(out *panel, g *Group, metric int, scale float64) {
	var runs [][]float64
	for _, t := range p.traces.simulated {
		if s := t.of(g.Tenant); s != nil && len(s.times[metric]) > 0 {
			runs = append(runs, slices.Sorted(slices.Values(s.times[metric])))
		}
	}
	switch len(runs) {
	case 0:
		out.says("not simulated")
		return
	case 1:
		out.simulated(fmt.Sprintf("simulated (%d)", len(runs[0])), ecdf(runs[0], scale))
		return
	}
	var low, median, high plotter.XYs
	for level := range levels + 1 {
		y := float64(level) / levels
		var at []float64
		for _, times := range runs {
			at = append(at, record.Quantile(times, y).Or(0))
		}
		b := record.BandOf(at)
		low = append(low, plotter.XY{X: b.P5.Or(0) * scale, Y: y})
		median = append(median, plotter.XY{X: b.P50.Or(0) * scale, Y: y})
		high = append(high, plotter.XY{X: b.P95.Or(0) * scale, Y: y})
	}
	out.band(low, high)
	out.simulated(simulatedName(len(runs)), median)
}

// simulatedName names a line over several runs.
func simulatedName(runs int) string {
	if runs == 1 {
		return "simulated"
	}
	return fmt.Sprintf("simulated, median of %d", runs)
}

// ecdf is the empirical distribution function of sorted as a line of steps; of
// very many values, of as many quantiles as can be seen.
func ecdf(sorted []float64, scale float64) plotter.XYs {
	if len(sorted) > 4*levels {
		var line plotter.XYs
		for level := range 4*levels + 1 {
			y := float64(level) / (4 * levels)
			line = append(line, plotter.XY{X: record.Quantile(sorted, y).Or(0) * scale, Y: y})
		}
		return line
	}
	line := plotter.XYs{{X: sorted[0] * scale, Y: 0}}
	for i, v := range sorted {
		line = append(line,
			plotter.XY{X: v * scale, Y: float64(i) / float64(len(sorted))},
			plotter.XY{X: v * scale, Y: float64(i+1) / float64(len(sorted))})
	}
	return line
}

// timeline is a row each for requests in flight, running and waiting, over the
// time since the first request.
func (p *PhaseComparison) timeline() [][]*panel {
	end := 0.0
	for _, t := range append([]*trace{p.traces.measured}, p.traces.simulated...) {
		end = max(end, t.length())
	}
	if end == 0 {
		end = 1
	}
	inFlight := newPanel(p.Phase, "", "in flight")
	p.drawInFlight(inFlight, end)
	running := newPanel("", "", "running")
	p.drawGauge(running, end, func(g gauge) float64 { return g.running })
	waiting := newPanel("", "seconds since the first request", "waiting")
	p.drawGauge(waiting, end, func(g gauge) float64 { return g.waiting })
	var rows [][]*panel
	for _, strip := range []*panel{inFlight, running, waiting} {
		strip.X.Min, strip.X.Max = 0, end
		strip.Y.Min, strip.Y.Max = 0, max(1, 1.08*strip.Y.Max)
		strip.Y.Tick.Marker = countTicks{}
		rows = append(rows, []*panel{strip})
	}
	return rows
}

// countTicks are ticks at whole numbers, about four of them.
type countTicks struct{}

func (countTicks) Ticks(low, high float64) []plot.Tick {
	step := 1.0
	for i := 0; (high-low)/step > 5; i++ {
		step *= [...]float64{2, 2.5, 2}[i%3] // 1, 2, 5, 10, …
	}
	var ticks []plot.Tick
	for v := math.Ceil(low/step) * step; v <= high; v += step {
		ticks = append(ticks, plot.Tick{Value: v, Label: fmt.Sprintf("%.0f", v)})
	}
	return ticks
}

// length is the time from the first request's start to the last end, in seconds.
func (t *trace) length() float64 {
	if t == nil || len(t.spans) == 0 {
		return 0
	}
	first, last := t.spans[0].start, t.spans[0].end
	for _, s := range t.spans {
		first, last = min(first, s.start), max(last, s.end)
	}
	return last - first
}

func (p *PhaseComparison) drawInFlight(out *panel, end float64) {
	var runs [][]float64
	for _, t := range p.traces.simulated {
		if t != nil && len(t.spans) > 0 {
			runs = append(runs, t.inFlight(end))
		}
	}
	var low, median, high []float64
	for i := range steps + 1 {
		var at []float64
		for _, counts := range runs {
			at = append(at, counts[i])
		}
		b := record.BandOf(at)
		low, median, high = append(low, b.P5.Or(0)), append(median, b.P50.Or(0)), append(high, b.P95.Or(0))
	}
	if len(runs) > 1 {
		out.band(staircase(low, end), staircase(high, end))
	}
	if len(runs) > 0 {
		out.simulated(simulatedName(len(runs)), staircase(median, end))
	}
	if t := p.traces.measured; t != nil && len(t.spans) > 0 {
		out.measured("measured", staircase(t.inFlight(end), end))
		return
	}
	out.says("not measured")
}

// inFlight is the number of requests in flight at steps+1 instants from the first
// request's start to end seconds after it.
func (t *trace) inFlight(end float64) []float64 {
	first := t.spans[0].start
	for _, s := range t.spans {
		first = min(first, s.start)
	}
	counts := make([]float64, steps+1)
	for _, s := range t.spans {
		from := int(math.Ceil((s.start - first) / end * steps))
		to := int(math.Ceil((s.end - first) / end * steps)) // at its end it is no longer in flight
		for i := from; i < min(to, steps+1); i++ {
			counts[i]++
		}
	}
	return counts
}

// staircase is a line that keeps each count until the next instant.
func staircase(counts []float64, end float64) plotter.XYs {
	var line plotter.XYs
	for i, n := range counts {
		x := end * float64(i) / steps
		if i > 0 && n != counts[i-1] {
			line = append(line, plotter.XY{X: x, Y: counts[i-1]})
		}
		line = append(line, plotter.XY{X: x, Y: n})
	}
	return line
}

// drawGauge draws an engine's gauge, summed over the replicas, as it was scraped.
func (p *PhaseComparison) drawGauge(out *panel, end float64, value func(gauge) float64) {
	which := ""
	if len(p.Runs) > 1 {
		which = ", first seed"
	}
	for _, side := range []struct {
		name, which string
		draw        func(string, plotter.XYs)
		trace       *trace
	}{{"simulated", which, out.simulated, p.firstRun()}, {"measured", "", out.measured, p.traces.measured}} {
		if side.trace == nil || len(side.trace.gauges) == 0 {
			out.says("not " + side.name)
			continue
		}
		var line plotter.XYs
		for _, g := range side.trace.gauges {
			if g.at > end {
				break
			}
			if len(line) > 0 {
				line = append(line, plotter.XY{X: g.at, Y: line[len(line)-1].Y})
			}
			line = append(line, plotter.XY{X: g.at, Y: value(g)})
		}
		side.draw(side.name+side.which, line)
	}
}

// firstRun is the first seed's trace; nil when there is none.
func (p *PhaseComparison) firstRun() *trace {
	if len(p.traces.simulated) == 0 {
		return nil
	}
	return p.traces.simulated[0]
}
