package sweep

import (
	"math"

	"fleetsim/sim/record"
)

// Values are the metrics of one run, in the order of Sweep.Metrics; NaN is
// absent.
type Values []float64

// Results are the runs of a sweep by cell and seed; nil where there is none.
type Results [][]Values

// newResults has room for every run of the sweep.
func (s *Sweep) newResults() Results {
	r := make(Results, len(s.Cells))
	for i := range r {
		r[i] = make([]Values, len(s.Seeds))
	}
	return r
}

// column is one metric of the first n seeds of a cell.
func (r Results) column(cell, metric, n int) []float64 {
	out := make([]float64, n)
	for k := range out {
		out[k] = r[cell][k][metric]
	}
	return out
}

// Ran is how many seeds of the cell there are, from the first on.
func (r Results) Ran(cell int) int {
	for n, v := range r[cell] {
		if v == nil {
			return n
		}
	}
	return len(r[cell])
}

// values are the metrics of a run.
func (s *Sweep) values(p *record.Phase) Values {
	v := make(Values, len(s.Metrics))
	for i := range s.Metrics {
		v[i] = s.Metrics[i].Value(p)
	}
	return v
}

// A Verdict says whether a cell meets the constraints.
type Verdict int

// The verdicts: a constraint is met when the bound of its interval is within it,
// violated when the other bound is outside, and undecided in between.
const (
	Undecided Verdict = iota
	Met
	Violated
)

func (v Verdict) String() string { return [...]string{"undecided", "met", "violated"}[v] }

// Judge is the interval of the constraint's metric over the cell's first n seeds,
// and its verdict. The interval is Student's t of the seeds' means; a share is also
// given the Clopper-Pearson interval of its pooled counts, and the wider bound of
// the two counts: t alone would be certain after two runs without a failure, and
// the counts alone would take a run's requests for independent. Bounds are
// one-sided at the sweep's confidence.
func (s *Sweep) Judge(r Results, cell int, c Constraint, n int) (Interval, Verdict) {
	values := r.column(cell, c.Metric, n)
	tail := 2 * s.Tail() // one bound decides
	if have := present(values); len(have) < n {
		// A run without a value, such as a TTFT where nothing succeeded, cannot be
		// within a bound.
		return tInterval(have, tail), Violated
	}
	i := tInterval(values, tail)
	if s.Metrics[c.Metric].trials != "" {
		cases, trials := s.counts(r, cell, c.Metric, n)
		i = widest(i, clopperPearson(cases, trials, tail))
		i.Low, i.High = max(i.Low, 0), min(i.High, 1)
	}
	return i, c.verdict(i)
}

func (c Constraint) verdict(i Interval) Verdict {
	switch {
	case c.Least && i.Low >= c.Bound, !c.Least && i.High <= c.Bound:
		return Met
	case c.Least && i.High < c.Bound, !c.Least && i.Low > c.Bound:
		return Violated
	}
	return Undecided
}

// counts are the pooled cases and trials behind a share.
func (s *Sweep) counts(r Results, cell, metric, n int) (cases, trials int) {
	of, err := s.MetricIndex(s.Metrics[metric].trials)
	if err != nil {
		panic(err) // a share and its trials are metrics together
	}
	for k := range n {
		of := r[cell][k][of]
		trials += int(of)
		cases += int(math.Round(r[cell][k][metric] * of))
	}
	return cases, trials
}

// Verdict is whether the cell meets all constraints after its first n seeds.
func (s *Sweep) Verdict(r Results, cell, n int) Verdict {
	all := Met
	for _, c := range s.Constraints {
		switch _, v := s.Judge(r, cell, c, n); v {
		case Violated:
			return Violated
		case Undecided:
			all = Undecided
		}
	}
	return all
}

// score is the cell's objective over its first n seeds, higher being better.
// An absent value makes it the worst.
func (s *Sweep) score(r Results, cell, n int) float64 {
	score := 0.0
	if s.Objective.Axis >= 0 {
		score, _ = s.Value(cell, s.Objective.Axis).Number()
	} else {
		for _, v := range r.column(cell, s.Objective.Metric, n) {
			score += v
		}
		score /= float64(n)
	}
	if math.IsNaN(score) {
		return math.Inf(-1)
	}
	if !s.Objective.Maximise {
		return -score
	}
	return score
}

// worse reports whether it is decided that cell is worse than leader in the
// objective; tied that it is decided that neither is.
func (s *Sweep) worse(r Results, cell, leader, n int) (worse, tied bool) {
	a, b := s.score(r, cell, n), s.score(r, leader, n)
	if s.Objective.Axis >= 0 || math.IsInf(a, -1) {
		return a < b, a == b
	}
	d := pairedInterval(r.column(cell, s.Objective.Metric, n), r.column(leader, s.Objective.Metric, n), s.Tail())
	if d.Low == 0 && d.High == 0 {
		return false, true
	}
	return a < b && d.Decided(0), false
}

// leader is the cell with the best objective among those that meet the
// constraints; -1 when none does.
func (s *Sweep) leader(r Results, cells []int, verdicts []Verdict, n int) int {
	best := -1
	for i, cell := range cells {
		if verdicts[i] == Met && (best < 0 || s.score(r, cell, n) > s.score(r, best, n)) {
			best = cell
		}
	}
	return best
}

// open are the cells, of those that have run n seeds, that need more: those that
// may yet turn out to be the best of their group, unless that is decided.
func (s *Sweep) open(r Results, cells []int, n int) []int {
	verdicts := make([]Verdict, len(cells))
	for i, cell := range cells {
		verdicts[i] = s.Verdict(r, cell, n)
	}
	leader := -1
	if s.Objective != nil {
		leader = s.leader(r, cells, verdicts, n)
	}
	var rivals []int // besides the leader
	for i, cell := range cells {
		if cell == leader || verdicts[i] == Violated {
			continue
		}
		worse, tied := false, false
		if leader >= 0 {
			worse, tied = s.worse(r, cell, leader, n)
		}
		settled := verdicts[i] == Met && (tied || s.Objective == nil)
		if !worse && !settled {
			rivals = append(rivals, cell)
		}
	}
	if len(rivals) == 0 {
		return nil
	}
	if leader < 0 {
		return rivals
	}
	return inOrder(cells, append(rivals, leader))
}

// inOrder are the wanted cells in the order of cells.
func inOrder(cells, wanted []int) []int {
	in := make(map[int]bool, len(wanted))
	for _, c := range wanted {
		in[c] = true
	}
	var out []int
	for _, c := range cells {
		if in[c] {
			out = append(out, c)
		}
	}
	return out
}

// A race runs the cells of one group: all of them to the first look, and from
// look to look those that are open.
type race struct {
	sweep *Sweep
	group int
	cells []int // still running
	look  int   // index of the look that they are running to
}

func (s *Sweep) newRace(group int) *race {
	return &race{sweep: s, group: group, cells: s.groups[group]}
}

// due are the cells that run now, each to so many seeds; none when the race is
// over.
func (c *race) due() (cells []int, seeds int) {
	if c.look >= len(c.sweep.looks) {
		return nil, 0
	}
	return c.cells, c.sweep.looks[c.look]
}

// decide goes on to the next look. All that is due must have run.
func (c *race) decide(r Results) {
	n := c.sweep.looks[c.look]
	c.look++
	if c.look == len(c.sweep.looks) {
		return
	}
	c.cells = c.sweep.open(r, c.cells, n)
	if len(c.cells) == 0 {
		c.look = len(c.sweep.looks)
	}
}
