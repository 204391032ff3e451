package report

import (
	"bytes"
	"context"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"image/png"
	"io"
	"math"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"fleetsim/sim/sweep"
)

// base is a scenario that runs in a millisecond.
const base = `name = "small"
seed = 7
policies = ["prefix-cache"]
[cluster]
replicas = 2
[workload]
requests = 24
output_tokens = 16
[workload.arrivals]
process = "poisson"
rate_per_second = 3.0
[workload.prompt]
families = 4
hot_fraction = 0.5
body_repeat = 100
[slo]
ttft = "600ms"
`

const grid = `name = "small-sweep"
description = "Does <this> & that hold?"
scenario = "base.toml"
seeds = 4
given = ["hot"]
[[axes]]
name = "policy"
key = "policy"
values = ["prefix-cache", "random"]
[[axes]]
name = "hot"
key = "workload.prompt.hot_fraction"
values = [0.0, 0.5, 0.9]
[[axes]]
name = "replicas"
key = "cluster.replicas"
from = 1
to = 4
step = 1
[objective]
minimise = "ttft_p95"
[[constraints]]
metric = "good_share"
at_least = 0.3
[baseline]
replicas = 2
`

// build makes the report of a sweep file.
func build(t testing.TB, text string) *Report {
	src := &sweep.Source{File: "sweep.toml", Text: text, BaseFile: "base.toml", BaseText: base}
	s, err := src.Resolve()
	require.NoError(t, err)
	r, err := s.Run(context.Background(), 0)
	require.NoError(t, err)
	in := Input{Sweep: s, Results: r, Version: "test", Command: "sim sweep sweep.toml", Fidelity: &Table{
		ID: "fidelity", Title: "Fidelity", Columns: []Column{{"figure", false}, {"error", true}}, Rows: [][]string{{"ttft.p95", "3%"}},
	}}
	in.Cell, err = s.Detail(context.Background(), r, s.Telling(r))
	require.NoError(t, err)
	if b := s.Cells[in.Cell.Cell].Baseline; b >= 0 && b != in.Cell.Cell {
		in.Baseline, err = s.Detail(context.Background(), r, b)
		require.NoError(t, err)
	}
	return Build(in)
}

func page(t testing.TB, r *Report) string {
	var out bytes.Buffer
	require.NoError(t, r.WriteHTML(&out))
	return out.String()
}

// wide is a sweep beyond what the profile was calibrated on.
func wide() string {
	return strings.Replace(grid, "[objective]", `[set]
engine.max_num_seqs = 64
workload.arrivals.rate_per_second = 40.0
workload.output_tokens = 200
[objective]`, 1)
}

func TestFiguresPresent(t *testing.T) {
	r := build(t, grid)
	ids := map[string]*Figure{}
	for i := range r.Figures {
		ids[r.Figures[i].ID] = &r.Figures[i]
	}
	for _, id := range []string{"heat-ttft_p95", "diff-ttft_p95", "heat-good_share", "band-ttft_p95", "pareto", "ecdf", "timeline"} {
		require.Contains(t, ids, id)
	}
	require.Len(t, ids["heat-ttft_p95"].Panels, 2, "a panel a policy")
	h := ids["heat-ttft_p95"].Panels[0].(*Heatmap)
	require.Equal(t, Category{"replicas", []string{"1", "2", "3", "4"}}, h.X)
	require.Equal(t, Category{"hot", []string{"0", "0.5", "0.9"}}, h.Y)
	require.True(t, h.Reverse, "less is better")
	d := ids["diff-ttft_p95"].Panels[0].(*Heatmap)
	require.Equal(t, -d.Low, d.High)
	for y := range d.Values {
		require.Zero(t, d.Values[y][1], "the baseline differs from itself by nothing")
	}
	require.Len(t, ids["pareto"].Panels, 2)
	require.Len(t, ids["ecdf"].Panels, 3)
	require.Len(t, ids["timeline"].Panels, 4)
	require.Len(t, r.Answers.Rows, 3, "a row a group")
	require.Empty(t, r.Warnings)
}

// Each value of a heatmap is the mean of the cell at its place.
func TestHeatmapValues(t *testing.T) {
	src := &sweep.Source{File: "sweep.toml", Text: grid, BaseFile: "base.toml", BaseText: base}
	s, err := src.Resolve()
	require.NoError(t, err)
	r, err := s.Run(context.Background(), 0)
	require.NoError(t, err)
	m, err := s.MetricIndex("ttft_p95")
	require.NoError(t, err)
	for _, f := range Build(Input{Sweep: s, Results: r}).Figures {
		if f.ID != "heat-ttft_p95" {
			continue
		}
		for p, panel := range f.Panels {
			h := panel.(*Heatmap)
			for y, row := range h.Values {
				for x, v := range row {
					cell := p*12 + y*4 + x
					require.Equal(t, s.Stat(r, cell, m).Mean.Estimate, v)
					require.Contains(t, h.Note[y][x], fmt.Sprintf("cell %d", cell))
				}
			}
		}
		return
	}
	t.Fatal("no heatmap")
}

func TestWarnsOfExtrapolation(t *testing.T) {
	r := build(t, wide())
	require.Len(t, r.Warnings, 1)
	require.Contains(t, r.Warnings[0], "Outside the calibrated range")
	require.Contains(t, page(t, r), `class="hatch"`)
	require.Contains(t, page(t, r), `class="warning"`)
	require.NotContains(t, page(t, build(t, grid)), `class="warning"`)
}

// Every kind of sweep can be drawn: one axis, names for values, no objective, no
// baseline, a grid too large for single tiles.
func TestShapes(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		without []string
	}{
		"one axis":     {"scenario = \"base.toml\"\nseeds = 2\n[[axes]]\nkey = \"cluster.replicas\"\nvalues = [1, 2]\n", []string{"heatmaps", "heat-ttft_p95"}},
		"one cell":     {"scenario = \"base.toml\"\nseeds = 2\n[[axes]]\nkey = \"cluster.replicas\"\nvalues = [2]\n", []string{"heatmaps", "bands", "pareto"}},
		"one seed":     {strings.Replace(grid, "seeds = 4", "seeds = 1", 1), nil},
		"names":        {"scenario = \"base.toml\"\nseeds = 2\n[[axes]]\nkey = \"policy\"\nvalues = [\"random\", \"least-request\"]\n[[axes]]\nname = \"span\"\nkey = \"router.routing_latency\"\nvalues = [\"0s\", \"1ms\"]\n", nil},
		"large":        {"scenario = \"base.toml\"\nseeds = 1\n[[axes]]\nname = \"rate\"\nkey = \"workload.arrivals.rate_per_second\"\nfrom = 1\nto = 21\nstep = 1\n[[axes]]\nname = \"out\"\nkey = \"workload.output_tokens\"\nfrom = 1\nto = 20\nstep = 1\n[set]\nworkload.requests = 2\n", nil},
		"nothing good": {strings.Replace(grid, "0.3", "1.0", 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			r := build(t, c.text)
			for _, f := range r.Figures {
				require.NotContains(t, c.without, f.ID)
				require.NotEmpty(t, f.Panels)
			}
			require.NotContains(t, page(t, r), "NaN")
			require.NoError(t, r.WriteFigures(func(string) (io.Writer, error) { return io.Discard, nil }))
		})
	}
}

// The page is well-formed, loads nothing, names every figure for who cannot see
// it, and shows texts as they are.
func TestPage(t *testing.T) {
	text := page(t, build(t, grid))
	require.Contains(t, text, "Does &lt;this&gt; &amp; that hold?")
	require.NotRegexp(t, regexp.MustCompile(`(?i)(src|href)="(https?:)?//`), text)
	require.NotContains(t, text, "@import")
	figures, ids := 0, map[string]bool{}
	var targets []string
	data := regexp.MustCompile(`(?s)<script type="application/json"[^>]*>(.*?)</script>`)
	for _, m := range data.FindAllStringSubmatch(text, -1) {
		require.True(t, json.Valid([]byte(m[1])))
	}
	d := xml.NewDecoder(strings.NewReader(regexp.MustCompile(`(?s)(<(?:script|style)[^>]*>).*?(</(?:script|style)>)`).ReplaceAllString(text, "$1$2")))
	d.Strict, d.AutoClose, d.Entity = false, xml.HTMLAutoClose, xml.HTMLEntity
	for {
		token, err := d.Token()
		if err == io.EOF {
			break
		}
		require.NoError(t, err)
		n, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		attr := map[string]string{}
		for _, a := range n.Attr {
			attr[a.Name.Local] = a.Value
		}
		if id := attr["id"]; id != "" {
			require.False(t, ids[id], id)
			ids[id] = true
		}
		if n.Name.Local == "svg" && attr["role"] == "img" {
			figures++
			require.NotEmpty(t, attr["aria-label"])
		}
		if n.Name.Local == "a" {
			targets = append(targets, strings.TrimPrefix(attr["href"], "#"))
		}
	}
	require.Greater(t, figures, 15)
	for _, id := range targets {
		require.True(t, ids[id], id)
	}
}

// The SVG of each panel is well-formed XML, inside its frame.
func TestSVG(t *testing.T) {
	for _, f := range build(t, wide()).Figures {
		for _, p := range f.Panels {
			d := xml.NewDecoder(strings.NewReader(string(svg(p))))
			for {
				_, err := d.Token()
				if err == io.EOF {
					break
				}
				require.NoError(t, err, f.ID)
			}
		}
	}
}

// Figures are files, the same bytes each time, and pictures that hold something.
func TestFigureFiles(t *testing.T) {
	write := func() map[string]string {
		out := map[string]*bytes.Buffer{}
		require.NoError(t, build(t, grid).WriteFigures(func(name string) (io.Writer, error) {
			require.NotContains(t, out, name)
			out[name] = &bytes.Buffer{}
			return out[name], nil
		}))
		texts := map[string]string{}
		for name, b := range out {
			texts[name] = b.String()
		}
		return texts
	}
	files := write()
	require.Equal(t, files, write())
	require.Contains(t, files, "pareto-1.png")
	for name, content := range files {
		if strings.HasSuffix(name, ".svg") {
			require.NoError(t, xml.Unmarshal([]byte(content), new(struct{})), name)
			continue
		}
		img, err := png.Decode(strings.NewReader(content))
		require.NoError(t, err, name)
		colors := map[any]bool{}
		for y := 0; y < img.Bounds().Dy(); y += 3 {
			for x := 0; x < img.Bounds().Dx(); x += 3 {
				colors[img.At(x, y)] = true
			}
		}
		require.Greater(t, len(colors), 10, name)
	}
}

func TestTicks(t *testing.T) {
	require.Equal(t, []float64{0, 20, 40, 60, 80, 100}, ticks(0, 100, 5))
	require.InDeltaSlice(t, []float64{0.2, 0.4, 0.6}, ticks(0.15, 0.65, 3), 1e-12)
	require.InDeltaSlice(t, []float64{-1, -0.5, 0, 0.5, 1}, ticks(-1, 1, 5), 1e-12)
	require.Equal(t, "0", number(ticks(-0.04, 2, 5)[0], 4), "not -0")
	require.Equal(t, []float64{3}, ticks(3, 3, 5))
	require.InDeltaSlice(t, []float64{1, 2, 5, 10, 20, 50, 100}, logTicks(1, 100), 1e-9)
	require.InDeltaSlice(t, []float64{1, 10, 100, 1000}, logTicks(1, 1000), 1e-9)
}

func TestTicksProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := rapid.Float64Range(-1e6, 1e6).Draw(t, "low")
		high := low + rapid.Float64Range(1e-3, 1e6).Draw(t, "span")
		at := ticks(low, high, 5)
		require.LessOrEqual(t, len(at), 7)
		require.NotEmpty(t, at)
		slack := (high - low) * 1e-6
		for i, v := range at {
			require.True(t, v >= low-slack && v <= high+slack)
			require.True(t, i == 0 || v > at[i-1])
		}
	})
}

func TestNumber(t *testing.T) {
	for want, v := range map[string]float64{
		"0.1235": 0.123456, "123": 123, "1235": 1234.6, "-0.5": -0.5, "0": 0, "1.235e+06": 1234567, "1e-05": 0.00001,
		"-": math.NaN(), "∞": math.Inf(1), "-∞": math.Inf(-1),
	} {
		require.Equal(t, want, number(v, 4))
	}
}

// By hand: more of x and less of y is better; (3, 5) beats (2, 6), (1, 1) is the
// least y.
func TestFront(t *testing.T) {
	xs := []float64{1, 2, 3, 4, math.NaN(), 4}
	ys := []float64{1, 6, 5, 9, 0, 8}
	require.Equal(t, []int{5, 2, 0}, frontOf(xs, ys, true, false))
	require.Equal(t, []int{3}, frontOf([]float64{0, 0, 0, 4}, []float64{0, 0, 0, 9}, true, true))
}

func TestFrontProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 40).Draw(t, "n")
		xs := rapid.SliceOfN(rapid.Float64Range(0, 9), n, n).Draw(t, "xs")
		ys := rapid.SliceOfN(rapid.Float64Range(0, 9), n, n).Draw(t, "ys")
		on := map[int]bool{}
		for _, i := range frontOf(xs, ys, false, true) {
			on[i] = true
		}
		for i := range xs {
			beaten := false
			for j := range xs {
				beaten = beaten || xs[j] <= xs[i] && ys[j] >= ys[i] && (xs[j] < xs[i] || ys[j] > ys[i])
			}
			if on[i] {
				require.False(t, beaten)
			} else if !beaten {
				// The same point is on the front already.
				same := false
				for j := range xs {
					same = same || on[j] && xs[j] == xs[i] && ys[j] == ys[i]
				}
				require.True(t, same)
			}
		}
	})
}

func TestECDF(t *testing.T) {
	s := ecdf([]float64{3, 1, 2, 2})
	require.Equal(t, []float64{1, 2, 2, 3}, s.X)
	require.Equal(t, []float64{0.25, 0.5, 0.75, 1}, s.Y)
	many := make([]float64, 10_001)
	for i := range many {
		many[i] = float64(i)
	}
	s = ecdf(many)
	require.Len(t, s.X, ecdfPoints+1)
	require.InDelta(t, 5000, s.X[ecdfPoints/2], 1e-9)
	require.Empty(t, ecdf(nil).X)
}

func TestSample(t *testing.T) {
	require.Equal(t, []int{0, 1, 2}, sample(3, 6))
	require.Equal(t, []int{0, 3, 5, 8, 10}, sample(11, 5))
}
