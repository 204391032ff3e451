package report

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"html"
	"html/template"
	"image"
	pixel "image/color"
	"image/png"
	"math"
	"strings"
)

// The size of a panel, in its own units, which are pixels on a telephone, and
// the room around what is drawn.
const (
	panelWidth, panelHeight = 420.0, 300.0
	left, right             = 58.0, 12.0
	top, bottom             = 26.0, 44.0
	plotWidth               = panelWidth - left - right
	plotHeight              = panelHeight - top - bottom
)

// A canvas collects the SVG of one panel.
type canvas struct{ strings.Builder }

func (c *canvas) add(format string, args ...any) { fmt.Fprintf(c, format, args...) }

// text adds a text with a class of the style sheet.
func (c *canvas) text(x, y float64, class, s string) {
	c.add(`<text x="%.1f" y="%.1f" class="%s">%s</text>`, x, y, class, html.EscapeString(s))
}

func (c *canvas) begin(title, label string) {
	c.add(`<svg viewBox="0 0 %g %g" role="img" aria-label="%s">`, panelWidth, panelHeight, html.EscapeString(label))
	if title != "" {
		c.text(left, 15, "pt", title)
	}
}

// svg draws a panel.
func svg(p Panel) template.HTML {
	switch p := p.(type) {
	case *Heatmap:
		return p.svg()
	case *Chart:
		return p.svg()
	}
	panic("report: a panel is a heatmap or a chart")
}

// maxTiles is up to how many cells of a heatmap are drawn one by one; a larger
// grid is a picture of a pixel a cell. maxNumbers is up to how many have their
// value written into them.
const (
	maxTiles   = 400
	maxNumbers = 110
	minNumber  = 25.0 // width of a cell that has room for a number
	maxLabels  = 12
)

func (h *Heatmap) svg() template.HTML {
	var c canvas
	rows, columns := len(h.Y.Values), len(h.X.Values)
	c.begin(h.Title, h.describe())
	w, t := (plotWidth-52)/float64(columns), plotHeight/float64(rows)
	if rows*columns > maxTiles {
		c.add(`<image x="%g" y="%g" width="%g" height="%g" preserveAspectRatio="none" href="data:image/png;base64,%s"/>`,
			left, top, w*float64(columns), plotHeight, base64.StdEncoding.EncodeToString(h.png()))
	} else {
		h.tiles(&c, w, t)
	}
	h.hatch(&c, w, t)
	if rows*columns <= maxNumbers && w >= minNumber {
		h.numbers(&c, w, t)
	}
	h.rings(&c, w, t)
	every := (columns + maxLabels - 1) / maxLabels
	for i := 0; i < columns; i += every {
		c.text(left+(float64(i)+0.5)*w, top+plotHeight+14, "tx", clip(h.X.Values[i], 8))
	}
	every = (rows + maxLabels - 1) / maxLabels
	for i := 0; i < rows; i += every {
		c.text(left-5, top+plotHeight-(float64(i)+0.5)*t+4, "ty", clip(h.Y.Values[i], 9))
	}
	c.labels(h.X.Label, h.Y.Label, left+w*float64(columns)/2)
	h.key(&c)
	c.add(`<rect class="cursor" x="%g" y="%g" width="%.2f" height="%.2f" hidden="hidden"/></svg>`, left, top, w, t)
	return template.HTML(c.String())
}

// describe is the heatmap in a sentence, for who cannot see it.
func (h *Heatmap) describe() string {
	low, high := extent(h.Values...)
	s := fmt.Sprintf("Heatmap of %s over %s and %s, from %s to %s.", h.Name, h.X.Label, h.Y.Label, h.format(low), h.format(high))
	if h.Title != "" {
		s = h.Title + ": " + s
	}
	return s
}

func (h *Heatmap) format(v float64) string {
	if h.Unit == "" {
		return number(v, 3)
	}
	return number(v, 3) + " " + h.Unit
}

func (h *Heatmap) tiles(c *canvas, w, t float64) {
	for y, row := range h.Values {
		for x, v := range row {
			if math.IsNaN(v) {
				continue
			}
			shade := h.shade(v)
			c.add(`<rect x="%.2f" y="%.2f" width="%.2f" height="%.2f" fill="rgb(%.0f,%.0f,%.0f)"/>`,
				left+float64(x)*w, top+plotHeight-float64(y+1)*t, w+0.3, t+0.3, shade.r, shade.g, shade.b)
		}
	}
}

// numbers writes each cell's value into it, with as many digits as there is room
// for.
func (h *Heatmap) numbers(c *canvas, w, t float64) {
	digits := 3
	if w < 38 {
		digits = 2
	}
	for y, row := range h.Values {
		for x, v := range row {
			if math.IsNaN(v) {
				continue
			}
			digits := digits
			if number(v, digits) == "1" {
				digits = 3 // of a share, all and nearly all are not the same
			}
			shade := h.shade(v)
			class := "nd"
			if shade.bright() {
				class = "nl"
			}
			c.add(`<text x="%.1f" y="%.1f" class="%s" stroke="rgb(%.0f,%.0f,%.0f)">%s</text>`, left+(float64(x)+0.5)*w,
				top+plotHeight-(float64(y)+0.5)*t+3.2, class, shade.r, shade.g, shade.b, html.EscapeString(number(v, digits)))
		}
	}
}

// png is the heatmap as a picture of a pixel a cell.
func (h *Heatmap) png() []byte {
	rows, columns := len(h.Y.Values), len(h.X.Values)
	// Each cell is several pixels, because not everything that shows SVG leaves
	// the edges of enlarged pixels sharp.
	const side = 6
	img := image.NewNRGBA(image.Rect(0, 0, columns*side, rows*side))
	for y, row := range h.Values {
		for x, v := range row {
			if math.IsNaN(v) {
				continue
			}
			s := h.shade(v)
			p := pixel.NRGBA{uint8(s.r + 0.5), uint8(s.g + 0.5), uint8(s.b + 0.5), 255}
			for i := range side * side {
				img.SetNRGBA(x*side+i%side, (rows-1-y)*side+i/side, p)
			}
		}
	}
	var out bytes.Buffer
	if err := png.Encode(&out, img); err != nil {
		panic(err) // writing to memory
	}
	return out.Bytes()
}

// hatch marks the cells outside the calibrated range, a run of them at a time.
func (h *Heatmap) hatch(c *canvas, w, t float64) {
	for y, row := range h.Hatched {
		for x := 0; x < len(row); x++ {
			start := x
			for x < len(row) && row[x] {
				x++
			}
			if x > start {
				c.add(`<rect class="hatch" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`,
					left+float64(start)*w, top+plotHeight-float64(y+1)*t, float64(x-start)*w, t)
			}
		}
	}
}

func (h *Heatmap) rings(c *canvas, w, t float64) {
	for y, row := range h.Best {
		for x, best := range row {
			if best {
				inset := min(1.2, w/5, t/5)
				for _, class := range []string{"ring-under", "ring"} {
					c.add(`<rect class="%s" x="%.2f" y="%.2f" width="%.2f" height="%.2f"/>`, class,
						left+float64(x)*w+inset, top+plotHeight-float64(y+1)*t+inset, w-2*inset, t-2*inset)
				}
			}
		}
	}
}

// key draws the palette with its values.
func (h *Heatmap) key(c *canvas) {
	const steps, width = 40, 10.0
	x := panelWidth - right - 38
	for i := range steps {
		s := h.shade(h.Low + (h.High-h.Low)*(float64(i)+0.5)/steps)
		c.add(`<rect x="%.1f" y="%.2f" width="%g" height="%.2f" fill="rgb(%.0f,%.0f,%.0f)"/>`,
			x, top+plotHeight-float64(i+1)*plotHeight/steps, width, plotHeight/steps+0.3, s.r, s.g, s.b)
	}
	if !(h.High > h.Low) {
		c.text(x+width+3, top+plotHeight/2, "tk", number(h.Low, 3))
		return
	}
	for _, v := range ticks(h.Low, h.High, 5) {
		c.text(x+width+3, top+plotHeight-(v-h.Low)/(h.High-h.Low)*plotHeight+3.5, "tk", number(v, 3))
	}
	if h.Unit != "" {
		c.text(x, top-6, "tk", h.Unit)
	}
}

func (c *canvas) labels(x, y string, middle float64) {
	c.text(middle, panelHeight-8, "al", x)
	c.add(`<text transform="translate(12 %.1f) rotate(-90)" class="al">%s</text>`, top+plotHeight/2, html.EscapeString(y))
}

func clip(s string, n int) string {
	if r := []rune(s); len(r) > n {
		return string(r[:n-1]) + "…"
	}
	return s
}

// data is what the page's script needs to say what is under the cursor.
func (h *Heatmap) data() (string, error) {
	type cell struct {
		Value string `json:"v"`
		Note  string `json:"n,omitempty"`
	}
	var all struct {
		Name  string     `json:"name"`
		X     string     `json:"x"`
		Y     string     `json:"y"`
		Xs    []string   `json:"xs"`
		Ys    []string   `json:"ys"`
		Cells [][]cell   `json:"cells"`
		Box   [4]float64 `json:"box"` // left, bottom, width and height of a cell
	}
	all.Name, all.X, all.Y, all.Xs, all.Ys = h.Name, h.X.Label, h.Y.Label, h.X.Values, h.Y.Values
	all.Box = [4]float64{left, top + plotHeight, (plotWidth - 52) / float64(len(h.X.Values)), plotHeight / float64(len(h.Y.Values))}
	for y, row := range h.Values {
		var cells []cell
		for x, v := range row {
			e := cell{Value: h.format(v)}
			if h.Note != nil {
				e.Note = h.Note[y][x]
			}
			cells = append(cells, e)
		}
		all.Cells = append(all.Cells, cells)
	}
	out, err := json.Marshal(all)
	return string(out), err
}

// A frame maps a chart's values to places on the canvas.
type frame struct {
	x, y side
}

// A side is one axis with its range.
type side struct {
	Axis
	low, high float64
}

func newSide(a Axis, values ...[]float64) side {
	s := side{Axis: a}
	if len(a.Values) > 0 {
		s.low, s.high = -0.5, float64(len(a.Values))-0.5
		return s
	}
	s.low, s.high = extent(values...)
	if a.Low != a.High {
		s.low, s.high = min(s.low, a.Low), max(s.high, a.High)
	}
	switch {
	case math.IsInf(s.low, 1):
		s.low, s.high = 0, 1
	case s.low == s.high && s.Log:
		s.low, s.high = s.low/2, s.high*2
	case s.low == s.high:
		pad := max(math.Abs(s.low)/10, 1e-9)
		s.low, s.high = s.low-pad, s.high+pad
	case !s.Log:
		pad := (s.high - s.low) * 0.04
		if s.low >= 0 && s.low-pad < 0 {
			s.low = 0
		} else {
			s.low -= pad
		}
		s.high += pad
	}
	return s
}

// at is the place of v, from 0 to 1.
func (s side) at(v float64) float64 {
	if s.Log {
		return math.Log(v/s.low) / math.Log(s.high/s.low)
	}
	return (v - s.low) / (s.high - s.low)
}

// marks are the ticks with their texts.
func (s side) marks() (at []float64, texts []string) {
	if n := len(s.Values); n > 0 {
		for i := 0; i < n; i += (n + maxLabels - 1) / maxLabels {
			at, texts = append(at, float64(i)), append(texts, clip(s.Values[i], 8))
		}
		return at, texts
	}
	at = ticks(s.low, s.high, 5)
	if s.Log {
		at = logTicks(s.low, s.high)
	}
	for _, v := range at {
		texts = append(texts, number(v, 4))
	}
	return at, texts
}

func (c *Chart) frame() frame {
	var xs, ys [][]float64
	for _, s := range c.Series {
		xs, ys = append(xs, s.X), append(ys, s.Y, s.Low, s.High)
	}
	return frame{newSide(c.X, xs...), newSide(c.Y, ys...)}
}

func (f frame) place(x, y float64) (px, py float64) {
	return left + f.x.at(x)*plotWidth, top + (1-f.y.at(y))*plotHeight
}

func (c *Chart) svg() template.HTML {
	var out canvas
	out.begin(c.Title, c.describe())
	f := c.frame()
	f.grid(&out)
	for _, s := range c.Series {
		f.draw(&out, s)
	}
	out.labels(c.X.Label, c.Y.Label, left+plotWidth/2)
	out.WriteString("</svg>")
	return template.HTML(out.String())
}

// describe is the chart in a sentence, for who cannot see it.
func (c *Chart) describe() string {
	var names []string
	for _, s := range c.Series {
		if s.Name != "" && s.Mark != Hollow {
			names = append(names, s.Name)
		}
	}
	s := fmt.Sprintf("Chart of %s against %s: %s.", c.Y.Label, c.X.Label, strings.Join(names, ", "))
	if c.Title != "" {
		s = c.Title + ": " + s
	}
	return s
}

func (f frame) grid(c *canvas) {
	at, texts := f.x.marks()
	for i, v := range at {
		x, _ := f.place(v, f.y.low)
		c.add(`<path class="grid" d="M%.1f %gV%g"/>`, x, top, top+plotHeight)
		c.text(x, top+plotHeight+14, "tx", texts[i])
	}
	at, texts = f.y.marks()
	for i, v := range at {
		_, y := f.place(f.x.low, v)
		c.add(`<path class="grid" d="M%g %.1fH%g"/>`, left, y, left+plotWidth)
		c.text(left-5, y+4, "ty", texts[i])
	}
	c.add(`<path class="axis" d="M%g %gV%gH%g"/>`, left, top, top+plotHeight, left+plotWidth)
}

func (f frame) draw(c *canvas, s Series) {
	switch s.Mark {
	case Dots, Hollow:
		f.dots(c, s)
		return
	case Line:
		f.band(c, s)
	}
	class := "line"
	switch {
	case s.Mark == Front:
		class = "front"
	case len(s.X) > 150:
		class = "line dense"
	}
	c.add(`<path class="%s s%d" d="%s"><title>%s</title></path>`, class, s.Color, f.path(s), html.EscapeString(s.Name))
	if s.Mark == Line && len(s.X) <= 60 {
		f.dots(c, s)
	}
}

// path is the line through the points; it breaks where one is absent.
func (f frame) path(s Series) string {
	var d strings.Builder
	pen := "M"
	for i := range s.X {
		if math.IsNaN(s.Y[i]) {
			pen = "M"
			continue
		}
		x, y := f.place(s.X[i], s.Y[i])
		switch {
		case pen == "L" && s.Mark == Step:
			fmt.Fprintf(&d, "H%.1fV%.1f", x, y)
		default:
			fmt.Fprintf(&d, "%s%.1f %.1f", pen, x, y)
		}
		pen = "L"
	}
	return d.String()
}

func (f frame) band(c *canvas, s Series) {
	var over, back []string
	for i := range s.Low {
		if math.IsNaN(s.Low[i]) {
			continue
		}
		x, y := f.place(s.X[i], s.High[i])
		over = append(over, fmt.Sprintf("%.1f %.1f", x, y))
		x, y = f.place(s.X[i], s.Low[i])
		back = append(back, fmt.Sprintf("%.1f %.1f", x, y))
	}
	if len(over) < 2 {
		return
	}
	for i, j := 0, len(back)-1; i < j; i, j = i+1, j-1 {
		back[i], back[j] = back[j], back[i]
	}
	c.add(`<path class="band f%d" d="M%sL%sZ"/>`, s.Color, strings.Join(over, "L"), strings.Join(back, "L"))
}

func (f frame) dots(c *canvas, s Series) {
	class, radius := "dot f", 2.2
	if s.Mark == Hollow {
		class, radius = "hollow s", 2.6
	}
	for i := range s.X {
		if math.IsNaN(s.Y[i]) || math.IsNaN(s.X[i]) {
			continue
		}
		x, y := f.place(s.X[i], s.Y[i])
		c.add(`<circle class="%s%d" cx="%.1f" cy="%.1f" r="%g">`, class, s.Color, x, y, radius)
		if s.Notes != nil {
			c.add(`<title>%s</title>`, html.EscapeString(s.Notes[i]))
		}
		c.WriteString("</circle>")
	}
}
