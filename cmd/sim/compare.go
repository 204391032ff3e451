package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/signal"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"fleetsim/calibrate"
	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

const compareHelp = `
Usage: sim compare STUDY [flags]

Simulates every phase of a study and prints measured beside simulated; with
--repeat also the 5-95% band over that many seeds, and whether the measured
value lies inside it. STUDY is a file or a built-in study.

Example: sim compare routing-study --repeat 100`

func compareCommand(args []string, stdout, stderr io.Writer) int {
	var repeat, workers int
	var format, profileName string
	var sets []string
	var forced bool
	f := newFlags("compare", compareHelp, stdout, stderr)
	f.IntVar(&repeat, "repeat", 1, "number of seeds a phase, from the study's own on")
	f.StringVar(&format, "format", "table", "table or json")
	f.StringVar(&profileName, "profile", "", "profile, a built-in name or a .toml file, instead of the scenarios'")
	f.StringArrayVar(&sets, "set", nil, "change one key of every phase's scenario: path.to.key=value (repeatable)")
	f.IntVar(&workers, "workers", 0, "runs at a time (0: one a CPU); results do not depend on it")
	f.BoolVar(&forced, "progress", false, "show progress even when standard error is no terminal")
	if status, ok := f.parse(args); !ok {
		return status
	}
	if err := oneOf("format", format, "table", "json"); err != nil {
		return f.fail(statusUsage, err)
	}
	if f.NArg() != 1 || repeat < 1 || repeat > 1_000_000 {
		return f.fail(statusUsage, errors.New("compare takes one STUDY and a --repeat from 1 to 1000000 (see sim compare --help)"))
	}
	study, err := scenario.LoadStudyWith(f.Arg(0), sets)
	if err != nil {
		return f.fail(statusUsage, err)
	}
	profile := func(sc *scenario.Scenario) (*model.Profile, error) {
		if profileName != "" {
			return profiles.Load(profileName)
		}
		return profiles.Load(sc.Profile)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	done := progress(stderr, "runs", repeat*len(study.Phases), forced)
	c, err := calibrate.CompareStudy(ctx, study, profile, repeat, workers, done)
	switch {
	case errors.Is(err, context.Canceled):
		return f.fail(statusFailed, errors.New("stopped: a comparison needs all its runs"))
	case err != nil:
		return f.fail(statusUsage, err)
	}
	if format == "json" {
		if err := json.NewEncoder(stdout).Encode(c); err != nil {
			return f.fail(statusFailed, err)
		}
		return statusOK
	}
	printComparison(stdout, c)
	return statusOK
}

// compareColumns are the figures of the comparison's table.
var compareColumns = []struct {
	name, metric string
	format       func(float64) string
	slack        float64 // for "inside the band"
}{
	{"TTFT p50 s", "ttft.p50", fixed(3), 0.05},
	{"TTFT p95 s", "ttft.p95", fixed(3), 0.05},
	{"TPOT p95 ms", "tpot.p95", func(v float64) string { return fixed(1)(1000 * v) }, 0.05},
	{"hit ratio", "cache_hit_ratio", fixed(3), 0.005},
	{"good", "good", fixed(0), 0},
}

// printComparison writes a row a phase: measured | simulated, and the band.
func printComparison(w io.Writer, c *calibrate.StudyComparison) {
	t := newTable(w)
	t.SetTitle("%s: measured | simulated (profile %s, %d seeds)", c.Study, c.Profile, c.Seeds)
	header := table.Row{"phase"}
	configs := []table.ColumnConfig{}
	for i, col := range compareColumns {
		header = append(header, col.name)
		configs = append(configs, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.AppendHeader(append(header, "split", "waiting peak", "KV peak, blocks", "counters"))
	t.SetColumnConfigs(configs)
	for i := range c.Phases {
		p := &c.Phases[i]
		row := table.Row{p.Phase}
		for _, col := range compareColumns {
			row = append(row, compareCell(p, col.metric, col.format, col.slack))
		}
		t.AppendRow(append(row, perReplica(p, requestsOf), perReplica(p, waitingOf), perReplica(p, blocksOf(p.UsableBlocks)), countersCell(p)))
	}
	t.Render()
	if c.Seeds == 1 {
		return
	}
	fmt.Fprintln(w, "\nMeasured inside the 5-95% band (* marks one outside):")
	for _, col := range compareColumns {
		cov := c.Coverage(col.slack, col.metric)[0]
		fmt.Fprintf(w, "  %-12s %d of %d (band widened by %g%%)\n", col.name, cov.Inside, cov.Known, 100*col.slack)
	}
}

func compareCell(p *calibrate.PhaseComparison, metric string, format func(float64) string, slack float64) string {
	show := func(phase *record.Phase) string {
		for _, m := range calibrate.Metrics(phase) {
			if v, ok := m.Value(phase).Get(); ok && m.Name == metric {
				return format(v)
			}
		}
		return "-"
	}
	cell := "-"
	if p.Measured != nil {
		cell = show(p.Measured)
	}
	cell += " | " + show(p.Simulated)
	if len(p.Runs) == 1 {
		return cell
	}
	band := p.Band.Of(metric)
	cell += fmt.Sprintf(" (%s..%s)", format(band.P5.Or(math.NaN())), format(band.P95.Or(math.NaN())))
	if inside, known := p.Inside(metric, slack); known && !inside {
		return cell + " *"
	}
	return cell + "  "
}

func requestsOf(r *record.Replica) string { return r.Requests.String() }
func waitingOf(r *record.Replica) string  { return r.WaitingPeak.String() }

// blocksOf gives the KV peak of a replica in blocks, of usable ones.
func blocksOf(usable int) func(*record.Replica) string {
	return func(r *record.Replica) string {
		usage, ok := r.KVUsagePeak.Get()
		if !ok {
			return "-"
		}
		return fixed(0)(usage * float64(usable))
	}
}

// perReplica is a figure of each replica, measured | simulated.
func perReplica(p *calibrate.PhaseComparison, show func(*record.Replica) string) string {
	side := func(phase *record.Phase) string {
		if phase == nil || len(phase.Replicas) == 0 {
			return "-"
		}
		s := ""
		for i := range phase.Replicas {
			if i > 0 {
				s += "/"
			}
			s += show(&phase.Replicas[i])
		}
		return s
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
