package calibrate

import (
	"bytes"
	"image/png"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"fleetsim/sim/record"
)

// plotted is what Plot writes, by file name.
func plotted(t *testing.T, c *StudyComparison) map[string][]byte {
	dir := filepath.Join(t.TempDir(), "figures")
	require.NoError(t, c.Plot(dir))
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	files := map[string][]byte{}
	for _, e := range entries {
		files[e.Name()], err = os.ReadFile(filepath.Join(dir, e.Name()))
		require.NoError(t, err)
	}
	return files
}

func TestPlot(t *testing.T) {
	measured := []record.Request{ok("A", 0, 1, 4), ok("B", 1, 2, 5), ok("A", 2, 3, 6)}
	simulated := []record.Request{ok("A", 0, 2, 4), ok("B", 1, 2, 5), ok("A", 2, 4, 6)}
	p := byHand(measured, simulated, measured)
	p.Phase = "r1 a/b"
	c := &StudyComparison{Phases: []PhaseComparison{*p}}
	files := plotted(t, c)
	var names []string
	for _, figure := range []string{"ttft", "tpot", "e2e", "timeline"} {
		names = append(names, "r1_a_b-"+figure+".svg", "r1_a_b-"+figure+".png")
	}
	require.Len(t, files, len(names))
	for _, name := range names {
		require.NotEmpty(t, files[name], name)
	}
	for _, words := range []string{"measured (3)", "simulated, median of 2", "of the seeds", "tenant B", "TTFT, s"} {
		require.Contains(t, string(files["r1_a_b-ttft.svg"]), words)
	}
	require.Contains(t, string(files["r1_a_b-timeline.svg"]), "not measured", "of the engines' gauges")
	picture, err := png.Decode(bytes.NewReader(files["r1_a_b-ttft.png"]))
	require.NoError(t, err)
	require.Greater(t, picture.Bounds().Dx(), 3*picture.Bounds().Dy(), "three panels side by side")
	require.Equal(t, files, plotted(t, c), "the same bytes again")

	// With gauges on both sides both are drawn, the simulated of the first seed.
	c.Phases[0].traces.measured.gauges = gauges{{0, 1, 0}, {2, 3, 1}}
	c.Phases[0].traces.simulated[0].gauges = gauges{{0, 2, 0}, {2, 3, 0}, {99, 1, 0}}
	timeline := string(plotted(t, c)["r1_a_b-timeline.svg"])
	require.Contains(t, timeline, "simulated, first seed")
	require.NotContains(t, timeline, "not measured")
}

// A phase record alone gives points, and nothing at all gives empty figures.
func TestPlotWithoutRequests(t *testing.T) {
	p := byHand([]record.Request{ok("", 0, 1, 4)}, []record.Request{ok("", 0, 1, 4)})
	p.Phase, p.traces.measured = "a", nil
	files := plotted(t, &StudyComparison{Phases: []PhaseComparison{*p}})
	require.Contains(t, string(files["a-ttft.svg"]), "measured quantiles")

	p = byHand(nil, nil)
	p.Phase = "a"
	files = plotted(t, &StudyComparison{Phases: []PhaseComparison{*p}})
	require.Contains(t, string(files["a-ttft.svg"]), "not measured")
	require.Contains(t, string(files["a-ttft.svg"]), "not simulated")
}

func TestFileNames(t *testing.T) {
	phases := []PhaseComparison{{Phase: "a/b"}, {Phase: "a b"}, {Phase: "a_b_2"}, {Phase: "r1-hot.90"}, {Phase: "a_b"}}
	require.Equal(t, []string{"a_b", "a_b_2", "a_b_2_2", "r1-hot.90", "a_b_3"}, fileNames(phases))
}

func TestInFlight(t *testing.T) {
	trace := &trace{spans: []interval{{10, 12}, {11, 14}}}
	counts := trace.inFlight(6) // 0.01 s an instant
	require.Len(t, counts, steps+1)
	for second, want := range []float64{1, 2, 1, 1, 0, 0, 0} {
		require.Equal(t, want, counts[100*second], "at %d s", second)
	}
	require.Equal(t, 4.0, trace.length())
}

func TestECDF(t *testing.T) {
	line := ecdf([]float64{1, 3}, 1000)
	require.Equal(t, [][2]float64{{1000, 0}, {1000, 0}, {1000, 0.5}, {3000, 0.5}, {3000, 1}}, [][2]float64{
		{line[0].X, line[0].Y}, {line[1].X, line[1].Y}, {line[2].X, line[2].Y}, {line[3].X, line[3].Y}, {line[4].X, line[4].Y},
	})
	many := make([]float64, 100_000)
	for i := range many {
		many[i] = float64(i)
	}
	require.LessOrEqual(t, len(ecdf(many, 1)), 4*levels+1)
}

func TestCountTicks(t *testing.T) {
	for high, want := range map[float64][]float64{1: {0, 1}, 5: {0, 1, 2, 3, 4, 5}, 8: {0, 2, 4, 6, 8}, 48: {0, 10, 20, 30, 40}, 13: {0, 5, 10}} {
		var got []float64
		for _, tick := range (countTicks{}).Ticks(0, high) {
			got = append(got, tick.Value)
		}
		require.Equal(t, want, got, "up to %v", high)
	}
}
