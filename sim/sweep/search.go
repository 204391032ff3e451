package sweep

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"fleetsim/model"
	"fleetsim/model/profiles"
	"fleetsim/sim"
	"fleetsim/sim/scenario"
)

// A Quantity is what a Search looks for.
type Quantity string

// The quantities: the fewest replicas, or the highest rate of arrivals (at its
// peak, where the scenario has stages), that meet the goals.
const (
	Replicas Quantity = "replicas"
	Rate     Quantity = "rate"
)

// A Search asks for the fewest replicas, or the highest rate, with which a
// scenario meets its goals. It takes for granted that more replicas, or a lower
// rate, never make it worse; the probes on both sides of the answer are part of
// it, so that a reader can see whether they contradict that.
type Search struct {
	BaseFile, BaseText string   // the scenario
	Sets               []string // "path.to.key=value", as in scenario.LoadWith
	Policy             string
	Find               Quantity
	Low, High          float64 // range to search in; 0: from 1 to 64 replicas, or from 1/64 of the scenario's rate to 64 times it
	Tolerance          float64 // relative distance between two rates that are tried; 0: 0.02
	Goals              []Goal
	Confidence         float64 // of each decision, above 0.5 and below 1
	First, Step, Seeds int     // looks after First seeds and each Step more, until decided or at Seeds
	Workers            int     // runs at a time; 0: one a CPU
	// Done is called after each probe; nil for nobody.
	Done func(Probe)
}

// A Goal bounds the mean of a metric over the seeds.
type Goal struct {
	Metric string
	Least  bool // the mean must be at least the bound, else at most
	Bound  float64
}

// ParseGoal reads a goal: metric, >= or <=, and a number, a percentage or a
// duration ("good>=99%", "ttft_p95<=2s"). A percentage of good or success is of
// the planned arrivals.
func ParseGoal(text string) (Goal, error) {
	bad := func(why string) (Goal, error) {
		return Goal{}, fmt.Errorf("%q: %s; allowed: METRIC>=VALUE or METRIC<=VALUE, such as good>=99%% or ttft_p95<=2s", text, why)
	}
	g := Goal{Least: true}
	name, value, ok := strings.Cut(text, ">=")
	if !ok {
		g.Least = false
		if name, value, ok = strings.Cut(text, "<="); !ok {
			return bad("there is no >= or <=")
		}
	}
	g.Metric, value = strings.TrimSpace(name), strings.TrimSpace(value)
	percent, isPercent := strings.CutSuffix(value, "%")
	if isPercent && (g.Metric == "good" || g.Metric == "success") {
		g.Metric += "_share"
	}
	x, err := strconv.ParseFloat(percent, 64)
	switch {
	case err == nil && isPercent:
		g.Bound = x / 100
	case err == nil:
		g.Bound = x
	default:
		d, err := time.ParseDuration(value)
		if err != nil {
			return bad(strconv.Quote(value) + " is no number, percentage or duration")
		}
		g.Bound = d.Seconds()
	}
	if math.IsNaN(g.Bound) || math.IsInf(g.Bound, 0) {
		return bad("the bound must be finite")
	}
	if isPercent && !isShare(g.Metric) {
		return bad(g.Metric + " has no percentage: good, success and shares have")
	}
	if isShare(g.Metric) && (g.Bound < 0 || g.Bound > 1) {
		return bad("a share must be from 0 to 1, which is 0% to 100%")
	}
	return g, nil
}

// isShare reports whether the metric lies between 0 and 1.
func isShare(metric string) bool {
	return strings.HasSuffix(metric, "_share") || metric == "cache_hit_ratio" || metric == "kv_usage_max"
}

// A Probe is one value tried.
type Probe struct {
	Value   float64
	Runs    int
	Verdict Verdict    // Undecided counts as not met
	Goals   []Interval // by goal: mean over the seeds with the bounds that decide
	// Extrapolates says how the runs went beyond what the profile was calibrated on.
	Extrapolates string
}

// An Answer is the outcome of a Search.
type Answer struct {
	Policy  string
	Probes  []Probe // in the order in which they were run
	Met     *Probe  // the fewest replicas, or the highest rate, shown to meet the goals; nil: none in the range
	NotMet  *Probe  // its neighbour that is not shown to; nil: Met is the end of the range
	Runs    int
	Profile *model.Profile
}

// Run searches: from the scenario's own value outwards in steps that double,
// then by bisection. ctx ends it early with its error.
func (q Search) Run(ctx context.Context) (*Answer, error) {
	sc, err := q.parse(nil)
	if err != nil {
		return nil, err
	}
	p := &prober{Search: q, base: sc, ctx: ctx}
	if err := p.prepare(); err != nil {
		return nil, err
	}
	answer := &Answer{Policy: q.Policy, Profile: p.profile}
	best := firstMet(len(p.grid), p.start(), p.met)
	if p.err != nil {
		return nil, p.err
	}
	answer.Probes = p.probes
	for i := range answer.Probes {
		answer.Runs += answer.Probes[i].Runs
		switch p.places[i] {
		case best:
			answer.Met = &answer.Probes[i]
		case best - 1:
			answer.NotMet = &answer.Probes[i]
		}
	}
	return answer, nil
}

// Check reports what is wrong with the search without running anything.
func (q Search) Check() error {
	sc, err := q.parse(nil)
	if err != nil {
		return err
	}
	return (&prober{Search: q, base: sc}).prepare()
}

// parse is the scenario under the policy with further overrides.
func (q *Search) parse(sets []string) (*scenario.Scenario, error) {
	all := append(scenario.WithPolicies(q.Sets, q.Policy), sets...)
	return scenario.ParseWith(q.BaseFile, []byte(q.BaseText), all)
}

// A prober tries values.
type prober struct {
	Search
	base    *scenario.Scenario
	profile *model.Profile
	grid    []float64 // values from the hardest to the easiest
	ctx     context.Context
	places  []int // on the grid, by probe
	probes  []Probe
	err     error
}

const (
	maxGrid     = 100_000 // rates that a search may choose between
	maxReplicas = 10_000  // of a scenario
)

func (p *prober) prepare() error {
	var err error
	if p.profile, err = profiles.Load(p.base.Profile); err != nil {
		return err
	}
	if _, err := p.constraints(metricsOf([]*scenario.Scenario{p.base})); err != nil {
		return err
	}
	switch {
	case !(p.Confidence > 0.5 && p.Confidence < 1): // NaN is neither
		return fmt.Errorf("the confidence must be above 0.5 and below 1, not %g", p.Confidence)
	case p.Tolerance != 0 && !(p.Tolerance >= 1e-4 && p.Tolerance <= 1):
		return fmt.Errorf("the tolerance must be from 0.0001 to 1, not %g", p.Tolerance)
	case p.First < 2 || p.Seeds < p.First:
		return fmt.Errorf("there must be 2 first seeds or more, and as many in all at least; not %d and %d", p.First, p.Seeds)
	case p.Step < 1:
		return fmt.Errorf("there must be 1 further seed or more at a step, not %d", p.Step)
	}
	if err := p.reachable(); err != nil {
		return err
	}
	switch p.Find {
	case Replicas:
		return p.replicaGrid()
	case Rate:
		return p.rateGrid()
	}
	return fmt.Errorf("what to find is %q; allowed: %s, %s", p.Find, Replicas, Rate)
}

// reachable reports a number of requests that no run can reach because it has fewer:
// a percentage, probably, whose sign was forgotten.
func (p *prober) reachable() error {
	for _, g := range p.Goals {
		if !g.Least || g.Metric != "good" && g.Metric != "success" {
			continue
		}
		most, known, err := p.mostArrivals()
		if err != nil {
			return err
		}
		if known && g.Bound > float64(most) {
			return fmt.Errorf("%s>=%g is a number of requests, and the load has %d; allowed: at most that, or a percentage of them, such as %s>=99%%",
				g.Metric, g.Bound, most, g.Metric)
		}
	}
	return nil
}

// mostArrivals is the most that a run may have, as far as that is known beforehand:
// the load's limit, or those of the first seeds in stages that stay as they are.
func (p *prober) mostArrivals() (most int, known bool, err error) {
	w := p.base.Workload
	if w.Requests > 0 {
		return w.Requests, true, nil
	}
	if w.Arrivals == nil || p.Find == Rate {
		return 0, false, nil
	}
	for k := range p.First {
		arrivals, err := sim.Arrivals(w, p.base.Seed+uint64(k))
		if err != nil {
			return 0, false, err
		}
		n := 0
		for _, ok := arrivals.Next(); ok; _, ok = arrivals.Next() {
			n++
		}
		most = max(most, n)
	}
	return most, true, nil
}

func (p *prober) replicaGrid() error {
	low, high := p.Low, p.High
	if low == 0 {
		low = 1
	}
	if high == 0 {
		high = max(64, low)
	}
	whole := low == math.Trunc(low) && high == math.Trunc(high)
	if !whole || !(low >= 1 && low <= high && high <= maxReplicas) {
		return fmt.Errorf("the range of replicas must hold whole numbers from 1 to %d, from low to high; not %g to %g", maxReplicas, low, high)
	}
	for n := low; n <= high; n++ {
		p.grid = append(p.grid, n)
	}
	return nil
}

func (p *prober) rateGrid() error {
	if p.base.Workload.Arrivals == nil {
		return errors.New("the scenario has no rate of arrivals to find; allowed: one with [workload.arrivals]")
	}
	own := peakRate(p.base)
	low, high, tolerance := p.Low, p.High, p.Tolerance
	if low == 0 {
		low = own / 64
	}
	if high == 0 {
		high = own * 64
	}
	if tolerance == 0 {
		tolerance = 0.02
	}
	if !(low > 0 && low <= high && high <= 1e6) {
		return fmt.Errorf("the range of rates must lie above 0 and up to 1000000, from low to high; not %g to %g", low, high)
	}
	// A float, because high/low can overflow to infinity.
	count := math.Ceil(math.Log(high/low)/math.Log1p(tolerance)) + 1
	if !(count <= maxGrid) {
		return fmt.Errorf("the range has over %d rates; allowed is a narrower one, or a larger tolerance", maxGrid)
	}
	n := int(count)
	for i := range n {
		p.grid = append(p.grid, round(high/math.Pow(high/low, float64(i)/float64(max(n-1, 1))), 4))
	}
	p.grid = slices.Compact(p.grid)
	return nil
}

// peakRate is the highest rate of the scenario's arrivals.
func peakRate(sc *scenario.Scenario) float64 {
	peak := sc.Workload.Arrivals.Rate
	for _, st := range sc.Workload.Arrivals.Stages {
		peak = max(peak, st.Rate)
	}
	return peak
}

// start is the place of the value nearest to the scenario's own, to begin at.
func (p *prober) start() int {
	own := float64(p.base.Cluster.Replicas)
	if p.Find == Rate {
		own = peakRate(p.base)
	}
	best := 0
	for i, v := range p.grid {
		if math.Abs(v-own) < math.Abs(p.grid[best]-own) {
			best = i
		}
	}
	return best
}

// firstMet is the first of n places that met accepts, all after it being
// accepted too; n when none is. It gallops from start and then bisects.
func firstMet(n, start int, met func(int) bool) int {
	low, high := -1, n // met fails at low and holds at high, by definition at the ends
	step := 1
	if met(start) {
		for high = start; low < high-1; step *= 2 {
			at := max(high-step, 0)
			if !met(at) {
				low = at
				break
			}
			high = at
		}
	} else {
		for low = start; low < high-1; step *= 2 {
			at := min(low+step, n-1)
			if met(at) {
				high = at
				break
			}
			low = at
		}
	}
	for high-low > 1 {
		mid := low + (high-low)/2
		if met(mid) {
			high = mid
		} else {
			low = mid
		}
	}
	return high
}

// met tries the value at the place. After an error it is always false.
func (p *prober) met(place int) bool {
	if p.err != nil {
		return false
	}
	probe, err := p.probe(p.grid[place])
	if err != nil {
		p.err = err
		return false
	}
	p.places, p.probes = append(p.places, place), append(p.probes, *probe)
	if p.Done != nil {
		p.Done(*probe)
	}
	return probe.Verdict == Met
}

// probe runs one value until it is decided.
func (p *prober) probe(value float64) (*Probe, error) {
	sc, err := p.parse(p.setsFor(value))
	if err != nil {
		return nil, fmt.Errorf("with %s = %g: %w", p.Find, value, err)
	}
	if _, err := sim.Limits(p.profile, sc); err != nil {
		return nil, err
	}
	s := &Sweep{
		Name: string(p.Find), Confidence: p.Confidence, looks: looks(p.First, p.Step, p.Seeds),
		Metrics: metricsOf([]*scenario.Scenario{sc}),
		Cells:   []Cell{{Scenario: sc, Policy: p.Policy, Profile: p.profile, Baseline: -1}},
	}
	for k := range p.Seeds {
		s.Seeds = append(s.Seeds, sc.Seed+uint64(k))
	}
	if s.Constraints, err = p.constraints(s.Metrics); err != nil {
		return nil, err
	}
	s.group()
	r, err := s.Run(p.ctx, p.Workers)
	if err != nil {
		return nil, err
	}
	n := r.Ran(0)
	out := &Probe{Value: value, Runs: n, Verdict: s.Verdict(r, 0, n), Extrapolates: s.Extrapolates(r, 0)}
	for _, c := range s.Constraints {
		i, _ := s.Judge(r, 0, c, n)
		out.Goals = append(out.Goals, i)
	}
	return out, nil
}

func (p *prober) constraints(metrics []Metric) ([]Constraint, error) {
	s := &Sweep{Metrics: metrics}
	var out []Constraint
	for _, g := range p.Goals {
		m, err := s.MetricIndex(g.Metric)
		if err != nil {
			return nil, err
		}
		out = append(out, Constraint{Metric: m, Least: g.Least, Bound: g.Bound})
	}
	if len(out) == 0 {
		return nil, errors.New("there must be a goal, such as good>=99%")
	}
	return out, nil
}

// setsFor are the overrides that give the scenario the value. Replicas lose their
// names and the placement of the families that goes with them, so that there can
// be any number of them: family f is then on replica f modulo their number.
func (p *prober) setsFor(value float64) []string {
	if p.Find == Replicas {
		return []string{
			"cluster.replicas=" + strconv.Itoa(int(value)), "cluster.names=[]", "start.owners=[]", "start.spare={}",
		}
	}
	a := p.base.Workload.Arrivals
	if len(a.Stages) == 0 {
		return []string{"workload.arrivals.rate_per_second=" + literal(value)}
	}
	scale := value / peakRate(p.base)
	var stages []any
	for _, st := range a.Stages {
		d, err := st.Duration.MarshalText()
		if err != nil {
			panic(err) // a duration always has a text
		}
		stages = append(stages, map[string]any{"duration": string(d), "rate_per_second": st.Rate * scale})
	}
	return []string{"workload.arrivals.stages=" + literal(stages)}
}
