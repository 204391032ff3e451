package report

import (
	"fmt"
	pixel "image/color"
	"io"
	"math"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/palette"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgimg"
	"gonum.org/v1/plot/vg/vgsvg"
)

// The size of a figure file: that of half a slide.
const (
	fileWidth  = 16 * vg.Centimeter
	fileHeight = 11 * vg.Centimeter
	fileDPI    = 200
)

// lineColors are the colours of the legend, as on the light page.
var lineColors = [...]pixel.NRGBA{
	{0x00, 0x72, 0xb2, 255}, {0xd5, 0x5e, 0x00, 255}, {0x00, 0x9e, 0x73, 255},
	{0xcc, 0x79, 0xa7, 255}, {0x8a, 0x6d, 0x00, 255}, {0x5e, 0x4f, 0xa2, 255},
}

// WriteFigures writes every panel as NAME.svg and NAME.png, for slides. create
// opens a file to write it to.
func (r *Report) WriteFigures(create func(name string) (io.Writer, error)) error {
	for _, f := range r.Figures {
		for i, p := range f.Panels {
			name := f.ID
			if len(f.Panels) > 1 {
				name = fmt.Sprintf("%s-%d", f.ID, i+1)
			}
			if err := writePanel(&f, p, name, create); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	return nil
}

func writePanel(f *Figure, p Panel, name string, create func(string) (io.Writer, error)) error {
	d, err := drawingOf(f, p)
	if err != nil {
		return err
	}
	vector := vgsvg.New(fileWidth, fileHeight)
	d.draw(draw.New(vector))
	bitmap := vgimg.NewWith(vgimg.UseWH(fileWidth, fileHeight), vgimg.UseDPI(fileDPI))
	d.draw(draw.New(bitmap))
	for _, out := range []struct {
		name string
		from io.WriterTo
	}{{name + ".svg", vector}, {name + ".png", vgimg.PngCanvas{Canvas: bitmap}}} {
		w, err := create(out.name)
		if err != nil {
			return err
		}
		if _, err := out.from.WriteTo(w); err != nil {
			return err
		}
	}
	return nil
}

// A drawing is a plot with its legend beside it, where it hides nothing.
type drawing struct {
	*plot.Plot
	beside plot.Legend
}

func (d *drawing) draw(c draw.Canvas) {
	const room, strip = 6 * vg.Millimeter, 34 * vg.Millimeter
	d.Draw(draw.Crop(c, room, -room-strip, room, -room))
	c.Min.X = c.Max.X - strip - room/2
	d.beside.Draw(draw.Crop(c, 0, -room/2, room, -2*room))
}

func drawingOf(f *Figure, p Panel) (*drawing, error) {
	out := &drawing{plot.New(), plot.NewLegend()}
	out.Title.Padding = vg.Points(6)
	out.Title.TextStyle.Font.Size, out.beside.TextStyle.Font.Size = vg.Points(13), vg.Points(10)
	out.beside.Top, out.beside.Left, out.beside.Padding = true, true, vg.Points(3)
	sans(&out.Title.TextStyle, &out.X.Label.TextStyle, &out.Y.Label.TextStyle,
		&out.X.Tick.Label, &out.Y.Tick.Label, &out.beside.TextStyle)
	out.Y.Label.Padding, out.X.Label.Padding = vg.Points(4), vg.Points(4)
	var err error
	switch p := p.(type) {
	case *Heatmap:
		out.Title.Text = join(f.Title, p.Title)
		p.plot(out)
	case *Chart:
		out.Title.Text = join(f.Title, p.Title)
		err = p.plot(out)
	}
	return out, err
}

func join(figure, panel string) string {
	if panel == "" {
		return figure
	}
	return figure + ": " + panel
}

// sans sets texts in the font without serifs.
func sans(styles ...*text.Style) {
	for _, s := range styles {
		s.Font.Typeface, s.Font.Variant = "Liberation", font.Variant("Sans")
	}
}

// A gridOf is a heatmap as gonum wants it.
type gridOf struct{ h *Heatmap }

func (g gridOf) Dims() (c, r int)   { return len(g.h.X.Values), len(g.h.Y.Values) }
func (g gridOf) Z(c, r int) float64 { return g.h.Values[r][c] }
func (g gridOf) X(c int) float64    { return float64(c) }
func (g gridOf) Y(r int) float64    { return float64(r) }

// A shades is the palette of a heatmap.
type shades []pixel.Color

func (s shades) Colors() []pixel.Color { return s }

var _ palette.Palette = shades(nil)

func (h *Heatmap) plot(out *drawing) {
	const steps = 256
	colors := make(shades, steps)
	for i := range colors {
		c := h.shade(h.Low + (h.High-h.Low)*float64(i)/(steps-1))
		colors[i] = pixel.NRGBA{uint8(c.r + 0.5), uint8(c.g + 0.5), uint8(c.b + 0.5), 255}
	}
	m := plotter.NewHeatMap(gridOf{h}, colors)
	m.Min, m.Max = h.Low, h.High
	if !(m.Max > m.Min) {
		m.Max = m.Min + 1
	}
	m.NaN = pixel.Transparent
	out.Add(m)
	out.X.Label.Text, out.Y.Label.Text = h.X.Label, h.Y.Label
	out.X.Tick.Marker = names(h.X.Values)
	out.Y.Tick.Marker = names(h.Y.Values)
	for _, v := range []float64{h.High, (h.Low + h.High) / 2, h.Low} {
		c := h.shade(v)
		out.beside.Add(h.format(v), swatch{pixel.NRGBA{uint8(c.r + 0.5), uint8(c.g + 0.5), uint8(c.b + 0.5), 255}})
	}
}

// A swatch is a square of one colour in a legend.
type swatch struct{ pixel.Color }

func (s swatch) Thumbnail(c *draw.Canvas) {
	c.FillPolygon(s.Color, []vg.Point{{X: c.Min.X, Y: c.Min.Y}, {X: c.Min.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Max.Y}, {X: c.Max.X, Y: c.Min.Y}})
}

// names ticks the places 0, 1, … with names, not all of many.
type names []string

func (n names) Ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for i := 0; i < len(n); i += (len(n) + maxLabels - 1) / maxLabels {
		out = append(out, plot.Tick{Value: float64(i), Label: clip(n[i], 12)})
	}
	return out
}

// rounds ticks round numbers.
type rounds struct{ log bool }

func (t rounds) Ticks(low, high float64) []plot.Tick {
	at := ticks(low, high, 5)
	if t.log {
		at = logTicks(low, high)
	}
	var out []plot.Tick
	for _, v := range at {
		out = append(out, plot.Tick{Value: v, Label: number(v, 4)})
	}
	return out
}

func (c *Chart) plot(out *drawing) error {
	grid := plotter.NewGrid()
	grid.Vertical.Color, grid.Horizontal.Color = pixel.Gray{220}, pixel.Gray{220}
	out.Add(grid)
	f := c.frame()
	f.x.apply(&out.X)
	f.y.apply(&out.Y)
	for _, s := range c.Series {
		if err := s.plot(out); err != nil {
			return err
		}
	}
	// Adding series widens the axes; the frame's range is the one wanted.
	out.X.Min, out.X.Max, out.Y.Min, out.Y.Max = f.x.low, f.x.high, f.y.low, f.y.high
	return nil
}

func (s side) apply(a *plot.Axis) {
	a.Label.Text = s.Label
	switch {
	case len(s.Values) > 0:
		a.Tick.Marker = names(s.Values)
	default:
		a.Tick.Marker = rounds{s.Log}
	}
	if s.Log {
		a.Scale = plot.LogScale{}
	}
}

func (s Series) plot(out *drawing) error {
	color := lineColors[s.Color%len(lineColors)]
	if band := s.bandPoints(); len(band) > 2 {
		polygon, err := plotter.NewPolygon(band)
		if err != nil {
			return err
		}
		faint := color
		faint.A = 45
		polygon.Color, polygon.LineStyle.Width = faint, 0
		out.Add(polygon)
	}
	points := s.points()
	if len(points) == 0 {
		return nil
	}
	if s.Mark == Dots || s.Mark == Hollow {
		scatter, err := plotter.NewScatter(points)
		if err != nil {
			return err
		}
		scatter.GlyphStyle = draw.GlyphStyle{Color: color, Radius: vg.Points(2), Shape: draw.CircleGlyph{}}
		if s.Mark == Hollow {
			scatter.GlyphStyle.Shape = draw.RingGlyph{}
		}
		out.Add(scatter)
		out.beside.Add(s.Name+map[Mark]string{Hollow: " (extrapolated)"}[s.Mark], scatter)
		return nil
	}
	line, err := plotter.NewLine(points)
	if err != nil {
		return err
	}
	line.Color, line.Width = color, vg.Points(1.4)
	if s.Mark == Step {
		line.StepStyle = plotter.PostStep
	}
	if s.Mark == Front {
		line.Color, line.Dashes = pixel.Black, []vg.Length{vg.Points(4), vg.Points(3)}
	}
	out.Add(line)
	out.beside.Add(s.Name, line)
	return nil
}

// points are those of the series that are there.
func (s Series) points() plotter.XYs {
	var out plotter.XYs
	for i := range s.X {
		if !math.IsNaN(s.X[i]) && !math.IsNaN(s.Y[i]) {
			out = append(out, plotter.XY{X: s.X[i], Y: s.Y[i]})
		}
	}
	return out
}

// bandPoints go along the upper bound and back along the lower.
func (s Series) bandPoints() plotter.XYs {
	var over, back plotter.XYs
	for i := range s.Low {
		if !math.IsNaN(s.Low[i]) && !math.IsNaN(s.High[i]) {
			over = append(over, plotter.XY{X: s.X[i], Y: s.High[i]})
			back = append(back, plotter.XY{X: s.X[i], Y: s.Low[i]})
		}
	}
	for i := len(back) - 1; i >= 0; i-- {
		over = append(over, back[i])
	}
	return over
}
