package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"fleetsim/sim/record"
)

// printPhases writes phase records in the asked format. JSON is one record, or
// an array of several, and nothing else.
func printPhases(w io.Writer, format string, phases []*record.Phase) error {
	switch format {
	case "jsonl":
		for _, p := range phases {
			if err := record.WritePhase(w, p); err != nil {
				return err
			}
		}
		return nil
	case "json":
		var v any = phases
		if len(phases) == 1 {
			v = phases[0]
		}
		e := json.NewEncoder(w)
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	printTables(w, phases)
	return nil
}

// printTables writes one table a scenario, a row a policy; several seeds of one
// policy are one row of medians and bands.
func printTables(w io.Writer, phases []*record.Phase) {
	for start := 0; start < len(phases); {
		end := start
		for end < len(phases) && phases[end].Scenario == phases[start].Scenario {
			end++
		}
		printTable(w, phases[start:end])
		start = end
	}
}

func printTable(w io.Writer, phases []*record.Phase) {
	t := newTable(w)
	fmt.Fprintln(w, " "+title(phases))
	columns := shown(phases)
	header := table.Row{"policy"}
	var configs []table.ColumnConfig
	for i, c := range columns {
		header = append(header, c.name)
		configs = append(configs, table.ColumnConfig{Number: i + 2, Align: text.AlignRight, AlignHeader: text.AlignRight})
	}
	t.SetColumnConfigs(configs)
	t.AppendHeader(header)
	for start := 0; start < len(phases); {
		end := start
		for end < len(phases) && phases[end].Route == phases[start].Route {
			end++
		}
		row := table.Row{phases[start].Route}
		for _, c := range columns {
			row = append(row, c.cell(phases[start:end]))
		}
		t.AppendRow(row)
		start = end
	}
	t.Render()
	for _, note := range notes(phases) {
		fmt.Fprintln(w, "note:", note)
	}
}

func newTable(w io.Writer) table.Writer {
	t := table.NewWriter()
	t.SetOutputMirror(w)
	style := table.StyleLight
	style.Format.Header = text.FormatDefault
	style.Options.SeparateColumns = false
	style.Options.DrawBorder = false
	t.SetStyle(style)
	return t
}

func title(phases []*record.Phase) string {
	p := phases[0]
	seeds := map[record.Uint]bool{}
	for _, q := range phases {
		seeds[q.Seed] = true
	}
	s := fmt.Sprintf("%s: %s arrivals, %d replicas, seed %s", p.Scenario, p.Planned, len(p.Replicas), p.Seed)
	if len(seeds) > 1 {
		s += fmt.Sprintf(" and the %d after it: median (5%%..95%%)", len(seeds)-1)
	}
	return s
}

// A column is one figure of a phase, as people read it.
type column struct {
	name   string
	value  func(*record.Phase) record.Float
	format func(float64) string
}

var columns = []column{
	{"TTFT p50 s", func(p *record.Phase) record.Float { return p.TTFT.P50 }, fixed(3)},
	{"p95 s", func(p *record.Phase) record.Float { return p.TTFT.P95 }, fixed(3)},
	{"p99 s", func(p *record.Phase) record.Float { return p.TTFT.P99 }, fixed(3)},
	{"TPOT p95 ms", func(p *record.Phase) record.Float { return p.TPOT.P95 }, func(v float64) string { return fixed(1)(1000 * v) }},
	{"E2E p95 s", func(p *record.Phase) record.Float { return p.E2E.P95 }, fixed(2)},
	{"hit ratio", func(p *record.Phase) record.Float { return p.CacheHitRatio }, fixed(3)},
	{"at most", hitBound, fixed(3)},
	{"index gone", ledgerShare("gone_share"), fixed(3)},
	{"KV unknown", ledgerShare("unknown_share"), fixed(3)},
	{"good", func(p *record.Phase) record.Float { return float(p.Good) }, fixed(0)},
	{"of planned", func(p *record.Phase) record.Float { return float(p.Planned) }, fixed(0)},
	{"dropped", func(p *record.Phase) record.Float { return float(p.Dropped) }, fixed(0)},
	{"rejected", func(p *record.Phase) record.Float { return float(p.Rejected) }, fixed(0)},
	{"failed", func(p *record.Phase) record.Float { return float(p.Failed) }, fixed(0)},
	{"split", nil, nil},
	{"waiting max", waitingMax, fixed(0)},
}

// hitBound is the hit ratio that a trace allows; absent without a trace.
func hitBound(p *record.Phase) record.Float {
	var trace struct {
		Bound record.Float `json:"hit_ratio_upper_bound"`
	}
	if err := json.Unmarshal(p.Other["trace"], &trace); err != nil {
		return record.Float{}
	}
	return trace.Bound
}

// sometimes reports whether the column is about what not every run has: a trace
// with its bound, or the comparison of the router's index with the engines' caches.
func (c column) sometimes() bool {
	return slices.Contains([]string{"at most", "index gone", "KV unknown"}, c.name)
}

// shown are the columns worth showing: rejected and failed requests only where
// there are any, and those for some runs only where there is a value.
func shown(phases []*record.Phase) []column {
	var out []column
	for _, c := range columns {
		if c.name == "rejected" || c.name == "failed" {
			most := 0.0
			for _, p := range phases {
				most = max(most, c.value(p).Or(0))
			}
			if most == 0 {
				continue
			}
		}
		if c.sometimes() && !slices.ContainsFunc(phases, func(p *record.Phase) bool { return c.value(p).Valid() }) {
			continue
		}
		out = append(out, c)
	}
	return out
}

func fixed(decimals int) func(float64) string {
	return func(v float64) string { return strconv.FormatFloat(v, 'f', decimals, 64) }
}

func float(i record.Int) record.Float {
	v, ok := i.Get()
	if !ok {
		return record.Float{}
	}
	return record.Some(float64(v))
}

// waitingMax is the longest engine queue of any replica.
func waitingMax(p *record.Phase) record.Float {
	var most record.Float
	for _, r := range p.Replicas {
		if w := float(r.WaitingMax); w.Valid() {
			most = record.Some(max(w.Or(0), most.Or(0)))
		}
	}
	return most
}

// cell is the column's figure over the seeds of one policy.
func (c column) cell(phases []*record.Phase) string {
	if c.value == nil {
		return split(phases)
	}
	var values []float64
	for _, p := range phases {
		if v, ok := c.value(p).Get(); ok {
			values = append(values, v)
		}
	}
	return bandCell(record.BandOf(values), len(phases), c.format)
}

func bandCell(b record.Band, n int, format func(float64) string) string {
	median, ok := b.P50.Get()
	if !ok {
		return "-"
	}
	low, high := format(b.P5.Or(0)), format(b.P95.Or(0))
	if n == 1 || low == high {
		return format(median)
	}
	return fmt.Sprintf("%s (%s..%s)", format(median), low, high)
}

// split is how requests spread over the replicas; of many replicas, and over
// seeds, the least and the most loaded.
func split(phases []*record.Phase) string {
	p := phases[0]
	if len(phases) == 1 && len(p.Replicas) <= 4 {
		var parts []string
		for _, r := range p.Replicas {
			parts = append(parts, r.Requests.String())
		}
		return strings.Join(parts, "/")
	}
	var least, most []float64
	for _, p := range phases {
		low, high := float(p.Replicas[0].Requests).Or(0), 0.0
		for _, r := range p.Replicas {
			n := float(r.Requests).Or(0)
			low, high = min(low, n), max(high, n)
		}
		least, most = append(least, low), append(most, high)
	}
	return fmt.Sprintf("%s..%s", fixed(0)(record.BandOf(least).P50.Or(0)), fixed(0)(record.BandOf(most).P50.Or(0)))
}

// notes are what the phases want their reader to know, each once.
func notes(phases []*record.Phase) []string {
	var out []string
	seen := map[string]bool{}
	for _, p := range phases {
		for _, n := range p.Notes {
			if !seen[n] {
				seen[n] = true
				out = append(out, n)
			}
		}
	}
	return out
}
