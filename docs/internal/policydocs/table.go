package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"

	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/record"
	"fleetsim/sim/scenario"
)

// The lines between which the table stands in the file.
const (
	tableBegin = "<!-- table: made by make policy-table -->"
	tableEnd   = "<!-- end of table -->"
)

var (
	tableScenarios = []string{"cold-uniform", "warm-uniform", "hot50", "hot90"}
	tableSizes     = []int{2, 8, 32}
)

// A cell is the mean over the seeds.
type cell struct{ good, hits float64 }

// writeTable simulates every policy and puts the table into the file.
func writeTable(file string, seeds int) error {
	if _, err := withTable(file, ""); err != nil {
		return err // before the work of minutes
	}
	began := time.Now()
	text, err := table(seeds, os.Stderr.WriteString)
	if err != nil {
		return err
	}
	text += fmt.Sprintf("\nMade in %v on %d CPUs.\n", time.Since(began).Round(time.Second), runtime.GOMAXPROCS(0))
	out, err := withTable(file, text)
	if err != nil {
		return err
	}
	return os.WriteFile(file, []byte(out), 0o644)
}

// withTable is the file as it is now, with the text in the table's place.
func withTable(file, text string) (string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return "", err
	}
	out, err := between(string(data), text)
	if err != nil {
		return "", fmt.Errorf("%s: %w", file, err)
	}
	return out, nil
}

// between puts text between the two lines.
func between(doc, text string) (string, error) {
	head, rest, begins := strings.Cut(doc, tableBegin+"\n")
	_, tail, ends := strings.Cut(rest, tableEnd)
	if !begins || !ends {
		return "", fmt.Errorf("want the lines %q and %q", tableBegin, tableEnd)
	}
	return head + tableBegin + "\n" + text + tableEnd + tail, nil
}

// table is the table in Markdown; progress hears of each row.
func table(seeds int, progress func(string) (int, error)) (string, error) {
	var b strings.Builder
	b.WriteString("| policy |")
	rule := "| --- |"
	for _, name := range tableScenarios {
		for _, n := range tableSizes {
			short, _, _ := strings.Cut(name, "-")
			fmt.Fprintf(&b, " %s, %d |", short, n)
			rule += " --: |"
		}
	}
	b.WriteString("\n" + rule + "\n")
	for i := range specs {
		if specs[i].load == "conversations" {
			continue // without sessions it is random
		}
		row, err := specs[i].row(seeds)
		if err != nil {
			return "", fmt.Errorf("%s: %w", specs[i].name, err)
		}
		b.WriteString(row)
		if _, err := progress(row); err != nil {
			return "", err
		}
	}
	return b.String(), nil
}

// row is the policy's line.
func (s *spec) row(seeds int) (string, error) {
	row := "| `" + s.routed() + "`"
	if s.policy != "" && !strings.Contains(s.policy, ":") {
		row += ", KV events"
	}
	row += " |"
	for _, name := range tableScenarios {
		for _, n := range tableSizes {
			c, err := s.cell(name, n, seeds)
			if err != nil {
				return "", err
			}
			row += fmt.Sprintf(" %.1f · %.0f |", 100*c.good, 100*c.hits)
		}
	}
	return row + "\n", nil
}

// cell simulates the policy in the scenario, with so many replicas.
func (s *spec) cell(name string, replicas, seeds int) (cell, error) {
	sc, err := scenario.LoadWith(name, append(perReplica(replicas), s.settings(replicas)...))
	if err != nil {
		return cell{}, err
	}
	p, err := profiles.Load(sc.Profile)
	if err != nil {
		return cell{}, err
	}
	setups := make([]sim.Setup, seeds)
	for i := range setups {
		setups[i] = sim.Setup{Scenario: sc, Profile: p, Policy: s.routed(), Seed: uint64(1 + i)}
	}
	phases, err := sim.RunAll(context.Background(), setups, 0, nil)
	if err != nil {
		return cell{}, err
	}
	var sum cell
	for _, phase := range phases {
		sum.good += phase.GoodShare().Or(0)
		sum.hits += hitRatio(sc, phase)
	}
	return cell{sum.good / float64(seeds), sum.hits / float64(seeds)}, nil
}

// hitRatio is that of the engines that compute prompts: with disaggregation, the
// prefill pods, which come first.
func hitRatio(sc *scenario.Scenario, p *record.Phase) float64 {
	replicas := p.Replicas
	if pd := sc.Cluster.PD; pd != nil {
		replicas = replicas[:pd.Prefill]
	}
	return record.CacheHitRatio(replicas).Or(0)
}
