package sweep

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"fleetsim/model"
	"fleetsim/sim"
	"fleetsim/sim/scenario"
	"fleetsim/spelling"
)

// A Sweep is a checked sweep: the same seeds for every cell of a grid.
type Sweep struct {
	Source      Source
	Name        string
	Description string
	Axes        []Axis
	Cells       []Cell
	Seeds       []uint64 // the most that a cell runs
	Metrics     []Metric
	Objective   *Objective // nil: none
	Constraints []Constraint
	Confidence  float64 // of every interval and decision

	dims   [][]int // axes of each dimension: one, or those that are zipped
	given  []bool  // by dimension: a condition, not a choice
	looks  []int   // numbers of seeds after which to decide; the last is len(Seeds)
	groups [][]int // cells between which a choice is made
}

// A Cell is one setting of all axes.
type Cell struct {
	Index    int
	At       []int // by axis, the place of its value
	Scenario *scenario.Scenario
	Policy   string
	Profile  *model.Profile
	Baseline int // index of the cell that it is compared with; -1: none
}

// An Objective is what makes one cell better than another: an axis's value or a
// metric's mean.
type Objective struct {
	Name     string
	Axis     int // -1: a metric
	Metric   int // -1: an axis
	Maximise bool
}

// A Constraint bounds the mean of a metric.
type Constraint struct {
	Metric int
	Least  bool // the mean must be at least the bound, else at most
	Bound  float64
}

// The columns of the results that no axis may be called as.
var columns = [...]string{
	"cell", "seed", "metric", "n", "mean", "mean_low", "mean_high", "median", "p5", "p95",
	"diff_n", "diff", "diff_low", "diff_high", "baseline", "seeds", "verdict", "best", "extrapolates", "scenario_digest",
}

// Value is the cell's value on the axis.
func (s *Sweep) Value(cell, axis int) Value { return s.Axes[axis].Values[s.Cells[cell].At[axis]] }

// Label names a cell by its values.
func (s *Sweep) Label(cell int) string {
	parts := make([]string, len(s.Axes))
	for a := range s.Axes {
		parts[a] = s.Axes[a].Name + "=" + s.Value(cell, a).Text()
	}
	return strings.Join(parts, " ")
}

// MetricIndex finds a metric by its name.
func (s *Sweep) MetricIndex(name string) (int, error) {
	names := make([]string, len(s.Metrics))
	for i, m := range s.Metrics {
		if m.Name == name {
			return i, nil
		}
		names[i] = m.Name
	}
	return -1, fmt.Errorf("there is no metric %q%s", name, spelling.Suggest(name, names))
}

// Given reports whether the axis is a condition: choices are made for each of
// its values, not between them.
func (s *Sweep) Given(axis int) bool {
	for d, axes := range s.dims {
		if slices.Contains(axes, axis) {
			return s.given[d]
		}
	}
	return false
}

// Led reports whether the axis only follows another with which it is zipped, so
// that the other's value tells its own.
func (s *Sweep) Led(axis int) bool {
	for _, axes := range s.dims {
		if slices.Contains(axes[1:], axis) {
			return true
		}
	}
	return false
}

// Groups are the cells between which a choice is made, in cell order.
func (s *Sweep) Groups() [][]int { return s.groups }

// Looks are the numbers of seeds after which it is decided who needs more.
func (s *Sweep) Looks() []int { return s.looks }

// Tail is the probability with which one bound of an interval errs. Each look at
// the results is a chance to err, so with several looks it is split between them
// (Bonferroni).
func (s *Sweep) Tail() float64 { return (1 - s.Confidence) / 2 / float64(len(s.looks)) }

// Setup is the run of a cell with a seed.
func (s *Sweep) Setup(cell int, seed uint64) sim.Setup {
	c := &s.Cells[cell]
	return sim.Setup{Scenario: c.Scenario, Profile: c.Profile, Policy: c.Policy, Seed: seed}
}

// count is the number of combinations of values.
func (s *Sweep) count() int {
	n := 1
	for _, axes := range s.dims {
		n *= len(s.Axes[axes[0]].Values)
	}
	return n
}

// place is the cell's place on each dimension; the last turns fastest.
func (s *Sweep) place(cell int) []int {
	place := make([]int, len(s.dims))
	for d := len(s.dims) - 1; d >= 0; d-- {
		n := len(s.Axes[s.dims[d][0]].Values)
		place[d], cell = cell%n, cell/n
	}
	return place
}

// index is the cell at the place, with the entries of fixed that are not -1 in
// the place's stead.
func (s *Sweep) index(place, fixed []int) int {
	cell := 0
	for d, axes := range s.dims {
		at := place[d]
		if fixed[d] >= 0 {
			at = fixed[d]
		}
		cell = cell*len(s.Axes[axes[0]].Values) + at
	}
	return cell
}

// at is, by axis, the place of the cell's value.
func (s *Sweep) at(cell int) []int {
	at := make([]int, len(s.Axes))
	for d, p := range s.place(cell) {
		for _, a := range s.dims[d] {
			at[a] = p
		}
	}
	return at
}

// group puts the cells that differ only in what is to be chosen together.
// Without an objective there is nothing to choose between: each is alone.
func (s *Sweep) group() {
	byGiven := map[int]int{} // index of the first such cell: its group
	for i := range s.Cells {
		key := i
		if s.Objective != nil {
			first := make([]int, len(s.dims))
			for d := range first {
				if s.given[d] {
					first[d] = -1
				}
			}
			key = s.index(s.place(i), first)
		}
		g, ok := byGiven[key]
		if !ok {
			g = len(s.groups)
			byGiven[key] = g
			s.groups = append(s.groups, nil)
		}
		s.groups[g] = append(s.groups[g], i)
	}
}

// Digest identifies the sweep by what its results depend on: the SHA-256, in
// hexadecimal, of every cell's scenario, policy and profile, the seeds, the axes,
// the goals and the stopping rule. The names of files do not count.
func (s *Sweep) Digest() string {
	type cell struct{ Scenario, Policy, Profile string }
	profiles := map[*model.Profile]string{}
	var all struct {
		Name        string
		Axes        []Axis
		Texts       [][]string
		Cells       []cell
		Seeds       []uint64
		Metrics     []string
		Objective   *Objective
		Constraints []Constraint
		Confidence  float64
		Given       []bool
		Looks       []int
		Baselines   []int
	}
	all.Name, all.Seeds, all.Objective, all.Constraints = s.Name, s.Seeds, s.Objective, s.Constraints
	all.Confidence, all.Given, all.Looks = s.Confidence, s.given, s.looks
	for _, a := range s.Axes {
		var texts []string
		for _, v := range a.Values {
			texts = append(texts, literal(v.any))
		}
		all.Axes = append(all.Axes, Axis{Name: a.Name, Key: a.Key, Zip: a.Zip})
		all.Texts = append(all.Texts, texts)
	}
	for _, c := range s.Cells {
		if _, ok := profiles[c.Profile]; !ok {
			profiles[c.Profile] = ProfileDigest(c.Profile)
		}
		all.Cells = append(all.Cells, cell{scenario.Digest(c.Scenario), c.Policy, profiles[c.Profile]})
		all.Baselines = append(all.Baselines, c.Baseline)
	}
	for _, m := range s.Metrics {
		all.Metrics = append(all.Metrics, m.Name)
	}
	return digestOf(all)
}

// ProfileDigest identifies what a profile says, by its SHA-256 in hexadecimal;
// its file's layout does not count.
func ProfileDigest(p *model.Profile) string { return digestOf(p) }

func digestOf(v any) string {
	canonical, err := json.Marshal(v)
	if err != nil {
		panic(err) // plain values, all of which JSON has a form for
	}
	sum := sha256.Sum256(canonical)
	return hex.EncodeToString(sum[:])
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
