package sweep

import (
	"fmt"

	"fleetsim/model"
)

// A Choice is what the results say about one group of cells.
type Choice struct {
	Cells     []int // of the group
	Best      int   // the cell with the best objective of those that meet the constraints; -1: none does
	Ties      []int // others that meet them and are not shown to be worse than Best
	Undecided []int // cells whose constraints are undecided
}

// Choose says, for every group, which cell is best and which others may be. It
// is empty without an objective.
func (s *Sweep) Choose(r Results) []Choice {
	if s.Objective == nil {
		return nil
	}
	choices := make([]Choice, len(s.groups))
	for g, cells := range s.groups {
		choices[g] = s.choose(r, cells)
	}
	return choices
}

func (s *Sweep) choose(r Results, cells []int) Choice {
	c := Choice{Cells: cells, Best: -1}
	var met []int
	for _, cell := range cells {
		switch s.Verdict(r, cell, r.Ran(cell)) {
		case Met:
			met = append(met, cell)
		case Undecided:
			c.Undecided = append(c.Undecided, cell)
		}
	}
	for _, cell := range met {
		if c.Best < 0 || s.better(r, cell, c.Best) {
			c.Best = cell
		}
	}
	for _, cell := range met {
		if cell == c.Best {
			continue
		}
		if worse, _ := s.worse(r, cell, c.Best, min(r.Ran(cell), r.Ran(c.Best))); !worse {
			c.Ties = append(c.Ties, cell)
		}
	}
	return c
}

// better reports whether a scores above b on the seeds that both ran.
func (s *Sweep) better(r Results, a, b int) bool {
	n := min(r.Ran(a), r.Ran(b))
	return s.score(r, a, n) > s.score(r, b, n)
}

// Stat sums up a metric over the seeds of a cell, with the paired difference to
// its baseline.
func (s *Sweep) Stat(r Results, cell, metric int) Stat {
	n := r.Ran(cell)
	var base []float64
	if b := s.Cells[cell].Baseline; b >= 0 && b != cell {
		n := min(n, r.Ran(b))
		base = r.column(b, metric, n)
	}
	return statOf(r.column(cell, metric, n), base, s.Tail())
}

// Extrapolates says how the cell's runs went beyond what its profile was
// calibrated on; "" when they did not.
func (s *Sweep) Extrapolates(r Results, cell int) string {
	running, _ := s.MetricIndex("running_max")
	input, _ := s.MetricIndex("input_tokens_max")
	decodes, tokens := 0.0, 0.0
	for _, v := range r[cell][:r.Ran(cell)] {
		decodes, tokens = max(decodes, v[running]), max(tokens, v[input])
	}
	return beyond(s.Cells[cell].Profile.Range, decodes, tokens+float64(s.Cells[cell].outputTokens()))
}

func beyond(calibrated model.Range, decodes, tokens float64) string {
	out := ""
	if limit := calibrated.Decodes; limit > 0 && decodes > float64(limit) {
		out = fmt.Sprintf("up to %.0f requests in a batch, calibrated to %d", decodes, limit)
	}
	if limit := calibrated.ContextTokens; limit > 0 && tokens > float64(limit) {
		if out != "" {
			out += "; "
		}
		out += fmt.Sprintf("contexts of up to %.0f tokens, calibrated to %d", tokens, limit)
	}
	return out
}

// outputTokens is the longest output that a request of the cell asks for.
func (c *Cell) outputTokens() int {
	w := c.Scenario.Workload
	most := w.Output
	for _, t := range w.Tenants {
		if t.Output != nil {
			most = max(most, *t.Output)
		}
	}
	return most
}
