package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"

	"fleetsim/calibrate"
	"fleetsim/model"
	"fleetsim/sim/record"
	"fleetsim/sim/report"
	"fleetsim/sim/scenario"
	"fleetsim/sim/sweep"
)

// draw writes the report and the figures that are asked for.
func (o *figureFlags) draw(w io.Writer, s *sweep.Sweep, r sweep.Results) error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	in := report.Input{Sweep: s, Results: r, Version: buildVersion(), Command: sweepCommandLine(s)}
	var err error
	cell := o.cell
	if cell < 0 {
		cell = s.Telling(r)
	}
	if in.Cell, err = s.Detail(ctx, r, cell); err != nil {
		return err
	}
	if base := s.Cells[cell].Baseline; base >= 0 && base != cell {
		if in.Baseline, err = s.Detail(ctx, r, base); err != nil {
			return err
		}
	}
	if in.Fidelity, err = fidelity(ctx, s); err != nil {
		return err
	}
	drawn := report.Build(in)
	if o.report != "" {
		if err := os.MkdirAll(filepath.Dir(o.report), 0o777); err != nil {
			return err
		}
		if err := writeFile(o.report, drawn.WriteHTML); err != nil {
			return err
		}
		fmt.Fprintf(w, "report: %s\n", o.report)
	}
	if o.figures != "" {
		d, err := record.CreateDir(o.figures)
		if err != nil {
			return err
		}
		defer d.Abort()
		if err := drawn.WriteFigures(d.Create); err != nil {
			return err
		}
		if err := d.Commit(); err != nil {
			return err
		}
		fmt.Fprintf(w, "figures: %s\n", o.figures)
	}
	return nil
}

// sweepCommandLine is the command that makes the sweep's results again.
func sweepCommandLine(s *sweep.Sweep) string {
	src := s.Source
	line := []string{"sim sweep", strings.TrimSuffix(filepath.Base(src.File), ".toml")}
	if !slices.Contains(sweep.Names(), line[1]) {
		line[1] = filepath.Base(src.File)
	}
	for _, set := range src.Sets {
		line = append(line, "--set", shellWord(set))
	}
	for _, axis := range src.AxisTexts {
		line = append(line, "--axis", shellWord(axis))
	}
	if src.Seeds != 0 {
		line = append(line, fmt.Sprintf("--seeds %d", src.Seeds))
	}
	if src.FirstSeed != nil {
		line = append(line, fmt.Sprintf("--first-seed %d", *src.FirstSeed))
	}
	return strings.Join(line, " ")
}

// shellWord quotes s where a shell would take it apart.
func shellWord(s string) string {
	if strings.ContainsAny(s, " \t\"'\\$`*?[]{}()<>|&;#~") {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// fidelitySeeds is how many seeds the bands of the fidelity table are made of.
const fidelitySeeds = 20

// fidelityMetrics are the figures that the fidelity table compares.
var fidelityMetrics = []string{"ttft.p50", "ttft.p95", "tpot.p50", "tpot.p95", "e2e.p95", "cache_hit_ratio", "good"}

// fidelity compares the sweep's profile with the studies that were measured on
// what it describes; nil when there is none.
func fidelity(ctx context.Context, s *sweep.Sweep) (*report.Table, error) {
	profile := s.Cells[0].Profile
	for _, c := range s.Cells {
		if c.Profile != profile {
			return nil, nil
		}
	}
	t := &report.Table{
		ID: "fidelity", Title: "Fidelity of the profile",
		Caption: fmt.Sprintf("Profile %s against published measurements, phase by phase: how often the measured figure lies within the 5–95%% band of %d simulated seeds, the bounds widened by 5%%, and by how much the simulated median misses it.", profile.Name, fidelitySeeds),
		Columns: []report.Column{{Name: "study"}, {Name: "figure"}, {Name: "phases", Number: true}, {Name: "in the band", Number: true}, {Name: "median error", Number: true}, {Name: "largest error", Number: true}, {Name: "in the phase"}},
	}
	for _, name := range scenario.StudyNames() {
		study, err := scenario.LoadStudy(name)
		if err != nil {
			return nil, err
		}
		if !measuredOn(study, profile) {
			continue
		}
		c, err := calibrate.CompareStudy(ctx, study, func(*scenario.Scenario) (*model.Profile, error) { return profile, nil }, fidelitySeeds, 0, nil)
		if err != nil {
			return nil, err
		}
		t.Rows = append(t.Rows, fidelityRows(c)...)
	}
	if len(t.Rows) == 0 {
		return nil, nil
	}
	return t, nil
}

// measuredOn reports whether the study's phases ran on what the profile
// describes.
func measuredOn(study *scenario.Study, profile *model.Profile) bool {
	return !slices.ContainsFunc(study.Phases, func(p scenario.Phase) bool { return p.Scenario.Profile != profile.Name })
}

func fidelityRows(c *calibrate.StudyComparison) [][]string {
	var rows [][]string
	for i, cov := range c.Coverage(0.05, fidelityMetrics...) {
		if cov.Known == 0 {
			continue
		}
		misses, worst, phase := relativeErrors(c, fidelityMetrics[i])
		if phase == "" {
			phase = "-"
		}
		rows = append(rows, []string{
			c.Study, cov.Metric, fmt.Sprint(cov.Known), fmt.Sprint(cov.Inside),
			percent(record.BandOf(misses).P50.Or(math.NaN())), percent(worst), phase,
		})
	}
	return rows
}

// relativeErrors are by how much the simulated medians miss what was measured,
// as shares of it, and the largest with its phase.
func relativeErrors(c *calibrate.StudyComparison, metric string) (all []float64, worst float64, phase string) {
	for i := range c.Phases {
		p := &c.Phases[i]
		median, known := p.Band.Of(metric).P50.Get()
		if p.Measured == nil || !known {
			continue
		}
		for _, m := range calibrate.Metrics(p.Measured) {
			v, ok := m.Value(p.Measured).Get()
			if m.Name != metric || !ok || v == 0 {
				continue
			}
			e := math.Abs(median-v) / math.Abs(v)
			if all = append(all, e); e > worst {
				worst, phase = e, p.Phase
			}
		}
	}
	return all, worst, phase
}

func percent(share float64) string {
	if math.IsNaN(share) {
		return "-"
	}
	return fmt.Sprintf("%.1f%%", 100*share)
}
