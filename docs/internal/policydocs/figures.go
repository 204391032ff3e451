package main

import (
	"fmt"
	"image/color"
	"os"
	"path/filepath"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/font"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"
	"gonum.org/v1/plot/vg/draw"
	"gonum.org/v1/plot/vg/vgsvg"

	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// A figure shows one policy on one load: above, what each replica has in its
// engine over time; below, each request's time to first token.
type figure struct {
	title  string
	lines  []plotter.XYs // requests in the engine, by replica
	names  []string
	points []plotter.XYs // TTFT by arrival, by replica
	limit  float64       // the SLO's, s
	end    float64       // of the time axis, s
}

const (
	figureReplicas = 4
	figureSeed     = 1
	figureWidth    = 7.2 * vg.Inch
	figureHeight   = 4.2 * vg.Inch
)

// drawAll draws the figure of every policy into dir.
func drawAll(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for i := range specs {
		svg, err := draws(&specs[i])
		if err != nil {
			return fmt.Errorf("%s: %w", specs[i].name, err)
		}
		if err := os.WriteFile(filepath.Join(dir, specs[i].name+".svg"), svg, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// draws is the policy's figure as SVG: the same bytes each time.
func draws(s *spec) ([]byte, error) {
	f, err := simulated(s)
	if err != nil {
		return nil, err
	}
	return f.svg()
}

// simulated runs the policy on its load.
func simulated(s *spec) (*figure, error) {
	name, sets, clean, err := s.figureLoad()
	if err != nil {
		return nil, err
	}
	defer clean()
	sc, err := scenario.LoadWith(name, append(sets, "observe.snapshot_interval=500ms"))
	if err != nil {
		return nil, err
	}
	p, err := profiles.Load(sc.Profile)
	if err != nil {
		return nil, err
	}
	f := &figure{limit: sc.SLO.TTFT.Seconds(), lines: make([]plotter.XYs, figureReplicas), points: make([]plotter.XYs, figureReplicas)}
	for i := range figureReplicas {
		f.names = append(f.names, fmt.Sprintf("pod-%d", i))
	}
	phase, err := sim.Run(sim.Setup{Scenario: sc, Profile: p, Policy: s.routed(), Seed: figureSeed, Sample: f.sample, Each: f.request})
	if err != nil {
		return nil, err
	}
	f.title = fmt.Sprintf("%s: %d of %d good, hit ratio %.2f", s.routed(), phase.Good.Or(0), phase.Planned.Or(0), hitRatio(sc, phase))
	return f, nil
}

// replica is the number of the replica of that name, -1 for none.
func (f *figure) replica(name string) int {
	for i, n := range f.names {
		if n == name {
			return i
		}
	}
	return -1
}

func (f *figure) sample(s sim.Sample) {
	if i := f.replica(s.Replica); i >= 0 {
		f.lines[i] = append(f.lines[i], plotter.XY{X: s.At.Seconds(), Y: float64(s.Running + s.Waiting)})
		f.end = max(f.end, s.At.Seconds())
	}
}

func (f *figure) request(r *record.Request) {
	at, sent := r.Started.Get()
	ttft, seen := r.TTFT.Get()
	if i := f.replica(r.Replica); i >= 0 && sent && seen {
		f.points[i] = append(f.points[i], plotter.XY{X: at, Y: ttft})
	}
}

// figureLoad is the scenario of the policy's figure, which may be about files
// that clean removes: half of the requests are for one of eight documents, or they
// are for more documents than the engines can keep, or there are conversations.
func (s *spec) figureLoad() (name string, sets []string, clean func(), err error) {
	clean = func() {}
	sets = append(perReplica(figureReplicas), `workload.arrivals.process="poisson"`)
	if s.load == "" {
		return "hot50", append(sets, s.settings(figureReplicas)...), clean, nil
	}
	if s.load == "evicting" {
		sets = append(s.settings(figureReplicas), "workload.requests=192", fmt.Sprintf("workload.arrivals.rate_per_second=%g", 0.6*figureReplicas))
		return "evicting-kv-sync", sets, clean, nil
	}
	file, err := os.CreateTemp("", "conversations-*.jsonl")
	if err != nil {
		return "", nil, clean, err
	}
	clean = func() { os.Remove(file.Name()) }
	_, err = file.WriteString(conversations(48, 5))
	if closed := file.Close(); err == nil {
		err = closed
	}
	own := fmt.Sprintf("[workload.trace]\npath = %q\n", file.Name())
	scenarioFile := file.Name() + ".toml"
	if err == nil {
		err = os.WriteFile(scenarioFile, []byte(own), 0o644)
	}
	remove := clean
	return scenarioFile, s.settings(figureReplicas), func() { remove(); os.Remove(scenarioFile) }, err
}

// conversations is a trace of so many of them, which begin a second apart; each
// turn brings 600 tokens of its own beside all that was said before.
func conversations(n, turns int) string {
	var b strings.Builder
	b.WriteString("{\"fleetsim_trace\":1}\n")
	const between = 9 // seconds from a turn to the next, about: rows stand in the order of time
	for second := range n + between*turns {
		for turn := range turns {
			i := second - between*turn
			if i < 0 || i >= n {
				continue
			}
			begin := fmt.Sprintf(`"at":%d.5,"input_tokens":%d`, i, 2000+100*(i%7))
			if turn > 0 {
				begin = fmt.Sprintf(`"wait":true,"think":%d,"input_tokens":600`, 2+(i+turn)%5)
			}
			fmt.Fprintf(&b, `{%s,"output_tokens":128,"session":"s%d","history":true}`+"\n", begin, i)
		}
	}
	return b.String()
}

// Colours that also people who cannot tell red from green keep apart.
var (
	replicaColors = []color.Color{
		color.NRGBA{R: 0x10, G: 0x3f, B: 0x7a, A: 0xff}, color.NRGBA{R: 0xe0, G: 0x6c, B: 0x00, A: 0xff},
		color.NRGBA{R: 0x2a, G: 0xa0, B: 0xa4, A: 0xff}, color.NRGBA{R: 0xa0, G: 0x2c, B: 0x8e, A: 0xff},
	}
	gridColor  = color.NRGBA{R: 0xdd, G: 0xdd, B: 0xdd, A: 0xff}
	limitColor = color.NRGBA{R: 0x55, G: 0x55, B: 0x55, A: 0xff}
)

// svg draws the figure.
func (f *figure) svg() ([]byte, error) {
	load, err := f.loadPanel()
	if err != nil {
		return nil, err
	}
	times, err := f.timesPanel()
	if err != nil {
		return nil, err
	}
	canvas := vgsvg.New(figureWidth, figureHeight)
	tiles := draw.Tiles{Rows: 2, Cols: 1, PadTop: 8, PadBottom: 8, PadLeft: 8, PadRight: 8, PadY: 8}
	all := [][]*plot.Plot{{load}, {times}}
	for i, c := range plot.Align(all, tiles, draw.New(canvas)) {
		all[i][0].Draw(c[0])
	}
	var b strings.Builder
	if _, err := canvas.WriteTo(&b); err != nil {
		return nil, err
	}
	return []byte(b.String()), nil
}

// panel is an empty plot over the figure's time.
func (f *figure) panel(title, y string) *plot.Plot {
	p := plot.New()
	for _, t := range []*text.Style{&p.Title.TextStyle, &p.X.Label.TextStyle, &p.Y.Label.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		t.Font.Typeface, t.Font.Variant = "Liberation", font.Variant("Sans")
	}
	p.Title.TextStyle.Font.Size, p.Title.Padding, p.Title.Text = 11, 4, title
	p.Y.Label.Text, p.Legend.Top, p.Legend.TextStyle.Font.Size = y, true, 9
	grid := plotter.NewGrid()
	grid.Horizontal.Color, grid.Vertical.Color = gridColor, gridColor
	p.Add(grid)
	return p
}

// frame sets the axes, with room for the legend on the right.
func (f *figure) frame(p *plot.Plot) {
	p.X.Min, p.X.Max, p.Y.Min = 0, 1.12*f.end, 0
}

func (f *figure) loadPanel() (*plot.Plot, error) {
	p := f.panel(f.title, "in the engine")
	for i, xys := range f.lines {
		if len(xys) == 0 {
			continue
		}
		line, err := plotter.NewLine(xys)
		if err != nil {
			return nil, err
		}
		line.Color, line.StepStyle, line.Width = replicaColors[i], plotter.PostStep, 1.2
		p.Add(line)
		p.Legend.Add(f.names[i], line)
	}
	f.frame(p)
	return p, nil
}

func (f *figure) timesPanel() (*plot.Plot, error) {
	p := f.panel("", "TTFT (s)")
	p.X.Label.Text = "arrival (s)"
	for i, xys := range f.points {
		if len(xys) == 0 {
			continue
		}
		points, err := plotter.NewScatter(xys)
		if err != nil {
			return nil, err
		}
		points.Color, points.Shape, points.Radius = replicaColors[i], draw.CircleGlyph{}, 1.8
		p.Add(points)
	}
	if f.limit > 0 {
		bound, err := plotter.NewLine(plotter.XYs{{X: 0, Y: f.limit}, {X: f.end, Y: f.limit}})
		if err != nil {
			return nil, err
		}
		bound.Color, bound.Dashes = limitColor, []vg.Length{4, 3}
		p.Add(bound)
		p.Legend.Add("SLO", bound)
	}
	f.frame(p)
	return p, nil
}
